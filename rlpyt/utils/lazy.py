"""Modules, and names of packages, that are imported when they are used for the first time."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


class LazyModule:
    """Stands for a module that takes long to import, and imports it when one of its attributes is asked for.

    Args:
        name: full name of the module.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        value = getattr(import_module(self._name), attribute)
        setattr(self, attribute, value)  # From now on this method is not called for it.
        return value


def lazy_names(
    package: str, modules: Mapping[str, Sequence[str]], left_out: Mapping[str, str] | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return ``__getattr__``, ``__dir__`` and ``__all__`` of a package that offers names of other modules, imported when first asked for.

    Args:
        package: its `__name__`.
        modules: names by their modules, which are given in full.
        left_out: names that are not offered, and what the ImportError says that asking for one raises.
    """
    homes = {name: module for module, names in modules.items() for name in names}
    names = sorted(homes)

    def get(name: str) -> Any:
        if left_out and name in left_out:
            raise ImportError(left_out[name])
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}; it has {', '.join(names)}.")
        value = getattr(import_module(homes[name]), name)
        setattr(sys.modules[package], name, value)  # From now on this function is not called for it.
        return value

    return get, lambda: sorted({*vars(sys.modules[package]), *names}), names
