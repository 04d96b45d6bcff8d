"""Categorical distribution."""

from typing import Any

import torch
import torch.nn.functional as F

from rlpyt.distributions.discrete import DiscreteMixin
from rlpyt.utils.collections import namedarraytuple
from rlpyt.utils.tensor import select_at_indexes

# Keeps logs and ratios finite at probability 0.
EPS = 1e-8

# Added to allowed probabilities, in case their sum is 0. It changes no sum above 1e-22.
_TINY = 1e-30

DistInfo: Any = namedarraytuple("DistInfo", ["prob"])


class Categorical(DiscreteMixin):
    """Distribution over ``0 .. dim - 1`` with the probabilities dist_info.prob [*lead,dim]."""

    DistInfoCls = DistInfo

    def prob_of(self, logits: torch.Tensor) -> torch.Tensor:
        """Probabilities [*lead,dim] for logits [*lead,dim]."""
        return F.softmax(logits, dim=-1)

    @property
    def mask_size(self) -> int:
        """Number of values."""
        return self.dim

    def masked(self, dist_info: DistInfo, mask: torch.Tensor) -> DistInfo:
        """Return the probabilities given that values where `mask` [*lead,dim] (bool) is False are not drawn: those have 0."""
        return DistInfo(renormalized(dist_info.prob, mask | ~mask.any(dim=-1, keepdim=True)))

    def possible(self, x: torch.Tensor, dist_info: DistInfo) -> torch.Tensor:
        """Return integers [*lead] with the most likely value in place of each whose probability is 0."""
        prob = dist_info.prob
        return torch.where(select_at_indexes(x, prob) > 0, x, prob.argmax(dim=-1).to(x.dtype))

    def kl(self, old_dist_info: DistInfo, new_dist_info: DistInfo) -> torch.Tensor:
        """Sum of p_old log(p_old / p_new); [*lead]."""
        p, q = old_dist_info.prob, new_dist_info.prob
        return (p * (torch.log(p + EPS) - torch.log(q + EPS))).sum(dim=-1)

    def sample(self, dist_info: DistInfo) -> torch.Tensor:
        """Draw integers [*lead]. Probabilities need not be normalized; a value of probability 0 is never drawn.

        Inverts the cumulative distribution with one random number per datum, the cheapest way for small batches.

        Raises:
            ValueError: probabilities are NaN, infinite, or all zero; only on the CPU, since on a GPU the check would cost more
                than sampling.
        """
        cumulative = dist_info.prob.cumsum(dim=-1)
        total = cumulative[..., -1:]
        threshold = torch.rand_like(total).mul_(total)  # in [0, total), also after rounding
        drawn = torch.searchsorted(cumulative, threshold, right=True).squeeze(-1)
        if drawn.device.type == "cpu" and drawn.numel() and int(drawn.max()) >= dist_info.prob.shape[-1]:
            prob = dist_info.prob[drawn >= dist_info.prob.shape[-1]][0]
            advice = (
                "if training has diverged, lower the learning rate; otherwise check observations and rewards for NaN and infinity."
                if not bool(prob.isfinite().all()) or bool((prob >= 0).all())
                else "they are negative. If they are logits, let the model return torch.softmax(logits, dim=-1)."
            )
            raise ValueError(f"No action can be drawn from probabilities {prob.tolist()}: {advice}")
        return drawn if self.dtype is torch.long else drawn.to(self.dtype)

    def entropy(self, dist_info: DistInfo) -> torch.Tensor:
        """Minus the sum of p log(p); [*lead]."""
        p = dist_info.prob
        return -(p * torch.log(p + EPS)).sum(dim=-1)

    def log_likelihood(self, indexes: torch.Tensor, dist_info: DistInfo) -> torch.Tensor:
        """Log-probability of the integers `indexes` [*lead]; [*lead]."""
        return torch.log(select_at_indexes(indexes, dist_info.prob) + EPS)

    def likelihood_ratio(self, indexes: torch.Tensor, old_dist_info: DistInfo, new_dist_info: DistInfo) -> torch.Tensor:
        """Probability of the integers `indexes` [*lead], new over old; [*lead]."""
        new = select_at_indexes(indexes, new_dist_info.prob)
        old = select_at_indexes(indexes, old_dist_info.prob)
        return (new + EPS) / (old + EPS)


def renormalized(prob: torch.Tensor, allowed: torch.Tensor) -> torch.Tensor:
    """Return probabilities [...,n] given that only values where `allowed` [...,n] are drawn: ``p_i / sum of p_j`` over allowed j, others 0.

    With probabilities from a softmax, this is the softmax over allowed values only. If all allowed ones are 0 in float32, they become
    equal.
    """
    weights = (prob + _TINY).masked_fill(~allowed, 0)
    return weights / weights.sum(dim=-1, keepdim=True)
