"""Environments of Gymnasium that say which actions may follow."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np

from rlpyt.envs.base import Wrapper
from rlpyt.spaces.gym_wrapper import GymSpaceWrapper
from rlpyt.spaces.masked import MaskedObservation, mask_size
from rlpyt.spaces.parts import integers_of, leaf_spaces


class ActionMaskWrapper(Wrapper):
    """Puts the mask of the next action beside the observation, as the keys ``observation`` and ``action_mask`` of a Dict.

    Masks have Gymnasium's form: for Discrete an array [n], for MultiDiscrete a tuple of such arrays, for MultiBinary an array whose entries
    are 0 or 1 for bits that must have this value and 2 for others, for Dict and Tuple a structure of these, with None where all is allowed.
    A single array of all entries in a row is possible, too (see `rlpyt.spaces.masked`).

    Args:
        env: a gym environment.
        key: of the mask, in the info that `reset` and `step` return, or in the observation, if its space is a Dict with this key. That Dict
            then loses the key; if one other is left, its value becomes the observation.

    Raises:
        ValueError: the action space has no integers.
    """

    def __init__(self, env: Any, key: str = "action_mask") -> None:
        super().__init__(env)
        self._key = key
        self._space = GymSpaceWrapper(env.action_space, name="action")
        self._size = mask_size(self._space)
        if not self._size:
            raise ValueError(f"action_mask={key!r} is for discrete actions, but those of {env} are {env.action_space}.")
        sizes = np.concatenate([n.ravel() for n, _ in filter(None, map(integers_of, leaf_spaces(self._space)))])
        self._starts = np.cumsum(sizes) - sizes  # Where in the mask each integer of the action begins.
        inner, parts = env.observation_space, getattr(env.observation_space, "spaces", {})
        self._in_observation = isinstance(parts, Mapping) and key in parts
        self._only_field: Any = None
        if self._in_observation:
            others = OrderedDict((name, part) for name, part in parts.items() if name != key)
            self._only_field = next(iter(others)) if len(others) == 1 else None
            inner = gymnasium.spaces.Dict(others) if self._only_field is None else others[self._only_field]
        mask_space = gymnasium.spaces.MultiBinary(self._size)
        self.observation_space = gymnasium.spaces.Dict(OrderedDict(zip(MaskedObservation._fields, (inner, mask_space))))

    def reset(self, **kwargs: Any) -> Any:
        """Reset the wrapped environment; its mask is for the first action."""
        result = self.env.reset(**kwargs)
        if isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], dict):
            return self._masked(*result, "reset()")
        return self._masked(result, {}, "reset()")[0]

    def step(self, action: Any) -> tuple:
        """Step the wrapped environment."""
        observation, *outcome, info = self.env.step(action)
        is_over = any(bool(flag) for flag in outcome[1:])
        observation, info = self._masked(observation, info, "step()", is_over)
        return (observation, *outcome, info)

    def _masked(self, observation: Any, info: Mapping, where: str, is_over: bool = False) -> tuple[dict, Mapping]:
        """Return the observation with its mask, and info without."""
        if self._in_observation:
            mask = observation[self._key]
            observation = {name: part for name, part in observation.items() if name != self._key}
            observation = observation if self._only_field is None else observation[self._only_field]
        elif self._key in info:
            mask = info[self._key]
            info = {name: value for name, value in info.items() if name != self._key}
        elif is_over:
            mask = None
        else:
            raise ValueError(
                f"action_mask={self._key!r}: there is no mask of this name in the info that {where} of {self.env} returned, nor in its "
                "observation space. An environment gives a mask with every observation, also after a reset."
            )
        vector = self._vector(mask, self._space)
        if not is_over and not np.logical_or.reduceat(vector, self._starts).all():
            raise ValueError(
                f"The mask {self._key!r} that {where} of {self.env} returned allows no action, but the episode goes on: each integer of "
                "an action needs a value that may be taken."
            )
        return dict(zip(MaskedObservation._fields, (observation, vector))), info

    def _vector(self, mask: Any, space: Any) -> np.ndarray:
        """Return a mask of Gymnasium's form for a space as one array, int8."""
        size = self._size if space is self._space else mask_size(space)
        if mask is None:
            return np.ones(size, np.int8)
        if space.is_structured and not isinstance(mask, np.ndarray):
            masks = mask.values() if isinstance(mask, Mapping) else mask
            if isinstance(mask, Mapping) and set(mask) == {key for key, _ in space._parts}:
                masks = [mask[key] for key, _ in space._parts]
            return np.concatenate([self._vector(part, of_part) for part, of_part in zip(masks, space.spaces)])
        if not size:
            return np.ones(0, np.int8)
        if isinstance(mask, (tuple, list)) and any(np.ndim(part) for part in mask):
            mask = np.concatenate([np.ravel(part) for part in _leaves(mask)])
        mask = np.asarray(mask)
        if space._kind == "MultiBinary" and mask.shape == space.shape:
            mask = np.stack([mask != 1, mask != 0], axis=-1)
        if mask.size != size:
            raise ValueError(f"The mask {self._key!r} has {mask.size} entries for {space!r}, which needs {size}.")
        return (mask.ravel() != 0).astype(np.int8)


def _leaves(mask: Any) -> list:
    if isinstance(mask, (tuple, list)) and any(np.ndim(part) for part in mask):
        return [leaf for part in mask for leaf in _leaves(part)]
    return [mask]
