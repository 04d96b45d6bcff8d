"""Ensembles of Q-functions, computed together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import chain
from typing import Any

import torch
import torch.nn.functional as F

from rlpyt.models.batch_renorm import BatchRenorm
from rlpyt.models.linear import in_float32
from rlpyt.models.mlp import NormalizingModel, list_of_sizes
from rlpyt.models.utils import as_vectors
from rlpyt.utils.settings import COUNT, Number, checked
from rlpyt.utils.tensor import restore_leading_dims

# Up to this rate, and from this number of values on, `Dropout` is faster on a CPU than torch's. Forwards and backwards, 131,072 values at a
# rate of 0.01 take 0.5 ms instead of 1.1 ms, and 4,096 values 0.16 ms instead of 0.08 ms. At a rate of 0.5 both are equally fast.
FEW = 0.1  # part of the values
MANY = 2**15  # values


class EnsembleLinear(torch.nn.Module):
    """n linear layers as one batched product; each is initialized like `torch.nn.Linear`.

    Args:
        n: number of layers.
        in_features, out_features: sizes.
    """

    def __init__(self, n: int, in_features: int, out_features: int) -> None:
        super().__init__()
        bound = 1 / math.sqrt(in_features)
        self.weight = torch.nn.Parameter(torch.empty(n, out_features, in_features).uniform_(-bound, bound))
        self.bias = torch.nn.Parameter(torch.empty(n, out_features).uniform_(-bound, bound))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[n,B,in], or [B,in] for all -> [n,B,out]."""
        n, out_features, _ = self.weight.shape
        if x.dim() == 2:  # One product of two matrices.
            return F.linear(x, self.weight.flatten(0, 1), self.bias.flatten()).view(len(x), n, out_features).transpose(0, 1)
        weight: torch.Tensor = self.weight
        bias: torch.Tensor = self.bias
        if torch.is_autocast_enabled(x.device.type):  # Autocast would convert W^T, across the rows of W, which is slow.
            dtype = torch.get_autocast_dtype(x.device.type)
            x, weight, bias = x.to(dtype), weight.to(dtype), bias.to(dtype)
        if torch.compiler.is_compiling():
            return torch.baddbmm(bias.unsqueeze(1), x, weight.mT)
        return _Products.apply(x, weight, bias)

    def extra_repr(self) -> str:
        n, out_features, in_features = self.weight.shape
        return f"{n}, in_features={in_features}, out_features={out_features}"


