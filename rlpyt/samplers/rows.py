"""The rows of a batch, as the training loop writes them, and checks of what it has written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from rlpyt.envs.base import as_flag
from rlpyt.spaces.gym_wrapper import fits_losslessly
from rlpyt.types import Samples
from rlpyt.utils.buffer import buffer_leaves, element, first_not_finite, float_leaves
from rlpyt.utils.collections import field_of, fields_of
from rlpyt.utils.structures import map_structure
from rlpyt.utils.text import plural

FLAGS = frozenset([bool, np.bool_])

# numpy dtypes that a memoryview can hold. It takes numbers only, where an array would take "1.0", None as NaN, and cut off decimals; and
# it is faster.
_CELL_TYPES = frozenset("?bBhHiIlLqQfd")


def step_of_batch(t: int, itr: int, batch_T: int) -> str:
    """Return what messages call step `t` of batch `itr`."""
    return f"step {t} of batch {itr} (environment step {itr * batch_T + t})"


def step_of_evaluation(t: int, itr: int) -> str:
    """Return what messages call step `t` of the evaluation at iteration `itr`."""
    return f"step {t} of the evaluation at iteration {itr}"


def env_rows(buffer_: Any, B: int) -> list:
    """Return the `B` rows of a structure ``[B,...]`` as writable structures of views, also where a row is a single number."""
    return [map_structure(lambda x, b=b: x[b, ...], buffer_) for b in range(B)]


def _cells(array: Any) -> Any:
    """Return a memoryview of an array ``[B]``, which writes single numbers fast; other arrays as they are."""
    is_plain = array.ndim == 1 and array.dtype.isnative and array.dtype.char in _CELL_TYPES
    return memoryview(array) if is_plain else array


def _column_cells(column: Any, name: str) -> Any:
    """Return what writes the values of a field of env_info into its column, a structure ``[B,...]`` or None."""
    if column is None:
        return _Checked(column, name)
    if fields_of(column) is not None:
        return _CheckedParts(column, name)
    cells = _cells(column)
    return _CheckedArrays(column, name) if cells is column else cells


def fit(b: int, value: Any, column: Any, name: str) -> None:
    """Write a `value` that a plain assignment has refused into a column of env_info, such as an array with one element for a number.

    Raises:
        ValueError: it does not fit; names the field.
    """
    if column is None:
        if value is not None:
            raise ValueError(f"{name}: expected None at every step, as at the first one, got {value!r}.")
    elif isinstance(column, tuple):
        fields, expected = fields_of(value), fields_of(column) or ()
        if fields is None or fields != expected:
            got = type(value).__name__ if fields is None else f"fields {list(fields)}"
            raise ValueError(f"{name}: expected the fields {list(expected)} at every step, got {got}.")
        for field, part, part_column in zip(fields, tuple(value), tuple(column)):
            fit(b, part, part_column, f"{name}.{field}")
    else:
        try:
            array = np.asarray(value)
        except ValueError:  # Lists of different lengths.
            array = np.asarray(None)
        dtype, shape = column.dtype, column.shape[1:]
        if not (_assigns(array.shape, shape) and (fits_losslessly(array, dtype) or _is_truth(array, dtype))):
            raise ValueError(f"{name}: expected dtype {dtype} and shape {shape}, as at the first step, got {value!r}.")
        column[b] = array.reshape(()) if shape == () else array


def _assigns(shape: tuple[int, ...], to: tuple[int, ...]) -> bool:
    """Return whether numpy broadcasts an array of one shape to the other, or it is an array with one element for a number."""
    try:
        return np.broadcast_shapes(shape, to) == (1,) * (len(shape) - len(to)) + to
    except ValueError:
        return False


def _is_truth(array: np.ndarray, dtype: np.dtype) -> bool:
    """Return whether these are numbers for a field of booleans, which takes any."""
    return dtype.kind == "b" and array.dtype.kind in "biufc"


class _Checked:
    """Writes the values of an env_info field into its column ``[B,...]``, and refuses those that do not fit."""

    def __init__(self, column: Any, name: str) -> None:
        self.column, self.name = column, name

    def __setitem__(self, b: int, value: Any) -> None:
        fit(b, value, self.column, self.name)


class _CheckedArrays(_Checked):
    """The same for arrays: a plain assignment would cut off decimals, and wrap large numbers."""

    def __init__(self, column: np.ndarray, name: str) -> None:
        super().__init__(column, name)
        self._dtype, self._shape = column.dtype, column.shape[1:]

    def __setitem__(self, b: int, value: Any) -> None:
        if type(value) is np.ndarray and value.dtype == self._dtype and value.shape == self._shape:
            self.column[b] = value
        else:
            super().__setitem__(b, value)


class _CheckedParts(_Checked):
    """The same for structures, whose parts have columns of their own."""

    def __init__(self, column: Any, name: str) -> None:
        super().__init__(column, name)
        self._fields = fields_of(column) or ()
        self._cells = [_column_cells(part, f"{name}.{field}") for field, part in zip(self._fields, tuple(column))]

    def __setitem__(self, b: int, value: Any) -> None:
        if fields_of(value) == self._fields:
            for cells, part in zip(self._cells, tuple(value)):
                cells[b] = part
        else:
            super().__setitem__(b, value)


class StepRow:
    """Memory for the outcomes of a step, which environments and loops write, except for env_info: views, made once.

    Args:
        observations: for each environment a writable structure, for the observation after the step.
        reward: array ``[B]``.
        done: bool ``[B]``, False where no outcome is written.

    Attributes:
        reward_cells, done_cells: `reward` and `done` as memory for single numbers.
        column_cells: memory for the fields of env_info; here none.
        only_column: the first of `column_cells`, if there is only one; else None.
    """

    columns: tuple = ()
    column_cells: tuple = ()
    only_column: Any = None

    def __init__(self, observations: list, reward: Any, done: Any) -> None:
        self.observations = observations
        self.reward_cells, self.done_cells = _cells(reward), _cells(done)

    def check(self, env_info: Any) -> bool:
        """Check an env_info of a new type; return whether its field ``traj_done`` ends trajectories: here the loop looks itself."""
        return False


class Row(StepRow):
    """Row `t` of a batch, where the training loop writes the outcomes of step `t`.

    Attributes:
        next_observation: structure ``[B,...]``, row ``t + 1`` of the observations.
        reward, done, timeout, traj_done: arrays ``[B]``; `traj_done` is what resets an environment.
        valid: array ``[B]``, False where the row is blank; None if no row can be.
        columns: the fields of env_info, structures ``[B,...]``; None for one that is None.
        env_timeout: the field of that name, or None.
    """

    def __init__(self, batch: Samples, t: int) -> None:
        self.next_observation = batch.env.next_observation[t]
        self.reward, self.done, self.timeout = batch.env.reward[t], batch.env.done[t], batch.env.timeout[t]
        self.valid = None if batch.env.valid is None else batch.env.valid[t]
        super().__init__(env_rows(self.next_observation, len(self.reward)), self.reward, self.done)
        env_info: Any = None if batch.env.env_info is None else batch.env.env_info[t]
        self.columns = () if env_info is None else tuple(env_info)
        self._fields: tuple = () if env_info is None else env_info._fields
        self.column_cells = tuple(_column_cells(column, f"env_info.{name}") for column, name in zip(self.columns, self._fields))
        self.only_column = self.column_cells[0] if len(self.column_cells) == 1 else None
        self.env_timeout = field_of(env_info, "timeout")
        self.traj_done = field_of(env_info, "traj_done", self.done)

    def check(self, env_info: Any) -> bool:
        """Check an env_info of a new type; return whether its field ``traj_done`` ends trajectories.

        Raises:
            ValueError: env_info has other fields than those for which there is memory. TypeError: a flag is not a bool.
        """
        if self.columns:
            check_env_info(env_info, self._fields)
        return self.traj_done is not self.done


class EndSlots:
    """Memory of a batch for observations that end episodes; each environment fills its slots in turn.

    Args:
        memory: structure ``[K,B,...]``; None if these observations are not kept.
        env_ranks: numbers of the environments among all, for messages.

    Attributes:
        n: int ``[B]``, how many slots of each environment are in use.
    """

    def __init__(self, memory: Any, env_ranks: Sequence[int]) -> None:
        self.memory, self._env_ranks = memory, env_ranks
        self.n = np.zeros(len(env_ranks), np.int64)

    def keep(self, columns: Any, observation: Any) -> None:
        """Copy the rows `columns`, a number or an array [k], of a structure ``[B,...]`` to the next slots of these environments.

        Raises:
            ValueError: an environment has no slot left.
        """
        if self.memory is None:
            return
        try:
            for slots, leaf in zip(buffer_leaves(self.memory), buffer_leaves(observation), strict=True):
                slots[self.n[columns], columns] = leaf[columns]
        except IndexError:
            b = max(np.atleast_1d(columns), key=self.n.__getitem__)
            raise ValueError(
                f"Environment {self._env_ranks[b]} was truncated more than {plural(self.n[b], 'time')} in a batch. It says "
                "truncates_only_at_horizon=True, and its horizon allows no more: let it say False. (A trajectory that ends without done "
                "counts as truncated.)"
            ) from None
        self.n[columns] += 1


# ---------------------------------------------------------------------------------------------------------------------
# Checks
# ---------------------------------------------------------------------------------------------------------------------
class Fault(NamedTuple):
    """A value in a full batch that cannot be.

    Attributes:
        text: says what is wrong with it.
        b: its column.
        t: its row; None where only the batch is known.
        when: where in the row, or the batch, whose name takes the place of the braces.
    """

    text: str
    b: int
    t: int | None
    when: str = "{}"


def check_env_info(env_info: Any, fields: tuple[str, ...]) -> None:
    """Raise ValueError, or TypeError, if env_info has other fields than these, for which there is memory, or if a flag is not a bool."""
    got = fields_of(env_info)
    if got != fields:
        said = type(env_info).__name__ if got is None else f"fields {list(got)}"
        raise ValueError(f"env_info: expected the fields {list(fields)} at every step, got {said}.")
    for name in {"timeout", "traj_done"}.intersection(fields):
        as_flag(getattr(env_info, name), f"env_info.{name}")


def reward_fault(batch: Samples) -> Fault | None:
    """Find a reward that is not a finite number."""
    where = first_not_finite(batch.env.reward)
    if where is None:
        return None
    return Fault(f"reward: expected a finite number, got {batch.env.reward[where]}.", b=where[1], t=where[0])


def timeout_fault(batch: Samples) -> Fault | None:
    """Find a step of which env_info says that time ran out, although the episode did not end."""
    timeout = field_of(batch.env.env_info, "timeout")
    if timeout is None or not (wrong := timeout > batch.env.done).any():
        return None
    t, b = np.argwhere(wrong)[0]
    return Fault("env_info.timeout: expected False where done is False, got True: a timeout ends the episode.", b, t)


class FloatLeaves:
    """The observations of a batch that are floating point numbers, looked up once.

    Args:
        batch: the batch, as numpy arrays.
    """

    def __init__(self, batch: Samples) -> None:
        self._done = batch.env.done
        self._first, self._next, *self._slots = (
            float_leaves(x, "observation")
            for x in (batch.env.observation[:1], batch.env.next_observation, batch.final_observation, batch.terminal_observation)
        )

    def fault(self, *n_slots: np.ndarray) -> Fault | None:
        """Find an observation that is NaN or infinite.

        Args:
            n_slots: for final observations and for terminal ones, how many slots of each column are in use, int [B].
        """
        for name, leaf in self._first:
            if (where := first_not_finite(leaf)) is not None:
                return self._fault(name, leaf, where, t=0, when="before {}")
        for name, leaf in self._next:
            if (where := first_not_finite(leaf)) is not None:
                when = "after a reset" if self._done[where[:2]] else "observed"
                return self._fault(name, leaf, where, t=where[0], when=f"{when} at the end of {{}}")
        for floats, used in zip(self._slots, n_slots):
            for name, leaf in floats:
                if (n := used.max()) and (where := first_not_finite(leaf[:n])) is not None:
                    return self._fault(name, leaf, where, t=None, when="at the end of an episode, in {}")
        return None

    @staticmethod
    def _fault(name: str, leaf: np.ndarray, where: tuple[int, ...], t: int | None, when: str) -> Fault:
        return Fault(f"{element(name, where[2:])}: expected a finite number, got {leaf[where]}.", where[1], t, when)
