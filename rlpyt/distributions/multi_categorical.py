"""Independent categorical distributions, for actions of several integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from rlpyt.distributions.base import Distribution
from rlpyt.distributions.categorical import Categorical, DistInfo, renormalized
from rlpyt.utils.tensor import OnDevices


class MultiCategorical(Categorical):
    """Distribution over arrays of independent integers; integer number k is one of ``0 .. nvec[k] - 1``.

    dist_info.prob [*lead,dim] holds the probabilities of all values of the first integer, then those of the second, and so on; dim is the
    sum of `nvec`. Samples are [*lead,*shape], where shape is that of `nvec`.

    Args:
        nvec: array of the numbers of values, of any shape.
        dtype, onehot_dtype: dtypes of integers and of encodings.

    Attributes:
        shape: of a sample without leading dimensions.
        sizes: the numbers of values as a flat tuple, one for each of K integers.
    """

    def __init__(self, nvec: Any, dtype: torch.dtype = torch.long, onehot_dtype: torch.dtype = torch.float) -> None:
        self.shape = np.shape(nvec)
        self.sizes = tuple(int(n) for n in np.ravel(nvec))
        super().__init__(sum(self.sizes), dtype, onehot_dtype)
        sizes, most = np.array(self.sizes), max(self.sizes)
        self._are_alike = len(set(self.sizes)) == 1
        exists = np.arange(most) < sizes[:, None]  # [K,most]
        starts = np.cumsum(sizes) - sizes
        # Where to find, in the values of all integers in a row, those of each integer, padded to as many; and the way back.
        self._to_table = torch.from_numpy((starts[:, None] + np.minimum(np.arange(most), sizes[:, None] - 1)).ravel())  # [K*most]
        self._to_row = torch.from_numpy(np.flatnonzero(exists))  # [dim]
        self._is_padding = torch.from_numpy(~exists)  # [K,most]
        self._copies = {name: OnDevices() for name in ("_to_table", "_to_row", "_is_padding")}

    def prob_of(self, logits: torch.Tensor) -> torch.Tensor:
        """Probabilities [*lead,dim] for logits [*lead,dim]: a softmax over the values of each integer."""
        return self._row(F.softmax(self._table(logits, -torch.inf), dim=-1))

    def masked(self, dist_info: DistInfo, mask: torch.Tensor) -> DistInfo:
        """Return the probabilities given that values where `mask` [*lead,dim] (bool) is False are not drawn, for each integer."""
        table, exists = self._table(mask, False), ~self._on("_is_padding", mask.device)
        allowed = (table | ~table.any(dim=-1, keepdim=True)) & exists
        return DistInfo(self._row(renormalized(self._table(dist_info.prob, 0.0), allowed)))

    def possible(self, x: torch.Tensor, dist_info: DistInfo) -> torch.Tensor:
        """Return arrays of integers [*lead,*shape] with the most likely value in place of each whose probability is 0."""
        return super().possible(self._flat(x), self._parts(dist_info)).reshape(x.shape)

    def kl(self, old_dist_info: DistInfo, new_dist_info: DistInfo) -> torch.Tensor:
        """Sum over the integers of KL(old || new); [*lead]."""
        return super().kl(self._parts(old_dist_info), self._parts(new_dist_info)).sum(dim=-1)

    def sample(self, dist_info: DistInfo) -> torch.Tensor:
        """Draw arrays of integers [*lead,*shape]; otherwise like `Categorical.sample`."""
        return super().sample(self._parts(dist_info)).reshape((*dist_info.prob.shape[:-1], *self.shape))

    def entropy(self, dist_info: DistInfo) -> torch.Tensor:
        """Sum of the entropies of all integers; [*lead]."""
        return super().entropy(self._parts(dist_info)).sum(dim=-1)

    def log_likelihood(self, indexes: torch.Tensor, dist_info: DistInfo) -> torch.Tensor:
        """Log-probability of arrays of integers [*lead,*shape]; [*lead]."""
        return super().log_likelihood(self._flat(indexes), self._parts(dist_info)).sum(dim=-1)

    def likelihood_ratio(self, indexes: torch.Tensor, old_dist_info: DistInfo, new_dist_info: DistInfo) -> torch.Tensor:
        """Probability of arrays of integers [*lead,*shape], new over old; [*lead]."""
        return Distribution.likelihood_ratio(self, indexes, old_dist_info, new_dist_info)

    def to_onehot(self, indexes: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
        """Arrays of integers [*lead,*shape] -> the one-hot encodings of all in a row, [*lead,dim]."""
        indexes = self._flat(indexes).long()  # [*lead,K]
        most = self._is_padding.shape[1]
        onehot = torch.zeros(*indexes.shape, most, dtype=dtype or self.onehot_dtype, device=indexes.device)
        return self._row(onehot.scatter_(-1, indexes.unsqueeze(-1), 1))

    def from_onehot(self, onehot: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
        """Invert `to_onehot`."""
        table = self._table(onehot.to(torch.float), 0.0)
        return table.argmax(dim=-1).reshape((*onehot.shape[:-1], *self.shape)).to(dtype or self.dtype)

    def _flat(self, indexes: torch.Tensor) -> torch.Tensor:
        """Arrays [*lead,*shape] -> [*lead,K]."""
        return indexes.reshape(*indexes.shape[: indexes.dim() - len(self.shape)], len(self.sizes))

    def _parts(self, dist_info: DistInfo) -> DistInfo:
        """Return the probabilities of each integer, [*lead,K,most values]; those of values that do not exist are 0."""
        return DistInfo(self._table(dist_info.prob, 0.0))

    def _table(self, row: torch.Tensor, padding: float) -> torch.Tensor:
        """Row of all values [*lead,dim] -> table of those of each integer [*lead,K,most], with `padding` for values that do not exist."""
        shape = (*row.shape[:-1], *self._is_padding.shape)
        if self._are_alike:
            return row.reshape(shape)
        table = row.index_select(-1, self._on("_to_table", row.device)).reshape(shape)
        return table.masked_fill(self._on("_is_padding", row.device), padding)

    def _row(self, table: torch.Tensor) -> torch.Tensor:
        """Invert `_table`."""
        row = table.flatten(-2)
        return row if self._are_alike else row.index_select(-1, self._on("_to_row", row.device))

    def _on(self, name: str, device: torch.device) -> torch.Tensor:
        return self._copies[name].on(device, getattr(self, name))
