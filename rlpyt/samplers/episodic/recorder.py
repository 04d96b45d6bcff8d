"""Where workers write what happens, and how whole episodes are made of it with one copy.

::

    columns (environments)      0   1   2
                                |   |   |
    chunk 0, rows [T,B]         a   c   d      an episode is a list of segments, each of them some rows of one column of a chunk:
                                a   c   d      b = [(chunk 0, column 0, rows 2 to 3), (chunk 1, column 0, rows 0 to 1)]
                                b   c   e
    chunk 1                     b   c   e

Environments write their observations into the next row, which is at once what the policy is given and what is recorded. When episodes
are asked for, their segments are gathered into packed arrays, wherever those are: in this process or in memory shared with another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from rlpyt.envs.base import as_number
from rlpyt.envs.specs import StepType
from rlpyt.episodes.batch import EpisodeBatch
from rlpyt.models.utils import keep_large_blocks
from rlpyt.utils.structures import as_array, as_dictionaries, map_structure, stack

CHUNK_BYTES = 16 * 1024**2  # Of observations in a chunk, about: more, and an episode that is over keeps more memory busy.
MAX_CHUNK_T = 256  # Rows of a chunk at the most.

FIRST, MID, TERMINAL, TIMEOUT = (int(t) for t in (StepType.FIRST, StepType.MID, StepType.TERMINAL, StepType.TIMEOUT))


def flat_leaves(tree: Any, path: tuple = ()) -> Iterator[tuple[tuple, Any]]:
    """Yield ``(path, leaf)`` of nested dictionaries; paths are tuples of keys."""
    if isinstance(tree, dict):
        for key, part in tree.items():
            yield from flat_leaves(part, (*path, key))
    else:
        yield path, tree


def nested(leaves: Mapping[tuple, Any], root: str) -> Any:
    """Return the leaves whose path begins with `root` as nested dictionaries: inverts `flat_leaves`."""
    if (root,) in leaves:
        return leaves[root,]
    tree: dict = {}
    for path, leaf in leaves.items():
        if path[0] == root:
            part = tree
            for key in path[1:-1]:
                part = part.setdefault(key, {})
            part[path[-1]] = leaf
    return tree


# ---------------------------------------------------------------------------------------------------------------------
# Columns of infos and actions
# ---------------------------------------------------------------------------------------------------------------------
class Column:
    """Values of one kind: an array ``[T,B,...]``, of the shape of the first value, and of a dtype that holds all of them.

    Strings, and other things that are no numbers, are kept as objects, in an array ``[T,B]`` whatever their shape.
    """

    def __init__(self, name: str, array: np.ndarray, type_: type, shape: tuple) -> None:
        self.name, self.array, self._type, self._shape = name, array, type_, shape
        self._row_shape = (array.shape[1], *shape)
        self._has_entries = array.ndim == 2 + len(shape)  # And not lists of strings, as objects.
        self._is_scalar = issubclass(type_, (bool, int, float, np.generic))  # So that the type tells dtype and shape.

    @classmethod
    def allocate(cls, name: str, example: Any, T: int, B: int) -> Column:
        """Make one for values like `example`."""
        value = as_array(name, example)
        is_number = value.dtype.kind in "biufc"
        array = np.zeros((T, B, *value.shape), value.dtype) if is_number else np.zeros((T, B), object)
        return cls(name, array, type(example), value.shape)

    def like(self, T: int, B: int) -> Column:
        """Make another one of other dimensions."""
        return Column(self.name, np.zeros((T, B, *self.array.shape[2:]), self.array.dtype), self._type, self._shape)

    def copy_rows(self, rows: slice, b: int) -> Column:
        """Copy some rows of one column."""
        return Column(self.name, self.array[rows, b : b + 1].copy(), self._type, self._shape)

    def put(self, t: int, b: int, value: Any) -> None:
        """Write one value."""
        if type(value) is not self._type or not self._is_scalar:
            self._fit(as_array(self.name, value), 0)
        self.array[t, b] = value

    def put_row(self, t: int, values: Any) -> None:
        """Write the values of all columns, ``[B,...]``."""
        if type(values) is not np.ndarray:
            values = as_array(self.name, values)
        if values.dtype != self.array.dtype or values.shape != self._row_shape:
            self._fit(values, 1)
        if self._has_entries:
            self.array[t] = values
        else:
            for b, value in enumerate(values):
                self.array[t, b] = value

    def _fit(self, values: np.ndarray, n_leading: int) -> None:
        """Widen the dtype where it does not hold these values; raise ValueError for another shape."""
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
    """An info, dictionary or namedtuple, possibly nested: one `Column` per key; which keys there are is fixed by the first one."""

    def __init__(self, name: str, parts: dict[str, Column | Table] | None = None) -> None:
        self.name, self.parts = name, parts
        self._type: type | None = None  # The last type of namedtuple that fits: its fields are those of `parts`, in this order.

    def allocate(self, info: Any, T: int, B: int, batched: bool) -> None:
        """Make columns for infos like this one, which has leading dimension B if `batched`."""
        self.parts = {key: _allocate(f"{self.name}[{key!r}]", value, T, B, batched) for key, value in _items(info)}

    def like(self, T: int, B: int) -> Table:
        """Make another one of other dimensions."""
        return Table(self.name, None if self.parts is None else {key: part.like(T, B) for key, part in self.parts.items()})

    def copy_rows(self, rows: slice, b: int) -> Table:
        """Copy some rows of one column."""
        return Table(self.name, {key: part.copy_rows(rows, b) for key, part in (self.parts or {}).items()})

    def put(self, t: int, b: int, info: Any) -> None:
        """Write one info."""
        n, parts = 0, self.parts
        if type(info) is self._type:
            for part, value in zip(parts.values(), tuple(info)):
                part.put(t, b, value)
            return
        for key, value in _items(info):
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
        for key, values in _items(infos):
            if key not in parts:
                self._refuse(infos)
            parts[key].put_row(t, values)
            n += 1
        if n != len(parts):
            self._refuse(infos)

    def _refuse(self, info: Any) -> None:
        got = [key for key, _ in _items(info)]
        raise ValueError(f"{self.name}: expected the keys {list(self.parts)} at every step, got {got}.")


def _other_number(name: str, B: int, values: np.ndarray) -> ValueError:
    return ValueError(f"{name}: expected one entry for each of the {B} environments, got shape {values.shape}.")


def _items(info: Any) -> Any:
    if info is None:
        return ()
    return info.items() if type(info) is dict or isinstance(info, Mapping) else zip(info._fields, tuple(info))


def _is_table(value: Any) -> bool:
    return isinstance(value, Mapping) or hasattr(value, "_fields")


def _allocate(name: str, example: Any, T: int, B: int, batched: bool) -> Column | Table:
    if _is_table(example):
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
        for key, inner in (part.parts or {}).items():
            yield from _column_leaves(inner, (*path, key))


# ---------------------------------------------------------------------------------------------------------------------
# Chunks and episodes
# ---------------------------------------------------------------------------------------------------------------------
class Chunk:
    """`T` steps of `B` columns.

    Attributes:
        observation: structure of arrays ``[T+1,B,...]``.
        reward: ``[T,B]``.
        step_type: uint8 ``[T,B]``.
        action, env_info, agent_info: columns, allocated with the first of them.
    """

    def __init__(self, T: int, B: int, observation: Any, reward: np.ndarray, step_type: np.ndarray) -> None:
        self.T, self.B = T, B
        self.observation, self.reward, self.step_type = observation, reward, step_type
        self.action: Column | Table | None = None
        self.env_info, self.agent_info = Table("env_info"), Table("agent_info")

    @classmethod
    def allocate(cls, observation: Any, B: int, reward_dtype: Any) -> Chunk:
        """Make one for observations like this one."""
        arrays = map_structure(np.asarray, observation)
        n_bytes = B * sum(leaf.nbytes for _, leaf in flat_leaves(as_dictionaries(arrays)))
        T = int(min(max(CHUNK_BYTES // max(n_bytes, 1), 8), MAX_CHUNK_T))
        rows = map_structure(lambda x: np.empty((T + 1, B, *x.shape), x.dtype), arrays)
        map_structure(lambda row, x: np.copyto(row[0], x), rows, arrays)  # In columns where nobody plays, too: a policy may look at them.
        return cls(T, B, rows, np.zeros((T, B), reward_dtype), np.full((T, B), MID, np.uint8))

    def next(self, t: int) -> Chunk:
        """Make the chunk that follows row `t - 1`; its first observations are those of row `t` of this."""
        T, B = self.T, self.B
        observation = map_structure(np.empty_like, self.observation)
        map_structure(lambda new, old: np.copyto(new[0], old[t]), observation, self.observation)
        chunk = Chunk(T, B, observation, np.zeros_like(self.reward), np.full((T, B), MID, np.uint8))
        chunk.action = None if self.action is None else self.action.like(T, B)
        chunk.env_info, chunk.agent_info = self.env_info.like(T, B), self.agent_info.like(T, B)
        return chunk

    def copy_rows(self, b: int, start: int, stop: int) -> Chunk:
        """Copy some rows of one column into a chunk of their own."""
        rows = slice(start, stop)
        observation = map_structure(lambda x: x[rows, b : b + 1].copy(), self.observation)
        chunk = Chunk(stop - start, 1, observation, self.reward[rows, b : b + 1].copy(), self.step_type[rows, b : b + 1].copy())
        chunk.action = self.action.copy_rows(rows, b)
        chunk.env_info, chunk.agent_info = self.env_info.copy_rows(rows, b), self.agent_info.copy_rows(rows, b)
        return chunk

    def rows_of_step(self, t: int) -> list:
        """Return the observations of row `t` as one writable structure per column."""
        return [map_structure(lambda x, b=b: x[t, b, ...], self.observation) for b in range(self.B)]

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


class Segment(NamedTuple):
    """Rows ``start`` to ``stop - 1`` of column `b` of a chunk."""

    chunk: Chunk
    b: int
    start: int
    stop: int


class Episode(NamedTuple):
    """An episode, or a part of one, that has not been put together.

    Attributes:
        last_observation: the one after the last step, a structure of arrays.
        episode_info: dictionary of what the reset had to say.
        column: which environment of the worker played it.
    """

    segments: list[Segment]
    last_observation: Any
    episode_info: dict
    column: int = 0

    @property
    def length(self) -> int:
        return sum(segment.stop - segment.start for segment in self.segments)


class Layout(NamedTuple):
    """What episodes look like when put together, for whoever provides the memory; plain data.

    Attributes:
        leaves: path, dtype and shape (without leading dimension) of each array that has a row per step.
        last: the same of those that have a row per episode.
        lengths: of the episodes.
        episode_infos: one dictionary per episode.
    """

    leaves: dict[tuple, tuple[np.dtype, tuple]]
    last: dict[tuple, tuple[np.dtype, tuple]]
    lengths: list[int]
    episode_infos: list[dict]

    @classmethod
    def merge(cls, layouts: list[Layout]) -> Layout:
        """Return the layout of the episodes of several, one after the other.

        Raises:
            ValueError: they do not have the same arrays.
        """
        merged = [_merge([getattr(layout, name) for layout in layouts]) for name in ("leaves", "last")]
        return cls(*merged, *(sum((getattr(layout, name) for layout in layouts), []) for name in ("lengths", "episode_infos")))

    @property
    def n_bytes(self) -> int:
        """Size of all arrays."""
        total = 0
        for leaves, n in ((self.leaves, sum(self.lengths)), (self.last, len(self.lengths))):
            total += sum(n * dtype.itemsize * int(np.prod(shape)) for dtype, shape in leaves.values())
        return total

    def allocate(self, empty: Callable = np.empty) -> dict[tuple, np.ndarray]:
        """Return an array for each path, made by ``empty(shape, dtype)``."""
        arrays = {}
        for leaves, n in ((self.leaves, sum(self.lengths)), (self.last, len(self.lengths))):
            for path, (dtype, shape) in leaves.items():
                arrays[path] = (np.empty if dtype.hasobject else empty)((n, *shape), dtype)
        return arrays

    def batch(self, env_spec: Any, arrays: dict[tuple, np.ndarray]) -> EpisodeBatch:
        """Return what was written into `arrays` as an EpisodeBatch."""
        arrays = {path: np.array(array.tolist()) if array.dtype == object else array for path, array in arrays.items()}
        roots = ("observations", "last_observations", "actions", "rewards", "env_infos", "agent_infos", "step_types")
        return EpisodeBatch(
            env_spec=env_spec,
            episode_infos=_stack(self.episode_infos),
            lengths=np.array(self.lengths, np.int64),
            **{root: nested(arrays, root) for root in roots},
            validate=False,
        )


def _merge(parts: list[dict]) -> dict:
    """Return one description of arrays that fits all; raise ValueError where there is none."""
    merged = dict(parts[0])
    for part in parts[1:]:
        if part.keys() != merged.keys():
            different = sorted(".".join(map(str, path)) for path in part.keys() ^ merged.keys())
            raise ValueError(f"Episodes do not have the same fields: only some have {different}.")
        for path, (dtype, shape) in part.items():
            if shape != merged[path][1]:
                raise ValueError(f"{'.'.join(map(str, path))} has shape {shape} in one episode and {merged[path][1]} in another.")
            if dtype != merged[path][0]:
                is_object = object in (dtype, merged[path][0])
                merged[path] = np.dtype(object) if is_object else np.promote_types(dtype, merged[path][0]), shape
    return merged


def _stack(infos: list[dict]) -> dict:
    """Return a list of dictionaries, possibly nested, as one with arrays ``[N,...]``."""
    if not infos:
        return {}
    keys = infos[0].keys()
    different = next((info for info in infos if info.keys() != keys), None)
    if different is not None:
        raise ValueError(f"episode_info: expected the keys {list(keys)} of every reset, got {list(different)}.")
    columns = {key: [info[key] for info in infos] for key in keys}
    return {key: _stack(values) if isinstance(values[0], dict) else np.array(values) for key, values in columns.items()}


class Episodes:
    """Episodes that have not been put together.

    Args:
        env_spec: the environments' `EnvSpec`.
        episodes: what there is so far.

    Attributes:
        n_steps: steps of all of them.
    """

    def __init__(self, env_spec: Any = None, episodes: list[Episode] | None = None) -> None:
        self.env_spec, self.episodes = env_spec, episodes or []
        self.n_steps = sum(episode.length for episode in self.episodes)
        self._batches: list[EpisodeBatch] = []

    @classmethod
    def of_batch(cls, batch: EpisodeBatch) -> Episodes:
        """Take an EpisodeBatch apart, without a copy."""
        with_columns = {name: map_structure(lambda x: np.asarray(x)[:, None], getattr(batch, name)) for name in _FIELDS}
        n = int(np.sum(batch.lengths))
        chunk = Chunk(n, 1, with_columns["observations"], with_columns["rewards"], with_columns["step_types"])
        chunk.action = _of_arrays("action", with_columns["actions"])
        chunk.env_info, chunk.agent_info = (_of_arrays(name, with_columns[f"{name}s"]) for name in ("env_info", "agent_info"))
        infos, episodes, start = batch.episode_infos_by_episode, [], 0
        for i, length in enumerate(np.asarray(batch.lengths).tolist()):
            info, last = map_structure(lambda x, i=i: x[i], infos), map_structure(lambda x, i=i: x[i], batch.last_observations)
            episodes.append(Episode([Segment(chunk, 0, start, start + length)], last, info))
            start += length
        self = cls(batch.env_spec, episodes)
        self._batches = [batch]
        return self

    def extend(self, other: Episodes) -> None:
        """Append those of another."""
        if not other.episodes:
            return
        self._batches = [] if self.episodes else other._batches
        self.n_steps += other.n_steps
        self.env_spec = self.env_spec if self.env_spec is not None else other.env_spec
        self.episodes.extend(other.episodes)

    def first(self, n: int) -> Episodes:
        """Return the first `n`."""
        return self if n == len(self.episodes) else Episodes(self.env_spec, self.episodes[:n])

    def layout(self) -> Layout:
        """Return what they look like when put together."""
        chunks = {id(segment.chunk): segment.chunk for episode in self.episodes for segment in episode.segments}
        leaves = [{path: (x.dtype, x.shape[2:]) for path, x in chunk.leaves().items()} for chunk in chunks.values()]
        last = [
            {path: (np.asarray(x).dtype, np.shape(x)) for path, x in flat_leaves(as_dictionaries(e.last_observation), _LAST)}
            for e in self.episodes
        ]
        lengths, infos = [e.length for e in self.episodes], [e.episode_info for e in self.episodes]
        return Layout(_merge(leaves) if leaves else {}, _merge(last) if last else {}, lengths, infos)

    def write(self, arrays: Mapping[tuple, np.ndarray]) -> None:
        """Gather all segments into arrays with a row per step, and last observations into those with a row per episode."""
        leaves, i = {}, 0
        for n, episode in enumerate(self.episodes):
            for path, x in flat_leaves(as_dictionaries(episode.last_observation), _LAST):
                arrays[path][n] = x
            for chunk, b, start, stop in episode.segments:
                source = leaves.get(id(chunk)) or leaves.setdefault(id(chunk), chunk.leaves())
                for path, x in source.items():
                    arrays[path][i : i + stop - start] = x[start:stop, b]
                i += stop - start

    def to_batch(self) -> EpisodeBatch:
        """Put them together; one copy."""
        if not self.episodes:
            raise RuntimeError("No episode has been played since episodes were collected last.")
        if len(self._batches) == 1:
            return self._batches[0]
        layout = self.layout()
        arrays = layout.allocate()
        self.write(arrays)
        return layout.batch(self.env_spec, arrays)


_LAST = ("last_observations",)
_FIELDS = ("observations", "actions", "rewards", "step_types", "env_infos", "agent_infos")


def _of_arrays(name: str, tree: Any) -> Column | Table:
    if isinstance(tree, dict):
        return Table(name, {key: _of_arrays(f"{name}[{key!r}]", part) for key, part in tree.items()})
    return Column(name, tree, np.ndarray, tree.shape[2:])


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


class Recorder:
    """What the environments of one worker do.

    In a time step, `act` with what the policy has chosen, then for each running column `record`, and perhaps `end`; then `advance`.

    Args:
        B: columns.

    Attributes:
        running: the columns with an episode in progress, in ascending order.
        open: for each column the episode in progress, or None.
        inputs: per column, where its next observation as the policy will see it goes; None before the first `allocate`.
        outputs: per column, where the observation that the step leads to goes.
    """

    def __init__(self, B: int) -> None:
        self.B = B
        self.env_spec: Any = None
        self.chunk: Chunk | None = None
        self.t = 0
        self.open: list[_Open | None] = [None] * B
        self.running: list[int] = []
        self.last: list = [None] * B  # The observations that the columns' episodes ended with.
        self.inputs: list | None = None
        self.outputs: list = []
        self._finished: list[Episode] = []

    def forget_form(self) -> None:
        """Let observations, actions and infos have another form from now on; for when no column is running."""
        self.chunk, self.inputs = None, None

    def forget_actions(self) -> None:
        """Let actions and agent_infos have another form from now on, also in the middle of episodes.

        What has been played of those should have been handed over (see `cut`): one episode cannot have both.
        """
        if self.chunk is not None and self.chunk.action is not None:
            self._next_chunk()
            self.chunk.action, self.chunk.agent_info = None, Table("agent_info")
            self.outputs = self.chunk.rows_of_step(1)

    def allocate(self, observation: Any, reward_dtype: Any) -> None:
        """Get ready for observations like this one."""
        keep_large_blocks()  # What comes and goes here are chunks, of the same size each time.
        self.chunk, self.t = Chunk.allocate(observation, self.B, reward_dtype), 0
        self.inputs, self.outputs = self.chunk.rows_of_step(0), self.chunk.rows_of_step(1)

    @property
    def observation(self) -> Any:
        """The observations of all columns, a structure of arrays ``[B,...]``; where nobody plays, the last one there was."""
        t = self.t
        return map_structure(lambda x: x[t], self.chunk.observation)

    def begin(self, b: int, episode_info: dict) -> None:
        """Begin an episode in column `b`, whose first observation is in ``inputs[b]``."""
        self.open[b] = _Open(self.t, episode_info)
        self.running = sorted({*self.running, b})

    def set_input(self, b: int, observation: Any) -> None:
        """Write the observation that column `b` goes on from."""
        map_structure(lambda out, x: np.copyto(out, x), self.inputs[b], observation)

    def act(self, actions: Any, agent_infos: Any) -> None:
        """Record the actions, with leading dimension B or a list of B, and what the policy had to say about them."""
        chunk = self.chunk
        if type(actions) is list:
            actions = stack(actions, self.env_spec.action_space)
        if chunk.action is None:
            chunk.action = _allocate("action", actions, chunk.T, self.B, batched=True)
            chunk.agent_info.allocate(agent_infos, chunk.T, self.B, batched=True)
        chunk.action.put_row(self.t, actions)
        chunk.agent_info.put_row(self.t, agent_infos)

    def record(self, b: int, reward: float, env_info: Any) -> int:
        """Record what the action of column `b` led to, besides the observation; return the steps of its episode so far."""
        chunk, t = self.chunk, self.t
        chunk.reward[t, b] = reward if type(reward) is float else as_number(reward)
        if chunk.env_info.parts is None:
            chunk.env_info.allocate(env_info, chunk.T, self.B, batched=False)
        chunk.env_info.put(t, b, env_info)
        open_ = self.open[b]
        if open_.length == 0:
            chunk.step_type[t, b] = FIRST
        open_.length += 1
        return open_.length

    def end(self, b: int, step_type: int) -> None:
        """End the episode of column `b` with the present time step."""
        self.chunk.step_type[self.t, b] = step_type
        self.last[b] = map_structure(np.array, self.outputs[b])
        self._keep(b, self.t + 1, self.last[b])
        self.discard(b)

    def advance(self, stepped: list[int]) -> None:
        """Go on to the next time step; columns that were not `stepped` stand still."""
        if len(stepped) < self.B:
            for b in sorted({*range(self.B)}.difference(stepped)):
                self._stand_still(b)
        self.t += 1
        self.inputs = self.outputs
        if self.t == self.chunk.T:
            self._next_chunk()
        self.outputs = self.chunk.rows_of_step(self.t + 1)

    def cut(self, b: int) -> None:
        """Hand over what has been played of the episode in progress in column `b`; the rest of it will follow."""
        open_ = self.open[b]
        if open_.segments or open_.start < self.t:
            self._keep(b, self.t, map_structure(np.array, self.inputs[b]))
            open_.segments, open_.start = [], self.t

    def is_handed_over(self, b: int) -> bool:
        """Whether all that has been played of the episode in progress in column `b` has been handed over."""
        return not self.open[b].segments and self.open[b].start >= self.t

    def go_on(self, b: int, observation: Any, length: int, episode_info: dict) -> None:
        """Go on with an episode in column `b` of which `length` steps have been handed over already."""
        self.set_input(b, observation)
        self.begin(b, episode_info)
        self.open[b].length = length

    def discard(self, b: int) -> None:
        """Forget the episode in progress in column `b`, if there is one."""
        self.open[b] = None
        self.running = [other for other in self.running if other != b]

    @property
    def n_finished(self) -> int:
        """Episodes, and parts of some, that `take` would return."""
        return len(self._finished)

    def take(self) -> Episodes:
        """Return the episodes, and parts of some, that have not been returned before."""
        finished, self._finished = self._finished, []
        return Episodes(self.env_spec, finished)

    def _keep(self, b: int, stop: int, last_observation: Any) -> None:
        open_ = self.open[b]
        segments = open_.segments + ([Segment(self.chunk, b, open_.start, stop)] if open_.start < stop else [])
        self._finished.append(Episode(segments, last_observation, open_.episode_info, b))

    def _stand_still(self, b: int) -> None:
        map_structure(lambda out, x: np.copyto(out, x), self.outputs[b], self.inputs[b])
        open_ = self.open[b]
        if open_ is not None:
            if open_.start < self.t:
                open_.segments.append(Segment(self.chunk, b, open_.start, self.t))
            open_.start = self.t + 1

    def _next_chunk(self) -> None:
        t = self.t
        for b in self.running:
            open_ = self.open[b]
            if open_.start < t:
                open_.segments.append(Segment(self.chunk, b, open_.start, t))
            open_.start = 0
        self._release_memory()
        self.chunk, self.t = self.chunk.next(t), 0
        self.inputs = self.chunk.rows_of_step(0)

    def _release_memory(self) -> None:
        """Copy what is kept of chunks most of which is not, so that one long episode does not hold the memory of all columns."""
        lists = [self.open[b].segments for b in self.running] + [episode.segments for episode in self._finished]
        segments = [segment for segments in lists for segment in segments]
        held = sum({id(s.chunk): s.chunk.T * s.chunk.B for s in segments}.values())
        if held > 2 * sum(s.stop - s.start for s in segments) + 2 * self.chunk.T * self.B:
            for segments in lists:
                segments[:] = [Segment(s.chunk.copy_rows(s.b, s.start, s.stop), 0, 0, s.stop - s.start) for s in segments]
