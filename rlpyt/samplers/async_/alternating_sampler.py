"""Sampling with an action server for two groups of workers, beside the process that trains."""

from __future__ import annotations

from rlpyt.samplers.async_.action_server import AsyncAlternatingActionServer, AsyncNoOverlapAlternatingActionServer
from rlpyt.samplers.async_.gpu_sampler import AsyncGpuSamplerBase
from rlpyt.samplers.parallel.gpu.alternating_sampler import AlternatingSamplerBase


class AsyncAlternatingSamplerBase(AsyncGpuSamplerBase, AlternatingSamplerBase):
    """Combined with an action server for two groups; see `AsyncGpuSamplerBase`."""


class AsyncAlternatingSampler(AsyncAlternatingActionServer, AsyncAlternatingSamplerBase):
    """An `AlternatingSampler` in one or several separate processes."""


class AsyncNoOverlapAlternatingSampler(AsyncNoOverlapAlternatingActionServer, AsyncAlternatingSamplerBase):
    """A `NoOverlapAlternatingSampler` in one or several separate processes."""
