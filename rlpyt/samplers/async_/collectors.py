"""Collectors of asynchronous samplers. All collectors go from batch to batch, so these are the same under their documented names."""

from rlpyt.samplers.parallel.cpu import collectors as cpu
from rlpyt.samplers.parallel.gpu import collectors as gpu

DbCpuResetCollector = cpu.CpuResetCollector
DbCpuWaitResetCollector = cpu.CpuWaitResetCollector
DbGpuResetCollector = gpu.GpuResetCollector
DbGpuWaitResetCollector = gpu.GpuWaitResetCollector


class DoubleBufferCollectorMixin:
    """For classes that are written with it as a base: it adds nothing to what every collector does."""
