"""Categorical DQN agent for vector observations."""

from rlpyt.agents.dqn.catdqn_agent import CatDqnAgent
from rlpyt.agents.mlp import MlpMixin
from rlpyt.models.dqn.mlp_catdqn_model import MlpCatDqnModel


class MlpCatDqnAgent(MlpMixin, CatDqnAgent):
    """Categorical DQN agent for vector observations, e.g. CartPole."""

    ModelCls = MlpCatDqnModel
