"""Samplers on a Ray cluster.

Names are imported from their modules when they are first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_HOMES = {"RayBatchSampler": "batch_sampler", "RaySampler": "sampler"}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}.")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
