"""Sampling with an action server, beside the process that trains."""

from __future__ import annotations

from rlpyt.samplers.async_.action_server import AsyncActionServer
from rlpyt.samplers.async_.base import AsyncParallelSamplerMixin
from rlpyt.samplers.parallel.gpu.sampler import GpuSamplerBase


class AsyncGpuSamplerBase(AsyncParallelSamplerMixin, GpuSamplerBase):
    """Combined with an action server. With a list as ``affinity["sampler"]``, each of its entries has an action server in a separate
    process, with workers, a share of the environments, and perhaps a GPU."""


class AsyncGpuSampler(AsyncActionServer, AsyncGpuSamplerBase):
    """A `GpuSampler` in one or several separate processes."""
