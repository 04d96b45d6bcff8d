"""The interface of distributions."""

import math
from typing import Any

import torch

from rlpyt.utils.tensor import mean_of_valid, valid_mean

# Parameters of the distributions of a batch of data, e.g. the probabilities of all actions: a namedarraytuple of tensors with leading
# dimensions [T,B], [B] or []. Each distribution has its type.
DistInfo = Any


class Distribution:
    """Formulas of a family of distributions; the parameters are the argument `dist_info`.

    All results keep the leading dimensions of their inputs, except for means, which are scalars. Not every distribution has every
    method.
    """

    @property
    def dim(self) -> int:
        """Number of discrete values, or of continuous components."""
        raise NotImplementedError(f"{type(self).__name__} has no dim.")

    @property
    def mask_size(self) -> int:
        """Number of entries in a mask of samples, one for each value of each integer; 0 for real numbers."""
        return 0

    def masked(self, dist_info: DistInfo, mask: torch.Tensor) -> DistInfo:
        """Return the parameters given that values where `mask` [*lead,mask_size] (bool) is False are not drawn.

        An integer of which no value is allowed is not masked. Real numbers are never masked.
        """
        return dist_info

    def possible(self, x: Any, dist_info: DistInfo) -> Any:
        """Replace each sample of probability 0 by the most likely value; return the samples.

        `sample` never draws those on a CPU. On a GPU, which adds up probabilities in another order, rounding might let it happen.
        """
        return x

    def sample(self, dist_info: DistInfo) -> torch.Tensor:
        """Draw one random sample for each datum."""
        raise NotImplementedError(f"{type(self).__name__} has no sample.")

    def kl(self, old_dist_info: DistInfo, new_dist_info: DistInfo) -> torch.Tensor:
        """Kullback-Leibler divergence KL(old || new) at each datum."""
        raise NotImplementedError(f"{type(self).__name__} has no kl.")

    def mean_kl(self, old_dist_info: DistInfo, new_dist_info: DistInfo, valid: torch.Tensor | None = None) -> torch.Tensor:
        """Mean of `kl` over the data, ignoring those where the mask `valid` is 0."""
        return valid_mean(self.kl(old_dist_info, new_dist_info), valid)

    def log_likelihood(self, x: torch.Tensor, dist_info: DistInfo) -> torch.Tensor:
        """Log of the probability (density) of each sample x."""
        raise NotImplementedError(f"{type(self).__name__} has no log_likelihood.")

    def likelihood_ratio(self, x: torch.Tensor, old_dist_info: DistInfo, new_dist_info: DistInfo) -> torch.Tensor:
        """Probability (density) of each sample x, new over old."""
        return torch.exp(self.log_likelihood(x, new_dist_info) - self.log_likelihood(x, old_dist_info))

    def entropy(self, dist_info: DistInfo) -> torch.Tensor:
        """Entropy, in nats, at each datum."""
        raise NotImplementedError(f"{type(self).__name__} has no entropy.")

    def perplexity(self, dist_info: DistInfo) -> torch.Tensor:
        """Exponential of the entropy: roughly the number of likely values; at most the largest number of the dtype."""
        return _perplexity(self.entropy(dist_info))

    def mean_entropy(self, dist_info: DistInfo, valid: torch.Tensor | None = None) -> torch.Tensor:
        """Mean of `entropy` over the data, ignoring those where the mask `valid` is 0."""
        return mean_of_valid(self.entropy(dist_info), valid)

    def mean_perplexity(self, dist_info: DistInfo, valid: torch.Tensor | None = None) -> torch.Tensor:
        """Mean of `perplexity` over the data, ignoring those where the mask `valid` is 0."""
        return _finite_mean(self.perplexity(dist_info), valid)


def mean_entropy_and_perplexity(dist: Any, dist_info: DistInfo, valid: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a distribution's `mean_entropy`, and its `mean_perplexity` without gradient. The entropy is computed once, if it may be."""
    if all(getattr(getattr(dist, name, None), "__func__", None) is getattr(Distribution, name) for name in _FROM_ENTROPY):
        entropy = dist.entropy(dist_info)
        return mean_of_valid(entropy, valid), _finite_mean(_perplexity(entropy.detach()), valid)
    with torch.no_grad():
        perplexity = dist.mean_perplexity(dist_info, valid)
    return dist.mean_entropy(dist_info, valid), perplexity


def _perplexity(entropy: torch.Tensor) -> torch.Tensor:
    """Return exp(entropy), but the largest number of the dtype in place of infinity, which 89 nats are in float32.

    Actions of many parts have as many: 200 bits have 139. Infinity would make means over valid data, and statistics in the log, NaN.
    """
    of_dtype = torch.finfo(entropy.dtype)
    return torch.exp(entropy.clamp(max=math.log(of_dtype.max) * (1 - of_dtype.eps)))  # A little less, as it is rounded.


def _finite_mean(perplexity: torch.Tensor, valid: torch.Tensor | None) -> torch.Tensor:
    """Return the mean, where the sum of large numbers may be infinite."""
    return mean_of_valid(perplexity, valid).clamp(max=torch.finfo(perplexity.dtype).max)


_FROM_ENTROPY = ("perplexity", "mean_entropy", "mean_perplexity")  # Methods that need no other than `entropy`, unless overridden.
