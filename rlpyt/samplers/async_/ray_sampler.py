"""Sampling on a Ray cluster, beside the process that trains."""

from __future__ import annotations

from typing import Any

from rlpyt.samplers.async_.base import AsyncParallelSamplerMixin
from rlpyt.samplers.ray.batch_sampler import RayBatchSampler


class AsyncRayBatchSampler(AsyncParallelSamplerMixin, RayBatchSampler):
    """A `RayBatchSampler` in a separate process, which connects to the cluster."""

    _n_samplers = 1

    def parts(self, n: int) -> list[Any]:
        """Extend the base class: the parts know how many they are, since they share the cluster."""
        parts = super().parts(n)
        for part in parts:
            part._n_samplers = n
        return parts
