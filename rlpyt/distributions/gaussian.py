"""Gaussian distribution, optionally squashed by tanh."""

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F

from rlpyt.distributions.base import Distribution
from rlpyt.utils.collections import namedarraytuple
from rlpyt.utils.tensor import OnDevices

DistInfo: Any = namedarraytuple("DistInfo", ["mean"])
DistInfoStd: Any = namedarraytuple("DistInfoStd", ["mean", "log_std"])

# Keeps divisions finite if `std` is 0.
EPS = 1e-8

_HALF_LOG_2_PI = 0.5 * math.log(2 * math.pi)


class Gaussian(Distribution):
    """Gaussian of independent components (diagonal covariance).

    dist_info holds mean [*lead,dim] and, unless `std` is set, log_std [*lead,dim].

    Args:
        dim: number of components.
        std: standard deviation, a number or one per component; None to take it from dist_info.log_std.
        clip: limits samples to [-clip,clip]; formulas ignore this.
        noise_clip: limits the noise added to the mean to [-noise_clip,noise_clip]; formulas ignore this.
        min_std, max_std: limits of the standard deviation from dist_info.log_std; formulas include them.
        squash: samples become ``squash * tanh(sample)``. log_likelihood includes this; kl and entropy are not available. Excludes `clip`.
    """

    DistInfoCls = DistInfoStd

    def __init__(
        self,
        dim: int,
        std: float | torch.Tensor | None = None,
        clip: float | None = None,
        noise_clip: float | None = None,
        min_std: float | None = None,
        max_std: float | None = None,
        squash: float | None = None,
    ) -> None:
        self._dim = dim
        self.min_std = min_std
        self.max_std = max_std
        self.min_log_std = None if min_std is None else math.log(min_std)
        self.max_log_std = None if max_std is None else math.log(max_std)
        self.clip: float | None = None
        self.squash: float | None = None
        self.set_clip(clip)
        self.set_squash(squash)
        self.set_noise_clip(noise_clip)
        self._stds = OnDevices()
        self.set_std(std)

    @property
    def dim(self) -> int:
        """Number of components."""
        return self._dim

    def kl(self, old_dist_info: DistInfoStd, new_dist_info: DistInfoStd) -> torch.Tensor:
        """KL(old || new) = sum of log(s_new/s_old) + (s_old^2 + (m_old - m_new)^2) / (2 s_new^2) - 1/2; [*lead]."""
        self._refuse_if_squashing("kl")
        old_log_std, new_log_std = self._log_std(old_dist_info), self._log_std(new_dist_info)
        difference = (old_dist_info.mean - new_dist_info.mean) * torch.exp(-new_log_std)
        log_ratio = old_log_std - new_log_std
        return (0.5 * (torch.expm1(2 * log_ratio) + difference.square()) - log_ratio).sum(dim=-1)  # expm1: policies are often close.

    def entropy(self, dist_info: DistInfoStd) -> torch.Tensor:
        """Sum of log(s) + log(2 pi e) / 2; [*lead]."""
        self._refuse_if_squashing("entropy")
        return (self._log_std(dist_info) + 0.5 * math.log(2 * math.pi * math.e)).sum(dim=-1)

    def log_likelihood(self, x: torch.Tensor, dist_info: DistInfoStd) -> torch.Tensor:
        """Log-density of samples x [*lead,dim]; [*lead].

        With squashing, x is the sample *before* it is squashed (inverting tanh is numerically risky), and the result is the density of
        ``squash * tanh(x)``.
        """
        log_std = self._log_std(dist_info)
        z = (x - dist_info.mean) * torch.exp(-log_std)
        log_density = -0.5 * z.square() - log_std - _HALF_LOG_2_PI
        if self.squash is not None:
            # log(1 - tanh(x)^2) without cancellation
            log_density = log_density - math.log(self.squash) - 2 * (math.log(2) - x - F.softplus(-2 * x))
        return log_density.sum(dim=-1)

    def likelihood_ratio(self, x: torch.Tensor, old_dist_info: DistInfoStd, new_dist_info: DistInfoStd) -> torch.Tensor:
        """Density of samples x [*lead,dim], new over old; [*lead]. It is differentiable (once) in the new parameters.

        With squashing, x is the sample *before* it is squashed.
        """
        parameters = [new_dist_info.mean, self._log_std(new_dist_info), old_dist_info.mean, self._log_std(old_dist_info)]
        is_plain = self.squash is None and type(self).log_likelihood is Gaussian.log_likelihood
        constants = x, *parameters[2:]
        if not is_plain or any(p.shape != x.shape for p in parameters) or any(c.requires_grad for c in constants):
            return super().likelihood_ratio(x, old_dist_info, new_dist_info)
        mean, log_std = parameters[:2]
        return _LikelihoodRatio.apply(mean, log_std, log_std, *constants)

    def sample_loglikelihood(self, dist_info: DistInfoStd) -> tuple[torch.Tensor, torch.Tensor]:
        """Return a sample [*lead,dim] and its log-likelihood [*lead], differentiable (once) through the reparameterized sample.

        The likelihood ignores clipping.
        """
        if self.samples_in_one_node:
            noise = torch.randn_like(dist_info.mean)
            parameters = dist_info.mean, dist_info.log_std
            return _SampleWithLogLikelihood.apply(*parameters, *parameters, noise, self.squash, self.min_log_std, self.max_log_std)
        x = self._sample_unlimited(dist_info)
        sample = self._limit(x)
        return sample, self.log_likelihood(sample if self.squash is None else x, dist_info)

    def sample_loglikelihood_after(self, dist_info: DistInfoStd, joined: DistInfoStd) -> tuple[torch.Tensor, ...]:
        """Do `sample_loglikelihood` for `joined` [n+B,dim], whose last rows are `dist_info` [B,dim], the only ones with gradient.

        `samples_in_one_node` must be True. The noise is the same as in two calls, the first of them for the n rows.

        Returns:
            Samples [B,dim] and log-likelihoods [B], and those of the n first rows, without gradient.
        """
        noise = torch.empty_like(joined.mean)
        for part in noise.tensor_split([len(noise) - len(dist_info.mean)]):
            part.normal_()
        parameters = dist_info.mean, dist_info.log_std, joined.mean, joined.log_std
        return _SampleWithLogLikelihood.apply(*parameters, noise, self.squash, self.min_log_std, self.max_log_std)

    @property
    def samples_in_one_node(self) -> bool:
        """Whether `sample_loglikelihood` is one node of the autograd graph: the deviation is that of dist_info, and nothing is clipped."""
        return self.std is None and self.clip is None and self.noise_clip is None

    def sample(self, dist_info: DistInfoStd) -> torch.Tensor:
        """Draw samples mean + noise [*lead,dim], clipped or squashed; differentiable in mean and log_std."""
        return self._limit(self._sample_unlimited(dist_info))

    def set_clip(self, clip: float | None) -> None:
        """Limit samples to [-clip,clip], or None to turn that off."""
        if clip is not None and self.squash is not None:
            raise ValueError(f"clip={clip} and squash={self.squash} exclude each other: squashed samples are limited already.")
        self.clip = clip

    def set_squash(self, squash: float | None) -> None:
        """Squash samples to ``squash * tanh(sample)``, or None to turn that off."""
        if squash is not None and self.clip is not None:
            raise ValueError(f"squash={squash} and clip={self.clip} exclude each other: squashed samples are limited already.")
        self.squash = squash

    def set_noise_clip(self, noise_clip: float | None) -> None:
        """Limit the noise to [-noise_clip,noise_clip], or None to turn that off."""
        self.noise_clip = noise_clip

    def set_std(self, std: float | torch.Tensor | None) -> None:
        """Fix the standard deviation, a number or one per component; None to take it from dist_info.log_std."""
        if std is not None:
            std = torch.as_tensor(std, dtype=torch.float)
            if std.numel() not in (1, self.dim):
                raise ValueError(f"std has {std.numel()} values, it must be one number, or one for each of {self.dim} components.")
            if std.dim() and std.shape[-1] != std.numel():
                raise ValueError(f"std has shape {tuple(std.shape)}, it must be ({self.dim},) or a number.")
        self.std = std

    def _sample_unlimited(self, dist_info: DistInfoStd) -> torch.Tensor:
        mean = dist_info.mean
        if self.std is None:
            std = torch.exp(self._log_std(dist_info))
        else:
            std = self._stds.on(mean.device, self.std) if self.std.dim() else self.std  # A single number need not be copied.
        noise = std * torch.randn_like(mean)
        if self.noise_clip is not None:
            noise = noise.clamp(-self.noise_clip, self.noise_clip)
        return mean + noise

    def _limit(self, x: torch.Tensor) -> torch.Tensor:
        if self.clip is not None:
            return x.clamp(-self.clip, self.clip)
        if self.squash is not None:
            squashed = torch.tanh(x)
            return squashed if self.squash == 1 else self.squash * squashed
        return x

    def _log_std(self, dist_info: DistInfoStd) -> torch.Tensor:
        """Return the log of the standard deviation, [*lead,dim]."""
        if self.std is not None:
            return torch.log(self._stds.on(dist_info.mean.device, self.std) + EPS).expand_as(dist_info.mean)
        if self.min_log_std is None and self.max_log_std is None:
            return dist_info.log_std
        return dist_info.log_std.clamp(self.min_log_std, self.max_log_std)

    def _refuse_if_squashing(self, name: str) -> None:
        if self.squash is not None:
            raise NotImplementedError(f"There is no formula for the {name} of a squashed Gaussian: set_squash(None) first.")


