"""Signals between an action server and its workers.

All signals of a group of workers, and who gives them::

    obs_ready      worker -> server   "my observations, and what the last actions led to, are in place"; one for the group, numbered
    act_ready[i]   server -> worker   "your actions are in place"; one for each worker
    left[i]        worker -> server   "the signal I gave last was my last one", read once that has come
    abandoned      master -> worker   "there will be no more actions": the run ends by a failure
"""

from __future__ import annotations

import os
import select
import sys
from multiprocessing import context, reduction
from typing import Any

import numpy as np

from rlpyt.utils.buffer import np_mp_array

_RELEASE = 2  # bytes: a number
_AT_ONCE = 4096  # bytes taken by one look


class Semaphore:
    """A counting semaphore on a pipe. Every release has a number, which may say who gave it.

    It has no name that could be left behind, it can be waited for together with other descriptors, and it reaches a starting process by any
    start method.
    """

    def __init__(self, fds: tuple[int, int] | None = None) -> None:
        self._fds = os.pipe() if fds is None else fds
        self._read, self._write = self._fds

    def release(self, number: int = 0) -> None:
        """Count up by 1."""
        os.write(self._write, number.to_bytes(_RELEASE, sys.byteorder))  # At once, or not at all.

    def acquire(self) -> None:
        """Wait until the count is above 0, then count down by 1. For a worker, which ends when its master does."""
        os.read(self._read, _RELEASE)

    def acquire_all(self) -> list[int]:
        """Count down to 0, and return the number of each release; waits until there is at least one."""
        return memoryview(os.read(self._read, _AT_ONCE)).cast("H").tolist()

    def acquire_waiting(self) -> int:
        """Count down to 0 without waiting, and return by how much."""
        return 0 if self.is_empty() else len(self.acquire_all())

    def fileno(self) -> int:
        """Return the descriptor that is readable while the count is above 0."""
        return self._read

    def is_empty(self) -> bool:
        """Return whether the count is 0."""
        poller = select.poll()
        poller.register(self._read, select.POLLIN)
        return not poller.poll(0)

    def __del__(self) -> None:
        for fd in self.__dict__.pop("_fds", ()):
            os.close(fd)

    def __reduce__(self) -> tuple:
        context.assert_spawning(self)
        return _attach, (reduction.DupFd(self._read), reduction.DupFd(self._write))


def _attach(read: Any, write: Any) -> Semaphore:
    return Semaphore((read.detach(), write.detach()))


class GroupSignals:
    """The signals of one group of workers, see this module's picture.

    Args:
        n_workers: how many there are in the group.
    """

    def __init__(self, n_workers: int) -> None:
        self.n_workers = n_workers
        self.obs_ready = Semaphore()
        # One each: of several processes that wait for the same pipe, the system wakes up one after the other.
        self.act_ready = [Semaphore() for _ in range(n_workers)]
        self.left = np_mp_array(n_workers, bool)
        self.abandoned = np_mp_array(1, bool)

    def of_worker(self, i: int) -> WorkerSignals:
        """Return the ends that worker `i` of the group holds."""
        return WorkerSignals(i, self.obs_ready, self.act_ready[i], self.left[i : i + 1], self.abandoned)

    def abandon(self) -> None:
        """Wake all workers up that wait for actions, to tell them that none will come."""
        self.abandoned[0] = True
        for semaphore in self.act_ready:
            semaphore.release()

    @property
    def semaphores(self) -> list[Semaphore]:
        return [self.obs_ready, *self.act_ready]


class Numbered:
    """A semaphore each of whose releases has the same number."""

    def __init__(self, semaphore: Semaphore, number: int) -> None:
        self._semaphore, self._number = semaphore, number

    def release(self) -> None:
        """Count up by 1."""
        self._semaphore.release(self._number)


class WorkerSignals:
    """The ends of the signals that worker `number` of a group holds; `left` [1] and `abandoned` [1] are in shared memory.

    `to_server` releases the group's `obs_ready` with the worker's number. `from_server` is the worker's `act_ready`. They have other names
    here, because loops that use `sync.obs_ready` and `sync.act_ready` are written for an action server that exchanges everything by the
    step buffer.
    """

    def __init__(self, number: int, to_server: Semaphore, from_server: Semaphore, left: np.ndarray, abandoned: np.ndarray) -> None:
        self.to_server = Numbered(to_server, number)
        self.from_server, self.left, self.abandoned = from_server, left, abandoned

    def __getattr__(self, name: str) -> Any:
        if name in ("obs_ready", "act_ready", "stop_eval"):
            raise AttributeError(
                f"sync.{name} does not exist: the action server reads observations from the batch and writes actions into it, not into "
                "the step buffer. Extend collect_batch of GpuResetCollector, or collect_evaluation of GpuEvalCollector. A loop of your "
                "own, in a class derived from GpuResetCollector, acts by self.make_actor(agent_inputs)."
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


class StopFlag:
    """Tells loops of evaluation collectors, which read it as ``sync.stop_eval.value``, whether to end the evaluation.

    Args:
        stop: [1] bool, set to end all evaluations.
        collector: has a `traj_infos_queue` with the TrajInfos of this evaluation.
        max_episodes: number of TrajInfos at which the evaluation ends; None for no limit.
    """

    def __init__(self, stop: np.ndarray, collector: Any, max_episodes: int | None) -> None:
        self._stop, self._collector, self._max_episodes = stop, collector, max_episodes

    @property
    def value(self) -> bool:
        enough = self._max_episodes is not None and len(self._collector.traj_infos_queue) >= self._max_episodes
        return bool(self._stop[0]) or enough


class EvalSync:
    """The `sync` of an evaluation collector whose agent is in the same process: nothing but a `StopFlag`."""

    def __init__(self, stop_eval: StopFlag) -> None:
        self.stop_eval = stop_eval
