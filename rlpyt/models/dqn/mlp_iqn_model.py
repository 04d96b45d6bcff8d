"""Multilayer perceptron for quantiles of the return at any fraction, from vector observations."""

from collections.abc import Sequence
from typing import Any

import torch

from rlpyt.models.dqn.heads import make_head
from rlpyt.models.dqn.noisy import make_noisy
from rlpyt.models.dqn.quantiles import QuantileHead
from rlpyt.models.mlp import MlpModel, ObservationVector, list_of_sizes
from rlpyt.models.utils import Model
from rlpyt.utils.settings import checked
from rlpyt.utils.tensor import restore_leading_dims


class MlpIqnModel(Model):
    """The first hidden layer sees the observation; its output times an embedding of a fraction goes through the other layers.

    Args:
        hidden_sizes: hidden layer(s), at least one; default [128, 128].
        dueling: split all but the first hidden layer into a dueling head's two streams.
        noisy: explore by noise on all weights but those of the embedding, see `NoisyLinear`.
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
    ) -> None:
        super().__init__()
        self.dueling = dueling
        sizes = list_of_sizes(hidden_sizes, default=[128, 128])
        if not sizes:
            raise ValueError(
                f"{type(self).__name__}: hidden_sizes={hidden_sizes!r} needs at least one layer: its output is multiplied by "
                "the embedding of the fractions."
            )
        self.observation = ObservationVector(observation_shape, n_observations)
        self.first = MlpModel(self.observation.size, sizes[:1])
        self.head = QuantileHead(make_head(sizes[0], sizes[1:], output_size, dueling), sizes[0])
        if noisy:
            make_noisy(self.first)
            make_noisy(self.head.head)

    def forward(self, observation: Any, prev_action: Any, prev_reward: Any, fractions: torch.Tensor) -> torch.Tensor:
        """Quantiles [T,B,output_size,N] at fractions [T,B,N], or [N] for all."""
        x, lead_dims = self.observation(observation)
        quantiles = self.head(self.first(x), as_rows(fractions))
        return restore_leading_dims(quantiles, *lead_dims)


def as_rows(fractions: torch.Tensor) -> torch.Tensor:
    """Fractions [T,B,N], [B,N] or [N] -> [T*B,N], [B,N] or [N]."""
    return fractions.flatten(0, -2) if fractions.dim() > 1 else fractions
