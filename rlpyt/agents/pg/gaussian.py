"""Policy gradient agents for continuous actions."""

from rlpyt.agents.base import AlternatingRecurrentAgentMixin, RecurrentAgentMixin
from rlpyt.agents.pg.base import PgAgent, RecurrentPgAgent
from rlpyt.agents.spaces import VECTOR, check_action_space
from rlpyt.distributions.gaussian import DistInfoStd, Gaussian


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
