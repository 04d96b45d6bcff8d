"""Sampling in one process, beside the one that trains."""

from __future__ import annotations

from rlpyt.samplers.async_.base import AsyncSamplerMixin
from rlpyt.samplers.serial.sampler import SerialSampler


class AsyncSerialSampler(AsyncSamplerMixin, SerialSampler):
    """A `SerialSampler` in a process of its own; with several entries in ``affinity["sampler"]``, one in each."""
