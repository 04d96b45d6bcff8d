"""Collectors of asynchronous samplers. All collectors go from batch to batch, so these add nothing to those of other samplers."""

from rlpyt.samplers.parallel.cpu.collectors import CpuResetCollector, CpuWaitResetCollector
from rlpyt.samplers.parallel.gpu.collectors import GpuResetCollector, GpuWaitResetCollector


class DoubleBufferCollectorMixin:
    """For classes that are written with it as a base: it adds nothing to what every collector does."""


class DbCpuResetCollector(DoubleBufferCollectorMixin, CpuResetCollector):
    """The same as its base."""


class DbCpuWaitResetCollector(DoubleBufferCollectorMixin, CpuWaitResetCollector):
    """The same as its base."""


class DbGpuResetCollector(DoubleBufferCollectorMixin, GpuResetCollector):
    """The same as its base."""


class DbGpuWaitResetCollector(DoubleBufferCollectorMixin, GpuWaitResetCollector):
    """The same as its base."""
