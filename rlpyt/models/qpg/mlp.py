"""Multilayer perceptrons for Q-function policy gradients with vector observations."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from rlpyt.models.mlp import MlpModel, ObservationVector
from rlpyt.models.qpg.perceptron import Layers, perceptrons
from rlpyt.utils.tensor import restore_leading_dims


class QpgMlp(torch.nn.Module):
    """What all of them are: an observation of any shape, flattened, and perhaps an action -> numbers.

    Args:
        observation_shape: shape of one observation, which is flattened (see `ObservationVector`).
        hidden_sizes: widths of the hidden layers, with ReLU after each.
        output_size: how many numbers.
        action_size: components of the action if it is an input, else 0.
    """

    uses_prev_action = False

    def __init__(self, observation_shape: Sequence, hidden_sizes: Sequence[int] | int | None, output_size: int, action_size: int = 0):
        super().__init__()
        self.observation = ObservationVector(observation_shape)
        self.mlp = MlpModel(self.observation.size + action_size, hidden_sizes, output_size)
        self._linears = [module for module in self.mlp.model if isinstance(module, torch.nn.Linear)]

    def layers(self) -> Layers:
        """(weight, bias) of each layer."""
        return [(linear._parameters["weight"], linear._parameters["bias"]) for linear in self._linears]  # as attributes they take longer

    def input(self, observation, action: torch.Tensor | None = None) -> tuple[torch.Tensor, tuple[int, int, int]]:
        """Observation and action with leading dims [T,B], [B] or [] -> [T*B,size], (lead_dim, T, B)."""
        x, lead_dims = self.observation(observation)
        if action is not None:
            x = torch.cat([x, action.reshape(len(x), -1).to(x.dtype)], dim=1)
        return x, lead_dims

    def output(self, observation, action: torch.Tensor | None = None) -> tuple[torch.Tensor, tuple[int, int, int]]:
        """The same -> [T*B,output_size], (lead_dim, T, B)."""
        x, lead_dims = self.input(observation, action)
        return perceptrons(x, [self.layers()])[0], lead_dims


class MuMlpModel(QpgMlp):
    """A deterministic policy: ``output_max * tanh`` of a perceptron.

    Args:
        observation_shape, hidden_sizes: as in all models here.
        action_size: number of action components.
        output_max: their largest absolute value.
    """

    def __init__(self, observation_shape: Sequence, hidden_sizes: Sequence[int] | int | None, action_size: int, output_max: float = 1):
        super().__init__(observation_shape, hidden_sizes, action_size)
        self._output_max = output_max

    def forward(self, observation, prev_action, prev_reward) -> torch.Tensor:
        """Action [T,B,action_size]; leading dims may also be [B] or []."""
        x, lead_dims = self.output(observation)
        return restore_leading_dims(self._output_max * torch.tanh(x), *lead_dims)


class PiMlpModel(QpgMlp):
    """A Gaussian policy: one perceptron for mean and log of the standard deviation.

    Args:
        observation_shape, hidden_sizes: as in all models here.
        action_size: number of action components.
    """

    def __init__(self, observation_shape: Sequence, hidden_sizes: Sequence[int] | int | None, action_size: int):
        super().__init__(observation_shape, hidden_sizes, 2 * action_size)

    def forward(self, observation, prev_action, prev_reward) -> tuple[torch.Tensor, torch.Tensor]:
        """mean and log_std, both [T,B,action_size]; leading dims may also be [B] or []."""
        x, lead_dims = self.output(observation)
        return restore_leading_dims(x.chunk(2, dim=-1), *lead_dims)


class QofMuMlpModel(QpgMlp):
    """The value of an action.

    Args:
        observation_shape, hidden_sizes: as in all models here.
        action_size: number of action components.
    """

    def __init__(self, observation_shape: Sequence, hidden_sizes: Sequence[int] | int | None, action_size: int):
        super().__init__(observation_shape, hidden_sizes, 1, action_size)

    def forward(self, observation, prev_action, prev_reward, action) -> torch.Tensor:
        """Q [T,B]; leading dims may also be [B] or []."""
        q, lead_dims = self.output(observation, action)
        return restore_leading_dims(q.squeeze(-1), *lead_dims)


class VMlpModel(QpgMlp):
    """The value of a state.

    Args:
        observation_shape, hidden_sizes: as in all models here.
        action_size: not used.
    """

    def __init__(self, observation_shape: Sequence, hidden_sizes: Sequence[int] | int | None, action_size: int | None = None):
        super().__init__(observation_shape, hidden_sizes, 1)

    def forward(self, observation, prev_action, prev_reward) -> torch.Tensor:
        """V [T,B]; leading dims may also be [B] or []."""
        v, lead_dims = self.output(observation)
        return restore_leading_dims(v.squeeze(-1), *lead_dims)


def q_values(models: Sequence[torch.nn.Module], observation, prev_action, prev_reward, action) -> tuple[torch.Tensor, ...]:
    """Q of several models for the same input: in one pass where they are what is defined here (and not compiled), else in turn."""
    if len(models) == 1 or any(type(model) is not QofMuMlpModel or model._compiled_call_impl for model in models):
        return tuple(model(observation, prev_action, prev_reward, action) for model in models)
    x, lead_dims = models[0].input(observation, action)
    outputs = perceptrons(x, [model.layers() for model in models])
    return restore_leading_dims(tuple(q.squeeze(-1) for q in outputs), *lead_dims)
