"""Helpers for torch tensors, on any device; the same names for numpy arrays are in `rlpyt.utils.array`."""

import functools
import math
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from rlpyt.utils.array import check_same_lead
from rlpyt.utils.collections import remade
from rlpyt.utils.lazy import LazyModule

kernels = LazyModule("rlpyt.utils.kernels")


def select_at_indexes(indexes: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    """Return one entry per leading position, e.g. the value of the taken action from the values of all actions.

    Args:
        indexes: integers [*lead].
        tensor: [*lead, n, *rest].

    Returns:
        A tensor [*lead, *rest], differentiable in `tensor`.
    """
    check_same_lead(indexes.shape, tensor.shape)
    n_lead = indexes.dim()
    rest = tensor.shape[n_lead + 1 :]
    where = indexes.long().reshape(indexes.shape + (1,) * (1 + len(rest))).expand(*indexes.shape, 1, *rest)
    return tensor.gather(n_lead, where).squeeze(n_lead)


def to_onehot(indexes: torch.Tensor, num: int, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Return the one-hot encoding [*lead, num] of integers [*lead] from 0 to num - 1, of `dtype` (default: as indexes)."""
    onehot = torch.zeros(*indexes.shape, num, dtype=dtype or indexes.dtype, device=indexes.device)
    return onehot.scatter_(-1, indexes.unsqueeze(-1).long(), 1)


def from_onehot(onehot: torch.Tensor, dim: int = -1, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Position of the largest value along `dim`, int64 unless `dtype` is given."""
    if onehot.dtype is torch.bool:
        onehot = onehot.byte()  # argmax does not take bool
    indexes = onehot.argmax(dim=dim)
    return indexes if dtype is None else indexes.to(dtype)


def valid_mean(tensor: torch.Tensor, valid: torch.Tensor | None = None, dim: int | tuple[int, ...] | None = None) -> torch.Tensor:
    """Mean of `tensor` weighted by the mask `valid` (broadcast to tensor), along `dim` or over everything.

    sum(tensor * valid) / sum(valid), where elements of weight 0 may be infinite; NaN where nothing is valid; the plain mean if valid is
    None. With weights, half-precision numbers are summed in float32, and the mean of integers is float32.
    """
    if valid is None:
        return tensor.mean() if dim is None else tensor.mean(dim=dim)
    wide = tensor if tensor.dtype in (torch.float32, torch.float64) else tensor.float()
    valid = valid.to(wide.dtype).expand_as(wide)
    mean = (torch.where(valid == 0, 0, wide) * valid).sum(dim=dim) / valid.sum(dim=dim)
    return mean.to(tensor.dtype) if tensor.is_floating_point() else mean


def mean_of_valid(tensor: torch.Tensor, valid: torch.Tensor | None = None, dim: int | tuple[int, ...] | None = None) -> torch.Tensor:
    """Like `valid_mean` for a mask of zeros and ones of the same shape, but 0 where nothing is valid."""
    if valid is None:
        return tensor.mean() if dim is None else tensor.mean(dim=dim)
    return (tensor * valid).sum(dim=dim) / valid.sum(dim=dim).clamp(min=1)


def smaller(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """`torch.minimum` in fewer operations; where both elements are equal, the gradient goes to `a`.

    `a` and `b` have the same shape. Their gradients are adjacent in memory.
    """
    return _Smaller.apply(a, b)


class _Smaller(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        if ctx.needs_input_grad[0] or ctx.needs_input_grad[1]:
            ctx.save_for_backward(a <= b)
        return torch.minimum(a, b)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        (is_a,) = ctx.saved_tensors
        of_a, of_b = grad.new_empty((2, *grad.shape))
        torch.mul(grad, is_a, out=of_a)
        return of_a, torch.sub(grad, of_a, out=of_b)


def huber(x: torch.Tensor, clip: float | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ½ x², linear beyond `clip` unless `clip` is None; and its derivative, x clipped to ±`clip`, without gradient."""
    derivative = x.detach() if clip is None else x.detach().clamp(-clip, clip)
    return _Huber.apply(x, derivative), derivative


class _Huber(torch.autograd.Function):
    """The Huber loss as one node of the graph, with a given derivative."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, derivative: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(derivative)
        return torch.add(x, derivative, alpha=-0.5).mul_(derivative)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        (derivative,) = ctx.saved_tensors
        return grad * derivative, None


def half_square(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return ``½ (y - x)²`` of each element, as one node of the graph. `y` gets no gradient.

    Raises:
        ValueError: there is not one target for each value.
    """
    _check_shapes(x, y)
    if (x.shape, x.dtype) == (y.shape, y.dtype):
        return F.huber_loss(x, y.detach(), reduction="none", delta=math.inf)
    return huber(y.detach() - x)[0]


def _check_shapes(values: torch.Tensor, targets: torch.Tensor) -> None:
    """Raise ValueError instead of comparing a value with several targets, as broadcasting of [n,1] and [n] would."""
    if values.shape == targets.shape:
        return
    try:
        is_one_each = torch.broadcast_shapes(values.shape, targets.shape) == values.shape
    except RuntimeError:
        is_one_each = False
    if not is_one_each:
        raise ValueError(
            f"Values have the shape {list(values.shape)}, and their targets {list(targets.shape)}, so there is not one target for each "
            "value. A model returns one value for each observation: if its output is [*,1], end it with .squeeze(-1)."
        )


def mean_huber(x: torch.Tensor, y: torch.Tensor, clip: float | None = None, valid: torch.Tensor | None = None) -> torch.Tensor:
    """Return the mean of ``½ (y - x)²``, linear beyond `clip` (see `huber`), over all elements, or over those that are valid.

    Where all are valid this is one operation, and one more for its gradient. `y` gets no gradient.

    Raises:
        ValueError: there is not one target for each value.
    """
    _check_shapes(x, y)
    if valid is None and (x.shape, x.dtype) == (y.shape, y.dtype):
        return F.huber_loss(x, y.detach(), delta=math.inf if clip is None else clip)
    return mean_of_valid(half_square(x, y) if clip is None else huber(y.detach() - x, clip)[0], valid)


def quantile_huber(quantiles: torch.Tensor, fractions: torch.Tensor, y: torch.Tensor, kappa: float) -> torch.Tensor:
    """Return ``sum_i mean_j |τ_i - 1{δ_ij < 0}| L(δ_ij) / κ`` with ``δ_ij = y_j - θ_i`` and the Huber loss L, which is linear beyond κ.

    It is least where each θ_i is (for small κ) the quantile at fraction τ_i of the distribution that has the equally probable values y_j
    (Dabney et al. 2018, https://arxiv.org/abs/1710.10044, equations 9 and 10; the division by κ is that of Dabney et al. 2018,
    https://arxiv.org/abs/1806.06923, equation 3).

    Args:
        quantiles: [*,N], θ.
        fractions: [*,N], or [N] for all, τ, without gradient.
        y: [*,M], or [*,1,M] for neighbouring rows of θ, without gradient.
        kappa: κ.

    Returns:
        Losses [*].
    """
    fractions, y = fractions.detach(), y.detach()
    if quantiles.device.type != "cpu" or quantiles.shape[-1] * y.shape[-1] < MANY_PAIRS:
        return _over_pairs(quantiles, fractions, y, kappa)
    lead = torch.broadcast_shapes(quantiles.shape[:-1], y.shape[:-1])
    return _OverSorted.apply(quantiles.expand(*lead, -1), fractions, y, float(kappa))


# From so many pairs (θ_i, y_j) on, sorting the y_j of a row is faster on a CPU: with 200 quantiles of 200 targets some 9 times.
MANY_PAIRS = 200


def _over_pairs(quantiles: torch.Tensor, fractions: torch.Tensor, y: torch.Tensor, kappa: float) -> torch.Tensor:
    """Compute `quantile_huber` from all pairs of θ_i and y_j."""
    delta = y[..., None, :] - quantiles[..., :, None]  # [*,N,M]
    weights = (fractions[..., None] - (delta.detach() < 0).to(delta.dtype)).abs()
    return (weights * huber(delta, kappa)[0]).mean(dim=-1).sum(dim=-1) / kappa


class _OverSorted(torch.autograd.Function):
    """`quantile_huber` on a CPU, from sums of sorted y_j."""

    @staticmethod
    def forward(ctx: Any, quantiles: torch.Tensor, fractions: torch.Tensor, y: torch.Tensor, kappa: float) -> torch.Tensor:
        lead, (N, M) = quantiles.shape[:-1], (quantiles.shape[-1], y.shape[-1])
        dtype = functools.reduce(torch.promote_types, [each.dtype for each in (quantiles, fractions, y)])
        is_shared = y.dim() > 1 and y.shape[-2] == 1  # Then the y_j of neighbouring rows of θ are sorted once.
        y = y.expand(*lead[:-1], 1, M) if is_shared else y.expand(*lead, M)
        losses, gradient = (torch.empty(shape, dtype=torch.float64, device="cpu") for shape in (lead, (*lead, N)))
        kernels.quantile_huber(*map(_rows, (quantiles, fractions.expand(*lead, N), y)), kappa, losses.view(-1).numpy(), _rows(gradient))
        ctx.save_for_backward(gradient.to(dtype))
        return losses.to(dtype)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        (gradient,) = ctx.saved_tensors
        return grad[..., None] * gradient, None, None, None


def _rows(x: torch.Tensor) -> np.ndarray:
    """Return [*,N] as float64 [n,N], without copying if it is that in memory."""
    return x.double().reshape(-1, x.shape[-1]).contiguous().numpy(force=True)


@functools.cache
def midpoints(n: int, device: torch.device) -> torch.Tensor:
    """Return the middles [n] of n equal parts of [0,1]."""
    return ((torch.arange(n, dtype=torch.float32) + 0.5) / n).to(device)


class OnDevices:
    """Copies a tensor to each of several devices only once."""

    def __init__(self) -> None:
        self._copies: dict[torch.device, tuple[torch.Tensor, int, torch.Tensor]] = {}  # The tensor, its version, and the copy.

    def on(self, device: torch.device, value: Any) -> Any:
        """Return a tensor on a device: the last copy, unless `value` is another tensor or has changed. Other values stay as they are."""
        if not isinstance(value, torch.Tensor) or value.device == device:
            return value
        copied, version, copy = self._copies.get(device, (None, None, None))
        if copied is not value or version != value._version:
            copy = value.to(device)
            self._copies[device] = value, value._version, copy
        return copy

    def __getstate__(self) -> dict[str, Any]:
        return {"_copies": {}}  # Another process may have other devices.


def infer_leading_dims(tensor: torch.Tensor, dim: int) -> tuple[int, int, int, torch.Size]:
    """Find out whether data of `dim` dimensions comes with leading dimensions [], [B] or [T,B].

    For the start of a model's forward(); `restore_leading_dims` at its end undoes it, so that one model
    serves all three cases. Returns (lead_dim in 0..2, T, B, data shape); T and B are 1 if that dimension is
    missing.
    """
    lead_dim = tensor.dim() - dim
    if not 0 <= lead_dim <= 2:
        raise ValueError(
            f"A tensor of shape {tuple(tensor.shape)} cannot hold data of {dim} dimensions with "
            f"leading [], [B] or [T,B]: give it {dim} to {dim + 2} dimensions."
        )
    T, B = (1, 1, *tensor.shape[:lead_dim])[-2:]
    return lead_dim, T, B, tensor.shape[lead_dim:]


def restore_leading_dims(tensors: Any, lead_dim: int, T: int = 1, B: int = 1) -> Any:
    """Give [T*B,...] outputs of a model the leading dimensions of its inputs: [], [B] or [T,B].

    Args:
        tensors: one tensor, or a tuple, list or namedtuple of them (a list comes back as a tuple).
        lead_dim, T, B: as returned by `infer_leading_dims`.
    """
    if isinstance(tensors, (tuple, list)):
        restored = (restore_leading_dims(tensor, lead_dim, T, B) for tensor in tensors)
        return remade(tensors, restored)
    if lead_dim == 2:
        return tensors.view(T, B, *tensors.shape[1:])
    if lead_dim == 1:
        return tensors
    if len(tensors) != 1:
        raise ValueError(
            f"An output of shape {tuple(tensors.shape)} cannot lose its batch dimension: for an "
            "input without leading dimensions it must be of size 1."
        )
    return tensors.squeeze(0)
