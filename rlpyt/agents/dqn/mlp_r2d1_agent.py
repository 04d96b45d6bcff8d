"""Recurrent DQN agents for vector observations."""

from rlpyt.agents.dqn.r2d1_agent import R2d1Agent, R2d1AlternatingAgent
from rlpyt.agents.mlp import MlpMixin
from rlpyt.models.dqn.mlp_r2d1_model import MlpR2d1Model


class MlpR2d1Agent(MlpMixin, R2d1Agent):
    """Recurrent DQN agent for vector observations, e.g. CartPole without velocities."""

    ModelCls = MlpR2d1Model


class MlpR2d1AlternatingAgent(MlpMixin, R2d1AlternatingAgent):
    """MlpR2d1Agent for alternating samplers."""

    ModelCls = MlpR2d1Model
