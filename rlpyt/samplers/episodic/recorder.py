"""Workers record steps in chunks of ``[T,B]`` memory, whose rows become episodes (see `rlpyt.episodes.segments`).

Environments write observations into the next row, which is both the policy's next input and the recorded observation.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from rlpyt.envs.base import holds, write_observation
from rlpyt.envs.specs import StepType
from rlpyt.episodes.segments import Episode, Episodes, Segment, flat_leaves
from rlpyt.models.utils import keep_large_blocks
from rlpyt.samplers.rows import StepRow
from rlpyt.utils.array import aligned
from rlpyt.utils.structures import as_array, as_dictionaries, copied, from_objects, is_info, map_structure, stack

CHUNK_BYTES = 16 * 1024**2  # Approximate size of a chunk's observations. In larger chunks, a finished episode keeps more memory busy.
MAX_CHUNK_T = 256  # Largest number of rows of a chunk.

FIRST, MID, TERMINAL, TIMEOUT = (int(t) for t in (StepType.FIRST, StepType.MID, StepType.TERMINAL, StepType.TIMEOUT))


# ---------------------------------------------------------------------------------------------------------------------
# Columns of infos and actions
# ---------------------------------------------------------------------------------------------------------------------
class Column:
    """The values of one field: an array ``[T,B,...]`` with the shape of the first value and a dtype that holds all values.

    Strings, and other values that are not numbers, are stored as objects in an array ``[T,B]``, whatever their shape. Each is a copy.
    """

    def __init__(self, name: str, array: np.ndarray, type_: type, shape: tuple) -> None:
        self.name, self.array, self._type, self._shape = name, array, type_, shape
        self._row_shape = (array.shape[1], *shape)
        self._has_entries = array.ndim == 2 + len(shape)  # False for objects such as lists of strings.
        self._is_scalar = issubclass(type_, (bool, int, float, np.generic))  # Then the type determines dtype and shape.

    @classmethod
    def allocate(cls, name: str, example: Any, T: int, B: int) -> Column:
        """Make a column for values like `example`."""
        value = as_array(name, example)
        is_number = value.dtype.kind in "biufc"
        array = np.zeros((T, B, *value.shape), value.dtype) if is_number else np.zeros((T, B), object)
        return cls(name, array, type(example), value.shape)

    def like(self) -> Column:
        """Make an empty column of the same field."""
        return Column(self.name, np.zeros_like(self.array), self._type, self._shape)

    def put(self, t: int, b: int, value: Any) -> None:
        """Write one value."""
        if type(value) is not self._type or not self._is_scalar:
            self._fit(as_array(self.name, value), 0)
            if self.array.dtype == object:
                value = copied(value)
        try:
            self.array[t, b] = value
        except OverflowError:  # One of Python's integers, which may have any size.
            self.array = self.array.astype(object)
            self.array[t, b] = value

    def put_row(self, t: int, values: Any) -> None:
        """Write the values of all columns, ``[B,...]``."""
        if type(values) is not np.ndarray:
            values = as_array(self.name, values)
        if values.dtype != self.array.dtype or values.shape != self._row_shape:
            self._fit(values, 1)
        if self._has_entries:
            self.array[t] = copied(values) if values.dtype == object else values
        else:
            for b, value in enumerate(values):
                self.array[t, b] = copied(value)

    def _fit(self, values: np.ndarray, n_leading: int) -> None:
        """Widen the dtype if it cannot hold these values; raise ValueError for another shape."""
        array = self.array
        if values.shape != (self._row_shape if n_leading else self._shape):
            got = values.shape[n_leading:]
            if got == self._shape:
                raise _other_number(self.name, len(array[0]), values)
            raise ValueError(f"{self.name}: expected shape {self._shape} at every step, got {got}.")
        if values.dtype == array.dtype or array.dtype == object:
            return
        if not np.can_cast(values.dtype, array.dtype, "safe"):
            numbers = values.dtype.kind in "biufc"
            self.array = array.astype(np.promote_types(values.dtype, array.dtype) if numbers else object)


class Table:
    """The fields of an info (a dictionary or namedtuple, possibly nested): one `Column` per key. The first info fixes the keys."""

    def __init__(self, name: str, parts: dict[str, Column | Table] | None = None) -> None:
        self.name, self.parts, self.is_allocated = name, parts or {}, parts is not None
        self._type: Any = None  # The last fitting namedtuple type: its fields are those of `parts`, in order.

    def allocate(self, info: Any, T: int, B: int, batched: bool) -> None:
        """Make columns for infos like `info`, which has leading dimension B if `batched`."""
        self.is_allocated = True
        self.parts = {key: new_part(f"{self.name}[{key!r}]", value, T, B, batched) for key, value in self._items_of(info)}

    def like(self) -> Table:
        """Make an empty table of the same fields."""
        return Table(self.name, {key: part.like() for key, part in self.parts.items()} if self.is_allocated else None)

    def put(self, t: int, b: int, info: Any) -> None:
        """Write one info."""
        n, parts = 0, self.parts
        if type(info) is self._type:
            for part, value in zip(parts.values(), tuple(info)):
                part.put(t, b, value)
            return
        for key, value in self._items_of(info):
            if key not in parts:
                self._refuse(info)
            parts[key].put(t, b, value)
            n += 1
        if n != len(parts):
            self._refuse(info)
        if getattr(info, "_fields", None) == tuple(parts):
            self._type = type(info)

    def put_row(self, t: int, infos: Any) -> None:
        """Write the infos of all columns, with leading dimension B."""
        n, parts = 0, self.parts
        for key, values in self._items_of(infos):
            if key not in parts:
                self._refuse(infos)
            parts[key].put_row(t, values)
            n += 1
        if n != len(parts):
            self._refuse(infos)

    def _items_of(self, info: Any) -> Any:
        try:
            return _items(info)
        except AttributeError:
            raise ValueError(f"{self.name}: expected a dictionary at every step, got {type(info).__name__}.") from None

    def _refuse(self, info: Any) -> None:
        got = [key for key, _ in _items(info)]
        raise ValueError(f"{self.name}: expected the keys {list(self.parts)} at every step, got {got}.")


def _other_number(name: str, B: int, values: np.ndarray) -> ValueError:
    return ValueError(f"{name}: expected one entry for each of the {B} environments, got shape {values.shape}.")


def _items(info: Any) -> Any:
    if info is None:
        return ()
    return info.items() if type(info) is dict or isinstance(info, Mapping) else zip(info._fields, tuple(info))


def new_part(name: str, example: Any, T: int, B: int, batched: bool) -> Column | Table:
    """Make memory for values like `example`, which has leading dimension B if `batched`."""
    if is_info(example):
        table = Table(name)
        table.allocate(example, T, B, batched)
        return table
    if batched:
        values = as_array(name, example)
        if values.shape[:1] != (B,):
            raise _other_number(name, B, values)
        example = values[0]
    return Column.allocate(name, example, T, B)


def _column_leaves(part: Column | Table | None, path: tuple) -> Iterator[tuple[tuple, np.ndarray]]:
    if isinstance(part, Column):
        yield path, part.array
    elif part is not None:
        for key, inner in part.parts.items():
            yield from _column_leaves(inner, (*path, key))


# ---------------------------------------------------------------------------------------------------------------------
# Chunks
# ---------------------------------------------------------------------------------------------------------------------
class Chunk:
    """`T` steps of `B` columns.

    Args:
        observation: an example of the first observations.
        B: number of columns.
        reward_dtype: dtype of rewards.

    Attributes:
        observation: structure of arrays ``[T+1,B,...]``; those of text have dtype object.
        reward: ``[T,B]``.
        step_type: uint8 ``[T,B]``.
        action, env_info, agent_info: columns, allocated at the first value.
    """

    def __init__(self, observation: Any, B: int, reward_dtype: Any) -> None:
        arrays = map_structure(np.asarray, observation)
        n_bytes = B * sum(leaf.nbytes for _, leaf in flat_leaves(as_dictionaries(arrays)))
        self.T = T = int(min(max(CHUNK_BYTES // max(n_bytes, 1), 8), MAX_CHUNK_T))
        self.B = B
        # Text of any length: an array of characters would cut later observations to the length of the first one.
        self.observation = map_structure(lambda x: np.empty((T + 1, B, *x.shape), object if x.dtype.kind in "SU" else x.dtype), arrays)
        # Idle columns, too, because the policy may use them.
        map_structure(lambda rows, x: np.copyto(rows[0], x), self.observation, arrays)
        self.reward, self.step_type = np.zeros((T, B), reward_dtype), np.full((T, B), MID, np.uint8)
        self.env_info = Table("env_info")
        self.forget_actions()

    def forget_actions(self) -> None:
        """Forget the form of actions and agent_infos, so that the next ones may have another."""
        self.action: Column | Table | None = None
        self.agent_info = Table("agent_info")

    def next(self, t: int) -> Chunk:
        """Make the chunk that follows row `t - 1`; its first row has the observations of row `t`."""
        chunk = copy.copy(self)
        chunk.observation = map_structure(np.empty_like, self.observation)
        map_structure(lambda new, old: np.copyto(new[0], old[t]), chunk.observation, self.observation)
        chunk.reward, chunk.step_type = np.zeros_like(self.reward), np.full_like(self.step_type, MID)
        chunk.action = None if self.action is None else self.action.like()
        chunk.env_info, chunk.agent_info = self.env_info.like(), self.agent_info.like()
        return chunk

    def widen(self, observation: Any) -> None:
        """Give numbers in observations a dtype that also holds those of `observation`, which has the same structure."""

        def wide(rows: np.ndarray, x: Any) -> np.ndarray:
            array = np.asarray(x)
            is_number = array.dtype.kind in "biufc" and rows.dtype.kind in "biufc"
            return rows.astype(np.promote_types(rows.dtype, array.dtype)) if is_number and not holds(rows.dtype, array) else rows

        self.observation = map_structure(wide, self.observation, observation)

    def observations_of(self, t: int) -> list:
        """Return the observations of row `t` as one writable structure per column."""
        if isinstance(self.observation, np.ndarray):
            return [self.observation[t, b, ...] for b in range(self.B)]
        return [map_structure(lambda x, b=b: x[t, b, ...], self.observation) for b in range(self.B)]

    def put_actions(self, t: int, actions: Any, agent_infos: Any) -> None:
        """Write the actions and agent_infos of all columns, with leading dimension B."""
        if self.action is None:
            self.action = new_part("action", actions, self.T, self.B, batched=True)
            self.agent_info.allocate(agent_infos, self.T, self.B, batched=True)
        self.action.put_row(t, actions)
        self.agent_info.put_row(t, agent_infos)

    def leaves(self) -> dict[tuple, np.ndarray]:
        """Return all arrays ``[T,B,...]`` by path; observations have one row more."""
        return {
            **dict(flat_leaves(as_dictionaries(self.observation), ("observations",))),
            **dict(_column_leaves(self.action, ("actions",))),
            ("rewards",): self.reward,
            ("step_types",): self.step_type,
            **dict(_column_leaves(self.env_info, ("env_infos",))),
            **dict(_column_leaves(self.agent_info, ("agent_infos",))),
        }


def _as_text(objects: np.ndarray) -> np.ndarray:
    """Return objects that are all text as an array of characters, and others as they are."""
    array = from_objects(objects)
    return array if array.dtype.kind in "SU" else objects


# ---------------------------------------------------------------------------------------------------------------------
# The recorder
# ---------------------------------------------------------------------------------------------------------------------
class _Open:
    """An episode in progress.

    Attributes:
        start: first row of the current chunk that is not yet in `segments`.
        length: steps since the beginning of the episode.
    """

    __slots__ = ("segments", "start", "length", "episode_info")

    def __init__(self, start: int, episode_info: dict) -> None:
        self.segments: list[Segment] = []
        self.start, self.length, self.episode_info = start, 0, episode_info

    def end_segment(self, chunk: Chunk, b: int, stop: int, start: int) -> None:
        """End the segment before row `stop`; the next one begins with row `start`."""
        if self.start < stop:
            self.segments.append(Segment(chunk, b, self.start, stop))
        self.start = start


class Recorder:
    """Records the steps of one worker's environments.

    In each time step the worker calls `act` with the policy's actions. Environments write into `row`. For each of them the worker calls
    `record`, and `end` if its episode ends. Then it calls `advance`.

    Args:
        B: number of columns, one per environment.

    Attributes:
        has_memory: whether there is a chunk for observations of the present form.
        running: the columns with an episode in progress, in ascending order.
        open: the episodes in progress by column.
        last: by column, the last observation of the last episode.
        inputs: for each column the memory of the policy's next observation.
        row: the memory for what the environments return in the current step, except for env_info.
    """

    chunk: Chunk
    inputs: list

    def __init__(self, B: int) -> None:
        self.B = B
        self.env_spec: Any = None
        self.has_memory = False
        self.t = 0
        self.open: dict[int, _Open] = {}
        self.running: list[int] = []
        self.last: dict[int, Any] = {}
        self._finished: list[Episode] = []
        self.row = StepRow([], np.zeros(B), np.zeros(B, bool))  # Nobody reads `done`: step types tell which episodes end.

    def forget_actions(self) -> None:
        """Let later actions and agent_infos have another form, also in the middle of episodes.

        Call `cut` for these episodes first: one episode cannot hold both forms.
        """
        if self.has_memory and self.chunk.action is not None:
            self._use(self._next_chunk())
            self.chunk.forget_actions()

    def allocate(self, observation: Any, reward_dtype: Any) -> None:
        """Allocate the first chunk, for observations like `observation`."""
        keep_large_blocks()  # Chunks all have the same size.
        self.has_memory = True
        self._use(Chunk(observation, self.B, reward_dtype))

    @property
    def observation(self) -> Any:
        """The observations of all columns, a structure of arrays ``[B,...]``; an idle column keeps its last observation.

        They begin at aligned addresses: a worker that is resumed is at another row of its chunk than one that went on.
        """
        t = self.t
        return map_structure(lambda x: aligned(x[t] if x.dtype != object else _as_text(x[t])), self.chunk.observation)

    def begin(self, b: int, episode_info: dict) -> None:
        """Begin an episode in column `b`, whose first observation is in ``inputs[b]``.

        `episode_info` is copied, because an environment may use the same dictionary and arrays for its next episode.
        """
        self.open[b] = _Open(self.t, copied(episode_info))
        self.running = sorted(self.open)

    def set_input(self, b: int, observation: Any) -> None:
        """Write the next input of column `b`."""
        map_structure(lambda out, x: np.copyto(out, x), self.inputs[b], observation)

    def widen(self, b: int, observation: Any, out: Any) -> Any:
        """Return memory in the place of `out`, the input or the row of column `b`, with dtypes that hold the numbers of an observation."""
        is_input = out is self.inputs[b]
        write_observation(observation, map_structure(lambda x: np.empty(x.shape, object), out))  # Raises if it has another structure.
        self.chunk.widen(observation)
        # In place, because the environments are being stepped.
        self.inputs[:], self.row.observations[:] = (self.chunk.observations_of(t) for t in (self.t, self.t + 1))
        return (self.inputs if is_input else self.row.observations)[b]

    def act(self, actions: Any, agent_infos: Any) -> None:
        """Record the actions, with leading dimension B or a list of B, and the policy's infos."""
        actions = stack(actions, self.env_spec.action_space) if type(actions) is list else actions
        self.chunk.put_actions(self.t, actions, agent_infos)

    def record(self, b: int, env_info: Any) -> int:
        """Record env_info of column `b`; return the steps of its episode so far."""
        table = self.chunk.env_info
        if not table.is_allocated:
            table.allocate(env_info, self.chunk.T, self.B, batched=False)
        table.put(self.t, b, env_info)
        open_ = self.open[b]
        if open_.length == 0:
            self.chunk.step_type[self.t, b] = FIRST
        open_.length += 1
        return open_.length

    def end(self, b: int, step_type: int) -> None:
        """End the episode of column `b` with the current time step."""
        self.chunk.step_type[self.t, b] = step_type
        self.last[b] = map_structure(np.array, self.row.observations[b])
        self._keep(b, self.t + 1, self.last[b])
        self.discard(b)

    def advance(self, stepped: list[int]) -> None:
        """Advance to the next time step; columns that were not `stepped` are idle and keep their observation."""
        if len(stepped) < self.B:
            for b in sorted({*range(self.B)}.difference(stepped)):
                self._idle(b)
        self.t += 1
        self.inputs = self.row.observations
        if self.t == self.chunk.T:
            self._use(self._next_chunk())
        else:
            self._begin_row()

    def cut(self, b: int) -> None:
        """Let `take` return the new steps of the running episode of column `b`; later steps will be another part."""
        if not self.is_cut(b):
            self._keep(b, self.t, map_structure(np.array, self.inputs[b]))

    def is_cut(self, b: int) -> bool:
        """Return whether the running episode of column `b` has no steps since the last `cut`."""
        return not self.open[b].segments and self.open[b].start >= self.t

    def resume(self, b: int, observation: Any, length: int, episode_info: dict) -> None:
        """Resume an episode in column `b` after `length` steps that were returned before."""
        self.set_input(b, observation)
        self.begin(b, episode_info)
        self.open[b].length = length

    def discard(self, b: int) -> None:
        """Drop the episode in progress in column `b`, if any."""
        self.open.pop(b, None)
        self.running = sorted(self.open)

    @property
    def n_finished(self) -> int:
        """Number of episodes, and of parts of episodes, that `take` would return."""
        return len(self._finished)

    def take(self) -> Episodes:
        """Return the episodes, and parts of episodes, that have not been returned yet."""
        finished, self._finished = self._finished, []
        return Episodes(self.env_spec, finished)

    def _keep(self, b: int, stop: int, last_observation: Any) -> None:
        open_ = self.open[b]
        open_.end_segment(self.chunk, b, stop, stop)
        self._finished.append(Episode(open_.segments, last_observation, open_.episode_info, b))
        open_.segments = []

    def _idle(self, b: int) -> None:
        map_structure(lambda out, x: np.copyto(out, x), self.row.observations[b], self.inputs[b])
        if b in self.open:
            self.open[b].end_segment(self.chunk, b, self.t, self.t + 1)

    def _use(self, chunk: Chunk) -> None:
        """Record into another chunk."""
        self.chunk, self.t = chunk, 0
        self.inputs = chunk.observations_of(0)
        self._begin_row()

    def _begin_row(self) -> None:
        self.row.observations = self.chunk.observations_of(self.t + 1)
        self.row.reward_cells = memoryview(self.chunk.reward[self.t])

    def _next_chunk(self) -> Chunk:
        t = self.t
        for b in self.running:
            self.open[b].end_segment(self.chunk, b, t, 0)
        self._release_memory()
        return self.chunk.next(t)

    def _release_memory(self) -> None:
        """Copy the kept rows of chunks that are mostly unused, so that one long episode does not hold the memory of all columns."""
        lists = [self.open[b].segments for b in self.running] + [episode.segments for episode in self._finished]
        segments = [segment for segments in lists for segment in segments]
        held = sum({id(s.chunk): s.chunk.T * s.chunk.B for s in segments}.values())
        if held > 2 * sum(s.stop - s.start for s in segments) + 2 * self.chunk.T * self.B:
            for segments in lists:
                segments[:] = [segment.copy() for segment in segments]
