"""Variants of a configuration, which is a dictionary of sections, each a dictionary of settings."""

from __future__ import annotations

import copy
import difflib
import json
import os
from collections.abc import Mapping
from typing import Any

VARIANT = "variant_config.json"


def update_config(default: Mapping, variant: Mapping) -> dict:
    """Return a new configuration: `default`, with the values of `variant` where it has any, at any depth.

    Neither argument is changed, nor shared with the result.

    Raises:
        KeyError: `variant` has a key which `default` lacks; the message names the nearest one.
        TypeError: where one has a dictionary, the other has a single value (other than None in `default`).
    """
    return _updated(default, variant, where="")


def _updated(default: Mapping, variant: Mapping, where: str) -> dict:
    new = copy.deepcopy(dict(default))
    for key, value in variant.items():
        name = f"{where}{key}"
        if key not in default:
            raise KeyError(f"The configuration has no {name!r}. {_nearest(key, default)}")
        if isinstance(default[key], Mapping) != isinstance(value, Mapping) and default[key] is not None:
            kinds = ("a dictionary", "a single value") if isinstance(value, Mapping) else ("a single value", "a dictionary")
            raise TypeError(f"{name}: the variant has {kinds[0]}, {value!r}, where the configuration has {kinds[1]}, {default[key]!r}.")
        both = isinstance(value, Mapping) and isinstance(default[key], Mapping)
        new[key] = _updated(default[key], value, f"{name}.") if both else copy.deepcopy(value)
    return new


def _nearest(key: Any, names: Mapping) -> str:
    near = difflib.get_close_matches(str(key), map(str, names), n=1, cutoff=0.5)
    return f"Did you mean {near[0]!r}?" if near else f"It has: {', '.join(map(str, names)) or 'nothing'}."


def save_variant(variant: Mapping, log_dir: str | os.PathLike) -> None:
    """Write `variant` as variant_config.json into `log_dir`, which is made if need be."""
    text = json.dumps(variant)  # Before anything is overwritten: it fails for what JSON does not know.
    os.makedirs(log_dir, exist_ok=True)
    with open(os.path.join(log_dir, VARIANT), "w") as file:
        file.write(text)


def load_variant(log_dir: str | os.PathLike) -> dict:
    """Return the variant saved in `log_dir`."""
    with open(os.path.join(log_dir, VARIANT)) as file:
        return json.load(file)
