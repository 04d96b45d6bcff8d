"""Worker processes that hold the agent themselves."""

from __future__ import annotations

from typing import Any

from rlpyt.samplers.parallel.base import ParallelSamplerBase
from rlpyt.samplers.parallel.cpu.collectors import CpuEvalCollector, CpuResetCollector
from rlpyt.samplers.workers import WorkerError, WorkerPool, default_start_method

_TRIAL_SECONDS = 5.0


class CpuSampler(ParallelSamplerBase):
    """Each worker steps its environments and runs the agent for them, on the CPU; the parameters are in shared memory."""

    agent_in_workers = True

    def __init__(
        self, *args: Any, CollectorCls: Any = CpuResetCollector, eval_CollectorCls: Any = CpuEvalCollector, **kwargs: Any
    ) -> None:
        super().__init__(*args, CollectorCls=CollectorCls, eval_CollectorCls=eval_CollectorCls, **kwargs)

    def _agent_ready(self) -> None:
        """Check that workers can use the threads they are to use."""
        n_threads = self._affinity.get("worker_torch_threads") or 1
        if n_threads > 1 and (self.start_method or default_start_method()) == "fork":
            check_forked_torch_threads(n_threads)

    def _run(self, name: str, argument: Any, doing: str) -> list:
        self._running_pool()
        self.agent.sync_shared_memory()  # Copies only if the trained model is another one, e.g. on a GPU.
        return super()._run(name, argument, doing)


def check_forked_torch_threads(n: int) -> None:
    """Raise ValueError if a worker would hang with `n` torch threads: forked processes do, once their parent has used several.

    That is so with GNU's OpenMP, and cannot be asked for, only tried.
    """
    name = f"a process that tries torch with {n} threads"
    pool = WorkerPool(_use_torch_threads, [dict(n=n)], [name], start_method="fork", timeout=_TRIAL_SECONDS)
    try:
        pool.receive()
    except WorkerError as error:
        raise ValueError(
            f"affinity['worker_torch_threads']={n}: workers would hang, since this process has used several torch threads already, and "
            "workers are forked from it. Use start_method='spawn' or 'forkserver', or 1 thread for each worker."
        ) from error
    finally:
        pool.kill(grace=0)


def _use_torch_threads(pipe: Any, n: int) -> None:
    import torch

    torch.set_num_threads(n)
    (torch.ones(512, 512) @ torch.ones(512, 512)).exp().sum()
    pipe.send(("ok", None))
