"""Memory for the batches that a replay buffer returns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from rlpyt.utils.array import aligned_zeros
from rlpyt.utils.buffer import buffer_func, buffer_leaves
from rlpyt.utils.packing import Ruler, Slab

New = Callable[[tuple[int, ...], Any], np.ndarray]  # Like `numpy.empty`.

# Number of latest batch shapes for which memory is kept.
_MAX_SHAPES = 8


class BatchMemory:
    """Provides the memory of batches: new memory for each batch, or a few pieces of memory in turn."""

    def __init__(self) -> None:
        self._n_slots, self._pin = 0, False
        self._slots: dict[tuple, list] = {}
        self._weights: torch.Tensor | None = None
        self._repeats = False

    def reuse(self, n_slots: int, pin: bool = False) -> None:
        """From now on provide `n_slots` pieces of memory per shape in turn; if `pin`, each lies in one page-locked slab."""
        self._n_slots, self._pin, self._slots = n_slots, pin, {}

    def next(self, allocate: Callable[..., Any], *shape: int) -> Any:
        """Return memory for a batch. It is reused only after the next ``n_slots - 1`` batches of that shape, or never.

        Args:
            allocate: function ``allocate(*shape, new=...)`` that returns memory for a batch: a namedtuple whose field `batch` holds the
                tensors. They share memory with arrays from ``new(shape, dtype)``.
            shape: arguments of `allocate`; the last one is the number of samples.
        """
        if not self._n_slots:
            return allocate(*shape, new=np.empty)
        is_latest = next(reversed(self._slots), None) == shape
        slots = self._slots.pop(shape, None) or [self._slot(allocate, shape) for _ in range(self._n_slots)]
        if not (self._repeats and is_latest):
            slots.append(slots.pop(0))
        self._repeats = False
        self._slots[shape] = slots
        if len(self._slots) > _MAX_SHAPES:
            del self._slots[next(iter(self._slots))]
        memory, self._weights, _ = slots[-1]
        return memory

    def repeat(self) -> None:
        """Let `next` return the same memory once more, because the batch in it is not used."""
        self._repeats = True

    def _slot(self, allocate: Callable[..., Any], shape: tuple[int, ...]) -> tuple[Any, torch.Tensor | None, Slab | None]:
        """Return memory for a batch and, if pinned, for weights float32 [n] beside it, and the slab, which must stay alive."""
        if not self._pin:
            return allocate(*shape, new=aligned_zeros), None, None
        ruler = Ruler()
        allocate(*shape, new=ruler.empty)
        ruler.empty(shape[-1:], np.float32)
        slab = Slab(ruler.n_bytes)
        memory = allocate(*shape, new=slab.empty)
        return memory._replace(batch=slab.tensors(memory.batch)), slab.tensor(shape[-1:], torch.float32), slab

    def beside(self, is_weights: np.ndarray) -> torch.Tensor:
        """Return importance-sampling weights float32 [n] as a tensor; if the latest batch lies in a slab, in the same slab."""
        if self._weights is None or self._weights.shape != is_weights.shape:
            return torch.from_numpy(is_weights)
        return self._weights.copy_(torch.from_numpy(is_weights))

    def __getstate__(self) -> dict:
        return {**self.__dict__, "_slots": {}, "_weights": None}  # Another process allocates new memory.


def rows_like(source: Any, *leading_dims: int, new: New = np.empty) -> Any:
    """Return arrays with rows like those of the arrays [N,...] in `source`, but these leading dimensions, allocated by `new`."""
    return buffer_func(source, lambda leaf: new((*leading_dims, *leaf.shape[1:]), leaf.dtype))


def pairs_of_leaves(stored: Any, which: np.ndarray, out: Any) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Return (stored rows, indexes to copy, destination) for each array of two structures."""
    return [(source, which, to) for source, to in zip(buffer_leaves(stored), buffer_leaves(out), strict=True)]


def gathers_of(sources: dict[str, tuple[Any, np.ndarray]], new: New) -> tuple[dict[str, Any], list]:
    """Allocate memory by `new` for the fields of a batch, each given as (stored rows, indexes to copy).

    Returns:
        the memory of each field, and the arguments for `take_rows` to fill it.
    """
    fields, gathers = {}, []
    for name, (stored, which) in sources.items():
        if type(stored) is np.ndarray:  # The common case, much faster than a search for leaves.
            fields[name] = new(which.shape + stored.shape[1:], stored.dtype)
            gathers.append((stored, which, fields[name]))
        else:
            fields[name] = rows_like(stored, *which.shape, new=new)
            gathers += pairs_of_leaves(stored, which, fields[name])
    return fields, gathers


def take_rows(gathers: list[tuple[np.ndarray, np.ndarray, np.ndarray]]) -> None:
    """Copy rows as listed by `pairs_of_leaves`. Indexes are not checked."""
    for stored, which, out in gathers:
        stored.take(which, 0, out, "clip")  # Other modes buffer the output.
