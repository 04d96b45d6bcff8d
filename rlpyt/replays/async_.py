"""Buffers that several processes write to and read from at once."""

from __future__ import annotations

from typing import Any

from rlpyt.utils.buffer import cloned
from rlpyt.utils.synchronize import ProcessLock

# After so many batches in a row that were overwritten while they were read, writers have to wait for the next one.
_N_TRIES = 3


class AsyncReplayBufferMixin:
    """Makes a buffer one that several processes append to and sample from at once; to put in front of a complete buffer class.

    Its memory is shared by all processes that it is passed on to: forked ones, and ones that have it as an argument. Writers
    exclude each other, but not readers:

        writer   [writer_lock: [lock: claim rows]  write  [lock: publish rows]]
        reader   [lock: draw]  read  [lock: had any of it been claimed by now? then draw again]

    All else that is not an array, such as random numbers and what the latest batch was, belongs to each process. Nobody has to wait
    for a process that was killed: what it had not published is written over, and what it left half done under `lock` is set right by
    the next to take it.

    Attributes:
        lock: `ProcessLock` around what must not change meanwhile, all of it short.
        writer_lock: `ProcessLock` around an append.
    """

    async_ = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.lock, self.writer_lock = ProcessLock(), ProcessLock()
        super().__init__(*args, **kwargs)
        self.lock.call_on_takeover(self._repair)

    def __setstate__(self, state: dict) -> None:
        super().__setstate__(state)
        self.lock.call_on_takeover(self._repair)

    def append_samples(self, *args: Any, **kwargs: Any) -> None:
        """Append samples as the buffer does, after any other process that is doing so."""
        with self.writer_lock:
            super().append_samples(*args, **kwargs)

    def end_episodes(self, *args: Any, **kwargs: Any) -> None:
        """End episodes as the buffer does, after any other process that is appending."""
        with self.writer_lock:
            super().end_episodes(*args, **kwargs)

    def sample_batch(self, *args: Any, **kwargs: Any) -> Any:
        """Return a batch as the buffer does, nothing of which was overwritten while it was read."""
        for _ in range(_N_TRIES):
            batch = super().sample_batch(*args, **kwargs)
            if self.batch_is_intact():
                return batch
        with self.writer_lock:
            return super().sample_batch(*args, **kwargs)

    def state_dict(self, since: int = 0) -> dict[str, Any]:
        """Return a copy of the contents, between two appends; see that of the buffer."""
        with self.writer_lock:
            return cloned(super().state_dict(since))

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore what `state_dict` returned; no process may sample meanwhile."""
        with self.writer_lock:
            super().load_state_dict(state_dict)