class ShapedGaussian(Gaussian):
    """`Gaussian` whose samples are arrays of any shape. Its parameters are vectors: mean and log_std [*lead,dim].

    Args:
        shape: of a sample without leading dimensions.
        settings: those of `Gaussian`, without `dim`.
    """

    def __init__(self, shape: Sequence[int], **settings: Any) -> None:
        super().__init__(dim=math.prod(shape), **settings)
        self.shape = tuple(shape)

    def flat(self, x: torch.Tensor) -> torch.Tensor:
        """Arrays [*lead,*shape] -> vectors [*lead,dim]."""
        return x.reshape(*x.shape[: x.dim() - len(self.shape)], self.dim)

    def sample(self, dist_info: DistInfoStd) -> torch.Tensor:
        """Draw samples [*lead,*shape], see `Gaussian.sample`."""
        return self._shaped(super().sample(dist_info))

    def sample_loglikelihood(self, dist_info: DistInfoStd) -> tuple[torch.Tensor, torch.Tensor]:
        """Return a sample [*lead,*shape] and its log-likelihood [*lead], see `Gaussian.sample_loglikelihood`."""
        sample, log_likelihood = super().sample_loglikelihood(dist_info)
        return self._shaped(sample), log_likelihood

    def log_likelihood(self, x: torch.Tensor, dist_info: DistInfoStd) -> torch.Tensor:
        """Log-density of samples x [*lead,*shape]; [*lead]."""
        return super().log_likelihood(x.reshape(dist_info.mean.shape), dist_info)

    def _shaped(self, x: torch.Tensor) -> torch.Tensor:
        return x.reshape((*x.shape[:-1], *self.shape))


