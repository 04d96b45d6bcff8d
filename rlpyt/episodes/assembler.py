"""Whole episodes from batches that begin and end in the middle of them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from rlpyt.episodes.batch import EpisodeBatch
from rlpyt.episodes.samples import (
    Pieces,
    as_arrays,
    checked_boundary,
    checked_first,
    find_pieces,
    gather_steps,
    last_observations,
    step_fields,
)
from rlpyt.episodes.specs import EnvSpec
from rlpyt.episodes.trees import Tree, as_numpy, as_torch, cat, tree_map

# Rows are copied from place to place in blocks that stay in the cache between reading and writing.
_BLOCK_BYTES = 256 * 1024


class _Chunk(NamedTuple):
    """Steps kept of unfinished episodes: of each column in the order of time.

    Attributes:
        columns: column of each step [n] int64.
        live: whether its episode is still unfinished [n] bool; changed in place.
        fields: arrays [n,...], by the names of `EpisodeBatch`.
    """

    columns: np.ndarray
    live: np.ndarray
    fields: dict[str, Tree]


class EpisodeAssembler:
    """Takes a sampler's batches, one after the other, and returns whole episodes: what is unfinished waits for the next batch.

    Args:
        env_spec: written into the episodes.
        B: columns of the batches.
        boundary: what ends an episode: "done", or env_info's "traj_done".
        first: whether the first step of a column in the first batch begins an episode [B] bool (or one bool for all). It does if the
            sampler has ``max_decorrelation_steps=0``. Where it does not, the episode that is running is left out.
        mid_batch_reset: that of the sampler.
        on_policy_only: leave out episodes that span batches, and so a change of the agent's parameters.

    Raises:
        ValueError: an argument is not possible.
    """

    def __init__(
        self,
        env_spec: EnvSpec | None,
        B: int,
        boundary: str = "done",
        first: Any = None,
        mid_batch_reset: bool = True,
        on_policy_only: bool = False,
    ) -> None:
        self.env_spec, self.B, self.boundary = env_spec, int(B), checked_boundary(boundary)
        self.mid_batch_reset, self.on_policy_only = bool(mid_batch_reset), bool(on_policy_only)
        self._first = checked_first(first, self.B).copy()  # Whether the next step of each column begins an episode.
        self._is_kept = np.zeros(self.B, bool)  # Whether chunks hold the running episode of each column, from its beginning.
        self._chunks: list[_Chunk] = []
        self._last_observations: Tree = {}  # That followed after the last batch [B,...], valid where `_is_kept`.

    @property
    def n_steps(self) -> int:
        """How many steps of unfinished episodes are kept."""
        return sum(int(chunk.live.sum()) for chunk in self._chunks)

    def push(self, samples: Any) -> EpisodeBatch:
        """Return the episodes that ended in the next batch: column by column, in the order of time. There may be none.

        Args:
            samples: batch [T,B] of arrays or tensors, of a sampler with ``keep_terminal_observations=True``.

        Raises:
            ValueError: the batch has another number of columns, or lacks an observation that ended an episode.
        """
        samples = as_arrays(samples)
        if samples.env.done.shape[1] != self.B:
            raise ValueError(f"The batch has {samples.env.done.shape[1]} columns, but the assembler was made for B={self.B}.")
        pieces = find_pieces(samples, self.boundary, self._first, self.mid_batch_reset)
        fields, continues, columns = step_fields(samples, pieces), pieces.continues, pieces.columns
        from_beginning = pieces.begins | (continues & self._is_kept[columns])
        whole, unfinished = pieces.ends & from_beginning, ~pieces.ends & from_beginning

        episodes = self._emit(samples, fields, pieces.select(whole))
        self._finish(columns[continues & pieces.ends])
        self._first[:] = False
        self._first[columns[pieces.ends & ~_goes_on(columns)]] = True
        self._is_kept[:] = False
        if not self.on_policy_only:
            self._keep(samples, fields, pieces.select(unfinished))
        return episodes

    def flush(self) -> EpisodeBatch | None:
        """Return the unfinished episodes as they are, and forget them: what comes of them later is left out. None if there are none."""
        if not self._is_kept.any():
            return None
        chunk = _merged(self._chunks)
        order = np.argsort(chunk.columns, kind="stable")
        columns, lengths = np.unique(chunk.columns, return_counts=True)
        fields = tree_map(lambda x: x[order], chunk.fields)
        last = tree_map(lambda x: x[columns], self._last_observations)
        self._chunks, self._is_kept[:] = [], False
        return EpisodeBatch(env_spec=self.env_spec, **fields, last_observations=last, lengths=lengths, validate=False)

    # Checkpoints ----------------------------------------------------------------------------------------------------
    def state_dict(self) -> dict:
        """Return what is kept, between two batches: plain data and tensors, all copies."""
        chunk = _merged(self._chunks)

        def copied(tree):
            return tree_map(lambda x: as_torch(np.array(x)), tree)

        return dict(
            first=as_torch(self._first.copy()),
            is_kept=as_torch(self._is_kept.copy()),
            columns=None if chunk is None else as_torch(chunk.columns.copy()),
            fields=None if chunk is None else copied(chunk.fields),
            last_observations=copied(self._last_observations),
        )

    def load_state_dict(self, state: dict, begun_anew: Any = ()) -> None:
        """Go on from what `state_dict` returned.

        Args:
            state: what it returned.
            begun_anew: columns whose environments begin a new episode, as a sampler's `load_state_dict` returns them; what is kept of
                their running episodes is forgotten.

        Raises:
            ValueError: it is of an assembler with another number of columns.
        """
        if len(state["first"]) != self.B:
            raise ValueError(f"The state is of an assembler with B={len(state['first'])}, not B={self.B}.")

        def copied(tree):
            return tree_map(lambda x: np.array(as_numpy(x)), tree)

        self._first[:], self._is_kept[:] = as_numpy(state["first"]), as_numpy(state["is_kept"])
        self._last_observations = copied(state["last_observations"])
        self._chunks = []
        if state["columns"] is not None:
            columns = np.array(as_numpy(state["columns"]))
            self._chunks = [_Chunk(columns, np.ones(len(columns), bool), copied(state["fields"]))]
        begun_anew = np.asarray(list(begun_anew), np.int64)
        self._finish(begun_anew)
        self._is_kept[begun_anew], self._first[begun_anew] = False, True

    # Parts of a push ------------------------------------------------------------------------------------------------
    def _emit(self, samples: Any, fields: dict[str, Tree], pieces: Pieces) -> EpisodeBatch:
        """Return the episodes that end with these pieces, with what is kept of them."""
        last = last_observations(samples, pieces, self.mid_batch_reset)
        columns = pieces.columns
        kept_lengths = np.zeros(len(columns), np.int64)
        goes_on = np.flatnonzero(pieces.continues & self._is_kept[columns])  # Pieces.
        counts = np.zeros(self.B, np.int64)
        for chunk in self._chunks:
            counts += np.bincount(chunk.columns[chunk.live], minlength=self.B)
        kept_lengths[goes_on] = counts[columns[goes_on]]
        if not kept_lengths.any():
            steps, lengths = gather_steps(fields, pieces), pieces.lengths
        else:
            lengths = kept_lengths + pieces.lengths
            starts = np.cumsum(lengths) - lengths  # Of the episodes, in the result.
            next_row = np.full(self.B, -1)  # Of each column that goes on, in the result.
            next_row[columns[goes_on]] = starts[goes_on]
            sources = []  # (arrays, rows in them, rows in the result)
            for chunk in self._chunks:
                rows = np.flatnonzero(chunk.live & (next_row[chunk.columns] >= 0))
                sources.append((chunk.fields, rows, _deal_rows(next_row, chunk.columns[rows])))
            T, B = pieces.step_types.shape
            new_rows = np.arange(lengths.sum() - kept_lengths.sum()) + np.repeat(np.cumsum(kept_lengths), pieces.lengths)
            flat = tree_map(lambda x: x.reshape(T * B, *x.shape[2:]), fields)
            sources.append((flat, pieces.t * B + pieces.b, new_rows))
            steps = _collect(sources, int(lengths.sum()))
        return EpisodeBatch(env_spec=self.env_spec, **steps, last_observations=last, lengths=lengths, validate=False)

    def _finish(self, columns: np.ndarray) -> None:
        """Forget what is kept of these columns."""
        finished = np.zeros(self.B, bool)
        finished[columns] = True
        for chunk in self._chunks:
            chunk.live[finished[chunk.columns]] = False

    def _keep(self, samples: Any, fields: dict[str, Tree], pieces: Pieces) -> None:
        """Keep these pieces, with which no episode ends."""
        if len(pieces.lengths):
            columns = pieces.columns
            last = last_observations(samples, pieces, self.mid_batch_reset)

            def spread(x):
                out = np.zeros((self.B, *x.shape[1:]), x.dtype)
                out[columns] = x
                return out

            self._last_observations = tree_map(spread, last)
            self._is_kept[columns] = True
            chunk = _Chunk(np.repeat(columns, pieces.lengths), np.ones(len(pieces.t), bool), gather_steps(fields, pieces))
            self._chunks.append(chunk)
        # Each step is copied a logarithmic number of times at the most, and at least about half of the memory is of live steps.
        chunks = [chunk for chunk in self._chunks if chunk.live.any()]
        merged = [_merged([chunk]) if chunk.live.mean() < 0.5 else chunk for chunk in chunks]
        while len(merged) > 1 and 2 * len(merged[-1].live) > len(merged[-2].live):
            merged[-2:] = [_merged(merged[-2:])]
        self._chunks = merged


def _goes_on(columns: np.ndarray) -> np.ndarray:
    """Return whether the next piece is in the same column [P] bool, for the columns of pieces in order."""
    return np.append(columns[1:] == columns[:-1], False)[: len(columns)]


def _merged(chunks: list[_Chunk]) -> _Chunk | None:
    """Return the live steps of chunks as one chunk; None of no chunks."""
    if not chunks:
        return None
    columns = np.concatenate([chunk.columns[chunk.live] for chunk in chunks])
    fields = cat([tree_map(lambda x, live=chunk.live: x if live.all() else x[live], chunk.fields) for chunk in chunks])
    return _Chunk(columns, np.ones(len(columns), bool), fields)


def _deal_rows(next_row: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Return a row for each step [n] by its column, counting `next_row` [B] on in place."""
    order = np.argsort(columns, kind="stable")
    counts = np.bincount(columns, minlength=len(next_row))
    rank = np.empty(len(columns), np.int64)
    rank[order] = np.arange(len(columns)) - np.repeat(np.cumsum(counts) - counts, counts)
    rows = next_row[columns] + rank
    next_row += counts
    return rows


def _collect(sources: list[tuple[dict, np.ndarray, np.ndarray]], n: int) -> dict[str, Tree]:
    """Return trees of arrays [n,...]; each source is a tree, rows in its arrays, and the rows of the result they become."""

    def collect(*arrays):
        out = np.empty((n, *arrays[0].shape[1:]), arrays[0].dtype)
        block = max(_BLOCK_BYTES // max(out[:1].nbytes, 1), 1)
        for x, (_, rows, out_rows) in zip(arrays, sources):
            for i in range(0, len(rows), block):
                out[out_rows[i : i + block]] = x[rows[i : i + block]]
        return out

    return tree_map(collect, *(fields for fields, _, _ in sources))
