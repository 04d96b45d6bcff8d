"""Memory for the batches that are read out of a replay buffer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rlpyt.utils.buffer import buffer_func, buffer_leaves

# Memory is kept for batches of this many shapes, the latest ones.
_MAX_SHAPES = 8


class BatchMemory:
    """Gives the memory to put a batch together in: new memory each time, or a few pieces of it in turn."""

    def __init__(self) -> None:
        self._n_slots, self._pin = 0, False
        self._slots: dict[tuple, list] = {}

    def reuse(self, n_slots: int, pin: bool = False) -> None:
        """From now on give `n_slots` pieces of memory per shape in turn, in page-locked memory if `pin`."""
        self._n_slots, self._pin, self._slots = n_slots, pin, {}

    def next(self, allocate: Callable[..., Any], *shape: int) -> Any:
        """Return memory for a batch, which is reused only after the next ``n_slots - 1`` of that shape, or never.

        Args:
            allocate: function ``allocate(*shape, pin=...)`` that makes memory for one batch.
        """
        if not self._n_slots:
            return allocate(*shape, pin=False)
        slots = self._slots.pop(shape, None) or [allocate(*shape, pin=self._pin) for _ in range(self._n_slots)]
        slots.append(slots.pop(0))
        self._slots[shape] = slots
        if len(self._slots) > _MAX_SHAPES:
            del self._slots[next(iter(self._slots))]
        return slots[-1]

    def __getstate__(self) -> dict:
        return {**self.__dict__, "_slots": {}}  # Another process allocates other memory.


def rows_like(source: Any, *leading_dims: int, pin: bool = False) -> Any:
    """Allocate arrays with rows like those of `source` [N,...] and other leading dimensions, not initialized.

    Args:
        source: structure of arrays.
        pin: in page-locked memory, from which a GPU copies directly.
    """

    def allocate(leaf: np.ndarray) -> np.ndarray:
        shape = (*leading_dims, *leaf.shape[1:])
        if not pin:
            return np.empty(shape, leaf.dtype)
        import torch

        dtype = torch.from_numpy(np.empty(0, leaf.dtype)).dtype
        return torch.empty(shape, dtype=dtype, pin_memory=True).numpy()

    return buffer_func(source, allocate)


def pairs_of_leaves(stored: Any, which: np.ndarray, out: Any) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Return (stored rows, which of them, where to write them) for all arrays of two structures."""
    return [(source, which, to) for source, to in zip(buffer_leaves(stored), buffer_leaves(out), strict=True)]


def gathers_of(sources: dict[str, tuple[Any, np.ndarray]], pin: bool) -> tuple[dict[str, Any], list]:
    """Allocate memory for fields of a batch, each given as stored rows and which of them it holds.

    Returns:
        the memory of each field, and what `take_rows` needs to fill it.
    """
    fields, gathers = {}, []
    for name, (stored, which) in sources.items():
        if type(stored) is np.ndarray and not pin:  # Nearly always, and much faster than a search for leaves.
            fields[name] = np.empty(which.shape + stored.shape[1:], stored.dtype)
            gathers.append((stored, which, fields[name]))
        else:
            fields[name] = rows_like(stored, *which.shape, pin=pin)
            gathers += pairs_of_leaves(stored, which, fields[name])
    return fields, gathers


def take_rows(gathers: list[tuple[np.ndarray, np.ndarray, np.ndarray]]) -> None:
    """Copy rows as `pairs_of_leaves` says; indexes must be right."""
    for stored, which, out in gathers:
        stored.take(which, 0, out, "clip")  # Other modes buffer the output.
