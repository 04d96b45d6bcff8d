"""Convolutional model for distributions of the return, from images."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F

from rlpyt.models.dqn.atari_dqn_model import AtariDqnModel
from rlpyt.models.dqn.heads import DistributionalHeadModel
from rlpyt.utils.settings import checked

__all__ = ["AtariCatDqnModel", "DistributionalHeadModel"]


class AtariCatDqnModel(AtariDqnModel):
    """Like `AtariDqnModel`, with the probabilities of `n_atoms` returns per action instead of a Q-value.

    The other settings are those of `rlpyt.models.dqn.atari_dqn_model.AtariDqnModel`.

    Args:
        n_atoms: atoms of a distribution.
        fc_sizes: width(s) of the hidden layer(s) of the head.
    """

    uses_prev_action = False

    @checked()
    def __init__(
        self, image_shape: Sequence[int], output_size: int, n_atoms: int = 51, fc_sizes: Sequence[int] | int = 512, **settings: Any
    ) -> None:
        super().__init__(image_shape, output_size, fc_sizes, n_atoms=n_atoms, **settings)

    def forward(self, observation: Any, prev_action: Any, prev_reward: Any) -> torch.Tensor:
        """Probabilities [T,B,output_size,n_atoms], which sum to 1 over the atoms."""
        return F.softmax(super().forward(observation, prev_action, prev_reward), dim=-1)
