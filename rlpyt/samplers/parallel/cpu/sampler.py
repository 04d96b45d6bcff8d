"""Worker processes that hold the agent themselves."""

from __future__ import annotations

from typing import Any

from rlpyt.samplers.parallel.base import ParallelSamplerBase
from rlpyt.samplers.parallel.cpu.collectors import CpuEvalCollector, CpuResetCollector


class CpuSampler(ParallelSamplerBase):
    """Each worker steps its environments and runs the agent for them, on the CPU; the parameters are in shared memory."""

    def __init__(
        self, *args: Any, CollectorCls: Any = CpuResetCollector, eval_CollectorCls: Any = CpuEvalCollector, **kwargs: Any
    ) -> None:
        super().__init__(*args, CollectorCls=CollectorCls, eval_CollectorCls=eval_CollectorCls, **kwargs)

    def _run(self, name: str, itr: int, doing: str) -> list:
        self._running_pool()
        self.agent.sync_shared_memory()  # Copies only if the trained model is another one, e.g. on a GPU.
        return super()._run(name, itr, doing)
