"""Multilayer perceptron for distributions of the return, from vector observations."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F

from rlpyt.models.dqn.atari_catdqn_model import DistributionalHeadModel
from rlpyt.models.dqn.dueling import DistributionalDuelingHeadModel
from rlpyt.models.dqn.noisy import make_noisy
from rlpyt.models.mlp import MlpModel, ObservationVector
from rlpyt.utils.tensor import restore_leading_dims


class MlpCatDqnModel(torch.nn.Module):
    """Like `MlpDqnModel`, with the probabilities of `n_atoms` returns per action instead of a Q-value.

    Args:
        observation_shape: shape of one observation, which is flattened (see `ObservationVector`).
        output_size: number of actions.
        n_atoms: atoms of a distribution.
        hidden_sizes, dueling, n_observations, noisy: as in `MlpDqnModel`.
    """

    uses_prev_action = False

    def __init__(
        self,
        observation_shape: Sequence,
        output_size: int,
        n_atoms: int = 51,
        hidden_sizes: Sequence[int] | int | None = None,
        dueling: bool = False,
        n_observations: int | None = None,
        noisy: bool = False,
    ):
        super().__init__()
        self.dueling = dueling
        hidden_sizes = [128, 128] if hidden_sizes is None else hidden_sizes
        self.observation = ObservationVector(observation_shape, n_observations)
        if dueling:
            first, *rest = [hidden_sizes] if isinstance(hidden_sizes, int) else hidden_sizes
            self.head = torch.nn.Sequential(
                MlpModel(self.observation.size, first), DistributionalDuelingHeadModel(first, rest, output_size, n_atoms)
            )
        else:
            self.head = DistributionalHeadModel(self.observation.size, hidden_sizes, output_size, n_atoms)
        if noisy:
            make_noisy(self.head)

    def forward(self, observation, prev_action, prev_reward) -> torch.Tensor:
        """Probabilities [T,B,output_size,n_atoms], which sum to 1 over the atoms; leading dims may also be [B] or []."""
        x, lead_dims = self.observation(observation)
        return restore_leading_dims(F.softmax(self.head(x), dim=-1), *lead_dims)
