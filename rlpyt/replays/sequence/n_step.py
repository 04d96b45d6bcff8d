"""Batches of sequences from an n-step buffer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from rlpyt.replays.base import EXAMPLE
from rlpyt.replays.batches import BatchMemory, New, gathers_of, take_rows
from rlpyt.replays.draws import Draw
from rlpyt.replays.n_step import BaseNStepReturnBuffer
from rlpyt.replays.ring import Rows
from rlpyt.replays.storage import NStepReturns, RowArrays, Storage, step_bytes
from rlpyt.utils.buffer import buffer_func, torchify_buffer
from rlpyt.utils.collections import field_of, namedarraytuple
from rlpyt.utils.lazy import LazyModule
from rlpyt.utils.settings import COUNT, checked

kernels = LazyModule("rlpyt.utils.kernels")

# Sequences of T steps, and the n steps that the targets of the last one need; torch tensors.
#   all_observation    [T+n,B,...]
#   all_action         [T+n,B,...]  begins one step before all_observation: ``all_action[1:]`` are the actions taken
#   all_reward         [T+n,B]      like all_action
#   return_            [T,B]        sum of discounted rewards over the next n steps of the episode
#   done               [T,B]        the episode ended with the step
#   done_n             [T,B]        the episode ended within the n steps
#   init_rnn_state     [B,...]      stored state of the agent before the first step; None if states are not stored
#   all_prev_action    [T+n,B,...]  the agent's input with each observation: like all_action, but null at the start of an episode
#   all_prev_reward    [T+n,B]      likewise
#   valid              [T,B]        False if the step has no target, because the episode was truncated within the n steps, or if it is
#                                   blank, because the sampler waited for the end of its batch
SamplesFromReplay = namedarraytuple(
    "SamplesFromReplay",
    ["all_observation", "all_action", "all_reward", "return_", "done", "done_n", "init_rnn_state"]
    + ["all_prev_action", "all_prev_reward", "valid"],
    defaults=(None, None, None),
)

# The fields of a step that a sequence buffer needs; an example may be of any type with these fields, and have more.
SamplesToBuffer = namedarraytuple(
    "SamplesToBuffer",
    ["observation", "action", "reward", "done", "prev_rnn_state", "timeout", "valid", "priorities"],
    defaults=(None, None, None, None),
)


class _Memory(NamedTuple):
    """Memory for one batch of n sequences of T steps, and N further steps for their targets."""

    rows: np.ndarray  # [T+N,n], the first four as in `kernels.sequence_rows`
    before: np.ndarray  # [T+N,n]
    prev: np.ndarray  # [T+N,n]
    valid: np.ndarray  # [T,n]
    rnn_rows: np.ndarray  # [n], rows of the memory of recurrent states
    observation: Any  # [T+N,n,...]
    gathers: list  # (stored rows, indexes to copy, destination)
    batch: Any  # SamplesFromReplay of torch tensors over this memory


class RecurrentStates(RowArrays):
    """Stores the agent's recurrent state before each step at which sequences may start."""

    def __init__(self, example: Any, starts: Rows, B: int, share_memory: bool) -> None:
        super().__init__(example, "prev_rnn_state", starts, B, share_memory)

    def write(self, samples: Any, n: int) -> None:
        """Write the states of samples [n,B,...] at starts."""
        written, interval = self.rows.ring.written, self.rows.interval
        states = buffer_func(samples.prev_rnn_state, lambda x: x[-written % interval :: interval])
        self.samples[self.rows.rows(0, self.rows.among(n))] = states


