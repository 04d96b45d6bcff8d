"""Sum tree: draws the steps of a replay memory in proportion to their priorities."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlpyt.replays.ring import Ring, Rows, window
from rlpyt.utils.array import aligned_zeros
from rlpyt.utils.buffer import buffer_from_example, check_memory, np_mp_array, numpify_buffer
from rlpyt.utils.lazy import LazyModule
from rlpyt.utils.plain import NATURAL, check_form, generator_state, set_generator_state
from rlpyt.utils.seed import ProcessGenerator, rng_from_global_seed

kernels = LazyModule("rlpyt.utils.kernels")


class SumTree:
    """Priorities of a ring of ``[T,B]`` steps, and their sums over groups of 8, 64, 512, ..., through which steps are found.

    The id of a step is ``number * B + b``, with the number of its row as in `rlpyt.replays.ring`. An update for a step that was overwritten
    after it was drawn is thus recognised and ignored. A row is on while it is in the `window` of the cursor. Only steps of such rows can
    be drawn; the priorities of all others are 0.

    Sums are always recomputed from their terms, never changed by differences. So rounding errors do not accumulate, and a sum is exactly 0
    if all priorities below it are 0. No priority may exceed `largest_priority`, the bound that keeps sums from overflowing.

    Args:
        T, B: size of the ring.
        off_backward: number of newest rows that lack the rows after them.
        off_forward: number of oldest rows that lack the rows before them.
        default_value: priority of new steps.
        enable_input_priorities: whether `advance` takes priorities.
        input_priority_shift: number of rows before the cursor at which the priorities given to `advance` begin.
        enable_blanks: whether `advance` takes a mask of steps that may be drawn.
        rows: the rows of the steps. Their owner moves their cursor after each `claim`, and after each `advance`. None gives the tree a
            ring, whose cursor these methods move.

    Attributes:
        size: ``T * B``.
        tree: float64, all leaves (leaf ``row * B + b``), then all sums of 8 leaves, and so on; the last number is the total. See
            `rlpyt.utils.kernels`.
        priorities: the leaves, as a view [T,B].
        input_priorities: [T,B], the priorities of rows that are on, or of other rows once they are turned on; None if not enabled.
        blank: [T,B], bool, True for steps that are never turned on; None if not enabled.
        drawn_ids: int64 [n], ids of the steps that `sample` returned last in this process; None before the first call.
        rng: seeded from numpy's global generator, so that seeding the global one makes a run repeatable.

    Raises:
        ValueError: the shift is negative, or the default is not a valid priority.
        MemoryError: too little memory is free.
    """

    async_ = False
    rng = ProcessGenerator()

    def __init__(
        self,
        T: int,
        B: int,
        off_backward: int,
        off_forward: int,
        default_value: float = 1,
        enable_input_priorities: bool = False,
        input_priority_shift: int = 0,
        enable_blanks: bool = False,
        rows: Rows | None = None,
    ) -> None:
        self.T, self.B, self.size = T, B, T * B
        self.off_backward, self.off_forward = off_backward, off_forward
        self.enable_input_priorities = enable_input_priorities
        self.input_priority_shift = input_priority_shift
        if input_priority_shift < 0:
            raise ValueError(f"input_priority_shift={input_priority_shift} must not be negative: priorities never come before their steps.")
        self.largest_priority = float(np.finfo(np.float64).max) / (2 * self.size)
        self.default_value = float(self._checked(default_value))

        self._levels, length = _tree_levels(self.size)
        self.tree = self._allocate(length, np.float64)
        self.input_priorities: np.ndarray | None = None
        if enable_input_priorities:
            self.input_priorities = self._allocate(self.size, np.float64).reshape(T, B)
        self.blank = buffer_from_example(np.bool_(False), (T, B), self.async_) if enable_blanks else None
        self._ring: Ring | None = None
        if rows is None:
            rows = self._ring = Ring(T, share_memory=self.async_)
        self.rows = rows
        self._view_leaves()
        self.rng = rng_from_global_seed()
        self.reset()

    @staticmethod
    def _allocate(n: int, dtype: Any) -> np.ndarray:
        """Return an array [n] of zeros, aligned to a cache line."""
        check_memory(n * 8, f"A sum tree with an array of {n} numbers")
        return aligned_zeros((n,), dtype)

    def _view_leaves(self) -> None:
        begin = self._levels[0]
        self.priorities = self.tree[begin : begin + self.size].reshape(self.T, self.B)

    def __getstate__(self) -> dict:
        state = self.__dict__.copy()
        del state["priorities"]  # A pickled view would become a separate array.
        return state

    def __setstate__(self, state: dict) -> None:
        self.__dict__.update(state)
        self._view_leaves()

    # -----------------------------------------------------------------------------------------------------------------
    # Rows
    # -----------------------------------------------------------------------------------------------------------------
    @property
    def written(self) -> int:
        """Number of complete rows."""
        return self.rows.written

    @property
    def claimed(self) -> int:
        """Number of rows that are complete or being written."""
        return self.rows.claimed

    @property
    def t(self) -> int:
        """The next row of memory to write."""
        return self.rows.t

    @property
    def total(self) -> float:
        """Sum of all priorities."""
        return self.tree.item(-1)

    def reset(self) -> None:
        """Empty the tree."""
        if self._ring is not None:
            self._ring.move_to(0)
        self.tree[:] = 0
        if self.input_priorities is not None:
            self.input_priorities[:] = self.default_value
        self.drawn_ids: np.ndarray | None = None

    def detach(self) -> None:
        """Continue with a separate cursor, for a class that moves the cursor of its buffer and calls `advance` itself."""
        if self._ring is None:
            written, claimed = self.written, self.claimed
            self.rows = self._ring = Ring(self.T, share_memory=self.async_)
            self._ring.move_to(written, claimed)

    def window(self) -> tuple[int, int]:
        """Return the numbers [first, end) of the rows that are on."""
        return self.rows.window(self.off_backward, self.off_forward)

    def claim(self, T: int) -> None:
        """Turn off the rows that writing `T` more rows makes invalid; `advance` does this, too.

        Raises:
            ValueError: there are more rows than in the ring.
        """
        if not 0 <= T <= self.T:
            raise ValueError(f"{T} rows were written to a sum tree of T={self.T}: raise its size, or write fewer at a time.")
        low, high = self.window()
        self._set_rows(low, min(self.written + T - self.T + self.off_forward, high), 0.0)  # While they are in the window: see `repair`.
        if self._ring is not None:
            self._ring.claim(T)

    def repair(self) -> None:
        """After a process was killed during a change, turn off all rows outside `window` and recompute all sums."""
        first, end = self.window()
        off = np.ones(self.T, np.bool_)
        for _, rows in self.rows.pieces(first, end):
            off[rows] = False
        self.priorities[off] = 0
        kernels.tree_sum_range(self.tree, self._levels, 0, self.size)

    def advance(self, T: int, priorities: Any = None, valid: np.ndarray | None = None) -> None:
        """Turn on the rows that become valid when the cursor moves past `T` newly written rows, and turn off those that become invalid.

        Args:
            T: number of rows, at most that of the ring.
            priorities: [T,B], or [B] or a number for all rows; None means the default. They belong to the `T` rows from
                `input_priority_shift` rows before the cursor on. Rows that are on take them at once, other rows when turned on. Priorities
                of rows before the first one ever written, and of overwritten rows, are dropped.
            valid: [T,B], bool, True for new steps that may ever be drawn (with `enable_blanks`); None means all.

        Raises:
            ValueError: there are more rows than in the ring; priorities are given without `enable_input_priorities`, have another
                shape, or are not from 0 to `largest_priority`; `valid` is given without `enable_blanks`.
        """
        if priorities is not None:
            priorities = self.checked_input(T, priorities)
        self.claim(T)
        written, claimed = self.written, max(self.claimed, self.written + T)
        oldest = max(claimed - self.T, 0)
        first, end = window(written + T, claimed, self.T, self.off_backward, self.off_forward)
        self._mark_blank(T, valid)
        if self.input_priorities is not None:
            for _, rows in self.rows.pieces(written, written + T):  # Overwrites those of the previous lap.
                self.input_priorities[rows] = self.default_value
        if priorities is not None and self.input_priorities is not None:
            start = written - self.input_priority_shift
            for number, rows in self.rows.pieces(max(start, oldest), start + T):
                n = rows.stop - rows.start
                self.input_priorities[rows] = priorities[number - start : number - start + n]
            self._turn_on(max(start, first), min(start + T, end))
        self._turn_on(max(written - self.off_backward, first), end)
        if self._ring is not None:
            self._ring.advance(T)

    def _turn_on(self, low: int, high: int) -> None:
        self._set_rows(low, high, self.default_value if self.input_priorities is None else self.input_priorities)

    def _set_rows(self, low: int, high: int, values: float | np.ndarray) -> None:
        """Set the priorities of rows number `low` to `high` (exclusive) to a number, or to the same rows of `values` [T,B]."""
        for _, rows in self.rows.pieces(low, high):
            self.priorities[rows] = values[rows] if isinstance(values, np.ndarray) else values
            if self.blank is not None:
                self.priorities[rows][self.blank[rows]] = 0
            kernels.tree_sum_range(self.tree, self._levels, rows.start * self.B, rows.stop * self.B)

    def _mark_blank(self, T: int, valid: np.ndarray | None) -> None:
        """Record which steps of the next `T` rows are never turned on."""
        if self.blank is None:
            if valid is not None:
                raise ValueError("A sum tree was told which steps are valid, but made without enable_blanks=True.")
            return
        written = self.written
        for number, rows in self.rows.pieces(written, written + T):
            begin = number - written
            self.blank[rows] = False if valid is None else ~valid[begin : begin + rows.stop - rows.start]

    def _checked(self, priorities: Any) -> np.ndarray:
        """Return priorities as a float64 array; raise ValueError if one is not a valid priority."""
        priorities = np.asarray(priorities, np.float64)
        good = (priorities >= 0) & (priorities <= self.largest_priority)
        if not good.all():
            raise self._bad_priority(priorities[~good].flat[0])
        return priorities

    def checked_input(self, T: int, priorities: Any) -> np.ndarray:
        """Return input priorities [T,B], or raise ValueError."""
        if not self.enable_input_priorities:
            raise ValueError("Priorities were given to a sum tree that was made without enable_input_priorities=True.")
        priorities = self._checked(priorities)
        try:
            return np.broadcast_to(priorities, (T, self.B))
        except ValueError:
            raise ValueError(
                f"Priorities of {T} rows must be of shape {(T, self.B)} or {(self.B,)}, or a number, got shape {priorities.shape}."
            ) from None

    def _bad_priority(self, priority: float) -> ValueError:
        return ValueError(f"A priority is {priority}, and must be a number from 0 to {self.largest_priority:.3g}: has training diverged?")

    # -----------------------------------------------------------------------------------------------------------------
    # Steps
    # -----------------------------------------------------------------------------------------------------------------
    def draw(self, n: int, unique: bool = False) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Draw `n` steps in proportion to their priorities.

        Args:
            unique: draw without replacement: each further step is drawn in proportion to the priorities of the remaining steps.

        Returns:
            New arrays: ids int64 [n], T_idxs int64 [n], B_idxs int64 [n], priorities float64 [n].

        Raises:
            ValueError: nothing can be drawn yet, or fewer than `n` different steps.
        """
        u = self.rng.random(2 * n if unique else n)
        ids, T_idxs, B_idxs = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int64)
        priorities = np.empty(n)
        first = max(self.claimed - self.T, 0) * self.B
        found = kernels.tree_draw(self.tree, self._levels, self.B, self.size, first, bool(unique), u, ids, T_idxs, B_idxs, priorities)
        if found < n:
            raise self._too_few(n)
        return ids, T_idxs, B_idxs, priorities

    def _too_few(self, n: int) -> ValueError:
        first, end = self.window()
        if first == end:
            return self.rows.nothing_to_replay(self.off_backward, self.off_forward)
        positive = np.count_nonzero(self.priorities)
        if positive == 0:
            return ValueError(
                f"Nothing to replay: the priorities of all {(end - first) * self.B} steps are 0, so there is nothing to learn. If episodes "
                "are truncated within n_step_return steps, lower it or let episodes go on for longer. If all stored rows are blank, which "
                "a sampler without mid_batch_reset leaves after the end of an episode, raise min_steps_learn."
            )
        return ValueError(
            f"{n} different steps were to be drawn, and only {positive} have a priority above 0: lower the batch size, raise "
            "min_steps_learn, or draw with unique=False."
        )

    def sample(self, n: int, unique: bool = False) -> tuple[tuple[np.ndarray, np.ndarray], np.ndarray]:
        """Draw `n` steps like `draw`, and record their ids for `update_batch_priorities`.

        Returns:
            (T_idxs int64 [n], B_idxs int64 [n]), priorities float64 [n].
        """
        self.drawn_ids, T_idxs, B_idxs, priorities = self.draw(n, unique)
        return (T_idxs, B_idxs), priorities

    def update(self, ids: np.ndarray, priorities: np.ndarray) -> None:
        """Set the priorities [n] of the steps `ids` [n] whose rows are on and that are not blank. Of equal ids, the first one counts.

        Raises:
            ValueError: shapes differ, or a priority is not from 0 to `largest_priority`; the tree is then unchanged.
        """
        ids, priorities = np.ascontiguousarray(ids, np.int64), np.ascontiguousarray(priorities, np.float64)
        if ids.shape != priorities.shape or ids.ndim != 1:
            raise ValueError(f"Ids and priorities must both be of shape [n], got {ids.shape} and {priorities.shape}.")
        if self.blank is not None:
            priorities = np.where(self.blank.reshape(-1)[ids % self.size], 0, priorities)
        first, end = self.window()
        first, end = first * self.B, end * self.B
        bad = kernels.tree_update(self.tree, self._levels, ids, priorities, first, end, self.size, self.largest_priority)
        if bad >= 0:
            raise self._bad_priority(priorities[bad])

    def update_batch_priorities(self, priorities: np.ndarray) -> None:
        """Set the priorities [n] of the steps that `sample` returned last in this process.

        Raises:
            ValueError: nothing has been sampled, the shape differs, or a priority is not from 0 to `largest_priority`.
        """
        if self.drawn_ids is None:
            raise ValueError("There are no samples whose priorities to update: call sample first.")
        self.update(self.drawn_ids, priorities)

    # -----------------------------------------------------------------------------------------------------------------
    # The tree itself
    # -----------------------------------------------------------------------------------------------------------------
    def find(self, random_values: np.ndarray) -> np.ndarray:
        """Return the leaves int64 [n] selected by random numbers [n] from 0 to 1, in proportion to their priorities."""
        random_values = np.ascontiguousarray(random_values, np.float64)
        if not ((random_values >= 0) & (random_values <= 1)).all():
            raise ValueError(f"Random numbers must be from 0 to 1, got {random_values.min()} to {random_values.max()}.")
        tree_idxs = np.empty(len(random_values), np.int64)
        kernels.tree_find(self.tree, self._levels, random_values, tree_idxs)
        return tree_idxs

    def reconstruct(self, tree_idxs: np.ndarray, values: np.ndarray) -> None:
        """Set leaves `tree_idxs` [n] to `values` ([n] or a number), whether on or off, and recompute the sums over them."""
        tree_idxs, values = self._checked_leaves(tree_idxs), self._checked(values)
        self.priorities.flat[tree_idxs] = values
        kernels.tree_sum_leaves(self.tree, self._levels, tree_idxs)

    def reconstruct_advance(self, low_on_t: int, high_on_t: int, low_off_t: int, high_off_t: int) -> None:
        """Turn on rows `low_on_t` to `high_on_t` (exclusive), then turn off rows `low_off_t` to `high_off_t`.

        Rows may be counted on beyond T. A high below its low means the row one lap later.
        """
        self._turn_on(low_on_t, high_on_t + self.T * (high_on_t < low_on_t))
        self._set_rows(low_off_t, high_off_t + self.T * (high_off_t < low_off_t), 0.0)

    def propagate_diffs(self, tree_idxs: np.ndarray, diffs: np.ndarray, min_level: int = 1) -> None:
        """Recompute the sums over leaves `tree_idxs` [n], which have changed by `diffs` ([n] or a number).

        Args:
            min_level: 0 first adds `diffs` to the leaves. Any higher level means that the leaves have changed already; `diffs` is ignored.
        """
        tree_idxs = self._checked_leaves(tree_idxs)
        if min_level == 0:
            leaves, which = np.unique(tree_idxs, return_inverse=True)
            diffs = np.broadcast_to(np.asarray(diffs, np.float64), tree_idxs.shape)
            self.priorities.flat[leaves] = self._checked(self.priorities.flat[leaves] + np.bincount(which, diffs))
        kernels.tree_sum_leaves(self.tree, self._levels, tree_idxs)

    def _checked_leaves(self, tree_idxs: np.ndarray) -> np.ndarray:
        """Return a copy int64 [n] of indexes of leaves; raise ValueError if one is out of range."""
        tree_idxs = np.array(tree_idxs, np.int64).reshape(-1)
        if ((tree_idxs < 0) | (tree_idxs >= self.size)).any():
            raise ValueError(f"Leaves have indexes from 0 to {self.size - 1}, got {tree_idxs.min()} to {tree_idxs.max()}.")
        return tree_idxs

    def print_tree(self, level: int | None = None) -> None:
        """Print the values of one level, or of all: 0 is the total, the last one the priorities [T,B]."""
        ends = [*(self._levels[1:] // 8 * 8), None]
        values = [self.tree[begin:end] for begin, end in zip(self._levels, ends)]
        values[0] = self.priorities
        for i in range(len(values)) if level is None else [level]:
            print(f"level {i}:\n{values[-1 - i]}")

    # -----------------------------------------------------------------------------------------------------------------
    # Checkpoints
    # -----------------------------------------------------------------------------------------------------------------
    def state_dict(self) -> dict[str, Any]:
        """Return what `load_state_dict` needs to continue exactly: integers, and copies as torch tensors."""
        import torch

        state = {
            **self._settings(),
            "written": self.written,
            "claimed": self.claimed,
            "priorities": torch.tensor(self.priorities),
            "rng": generator_state(self.rng),
        }
        kept = dict(input_priorities=self.input_priorities, blank=self.blank)
        return state | {name: torch.tensor(array) for name, array in kept.items() if array is not None}

    def _settings(self) -> dict[str, int]:
        names = ("T", "B", "off_backward", "off_forward", "input_priority_shift")
        return {name: int(getattr(self, name)) for name in names}

    def check_state(self, state: dict[str, Any]) -> None:
        """Raise ValueError if the tree of `state` has another size or other settings."""
        check_form(state, dict(written=NATURAL, claimed=NATURAL, priorities=object, rng=str), "The saved sum tree")
        saved = {name: state.get(name) for name in self._settings()}
        if saved != self._settings():
            raise ValueError(f"The saved sum tree has {saved}, and this one {self._settings()}: make it with the same settings.")
        for name in ("input_priorities", "blank"):
            if (name in state) != (getattr(self, name) is not None):
                raise ValueError(
                    f"The saved sum tree has {'' if name in state else 'no '}{name}, unlike this one: make it with the same settings."
                )
        for name in ("priorities", "input_priorities", "blank"):
            own, array = getattr(self, name), numpify_buffer(state.get(name))
            if own is not None and (not isinstance(array, np.ndarray) or (array.shape, array.dtype) != (own.shape, own.dtype)):
                raise ValueError(f"{name!r} of the saved sum tree is not an array {list(own.shape)} of {own.dtype}.")
            if name != "blank" and own is not None and not ((array >= 0) & (array <= self.largest_priority)).all():
                raise ValueError(f"{name!r} of the saved sum tree has values that are not from 0 to {self.largest_priority:g}.")
        if not state["written"] <= state["claimed"] <= state["written"] + self.T:
            raise ValueError(f"The saved sum tree has {state['written']} rows of {state['claimed']}, which cannot be in {self.T} rows.")

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned.

        Raises:
            ValueError: the saved tree has another size or other settings.
        """
        self.check_state(state)
        self.reset()
        if self._ring is not None:
            self._ring.move_to(state["written"], state["claimed"])
        self.priorities[:] = state["priorities"].numpy()
        self.repair()
        if self.input_priorities is not None:
            self.input_priorities[:] = state["input_priorities"].numpy()
        if self.blank is not None:
            self.blank[:] = state["blank"].numpy()
        set_generator_state(self.rng, state["rng"])


def _tree_levels(size: int) -> tuple[np.ndarray, int]:
    """Return the offsets int64 of the levels of a tree of `size` leaves, and its length; see `rlpyt.utils.kernels`."""
    levels, end, n = [], 0, size
    while True:
        padded = -(-n // 8) * 8
        end += padded
        levels.append(end - n)
        if n == 1:
            return np.array(levels, np.int64), end
        n = padded // 8


class AsyncSumTree(SumTree):
    """A sum tree in shared memory: some processes advance rows while others draw.

    A process that changes the tree or draws from it must exclude all others meanwhile. Each process has separate random numbers and latest
    ids.
    """

    async_ = True

    _allocate = staticmethod(np_mp_array)  # type: ignore[assignment]
