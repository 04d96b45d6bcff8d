"""Sampling and density of a Gaussian squashed by tanh, and of one that is not, written out."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F


def sample_with_log_likelihood(
    mean: torch.Tensor, log_std: torch.Tensor, squash: float | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """A sample ``squash * tanh(x)`` (x itself if `squash` is None), x Gaussian, and its log-density; reparameterized.

    With ``x = mean + std * noise`` the log-density of x is ``sum(-noise² / 2 - log_std - log(2π) / 2)``, and squashing subtracts
    ``sum(log(squash * (1 - tanh(x)²)))``.

    Args:
        mean, log_std: [*lead,A].

    Returns:
        Sample [*lead,A] and log-density [*lead], differentiable in `mean` and `log_std`.
    """
    return _SampleWithLogLikelihood.apply(mean, log_std, torch.randn_like(mean), squash)


class _SampleWithLogLikelihood(torch.autograd.Function):
    """One node of the graph, since operations on arrays as small as actions cost as much as nodes do."""

    @staticmethod
    def forward(ctx, mean, log_std, noise, squash):
        spread = torch.exp(log_std).mul_(noise)  # std * noise
        x = mean + spread
        log_density = -0.5 * noise.square() - log_std
        constant = -0.5 * math.log(2 * math.pi)
        if squash is None:
            sample, tanh = x, None
        else:
            tanh = torch.tanh(x)
            sample = tanh * squash
            # log(1 - tanh(x)²) = 2 (log 2 - x - softplus(-2 x)), without cancellation
            log_density += F.softplus(-2 * x).add_(x).mul_(2)
            constant -= math.log(squash) + 2 * math.log(2)
        ctx.squash = squash
        ctx.save_for_backward(spread, tanh)
        return sample, log_density.sum(-1).add_(constant * mean.shape[-1])

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad_sample, grad_log_density):
        spread, tanh = ctx.saved_tensors
        grad_log_density = grad_log_density.unsqueeze(-1)
        if tanh is None:
            grad_x = grad_sample
        else:  # d log_density / dx = 2 tanh(x)
            grad_x = torch.addcmul(2 * tanh * grad_log_density, grad_sample, 1 - tanh.square(), value=ctx.squash)
        return grad_x, torch.addcmul(-grad_log_density, grad_x, spread), None, None
