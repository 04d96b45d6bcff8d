"""The components of a space, whether it is one of rlpyt or wraps one of Gymnasium."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlpyt.spaces.base import CompletedSpace
from rlpyt.spaces.composite import Composite
from rlpyt.spaces.gym_wrapper import GymSpaceWrapper


def composite_of(space: Any) -> Composite | None:
    """Return the space itself if it is composite, or the composite form of Gymnasium's Dict or Tuple; None for others."""
    inside = CompletedSpace(space).space
    space = space if inside is None else inside
    return space if isinstance(space, Composite) else None


def leaf_spaces(space: Any) -> list[Any]:
    """Return the innermost parts of a composite space, in order; for any other space, the space itself."""
    composite = composite_of(space)
    return [space] if composite is None else [leaf for part in composite.spaces for leaf in leaf_spaces(part)]


def integers_of(space: Any) -> tuple[np.ndarray, np.ndarray] | None:
    """Return how many values each integer of an action has, and its first value, both in the shape of the action; None for others."""
    completed = CompletedSpace(space)
    shape = completed.shape
    if completed.nvec is not None:
        return np.asarray(space.nvec), np.zeros(shape, np.int64)  # The wrapper of Gymnasium's space counts from 0.
    if completed.n is not None:
        is_bits = isinstance(space, GymSpaceWrapper) and shape != ()
        low = 0 if isinstance(space, GymSpaceWrapper) else completed.low or 0
        return np.full(shape, 2 if is_bits else space.n), np.full(shape, low)
    if completed.high is not None and np.dtype(space.dtype).kind in "iu":
        low = np.asarray(space.low).astype(np.int64)
        return np.asarray(space.high).astype(np.int64) - low + 1, low
    return None
