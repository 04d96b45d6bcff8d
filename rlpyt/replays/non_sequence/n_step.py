"""What is read out of an n-step buffer to train on single transitions."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from rlpyt.agents.base import AgentInputs
from rlpyt.replays.batches import pairs_of_leaves, rows_like, take_rows
from rlpyt.replays.n_step import BaseNStepReturnBuffer
from rlpyt.utils.buffer import numpify_buffer, torchify_buffer
from rlpyt.utils.collections import namedarraytuple
from rlpyt.utils.lazy import LazyModule

kernels = LazyModule("rlpyt.utils.kernels")

# A transition, with leading dimension [n]; torch tensors.
#   agent_inputs        at the step: observation, and action and reward before it (null after an episode's end)
#   action              taken there
#   return_             sum of discounted rewards over the next n steps of the episode
#   done                the episode ended with the step
#   done_n              the episode ended within the n steps
#   target_inputs       at the end of the window: n steps later, or at the end of a truncated episode before that
#   bootstrap_discount  float32, factor of the value of target_inputs: 0 if the episode was terminated in the
#                       window, otherwise discount ** (number of steps to target_inputs); hence
#                       target = return_ + bootstrap_discount * value(target_inputs)
SamplesFromReplay = namedarraytuple(
    "SamplesFromReplay",
    ["agent_inputs", "action", "return_", "done", "done_n", "target_inputs", "bootstrap_discount"],
    defaults=(None,),
)


class _Memory(NamedTuple):
    """Where one batch of n transitions is put together. Of "ends" [2n], the first half is where transitions begin."""

    rows: np.ndarray  # [2n], these four as in `kernels.transition_rows`
    before: np.ndarray  # [2n]
    n_steps: np.ndarray  # [n]
    slot: np.ndarray  # [n]
    bootstrap_discount: np.ndarray  # [n]
    timeout: np.ndarray  # [n]
    timeout_n: np.ndarray  # [n]
    observation: Any  # [2n,...], of the ends
    gathers: list  # (stored rows, which of them, where to)
    batch: Any  # SamplesFromReplay of torch tensors over all this


class NStepReturnBuffer(BaseNStepReturnBuffer):
    """Buffer of transitions over `n_step_return` steps."""

    def _allocate(self, example: Any) -> None:
        super()._allocate(example)
        self._discounts = (float(self.discount) ** np.arange(self.n_step_return + 1)).astype(np.float32)
        self._slots = np.empty(0, np.int32) if self._final_observations is None else self._final_slot

    def extract_batch(self, T_idxs: np.ndarray, B_idxs: np.ndarray) -> Any:
        """Return the transitions that start at rows `T_idxs` [n] of environments `B_idxs` [n].

        Never bootstraps across a reset: where the episode was truncated within the window, `target_inputs` are
        what the agent would have been given next, had it gone on.

        Returns:
            `SamplesFromReplay`, torch tensors with leading dimension [n]; over memory that nothing else uses, unless
            `reuse_batches` was called.

        Raises:
            IndexError: an index is not one of a row and an environment.
        """
        return self._extract(T_idxs, B_idxs)[1]

    def extract_observation(self, T_idxs: np.ndarray, B_idxs: np.ndarray) -> Any:
        """Return the observations [n,...] at ``[T_idxs, B_idxs]``, as a copy.

        What a subclass returns here is what batches hold, whatever its shape and dtype; override `extract_final_observation`
        likewise.
        """
        return self.samples.observation[T_idxs, B_idxs]

    def extract_final_observation(self, T_idxs: np.ndarray, B_idxs: np.ndarray) -> Any:
        """Return the observations [n,...] that ended the episodes truncated at ``[T_idxs, B_idxs]``, as a copy."""
        return self._final_observations[self._final_slot[T_idxs * self.B + B_idxs]]

    def _extract(self, T_idxs: np.ndarray, B_idxs: np.ndarray) -> tuple[_Memory, Any]:
        """Return the memory with everything about a batch, and the batch."""
        T_idxs, B_idxs = self._checked_idxs(T_idxs, B_idxs)
        n = len(T_idxs)
        m = self._batches.next(self._batch_memory, n)
        any_final = kernels.transition_rows(
            T_idxs, B_idxs, self.T, self.B, self._rows.done, self._timeout, self._slots, self._discounts,
            m.rows, m.before, m.n_steps, m.bootstrap_discount, m.timeout_n, m.slot,
        )  # fmt: skip
        take_rows(m.gathers)
        observation = m.observation
        if self._own_observations:
            self._gather_observations(m, T_idxs, B_idxs)
        else:
            observation = numpify_buffer(self.extract_observation(m.rows // self.B, m.rows % self.B))
        if any_final:
            ends = np.flatnonzero(m.slot >= 0)
            last = (T_idxs[ends] + m.n_steps[ends] - 1) % self.T
            observation[n + ends] = self.extract_final_observation(last, B_idxs[ends])
        if observation is m.observation:
            return m, m.batch
        observation, batch = torchify_buffer(observation), m.batch
        return m, batch._replace(
            agent_inputs=batch.agent_inputs._replace(observation=observation[:n]),
            target_inputs=batch.target_inputs._replace(observation=observation[n:]),
        )

    def _batch_memory(self, n: int, *, pin: bool) -> _Memory:
        rows, before = np.empty(2 * n, np.int64), np.empty(2 * n, np.int64)
        begin = rows[:n]
        observation = self._observation_memory(2 * n, pin=pin)
        s = self._rows
        prev = AgentInputs(None, rows_like(s.action, 2 * n, pin=pin), rows_like(s.reward, 2 * n, pin=pin))
        inputs = prev._replace(observation=observation)
        stored = dict(action=s.action, return_=self._returns, done=s.done, done_n=self._done_n)
        out = {name: rows_like(source, n, pin=pin) for name, source in stored.items()}
        bootstrap_discount = rows_like(self._discounts, n, pin=pin)
        gathers = pairs_of_leaves(s.action, before, prev.prev_action) + pairs_of_leaves(s.reward, before, prev.prev_reward)
        for name, source in stored.items():
            gathers += pairs_of_leaves(source, begin, out[name])
        timeout = np.zeros(n, np.bool_)
        if len(self._timeout):
            gathers += pairs_of_leaves(self._timeout, begin, timeout)
        batch = SamplesFromReplay(agent_inputs=inputs[:n], target_inputs=inputs[n:], bootstrap_discount=bootstrap_discount, **out)
        return _Memory(
            rows=rows,
            before=before,
            n_steps=np.empty(n, np.int64),
            slot=np.empty(n, np.int64),
            bootstrap_discount=bootstrap_discount,
            timeout=timeout,
            timeout_n=np.empty(n, np.bool_),
            observation=observation,
            gathers=gathers,
            batch=torchify_buffer(batch),
        )
