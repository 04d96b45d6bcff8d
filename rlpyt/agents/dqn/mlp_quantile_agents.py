"""Agents for deep Q-learning of quantiles from vector observations."""

from rlpyt.agents.dqn.quantile_agents import IqnAgent, QrDqnAgent
from rlpyt.agents.mlp import MlpMixin
from rlpyt.models.dqn.mlp_dqn_model import MlpDqnModel
from rlpyt.models.dqn.mlp_iqn_model import MlpIqnModel


class MlpQrDqnAgent(MlpMixin, QrDqnAgent):
    """QR-DQN agent for vector observations, e.g. CartPole."""

    ModelCls = MlpDqnModel


class MlpIqnAgent(MlpMixin, IqnAgent):
    """IQN agent for vector observations, e.g. CartPole."""

    ModelCls = MlpIqnModel
