"""Samplers of whole episodes, and the workers that play them.

Names are imported from their modules when they are first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_MODULES = {
    "env_update": ["EnvUpdate", "ExistingEnvUpdate", "NewEnvUpdate", "SetTaskUpdate"],
    "factory": ["WorkerFactory"],
    "in_progress": ["InProgressEpisode"],
    "local": ["LocalSampler"],
    "multiprocessing": ["MultiprocessingSampler"],
    "sampler": ["Sampler"],
    "workers": ["DefaultWorker", "FragmentWorker", "VecWorker", "Worker"],
}
_HOMES = {name: f"{__name__}.{module}" for module, names in _MODULES.items() for name in names}
_HOMES["RaySampler"] = "rlpyt.samplers.ray"

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}.")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
