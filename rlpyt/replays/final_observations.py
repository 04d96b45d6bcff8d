"""Storage of the final observations of truncated episodes, which have no place in ``[T,B]`` memory."""

from __future__ import annotations

import math
from multiprocessing import context
from typing import Any

import numpy as np

from rlpyt.utils.buffer import SharedMap, buffer_from_example, buffer_func, buffer_leaves, check_memory, numpify_buffer

# Memory use grows in chunks. Before each chunk, a check makes sure that enough memory is free.
_CHUNK_BYTES = 64 * 1024**2

_FREED, _END = 0, 1  # Indexes of the counts: freed slots not yet used again; slots ever used.


class FinalObservations:
    """Keeps observations in slots that never move, and reuses freed slots before new ones.

    Memory is reserved for `capacity` observations, but used only for slots that were ever used.

    Processes may share a store made with `share_memory`. Processes that append and forget exclude each other; others meanwhile read slots
    that the writers do not free. A killed writer may leave unused slots behind, but does no other harm. Without `share_memory`, a store
    belongs to one process, although a forked process sees it too.

    Args:
        example: one observation, without leading dimensions.
        capacity: largest number of observations kept at once.
        share_memory: whether processes started later see the same store.

    Attributes:
        example, capacity, share_memory: as above, with `example` as numpy arrays.
    """

    def __init__(self, example: Any, capacity: int, share_memory: bool = False) -> None:
        self.example, self.capacity, self.share_memory = numpify_buffer(example), capacity, share_memory
        one = buffer_from_example(self.example, 1)
        self._memory = buffer_func(one, lambda leaf: _reserve((capacity, *leaf.shape[1:]), leaf.dtype))
        self._freed = _reserve((capacity,), np.int64)  # A stack of slots.
        self._counts = _reserve((2,), np.int64)
        self._slot_bytes = sum(leaf.nbytes for leaf in buffer_leaves(one))
        self._chunk = math.ceil(_CHUNK_BYTES / self._slot_bytes)  # Slots.

    def __len__(self) -> int:
        """Return the number of observations kept."""
        return int(self._counts[_END] - self._counts[_FREED])

    def append(self, observations: Any, n: int) -> np.ndarray:
        """Keep `n` observations [n,...] and return their slots, int64 [n].

        Raises:
            ValueError: too few slots are free.
            MemoryError: too little memory is free.
        """
        n_freed, end = self._counts.tolist()
        n_again = min(n, n_freed)
        n_new = n - n_again
        if end + n_new > self.capacity:
            raise ValueError(f"{n} observations do not fit into a store of {self.capacity} that keeps {len(self)}: forget some first.")
        if n_new and (end + n_new) // self._chunk > end // self._chunk:
            n_bytes = max(n_new, self._chunk) * self._slot_bytes
            check_memory(n_bytes, f"Keeping more than the {end} observations that ended truncated episodes in the replay buffer so far")
        slots = np.concatenate([self._freed[n_freed - n_again : n_freed][::-1], np.arange(end, end + n_new)])
        self._counts[:] = n_freed - n_again, end + n_new  # From here on, no other append gets these slots.
        self._memory[slots] = observations
        return slots

    def forget(self, slots: np.ndarray) -> None:
        """Free these slots [n], all of which must be in use."""
        n_freed = int(self._counts[_FREED])
        self._freed[n_freed : n_freed + len(slots)] = slots
        self._counts[_FREED] = n_freed + len(slots)

    def __getitem__(self, slots: np.ndarray | slice) -> Any:
        """Return copies [n,...] of the observations in these slots [n]."""
        return buffer_func(self._memory, lambda leaf: leaf[slots])

    def take(self, slots: np.ndarray, out: Any) -> None:
        """Copy the observations in these slots [n] to the arrays `out` [n,...], of the same structure, shapes and dtypes."""
        for leaf, leaf_out in zip(buffer_leaves(self._memory), buffer_leaves(out), strict=True):
            np.take(leaf, slots, axis=0, out=leaf_out, mode="clip")  # Any other mode makes another copy.

    def __getstate__(self) -> dict[str, Any] | tuple:
        if self.share_memory and context.get_spawning_popen() is not None:
            return self.__dict__
        n_freed, end = self._counts.tolist()  # Copy the used memory, not all that is reserved.
        return self.example, self.capacity, self.share_memory, self[:end], self._freed[:n_freed], end

    def __setstate__(self, state: dict[str, Any] | tuple) -> None:
        if isinstance(state, dict):
            self.__dict__.update(state)
            return
        *args, observations, freed, end = state
        self.__init__(*args)  # type: ignore[misc]
        self._memory[:end] = observations
        self._freed[: len(freed)] = freed
        self._counts[:] = len(freed), end


def _reserve(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Return an array of zeros in an anonymous file, of which the system counts only the used memory."""
    n_bytes = math.prod(shape) * np.dtype(dtype).itemsize
    return np.ndarray(shape, dtype, buffer=SharedMap(max(n_bytes, 1)))
