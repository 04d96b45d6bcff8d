"""What is read out of an n-step buffer to train on single transitions."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlpyt.agents.base import AgentInputs
from rlpyt.replays.n_step import BaseNStepReturnBuffer
from rlpyt.utils.buffer import torchify_buffer
from rlpyt.utils.collections import namedarraytuple

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


class NStepReturnBuffer(BaseNStepReturnBuffer):
    """Buffer of transitions over `n_step_return` steps."""

    def extract_batch(self, T_idxs: np.ndarray, B_idxs: np.ndarray) -> Any:
        """Return the transitions that start at rows `T_idxs` [n] of environments `B_idxs` [n].

        Never bootstraps across a reset: where the episode was truncated within the window, `target_inputs` are
        what the agent would have been given next, had it gone on.

        Returns:
            `SamplesFromReplay`, torch tensors with leading dimension [n], over memory that nothing else uses.
        """
        s, n = self.samples, len(T_idxs)
        n_steps, bootstrap_discount, timed_out = self._window_ends(T_idxs, B_idxs)
        last_idxs = self.ring.wrap(T_idxs + n_steps - 1)  # Rows of the last steps of the windows.

        # Inputs of both ends at once: those at the step follow the row before it.
        before = np.concatenate([T_idxs - 1, last_idxs])
        both_B = np.concatenate([B_idxs, B_idxs])
        observation = self.extract_observation(self.ring.wrap(before + 1), both_B)
        starts = s.done[before, both_B].astype(bool)
        if timed_out.any():
            ends = n + np.flatnonzero(timed_out)
            observation[ends] = self.extract_final_observation(before[ends], both_B[ends])
            starts[ends] = False
        prev_action, prev_reward = s.action[before, both_B], s.reward[before, both_B]
        prev_action[starts], prev_reward[starts] = self.null_action, 0
        inputs = AgentInputs(observation, prev_action, prev_reward)

        return torchify_buffer(
            SamplesFromReplay(
                agent_inputs=inputs[:n],
                action=s.action[T_idxs, B_idxs],
                return_=self.samples_return_[T_idxs, B_idxs],
                done=s.done[T_idxs, B_idxs],
                done_n=self.samples_done_n[T_idxs, B_idxs],
                target_inputs=inputs[n:],
                bootstrap_discount=bootstrap_discount,
            )
        )

    def extract_observation(self, T_idxs: np.ndarray, B_idxs: np.ndarray) -> Any:
        """Return the observations [n,...] at ``[T_idxs, B_idxs]``, as a copy."""
        return self.samples.observation[T_idxs, B_idxs]

    def extract_final_observation(self, T_idxs: np.ndarray, B_idxs: np.ndarray) -> Any:
        """Return the observations [n,...] that ended the episodes truncated at ``[T_idxs, B_idxs]``, as a copy."""
        return self._final_observations[self._final_number[T_idxs, B_idxs]]

    def _window_ends(
        self, T_idxs: np.ndarray, B_idxs: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return, each [n]: steps to the target inputs, bootstrap discount, whether truncated within the window.

        After a termination any target inputs do, since their discount is 0: those n steps later.
        """
        s, n_step = self.samples, self.n_step_return
        rows = self.ring.wrap(T_idxs + np.arange(n_step)[:, None])  # [n_step,n]
        done = s.done[rows, B_idxs].astype(bool)
        n_steps = np.full(len(T_idxs), n_step)
        terminated = done.any(axis=0)
        timed_out = np.zeros_like(terminated)
        if self._final_observations is not None:
            first = done.argmax(axis=0)
            first_row = rows[first, np.arange(len(T_idxs))]
            timed_out = terminated & s.timeout[first_row, B_idxs].astype(bool)
            terminated &= ~timed_out
            n_steps[timed_out] = first[timed_out] + 1
        bootstrap_discount = np.where(terminated, 0, float(self.discount) ** n_steps).astype(np.float32)
        return n_steps, bootstrap_discount, timed_out
