"""Agents for deep Q-learning of quantiles on Atari games."""

from rlpyt.agents.dqn.atari.mixin import AtariMixin
from rlpyt.agents.dqn.quantile_agents import IqnAgent, QrDqnAgent
from rlpyt.models.dqn.atari_dqn_model import AtariDqnModel
from rlpyt.models.dqn.atari_iqn_model import AtariIqnModel


class AtariQrDqnAgent(AtariMixin, QrDqnAgent):
    """QR-DQN agent for images."""

    ModelCls = AtariDqnModel


class AtariIqnAgent(AtariMixin, IqnAgent):
    """IQN agent for images."""

    ModelCls = AtariIqnModel
