"""Samplers on a Ray cluster.

Names are imported from their modules at their first use.
"""

from __future__ import annotations

from rlpyt.utils.lazy import lazy_names

_MODULES = {
    "rlpyt.samplers.ray.batch_sampler": ["RayBatchSampler"],
    "rlpyt.samplers.ray.sampler": ["RaySampler"],
}

__getattr__, __dir__, __all__ = lazy_names(__name__, _MODULES)
