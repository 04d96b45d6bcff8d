"""Sampling in one process, beside the one that trains."""

from __future__ import annotations

from rlpyt.samplers.async_.base import AsyncSamplerMixin
from rlpyt.samplers.serial.sampler import SerialSampler


class AsyncSerialSampler(AsyncSamplerMixin, SerialSampler):  # type: ignore[misc]
    """A `SerialSampler` in a separate process, or in one for each entry of ``affinity["sampler"]``."""
