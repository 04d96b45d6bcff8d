"""The only place that knows that replay memory wraps around."""

from __future__ import annotations

import numpy as np


def window(t: int, full: bool, T: int, back: int, forward: int) -> tuple[int, int]:
    """Oldest valid row and how many are valid; valid = not within `back` before or `forward` after cursor `t`.

    The rows just before the cursor still wait for what follows them, those from the cursor on have lost what
    came before them. In a ring that is not full nothing came before row 0, so its first `forward` rows are
    left out as well.
    """
    if full:
        return (t + forward) % T, max(T - forward - back, 0)
    return forward, max(t - back - forward, 0)


class Ring:
    """Cursor over `T` rows of memory that are written in order, again and again.

    Attributes:
        T: number of rows.
        t: the row to be written next, in [0, T).
        full: whether every row has been written.
    """

    def __init__(self, T: int) -> None:
        self.T = T
        self.t = 0
        self.full = False

    def rows(self, start: int, n: int) -> slice | np.ndarray:
        """Return the index of the `n` rows that lie `start` rows from the cursor (before it if negative).

        As a slice where they do not wrap around, otherwise as an array [n].
        """
        first = (self.t + start) % self.T
        if first + n <= self.T:
            return slice(first, first + n)
        return self.wrap(np.arange(first, first + n))

    def wrap(self, rows: np.ndarray) -> np.ndarray:
        """Return rows counted on beyond either end as rows in [0, T)."""
        return rows % self.T

    def advance(self, n: int) -> None:
        """Move the cursor past `n` newly written rows."""
        self.full = self.full or self.t + n >= self.T
        self.t = (self.t + n) % self.T

    def window(self, back: int, forward: int) -> tuple[int, int]:
        """Return the oldest valid row and the number of valid ones; see the function of this name."""
        return window(self.t, self.full, self.T, back, forward)
