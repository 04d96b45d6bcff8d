"""Configurations of experiments, as data.

A configuration module has

- ``configs``: configurations by key. Each is a dictionary of sections: ``agent``, ``algo``, ``accelerate`` (of the algorithm, optional),
  ``affinity`` (what the runner's leaves open, optional), ``env``, ``eval_env`` (where evaluation is different), ``model``, ``optim``,
  ``runner`` and ``sampler``, the keyword arguments of each part; no two configurations share a section, which a user may change;
- ``classes``: the import path of each part's class: ``agent``, ``algo``, ``env`` and ``sampler``, and, where they are not the default,
  ``traj_info``, ``optim``, ``replay_buffer``, ``collector`` and ``alternating_agent`` (the agent for alternating samplers);
- ``classes_by_key``, optional: where the configuration of a key has other classes.

Paths, not classes: a configuration can be read where not everything that it names is installed.
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
    """Return the configuration that differs from `base` in the given settings of some sections, and shares nothing with it.

        double = variant(dqn, algo=dict(double_dqn=True))

    Where both have a dictionary, at any depth, only what is in the new one changes.

    Raises:
        ValueError: a section is neither one of `base` nor of SECTIONS.
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
    """Return the import paths of all configuration modules by their last names."""
    modules = (info.name for info in pkgutil.walk_packages(__path__, f"{__name__}.") if not info.ispkg)
    return {path.rpartition(".")[2]: path for path in modules}


def load(name: str) -> ModuleType:
    """Import the configuration module of that last name, e.g. "atari_ff_ppo"; ValueError if no module has it."""
    modules = config_modules()
    return importlib.import_module(modules[look_up(name, modules, "configuration module")])


def classes_of(module: ModuleType, key: str) -> dict[str, str]:
    """Return the import paths of the classes of a module's configuration."""
    return {**module.classes, **getattr(module, "classes_by_key", {}).get(key, {})}


def look_up(name: str, names: Collection[str], what: str) -> str:
    """Return `name` if it is among `names`; else ValueError, with the nearest of them."""
    if name not in names:
        raise ValueError(f"There is no {what} {name!r}. {did_you_mean(name, names)}")
    return name
