"""Memory for steps, row by row. Whole observations are stored here, single frames in `rlpyt.replays.frame`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rlpyt.replays.base import BESIDE_STEPS
from rlpyt.replays.batches import New, pairs_of_leaves, rows_like, take_rows
from rlpyt.replays.ring import Ring, Rows
from rlpyt.returns import discount_return_n_step
from rlpyt.utils.buffer import buffer_from_example, buffer_func, buffer_leaves, numpify_buffer, torchify_buffer
from rlpyt.utils.collections import field_of
from rlpyt.utils.structures import named_leaves

# Fields of samples that `Storage` does not store row by row.
_NOT_IN_ROWS = (*BESIDE_STEPS, "priorities", "prev_rnn_state")


class RowArrays:
    """Stores a structure of numbers for each step of certain rows. An append writes at the cursor of these rows.

    Args:
        example: example of one step, as numpy arrays.
        name: name of `example` in errors and checkpoints.
        rows: the rows to store: all rows of a ring, or one per interval.
        B: number of environments.
        share_memory: whether processes started later see the same arrays.
        fields: examples of the fields that samples must have; None means the field `name`.
        n_more: number of extra rows of memory after the rows of all steps.

    Attributes:
        memory: [T*B+n_more,...]; step (t, b) lies in row ``t * B + b``.
        samples: the steps as [T,B,...], over the same memory.
    """

    def __init__(
        self, example: Any, name: str, rows: Rows, B: int, share_memory: bool, fields: dict[str, Any] | None = None, n_more: int = 0
    ) -> None:
        self.name, self.rows, self.B = name, rows, B
        self.T, self.size = rows.T, rows.T * B
        leaves = [leaf for field, part in (fields or {name: example}).items() for leaf in named_leaves(part, field)]
        self._expected = [(field, np.shape(leaf), np.asarray(leaf).dtype) for field, leaf in leaves]
        self.memory = buffer_from_example(example, self.size + n_more, share_memory)
        self._make_views()

    def _make_views(self) -> None:
        self.samples = buffer_func(self.memory, lambda memory: memory[: self.size].reshape(self.T, self.B, *memory.shape[1:]))

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "samples"}  # Copies of views would have separate memory.

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._make_views()

    def check(self, samples: Any, n: int) -> None:
        """Check samples [n,B,...] before anything is written.

        Raises:
            ValueError: a field does not fit; the message names the field, what is expected, and what was given.
        """
        for name, shape, dtype in self._expected:
            new = samples
            for field in name.split("."):
                new = field_of(new, field)
            shape = (n, self.B, *shape)
            if new is None:
                raise ValueError(f"Samples lack '{name}', which the example of the replay buffer had.")
            if new.shape != shape:
                raise ValueError(f"'{name}' of samples must have shape {shape}, as the example of the replay buffer says, got {new.shape}.")
            if dtype != np.bool_ and not np.can_cast(new.dtype, dtype, "same_kind"):
                raise ValueError(f"'{name}' of samples must be {dtype}, as in the example of the replay buffer, got {new.dtype}.")

    def named_arrays(self) -> list[tuple[str, np.ndarray]]:
        """Return all arrays [T,B,...] with their names."""
        return named_leaves(self.samples, self.name)

    def chunk(self, number: int, n: int) -> dict[str, Any]:
        """Return tensors over the memory of `n` rows of the ring, from row `number` on. The rows must not wrap around."""
        rows = self.rows.piece(number, n)
        return {name: torchify_buffer(leaf[rows]) for name, leaf in self.named_arrays()}

    def check_chunk(self, chunk: dict[str, Any], number: int, n: int) -> None:
        """Raise ValueError unless `chunk` is one of such a part, for `n` rows from `number` on."""
        rows = self.rows.piece(number, n)
        for name, leaf in self.named_arrays():
            check_saved(chunk, name, leaf[rows].shape, leaf.dtype)

    def load_chunk(self, chunk: dict[str, Any], number: int, n: int) -> None:
        """Restore what `chunk` returned."""
        rows = self.rows.piece(number, n)
        for name, leaf in self.named_arrays():
            leaf[rows] = numpify_buffer(chunk[name])


class Storage(RowArrays):
    """Stores steps with whole observations.

    `memory` has an extra row for the action and reward that the agent gets after a reset.

    Args:
        example: one step, as numpy arrays.
        ring: the ring whose rows are stored.
        B, share_memory: those of `RowArrays`.

    Attributes:
        timeout, valid: [T*B+1], or [0] if steps lack that field.
    """

    def __init__(self, example: Any, ring: Ring, B: int, share_memory: bool) -> None:
        fields = steps_alone(example)._asdict()
        super().__init__(self.stored_example(example), "samples", ring, B, share_memory, fields, n_more=1)
        absent = np.empty(0, np.bool_)  # Stands for an absent field in calls of kernels.
        self.timeout, self.valid = (absent if x is None else x for x in (field_of(self.memory, name) for name in ("timeout", "valid")))

    # -----------------------------------------------------------------------------------------------------------------
    # The stored form of observations
    # -----------------------------------------------------------------------------------------------------------------
    @classmethod
    def stored_example(cls, example: Any) -> Any:
        """Return an example of a stored row.

        Raises:
            ValueError: this class cannot store such observations.
        """
        return steps_alone(example)

    @classmethod
    def rows_before(cls, example: Any) -> int:
        """Return the number of earlier rows needed to read a step: one, for the previous action and reward, or more."""
        return 1

    def stored_observation(self, observation: Any) -> Any:
        """Return observations [n,B,...] in stored form."""
        return observation

    def completed(self, stored: Any, before: Callable[[], Any]) -> Any:
        """Return the observations [n,...] for `stored` [n,...] from outside this memory; `before` returns those one step earlier."""
        return stored

    # -----------------------------------------------------------------------------------------------------------------
    # Writing
    # -----------------------------------------------------------------------------------------------------------------
    def write(self, samples: Any, n: int) -> None:
        """Write samples [n,B,...] at the cursor."""
        rows = self.rows.rows(0, n)
        for name, memory in self.samples.items():
            if name == "observation":
                self._write_observation(rows, samples.observation)
            elif memory is not None:
                memory[rows] = getattr(samples, name)

    def _write_observation(self, rows: slice | np.ndarray, observation: Any) -> None:
        self.samples.observation[rows] = observation

    def valid_at(self, rows: np.ndarray) -> np.ndarray | None:
        """Return a mask [n,B] of the steps in rows [n] that are not blank; None if no step can be blank."""
        return self.samples.valid[rows].astype(bool) if len(self.valid) else None

    # -----------------------------------------------------------------------------------------------------------------
    # Reading
    # -----------------------------------------------------------------------------------------------------------------
    def observation_memory(self, *leading_dims: int, new: New = np.empty) -> Any:
        """Allocate memory for observations [*leading_dims,...] by `new`."""
        return rows_like(self.memory.observation, *leading_dims, new=new)

    def observations(self, T_idxs: np.ndarray, B_idxs: np.ndarray, T: int | None = None) -> Any:
        """Return copies of the observations [n,...] at ``[T_idxs, B_idxs]``; with `T`, those [T,n,...] of `T` steps from there on."""
        return self.samples.observation[T_idxs if T is None else self.rows.wrap(T_idxs + np.arange(T)[:, None]), B_idxs]

    def gather(self, rows: np.ndarray, T_idxs: np.ndarray, B_idxs: np.ndarray, n_steps: np.ndarray | None, out: Any) -> None:
        """Write the observations of transitions over `n_steps` [n], or of sequences if that is None, to `out`.

        Args:
            rows: rows of `memory` to copy: [2n], where transitions start and then where they end; or [T,n], those of sequences.
            T_idxs, B_idxs: [n], where transitions or sequences start.
            out: [2n,...] for transitions, or [T,n,...] for sequences.
        """
        take_rows(pairs_of_leaves(self.memory.observation, rows, out))


class NStepReturns:
    """The `n_step` returns of the steps in a storage.

    Attributes:
        return_: [T*B], ``r_t + γ r_{t+1} + ... + γ^{n-1} r_{t+n-1}``, cut off at the end of the episode.
        done_n: [T*B], whether the episode ended within these n steps.
    """

    def __init__(self, storage: Storage, n_step: int, discount: float, share_memory: bool) -> None:
        self.storage, self.n_step, self.discount = storage, n_step, discount
        if n_step > 1:
            steps = storage.memory
            return_ = np.zeros((), np.result_type(steps.reward.dtype, np.float32))
            self._return = buffer_from_example(return_, storage.size, share_memory)
            self._done_n = buffer_from_example(steps.done[0], storage.size, share_memory)

    @property
    def return_(self) -> np.ndarray:
        return self._return if self.n_step > 1 else self.storage.memory.reward[:-1]

    @property
    def done_n(self) -> np.ndarray:
        return self._done_n if self.n_step > 1 else self.storage.memory.done[:-1]

    @property
    def as_T_B(self) -> tuple[np.ndarray, np.ndarray]:
        """`return_` and `done_n` as [T,B]."""
        shape = self.storage.T, self.storage.B
        return self.return_.reshape(shape), self.done_n.reshape(shape)

    def complete(self, n: int) -> None:
        """Compute the returns that the `n` rows just written complete. Called before the cursor advances."""
        if self.n_step == 1:
            return
        ring, samples = self.storage.rows, self.storage.samples
        known = ring.rows(1 - self.n_step, n + self.n_step - 1)
        completed = ring.rows(1 - self.n_step, n)
        return_, done_n = self.as_T_B
        return_[completed], done_n[completed] = discount_return_n_step(
            samples.reward[known], samples.done[known], self.n_step, self.discount
        )

    def end_episodes(self, B_idxs: np.ndarray) -> None:
        """Mark the newest row as the end of the episodes of environments `B_idxs`."""
        if self.storage.rows.written >= self.n_step:  # The next append computes the later returns.
            self.as_T_B[1][self.storage.rows.row(-self.n_step), B_idxs] = True


def check_saved(saved: dict[str, Any], name: str, shape: tuple[int, ...], dtype: Any) -> None:
    """Raise ValueError unless a tensor of this name, shape and dtype was saved."""
    tensor = saved.get(name)
    array = None if tensor is None else numpify_buffer(tensor)
    if not isinstance(array, np.ndarray) or (array.shape, array.dtype) != (tuple(shape), dtype):
        kind = array.dtype if isinstance(array, np.ndarray) else type(array).__name__
        found = "is missing" if array is None else f"has shape {np.shape(array)} and {kind}"
        raise ValueError(
            f"'{name}' of the saved replay buffer {found}, but this one stores shape {tuple(shape)} and {dtype}: make it with the same "
            "environment, agent and settings."
        )


def steps_alone(samples: Any) -> Any:
    """Return `samples` with None for fields that have other leading dimensions or are not stored with steps."""
    return samples._replace(**{name: None for name in _NOT_IN_ROWS if name in samples._fields})


def step_bytes(example: Any) -> int:
    """Return the number of bytes of `example`, one step."""
    return sum(np.asarray(leaf).nbytes for leaf in buffer_leaves(example))
