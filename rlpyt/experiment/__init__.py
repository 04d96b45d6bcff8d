"""Experiments: a function that becomes one, the snapshots it leaves, and tasks to choose from.

Names are imported from their modules when they are first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_MODULES = {
    "rlpyt.experiment.wrap": ["ExperimentContext", "wrap_experiment"],
    "rlpyt.experiment.snapshotter": ["NotAFileError", "SnapshotConfig", "Snapshotter"],
    "rlpyt.experiment.task_sampler": ["ConstructEnvsSampler", "EnvPoolSampler", "MetaWorldTaskSampler", "SetTaskSampler", "TaskSampler"],
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}.")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
