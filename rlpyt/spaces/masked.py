"""Observations that come with a mask of the actions that may follow.

Such an observation is a structure of two fields, in this order: ``observation``, what the agent's network sees, and ``action_mask``,
numbers [n]: 1 for actions that may be taken, and 0 for others. Since the mask is part of the observation, it goes wherever observations go:
it belongs to the next action, after a reset to the first one, and in replay to the action at that observation.

The n entries are for all values of all integers of the action, in order: n for Discrete(n), the sum of ``nvec`` for MultiDiscrete, two for
each bit of MultiBinary. Parts that are real numbers have none. If all entries of an integer are 0, as in blank rows of a batch, all its
values are allowed.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import numpy as np

from rlpyt.spaces.base import Space
from rlpyt.spaces.composite import Composite
from rlpyt.spaces.int_box import IntBox
from rlpyt.spaces.parts import composite_of, integers_of, leaf_spaces
from rlpyt.utils.collections import fields_of, remade

MaskedObservation = namedtuple("MaskedObservation", ["observation", "action_mask"])


def masked_space(observation: Space, action: Space) -> Composite:
    """Return the space of observations with the mask of actions, for an environment's spaces of both."""
    return Composite([observation, IntBox(0, 2, (mask_size(action),), dtype="int8")], MaskedObservation)


def mask_size(action: Space) -> int:
    """Return the number of entries in a mask for actions of this space."""
    integers = [integers_of(leaf) for leaf in leaf_spaces(action)]
    return sum(int(n.sum()) for n, _ in filter(None, integers))


def is_masked(observation: Any) -> bool:
    """Return whether an observation, or an array of them, is a structure of observation and mask."""
    return isinstance(observation, tuple) and fields_of(observation) == MaskedObservation._fields


def split(observation: Any) -> tuple[Any, Any]:
    """Return observation and mask; None instead of a missing mask."""
    return tuple(observation) if is_masked(observation) else (observation, None)


def without_mask(space: Any) -> Any:
    """Return the space of observations without the mask, if there is one."""
    composite = composite_of(space)
    return composite.spaces[0] if composite is not None and composite.names == MaskedObservation._fields else space


def allowed_action(space: Any, action: Any, observation: Any) -> Any:
    """Return an action like `action`, in which values that may not follow this observation are replaced by allowed ones."""
    _, mask = split(observation)
    return action if mask is None else _allowed(space, action, np.asarray(mask).astype(bool))


def _allowed(space: Any, action: Any, mask: np.ndarray) -> Any:
    composite = composite_of(space)
    if composite is not None:
        ends = np.cumsum([mask_size(part) for part in composite.spaces])[:-1]
        parts = zip(composite.spaces, tuple(action), np.split(mask, ends))
        return remade(action, (_allowed(*part) for part in parts))
    integers = integers_of(space)
    if integers is None:
        return action
    n, low = (each.ravel() for each in integers)
    values = np.array(action)
    for k, of_integer in enumerate(np.split(mask, np.cumsum(n)[:-1])):
        (allowed,) = of_integer.nonzero()
        value = int(values.flat[k] - low[k])
        if len(allowed) and not of_integer[value]:
            values.flat[k] = allowed[value % len(allowed)] + low[k]
    return values[()]
