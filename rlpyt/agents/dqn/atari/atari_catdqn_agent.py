"""Categorical DQN agent for Atari games."""

from rlpyt.agents.dqn.atari.mixin import AtariMixin
from rlpyt.agents.dqn.catdqn_agent import CatDqnAgent
from rlpyt.models.dqn.atari_catdqn_model import AtariCatDqnModel


class AtariCatDqnAgent(AtariMixin, CatDqnAgent):
    """Categorical DQN agent for images."""

    ModelCls = AtariCatDqnModel
