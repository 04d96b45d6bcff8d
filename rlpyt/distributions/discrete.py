"""The base class of distributions over discrete values."""

import torch

from rlpyt.distributions.base import Distribution
from rlpyt.utils.tensor import from_onehot, to_onehot


class DiscreteMixin(Distribution):
    """Converts between integers in ``0 .. dim - 1`` and their one-hot encoding.

    Args:
        dim: number of values.
        dtype, onehot_dtype: dtypes of integers and of encodings.
    """

    def __init__(self, dim: int, dtype: torch.dtype = torch.long, onehot_dtype: torch.dtype = torch.float) -> None:
        self._dim = dim
        self.dtype = dtype
        self.onehot_dtype = onehot_dtype

    @property
    def dim(self) -> int:
        """Number of values."""
        return self._dim

    def to_onehot(self, indexes: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
        """Integers [*lead] -> one-hot [*lead,dim]."""
        return to_onehot(indexes, self._dim, dtype=dtype or self.onehot_dtype)

    def from_onehot(self, onehot: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
        """One-hot [*lead,dim] -> integers [*lead]."""
        return from_onehot(onehot, dtype=dtype or self.dtype)
