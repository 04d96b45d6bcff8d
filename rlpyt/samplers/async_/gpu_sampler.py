"""Sampling with an action server, beside the process that trains."""

from __future__ import annotations

from rlpyt.samplers.async_.action_server import AsyncActionServer
from rlpyt.samplers.async_.base import AsyncParallelSamplerMixin
from rlpyt.samplers.parallel.gpu.sampler import GpuSamplerBase


class AsyncGpuSamplerBase(AsyncParallelSamplerMixin, GpuSamplerBase):
    """Combined with an action server. With a list as ``affinity["sampler"]``, there is one action server for each of its entries, in a
    process of its own, with its own workers, its share of the environments, and perhaps its own GPU."""


class AsyncGpuSampler(AsyncActionServer, AsyncGpuSamplerBase):
    """A `GpuSampler` in a process of its own, or in several."""
