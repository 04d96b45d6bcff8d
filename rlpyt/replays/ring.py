"""The only place that knows that replay memory wraps around."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rlpyt.utils.buffer import buffer_from_example


def window(written: int, claimed: int, T: int, back: int, forward: int) -> tuple[int, int]:
    """Return the numbers (first, end) of the rows that can be replayed, out of the latest `T`.

    Those just before `written` still wait for what follows them. The oldest have lost what came before them, and so have,
    in a ring that never wrapped, its first `forward` rows, since nothing came before row 0. Empty if ``first == end``.

    Args:
        written: number of rows written.
        claimed: `written`, and the number of rows that are being written now.
        T: rows there is memory for.
        back: how many of the latest rows are not valid.
        forward: how many of the oldest rows in memory are not valid.
    """
    first = max(claimed - T, 0) + forward
    return first, max(written - back, first)


class Rows:
    """Rows of memory that are written in order, again and again; row number i, counted from the first one ever, lies in row ``i % T``.

    Attributes:
        T: number of rows of memory.
        ring: what moves the cursor.
        interval: rows of that ring that count as one here.
        written: number of rows ever written.
        claimed: `written`, and the rows that are being written.
        t: the row of memory to be written next, in [0, T).
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
        """Return the index of the `n` rows that lie `start` rows from the cursor (before it if negative).

        As a slice where they do not wrap around, otherwise as an array [n].
        """
        first = self.row(start)
        if first + n <= self.T:
            return slice(first, first + n)
        return self.wrap(np.arange(first, first + n))

    def row(self, offset: int) -> int:
        """Return the row of memory that lies `offset` rows from the cursor; the newest one is -1."""
        return (self.t + offset) % self.T

    def among(self, n: int) -> int:
        """Return how many of these rows the next `n` rows of `ring` are."""
        return -(-(self.ring.written + n) // self.interval) - self.written

    def wrap(self, numbers: np.ndarray) -> np.ndarray:
        """Return where in memory rows lie, in [0, T), of their numbers, or of rows counted on beyond either end."""
        return numbers % self.T

    def numbers(self, rows: np.ndarray) -> np.ndarray:
        """Return the numbers of what was last written to rows of memory; negative where nothing was."""
        last = self.written - 1
        return last - (last - rows) % self.T

    def piece(self, number: int, n: int) -> slice:
        """Return where in memory those of these rows lie that are among `n` rows of `ring`, which do not wrap around, from `number` on."""
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
        """Return (first, end) of what can be replayed; see the function of this name."""
        return window(self.written, self.claimed, self.T, back, forward)

    def nothing_to_replay(self, back: int, forward: int) -> ValueError:
        """Return the error for a `window` that is empty."""
        stored = min(self.ring.written, self.ring.T)
        return ValueError(
            f"Nothing to replay yet: {stored} time steps are stored, and more than {(back + forward) * self.interval} are needed: raise "
            f"{'replay_size' if self.full else 'min_steps_learn'}."
        )


class Ring(Rows):
    """The cursor of rows of memory. A writer claims rows, writes them, and advances.

    From the claim on, what these rows held is no longer valid. What they will hold is not valid before `advance`.

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
        """Return one row in `interval`, from number 0 on, numbered by themselves: what this ring does is seen there."""
        return self if interval == 1 else _Every(self, interval)

    def claim(self, n: int) -> None:
        """Announce that the next `n` rows will be written now."""
        self._counts[1] = max(self.claimed, self.written + n)

    def advance(self, n: int) -> None:
        """Move the cursor past `n` newly written rows.

        If more had been claimed, by somebody who never finished, they stay claimed until they are written.
        """
        self._counts[0] += n
        self.claim(0)

    def move_to(self, written: int, claimed: int = 0) -> None:
        """Set the cursor to row number `written`, with the rows up to number `claimed` claimed."""
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
