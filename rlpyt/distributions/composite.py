"""Product of independent distributions, for actions with several parts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from rlpyt.distributions.base import Distribution
from rlpyt.distributions.discrete import DiscreteMixin
from rlpyt.distributions.gaussian import Gaussian, ShapedGaussian
from rlpyt.utils.collections import namedarraytuple


class Composite(Distribution):
    """Independent distributions, one for each field of a namedtuple of actions: their densities multiply.

    Samples are namedtuples of the space's type. `dist_info` has the same fields, with the parameters of each part.

    Args:
        parts: the distributions, in the order of the fields; they may be composite themselves.
        NamedTupleCls: namedtuple type of the samples.

    Attributes:
        DistInfoCls: namedarraytuple type of `dist_info`.
    """

    def __init__(self, parts: Sequence[Distribution], NamedTupleCls: Any) -> None:
        if len(parts) != len(NamedTupleCls._fields):
            raise ValueError(f"{len(parts)} distributions do not match the {len(NamedTupleCls._fields)} fields {NamedTupleCls._fields}.")
        self.parts = tuple(parts)
        self.NamedTupleCls = NamedTupleCls
        self.DistInfoCls = namedarraytuple("DistInfo", NamedTupleCls._fields)

    @property
    def dim(self) -> int:
        """Number of discrete values and continuous components of all parts: the size of an encoded action."""
        return sum(part.dim for part in self.parts)

    @property
    def mask_size(self) -> int:
        """Number of values of all integers."""
        return sum(part.mask_size for part in self.parts)

    def masked(self, dist_info: Any, mask: torch.Tensor) -> Any:
        """Return the parameters with each part masked by its entries of `mask` [*lead,mask_size], which are in the order of the parts."""
        masks = mask.split([part.mask_size for part in self.parts], dim=-1)
        return self.DistInfoCls(*(part.masked(info, of_part) for part, info, of_part in zip(self.parts, tuple(dist_info), masks)))

    def possible(self, x: Any, dist_info: Any) -> Any:
        """Return samples with the most likely value in place of each whose probability is 0, in each part."""
        return self.NamedTupleCls(*(part.possible(*of_part) for part, *of_part in zip(self.parts, tuple(x), tuple(dist_info))))

    def sample(self, dist_info: Any) -> Any:
        """Draw actions: a namedtuple of the samples of all parts, [*lead,...]."""
        return self.NamedTupleCls(*(part.sample(info) for part, info in zip(self.parts, tuple(dist_info))))

    def log_likelihood(self, x: Any, dist_info: Any) -> torch.Tensor:
        """Log-density of actions `x`: log p(x) = sum over parts i of log p_i(x_i); [*lead]."""
        return _sum(part.log_likelihood(*of_part) for part, *of_part in zip(self.parts, tuple(x), tuple(dist_info)))

    def kl(self, old_dist_info: Any, new_dist_info: Any) -> torch.Tensor:
        """KL(old || new) = sum over parts i of KL(old_i || new_i); [*lead]."""
        return _sum(part.kl(*of_part) for part, *of_part in zip(self.parts, tuple(old_dist_info), tuple(new_dist_info)))

    def entropy(self, dist_info: Any) -> torch.Tensor:
        """H = sum over parts i of H_i, of discrete and continuous parts alike; [*lead]."""
        return _sum(part.entropy(info) for part, info in zip(self.parts, tuple(dist_info)))


def _sum(terms: Iterable[torch.Tensor]) -> torch.Tensor:
    total: Any = sum(terms)  # There is at least one.
    return total


def encode(distribution: Distribution, action: Any) -> torch.Tensor:
    """Turn an action [*lead,...] into a vector [*lead,dim] for models: discrete parts as one-hots, and all parts concatenated."""
    if isinstance(distribution, Composite):
        return torch.cat([encode(part, part_action) for part, part_action in zip(distribution.parts, tuple(action))], dim=-1)
    if isinstance(distribution, DiscreteMixin):
        return distribution.to_onehot(action)
    return distribution.flat(action) if isinstance(distribution, ShapedGaussian) else action


def leaves(distribution: Distribution) -> list[Distribution]:
    """Return the innermost parts of a composite distribution, in order; for any other, the distribution itself."""
    if not isinstance(distribution, Composite):
        return [distribution]
    return [leaf for part in distribution.parts for leaf in leaves(part)]


def gaussians(distribution: Distribution) -> list[Gaussian]:
    """Return the Gaussians among the innermost parts of a distribution, in order."""
    return [leaf for leaf in leaves(distribution) if isinstance(leaf, Gaussian)]
