"""Multilayer perceptron, and the conversion of observations of any shape to its input."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np  # noqa: F401  Programs that import all names with an asterisk take it from here.
import torch
import torch.nn.functional as F

from rlpyt.models.linear import Linear, OutputLinear
from rlpyt.utils.tensor import infer_leading_dims


class MlpModel(torch.nn.Module):
    """Multilayer perceptron.

    Args:
        input_size: number of inputs.
        hidden_sizes: width of each hidden layer; an int for one layer; empty or None for none (a linear model).
        output_size: width of a last, linear layer. None leaves it out; the output is then the last hidden layer's, after its
            nonlinearity.
        nonlinearity: class of the activation module.
    """

    def __init__(
        self,
        input_size: int,
        hidden_sizes: Sequence[int] | int | None,
        output_size: int | None = None,
        nonlinearity: type[torch.nn.Module] = torch.nn.ReLU,
    ) -> None:
        super().__init__()
        sizes = [input_size, *_as_list(hidden_sizes)]
        layers = []
        for n_in, n_out in zip(sizes, sizes[1:]):
            layers += [Linear(n_in, n_out), nonlinearity()]
        if output_size is not None:
            layers.append(OutputLinear(sizes[-1], output_size))
        self.model = torch.nn.Sequential(*layers)
        self._output_size = sizes[-1] if output_size is None else output_size

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """[B,input_size] -> [B,output_size]."""
        return self.model(input)

    @property
    def output_size(self) -> int:
        """Width of the output."""
        return self._output_size


class ObservationVector(torch.nn.Module):
    """Turns observations of any shape into float vectors, for models made of linear layers.

    uint8 observations are scaled from [0,255] to [0,1]. The fields of structured (Composite) observations are concatenated.

    Args:
        observation_shape: shape of one observation, or the tuple of shapes of a structured one.
        n_values: if the observation is an integer in ``0 .. n_values - 1`` (shape ``()``), it is encoded one-hot.
    """

    def __init__(self, observation_shape: Sequence, n_values: int | None = None) -> None:
        super().__init__()
        if n_values is not None and tuple(observation_shape) != ():
            raise ValueError(f"n_values={n_values} is for single integers, not observations of shape {observation_shape}.")
        self.observation_shape = observation_shape
        self.n_values = n_values
        self.size = _n_elements(observation_shape) if n_values is None else n_values

    def forward(self, observation: Any) -> tuple[torch.Tensor, tuple[int, int, int]]:
        """Observation with leading dims [T,B], [B] or [] -> float32 [T*B,size], (lead_dim, T, B)."""
        if self.n_values is not None:
            lead_dim, T, B, _ = infer_leading_dims(observation, 0)
            return F.one_hot(observation.reshape(T * B).long(), self.n_values).float(), (lead_dim, T, B)
        parts = []
        for part, shape in _leaves(observation, self.observation_shape):
            lead_dim, T, B, _ = infer_leading_dims(part, len(shape))
            flat = part.reshape(T * B, _n_elements(shape))
            parts.append(flat.float().mul_(1 / 255) if flat.dtype == torch.uint8 else flat.float())
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1), (lead_dim, T, B)


def _as_list(sizes: Sequence[int] | int | None) -> list[int]:
    return [] if sizes is None else [sizes] if isinstance(sizes, int) else list(sizes)


def _is_structure(shape: Sequence) -> bool:
    return any(isinstance(part, (tuple, list)) for part in shape)


def _n_elements(shape: Sequence) -> int:
    if _is_structure(shape):
        return sum(map(_n_elements, shape))
    return int(torch.Size(shape).numel())


def _leaves(observation: Any, shape: Sequence) -> Iterator[tuple[Any, Sequence]]:
    if not _is_structure(shape):
        yield observation, shape
        return
    for part, part_shape in zip(tuple(observation), shape):
        yield from _leaves(part, part_shape)
