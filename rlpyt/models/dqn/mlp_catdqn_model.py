"""Multilayer perceptron for distributions of the return, from vector observations."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F

from rlpyt.models.dqn.mlp_dqn_model import MlpDqnModel
from rlpyt.utils.settings import checked


class MlpCatDqnModel(MlpDqnModel):
    """Like `MlpDqnModel`, with the probabilities of `n_atoms` returns per action instead of a Q-value.

    The other settings are those of `rlpyt.models.dqn.mlp_dqn_model.MlpDqnModel`.

    Args:
        n_atoms: atoms of a distribution.
        hidden_sizes: hidden layer(s); default [128, 128].
    """

    uses_prev_action = False

    @checked()
    def __init__(
        self,
        observation_shape: Sequence,
        output_size: int,
        n_atoms: int = 51,
        hidden_sizes: Sequence[int] | int | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(observation_shape, output_size, hidden_sizes, n_atoms=n_atoms, **settings)

    def forward(self, observation: Any, prev_action: Any, prev_reward: Any) -> torch.Tensor:
        """Probabilities [T,B,output_size,n_atoms], which sum to 1 over the atoms."""
        return F.softmax(super().forward(observation, prev_action, prev_reward), dim=-1)
