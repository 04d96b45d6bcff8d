"""Complete episodes from batches that start and end in the middle of episodes."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlpyt.envs.specs import ENV_SPEC, EnvSpec
from rlpyt.episodes.batch import EpisodeBatch
from rlpyt.episodes.samples import (
    Pieces,
    as_arrays,
    checked_first,
    find_pieces,
    gather_steps,
    last_observations,
    step_fields,
)
from rlpyt.utils.settings import COUNT, checked, one_of
from rlpyt.utils.structures import Tree, as_numpy, as_torch, assign, cat, tree_map

# Rows are copied in blocks that stay in the cache between reading and writing.
_BLOCK_BYTES = 256 * 1024


class EpisodeAssembler:
    """Turns successive batches of a sampler into complete episodes; keeps unfinished episodes for the next batch.

    Args:
        env_spec: `EnvSpec` of the episodes.
        B: number of columns of the batches.
        boundary: what ends an episode: "done", or env_info's "traj_done".
        first: whether the first step of each column in the first batch starts an episode [B] bool (or one bool for all). True for a
            sampler with ``max_decorrelation_steps=0``. If False, the first episode of a column is incomplete and left out.
        mid_batch_reset: setting of the sampler.
        on_policy_only: leave out episodes that span batches, because the agent's parameters change between batches.

    Raises:
        ValueError: an argument is invalid.
    """

    @checked(env_spec=ENV_SPEC, B=COUNT, boundary=one_of("done", "traj_done"))
    def __init__(
        self,
        env_spec: EnvSpec | None,
        B: int,
        boundary: str = "done",
        first: Any = None,
        mid_batch_reset: bool = True,
        on_policy_only: bool = False,
    ) -> None:
        self.env_spec, self.B, self.boundary = env_spec, B, boundary
        self.mid_batch_reset, self.on_policy_only = bool(mid_batch_reset), bool(on_policy_only)
        self._first = checked_first(first, self.B).copy()  # Whether the next step of each column starts an episode.
        self._kept: list[list[dict[str, Tree]]] = [[] for _ in range(self.B)]  # Pieces of each column's running episode: arrays [t,...].
        self._lengths = np.zeros(self.B, np.int64)  # Kept steps of each column [B]; also 0 if the start of the running episode is missing.
        self._last_observations: Tree = {}  # Observations after the last batch [B,...]; valid for columns with kept steps.

    @property
    def n_steps(self) -> int:
        """Number of kept steps of unfinished episodes."""
        return int(self._lengths.sum())

    def push(self, samples: Any) -> EpisodeBatch:
        """Return the episodes that ended in this batch (maybe none), ordered by column, then by time.

        Args:
            samples: the next batch [T,B], arrays or tensors, of a sampler with ``keep_terminal_observations=True``.

        Raises:
            ValueError: the batch has another number of columns, or lacks an observation that ended an episode.
        """
        samples = as_arrays(samples)
        if samples.env.done.shape[1] != self.B:
            raise ValueError(f"The batch has {samples.env.done.shape[1]} columns, but the assembler was made for B={self.B}.")
        pieces = find_pieces(samples, self.boundary, self._first, self.mid_batch_reset)
        fields, continues, columns = step_fields(samples, pieces), pieces.continues, pieces.columns
        from_beginning = pieces.begins | (continues & (self._lengths[columns] > 0))

        episodes = self._emit(samples, fields, pieces.select(pieces.ends & from_beginning))
        self._forget(columns[continues & pieces.ends])
        self._first[columns] = False  # A column without steps, blank throughout, stays as it is.
        self._first[columns[pieces.ends & ~_goes_on(columns)]] = True
        if not self.on_policy_only:
            self._keep(samples, fields, pieces.select(~pieces.ends & from_beginning))
        return episodes

    def flush(self) -> EpisodeBatch | None:
        """Return the unfinished episodes and forget them; later steps of these episodes are left out. None if no steps are kept."""
        columns = np.flatnonzero(self._lengths)
        if not len(columns):
            return None
        lengths, last = self._lengths[columns], tree_map(lambda x: x[columns], self._last_observations)
        steps = cat([piece for b in columns for piece in self._kept[b]])
        self._forget(columns)
        return EpisodeBatch(env_spec=self.env_spec, **steps, last_observations=last, lengths=lengths, validate=False)

    def begin_anew(self, columns: Any) -> None:
        """Mark, between two batches, columns whose environments were changed or reset: they start a new episode.

        The kept steps of their running episodes are dropped.

        Args:
            columns: numbers of columns, as a sampler's `update_envs` and `load_state_dict` return them.

        Raises:
            ValueError: a number is out of range; then no column is marked.
        """
        columns = np.asarray(list(columns), np.int64)
        wrong = columns[(columns < 0) | (columns >= self.B)]
        if len(wrong):
            raise ValueError(f"There is no column {wrong[0]}: with B={self.B}, columns are numbered from 0 to {self.B - 1}.")
        self._forget(columns)
        self._first[columns] = True

    # Checkpoints ----------------------------------------------------------------------------------------------------
    def state_dict(self) -> dict:
        """Return the state between two batches: plain data and tensors, all copies."""
        pieces = [piece for kept in self._kept for piece in kept]

        def copied(tree: Tree) -> Tree:
            return tree_map(lambda x: as_torch(np.array(x)), tree)

        return dict(
            first=as_torch(self._first.copy()),
            lengths=as_torch(self._lengths.copy()),
            steps=copied(cat(pieces)) if pieces else {},
            last_observations=copied(self._last_observations),
        )

    def load_state_dict(self, state: dict) -> None:
        """Restore the result of `state_dict`. Afterwards pass the result of the sampler's `load_state_dict` to `begin_anew`.

        Raises:
            ValueError: the state is of an assembler with another number of columns.
        """
        if len(state["first"]) != self.B:
            raise ValueError(f"The state is of an assembler with B={len(state['first'])}, not B={self.B}.")

        def copied(tree: Tree) -> Tree:
            return tree_map(lambda x: np.array(as_numpy(x)), tree)

        self._first[:], self._lengths[:] = as_numpy(state["first"]), as_numpy(state["lengths"])
        self._last_observations, steps = copied(state["last_observations"]), copied(state["steps"])
        stops = np.cumsum(self._lengths)
        for b, (start, stop) in enumerate(zip(stops - self._lengths, stops)):
            self._kept[b] = [tree_map(lambda x, s=slice(start, stop): x[s].copy(), steps)] if stop > start else []

    # Parts of a push ------------------------------------------------------------------------------------------------
    def _emit(self, samples: Any, fields: dict[str, Tree], pieces: Pieces) -> EpisodeBatch:
        """Return the episodes that end with these pieces, including their kept steps."""
        last, columns = last_observations(samples, pieces, self.mid_batch_reset), pieces.columns
        kept_lengths = np.where(pieces.continues, self._lengths[columns], 0)
        lengths = kept_lengths + pieces.lengths
        if not kept_lengths.any():
            steps = gather_steps(fields, pieces)
        else:
            T, B = pieces.step_types.shape
            rows, n = pieces.t * B + pieces.b, int(lengths.sum())
            out_rows = np.arange(len(rows)) + np.repeat(np.cumsum(kept_lengths), pieces.lengths)
            flat = tree_map(lambda x: x.reshape(T * B, *x.shape[2:]), fields)
            steps = tree_map(lambda x: _scattered(x, rows, n, out_rows), flat)
            starts = np.cumsum(lengths) - lengths
            for i in np.flatnonzero(kept_lengths):
                row = starts[i]
                for kept in self._kept[columns[i]]:
                    place = slice(row, row + len(kept["rewards"]))
                    assign(steps, place, kept)
                    row = place.stop
        return EpisodeBatch(env_spec=self.env_spec, **steps, last_observations=last, lengths=lengths, validate=False)

    def _forget(self, columns: np.ndarray) -> None:
        """Drop the kept steps of these columns."""
        for b in columns:
            self._kept[b] = []
        self._lengths[columns] = 0

    def _keep(self, samples: Any, fields: dict[str, Tree], pieces: Pieces) -> None:
        """Keep these pieces of unfinished episodes; each column has at most one."""
        columns = pieces.columns
        for b, t, n in zip(columns, pieces.t[pieces.starts], pieces.lengths):
            self._kept[b].append(tree_map(lambda x, b=b, t=t, n=n: x[t : t + n, b].copy(), fields))
        self._lengths[columns] += pieces.lengths
        last = last_observations(samples, pieces, self.mid_batch_reset)

        def spread(x: np.ndarray) -> np.ndarray:
            out = np.zeros((self.B, *x.shape[1:]), x.dtype)
            out[columns] = x
            return out

        self._last_observations = tree_map(spread, last)


def _goes_on(columns: np.ndarray) -> np.ndarray:
    """Return whether the next piece is in the same column [P] bool; `columns` are those of the pieces in order."""
    return np.append(columns[1:] == columns[:-1], False)


def _scattered(x: np.ndarray, rows: Any, n: int, out_rows: np.ndarray) -> np.ndarray:
    """Return an array [n,...] whose `out_rows` are the `rows` of `x`; other rows are uninitialized."""
    out = np.empty((n, *x.shape[1:]), x.dtype)
    block = max(_BLOCK_BYTES // max(out.nbytes // max(n, 1), 1), 1)
    for i in range(0, len(rows), block):
        out[out_rows[i : i + block]] = x[rows[i : i + block]]
    return out
