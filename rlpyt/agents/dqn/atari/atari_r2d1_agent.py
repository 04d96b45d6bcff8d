"""Recurrent DQN agents for Atari games."""

from rlpyt.agents.dqn.atari.mixin import AtariMixin
from rlpyt.agents.dqn.r2d1_agent import R2d1Agent, R2d1AlternatingAgent
from rlpyt.agents.dqn.recurrent_quantile_agents import IqnR2d1Agent, IqnR2d1AlternatingAgent, QrR2d1Agent, QrR2d1AlternatingAgent
from rlpyt.models.dqn.atari_r2d1_model import AtariR2d1Model


class AtariR2d1Agent(AtariMixin, R2d1Agent):
    """Recurrent DQN agent for images."""

    ModelCls = AtariR2d1Model


class AtariR2d1AlternatingAgent(AtariMixin, R2d1AlternatingAgent):
    """AtariR2d1Agent for alternating samplers."""

    ModelCls = AtariR2d1Model


class AtariQrR2d1Agent(AtariMixin, QrR2d1Agent):
    """Recurrent QR-DQN agent for images."""

    ModelCls = AtariR2d1Model


class AtariQrR2d1AlternatingAgent(AtariMixin, QrR2d1AlternatingAgent):
    """AtariQrR2d1Agent for alternating samplers."""

    ModelCls = AtariR2d1Model


class AtariIqnR2d1Agent(AtariMixin, IqnR2d1Agent):
    """Recurrent IQN agent for images."""

    ModelCls = AtariR2d1Model


class AtariIqnR2d1AlternatingAgent(AtariMixin, IqnR2d1AlternatingAgent):
    """AtariIqnR2d1Agent for alternating samplers."""

    ModelCls = AtariR2d1Model
