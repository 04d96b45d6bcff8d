"""Policy gradient agents for discrete actions."""

# Names that are not used here are for programs that import all names with an asterisk.
import torch  # noqa: F401

from rlpyt.agents.base import (  # noqa: F401
    AgentStep,
    AlternatingRecurrentAgentMixin,
    BaseAgent,
    RecurrentAgentMixin,
    discrete_action_count,
)
from rlpyt.agents.pg.base import AgentInfo, AgentInfoRnn, PgAgent  # noqa: F401
from rlpyt.distributions.base import Distribution
from rlpyt.distributions.categorical import Categorical, DistInfo
from rlpyt.spaces.base import Space
from rlpyt.utils.buffer import buffer_func, buffer_method, buffer_to  # noqa: F401


class CategoricalPgAgent(PgAgent):
    """Agent for policy gradients with a categorical distribution over actions.

    The model returns action probabilities [*lead,n] and value [*lead], and receives the previous action one-hot.
    """

    DistInfoCls = DistInfo

    def make_distribution(self, action_space: Space) -> Distribution:
        """Return the distribution; ValueError for an action space that is not discrete from 0."""
        return Categorical(dim=discrete_action_count(self, action_space))


class RecurrentCategoricalPgAgentBase(CategoricalPgAgent):
    """The same with a recurrent model; a mixin in front of it keeps the state."""

    recurrent = True


class RecurrentCategoricalPgAgent(RecurrentAgentMixin, RecurrentCategoricalPgAgentBase):
    """Recurrent agent with a categorical distribution over actions."""


class AlternatingRecurrentCategoricalPgAgent(AlternatingRecurrentAgentMixin, RecurrentCategoricalPgAgentBase):
    """The same for alternating samplers."""
