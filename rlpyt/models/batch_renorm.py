"""Batch renormalization (Ioffe 2017, https://arxiv.org/abs/1702.03275), as used by CrossQ (Bhatt et al. 2024)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

MOMENTUM = 0.99  # of the running statistics, per batch
EPS = 1e-3
WARM_UP = 100_000  # Batches that are normalized by their own statistics alone.
_KINDS = [(torch.float32,) * 2, (torch.float64,) * 2, (torch.bfloat16, torch.float32)]  # Of inputs and parameters, for PyTorch's kernels.
MAX_SCALE, MAX_SHIFT = 3.0, 5.0  # Limits of the corrections r and d afterwards.


class BatchRenorm(torch.nn.Module):
    """Normalizes features over a batch, then scales and shifts them by learned numbers.

    In training, with statistics of the batch and running ones::

        y = (x - mean) / std * r + d,   r = std / running_std,   d = (mean - running_mean) / running_std

    r and d, which have no gradient, are limited to [1/3,3] and [-5,5]; for the first 100,000 batches they are 1 and 0. In evaluation, and
    inside of `by_running_statistics`, the running statistics replace those of the batch.

    Args:
        size: number of features.
        lead: shape of an ensemble of such layers, for example (n,).
    """

    running_mean: torch.Tensor
    running_var: torch.Tensor
    n_batches: torch.Tensor

    def __init__(self, size: int, lead: Sequence[int] = ()) -> None:
        super().__init__()
        shape = (*lead, 1, size)
        self.weight, self.bias = torch.nn.Parameter(torch.ones(shape)), torch.nn.Parameter(torch.zeros(shape))
        self.register_buffer("running_mean", torch.zeros(shape))
        self.register_buffer("running_var", torch.ones(shape))
        self.register_buffer("n_batches", torch.zeros(()))
        self.uses_running = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[*lead,B,size], or [B,size] for all of an ensemble -> [*lead,B,size].

        Under autocast, x and in training the output are bfloat16, but statistics are float32.
        """
        if self.uses_running or not self.training:
            scale = self.weight * (self.running_var + EPS).rsqrt()
            return torch.addcmul(self.bias - self.running_mean * scale, x, scale)
        has_kernels = x.device.type == "cpu" and not torch.compiler.is_compiling()
        if has_kernels and x.numel() and (x.dtype, self.weight.dtype) in _KINDS:
            x = x.expand(*self.weight.shape[:-2], *x.shape[-2:]).contiguous()
            with torch.no_grad():
                mean, var = _statistics(x)
                r, d = self._corrections(mean, var)
                self._count(mean, var)
            return _RenormalizedMatrices.apply(x, self.weight, self.bias, mean, var, r, d)
        with torch.no_grad():
            values = x.to(torch.promote_types(x.dtype, self.running_mean.dtype))  # Under autocast, x may be bfloat16.
            mean = values.mean(dim=-2, keepdim=True)
            centered = values - mean
            var = centered.square().mean(dim=-2, keepdim=True)
            r, d = self._corrections(mean, var)
            self._count(mean, var)
        return _Renormalized.apply(x, self.weight, self.bias, centered, (var + EPS).rsqrt(), r, d)

    def _corrections(self, mean: torch.Tensor, var: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        running_std = (self.running_var + EPS).sqrt()
        r = ((var + EPS).sqrt() / running_std).clamp(1 / MAX_SCALE, MAX_SCALE)
        d = ((mean - self.running_mean) / running_std).clamp(-MAX_SHIFT, MAX_SHIFT)
        is_warm = self.n_batches >= WARM_UP
        return torch.where(is_warm, r, 1.0), torch.where(is_warm, d, 0.0)

    def _count(self, mean: torch.Tensor, var: torch.Tensor) -> None:
        self.running_mean.lerp_(mean.to(self.running_mean).expand_as(self.running_mean), 1 - MOMENTUM)
        self.running_var.lerp_(var.to(self.running_var).expand_as(self.running_var), 1 - MOMENTUM)
        self.n_batches.add_(1)


class _Renormalized(torch.autograd.Function):
    """Scale and shift ``(x - mean) / std * r + d`` as one node of the graph, with the gradient through mean and std of the batch.

    There is no second derivative.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor,
        centered: torch.Tensor,
        inverse_std: torch.Tensor,
        r: torch.Tensor,
        d: torch.Tensor,
    ) -> torch.Tensor:
        ctx.save_for_backward(weight, centered, inverse_std, r, d)
        return torch.addcmul(torch.addcmul(bias, weight, d), centered, weight * r * inverse_std).to(x.dtype)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple:
        weight, centered, inverse_std, r, d = ctx.saved_tensors
        grad = grad.to(centered.dtype)
        sum_, correlation = grad.sum(dim=-2, keepdim=True), (grad * centered).sum(dim=-2, keepdim=True) * inverse_std
        grad_x = None
        if ctx.needs_input_grad[0]:
            B = max(centered.shape[-2], 1)
            grad_x = torch.addcmul(grad - sum_ / B, centered, correlation * inverse_std, value=-1 / B).mul_(weight * r * inverse_std)
        return grad_x, torch.addcmul(d * sum_, r, correlation), sum_, None, None, None, None


def _statistics(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return mean and variance [*,1,size] of each feature of batches [*,B,size], on a CPU; in float32 if x is bfloat16."""
    unused = torch.zeros(x.shape[-1], dtype=torch.promote_types(x.dtype, torch.float32))  # Its dtype is that of the results.
    of_each = [torch.stack(torch.batch_norm_update_stats(matrix, unused, unused, 0.0)) for matrix in x.view(-1, *x.shape[-2:])]
    mean, var = torch.stack(of_each, dim=1).view(2, *x.shape[:-2], 1, x.shape[-1])
    return mean, var


class _RenormalizedMatrices(torch.autograd.Function):
    """What `_Renormalized` does, on a CPU, with fewer passes over the values: by PyTorch's kernels for batch normalization of a matrix."""

    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor,
        mean: torch.Tensor,
        var: torch.Tensor,
        r: torch.Tensor,
        d: torch.Tensor,
    ) -> torch.Tensor:
        scale, shift = weight * r, torch.addcmul(bias, weight, d)
        ctx.save_for_backward(x, scale, mean, (var + EPS).rsqrt(), r, d)
        y, unused = torch.empty_like(x), mean.new_empty(0)
        for y_i, x_i, *of_features in _matrices(y, x, scale, shift, mean, var):
            scale_i, shift_i, mean_i, var_i = (values[0] for values in of_features)
            torch.native_batch_norm(x_i, scale_i, shift_i, mean_i, var_i, False, 0.0, EPS, out=(y_i, unused, unused))
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple:
        x, scale, mean, inverse_std, r, d = ctx.saved_tensors
        grad_x, correlation, sum_ = torch.empty_like(x), torch.empty_like(scale), torch.empty_like(scale)
        of_each = _matrices(grad_x, correlation, sum_, grad.contiguous(), x, scale, mean, inverse_std)
        for grad_x_i, correlation_i, sum_i, grad_i, x_i, scale_i, mean_i, inverse_std_i in of_each:
            torch.ops.aten.native_batch_norm_backward.out(
                grad_i, x_i, scale_i[0], None, None, mean_i[0], inverse_std_i[0], True, EPS, [True, True, True],
                out0=grad_x_i, out1=correlation_i[0], out2=sum_i[0],
            )  # fmt: skip
        return grad_x, torch.addcmul(d * sum_, r, correlation), sum_, None, None, None, None


def _matrices(*tensors: torch.Tensor) -> Iterator[tuple[torch.Tensor, ...]]:
    """Yield matrix by matrix of tensors [*lead,B or 1,size]."""
    return zip(*(tensor.view(-1, *tensor.shape[-2:]) for tensor in tensors), strict=True)


@contextmanager
def by_running_statistics(module: torch.nn.Module) -> Iterator[None]:
    """Within this context, batch renormalization in `module` uses running statistics, and does not change them."""
    layers = [layer for layer in module.modules() if isinstance(layer, BatchRenorm)]
    for layer in layers:
        layer.uses_running = True
    try:
        yield
    finally:
        for layer in layers:
            layer.uses_running = False


def has_batch_renorm(module: torch.nn.Module) -> bool:
    """Return whether a module has a layer of batch renormalization."""
    return any(isinstance(layer, BatchRenorm) for layer in module.modules())
