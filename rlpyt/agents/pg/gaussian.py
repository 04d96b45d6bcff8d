"""Policy gradient agents for continuous actions."""

from typing import Any

# Names that are not used here are for programs that import all names with an asterisk.
import torch  # noqa: F401

from rlpyt.agents.base import AgentStep, AlternatingRecurrentAgentMixin, BaseAgent, RecurrentAgentMixin  # noqa: F401
from rlpyt.agents.pg.base import AgentInfo, AgentInfoRnn, PgAgent  # noqa: F401
from rlpyt.agents.spaces import VECTOR, check_action_space
from rlpyt.distributions.base import Distribution
from rlpyt.distributions.gaussian import DistInfoStd, Gaussian, gaussians
from rlpyt.utils.buffer import buffer_func, buffer_method, buffer_to  # noqa: F401
from rlpyt.utils.settings import checked


class GaussianPgAgent(PgAgent):
    """Agent for policy gradients with a Gaussian distribution over actions.

    The model returns mean [*lead,A], log_std [*lead,A] and value [*lead].

    A Gaussian has no bounds. Environments get its actions clipped to those of their action space. The batch, and the
    previous action that the agent sees, hold the drawn actions, so that likelihoods are right. With clip_actions=False environments get the
    drawn actions, for example because they squash actions themselves.

    Args:
        clip_actions: clip the actions for environments to the bounds of their action space.
        deterministic_eval: in evaluation take the mean of the distribution as the action, instead of a sample.
    """

    DistInfoCls = DistInfoStd

    @checked()
    def __init__(self, *, clip_actions: bool = True, deterministic_eval: bool = False, **settings: Any) -> None:
        super().__init__(**settings)
        self.clip_actions, self.deterministic_eval = clip_actions, deterministic_eval

    def make_distribution(self, action_space: Any) -> Distribution:
        """Return the distribution; ValueError for actions that are not vectors with the same bounds -a and a for all components."""
        check_action_space(self, action_space, VECTOR)
        return Gaussian(dim=action_space.shape[0])

    def _set_mode(self, mode: str, training: bool) -> None:
        if self.deterministic_eval and (mode == "eval") != (self._mode == "eval"):
            if mode == "eval":
                self._stds = [gaussian.std for gaussian in gaussians(self.distribution)]
            for gaussian, std in zip(gaussians(self.distribution), self._stds):
                gaussian.set_std(0.0 if mode == "eval" else std)
        super()._set_mode(mode, training)


class RecurrentGaussianPgAgentBase(GaussianPgAgent):
    """The same with a recurrent model; a mixin in front of it keeps the state."""

    recurrent = True


class RecurrentGaussianPgAgent(RecurrentAgentMixin, RecurrentGaussianPgAgentBase):
    """Recurrent agent with a Gaussian distribution over actions."""


class AlternatingRecurrentGaussianPgAgent(AlternatingRecurrentAgentMixin, RecurrentGaussianPgAgentBase):
    """The same for alternating samplers."""
