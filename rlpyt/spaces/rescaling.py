"""Rescaling of actions: from a policy's range [-1,1] to the units of the action space."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


def has_same_bounds(low: Any, high: Any) -> bool:
    """Return whether all components have the same bounds -a and a; infinite ones count."""
    low, high = np.asarray(low), np.asarray(high)
    return bool(high.size and (high > 0).all() and (high == high.flat[0]).all() and (low == -high).all())


def rescaling_of(low: Any, high: Any, dtype: Any, everywhere: bool) -> Callable[[Any], np.ndarray]:
    """Return a function of arrays ``[*lead,*shape]``, which makes a copy in the units of a box of real numbers.

    A component with two finite bounds is mapped from [-1,1] to [low,high], by ``(low + high) / 2 + x (high - low) / 2``. A component with
    an infinite bound stays as it is.

    Args:
        low, high: bounds, arrays of `shape`.
        dtype: of the result.
        everywhere: also rescale boxes whose components all have the same bounds -a and a.
    """
    low, high = np.asarray(low, np.float64), np.asarray(high, np.float64)
    bounded = np.isfinite(low) & np.isfinite(high)
    if not bounded.any() or (has_same_bounds(low, high) and not everywhere):
        return np.array
    low, high = np.where(bounded, low, -1.0), np.where(bounded, high, 1.0)
    middle, half = low / 2 + high / 2, high / 2 - low / 2  # Divided first, because a sum might overflow.

    def rescale(value: Any) -> np.ndarray:
        return (middle + np.asarray(value) * half).astype(dtype)

    return rescale
