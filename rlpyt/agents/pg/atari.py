"""Policy gradient agents for Atari games."""

import torch

from rlpyt.agents.atari import AtariMixin
from rlpyt.agents.pg.categorical import AlternatingRecurrentCategoricalPgAgent, CategoricalPgAgent, RecurrentCategoricalPgAgent
from rlpyt.models.pg.atari_ff_model import AtariFfModel
from rlpyt.models.pg.atari_lstm_model import AtariLstmModel

__all__ = ["AlternatingAtariLstmAgent", "AtariFfAgent", "AtariLstmAgent", "AtariMixin"]


class AtariFfAgent(AtariMixin, CategoricalPgAgent):
    """Feedforward agent for images."""

    def __init__(self, ModelCls: type[torch.nn.Module] = AtariFfModel, **kwargs):
        super().__init__(ModelCls=ModelCls, **kwargs)


class AtariLstmAgent(AtariMixin, RecurrentCategoricalPgAgent):
    """Recurrent agent for images."""

    def __init__(self, ModelCls: type[torch.nn.Module] = AtariLstmModel, **kwargs):
        super().__init__(ModelCls=ModelCls, **kwargs)


class AlternatingAtariLstmAgent(AtariMixin, AlternatingRecurrentCategoricalPgAgent):
    """AtariLstmAgent for alternating samplers."""

    def __init__(self, ModelCls: type[torch.nn.Module] = AtariLstmModel, **kwargs):
        super().__init__(ModelCls=ModelCls, **kwargs)
