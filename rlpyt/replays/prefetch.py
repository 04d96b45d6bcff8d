"""Gathering of the next batch while the current one is trained on."""

from __future__ import annotations

import queue
import threading
import weakref
from typing import Any

import numpy as np
import torch

from rlpyt.replays.draws import Draw, is_ours, takes_ids
from rlpyt.utils.buffer import buffer_leaves, numpify_buffer, torchify_buffer
from rlpyt.utils.plain import NATURAL, check_form
from rlpyt.utils.settings import COUNT, checked, has


class PrefetchedReplay:
    """A replay buffer with a thread that gathers the next batch while the caller works with the current one.

    It has the methods and attributes of the buffer. The samples of a batch, and their weights, are drawn when the previous batch is
    returned, by the priorities of that moment, however long gathering takes. So the same calls give the same batches. `append_samples`
    waits until the thread has finished reading.

    All calls must come from one thread. If the buffer reuses memory (`reuse_batches`), a batch lasts until the next one is returned, which
    takes two pieces of memory. A forked process, or one started with this as an argument, starts another thread.

    Raises:
        ValueError: the class of the buffer overrides `sample_batch`.

    Args:
        buffer: the replay buffer.
        batch_B: number of samples in a prefetched batch.
        batch_T: length of sequences in a prefetched batch; None for transitions, or for the length that the buffer has at the time.
    """

    @checked(buffer=has("a replay buffer", "sample_batch"), batch_B=COUNT, batch_T=COUNT)
    def __init__(self, buffer: Any, batch_B: int, batch_T: int | None = None) -> None:
        if not is_ours(buffer, "sample_batch"):
            raise ValueError(
                f"Batches of {type(buffer).__name__} cannot be prefetched, because it defines sample_batch: leave "
                "prefetch_batches False, or override draw_batch and gather_batch instead."
            )
        self.buffer, self.batch_B, self.batch_T = buffer, batch_B, batch_T
        self._ids: np.ndarray | None = None  # Ids of the batch returned last.
        self._next_draw: Draw | None = None
        self._next_batch: tuple[Any, bool, BaseException | None] | None = None  # (batch, whether it is intact, error), once gathered.
        self._thread: threading.Thread | None = None

    def __getattr__(self, name: str) -> Any:
        if name == "buffer":  # Not yet set while an instance is being copied.
            raise AttributeError(name)
        return getattr(self.buffer, name)

    # -----------------------------------------------------------------------------------------------------------------
    # The methods of a buffer
    # -----------------------------------------------------------------------------------------------------------------
    def sample_batch(self, batch_B: int, batch_T: int | None = None) -> Any:
        """Return a batch, and let the thread gather the next one. A batch of an unusual size is drawn and gathered at once.

        Raises:
            Exception: the error that gathering this batch raised.
        """
        if (batch_B, batch_T or self._usual_T) != (self.batch_B, self._usual_T):
            self._wait()
            batch, draw = self.buffer.draw_and_gather(*_size(batch_B, batch_T or self.batch_T))
            self._ids = draw.ids
            return batch
        batch, draw = self._take_next()
        if batch is None:
            batch, draw = self.buffer.draw_and_gather(*_size(batch_B, self.batch_T))
        self._ids = draw.ids
        self._next_draw = self.buffer.draw_batch(*_size(self.batch_B, self.batch_T))
        self._start_thread()
        self._requests.put(self._next_draw)
        return batch

    def append_samples(self, *args: Any, **kwargs: Any) -> Any:
        """Append samples to the buffer, once the thread has finished reading."""
        self._wait()
        return self.buffer.append_samples(*args, **kwargs)

    def append_batch(self, samples: Any) -> None:
        """Append samples of an algorithm to the buffer, once the thread has finished reading."""
        self._wait()
        self.buffer.append_batch(samples)

    def update_batch_priorities(self, priorities: Any, ids: Any = None) -> None:
        """Update priorities in the buffer, by default those of the batch returned last."""
        ids = self._ids if ids is None else ids
        if takes_ids(self.buffer.__class__):
            self.buffer.update_batch_priorities(priorities, ids)
        else:
            self.buffer.priority_tree.drawn_ids = ids
            self.buffer.update_batch_priorities(priorities)

    def state_dict(self, since: int = 0) -> dict[str, Any]:
        """Return the buffer's state and the next batch, which may have been gathered before the latest append."""
        self._wait()
        state = {**self.buffer.state_dict(since), "next_draw": None}
        if self._next_draw is not None and self._next_batch is not None:
            batch, _, _ = self._next_batch
            state["next_draw"] = [_to_torch(part) for part in self._next_draw]
            state["next_batch"] = None if batch is None else [leaf.clone() for leaf in buffer_leaves(batch)]
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore a `state_dict` of this or of the buffer alone."""
        self._wait()
        self.buffer.load_state_dict(state_dict)
        self._next_draw = self._next_batch = None
        if state_dict.get("next_draw") is not None:
            self._next_draw = Draw(*map(_to_numpy, _checked(state_dict["next_draw"], *_size(self.batch_B, self._usual_T))))
            self._next_batch = _gather(self.buffer, self._next_draw)
            batch, _, error = self._next_batch
            if error is not None:
                raise ValueError(f"The saved draw of a batch is not one of this buffer: {error}") from error
            saved = state_dict.get("next_batch")
            if batch is not None and saved is not None:
                check_form(saved, [torch.Tensor], "next_batch")
                leaves = buffer_leaves(batch)
                if [(leaf.shape, leaf.dtype) for leaf in saved] != [(leaf.shape, leaf.dtype) for leaf in leaves]:
                    raise ValueError("next_batch is not a batch of this buffer.")
                for leaf, other in zip(leaves, saved):
                    leaf.copy_(other)

    def close(self) -> None:
        """End the thread; it starts again when needed."""
        if self._thread is not None:
            self._wait()
            self._end_thread()
            self._thread.join()
            self._thread = None

    @property
    def _usual_T(self) -> int | None:
        return self.batch_T or self.buffer.batch_T

    # -----------------------------------------------------------------------------------------------------------------
    # The thread
    # -----------------------------------------------------------------------------------------------------------------
    def _take_next(self) -> tuple[Any, Draw | None]:
        """Return the prefetched batch and its draw, or two None if no batch was prefetched or another process overwrote its rows."""
        self._wait()
        if self._next_batch is None:
            return None, None
        (batch, is_intact, error), draw = self._next_batch, self._next_draw
        self._next_batch = self._next_draw = None
        if error is not None:
            raise error
        if is_intact:
            return batch, draw
        self.buffer.discard_batch()
        return None, None

    def _wait(self) -> None:
        """Wait for the batch that is being gathered, if any."""
        if self._next_draw is None or self._next_batch is not None:
            return
        if self._thread is not None and self._thread.is_alive():
            self._next_batch = self._results.get()
        else:  # The thread stayed in the parent when this process was forked.
            self._next_batch = _gather(self.buffer, self._next_draw)

    def _start_thread(self) -> None:
        if self._thread is not None and self._thread.is_alive():
            return
        self._requests: queue.SimpleQueue = queue.SimpleQueue()
        self._results: queue.SimpleQueue = queue.SimpleQueue()
        self._thread = threading.Thread(target=_gather_all, args=(self.buffer, self._requests, self._results), name="prefetch", daemon=True)
        self._thread.start()
        self._end_thread = weakref.finalize(self, self._requests.put, None)

    def __getstate__(self) -> dict[str, Any]:
        self._wait()
        not_passed_on = dict.fromkeys(("_requests", "_results", "_end_thread"))
        return {**self.__dict__, **not_passed_on, "_thread": None}


def _to_torch(part: Any) -> Any:
    """Return a part of a draw as torch tensors, lists and plain numbers."""
    if isinstance(part, tuple):
        return [_to_torch(x) for x in part]
    return torchify_buffer(part.copy()) if isinstance(part, np.ndarray) else part


def _to_numpy(part: Any) -> Any:
    """Invert `_to_torch`."""
    return tuple(map(_to_numpy, part)) if isinstance(part, list) else numpify_buffer(part)


def _checked(draw: Any, n: int, *T: int) -> list:
    """Return a saved draw of `n` samples, or raise ValueError if it is not one. The indexes are not checked."""
    check_form(draw, list, "next_draw")
    where: Any
    of_samples: Any
    where, oldest, *of_samples = draw if len(draw) == len(Draw._fields) else ((), None)
    check_form(where, list, "next_draw['where']")
    idxs, weights = [*where[:2], *of_samples[:1]], of_samples[1:]
    kinds = [(torch.int64, idxs), (torch.float32, weights)]
    is_draw = where[2:] in ([], list(T)) and len(where[:2]) == 2 and len(of_samples) == 2
    for dtype, parts in kinds:
        is_draw &= all(part is None or isinstance(part, torch.Tensor) and (part.dtype, part.shape) == (dtype, (n,)) for part in parts)
    if not is_draw or any(part is None for part in where):
        raise ValueError(f"next_draw is not one of {n} samples.")
    check_form(oldest, NATURAL, "next_draw['oldest']")
    return draw


def _size(batch_B: int, batch_T: int | None) -> tuple[int, ...]:
    return (batch_B,) if batch_T is None else (batch_B, batch_T)


def _gather(buffer: Any, draw: Any) -> tuple[Any, bool, BaseException | None]:
    """Return (batch, whether it is intact, error). An intact batch was not overwritten while being read."""
    try:
        return buffer.gather_batch(draw), buffer.draw_is_intact(draw), None
    except BaseException as error:
        return None, False, error


def _gather_all(buffer: Any, requests: queue.SimpleQueue, results: queue.SimpleQueue) -> None:
    """Serve requests until None arrives. The thread holds no reference to its owner, which can so be garbage-collected."""
    while (draw := requests.get()) is not None:
        results.put(_gather(buffer, draw))
