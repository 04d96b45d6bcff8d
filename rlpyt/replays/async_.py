"""Buffers that several processes write to and read from at once."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np

from rlpyt.replays.base import CompletedReplay
from rlpyt.replays.draws import is_ours
from rlpyt.replays.n_step import BaseNStepReturnBuffer, BufferMixin
from rlpyt.utils.buffer import buffer_from_example, cloned
from rlpyt.utils.synchronize import ExclusiveRWLock, ProcessLock


class AsyncReplayBufferMixin(BufferMixin):
    """Lets several processes append to a buffer and sample from it at once. Put it in front of a complete buffer class.

    Forked processes, and processes that get the buffer as an argument, share its memory. Writers exclude each other, but not readers:

        writer   [writer_lock: [lock: claim rows]  write  [lock: publish rows]]
        reader   [lock: draw]  read  [lock: were any of the rows claimed meanwhile? then draw again]

    Only arrays are shared; random numbers and the ids of the latest batch, for example, belong to each process. No process waits for a
    killed process: its unpublished rows are overwritten, and the next process to take `lock` repairs unfinished changes.

    A buffer class of another package, or one that overrides `sample_batch`, works as well. It must keep its arrays in shared memory
    (``buffer_from_example(..., share_memory=self.async_)``). It cannot tell whether rows were overwritten during a read, so sampling,
    appending and updating priorities exclude each other. If it counts its rows in attributes `t` and `_buffer_full`, each process gets
    their latest values before each of these calls.

    Attributes:
        lock: `ProcessLock` for short critical sections.
        writer_lock: `ProcessLock` around an append; the thread that holds it may take it again.
        rw_lock: ``with rw_lock:`` and ``with rw_lock.write_lock:`` both take `writer_lock`, for classes that exclude writers themselves.
    """

    async_ = True
    lock: ProcessLock
    writer_lock: ProcessLock

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.lock, self.writer_lock = ProcessLock(), ProcessLock(reentrant=True)
        self.rw_lock = ExclusiveRWLock(self.writer_lock)
        super().__init__(*args, **kwargs)
        self._tells_what_was_overwritten = isinstance(self, BaseNStepReturnBuffer) and is_ours(
            self, "sample_batch", after=AsyncReplayBufferMixin
        )
        self._cursor = buffer_from_example(np.int64(0), 2, share_memory=True) if {"t", "_buffer_full"} <= vars(self).keys() else None
        self._async_push()
        self._have_lock_repaired()

    def __setstate__(self, state: dict) -> None:
        if hasattr(super(), "__setstate__"):
            super().__setstate__(state)  # type: ignore[misc]
        else:
            self.__dict__.update(state)
        self._have_lock_repaired()

    def _have_lock_repaired(self) -> None:
        if hasattr(self, "_repair"):
            self.lock.call_on_takeover(self._repair)

    def _async_pull(self) -> None:
        """Get the cursor from shared memory; does nothing if the buffer itself keeps its cursor there, like rlpyt's buffers."""
        if self._cursor is not None:
            self.t, self._buffer_full = int(self._cursor[0]), bool(self._cursor[1])

    def _async_push(self) -> None:
        """Put the cursor into shared memory; does nothing if the buffer itself keeps its cursor there."""
        if self._cursor is not None:
            self._cursor[:] = self.t, self._buffer_full

    def append_samples(self, *args: Any, **kwargs: Any) -> Any:
        """Append samples, as soon as no other process is appending; return the result of the buffer's `append_samples`."""
        with self.writer_lock:
            self._async_pull()
            result = super().append_samples(*args, **kwargs)
            self._async_push()
        return result

    def end_episodes(self, *args: Any, **kwargs: Any) -> None:
        """End episodes, as soon as no other process is appending; does nothing if the buffer has no `end_episodes`."""
        with self.writer_lock:
            CompletedReplay(super()).end_episodes(*args, **kwargs)

    def sample_batch(self, *args: Any, **kwargs: Any) -> Any:
        """Return a batch of the buffer, no part of which was overwritten during the read."""
        if self._tells_what_was_overwritten:
            return super().sample_batch(*args, **kwargs)
        with self.writer_lock:
            self._async_pull()
            return super().sample_batch(*args, **kwargs)

    def update_batch_priorities(self, priorities: Any, ids: Any = None) -> Any:
        """Update the priorities of a buffer that has priorities (see `has_priorities`)."""
        args = (priorities,) if ids is None else (priorities, ids)
        with nullcontext() if self._tells_what_was_overwritten else self.writer_lock:
            return super().update_batch_priorities(*args)  # type: ignore[misc]

    def state_dict(self, since: int = 0) -> dict[str, Any]:
        """Return a copy of the buffer's `state_dict`, taken between two appends."""
        with self.writer_lock:
            return cloned(super().state_dict(since))

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore what `state_dict` returned. No process may sample meanwhile."""
        with self.writer_lock:
            super().load_state_dict(state_dict)
            self._async_push()


def has_priorities(ReplayCls: type) -> bool:
    """Return whether buffers of a class have priorities to update."""
    return any("update_batch_priorities" in vars(cls) for cls in ReplayCls.__mro__ if cls is not AsyncReplayBufferMixin)
