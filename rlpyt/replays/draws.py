"""The parts of a buffer that draw the samples to replay."""

from __future__ import annotations

from functools import cache
from inspect import signature
from typing import Any, NamedTuple

import numpy as np

from rlpyt.replays.ring import Rows
from rlpyt.utils.plain import generator_state, set_generator_state
from rlpyt.utils.seed import ProcessGenerator, rng_from_global_seed

# Number of times that invalid steps are drawn again before all valid steps are listed.
_MAX_DRAWS = 20


class Draw(NamedTuple):
    """The samples drawn for one batch.

    Attributes:
        where: arguments of `extract_batch`: T_idxs [n], B_idxs [n], and for sequences their length T.
        oldest: number of the oldest row at which a sample starts; 0 in buffers of one process.
        ids: [n], int64, ids of the samples for updating their priorities; None without priorities.
        is_weights: [n], float32, importance-sampling weights; None without priorities.
    """

    where: tuple
    oldest: int = 0
    ids: np.ndarray | None = None
    is_weights: np.ndarray | None = None


class Draws:
    """The interface of parts that draw samples, and a part that does nothing, for buffers whose subclass draws samples itself.

    Args:
        rows: rows to draw from.
        B: number of environments.
        off_backward, off_forward: numbers of invalid rows before and after the cursor.
        valid: [T*B+1], bool, True for stored steps that may be drawn (the last entry is no step); shape [0] means all.

    An append calls `check`, then `claim` before any row is written, and `publish` before the cursor moves. If a process is killed inside a
    call under the buffer's lock, the next process calls `repair` first.
    """

    def __init__(self, rows: Rows, B: int, off_backward: int, off_forward: int, valid: np.ndarray) -> None:
        self.rows, self.B, self.valid = rows, B, valid
        self.off_backward, self.off_forward = off_backward, off_forward

    def select(self, n: int, off_backward: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Return the indexes (T_idxs [n], B_idxs [n]) of `n` steps. `off_backward` overrides the attribute.

        Raises:
            ValueError: no step is valid yet.
        """
        raise NotImplementedError("Nothing draws samples: put UniformReplay or the like in front of the buffer, or define sample_batch.")

    def check(self, samples: Any, n: int) -> None:
        """Raise ValueError if the `samples` for the next `n` rows are not possible."""

    def claim(self, n: int) -> None:
        """Stop drawing samples that the next `n` rows overwrite."""

    def publish(self, n: int, samples: Any) -> None:
        """From now on, draw the samples that the `n` rows just written make valid."""

    def repair(self) -> None:
        """Complete or undo the unfinished changes of a killed process."""

    def detach(self) -> None:
        """From now on, leave it to the class of the buffer which samples are valid."""

    def state(self) -> dict[str, Any]:
        """Return the state to save in a checkpoint."""
        return {}

    def check_state(self, state: dict[str, Any]) -> None:
        """Raise ValueError if `load_state` cannot load `state`."""

    def load_state(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned."""


class UniformDraws(Draws):
    """Draws valid steps uniformly, with replacement, from a separate stream of random numbers.

    Attributes:
        rng: seeded from numpy's global generator, so that seeding the global one makes a run repeatable.
    """

    rng = ProcessGenerator()

    def __init__(self, rows: Rows, B: int, off_backward: int, off_forward: int, valid: np.ndarray) -> None:
        super().__init__(rows, B, off_backward, off_forward, valid)
        self.rng = rng_from_global_seed()

    def select(self, n: int, off_backward: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        back = self.off_backward if off_backward is None else off_backward
        first, end = self.rows.window(back, self.off_forward)
        if first == end:
            raise self.rows.nothing_to_replay(back, self.off_forward)
        T_idxs, B_idxs = self._draw(n, first, end)
        if len(self.valid):
            self._replace_invalid(T_idxs, B_idxs, first, end)
        return T_idxs, B_idxs

    def _draw(self, n: int, first: int, end: int) -> tuple[np.ndarray, np.ndarray]:
        rng = self.rng
        number = rng.integers(first, end, size=n)
        return self.rows.wrap(number) * self.rows.interval, rng.integers(self.B, size=n)

    def _replace_invalid(self, T_idxs: np.ndarray, B_idxs: np.ndarray, first: int, end: int) -> None:
        """Draw invalid steps again until all are valid. All valid steps stay equally probable."""
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
                "Nothing to replay: all stored rows are blank. A sampler without mid_batch_reset leaves blank rows after the end of an "
                "episode. Raise min_steps_learn, or lower batch_T."
            )
        chosen = self.rng.integers(len(t), size=len(invalid))
        T_idxs[invalid], B_idxs[invalid] = rows[t[chosen]], b[chosen]

    def state(self) -> dict[str, Any]:
        return {"rng": generator_state(self.rng)}

    def check_state(self, state: dict[str, Any]) -> None:
        if "rng" not in state:
            raise ValueError("The saved replay buffer does not replay uniformly, and this one does.")

    def load_state(self, state: dict[str, Any]) -> None:
        set_generator_state(self.rng, state["rng"])


@cache
def takes_ids(ReplayCls: Any) -> bool:
    """Return whether `update_batch_priorities` of a buffer class takes `ids`. The documented signature has priorities alone."""
    own = [vars(cls)["update_batch_priorities"] for cls in ReplayCls.__mro__ if "update_batch_priorities" in vars(cls)]
    return all("ids" in signature(function).parameters for function in own)


def is_ours(buffer: Any, name: str, after: type | None = None) -> bool:
    """Return whether a buffer has the method `name` of this package: False if a user's class defines one of that name.

    Args:
        after: consider only the classes after this one in the method resolution order.
    """
    classes = type(buffer).__mro__
    if after is not None:
        classes = classes[classes.index(after) + 1 :]
    return all(cls.__module__.startswith("rlpyt.replays.") for cls in classes if name in vars(cls))
