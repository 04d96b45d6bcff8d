"""Multilayer perceptron for Q-values of vector observations."""

from collections.abc import Sequence
from typing import Any

import torch

from rlpyt.models.dqn.heads import make_head
from rlpyt.models.dqn.noisy import make_noisy
from rlpyt.models.mlp import MlpModel, ObservationVector, list_of_sizes
from rlpyt.models.utils import Model
from rlpyt.utils.settings import checked
from rlpyt.utils.tensor import restore_leading_dims


class MlpDqnModel(Model):
    """Multilayer perceptron with one Q-value per action.

    Args:
        hidden_sizes: hidden layer(s); default [128, 128].
        dueling: split all but the first hidden layer into a dueling head's two streams.
        noisy: explore by noise on all weights, see `NoisyLinear`.
        n_atoms: this many logits of the atoms of a distribution, or quantiles, per action, in place of a Q-value; None for Q-values.
    """

    uses_prev_action = False

    @checked()
    def __init__(
        self,
        observation_shape: Sequence,
        output_size: int,
        hidden_sizes: Sequence[int] | int | None = None,
        dueling: bool = False,
        n_observations: int | None = None,
        noisy: bool = False,
        n_atoms: int | None = None,
    ) -> None:
        super().__init__()
        self.dueling = dueling
        sizes = list_of_sizes(hidden_sizes, default=[128, 128])
        self.observation = ObservationVector(observation_shape, n_observations)
        if dueling:
            first = MlpModel(self.observation.size, sizes[:1])
            self.head: torch.nn.Module = torch.nn.Sequential(first, make_head(first.output_size, sizes[1:], output_size, dueling, n_atoms))
        else:
            self.head = make_head(self.observation.size, sizes, output_size, dueling, n_atoms)
        if noisy:
            make_noisy(self.head)

    def forward(self, observation: Any, prev_action: Any, prev_reward: Any) -> torch.Tensor:
        """Q-values [T,B,output_size], or logits or quantiles [T,B,output_size,n_atoms]."""
        x, lead_dims = self.observation(observation)
        return restore_leading_dims(self.head(x), *lead_dims)
