"""Episodes as rows of ``[T,B]`` memory, from which whole episodes are made with one copy.

::

    columns (environments)      0   1   2
                                |   |   |
    chunk 0, rows [T,B]         a   c   d      an episode is a list of segments; a segment is some rows of one column of a chunk:
                                a   c   d      b = [(chunk 0, column 0, rows 2 to 3), (chunk 1, column 0, rows 0 to 1)]
                                b   c   e
    chunk 1                     b   c   e

Segments are gathered into packed arrays, in this process or in memory that is shared with another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np

from rlpyt.episodes.batch import EpisodeBatch
from rlpyt.utils.structures import as_dictionaries, common_dtype, from_objects, info_as_dictionaries, map_structure, stack

_LAST = ("last_observations",)
_FIELDS = ("observations", "actions", "rewards", "step_types", "env_infos", "agent_infos")


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


class StepArrays(Protocol):
    """Steps of `B` columns. After further steps are written, `leaves` may return other arrays."""

    T: int
    B: int

    def leaves(self) -> dict[tuple, np.ndarray]:
        """Return all arrays ``[T,B,...]`` by path; observations may have one row more."""


class Steps:
    """Steps that are complete: arrays ``[T,B,...]`` by path."""

    def __init__(self, arrays: dict[tuple, np.ndarray]) -> None:
        self._arrays = arrays
        self.T, self.B = arrays["rewards",].shape

    def leaves(self) -> dict[tuple, np.ndarray]:
        """Return all arrays."""
        return self._arrays


class Segment(NamedTuple):
    """Rows ``start`` to ``stop - 1`` of column `b` of a chunk."""

    chunk: StepArrays
    b: int
    start: int
    stop: int

    def copy(self) -> Segment:
        """Return a segment whose memory holds its rows only."""
        rows = {path: x[self.start : self.stop, self.b : self.b + 1].copy() for path, x in self.chunk.leaves().items()}
        return Segment(Steps(rows), 0, 0, self.stop - self.start)


class Episode(NamedTuple):
    """An episode, or a part of one, as segments.

    Attributes:
        last_observation: the observation after the last step, a structure of arrays.
        episode_info: the dictionary that the reset returned.
        column: index of the environment in its worker.
    """

    segments: list[Segment]
    last_observation: Any
    episode_info: dict
    column: int = 0

    @property
    def length(self) -> int:
        return sum(segment.stop - segment.start for segment in self.segments)


class Layout(NamedTuple):
    """Dtypes and shapes of the packed arrays of episodes, so that the caller can allocate them; plain data.

    Attributes:
        leaves: by path, dtype and shape (without leading dimension) of each array that has a row per step.
        last: the same for arrays that have a row per episode.
        lengths: steps of each episode.
        episode_infos: one dictionary per episode.
    """

    leaves: dict[tuple, tuple[np.dtype, tuple]]
    last: dict[tuple, tuple[np.dtype, tuple]]
    lengths: list[int]
    episode_infos: list[dict]

    @classmethod
    def merge(cls, layouts: list[Layout]) -> Layout:
        """Return the layout of all episodes, in order.

        Raises:
            ValueError: the layouts do not have the same arrays.
        """
        return cls(
            leaves=_merge([layout.leaves for layout in layouts]),
            last=_merge([layout.last for layout in layouts]),
            lengths=[length for layout in layouts for length in layout.lengths],
            episode_infos=[info for layout in layouts for info in layout.episode_infos],
        )

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
        """Return the content of `arrays` as an EpisodeBatch."""
        arrays = {path: from_objects(array) for path, array in arrays.items()}
        infos = [info_as_dictionaries(info) for info in self.episode_infos]
        return EpisodeBatch(
            env_spec=env_spec,
            episode_infos=stack(infos, name="episode_info", when="of every reset") if infos else {},
            lengths=np.array(self.lengths, np.int64),
            **{root: nested(arrays, root) for root in (*_FIELDS, *_LAST)},
            validate=False,
        )


def _merge(parts: list[dict]) -> dict:
    """Return dtypes (wide enough for all parts) and shapes; raise ValueError if paths or shapes differ."""
    merged = dict(parts[0])
    for part in parts[1:]:
        if part.keys() != merged.keys():
            different = sorted(".".join(map(str, path)) for path in part.keys() ^ merged.keys())
            raise ValueError(f"Episodes do not have the same fields: only some have {different}.")
        for path, (dtype, shape) in part.items():
            if shape != merged[path][1]:
                raise ValueError(f"{'.'.join(map(str, path))} has shape {shape} in one episode and {merged[path][1]} in another.")
            if dtype != merged[path][0]:
                merged[path] = common_dtype(dtype, merged[path][0]), shape
    return merged


class Episodes:
    """Episodes as segments.

    Args:
        env_spec: the environments' `EnvSpec`.
        episodes: the first episodes.

    Attributes:
        n_steps: steps of all episodes.
    """

    def __init__(self, env_spec: Any = None, episodes: list[Episode] | None = None) -> None:
        self.env_spec, self.episodes = env_spec, episodes or []
        self.n_steps = sum(episode.length for episode in self.episodes)
        self._batches: list[EpisodeBatch] = []

    @classmethod
    def of_batch(cls, batch: EpisodeBatch) -> Episodes:
        """Take an EpisodeBatch apart, without a copy."""
        arrays = {path: np.asarray(x)[:, None] for name in _FIELDS for path, x in flat_leaves(getattr(batch, name), (name,))}
        steps = Steps(arrays)
        infos, episodes, start = batch.episode_infos_by_episode, [], 0
        for i, length in enumerate(np.asarray(batch.lengths).tolist()):
            info, last = map_structure(lambda x, i=i: x[i], infos), map_structure(lambda x, i=i: x[i], batch.last_observations)
            episodes.append(Episode([Segment(steps, 0, start, start + length)], last, info))
            start += length
        self = cls(batch.env_spec, episodes)
        self._batches = [batch]
        return self

    def extend(self, other: Episodes) -> None:
        """Append the episodes of `other`."""
        if not other.episodes:
            return
        self._batches = [] if self.episodes else other._batches
        self.n_steps += other.n_steps
        self.env_spec = self.env_spec if self.env_spec is not None else other.env_spec
        self.episodes.extend(other.episodes)

    def first(self, n: int) -> Episodes:
        """Return the first `n` episodes."""
        return self if n == len(self.episodes) else Episodes(self.env_spec, self.episodes[:n])

    def layout(self) -> Layout:
        """Return the layout of the packed arrays."""
        chunks = {id(segment.chunk): segment.chunk for episode in self.episodes for segment in episode.segments}
        leaves = [{path: (x.dtype, x.shape[2:]) for path, x in chunk.leaves().items()} for chunk in chunks.values()]
        last = [
            {path: (np.asarray(x).dtype, np.shape(x)) for path, x in flat_leaves(as_dictionaries(e.last_observation), _LAST)}
            for e in self.episodes
        ]
        lengths, infos = [e.length for e in self.episodes], [e.episode_info for e in self.episodes]
        return Layout(_merge(leaves) if leaves else {}, _merge(last) if last else {}, lengths, infos)

    def write(self, arrays: Mapping[tuple, np.ndarray]) -> None:
        """Gather the segments into arrays with a row per step, and last observations into arrays with a row per episode."""
        leaves: dict[int, dict] = {}  # by id of the chunk
        i = 0
        for n, episode in enumerate(self.episodes):
            for path, x in flat_leaves(as_dictionaries(episode.last_observation), _LAST):
                arrays[path][n, ...] = x
            for chunk, b, start, stop in episode.segments:
                source = leaves.get(id(chunk)) or leaves.setdefault(id(chunk), chunk.leaves())
                for path, x in source.items():
                    arrays[path][i : i + stop - start] = x[start:stop, b]
                i += stop - start

    def packed(self, layout: Layout) -> dict[tuple, np.ndarray]:
        """Return the packed arrays of this `layout`; this copies each step once."""
        arrays = layout.allocate()
        self.write(arrays)
        return arrays

    def to_batch(self) -> EpisodeBatch:
        """Return the episodes as packed arrays; this copies each step once."""
        if not self.episodes:
            raise RuntimeError("No episode has been played since the last collection.")
        if len(self._batches) == 1:
            return self._batches[0]
        layout = self.layout()
        return layout.batch(self.env_spec, self.packed(layout))