class _LikelihoodRatio(torch.autograd.Function):
    """The ratio of two Gaussian densities of x, all [*lead,dim], as one node of the autograd graph.

    For arrays as small as actions, every node costs as much as its computation.

    `log_std` is given twice, because its gradient is a sum of two: that of the normalization, and that of the exponent. Autograd adds
    them, one after the other, to other gradients of log_std, as it does with a formula written in tensors. So rounding is the same.
    """

    @staticmethod
    def forward(
        ctx: Any,
        mean: torch.Tensor,
        log_std: torch.Tensor,
        log_std_again: torch.Tensor,
        x: torch.Tensor,
        old_mean: torch.Tensor,
        old_log_std: torch.Tensor,
    ) -> torch.Tensor:
        precision, difference = torch.exp(-log_std), x - mean
        z = difference * precision
        old_z = torch.exp(-old_log_std).mul_(x - old_mean)
        ratio = _log_density(z, log_std).sub_(_log_density(old_z, old_log_std)).exp_()
        ctx.save_for_backward(precision, difference, z, ratio)
        return ratio

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        precision, difference, z, ratio = ctx.saved_tensors
        of_density = (grad * ratio).unsqueeze(-1)  # [*lead,1]
        of_z = of_density * z  # Minus the gradient.
        of_exponent = (of_z * difference).mul_(precision)
        return of_z.mul_(precision), of_density.neg_().expand_as(z), of_exponent, None, None, None


