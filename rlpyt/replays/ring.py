"""Arithmetic of replay memory that wraps around. No other module knows that it does."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rlpyt.utils.buffer import buffer_from_example


def window(written: int, claimed: int, T: int, back: int, forward: int) -> tuple[int, int]:
    """Return the numbers (first, end) of the rows that can be replayed, out of the latest `T`.

    The newest rows before `written` still lack the rows after them. The oldest rows lack the rows before them, and so do the first
    `forward` rows of a ring that never wrapped, since nothing came before row 0. The window is empty if ``first == end``.

    Args:
        written: number of rows written.
        claimed: `written` plus the number of rows being written now.
        T: number of rows of memory.
        back: number of newest rows that are not valid.
        forward: number of oldest rows in memory that are not valid.
    """
    first = max(claimed - T, 0) + forward
    return first, max(written - back, first)


class Rows:
    """Rows of memory that are written in order, again and again. Rows are numbered from the first ever; number i lies in row ``i % T``.

    Attributes:
        T: number of rows of memory.
        ring: the ring whose cursor moves.
        interval: number of rows of `ring` per row here.
        written: number of rows ever written.
        claimed: `written` plus the number of rows being written.
        t: the next row of memory to write, in [0, T).
        full: whether every row has been written.
    """

    T: int
    interval: int

    @property
    def ring(self) -> Ring:
        raise NotImplementedError

    @property
    def written(self) -> int:
        raise NotImplementedError

    @property
    def claimed(self) -> int:
        raise NotImplementedError

    @property
    def t(self) -> int:
        return self.written % self.T

    @property
    def full(self) -> bool:
        return self.written >= self.T

    def rows(self, start: int, n: int) -> slice | np.ndarray:
        """Return the index of the `n` rows from `start` rows after the cursor (before it if negative) on.

        The index is a slice, or an array [n] if the rows wrap around.
        """
        first = self.row(start)
        if first + n <= self.T:
            return slice(first, first + n)
        return self.wrap(np.arange(first, first + n))

    def row(self, offset: int) -> int:
        """Return the row of memory `offset` rows after the cursor; the newest row has offset -1."""
        return (self.t + offset) % self.T

    def among(self, n: int) -> int:
        """Return how many of these rows are among the next `n` rows of `ring`."""
        return -(-(self.ring.written + n) // self.interval) - self.written

    def wrap(self, numbers: np.ndarray) -> np.ndarray:
        """Return the rows of memory, in [0, T), for row numbers, or for rows counted on beyond either end."""
        return numbers % self.T

    def numbers(self, rows: np.ndarray) -> np.ndarray:
        """Return the latest row numbers written to rows of memory; negative for rows never written."""
        last = self.written - 1
        return last - (last - rows) % self.T

    def piece(self, number: int, n: int) -> slice:
        """Return the slice of memory of these rows that are among `n` rows of `ring` from `number` on, which must not wrap around."""
        first = -(-number // self.interval)
        row = first % self.T
        return slice(row, row - (-(number + n) // self.interval) - first)

    def pieces(self, first: int, end: int) -> Iterator[tuple[int, slice]]:
        """Yield rows number `first` to `end` (exclusive), at most T, in pieces that do not wrap around.

        Yields:
            number of the first row of the piece, index of its rows of memory.
        """
        while first < end:
            row = first % self.T
            n = min(end - first, self.T - row)
            yield first, slice(row, row + n)
            first += n

    def window(self, back: int, forward: int) -> tuple[int, int]:
        """Return the numbers (first, end) of the rows that can be replayed; see the function `window`."""
        return window(self.written, self.claimed, self.T, back, forward)

    def nothing_to_replay(self, back: int, forward: int) -> ValueError:
        """Return the error for an empty `window`."""
        stored = min(self.ring.written, self.ring.T)
        return ValueError(
            f"Nothing to replay yet: {stored} time steps are stored, and more than {(back + forward) * self.interval} are needed: raise "
            f"{'replay_size' if self.full else 'min_steps_learn'}."
        )


class Ring(Rows):
    """The cursor of rows of memory. A writer claims rows, writes them, and advances.

    A claim makes the old contents of these rows invalid. `advance` makes their new contents valid.

    Args:
        T: number of rows of memory.
        share_memory: whether processes started later see the same cursor.
    """

    interval = 1

    def __init__(self, T: int, share_memory: bool = False) -> None:
        self.T = T
        self._counts = buffer_from_example(np.int64(0), 2, share_memory)  # written, claimed

    @property
    def ring(self) -> Ring:
        return self

    @property
    def written(self) -> int:
        return self._counts.item(0)

    @property
    def claimed(self) -> int:
        return self._counts.item(1)

    def every(self, interval: int) -> Rows:
        """Return every `interval`-th row from number 0 on, with separate numbers. These rows follow the cursor of this ring."""
        return self if interval == 1 else _Every(self, interval)

    def claim(self, n: int) -> None:
        """Announce that the next `n` rows are about to be written."""
        self._counts[1] = max(self.claimed, self.written + n)

    def advance(self, n: int) -> None:
        """Move the cursor past `n` newly written rows.

        If a writer that never finished claimed more rows, these stay claimed until they are written.
        """
        self._counts[0] += n
        self.claim(0)

    def move_to(self, written: int, claimed: int = 0) -> None:
        """Move the cursor to row number `written`, and claim the rows up to number `claimed`."""
        self._counts[:] = written, max(written, claimed)


class _Every(Rows):
    def __init__(self, ring: Ring, interval: int) -> None:
        self.T, self._ring, self.interval = ring.T // interval, ring, interval

    @property
    def ring(self) -> Ring:
        return self._ring

    @property
    def written(self) -> int:
        return -(-self.ring.written // self.interval)

    @property
    def claimed(self) -> int:
        return -(-self.ring.claimed // self.interval)
