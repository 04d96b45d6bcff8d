"""From a sampler's batch ``[T,B]`` to episodes, and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from rlpyt.envs.specs import StepType
from rlpyt.types import AgentSamplesBsv, EnvSamples, Samples, as_recorded, timeout_of
from rlpyt.utils.buffer import numpify_buffer
from rlpyt.utils.collections import field_of
from rlpyt.utils.structures import Tree, as_torch, from_structure, numeric, to_structure, tree_map


# ---------------------------------------------------------------------------------------------------------------------
# Batches to episodes
# ---------------------------------------------------------------------------------------------------------------------
class Pieces(NamedTuple):
    """Positions of P pieces of episodes, with S steps in total, in a batch [T,B]; ordered by column, then by time.

    Attributes:
        t, b: row and column of each step [S] int64.
        lengths: steps of each piece [P] int64.
        begins, ends: whether the piece contains its episode's first step, or last step [P] bool.
        step_types: [T,B] uint8.
        is_step: [T,B] bool; False where an environment was idle, or where the row is blank.
    """

    t: np.ndarray
    b: np.ndarray
    lengths: np.ndarray
    begins: np.ndarray
    ends: np.ndarray
    step_types: np.ndarray
    is_step: np.ndarray

    @property
    def stops(self) -> np.ndarray:
        """Index after the last step of each piece [P] int64."""
        return np.cumsum(self.lengths)

    @property
    def starts(self) -> np.ndarray:
        """Index of the first step of each piece [P] int64."""
        return self.stops - self.lengths

    @property
    def columns(self) -> np.ndarray:
        """Column of each piece [P] int64."""
        return self.b[self.stops - 1]

    @property
    def continues(self) -> np.ndarray:
        """Whether the piece is the first of its column [P] bool: it may continue an episode of the previous batch."""
        return self.t[self.starts] == 0

    def select(self, chosen: np.ndarray) -> Pieces:
        """Return the pieces that the mask `chosen` [P] bool selects."""
        steps = np.repeat(chosen, self.lengths)
        per_piece = {name: getattr(self, name)[chosen] for name in ("lengths", "begins", "ends")}
        return self._replace(t=self.t[steps], b=self.b[steps], **per_piece)


def find_pieces(samples: Samples, boundary: str, first: np.ndarray, mid_batch_reset: bool) -> Pieces:
    """Find the episodes, and pieces of them, in a batch of arrays; the arguments are those of `EpisodeBatch.from_samples`."""
    done = samples.env.done
    T, B = done.shape
    is_step = np.ones((T, B), bool) if mid_batch_reset else np.cumsum(done, axis=0) - done == 0
    if samples.env.valid is not None:
        is_step &= samples.env.valid
    # The environment is reset at the end of a trajectory, whatever `done` says.
    ended = (done | _traj_done(samples.env) if boundary == "done" else _traj_done(samples.env)) & is_step
    cut = ended.copy()
    cut[T - 1 - np.argmax(is_step[::-1], axis=0), np.arange(B)] = True  # The last step of each column.
    b, t = np.nonzero(is_step.T)
    stops = np.flatnonzero(cut[t, b]) + 1
    lengths = np.diff(stops, prepend=0)
    starts = stops - lengths
    # Every later piece of a column follows the end of an episode.
    begins = np.where(t[starts] == 0, first[b[starts]], True)

    is_first = np.zeros((T, B), bool)
    is_first[t[starts], b[starts]] = begins
    terminated = done & ~_timeout(samples.env)
    step_types = StepType.from_flags(is_first, ended & terminated, ended & ~terminated)
    return Pieces(t, b, lengths, begins, ended[t[stops - 1], b[stops - 1]], step_types, is_step)


def step_fields(samples: Samples, pieces: Pieces) -> dict[str, Tree]:
    """Return the per-step fields of an `EpisodeBatch` as arrays [T,B,...] that share the memory of the batch."""
    env, agent = samples.env, samples.agent
    return dict(
        observations=from_structure(env.observation),
        actions=from_structure(agent.action),
        rewards=env.reward,
        env_infos=from_structure(env.env_info),
        agent_infos=from_structure(agent.agent_info),
        step_types=pieces.step_types,
    )


def gather_steps(fields: dict[str, Tree], pieces: Pieces) -> dict[str, Tree]:
    """Copy the steps of all pieces from arrays [T,B,...] to arrays [S,...]."""
    T, B = pieces.step_types.shape
    rows = pieces.t * B + pieces.b

    def gather(x: np.ndarray) -> np.ndarray:
        if len(rows) == T * B:  # All steps, in the order of [B,T].
            return np.array(x.swapaxes(0, 1), order="C").reshape(T * B, *x.shape[2:])
        if x.flags.c_contiguous:
            return np.take(x.reshape(T * B, *x.shape[2:]), rows, axis=0)
        return x[pieces.t, pieces.b]

    return tree_map(gather, fields)


def last_observations(samples: Samples, pieces: Pieces, mid_batch_reset: bool) -> Tree:
    """Return the observation after the last step of each piece [P,...].

    Raises:
        ValueError: the batch does not contain it.
    """
    env, last = samples.env, pieces.stops - 1
    t, b = pieces.t[last], pieces.b[last]
    timeout, traj_done = _timeout(env), _traj_done(env)
    terminal = (env.done | traj_done) & ~timeout & pieces.is_step
    # If a life is lost but the game continues, `next_observation` is the observation after the step.
    from_final = timeout[t, b]
    from_terminal = terminal[t, b] & (traj_done[t, b] | (not mid_batch_reset))
    from_next = ~(from_final | from_terminal)
    sources = [
        (from_next, env.next_observation, t, "env.next_observation, for episodes that continue after the batch"),
        (from_final, samples.final_observation, (np.cumsum(timeout, axis=0) - 1)[t, b], "final_observation, for truncated episodes"),
        (
            from_terminal,
            samples.terminal_observation,
            (np.cumsum(terminal, axis=0) - 1)[t, b],
            "terminal_observation, for terminated episodes: make the sampler with keep_terminal_observations=True",
        ),
    ]
    for mask, source, _, name in sources:
        if source is None and mask.any():
            raise ValueError(f"The last observation of {mask.sum()} episodes is missing: the batch lacks {name}.")

    def gather(like: np.ndarray, *parts: np.ndarray | None) -> np.ndarray:
        out = np.empty((len(t), *like.shape[2:]), like.dtype)
        for (mask, _, slots, _), part in zip(sources, parts):
            if part is not None:
                out[mask] = part[slots[mask], b[mask]]
        return out

    observation = from_structure(env.observation)
    return tree_map(gather, observation, *(_like(observation, source) for _, source, _, _ in sources))


def _like(tree: Tree, buffer_: Any) -> Tree:
    """Return a structure as a tree; for None, a tree like `tree` with None in all places."""
    return tree_map(lambda _: None, tree) if buffer_ is None else from_structure(buffer_)


def _timeout(env: EnvSamples) -> np.ndarray:
    timeout = timeout_of(env)
    return np.zeros_like(env.done) if timeout is None else np.asarray(timeout, bool) & env.done


def _traj_done(env: EnvSamples) -> np.ndarray:
    return np.asarray(field_of(env.env_info, "traj_done", env.done), bool)


def as_arrays(samples: Samples) -> Samples:
    """Return a batch as numpy arrays that share its memory, flags as bool."""
    samples = as_recorded(numpify_buffer(samples))
    flags = {
        name: np.asarray(getattr(samples.env, name), bool)
        for name in ("done", "timeout", "valid")
        if getattr(samples.env, name) is not None
    }
    return samples._replace(env=samples.env._replace(**flags))


def checked_first(first: Any, B: int) -> np.ndarray:
    """Return `first` as an array [B] bool; None (unknown) becomes False."""
    flags = np.asarray(False if first is None else numpify_buffer(first))
    if flags.shape not in ((), (B,)) or flags.dtype != bool:
        raise ValueError(f"first must be a bool or an array of {B} bools, one per column; got shape {flags.shape}, dtype {flags.dtype}.")
    return np.broadcast_to(flags, (B,))


def episode_fields(samples: Any, partial: str, boundary: str, first: Any, mid_batch_reset: bool) -> dict[str, Any]:
    """Return the episodes in a batch as fields of an `EpisodeBatch`; see `EpisodeBatch.from_samples`."""
    if partial not in ("keep", "drop"):
        raise ValueError(f"partial={partial!r} must be 'keep' or 'drop'.")
    if boundary not in ("done", "traj_done"):
        raise ValueError(f"boundary={boundary!r} must be 'done' or 'traj_done'.")
    samples = as_arrays(samples)
    first = checked_first(first, samples.env.done.shape[1])
    pieces = find_pieces(samples, boundary, first, mid_batch_reset)
    if partial == "drop":
        pieces = pieces.select(pieces.begins & pieces.ends)
    return dict(
        gather_steps(step_fields(samples, pieces), pieces),
        last_observations=last_observations(samples, pieces, mid_batch_reset),
        lengths=pieces.lengths,
    )


# ---------------------------------------------------------------------------------------------------------------------
# Episodes to batches
# ---------------------------------------------------------------------------------------------------------------------
def to_samples(batch: Any, max_T: int | None = None, value: Callable | None = None) -> tuple[Samples, Any]:
    """Return an `EpisodeBatch` as `Samples` [T,N], and the mask of valid steps; see `EpisodeBatch.to_samples`."""
    import torch

    if max_T is not None and max_T < 1:
        raise ValueError(f"max_T={max_T} must be at least 1, or None for no limit.")
    if not batch.n_episodes:
        raise ValueError("There is no episode to make a batch of.")
    batch = batch.numpy()
    rewards, next_observations = batch.rewards.astype(np.float32), batch.next_observations
    columns = _Columns(batch.lengths, max_T)
    T, N = columns.shape

    observation = tree_map(columns.place_observations, batch.observations, next_observations)
    action, prev_action = (tree_map(place, batch.actions) for place in (columns.place, columns.place_previous))
    reward, prev_reward = (place(rewards) for place in (columns.place, columns.place_previous))
    row, end = np.arange(T)[:, None], columns.lengths - 1
    done = row >= end
    timeout = (row == end) & ~batch.terminals[columns.last_steps]
    valid = row <= end

    def structure(tree: Tree, name: str) -> Any:
        return to_structure(tree_map(as_torch, numeric(tree)), name)

    last_observation, last_action, last_reward = (
        tree_map(lambda x: x[columns.last_steps], tree) for tree in (next_observations, batch.actions, rewards)
    )  # [N,...]
    timeout_value = None
    if value is not None:
        with torch.no_grad():
            values = value(structure(last_observation, "o"), structure(last_action, "a"), structure(last_reward, "r"))  # [N]
            timeout_value = torch.where(torch.from_numpy(timeout), values.to("cpu", torch.float32), 0.0)
    terminal_observation = structure(tree_map(lambda x: x[None], last_observation), "observation")
    samples = Samples(
        agent=AgentSamplesBsv(
            action=structure(action, "action"),
            prev_action=structure(prev_action, "action"),
            agent_info=structure(tree_map(columns.place, numeric(batch.agent_infos)), "agent_info"),
            bootstrap_value=torch.zeros(1, N),
            timeout_value=timeout_value,
        ),
        env=EnvSamples(
            observation=structure(tree_map(lambda x: x[:-1], observation), "observation"),
            reward=torch.from_numpy(reward),
            prev_reward=torch.from_numpy(prev_reward),
            done=torch.from_numpy(done),
            env_info=structure(tree_map(columns.place, numeric(batch.env_infos)), "env_info"),
            timeout=torch.from_numpy(timeout),
            next_observation=structure(tree_map(lambda x: x[1:], observation), "observation"),
        ),
        final_observation=terminal_observation,  # Readers use one of the two; each column has one entry.
        terminal_observation=terminal_observation,
    )
    return samples, torch.from_numpy(valid.astype(np.float32))


class _Columns:
    """Layout of S steps of episodes in N columns of at most `max_T` rows.

    Attributes:
        shape: ``(T, N)``.
        lengths: number of steps in each column [N].
        t, b: row and column of each step [S].
        begins: whether a step starts an episode [S] bool.
        last_steps: index of the last step in each column [N].
    """

    def __init__(self, lengths: np.ndarray, max_T: int | None) -> None:
        lengths = np.asarray(lengths, np.int64)
        starts = np.cumsum(lengths) - lengths
        t = np.arange(lengths.sum()) - np.repeat(starts, lengths)  # In the episode.
        self.begins = t == 0
        self.t = t if max_T is None else t % max_T
        self.b = np.cumsum(self.t == 0) - 1
        self.lengths = np.bincount(self.b)
        self.last_steps = np.cumsum(self.lengths) - 1
        self.shape = int(self.lengths.max()), len(self.lengths)

    def place(self, x: np.ndarray, n_more: int = 0) -> np.ndarray:
        """Return the values [S,...] of steps in their places [T+n_more,N,...], with zeros after the end of columns."""
        T, N = self.shape
        out = np.zeros((T + n_more, N, *x.shape[1:]), x.dtype)
        out[self.t, self.b] = x
        return out

    def place_observations(self, x: np.ndarray, next_x: np.ndarray) -> np.ndarray:
        """Return the observations [T+1,N,...], each column with the one after its last step."""
        out = self.place(x, n_more=1)
        out[self.lengths, np.arange(len(self.lengths))] = next_x[self.last_steps]
        return out

    def place_previous(self, x: np.ndarray) -> np.ndarray:
        """Return [T,N,...]: zeros where an episode starts, else the value of the previous step, which may be in another column."""
        out, continues = np.zeros((*self.shape, *x.shape[1:]), x.dtype), ~self.begins
        out[self.t[continues], self.b[continues]] = x[np.flatnonzero(continues) - 1]
        return out
