"""What agents demand of an environment's spaces."""

from typing import Any

import numpy as np


def check_action_space(name: str, space: Any, instead: str, bounded: bool = False) -> None:
    """Check that actions are vectors with the same bounds -a and a in every component.

    Args:
        name: of the agent that needs it.
        space: of the actions.
        instead: what to use for discrete actions.
        bounded: whether a must be finite.

    Raises:
        ValueError: they are not.
    """
    if hasattr(space, "n") or not hasattr(space, "high"):
        raise ValueError(
            f"{name} needs continuous actions (FloatBox), but the environment's action space is {space!r}. For discrete "
            f"actions use {instead}."
        )
    if len(space.shape) != 1:
        raise ValueError(f"{name} needs actions of shape (A,), but {space!r} has shape {space.shape}: reshape them in the environment.")
    low, high = np.asarray(space.low), np.asarray(space.high)
    finite = np.isfinite(high).all() or not bounded
    if not (finite and (high > 0).all() and (high == high[0]).all() and (low == -high).all()):
        raise ValueError(
            f"{name} needs actions bounded by the same -a and a in every component, but {space!r} has low={low} and high={high}: "
            "rescale them in the environment (e.g. gymnasium.wrappers.RescaleAction to [-1,1])."
        )
