"""Variants of a configuration: a dictionary of sections, each a dictionary of settings."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from rlpyt.utils.misc import atomic_write, did_you_mean
from rlpyt.utils.settings import PATH, Kind, check_values, checked, list_of, shown

VARIANT = "variant_config.json"


class VariantLevel(NamedTuple):
    """One dimension of a sweep: settings that change together, and the combinations of their values.

        VariantLevel(
            keys=[("algo", "learning_rate"), ("sampler", "batch_B")],
            values=[(1e-3, 16), (3e-3, 32)],
            dir_names=["lr_1e-3_16_envs", "lr_3e-3_32_envs"],
        )

    Attributes:
        keys: for each setting, the keys that lead to it in the configuration.
        values: combinations, each with a value for every setting, in the order of `keys`.
        dir_names: a directory for each combination, all different.
    """

    keys: Sequence[tuple]
    values: Sequence[Sequence]
    dir_names: Sequence[str]


def _is_iterable(value: Any) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, (str, Mapping))


_OF_LEVELS = dict(
    keys=Kind("a list of tuples of keys", _is_iterable),
    values=Kind("a list of tuples of values", _is_iterable),
    dir_names=Kind("a list of names", _is_iterable),
)


def make_variants(*variant_levels: VariantLevel) -> tuple[list[dict], list[str]]:
    """Cross levels: every combination of the first one with every combination of the second, and so on.

    Returns:
        The variants, each a dictionary like the configuration that contains only what it changes; and the directory of each variant.
        Directories of the first level contain those of the second.

    Raises:
        ValueError: the numbers of keys, values and dir_names differ, a directory appears twice, or keys contradict each other.
    """
    variants: list[dict] = [{}]
    log_dirs = [""]
    for variant_level in variant_levels:
        variants, log_dirs = _cross_variants(variants, log_dirs, variant_level)
    return variants, log_dirs


def _cross_variants(
    prev_variants: Sequence[Mapping], prev_log_dirs: Sequence[str], variant_level: VariantLevel
) -> tuple[list[dict], list[str]]:
    """For every previous variant, make all combinations with the values of another level."""
    if not isinstance(variant_level, (tuple, list)) or len(variant_level) != len(VariantLevel._fields):
        raise TypeError(f"variant_levels={shown(variant_level)} is not possible; give one VariantLevel or several.")
    check_values("VariantLevel", dict(zip(VariantLevel._fields, variant_level)), _OF_LEVELS)
    keys, values = list(variant_level[0]), list(variant_level[1])
    dir_names: list[Any] = list(variant_level[2])
    check_values("VariantLevel", dict(dir_names=dir_names), dict(dir_names=list_of("names", PATH.test)))
    for key in keys:
        if not isinstance(key, (tuple, list)) or not key:
            raise ValueError(f"The key {key!r} must be a tuple of the keys that lead to the setting, e.g. ('algo', 'learning_rate').")
    for combination in values:
        is_sequence = isinstance(combination, (Sequence, np.ndarray)) and not isinstance(combination, str)
        if not is_sequence or len(combination) != len(keys):
            hint = " values=list(zip(values)) makes such tuples." if len(keys) == 1 else ""
            raise ValueError(f"{combination!r} in values must be a tuple with one value for each of the {len(keys)} keys {keys}.{hint}")
    if not values:
        raise ValueError(f"There are no values for the keys {keys}.")
    if len(values) != len(dir_names):
        raise ValueError(f"There are {len(values)} combinations of values for the keys {keys}, but {len(dir_names)} dir_names.")
    variants = [_with_values(variant, keys, combination) for variant in prev_variants for combination in values]
    log_dirs = [os.path.join(log_dir, dir_name) for log_dir in prev_log_dirs for dir_name in dir_names]
    places = [os.path.normpath(log_dir) for log_dir in log_dirs]
    for place in places:
        if places.count(place) > 1:
            raise ValueError(f"Two variants have the same directory, {place!r}: dir_names must all be different.")
    return variants, log_dirs


def _with_values(variant: Mapping, keys: Sequence[Sequence], values: Sequence) -> dict:
    """Return a copy of `variant` with these values at these keys."""
    new = copy.deepcopy(dict(variant))
    for path, value in zip(keys, values):
        section = new
        for key in path[:-1]:
            section = section.setdefault(key, {})
            if not isinstance(section, dict):
                raise ValueError(f"The key {tuple(path)} leads into {section!r}, a value of another key that is no dictionary.")
        section[path[-1]] = copy.deepcopy(value)
    return new


@checked()
def update_config(default: Mapping, variant: Mapping) -> dict:
    """Return a new configuration: `default`, with its values replaced by those in `variant`, at any depth.

    Neither argument is changed, nor shared with the result.

    Raises:
        KeyError: `variant` has a key that `default` lacks; the message names the nearest one.
        TypeError: one has a dictionary for a key, and the other a single value (other than None in `default`).
    """
    return _updated(default, variant, where="")


def _updated(default: Mapping, variant: Mapping, where: str) -> dict:
    new = copy.deepcopy(dict(default))
    for key, value in variant.items():
        name = f"{where}{key}"
        if key not in default:
            raise KeyError(f"The configuration has no {name!r}. {did_you_mean(key, default)}")
        if isinstance(default[key], Mapping) != isinstance(value, Mapping) and default[key] is not None:
            kinds = ("a dictionary", "a single value") if isinstance(value, Mapping) else ("a single value", "a dictionary")
            raise TypeError(f"{name}: the variant has {kinds[0]}, {value!r}, where the configuration has {kinds[1]}, {default[key]!r}.")
        both = isinstance(value, Mapping) and isinstance(default[key], Mapping)
        new[key] = _updated(default[key], value, f"{name}.") if both else copy.deepcopy(value)
    return new


@checked()
def save_variant(variant: Mapping, log_dir: str | os.PathLike) -> None:
    """Write `variant` as variant_config.json into `log_dir`, which is made if necessary.

    Raises:
        TypeError: `variant` contains an object that JSON cannot hold. (numpy scalars are saved as numbers.)
    """
    text = json.dumps(as_saved(variant))  # Raises before anything is written.
    os.makedirs(log_dir, exist_ok=True)
    with atomic_write(os.path.join(log_dir, VARIANT), "w") as file:
        file.write(text)


@checked()
def as_saved(variant: Mapping) -> dict:
    """Return a variant in the form in which `load_variant` returns it; raises TypeError like `save_variant`."""
    return json.loads(json.dumps(dict(variant), default=_number))


def _number(value: Any) -> Any:
    """Return a numpy scalar as a Python number."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"A variant holds numbers, texts, lists and dictionaries, not {value!r}, of type {type(value).__name__}.")


@checked()
def load_variant(log_dir: str | os.PathLike) -> dict:
    """Return the variant saved in `log_dir`."""
    with open(os.path.join(log_dir, VARIANT)) as file:
        return json.load(file)
