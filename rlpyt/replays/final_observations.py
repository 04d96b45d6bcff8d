"""Side store of the observations that ended truncated episodes, which have no place in ``[T,B]`` memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlpyt.utils.buffer import buffer_from_example


class FinalObservations:
    """First in, first out queue of observations, each found by its number; memory doubles when it is full.

    Args:
        example: one observation, without leading dimensions.
        capacity: observations to allocate memory for at first.
    """

    def __init__(self, example: Any, capacity: int = 16) -> None:
        self._example = example
        self._memory = buffer_from_example(example, capacity)
        self._capacity = capacity
        self._begin = self._end = 0  # Numbers of the oldest one kept and of the next one to come.

    def __len__(self) -> int:
        return self._end - self._begin

    def append(self, observations: Any, n: int) -> np.ndarray:
        """Add `n` observations [n,...] and return their numbers [n], which count up from the first ever added."""
        self._make_room(n)
        numbers = np.arange(self._end, self._end + n)
        self._memory[numbers % self._capacity] = observations
        self._end += n
        return numbers

    def forget(self, n: int) -> None:
        """Drop the `n` oldest."""
        self._begin += n

    def __getitem__(self, numbers: np.ndarray) -> Any:
        """Return copies [n,...] of the observations with these numbers, which must still be kept."""
        return self._memory[numbers % self._capacity]

    def _make_room(self, n: int) -> None:
        capacity = self._capacity
        while capacity < len(self) + n:
            capacity *= 2
        if capacity == self._capacity:
            return
        kept = np.arange(self._begin, self._end)
        memory = buffer_from_example(self._example, capacity)
        memory[kept % capacity] = self._memory[kept % self._capacity]
        self._memory, self._capacity = memory, capacity
