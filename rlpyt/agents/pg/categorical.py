"""Policy gradient agents for discrete actions."""

from rlpyt.agents.base import AlternatingRecurrentAgentMixin, RecurrentAgentMixin, discrete_action_count
from rlpyt.agents.pg.base import PgAgent, RecurrentPgAgent
from rlpyt.distributions.categorical import Categorical, DistInfo


class CategoricalMixin:
    """A categorical distribution over actions.

    The model returns action probabilities [*lead,n] and value [*lead], and receives the previous action one-hot.
    """

    DistInfoCls = DistInfo

    def make_distribution(self, action_space) -> Categorical:
        """ValueError for an action space that is not discrete from 0."""
        return Categorical(dim=discrete_action_count(self, action_space))


class CategoricalPgAgent(CategoricalMixin, PgAgent):
    """Agent for policy gradients with a categorical distribution over actions."""


class RecurrentCategoricalPgAgentBase(CategoricalMixin, RecurrentPgAgent):
    """The same with a recurrent model; a mixin in front of it keeps the state."""


class RecurrentCategoricalPgAgent(RecurrentAgentMixin, RecurrentCategoricalPgAgentBase):
    """Recurrent agent with a categorical distribution over actions."""


class AlternatingRecurrentCategoricalPgAgent(AlternatingRecurrentAgentMixin, RecurrentCategoricalPgAgentBase):
    """The same for alternating samplers."""
