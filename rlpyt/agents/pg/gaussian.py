"""Policy gradient agents for continuous actions."""

# What is not used here is taken from here by programs that import all names with an asterisk.
import torch  # noqa: F401

from rlpyt.agents.base import AgentStep, AlternatingRecurrentAgentMixin, BaseAgent, RecurrentAgentMixin  # noqa: F401
from rlpyt.agents.pg.base import AgentInfo, AgentInfoRnn, PgAgent, RecurrentPgAgent  # noqa: F401
from rlpyt.agents.spaces import VECTOR, check_action_space
from rlpyt.distributions.gaussian import DistInfoStd, Gaussian
from rlpyt.utils.buffer import buffer_func, buffer_method, buffer_to  # noqa: F401
from rlpyt.utils.settings import checked


class GaussianMixin:
    """A Gaussian distribution over actions.

    The model returns mean [*lead,A], log_std [*lead,A] and value [*lead].

    A Gaussian has no bounds. Environments get its actions clipped to those of their action space. The batch holds what was drawn, so that
    likelihoods are right, and so does the previous action that the agent sees. With clip_actions=False environments get what was drawn,
    for example because they squash actions themselves.

    clip_actions: clip what environments get to the bounds of their action space.
    """

    DistInfoCls = DistInfoStd

    @checked()
    def __init__(self, *args, clip_actions: bool = True, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self.clip_actions = clip_actions

    def make_distribution(self, action_space) -> Gaussian:
        """ValueError for actions that are not vectors, or whose bounds are not the same -a and a for all components."""
        check_action_space(self, action_space, VECTOR)
        return Gaussian(dim=action_space.shape[0])


class GaussianPgAgent(GaussianMixin, PgAgent):
    """Agent for policy gradients with a Gaussian distribution over actions."""


class RecurrentGaussianPgAgentBase(GaussianMixin, RecurrentPgAgent):
    """The same with a recurrent model; a mixin in front of it keeps the state."""


class RecurrentGaussianPgAgent(RecurrentAgentMixin, RecurrentGaussianPgAgentBase):
    """Recurrent agent with a Gaussian distribution over actions."""


class AlternatingRecurrentGaussianPgAgent(AlternatingRecurrentAgentMixin, RecurrentGaussianPgAgentBase):
    """The same for alternating samplers."""
