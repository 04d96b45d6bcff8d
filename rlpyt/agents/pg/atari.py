"""Policy gradient agents for Atari games."""

from rlpyt.agents.atari import AtariMixin
from rlpyt.agents.pg.categorical import AlternatingRecurrentCategoricalPgAgent, CategoricalPgAgent, RecurrentCategoricalPgAgent
from rlpyt.models.pg.atari_ff_model import AtariFfModel
from rlpyt.models.pg.atari_lstm_model import AtariLstmModel

__all__ = ["AlternatingAtariLstmAgent", "AtariFfAgent", "AtariLstmAgent", "AtariMixin"]


class AtariFfAgent(AtariMixin, CategoricalPgAgent):
    """Feedforward agent for images."""

    ModelCls = AtariFfModel


class AtariLstmAgent(AtariMixin, RecurrentCategoricalPgAgent):
    """Recurrent agent for images."""

    ModelCls = AtariLstmModel


class AlternatingAtariLstmAgent(AtariMixin, AlternatingRecurrentCategoricalPgAgent):
    """AtariLstmAgent for alternating samplers."""

    ModelCls = AtariLstmModel
