"""Experiments: a function that becomes one, the snapshots it leaves, and tasks to choose from.

Names are imported from their modules when they are first asked for.
"""

from __future__ import annotations

from rlpyt.utils.lazy import lazy_names

_MODULES = {
    "rlpyt.experiments.wrap": ["ExperimentContext", "wrap_experiment"],
    "rlpyt.runners.snapshots": ["NotAFileError", "SnapshotConfig", "Snapshotter"],
    "rlpyt.experiments.task_sampler": ["ConstructEnvsSampler", "EnvPoolSampler", "MetaWorldTaskSampler", "SetTaskSampler", "TaskSampler"],
}
__getattr__, __dir__, __all__ = lazy_names(__name__, _MODULES)
