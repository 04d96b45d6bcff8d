"""Batches of single transitions from an n-step buffer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from rlpyt.agents.base import AgentInputs
from rlpyt.replays.batches import BatchMemory, New, gathers_of, take_rows
from rlpyt.replays.episode_ends import EpisodeEnds
from rlpyt.replays.n_step import BaseNStepReturnBuffer
from rlpyt.replays.storage import NStepReturns, Storage
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
#   target_inputs       at the end of the window: n steps later, or at the earlier end of a truncated episode
#   bootstrap_discount  float32, factor of the value of target_inputs: 0 if the episode was terminated in the
#                       window, otherwise discount ** (number of steps to target_inputs); hence
#                       target = return_ + bootstrap_discount * value(target_inputs)
SamplesFromReplay = namedarraytuple(
    "SamplesFromReplay",
    ["agent_inputs", "action", "return_", "done", "done_n", "target_inputs", "bootstrap_discount"],
    defaults=(None,),
)


class _Memory(NamedTuple):
    """Memory for one batch of n transitions. In arrays [2n], the first half is where transitions start, the second where they end."""

    rows: np.ndarray  # [2n], the first four as in `kernels.transition_rows`
    before: np.ndarray  # [2n]
    n_steps: np.ndarray  # [n]
    slot: np.ndarray  # [n]
    bootstrap_discount: np.ndarray  # [n]
    timeout_n: np.ndarray  # [n]
    observation: Any  # [2n,...]
    gathers: list  # (stored rows, indexes to copy, destination)
    batch: Any  # SamplesFromReplay of torch tensors over this memory


class Transitions:
    """Gathers batches of transitions over `n_step_return` steps.

    Args:
        storage, returns: those of the steps.
        ends: final observations of truncated episodes; None if they are not kept.
        batches: memory of batches.
        BatchCls: type of a batch: `SamplesFromReplay`, or one that also has `timeout` and `timeout_n`.
    """

    def __init__(
        self, storage: Storage, returns: NStepReturns, ends: EpisodeEnds | None, batches: BatchMemory, BatchCls: Any = SamplesFromReplay
    ) -> None:
        self.storage, self.returns, self.batches, self.BatchCls = storage, returns, batches, BatchCls
        self._tells_timeouts = "timeout" in BatchCls._fields
        self._discounts = (float(returns.discount) ** np.arange(returns.n_step + 1)).astype(np.float32)
        self._slots = np.empty(0, np.int32) if ends is None else ends.slots

    def gather(self, T_idxs: np.ndarray, B_idxs: np.ndarray, final_observations: Callable, observations: Callable | None = None) -> Any:
        """Return the transitions that start at rows `T_idxs` [n] of environments `B_idxs` [n]. Indexes are not checked.

        Args:
            final_observations: ``final_observations(T_idxs, B_idxs)`` returns the final observations of episodes truncated there.
            observations: ``observations(T_idxs, B_idxs)`` returns the observations; None reads them from the storage.
        """
        n, storage = len(T_idxs), self.storage
        m = self.batches.next(self._memory, n)
        any_final = kernels.transition_rows(
            T_idxs, B_idxs, storage.T, storage.B, storage.memory.done, storage.timeout, self._slots, self._discounts,
            m.rows, m.before, m.n_steps, m.bootstrap_discount, m.timeout_n, m.slot,
        )  # fmt: skip
        take_rows(m.gathers)
        observation = m.observation
        if observations is None:
            storage.gather(m.rows, T_idxs, B_idxs, m.n_steps, observation)
        else:
            observation = numpify_buffer(observations(m.rows // storage.B, m.rows % storage.B))
        if any_final:
            ends = np.flatnonzero(m.slot >= 0)
            last = storage.rows.wrap(T_idxs[ends] + m.n_steps[ends] - 1)
            observation[n + ends] = final_observations(last, B_idxs[ends])
        if observation is m.observation:
            return m.batch
        observation, batch = torchify_buffer(observation), m.batch
        return batch._replace(
            agent_inputs=batch.agent_inputs._replace(observation=observation[:n]),
            target_inputs=batch.target_inputs._replace(observation=observation[n:]),
        )

    def _memory(self, n: int, *, new: New) -> _Memory:
        rows, before = np.empty(2 * n, np.int64), np.empty(2 * n, np.int64)
        begin, stored = rows[:n], self.storage.memory
        sources = dict(
            prev_action=(stored.action, before),
            prev_reward=(stored.reward, before),
            action=(stored.action, begin),
            return_=(self.returns.return_, begin),
            done=(stored.done, begin),
            done_n=(self.returns.done_n, begin),
        )
        if self._tells_timeouts:
            sources["timeout"] = self.storage.timeout, begin
        out, gathers = gathers_of(sources, new)
        observation = self.storage.observation_memory(2 * n, new=new)
        inputs = AgentInputs(observation, out.pop("prev_action"), out.pop("prev_reward"))
        bootstrap_discount, timeout_n = new((n,), np.float32), new((n,), np.bool_)
        out |= dict(agent_inputs=inputs[:n], target_inputs=inputs[n:], bootstrap_discount=bootstrap_discount)
        if self._tells_timeouts:
            out["timeout_n"] = timeout_n
        return _Memory(
            rows=rows,
            before=before,
            n_steps=np.empty(n, np.int64),
            slot=np.empty(n, np.int64),
            bootstrap_discount=bootstrap_discount,
            timeout_n=timeout_n,
            observation=observation,
            gathers=gathers,
            batch=torchify_buffer(self.BatchCls(**out)),
        )


class NStepReturnBuffer(BaseNStepReturnBuffer):
    """Buffer of transitions over `n_step_return` steps."""

    def _make_layout(self, example: Any) -> Transitions:
        return Transitions(self.storage, self.returns, self.ends, self._batches)

    def extract_batch(self, T_idxs: np.ndarray, B_idxs: np.ndarray) -> Any:
        """Return the transitions that start at rows `T_idxs` [n] of environments `B_idxs` [n].

        Transitions never bootstrap across a reset: if an episode was truncated within the n steps, `target_inputs` are the inputs that the
        agent would have got next in that episode.

        Returns:
            `SamplesFromReplay`, torch tensors with leading dimension [n]. Nothing else uses their memory, unless `reuse_batches` was
            called.

        Raises:
            IndexError: an index is out of range.
        """
        observations = None if self._own_observations else self.extract_observation
        return self.layout.gather(*self._checked_idxs(T_idxs, B_idxs), self.extract_final_observation, observations)

    def extract_observation(self, T_idxs: np.ndarray, B_idxs: np.ndarray) -> Any:
        """Return copies of the observations [n,...] at ``[T_idxs, B_idxs]``.

        A subclass may override this to change the observations in batches, also their shape and dtype. It must then also override
        `extract_final_observation`.
        """
        return self.storage.observations(*self._checked_idxs(T_idxs, B_idxs))

    def extract_final_observation(self, T_idxs: np.ndarray, B_idxs: np.ndarray) -> Any:
        """Return copies of the final observations [n,...] of the episodes truncated at ``[T_idxs, B_idxs]``."""
        assert self.ends is not None, "only asked for where an episode was truncated"
        return self.storage.completed(self.ends.at(T_idxs, B_idxs), lambda: self.extract_observation(T_idxs, B_idxs))
