"""Sampling with agents in worker processes, beside the process that trains."""

from __future__ import annotations

from rlpyt.samplers.async_.base import AsyncParallelSamplerMixin
from rlpyt.samplers.parallel.cpu.sampler import CpuSampler


class AsyncCpuSampler(AsyncParallelSamplerMixin, CpuSampler):
    """A `CpuSampler` in a separate process, which starts the workers."""
