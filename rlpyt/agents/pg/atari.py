"""Policy gradient agents for Atari games."""

import torch

from rlpyt.agents.atari import AtariMixin
from rlpyt.agents.pg.categorical import CategoricalPgAgent
from rlpyt.models.pg.atari_ff_model import AtariFfModel

__all__ = ["AtariFfAgent", "AtariMixin"]


class AtariFfAgent(AtariMixin, CategoricalPgAgent):
    """Feedforward agent for images."""

    def __init__(self, ModelCls: type[torch.nn.Module] = AtariFfModel, **kwargs):
        super().__init__(ModelCls=ModelCls, **kwargs)
