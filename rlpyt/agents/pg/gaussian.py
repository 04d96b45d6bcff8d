"""Policy gradient agents for continuous actions."""

# What is not used here is taken from here by programs that import all names with an asterisk.
import torch  # noqa: F401

from rlpyt.agents.base import AgentStep, AlternatingRecurrentAgentMixin, BaseAgent, RecurrentAgentMixin  # noqa: F401
from rlpyt.agents.pg.base import AgentInfo, AgentInfoRnn, PgAgent, RecurrentPgAgent  # noqa: F401
from rlpyt.agents.spaces import VECTOR, check_action_space
from rlpyt.distributions.gaussian import DistInfoStd, Gaussian
from rlpyt.utils.buffer import buffer_func, buffer_method, buffer_to  # noqa: F401


class GaussianMixin:
    """A Gaussian distribution over actions, which are neither clipped nor squashed.

    The model returns mean [*lead,A], log_std [*lead,A] and value [*lead].
    """

    DistInfoCls = DistInfoStd

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