def _log_density(z: torch.Tensor, log_std: torch.Tensor) -> torch.Tensor:
    """``sum(-z² / 2 - log_std - log(2π) / 2)``, [*lead,dim] -> [*lead]."""
    return z.square().mul_(-0.5).sub_(log_std).sub_(_HALF_LOG_2_PI).sum(dim=-1)


class _SampleWithLogLikelihood(torch.autograd.Function):
    """A sample ``squash * tanh(x)`` (x itself if `squash` is None) with ``x = mean + std * noise``, and its log-density.

    The log-density of x is ``sum(-noise² / 2 - log_std - log(2π) / 2)``; squashing subtracts ``sum(log(squash * (1 - tanh(x)²)))``. This
    is a single node of the autograd graph, because for arrays as small as actions every node costs as much as its computation.

    Means and deviations are those of `joined_mean` and `joined_log_std`, of which the last rows are `mean` and `log_std`. These have
    a gradient. If there are rows before them, their samples and log-densities are further results.
    """

    @staticmethod
    def forward(
        ctx: Any,
        mean: torch.Tensor,
        log_std: torch.Tensor,
        joined_mean: torch.Tensor,
        joined_log_std: torch.Tensor,
        noise: torch.Tensor,
        squash: float | None,
        min_log_std: float | None,
        max_log_std: float | None,
    ) -> tuple[torch.Tensor, ...]:
        ctx.is_limited = min_log_std is not None or max_log_std is not None
        limited = joined_log_std.clamp(min_log_std, max_log_std) if ctx.is_limited else joined_log_std
        spread = torch.exp(limited).mul_(noise)  # std * noise
        x = joined_mean + spread
        minus_log_density = torch.addcmul(limited, noise, noise, value=0.5)
        constant = -_HALF_LOG_2_PI
        if squash is None:
            sample = tanh = x
        else:
            tanh = torch.tanh(x)
            sample = tanh if squash == 1 else tanh * squash
            # log(1 - tanh(x)²) = 2 (log 2 + x - softplus(2 x)), without cancellation
            minus_log_density.add_(x, alpha=2).sub_(F.softplus(x, beta=2), alpha=4)
            constant -= math.log(squash) + 2 * math.log(2)
        log_density = constant * mean.shape[-1] - minus_log_density.sum(-1)
        ctx.set_materialize_grads(False)
        ctx.squash, ctx.limits = squash, (min_log_std, max_log_std)
        n = len(joined_mean) - len(mean)
        if n == 0:
            ctx.save_for_backward(log_std, spread, tanh)
            return sample, log_density
        ctx.save_for_backward(log_std, spread[n:], tanh[n:])
        others = sample[:n], log_density[:n]
        ctx.mark_non_differentiable(*others)
        return sample[n:], log_density[n:], *others

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_sample: torch.Tensor | None, grad_log_density: torch.Tensor | None, *_: None) -> tuple:
        log_std, spread, tanh = ctx.saved_tensors
        grad_sample = torch.zeros_like(spread) if grad_sample is None else grad_sample
        grad_log_density = torch.zeros_like(spread[..., :1]) if grad_log_density is None else grad_log_density.unsqueeze(-1)
        if ctx.squash is None:
            grad_x = grad_sample
        else:  # d log_density / dx = 2 tanh(x)
            of_tanh = grad_sample if ctx.squash == 1 else ctx.squash * grad_sample
            grad_x = torch.addcmul(torch.ops.aten.tanh_backward(of_tanh, tanh), tanh, grad_log_density, value=2)
        grad_log_std = torch.addcmul(-grad_log_density, grad_x, spread)
        if ctx.is_limited:
            smallest, largest = ctx.limits
            limits = -math.inf if smallest is None else smallest, math.inf if largest is None else largest
            grad_log_std = torch.ops.aten.hardtanh_backward(grad_log_std, log_std, *limits)
        return grad_x, grad_log_std, None, None, None, None, None, None
