"""Modules, and names of packages, that are imported at first use."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


class LazyModule:
    """Stands for a module that takes long to import, and imports it when one of its attributes is read.

    Args:
        name: full name of the module.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        value = getattr(import_module(self._name), attribute)
        setattr(self, attribute, value)  # Python does not call this method for it again.
        return value


def lazy_names(
    package: str, modules: Mapping[str, Sequence[str]], left_out: Mapping[str, str] | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return ``__getattr__``, ``__dir__`` and ``__all__`` of a package that offers names of other modules, imported at first use.

    Args:
        package: its `__name__`.
        modules: the names that each module defines, by the module's full name.
        left_out: names that are not offered, each with the message of the ImportError that reading it raises.
    """
    homes = {name: module for module, names in modules.items() for name in names}
    names = sorted(homes)

    def get(name: str) -> Any:
        if left_out and name in left_out:
            raise ImportError(left_out[name])
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}; it has {', '.join(names)}.")
        value = getattr(import_module(homes[name]), name)
        setattr(sys.modules[package], name, value)  # Python does not call this function for it again.
        return value

    return get, lambda: sorted({*vars(sys.modules[package]), *names}), names
