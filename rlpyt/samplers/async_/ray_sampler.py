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

    def _version_to_send(self) -> int:
        return self.agent.parameters_version

    @property
    def acting_parameters_version(self) -> int:
        """Version of the parameters that acted in the last batch: with n batches `in_flight`, those of n batches before."""
        return self.batch_parameters_version