class _Products(torch.autograd.Function):
    """``y = x W^T + b`` of each layer. The gradient of W gets the layout of W, where autograd's own would have to be copied into it."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return torch.baddbmm(bias.unsqueeze(1), x, weight.mT)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: torch.Tensor) -> None:
        ctx.save_for_backward(*inputs[:2])

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad
        return (
            torch.bmm(grad, weight) if needs_x else None,
            torch.bmm(grad.mT, x) if needs_weight else None,
            grad.sum(1) if needs_bias else None,
        )


class EnsembleOutputLinear(EnsembleLinear):
    """Last layer of an ensemble."""

    forward = in_float32(EnsembleLinear.forward)


class EnsembleLayerNorm(torch.nn.Module):
    """n layers of layer normalization (Ba et al. 2016, https://arxiv.org/abs/1607.06450): [n,B,size] -> [n,B,size]."""

    def __init__(self, n: int, size: int) -> None:
        super().__init__()
        self.weight, self.bias = torch.nn.Parameter(torch.ones(n, 1, size)), torch.nn.Parameter(torch.zeros(n, 1, size))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[n,B,size] -> [n,B,size]."""
        return torch.addcmul(self.bias, F.layer_norm(x, x.shape[-1:]), self.weight)


class Dropout(torch.nn.Dropout):
    """`torch.nn.Dropout`, which on a CPU draws random numbers only for the values to drop, if these are few of many."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[*] -> [*]."""
        drops_few = self.training and 0 < self.p <= FEW and x.numel() >= MANY and x.device.type == "cpu"
        if not drops_few or self.inplace or torch.compiler.is_compiling():
            return super().forward(x)
        return _Dropped.apply(x, self.p, places_of_successes(x.numel(), self.p))


class _Dropped(torch.autograd.Function):
    """Values with zeros in some places, and scaled up elsewhere, as dropout with probability p does."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, p: float, places: torch.Tensor) -> torch.Tensor:
        ctx.p, ctx.places = p, places
        y = torch.mul(x, 1 / (1 - p)).contiguous()
        y.view(-1)[places] = 0
        return y

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        return _Dropped.apply(grad, ctx.p, ctx.places), None, None


def places_of_successes(n: int, p: float, n_at_once: int | None = None) -> torch.Tensor:
    """Draw which of `n` independent trials succeed, each with probability `p`; return their places, int64, in order.

    The distances from one success to the next are geometrically distributed.

    Args:
        n_at_once: distances to draw in one round; None for so many that one round is nearly always enough.
    """
    n_at_once = n_at_once or int(n * p + 6 * math.sqrt(n * p)) + 1  # Six standard deviations more than the mean.
    places = torch.zeros(1, dtype=torch.float64, device="cpu")  # Counted from 1. The first distance begins at 0.
    while places[-1] <= n:
        distances = torch.empty(n_at_once, dtype=torch.float64, device="cpu").geometric_(p)
        places = torch.cat([places, places[-1] + distances.cumsum(0)])
    return places[1 : torch.searchsorted(places, n, right=True)].long() - 1


# The layers of `QEnsembleModel`. A user may have replaced some by others.
_LAYERS = (torch.nn.Sequential, torch.nn.ReLU, EnsembleLinear, EnsembleOutputLinear, EnsembleLayerNorm, Dropout, BatchRenorm)


class QEnsembleModel(NormalizingModel):
    """n perceptrons for the value of an action, or for quantiles of its return.

    A hidden layer is a linear layer, dropout, layer normalization, ReLU and batch renormalization, as far as they are chosen.

    Its settings are those of `rlpyt.models.mlp.NormalizingModel`, and:

    Args:
        hidden_sizes: widths of the hidden layers; default [256, 256].
        action_size: components of the action, if it is an input; otherwise None.
        output_size: number of discrete actions, each of which has a value; None for one action that is an input.
        n_critics: n.
        n_quantiles: quantiles of the return for each critic, in place of its mean; None for the mean.
        dropout: probability of dropping a unit of a hidden layer, in training.
        layer_norm: layer normalization in each hidden layer.
        batch_renorm: batch renormalization of the input and of each hidden layer, see `rlpyt.models.batch_renorm.BatchRenorm`.
    """

    uses_prev_action = False

    @checked(n_critics=COUNT, n_quantiles=COUNT, dropout=Number(0, 0.999))
    def __init__(
        self,
        observation_shape: Sequence,
        hidden_sizes: Sequence[int] | int | None = None,
        action_size: int | None = None,
        output_size: int | None = None,
        n_critics: int = 2,
        n_quantiles: int | None = None,
        dropout: float = 0.0,
        layer_norm: bool = False,
        batch_renorm: bool = False,
        n_observations: int | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(observation_shape, n_observations=n_observations, **settings)
        self.output_shape = tuple(size for size in (output_size, n_quantiles) if size is not None)
        sizes = [self.observation.size + (action_size or 0), *list_of_sizes(hidden_sizes, default=[256, 256])]
        layers: list[torch.nn.Module] = [BatchRenorm(sizes[0], (n_critics,))] if batch_renorm else []
        for n_in, n_out in zip(sizes, sizes[1:]):
            layers.append(EnsembleLinear(n_critics, n_in, n_out))
            layers += [Dropout(dropout)] if dropout else []
            layers += [EnsembleLayerNorm(n_critics, n_out)] if layer_norm else []
            layers.append(torch.nn.ReLU())
            layers += [BatchRenorm(n_out, (n_critics,))] if batch_renorm else []
        layers.append(EnsembleOutputLinear(n_critics, sizes[-1], math.prod(self.output_shape)))
        self.mlp = torch.nn.Sequential(*layers)

    def forward(
        self, observation: Any, prev_action: Any, prev_reward: Any, action: torch.Tensor | None = None, critics: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Values [T,B,n_critics,*rest]; rest is (n_quantiles), (output_size), (output_size, n_quantiles) or ().

        If `critics` are given, indexes [m], only these m critics are computed: [T,B,m,*rest]. The model must allow it, see `computes_few`.
        In training, running statistics of batch renormalization stay as they are.
        """
        x, lead_dims = self.observation_vector(observation)
        if action is not None:
            x = torch.cat([x, as_vectors(action, len(x)).to(x.dtype)], dim=1)
        values = self.mlp(x) if critics is None else torch.func.functional_call(self.mlp, _of_critics(self.mlp, critics), x)
        values = values.transpose(0, 1)  # [T*B,n_critics,outputs]
        return restore_leading_dims(values.reshape(*values.shape[:2], *self.output_shape), *lead_dims)

    @property
    def normalizes_layers(self) -> bool:
        """Whether hidden layers are normalized, over units or over the batch."""
        return any(isinstance(layer, (EnsembleLayerNorm, BatchRenorm)) for layer in self.mlp.modules())

    @staticmethod
    def computes_few(model: Any) -> bool:
        """Return whether a model takes `critics`: it is of this very class, and parameters of each of its layers are [n_critics,...]."""
        return type(model) is QEnsembleModel and all(type(layer) in _LAYERS for layer in model.mlp.modules())


def _of_critics(mlp: torch.nn.Module, critics: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return the parameters and statistics of some critics. All of them are [n_critics,...], except the count of batches, which stays."""
    return {name: x[critics] for name, x in chain(mlp.named_parameters(), mlp.named_buffers()) if x.dim()}
