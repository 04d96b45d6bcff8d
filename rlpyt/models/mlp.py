"""Multilayer perceptron, and the conversion of observations of any shape to its input, normalized or not."""

from collections.abc import Iterator, Sequence
from numbers import Integral
from operator import index
from typing import Any, cast

import numpy as np
import torch
import torch.nn.functional as F

from rlpyt.models.linear import Linear, OutputLinear
from rlpyt.models.running_mean_std import RunningMeanStdModel
from rlpyt.models.utils import Model
from rlpyt.utils.settings import Number, checked
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
        sizes = [input_size, *list_of_sizes(hidden_sizes)]
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


class NormalizingModel(Model):
    """Base of models that take observations as vectors, normalized by the statistics of those given to `update_obs_rms`.

    Args:
        normalize_observation: subtract the running mean of observations, divide by their standard deviation.
        norm_obs_clip: limit of normalized observations.
        norm_obs_var_clip: least variance to normalize by; None for no limit, which gives NaN where observations are constant.
    """

    # Whether `normalize_observation` counts: not in subclasses that have an attribute of this name for another purpose, nor in pickled
    # models of earlier versions, which lack it. (Where earlier versions had it, it is True for the class.)
    _normalizes = False

    @checked(norm_obs_var_clip=Number(0, above=True, optional=True))
    def __init__(
        self,
        observation_shape: Sequence,
        normalize_observation: bool = False,
        norm_obs_clip: float = 10,
        norm_obs_var_clip: float = 1e-6,
        n_observations: int | None = None,
    ) -> None:
        super().__init__()
        self.observation = ObservationVector(observation_shape, n_observations)
        self._obs_ndim = len(observation_shape)
        self.normalize_observation = normalize_observation
        self._normalizes = self._normalizes or normalize_observation
        self.norm_obs_clip = norm_obs_clip
        self.norm_obs_var_clip = norm_obs_var_clip
        if normalize_observation:
            self.obs_rms = RunningMeanStdModel((self.observation.size,))

    def observation_vector(self, observation: Any) -> tuple[torch.Tensor, tuple[int, int, int]]:
        """Observation with leading dims [T,B], [B] or [] -> [T*B,size], (lead_dim, T, B)."""
        x, lead_dims = self.observation(observation)
        return self.normalized(x), lead_dims

    def normalized(self, x: torch.Tensor) -> torch.Tensor:
        """Observations as vectors [n,size] -> the same, normalized if `normalize_observation`."""
        is_on = self._normalizes and self.normalize_observation
        return self.obs_rms.normalize(x, self.norm_obs_clip, self.norm_obs_var_clip) if is_on else x

    def update_obs_rms(self, observation: Any) -> None:
        """Add observations to the running statistics, if they are used."""
        if self._normalizes and self.normalize_observation:
            self.obs_rms.update(self.observation(observation)[0])


def list_of_sizes(hidden_sizes: Sequence[int] | int | None, default: Sequence[int] = ()) -> list[int]:
    """Return the widths of hidden layers as a list; an integer stands for one layer, and None for the `default`.

    Integers may be those of numpy, which become Python's, because some modules of torch take no others.
    """
    sizes = default if hidden_sizes is None else hidden_sizes
    sizes = sizes.tolist() if isinstance(sizes, (np.ndarray, torch.Tensor)) else sizes
    return list(map(index, [sizes] if isinstance(sizes, Integral) else cast(Sequence[int], sizes)))


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
