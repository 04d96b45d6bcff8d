"""Which of the stored steps to replay."""

from __future__ import annotations

import numpy as np

from rlpyt.replays.ring import Ring
from rlpyt.utils.seed import OwnRandomNumbers, rng_from_global_seed

# Steps that are not valid are drawn again so many times, before all that are valid are looked for.
_MAX_DRAWS = 20


class UniformSelector(OwnRandomNumbers):
    """Draws valid steps uniformly, with replacement, by random numbers of its own.

    Args:
        ring: where the buffer writes.
        B: number of environments.
        off_backward, off_forward: how many rows before and after the cursor are not valid, in units of `interval`.
        interval: rows from one that can be drawn to the next; drawn are the numbers it divides.
        valid: [T*B+1], bool, which of the stored steps there may be drawn (the last one is no step); None means all.

    Attributes:
        rng: seeded from numpy's global generator, so that seeding that one makes a run repeatable.
    """

    def __init__(self, ring: Ring, B: int, off_backward: int, off_forward: int, interval: int = 1, valid: np.ndarray | None = None) -> None:
        self.rows, self.B = ring.every(interval), B
        self.off_backward, self.off_forward = off_backward, off_forward
        self.valid = valid
        self.rng = rng_from_global_seed()

    def select(self, n: int, off_backward: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Return the indexes (T_idxs [n], B_idxs [n]) of `n` steps; with another `off_backward` than usual if given.

        Raises:
            ValueError: no step is valid yet.
        """
        back = self.off_backward if off_backward is None else off_backward
        first, end = self.rows.window(back, self.off_forward)
        if first == end:
            raise self.rows.nothing_to_replay(back, self.off_forward)
        T_idxs, B_idxs = self._draw(n, first, end)
        if self.valid is not None:
            self._replace_invalid(T_idxs, B_idxs, first, end)
        return T_idxs, B_idxs

    def _draw(self, n: int, first: int, end: int) -> tuple[np.ndarray, np.ndarray]:
        number = self.rng.integers(first, end, size=n)
        return self.rows.wrap(number) * self.rows.interval, self.rng.integers(self.B, size=n)

    def _replace_invalid(self, T_idxs: np.ndarray, B_idxs: np.ndarray, first: int, end: int) -> None:
        """Draw steps that are not valid again, until all are, which leaves the rest equally probable."""
        invalid = np.flatnonzero(~self.valid[T_idxs * self.B + B_idxs])
        for _ in range(_MAX_DRAWS):
            if not len(invalid):
                return
            T_idxs[invalid], B_idxs[invalid] = self._draw(len(invalid), first, end)
            invalid = invalid[~self.valid[T_idxs[invalid] * self.B + B_idxs[invalid]]]
        rows = self.rows.wrap(np.arange(first, end)) * self.rows.interval
        t, b = np.nonzero(self.valid[:-1].reshape(-1, self.B)[rows])
        if not len(t):
            raise ValueError(
                "Nothing to replay: all that is stored are blank rows, which a sampler without mid_batch_reset leaves behind ended "
                "episodes: raise min_steps_learn, or lower batch_T."
            )
        chosen = self.rng.integers(len(t), size=len(invalid))
        T_idxs[invalid], B_idxs[invalid] = rows[t[chosen]], b[chosen]
