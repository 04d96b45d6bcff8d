"""Policy gradient agents for continuous actions."""

from typing import Any

# Names that are not used here are for programs that import all names with an asterisk.
import torch  # noqa: F401

from rlpyt.agents.base import AgentStep, AlternatingRecurrentAgentMixin, BaseAgent, RecurrentAgentMixin  # noqa: F401
from rlpyt.agents.pg.base import AgentInfo, AgentInfoRnn, PgAgent  # noqa: F401
from rlpyt.agents.spaces import ANY_BOX, check_action_space
from rlpyt.distributions.base import Distribution
from rlpyt.distributions.composite import gaussians
from rlpyt.distributions.gaussian import DistInfoStd, Gaussian, ShapedGaussian
from rlpyt.utils.buffer import buffer_func, buffer_method, buffer_to  # noqa: F401
from rlpyt.utils.settings import checked, one_of

AUTO = "auto"  # As `rescale_actions`.
RESCALE = one_of(AUTO, True, False)


def gaussian_over(action_space: Any) -> Gaussian:
    """Return a Gaussian distribution over a Box of any shape."""
    shape = action_space.shape
    return Gaussian(dim=shape[0]) if len(shape) == 1 else ShapedGaussian(shape)


class GaussianPgAgent(PgAgent):
    """Agent for policy gradients with a Gaussian distribution over actions.

    The model returns mean [*lead,A], log_std [*lead,A] and value [*lead], for A components of the action in all.

    The batch, and the previous action that the agent sees, hold the actions that were drawn, so that likelihoods are right. Environments
    get them in the units of their action space, and within its bounds:

    - If all components have the same bounds -a and a, the drawn action is in these units already.
    - Otherwise the agent acts in [-1,1], and each component with two finite bounds is rescaled to them, linearly.
    - A component without bounds, or with one, is in the environment's units.
    - A Gaussian has no bounds, so the action is then clipped to those of the space.

    Args:
        clip_actions: clip the actions for environments to the bounds of their action space. With False, environments get what was drawn
            (and rescaled), for example because they squash actions themselves.
        rescale_actions: "auto" as above; True to act in [-1,1] in every component with two finite bounds, also where all are -a and a;
            False to act in the environment's units everywhere.
        deterministic_eval: in evaluation take the mean of the distribution as the action, instead of a sample.
    """

    DistInfoCls = DistInfoStd

    @checked(rescale_actions=RESCALE)
    def __init__(
        self, *, clip_actions: bool = True, rescale_actions: bool | str = AUTO, deterministic_eval: bool = False, **settings: Any
    ) -> None:
        super().__init__(**settings)
        self.clip_actions, self.rescale_actions, self.deterministic_eval = clip_actions, rescale_actions, deterministic_eval

    def make_distribution(self, action_space: Any) -> Distribution:
        """Return the distribution; ValueError for actions that are not real numbers."""
        check_action_space(self, action_space, ANY_BOX)
        return gaussian_over(action_space)

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