class Sequences:
    """Gathers batches of sequences.

    Args:
        storage, returns: those of the steps.
        states: recurrent states at the starts; None if they are not stored.
        interval: number of rows from one start to the next.
        batches: memory of batches.
    """

    def __init__(
        self, storage: Storage, returns: NStepReturns, states: RecurrentStates | None, interval: int, batches: BatchMemory
    ) -> None:
        self.storage, self.returns, self.states, self.interval, self.batches = storage, returns, states, interval, batches

    def gather(self, T_idxs: np.ndarray, B_idxs: np.ndarray, T: int, observations: Callable | None = None) -> Any:
        """Return the sequences of `T` steps that start at rows `T_idxs` [n] of environments `B_idxs` [n]. Indexes are not checked.

        Args:
            observations: ``observations(T_idxs, B_idxs, T)`` returns the observations; None reads them from the storage.
        """
        m, storage = self.batches.next(self._memory, T, len(T_idxs)), self.storage
        kernels.sequence_rows(
            T_idxs, B_idxs, storage.T, storage.B, self.returns.n_step, storage.memory.done, storage.timeout, storage.valid,
            m.rows, m.before, m.prev, m.valid,
        )  # fmt: skip
        np.add((T_idxs // self.interval) * storage.B, B_idxs, out=m.rnn_rows)
        take_rows(m.gathers)
        if observations is None:
            storage.gather(m.rows, T_idxs, B_idxs, None, m.observation)
            return m.batch
        return m.batch._replace(all_observation=torchify_buffer(observations(T_idxs, B_idxs, len(m.rows))))

    def _memory(self, T: int, n: int, *, new: New) -> _Memory:
        all_T, s = T + self.returns.n_step, self.storage.memory
        rows, before, prev = (np.empty((all_T, n), np.int64) for _ in range(3))
        valid, rnn_rows = new((T, n), np.bool_), np.empty(n, np.int64)
        observation = self.storage.observation_memory(all_T, n, new=new)
        sources = dict(
            all_action=(s.action, before),
            all_reward=(s.reward, before),
            return_=(self.returns.return_, rows[:T]),
            done=(s.done, rows[:T]),
            done_n=(self.returns.done_n, rows[:T]),
            init_rnn_state=(None if self.states is None else self.states.memory, rnn_rows),
            all_prev_action=(s.action, prev),
            all_prev_reward=(s.reward, prev),
        )
        out, gathers = gathers_of(sources, new)
        batch = torchify_buffer(SamplesFromReplay(all_observation=observation, valid=valid, **out))
        return _Memory(rows, before, prev, valid, rnn_rows, observation, gathers, batch)


class SequenceNStepReturnBuffer(BaseNStepReturnBuffer):
    """Buffer of sequences, which stores the agent's recurrent state of each step, or of each `rnn_state_interval`-th step.

    Sequences start at steps whose number, counted from the first step ever, is a multiple of `rnn_state_interval`. If the interval is more
    than 1, the zones around the cursor that cannot be replayed are rounded up to whole intervals. All steps of a sequence, and the
    `n_step_return` steps after it, lie in memory.

    Samples have a field `prev_rnn_state` [T,B,...], the state before each step, unless no states are stored. `final_observation` is not
    used, because the value of an observation outside the sequence would need another recurrent state. Steps before a truncation are marked
    as not `valid` instead.

    Args:
        example: has a field `prev_rnn_state`, if states are stored.
        size: as in the base class; rounded up to a whole number of intervals.
        B: number of environments.
        rnn_state_interval: number of steps from one stored recurrent state to the next; less than 1 stores none.
        batch_T: steps in a sequence; for uniform replay, it may be given when sampling instead.
        kwargs: `discount`, `n_step_return`, `null_action`.

    Raises:
        ValueError: the size is too small for a sequence, or the example has no recurrent state to store.
    """

    keeps_final_observations = False

    @checked(example=EXAMPLE, size=COUNT, B=COUNT, batch_T=COUNT)
    def __init__(self, example: Any, size: int, B: int, rnn_state_interval: int, batch_T: int | None = None, **kwargs: Any) -> None:
        if rnn_state_interval > 0 and field_of(example, "prev_rnn_state") is None:
            raise ValueError(
                f"rnn_state_interval={rnn_state_interval} stores recurrent states, but the example has no prev_rnn_state: give it "
                "that field, or set rnn_state_interval=0."
            )
        self.rnn_state_interval, self.batch_T = rnn_state_interval, batch_T
        super().__init__(example=example, size=size, B=B, **kwargs)

    @property
    def start_interval(self) -> int:
        """Number of rows from one possible start of a sequence to the next."""
        return max(1, self.rnn_state_interval)

    def start_zones(self, batch_T: int | None = None) -> tuple[int, int]:
        """Return the numbers of starts before and after the cursor where no sequence of `batch_T` steps can start."""
        rows_after = (batch_T or self.batch_T or 1) - 1 + self.n_step_return
        return -(-rows_after // self.start_interval), -(-self.off_forward // self.start_interval)

    def _other_needs(self) -> str:
        return f", batch_T={self.batch_T} and rnn_state_interval={self.rnn_state_interval}"

    def _step_bytes(self, example: Any) -> float:
        states = step_bytes(example.prev_rnn_state) / self.start_interval if self.rnn_state_interval > 0 else 0
        return super()._step_bytes(example) + states

    def _make_layout(self, example: Any) -> Sequences:
        self.states = None
        if self.rnn_state_interval > 0:
            self.states = RecurrentStates(example.prev_rnn_state, self.starts, self.B, self.async_)
            self._row_parts.append(self.states)
        return Sequences(self.storage, self.returns, self.states, self.start_interval, self._batches)

    @property
    def samples_prev_rnn_state(self) -> Any:
        """Stored recurrent states [T/rnn_state_interval,B,...]; None if they are not stored."""
        return None if self.states is None else self.states.samples

    def set_batch_T(self, batch_T: int) -> None:
        """Set the default number of steps in a sequence for `sample_batch`."""
        self.batch_T = self._length(batch_T)

    def sample_batch(self, batch_B: int, batch_T: int | None = None) -> Any:
        """Return `batch_B` random sequences of `batch_T` steps (by default, the number set before); see `extract_batch`."""
        return self.draw_and_gather(batch_B, batch_T)[0]

    def sample_idxs(self, batch_B: int, batch_T: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Return (T_idxs [batch_B], B_idxs [batch_B]) of random steps at which a sequence of `batch_T` steps can start now.

        Raises:
            ValueError: nothing can be replayed yet.
        """
        return self.draws.select(batch_B, self.start_zones(self._length(batch_T))[0])

    def _draw(self, batch_B: int, batch_T: int | None = None) -> Draw:
        batch_T = self._length(batch_T)
        return Draw((*self.sample_idxs(batch_B, batch_T), batch_T))

    def _length(self, batch_T: int | None) -> int:
        """Return the number of steps in sequences for which `batch_T` is given."""
        batch_T = self.batch_T if batch_T is None else batch_T
        if batch_T is None:
            raise ValueError("How long are the sequences? Give batch_T, here, to set_batch_T or to the constructor.")
        if batch_T < 1:
            raise ValueError(f"batch_T={batch_T} must be at least 1.")
        return batch_T

    def extract_batch(self, T_idxs: np.ndarray, B_idxs: np.ndarray, T: int) -> Any:
        """Return the sequences of `T` steps that start at rows `T_idxs` [n] of environments `B_idxs` [n].

        Returns:
            `SamplesFromReplay`, torch tensors with leading dimensions [T,n] or [T+n_step_return,n]. Nothing else uses their memory, unless
            `reuse_batches` was called.

        Raises:
            IndexError: an index is out of range.
            ValueError: a sequence starts at a row without a stored recurrent state.
        """
        T_idxs, B_idxs = self._checked_idxs(T_idxs, B_idxs)
        if self.start_interval > 1 and (T_idxs % self.start_interval).any():
            raise ValueError(f"Sequences can only start at rows that are multiples of rnn_state_interval={self.start_interval}.")
        return self.layout.gather(T_idxs, B_idxs, T, None if self._own_observations else self.extract_observation)

    def extract_observation(self, T_idxs: np.ndarray, B_idxs: np.ndarray, T: int) -> Any:
        """Return copies of the observations [T,n,...] of the `T` steps from ``[T_idxs, B_idxs]`` on.

        A subclass may override this to change the observations in batches, also their shape and dtype.
        """
        return self.storage.observations(*self._checked_idxs(T_idxs, B_idxs), T)
