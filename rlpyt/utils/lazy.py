"""Modules that are imported when something of them is used for the first time."""

from __future__ import annotations

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
