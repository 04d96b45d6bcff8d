"""Samplers of whole episodes, and the workers that play them.

Names are imported from their modules at their first use.
"""

from __future__ import annotations

from rlpyt.utils.lazy import lazy_names

_MODULES = {
    "rlpyt.envs.env_update": ["EnvUpdate", "ExistingEnvUpdate", "NewEnvUpdate", "SetTaskUpdate"],
    "rlpyt.samplers.episodic.factory": ["WorkerFactory"],
    "rlpyt.samplers.episodic.in_progress": ["InProgressEpisode"],
    "rlpyt.samplers.episodic.local": ["LocalSampler"],
    "rlpyt.samplers.episodic.multiprocessing": ["MultiprocessingSampler"],
    "rlpyt.samplers.episodic.sampler": ["Sampler"],
    "rlpyt.samplers.episodic.workers": ["DefaultWorker", "FragmentWorker", "VecWorker", "Worker"],
    "rlpyt.samplers.ray": ["RaySampler"],
}

__getattr__, __dir__, __all__ = lazy_names(__name__, _MODULES)
