"""Memory for the batches that are read out of a replay buffer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rlpyt.utils.buffer import buffer_func


class BatchMemory:
    """Gives the memory to put a batch together in: new memory each time, or a few pieces of it in turn.

    Args:
        allocate: function ``allocate(*shape, pin=...)`` that makes memory for one batch of a shape.
    """

    def __init__(self, allocate: Callable[..., Any]) -> None:
        self._allocate = allocate
        self._n_slots, self._pin = 0, False
        self._slots: dict[tuple, list] = {}

    def reuse(self, n_slots: int, pin: bool = False) -> None:
        """From now on give `n_slots` pieces of memory per shape in turn, in page-locked memory if `pin`."""
        self._n_slots, self._pin, self._slots = n_slots, pin, {}

    def next(self, *shape: int) -> Any:
        """Return memory for a batch, which is reused only after the next ``n_slots - 1`` of that shape, or never."""
        if not self._n_slots:
            return self._allocate(*shape, pin=False)
        slots = self._slots.get(shape)
        if slots is None:
            slots = self._slots[shape] = [self._allocate(*shape, pin=self._pin) for _ in range(self._n_slots)]
        slots.append(slots.pop(0))
        return slots[-1]

    def __getstate__(self) -> dict:
        return {**self.__dict__, "_slots": {}}  # Another process has memory of its own.


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
