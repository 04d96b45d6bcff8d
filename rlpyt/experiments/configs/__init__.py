"""Configurations of experiments, as data.

A configuration module has

- ``configs``: configurations by key. Each is a dictionary of sections: ``agent``, ``algo``, ``accelerate`` (of the algorithm, optional),
  ``affinity`` (defaults for the runner's, optional), ``env``, ``eval_env`` (differences in evaluation), ``model``, ``optim``,
  ``runner`` and ``sampler``, the keyword arguments of each part. Users may change a section, so no two configurations share one;
- ``classes``: the import path of each part's class: ``agent``, ``algo``, ``env`` and ``sampler``, and, if not the default,
  ``traj_info``, ``optim``, ``replay_buffer``, ``collector`` and ``alternating_agent`` (the agent for alternating samplers);
- ``classes_by_key``, optional: other classes for some keys.

Import paths instead of classes let a configuration be read even if not all its packages are installed.
"""

from __future__ import annotations

import copy
import importlib
import pkgutil
from collections.abc import Collection, Mapping
from types import ModuleType
from typing import Any

from rlpyt.utils.misc import did_you_mean

SECTIONS = ("agent", "algo", "accelerate", "affinity", "env", "eval_env", "model", "optim", "runner", "sampler")


def variant(base: Mapping[str, Any], **sections: Mapping) -> dict[str, dict]:
    """Return a copy of the configuration `base` with other settings in some sections.

        double = variant(dqn, algo=dict(double_dqn=True))

    If both have a dictionary, at any depth, only the entries of the new one change.

    Raises:
        ValueError: a section is neither in `base` nor in SECTIONS.
    """
    names = list(dict.fromkeys([*base, *sections]))
    for name in names:
        look_up(name, [*base, *SECTIONS], "section")
    return {name: _merged(base.get(name, {}), sections.get(name, {})) for name in names}


def _merged(old: Any, new: Any) -> Any:
    if not isinstance(old, Mapping) or not isinstance(new, Mapping):
        return copy.deepcopy(new)
    return {**copy.deepcopy(dict(old)), **{name: _merged(old.get(name), value) for name, value in new.items()}}


def config_modules() -> dict[str, str]:
    """Return the import paths of all configuration modules by the last parts of their names."""
    modules = (info.name for info in pkgutil.walk_packages(__path__, f"{__name__}.") if not info.ispkg)
    return {path.rpartition(".")[2]: path for path in modules}


def load(name: str) -> ModuleType:
    """Import the configuration module whose path ends with `name`, e.g. "atari_ff_ppo"; ValueError if there is no such module."""
    modules = config_modules()
    return importlib.import_module(modules[look_up(name, modules, "configuration module")])


def classes_of(module: ModuleType, key: str) -> dict[str, str]:
    """Return the import paths of the classes of a module's configuration."""
    return {**module.classes, **vars(module).get("classes_by_key", {}).get(key, {})}


def look_up(name: str, names: Collection[str], what: str, who_has: str = "There is") -> str:
    """Return `name` if it is in `names`; otherwise raise ValueError with the nearest one, which begins with `who_has`."""
    if name not in names:
        raise ValueError(f"{who_has} no {what} {name!r}. {did_you_mean(name, names)}")
    return name
