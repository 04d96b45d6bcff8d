"""Multilayer perceptron for Q-values of vector observations."""

from collections.abc import Sequence

import torch

from rlpyt.models.dqn.dueling import DuelingHeadModel
from rlpyt.models.dqn.noisy import make_noisy
from rlpyt.models.mlp import MlpModel, ObservationVector
from rlpyt.utils.tensor import restore_leading_dims


class MlpDqnModel(torch.nn.Module):
    """Multilayer perceptron with one Q-value per action.

    Args:
        observation_shape: shape of one observation, which is flattened (see `ObservationVector`).
        output_size: number of actions.
        hidden_sizes: hidden layer(s); default [128, 128].
        dueling: split all but the first hidden layer into a dueling head's two streams.
        n_observations: number of values of a discrete observation, which is encoded one-hot.
        noisy: explore by noise on all weights, see `NoisyLinear`.
    """

    uses_prev_action = False

    def __init__(
        self,
        observation_shape: Sequence,
        output_size: int,
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
                MlpModel(self.observation.size, first), DuelingHeadModel(first, rest, output_size)
            )
        else:
            self.head = MlpModel(self.observation.size, hidden_sizes, output_size)
        if noisy:
            make_noisy(self.head)

    def forward(self, observation, prev_action, prev_reward) -> torch.Tensor:
        """Q-values [T,B,output_size]; leading dims may also be [B] or []."""
        x, lead_dims = self.observation(observation)
        return restore_leading_dims(self.head(x), *lead_dims)
