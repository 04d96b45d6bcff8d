"""Whole episodes: everything under one import, each name from the module that is imported when it is first used."""

from __future__ import annotations

from importlib import import_module
from typing import Any

_MODULES = {  # Where each public name comes from.
    "Environment": "rlpyt.episodes.environment",
    "Wrapper": "rlpyt.episodes.environment",
    "as_environment": "rlpyt.episodes.environment",
    "as_gymnasium": "rlpyt.episodes.environment",
    "as_rlpyt": "rlpyt.episodes.environment",
}
__all__ = list(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_MODULES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
