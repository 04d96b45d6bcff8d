"""Worker processes that hold the agent themselves."""

from __future__ import annotations

from typing import Any

from rlpyt.samplers.parallel.base import ParallelSamplerBase
from rlpyt.samplers.parallel.cpu.collectors import CpuEvalCollector, CpuResetCollector
from rlpyt.samplers.traj_infos import load_compiled, pays_at_once
from rlpyt.samplers.workers import check_forked_torch_threads, default_start_method
from rlpyt.utils.settings import checked


class CpuSampler(ParallelSamplerBase):
    """Each worker steps its environments and runs the agent for them, on the CPU; the parameters are in shared memory."""

    agent_in_workers = True

    @checked()
    def __init__(self, *args: Any, CollectorCls: Any = CpuResetCollector, eval_CollectorCls: Any = CpuEvalCollector, **kwargs: Any) -> None:
        super().__init__(*args, CollectorCls=CollectorCls, eval_CollectorCls=eval_CollectorCls, **kwargs)

    def _agent_ready(self) -> None:
        """Check that workers can use the threads they are to use, and load what they would otherwise load one by one."""
        start_method = self.start_method or default_start_method()
        check_forked_torch_threads(self._affinity.get("worker_torch_threads") or 1, start_method, "worker_torch_threads")
        most_envs = max(self.acting(self._affinity)[0])
        if start_method == "fork" and pays_at_once(self.TrajInfoCls, most_envs, self.batch_spec.T):
            load_compiled()

    def _run(self, name: str, argument: Any, doing: str) -> list:
        self._running_pool()
        self.agent.sync_shared_memory()  # Copies only if the trained model is another one, e.g. on a GPU.
        return super()._run(name, argument, doing)
