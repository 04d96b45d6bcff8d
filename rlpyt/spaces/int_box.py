"""Integers in a range."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlpyt.spaces.base import Space


class IntBox(Space):
    """Arrays of integers, all in ``range(low, high)``: `high` itself is excluded.

    Args:
        low, high: scalars, the same for every element of the array.
        shape: shape of the array; None or ``()`` for a single integer.
        dtype: integer type of samples and null value.
        null_value: fills the null value (default: `low`); it need not lie in the range.
    """

    def __init__(
        self,
        low: int,
        high: int,
        shape: int | tuple[int, ...] | None = None,
        dtype: str | type | np.dtype = "int32",
        null_value: int | None = None,
    ) -> None:
        self.dtype: Any = np.dtype(dtype)  # Stubs of numpy's generators take no dtype in general.
        if self.dtype.kind not in "iu":
            raise ValueError(f"dtype={dtype!r} of an IntBox must be an integer type; use FloatBox for real numbers.")
        if not all(map(np.isscalar, (low, high))):
            raise ValueError("IntBox takes scalar low and high, shared by all elements; use Composite to mix ranges.")
        self.low, self.high = low, high
        self.shape = _as_shape(shape)
        limits = np.iinfo(self.dtype)
        if not limits.min <= low < high <= limits.max + 1:
            raise ValueError(
                f"range({low}, {high}) must hold at least one integer and fit in {self.dtype}: "
                f"low >= {limits.min}, low < high <= {limits.max + 1}."
            )
        self._null_value = np.full(self.shape, low if null_value is None else null_value, dtype=self.dtype)

    def sample(self) -> np.ndarray:
        """Return integers drawn uniformly from the range: array of `shape` and `dtype`."""
        if self._rng is None:
            x = np.random.randint(self.low, self.high, size=self.shape, dtype=self.dtype)
        else:
            x = self._rng.integers(self.low, self.high, size=self.shape, dtype=self.dtype)
        return np.asarray(x, dtype=self.dtype)

    def null_value(self) -> np.ndarray:
        """Return a new array filled with the null value."""
        return self._null_value.copy()

    def contains(self, x: Any) -> bool:
        """Say whether `x` has this shape, an integer type, and values in the range."""
        x = np.asarray(x)
        in_form = x.shape == self.shape and x.dtype.kind in "iu"
        return in_form and bool(((x >= self.low) & (x < self.high)).all())

    @property
    def bounds(self) -> tuple[int, int]:
        """``(low, high)``; `high` is excluded."""
        return self.low, self.high

    @property
    def n(self) -> int:
        """The number of integers in the range."""
        return self.high - self.low

    def __repr__(self) -> str:
        return f"IntBox({self.low}-{self.high - 1} shape={self.shape} dtype={self.dtype})"


def _as_shape(shape: Any) -> tuple[int, ...]:
    if shape is None:
        return ()
    is_scalar = np.isscalar(shape)
    return (int(shape),) if is_scalar else tuple(int(size) for size in shape)
