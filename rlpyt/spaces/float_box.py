"""Real numbers between bounds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rlpyt.spaces.base import Space
from rlpyt.spaces.rescaling import rescaling_of


class FloatBox(Space):
    """Arrays of real numbers between bounds, which may be infinite.

    Two kinds of input:

    - `low` and `high` are scalars and `shape` is given: ``FloatBox(-1.0, 1.0, (3, 4))``
    - `low` and `high` are arrays of one shape: ``FloatBox(np.array([-1.0, -2.0]), np.array([2.0, 4.0]))``

    Args:
        low, high: bounds; both belong to the space.
        shape: of the array, if `low` and `high` are scalars.
        null_value: fills the null value; it need not lie between the bounds. None means 0.
        dtype: floating-point type of samples and null value.
    """

    def __init__(
        self,
        low: float | np.ndarray,
        high: float | np.ndarray,
        shape: int | tuple[int, ...] | None = None,
        null_value: float | None = 0.0,
        dtype: str | type | np.dtype = "float32",
    ) -> None:
        self.dtype = np.dtype(dtype)
        if self.dtype.kind != "f":
            raise ValueError(f"dtype={dtype!r} of a FloatBox must be a floating-point type; use IntBox for integers.")
        if shape is None:
            if np.shape(low) != np.shape(high):
                raise ValueError(
                    f"low has shape {np.shape(low)} and high has shape {np.shape(high)}: give arrays of one shape, "
                    "or scalars together with shape=."
                )
            shape = np.shape(low)
        self.low = np.array(np.broadcast_to(low, shape), dtype=self.dtype)
        self.high = np.array(np.broadcast_to(high, shape), dtype=self.dtype)
        if not (self.low <= self.high).all():
            raise ValueError(f"low={low} must not exceed high={high}.")
        self._null_value = np.full(self.shape, 0.0 if null_value is None else null_value, dtype=self.dtype)

    def sample(self) -> np.ndarray:
        """Return one array: uniform between two bounds, shifted exponential from a single bound, normal without bounds."""
        rng = np.random if self._rng is None else self._rng
        has_low, has_high = np.isfinite(self.low), np.isfinite(self.high)
        low, high = np.where(has_low, self.low, 0.0), np.where(has_high, self.high, 0.0)
        bounded = has_low & has_high
        x = np.empty(self.shape)
        x[bounded] = rng.uniform(low[bounded], high[bounded])
        only_low, only_high, free = has_low & ~has_high, has_high & ~has_low, ~(has_low | has_high)
        x[only_low] = low[only_low] + rng.exponential(size=only_low.sum())
        x[only_high] = high[only_high] - rng.exponential(size=only_high.sum())
        x[free] = rng.normal(size=free.sum())
        return np.clip(x.astype(self.dtype), self.low, self.high)  # Rounding to dtype may exceed a bound.

    def null_value(self) -> np.ndarray:
        """Return a new array filled with the null value."""
        return self._null_value.copy()

    def contains(self, x: Any) -> bool:
        """Say whether `x` has this shape, is made of real numbers, and lies between the bounds."""
        x = np.asarray(x)
        in_form = x.shape == self.shape and x.dtype.kind in "fiu"
        return in_form and bool(((x >= self.low) & (x <= self.high)).all())

    def clip(self, value: Any) -> np.ndarray:
        """Return an array ``[*lead,*shape]``: `value` limited to the bounds."""
        return np.minimum(np.maximum(value, self.low), self.high)

    def rescaling(self, everywhere: bool = False) -> Callable[[Any], np.ndarray]:
        """Return a function of arrays ``[*lead,*shape]``: components with two finite bounds go from [-1,1] to these bounds."""
        return rescaling_of(self.low, self.high, self.dtype, everywhere)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array."""
        return self.low.shape

    @property
    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """``(low, high)``, arrays of `shape`."""
        return self.low, self.high

    def __repr__(self) -> str:
        return f"FloatBox(shape={self.shape} dtype={self.dtype})"
