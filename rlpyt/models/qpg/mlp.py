"""Multilayer perceptrons for Q-function policy gradients with vector observations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeGuard, TypeVar

import torch

from rlpyt.models.batch_renorm import BatchRenorm
from rlpyt.models.linear import Linear, OutputLinear
from rlpyt.models.mlp import MlpModel, NormalizingModel, ObservationVector
from rlpyt.models.qpg.perceptron import Layers, after_constants, perceptrons
from rlpyt.models.utils import as_vectors
from rlpyt.utils.settings import checked
from rlpyt.utils.tensor import restore_leading_dims

M = TypeVar("M", bound=torch.nn.Module)


class QpgMlp(NormalizingModel):
    """A perceptron from an observation of any shape, flattened, and perhaps an action, to numbers.

    Its settings are those of `rlpyt.models.mlp.NormalizingModel`, and:

    Args:
        hidden_sizes: widths of the hidden layers, with ReLU after each.
        output_size: number of outputs.
        action_size: components of the action if it is an input, else 0.
        batch_renorm: batch renormalization of the input and of each hidden layer, see `rlpyt.models.batch_renorm.BatchRenorm`.
    """

    @checked()
    def __init__(
        self,
        observation_shape: Sequence,
        hidden_sizes: Sequence[int] | int | None,
        output_size: int,
        action_size: int = 0,
        batch_renorm: bool = False,
        n_observations: int | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(observation_shape, n_observations=n_observations, **settings)
        mlp = MlpModel(self.observation.size + action_size, hidden_sizes, output_size)
        self.mlp: torch.nn.Module = with_batch_renorm(mlp) if batch_renorm else mlp

    def layers(self) -> Layers | None:
        """Return (weight, bias) of each layer of `mlp` if it still consists of linear layers with ReLU between them, otherwise None."""
        return _layers(self.mlp)

    def input(self, observation: Any, action: torch.Tensor | None = None) -> tuple[torch.Tensor, tuple[int, int, int]]:
        """Observation and action with leading dims [T,B], [B] or [] -> [T*B,size], (lead_dim, T, B)."""
        to_vector = self.observation
        if self._obs_ndim == 1 and _is_plain(to_vector, ObservationVector) and _is_batch_of_vectors(observation):
            x, lead_dims = observation, (1, 1, len(observation))  # Nothing is left to do: this case is the most frequent one.
        else:
            x, lead_dims = to_vector(observation)
        x = self.normalized(x)
        if action is not None:
            x = torch.cat([x, as_vectors(action, len(x)).to(x.dtype)], dim=1)
        return x, lead_dims

    def output(self, observation: Any, action: torch.Tensor | None = None) -> tuple[torch.Tensor, tuple[int, int, int]]:
        """The same inputs -> [T*B,output_size], (lead_dim, T, B)."""
        x, lead_dims = self.input(observation, action)
        layers = self.layers()
        return self.mlp(x) if layers is None else perceptrons(x, [layers])[0], lead_dims


def with_batch_renorm(mlp: Any) -> torch.nn.Sequential:
    """Return the layers of a perceptron with batch renormalization of its input, and behind each nonlinearity."""
    size = next(layer.in_features for layer in mlp.model if isinstance(layer, torch.nn.Linear))
    layers: list[torch.nn.Module] = [BatchRenorm(size)]
    for layer in mlp.model:
        layers.append(layer)
        if isinstance(layer, torch.nn.Linear):
            size = layer.out_features
        else:
            layers.append(BatchRenorm(size))
    return torch.nn.Sequential(*layers)


class MuMlpModel(QpgMlp):
    """A deterministic policy: ``output_max * tanh`` of a perceptron.

    Args:
        output_max: largest absolute value of an action's components.
    """

    uses_prev_action = False

    @checked(without=("output_size", "batch_renorm"))
    def __init__(
        self,
        observation_shape: Sequence,
        hidden_sizes: Sequence[int] | int | None,
        action_size: int,
        output_max: float = 1,
        n_observations: int | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(observation_shape, hidden_sizes, action_size, n_observations=n_observations, **settings)
        self._output_max = output_max

    def forward(self, observation: Any, prev_action: Any, prev_reward: Any) -> torch.Tensor:
        """Action [T,B,action_size]."""
        x, lead_dims = self.output(observation)
        return restore_leading_dims(self._output_max * torch.tanh(x), *lead_dims)


class PiMlpModel(QpgMlp):
    """A Gaussian policy: one perceptron for mean and log of the standard deviation.

    Args:
        batch_renorm: batch renormalization of the input and of each hidden layer, see `rlpyt.models.batch_renorm.BatchRenorm`.
    """

    uses_prev_action = False

    @checked(without=("output_size",))
    def __init__(
        self,
        observation_shape: Sequence,
        hidden_sizes: Sequence[int] | int | None,
        action_size: int,
        batch_renorm: bool = False,
        n_observations: int | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(
            observation_shape, hidden_sizes, 2 * action_size, batch_renorm=batch_renorm, n_observations=n_observations, **settings
        )

    def forward(self, observation: Any, prev_action: Any, prev_reward: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """mean and log_std, both [T,B,action_size]."""
        x, lead_dims = self.output(observation)
        return restore_leading_dims(x.chunk(2, dim=-1), *lead_dims)


class BoundedPiMlpModel(PiMlpModel):
    """A Gaussian policy whose mean is ``output_max * tanh`` of a perceptron.

    Args:
        output_max: largest absolute value of the components of a mean.
    """

    uses_prev_action = False

    @checked(without=("batch_renorm",))
    def __init__(
        self,
        observation_shape: Sequence,
        hidden_sizes: Sequence[int] | int | None,
        action_size: int,
        output_max: float = 1,
        n_observations: int | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(observation_shape, hidden_sizes, action_size, n_observations=n_observations, **settings)
        self._output_max = output_max

    def forward(self, observation: Any, prev_action: Any, prev_reward: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """mean and log_std, both [T,B,action_size]."""
        mean, log_std = super().forward(observation, prev_action, prev_reward)
        return self._output_max * torch.tanh(mean), log_std


class PiCategoricalMlpModel(QpgMlp):
    """A policy of discrete actions.

    Args:
        output_size: number of actions.
        batch_renorm: batch renormalization of the input and of each hidden layer, see `rlpyt.models.batch_renorm.BatchRenorm`.
    """

    uses_prev_action = False

    @checked()
    def __init__(
        self,
        observation_shape: Sequence,
        hidden_sizes: Sequence[int] | int | None,
        output_size: int,
        batch_renorm: bool = False,
        n_observations: int | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(observation_shape, hidden_sizes, output_size, batch_renorm=batch_renorm, n_observations=n_observations, **settings)

    def forward(self, observation: Any, prev_action: Any, prev_reward: Any) -> torch.Tensor:
        """Logarithms of probabilities [T,B,output_size]."""
        x, lead_dims = self.output(observation)
        return restore_leading_dims(torch.log_softmax(x, dim=-1), *lead_dims)


class QofMuMlpModel(QpgMlp):
    """The value of an action."""

    uses_prev_action = False

    @checked(without=("output_size", "batch_renorm"))
    def __init__(
        self,
        observation_shape: Sequence,
        hidden_sizes: Sequence[int] | int | None,
        action_size: int,
        n_observations: int | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(observation_shape, hidden_sizes, 1, action_size, n_observations=n_observations, **settings)

    def forward(self, observation: Any, prev_action: Any, prev_reward: Any, action: torch.Tensor) -> torch.Tensor:
        """Q [T,B]."""
        q, lead_dims = self.output(observation, action)
        return restore_leading_dims(q.squeeze(-1), *lead_dims)


class VMlpModel(QpgMlp):
    """The value of a state.

    Args:
        action_size: not used.
    """

    uses_prev_action = False

    @checked(without=("output_size", "batch_renorm"))
    def __init__(
        self,
        observation_shape: Sequence,
        hidden_sizes: Sequence[int] | int | None,
        action_size: int | None = None,
        n_observations: int | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(observation_shape, hidden_sizes, 1, n_observations=n_observations, **settings)

    def forward(self, observation: Any, prev_action: Any, prev_reward: Any) -> torch.Tensor:
        """V [T,B]."""
        v, lead_dims = self.output(observation)
        return restore_leading_dims(v.squeeze(-1), *lead_dims)


def q_values(
    models: Sequence[torch.nn.Module], observation: Any, prev_action: Any, prev_reward: Any, action: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """Return Q of several models for the same input: in one pass if all are `QofMuMlpModel` and not compiled, otherwise in turn.

    Models that normalize observations are computed in turn, since they may have different statistics.
    """
    plain = [model for model in models if _is_plain(model, QofMuMlpModel) and not model._normalizes]
    nets = [net for net in (model.layers() for model in plain) if net is not None]
    if len(models) == 1 or len(nets) < len(models) or len({len(net) for net in nets}) > 1:
        return tuple(model(observation, prev_action, prev_reward, action) for model in models)
    x, lead_dims = plain[0].input(observation, action)
    return restore_leading_dims(tuple(q.squeeze(-1) for q in perceptrons(x, nets)), *lead_dims)


def after_targets(model: torch.nn.Module, observation: Any, target: Any) -> tuple[tuple, tuple] | None:
    """Return (mean, log_std) [n+B,A] of a policy for `target` [n,...] and `observation` [B,...] in one pass, and its last B rows.

    Only the last rows, the second result, have a gradient. None unless the policy is a `PiMlpModel`, not compiled, in full precision.
    """
    layers = model.layers() if _is_plain(model, PiMlpModel) else None
    if layers is None:
        return None
    (x, lead_dims), (constants, target_dims) = model.input(observation), model.input(target)  # type: ignore[operator]
    is_simple = lead_dims[0] == target_dims[0] == 1 and not (x.requires_grad or constants.requires_grad)
    if not is_simple or torch.compiler.is_compiling() or torch.is_autocast_enabled(x.device.type):
        return None
    both, last = after_constants(constants, x, layers)
    return both.chunk(2, dim=-1), last.chunk(2, dim=-1)


def _layers(mlp: torch.nn.Module) -> Layers | None:
    """Return (weight, bias) of each layer of a plain perceptron, which `perceptrons` can compute; None for any other module."""
    if not _is_plain(mlp, MlpModel) or not _is_plain(mlp.model, torch.nn.Sequential) or torch._C._are_functorch_transforms_active():
        return None
    modules = list(mlp.model._modules.values())
    expected = [Linear, torch.nn.ReLU] * (len(modules) // 2) + [OutputLinear]
    if len(modules) != len(expected) or not all(map(_is_plain, modules, expected)):
        return None
    # Access as attributes is slower.
    layers: list[Any] = [(linear._parameters["weight"], linear._parameters["bias"]) for linear in modules[::2] if linear is not None]
    return None if any(bias is None for _, bias in layers) else layers


def _is_batch_of_vectors(observation: Any) -> bool:
    """Return whether observations are a tensor [B,size] of float32."""
    return isinstance(observation, torch.Tensor) and observation.dim() == 2 and observation.dtype == torch.float32


def _is_plain(module: Any, Cls: type[M]) -> TypeGuard[M]:
    """Return whether a module does exactly what `Cls` does: it is no subclass (parametrized modules are), has no hooks, is not compiled."""
    own = module.__dict__
    return type(module) is Cls and not (
        own["_forward_hooks"] or own["_forward_pre_hooks"] or own["_backward_hooks"] or own["_backward_pre_hooks"]
        or "_compiled_call_impl" in own or "forward" in own
    )  # fmt: skip
