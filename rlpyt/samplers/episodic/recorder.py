"""Workers record steps in chunks of ``[T,B]`` memory, whose rows become episodes (see `rlpyt.episodes.segments`).

Environments write observations into the next row, which is both the policy's next input and the recorded observation.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np

from rlpyt.envs.specs import StepType
from rlpyt.episodes.segments import Episode, Episodes, Segment, flat_leaves
from rlpyt.models.utils import keep_large_blocks
from rlpyt.samplers.rows import StepRow, env_rows
from rlpyt.utils.structures import as_array, as_dictionaries, info_as_dictionaries, is_info, map_structure, stack

CHUNK_BYTES = 16 * 1024**2  # Approximate size of a chunk's observations. In larger chunks, a finished episode keeps more memory busy.
MAX_CHUNK_T = 256  # Largest number of rows of a chunk.

FIRST, MID, TERMINAL, TIMEOUT = (int(t) for t in (StepType.FIRST, StepType.MID, StepType.TERMINAL, StepType.TIMEOUT))


# ---------------------------------------------------------------------------------------------------------------------
# Infos and actions
# ---------------------------------------------------------------------------------------------------------------------
class Column:
    """The values of one leaf: an array ``[T,B,...]`` with the shape of the first value and a dtype that holds all values.

    Strings, and other values that are not numbers, are stored as objects in an array ``[T,B]``, whatever their shape.

    Args:
        name: its name in messages.
        example: the first value.
        lead: ``()`` if that is one value, ``(B,)`` if it is those of all columns.
        T, B: dimensions of the array.
    """

    def __init__(self, name: str, example: Any, lead: tuple[int, ...], T: int, B: int) -> None:
        self.name = name
        if lead:
            values = as_array(name, example)
            if values.shape[:1] != lead:
                raise self._other_number(values, B)
            example = values[0]
        value = as_array(name, example)
        self._type, self._shape = type(example), value.shape
        is_number = value.dtype.kind in "biufc"
        self.array = np.zeros((T, B, *value.shape), value.dtype) if is_number else np.zeros((T, B), object)
        self._is_scalar = issubclass(self._type, (bool, int, float, np.generic))  # Then the type determines dtype and shape.

    def like(self) -> Column:
        """Return empty memory for values of the same form."""
        column = copy.copy(self)
        column.array = np.zeros_like(self.array)
        return column

    def put(self, at: tuple[int, ...], value: Any) -> None:
        """Write one value at ``(t, b)``, or the values of all columns, ``[B,...]``, at ``(t,)``."""
        if len(at) == 2:
            if type(value) is not self._type or not self._is_scalar:
                self._fit(as_array(self.name, value), ())
            self.array[at] = value
            return
        values = as_array(self.name, value)
        self._fit(values, self.array.shape[1:2])
        if values.ndim == self.array.ndim - 1:
            self.array[at] = values
        else:  # Objects such as lists of strings.
            for b, each in enumerate(values):
                self.array[(*at, b)] = each

    def _fit(self, values: np.ndarray, lead: tuple[int, ...]) -> None:
        """Widen the dtype if it cannot hold these values, which have the dimensions `lead`; raise ValueError for another shape."""
        if values.shape != (*lead, *self._shape):
            got = values.shape[len(lead) :]
            if got == self._shape:
                raise self._other_number(values, lead[0])
            raise ValueError(f"{self.name}: expected shape {self._shape} at every step, got {got}.")
        dtype = self.array.dtype
        if values.dtype != dtype and not dtype.hasobject and not np.can_cast(values.dtype, dtype, "safe"):
            self.array = self.array.astype(np.promote_types(values.dtype, dtype) if values.dtype.kind in "biufc" else object)

    def _other_number(self, values: np.ndarray, B: int) -> ValueError:
        return ValueError(f"{self.name}: expected one entry for each of the {B} environments, got shape {values.shape}.")


class Columns:
    """What is recorded under one name, such as infos: a `Column` for each leaf. The first value fixes the keys.

    Values are arrays, or (nested) dictionaries and namedtuples; None is an empty dictionary.
    """

    def __init__(self, name: str, T: int, B: int) -> None:
        self.name, self._dimensions = name, (T, B)
        self._columns: dict[tuple, Column] | None = None  # By path.
        self._flat: dict[str, Column] | None = None  # By key, if no value is nested.
        self._type: Any = None  # The newest type of namedtuples whose fields are the keys of `_flat`, in order.

    def put(self, at: tuple[int, ...], value: Any) -> None:
        """Write one value at ``(t, b)``, or the values of all columns, with leading dimension B, at ``(t,)``."""
        flat = self._flat
        if type(value) is self._type and flat is not None:
            for column, part in zip(flat.values(), value):
                column.put(at, part)
        elif type(value) is dict and flat is not None and value.keys() == flat.keys():
            for key, part in value.items():
                flat[key].put(at, part)
        else:
            self._put_leaves(at, value)

    def _put_leaves(self, at: tuple[int, ...], value: Any) -> None:
        T, B = self._dimensions
        leaves = dict(flat_leaves(info_as_dictionaries(value) if value is None or is_info(value) else value))
        if self._columns is None:
            names = {path: self.name + "".join(f"[{key!r}]" for key in path) for path in leaves}
            lead = (B,) if len(at) == 1 else ()
            self._columns = {path: Column(names[path], leaf, lead, T, B) for path, leaf in leaves.items()}
        if leaves.keys() != self._columns.keys():
            expected, got = ([".".join(map(str, path)) for path in paths] for paths in (self._columns, leaves))
            raise ValueError(f"{self.name}: expected the keys {expected} at every step, got {got}.")
        for path, leaf in leaves.items():
            self._columns[path].put(at, leaf)
        if all(len(path) == 1 for path in self._columns):
            self._flat = {path[0]: column for path, column in self._columns.items()}
            self._type = type(value) if getattr(value, "_fields", None) == tuple(self._flat) else self._type

    def like(self) -> Columns:
        """Return empty memory for values of the same form."""
        new = copy.copy(self)
        new._flat = None  # The first value finds the new columns.
        new._columns = None if self._columns is None else {path: column.like() for path, column in self._columns.items()}
        return new

    def leaves(self) -> Iterator[tuple[tuple, np.ndarray]]:
        """Yield path and array of each column."""
        for path, column in (self._columns or {}).items():
            yield (f"{self.name}s", *path), column.array


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
        observation: structure of arrays ``[T+1,B,...]``.
        reward: ``[T,B]``.
        step_type: uint8 ``[T,B]``.
        action, env_info, agent_info: `Columns`.
    """

    def __init__(self, observation: Any, B: int, reward_dtype: Any) -> None:
        arrays = map_structure(np.asarray, observation)
        n_bytes = B * sum(leaf.nbytes for _, leaf in flat_leaves(as_dictionaries(arrays)))
        self.T = T = int(min(max(CHUNK_BYTES // max(n_bytes, 1), 8), MAX_CHUNK_T))
        self.B = B
        self.observation = map_structure(lambda x: np.empty((T + 1, B, *x.shape), x.dtype), arrays)
        # Idle columns, too, because the policy may use them.
        map_structure(lambda rows, x: np.copyto(rows[0], x), self.observation, arrays)
        self.reward, self.step_type = np.zeros((T, B), reward_dtype), np.full((T, B), MID, np.uint8)
        self.env_info = Columns("env_info", T, B)
        self.forget_actions()

    def forget_actions(self) -> None:
        """Let actions and agent_infos have another form."""
        self.action, self.agent_info = Columns("action", self.T, self.B), Columns("agent_info", self.T, self.B)

    def next(self, t: int) -> Chunk:
        """Make the chunk that follows row `t - 1`; its first row has the observations of row `t`."""
        chunk = copy.copy(self)
        chunk.observation = map_structure(np.empty_like, self.observation)
        map_structure(lambda new, old: np.copyto(new[0], old[t]), chunk.observation, self.observation)
        chunk.reward, chunk.step_type = np.zeros_like(self.reward), np.full_like(self.step_type, MID)
        chunk.action, chunk.env_info, chunk.agent_info = self.action.like(), self.env_info.like(), self.agent_info.like()
        return chunk

    def observation_at(self, t: int) -> Any:
        """Return the observations before step `t`, a structure of arrays ``[B,...]``."""
        return map_structure(lambda x: x[t], self.observation)

    def leaves(self) -> dict[tuple, np.ndarray]:
        """Return all arrays ``[T,B,...]`` by path; observations have one row more."""
        return {
            **dict(flat_leaves(as_dictionaries(self.observation), ("observations",))),
            **dict(self.action.leaves()),
            ("rewards",): self.reward,
            ("step_types",): self.step_type,
            **dict(self.env_info.leaves()),
            **dict(self.agent_info.leaves()),
        }


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
    row: StepRow

    def __init__(self, B: int) -> None:
        self.B = B
        self.env_spec: Any = None
        self.has_memory = False
        self.t = 0
        self.open: dict[int, _Open] = {}
        self.running: list[int] = []
        self.last: dict[int, Any] = {}
        self._finished: list[Episode] = []

    def forget_actions(self) -> None:
        """Let later actions and agent_infos have another form, also in the middle of episodes.

        Call `cut` for these episodes first: one episode cannot hold both forms.
        """
        if self.has_memory:
            self._use(self._next_chunk())
            self.chunk.forget_actions()

    def allocate(self, observation: Any, reward_dtype: Any) -> None:
        """Allocate the first chunk, for observations like `observation`."""
        keep_large_blocks()  # Chunks all have the same size.
        self.has_memory = True
        self._use(Chunk(observation, self.B, reward_dtype))

    @property
    def observation(self) -> Any:
        """The observations of all columns, a structure of arrays ``[B,...]``; an idle column keeps its last observation."""
        return self.chunk.observation_at(self.t)

    def begin(self, b: int, episode_info: dict) -> None:
        """Begin an episode in column `b`, whose first observation is in ``inputs[b]``."""
        self.open[b] = _Open(self.t, episode_info)
        self.running = sorted(self.open)

    def set_input(self, b: int, observation: Any) -> None:
        """Write the next input of column `b`."""
        map_structure(lambda out, x: np.copyto(out, x), self.inputs[b], observation)

    def act(self, actions: Any, agent_infos: Any) -> None:
        """Record the actions, with leading dimension B or a list of B, and the policy's infos."""
        self.chunk.action.put((self.t,), stack(actions, self.env_spec.action_space) if type(actions) is list else actions)
        self.chunk.agent_info.put((self.t,), agent_infos)

    def record(self, b: int, env_info: Any) -> int:
        """Record env_info of column `b`; return the steps of its episode so far."""
        self.chunk.env_info.put((self.t, b), env_info)
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
        self.inputs = env_rows(chunk.observation_at(0), self.B)
        self._begin_row()

    def _begin_row(self) -> None:
        done = np.zeros(self.B, bool)  # Nobody reads it: step types tell which episodes end.
        self.row = StepRow(self.chunk.observation_at(self.t + 1), self.chunk.reward[self.t], done)

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
