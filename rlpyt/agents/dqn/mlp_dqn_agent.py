"""DQN agent for vector observations."""

from rlpyt.agents.dqn.dqn_agent import DqnAgent
from rlpyt.agents.mlp import MlpMixin
from rlpyt.models.dqn.mlp_dqn_model import MlpDqnModel


class MlpDqnAgent(MlpMixin, DqnAgent):
    """DQN agent for vector observations, e.g. CartPole."""

    ModelCls = MlpDqnModel
