"""Environments of Gymnasium that say which actions may follow."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np

from rlpyt.envs.base import Wrapper
from rlpyt.spaces.gym_wrapper import GymSpaceWrapper
from rlpyt.spaces.masked import MaskedObservation, mask_size
from rlpyt.spaces.parts import integers_of, leaf_spaces
from rlpyt.utils.collections import fields_of
from rlpyt.utils.structures import map_structure


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
        sizes = np.array([n for leaf in leaf_spaces(self._space) for n in _numbers_of_values(leaf)])
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
            raise ValueError(self.is_missing(where))
        vector = self._vector(mask, self._space)
        if not is_over and not np.logical_or.reduceat(vector, self._starts).all():
            raise ValueError(self.allows_nothing(where))
        return dict(zip(MaskedObservation._fields, (observation, vector))), info

    def is_missing(self, where: str) -> str:
        """Say that there is no mask in what `where` returned."""
        return (
            f"action_mask={self._key!r}: there is no mask of this name in the info that {where} of {self.env} returned, nor in its "
            "observation space. An environment gives a mask with every observation, also after a reset."
        )

    def allows_nothing(self, where: str) -> str:
        """Say that the mask that `where` returned excludes all actions."""
        return (
            f"The mask {self._key!r} that {where} of {self.env} returned allows no action, but the episode continues: each integer of "
            "an action needs a value that may be taken."
        )

    def _vector(self, mask: Any, space: Any) -> np.ndarray:
        """Return a mask of Gymnasium's form for a space as one array, int8."""
        size = self._size if space is self._space else mask_size(space)
        if mask is None or not size:
            return np.ones(size, np.int8)
        if space.is_structured and not isinstance(mask, np.ndarray):
            parts = zip(self._parts(mask, space), space.spaces, strict=True)
            return np.concatenate([self._vector(part, of_part) for part, of_part in parts])
        needed = [size] if space.is_structured else _numbers_of_values(space)
        if _has_parts(mask):
            rows = [np.ravel(part) for part in _leaves(mask)]
        else:
            mask = np.atleast_1d(mask)
            if space._kind == "MultiBinary" and mask.shape == space.shape:
                self._check(mask, np.where(mask < 2, mask != 0, 2), "0 or 1 for each bit that must have this value, and 2 for the others")
                mask = np.stack([mask != 1, mask != 0], axis=-1)
            n_rows = 1 if len(needed) == 1 else math.prod(mask.shape[:-1])
            rows = list(mask.reshape(n_rows, mask.size // n_rows))
        entries = [len(row) for row in rows]
        if entries != [size]:
            if entries != needed:  # Not only their sum: the parts may be in another order.
                got, need = (shown[0] if len(shown) == 1 else f"parts of {shown}" for shown in (entries, needed))
                raise ValueError(f"The mask {self._key!r} has {got} entries for {space!r}, which needs {need}.")
        return self.flags(np.concatenate(rows))

    def flags(self, entries: np.ndarray) -> np.ndarray:
        """Return the entries of masks, of any shape, as int8.

        Raises:
            ValueError: one is neither 0 nor 1, as where numbers are added to the logits of actions: there 0 allows an action.
        """
        flags = (entries != 0).astype(np.int8)
        if entries.dtype != bool:
            self._check(entries, flags, "1 for each value of an action that may be taken, and 0 for the others")
        return flags

    def _check(self, entries: np.ndarray, expected: np.ndarray, needed: str) -> None:
        """Raise ValueError if entries of a mask are not the expected ones, which have the same shape; `needed` says what a mask has."""
        wrong = entries != expected
        if np.count_nonzero(wrong):  # Faster than `any`.
            raise ValueError(f"The mask {self._key!r} has the entry {entries[wrong][0]}. A mask has {needed}.")

    def _parts(self, mask: Any, space: Any) -> Sequence[Any]:
        """Return the masks of a structure's parts, in the order of the space: by key or field, or those of a tuple."""
        keys, fields = [key for key, _ in space._parts], fields_of(mask)
        if fields is not None and space._kind == "Dict":
            mask = dict(zip(fields, tuple(mask)))
        if isinstance(mask, Mapping):
            sizes = [mask_size(part) for part in space.spaces]
            for names in (keys, space.names):
                needed = {name for name, size in zip(names, sizes) if size}  # Real numbers have no mask.
                if needed <= set(mask) <= set(names):
                    return [mask.get(name) for name in names]
        elif isinstance(mask, (tuple, list)) and len(mask) == len(keys):
            return tuple(mask)
        if isinstance(mask, Mapping):
            got = f"has the parts {list(mask)}"
        else:
            got = f"has {len(mask)} parts" if isinstance(mask, (tuple, list)) else f"is {mask!r}"
        raise ValueError(f"The mask {self._key!r} {got} for {space!r}, which needs the parts {keys}, with None where all is allowed.")


class _One:
    """Stands for one environment of a vector of Gymnasium."""

    def __init__(self, vector: Any) -> None:
        self.action_space, self.observation_space = vector.single_action_space, vector.single_observation_space
        self._vector = vector

    def __repr__(self) -> str:
        return f"an environment of {self._vector}"


class VectorActionMaskWrapper(Wrapper):
    """Does for a vector of Gymnasium what `ActionMaskWrapper` does for an environment.

    Masks in infos have the form in which vectors merge the infos of their environments: an array [n,...], or an array of n objects, for
    Dict a dictionary of these; and an array ``_key`` [n] that says which environments gave one, if not all.

    Args:
        env: a vector.
        key: that of `ActionMaskWrapper`.

    Raises:
        ValueError: the action space has no integers.
    """

    def __init__(self, env: Any, key: str = "action_mask") -> None:
        super().__init__(env)
        self._key, self._n = key, int(env.num_envs)
        self._of_one = ActionMaskWrapper(_One(env), key)
        self.single_observation_space = self._of_one.observation_space
        self.observation_space = gymnasium.vector.utils.batch_space(self.single_observation_space, self._n)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[dict, dict]:
        """Reset the vector, or the environments of the mask ``options["reset_mask"]``; the rows of others have no meaning."""
        which = (options or {}).get("reset_mask")  # Now, because vectors take it out.
        is_reset = np.ones(self._n, bool) if which is None else np.array(which, bool)
        observation, infos = self.env.reset(seed=seed, options=options)
        return self._masked(observation, infos, is_reset, "reset()")

    def step(self, actions: Any) -> tuple:
        """Step the vector."""
        observation, reward, terminated, truncated, infos = self.env.step(actions)
        ended = np.logical_or(terminated, truncated)
        final = infos.get("final_obs")
        if final is not None:
            last = dict(infos.get("final_info", {}))
            parts = [final[i] for i in range(self._n)] if isinstance(final, np.ndarray) else [_row(final, i) for i in range(self._n)]
            final_obs = np.full(self._n, None, dtype=object)
            for i in np.flatnonzero(ended).tolist():
                own = {self._key: _of(last[self._key], i)} if self._key in last and _gave(last, self._key, i) else {}
                final_obs[i] = self._of_one._masked(parts[i], own, "step()", is_over=True)[0]
            infos = {**infos, "final_obs": final_obs}
            if "final_info" in infos:
                infos["final_info"] = self._without_mask(last)
        goes_on = np.ones(self._n, bool) if final is not None else ~ended
        observation, infos = self._masked(observation, infos, goes_on, "step()")
        return observation, reward, terminated, truncated, infos

    def _masked(self, observation: Any, infos: Mapping, goes_on: np.ndarray, where: str) -> tuple[dict, dict]:
        """Return observations with their masks [n,size], and infos without; environments whose episode has ended need no mask."""
        of_one, key = self._of_one, self._key
        if of_one._in_observation:
            masks, gave = observation[key], np.ones(self._n, bool)
            observation = {name: part for name, part in observation.items() if name != key}
            observation = observation if of_one._only_field is None else observation[of_one._only_field]
        else:
            masks = infos.get(key)
            gave = infos.get(f"_{key}", np.full(self._n, masks is not None))
            infos = self._without_mask(infos)
        if (goes_on & ~gave).any():
            raise ValueError(of_one.is_missing(where))
        if isinstance(masks, np.ndarray) and masks.shape == (self._n, of_one._size) and of_one._space._kind != "MultiBinary":
            vectors = of_one.flags(masks if gave.all() else np.where(gave[:, None], masks, 1))
        else:
            of_env = _row if of_one._in_observation else _of
            vectors = np.stack([of_one._vector(of_env(masks, i) if gave[i] else None, of_one._space) for i in range(self._n)])
        if not np.logical_or.reduceat(vectors[goes_on], of_one._starts, axis=1).all():
            raise ValueError(of_one.allows_nothing(where))
        return dict(zip(MaskedObservation._fields, (observation, vectors))), dict(infos)

    def _without_mask(self, infos: Mapping) -> dict:
        return {name: value for name, value in infos.items() if name not in (self._key, f"_{self._key}")}


def _of(merged: Any, i: int) -> Any:
    """Return the values of environment `i` from the `merged` infos of a vector: those that it gave."""
    if isinstance(merged, Mapping):
        keys = [key for key in merged if not (key.startswith("_") and key[1:] in merged) and _gave(merged, key, i)]
        return {key: _of(merged[key], i) for key in keys}
    return merged[i]


def _row(values: Any, i: int) -> Any:
    """Return what belongs to environment `i` in (a part of) the observations of a vector."""
    return map_structure(lambda leaf: leaf[i], values)


def _gave(infos: Mapping, key: str, i: int) -> bool:
    return bool(infos[f"_{key}"][i]) if f"_{key}" in infos else True


def _has_parts(mask: Any) -> bool:
    """Return whether a mask is a tuple (or list) of masks, and not of numbers."""
    return isinstance(mask, (tuple, list)) and any(isinstance(part, (tuple, list)) or np.ndim(part) for part in mask)


def _leaves(mask: Any) -> list:
    return [leaf for part in mask for leaf in _leaves(part)] if _has_parts(mask) else [mask]


def _numbers_of_values(space: Any) -> list[int]:
    """Return how many values each integer of an innermost space has."""
    n, _ = integers_of(space) or (np.zeros(0, int), None)
    return n.ravel().tolist()
