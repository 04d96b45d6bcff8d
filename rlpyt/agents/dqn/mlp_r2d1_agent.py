"""Recurrent DQN agents for vector observations."""

from rlpyt.agents.dqn.r2d1_agent import R2d1Agent, R2d1AlternatingAgent
from rlpyt.agents.dqn.recurrent_quantile_agents import IqnR2d1Agent, IqnR2d1AlternatingAgent, QrR2d1Agent, QrR2d1AlternatingAgent
from rlpyt.agents.mlp import MlpMixin
from rlpyt.models.dqn.mlp_r2d1_model import MlpR2d1Model


class MlpR2d1Agent(MlpMixin, R2d1Agent):
    """Recurrent DQN agent for vector observations, e.g. CartPole without velocities."""

    ModelCls = MlpR2d1Model


class MlpR2d1AlternatingAgent(MlpMixin, R2d1AlternatingAgent):
    """MlpR2d1Agent for alternating samplers."""

    ModelCls = MlpR2d1Model


class MlpQrR2d1Agent(MlpMixin, QrR2d1Agent):
    """Recurrent QR-DQN agent for vector observations."""

    ModelCls = MlpR2d1Model


class MlpQrR2d1AlternatingAgent(MlpMixin, QrR2d1AlternatingAgent):
    """MlpQrR2d1Agent for alternating samplers."""

    ModelCls = MlpR2d1Model


class MlpIqnR2d1Agent(MlpMixin, IqnR2d1Agent):
    """Recurrent IQN agent for vector observations."""

    ModelCls = MlpR2d1Model


class MlpIqnR2d1AlternatingAgent(MlpMixin, IqnR2d1AlternatingAgent):
    """MlpIqnR2d1Agent for alternating samplers."""

    ModelCls = MlpR2d1Model
