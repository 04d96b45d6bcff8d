"""Worker processes that hold the agent themselves."""

from __future__ import annotations

from typing import Any

from rlpyt.samplers.collections import Samples
from rlpyt.samplers.parallel.base import ParallelSamplerBase
from rlpyt.samplers.parallel.cpu.collectors import CpuEvalCollector, CpuResetCollector


class CpuSampler(ParallelSamplerBase):
    """Each worker steps its environments and runs the agent for them, on the CPU; the parameters are in shared memory."""

    def __init__(
        self, *args: Any, CollectorCls: Any = CpuResetCollector, eval_CollectorCls: Any = CpuEvalCollector, **kwargs: Any
    ) -> None:
        super().__init__(*args, CollectorCls=CollectorCls, eval_CollectorCls=eval_CollectorCls, **kwargs)

    def obtain_samples(self, itr: int) -> tuple[Samples, list]:
        """Give the workers the current parameters, have them fill the batch, and return it with the completed TrajInfos."""
        self.agent.sync_shared_memory()  # Copies only if the trained model is another one, e.g. on a GPU.
        return super().obtain_samples(itr)

    def evaluate_agent(self, itr: int) -> list:
        """Give the workers the current parameters, have them play evaluation episodes, and return their TrajInfos."""
        self.agent.sync_shared_memory()
        return super().evaluate_agent(itr)
