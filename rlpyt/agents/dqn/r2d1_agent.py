"""Agents for recurrent DQN (R2D1)."""

from __future__ import annotations

from typing import Any

import torch

from rlpyt.agents.base import AgentStep, AlternatingRecurrentAgentMixin, RecurrentAgentMixin
from rlpyt.agents.dqn.dqn_agent import DqnAgent
from rlpyt.agents.recurrent import recorded_rnn_state
from rlpyt.utils.collections import namedarraytuple

#   prev_rnn_state  [B,N,H], the state before the step
AgentInfo = namedarraytuple("AgentInfo", ["q", "prev_rnn_state"])


class R2d1AgentBase(DqnAgent):
    """DQN agent with a recurrent model; a mixin in front of it keeps the state.

    The model also takes the state before the first step, and returns (Q-values [*lead,n], state after the last step). States are
    structures of tensors [N,B,H]: layers, environments (1 where inputs have no leading dims), width; None stands for zeros.
    """

    def __call__(  # type: ignore[override]
        self, observation: Any, prev_action: Any, prev_reward: torch.Tensor, init_rnn_state: Any
    ) -> tuple[torch.Tensor, Any]:
        """Training data [T,B,...] or [B,...] -> (Q-values [*lead,n], next_rnn_state), with gradient, on the training device."""
        inputs = self._model_inputs(observation, prev_action, prev_reward)
        q, next_rnn_state = self.model(*inputs, self._to_device(init_rnn_state))
        return self._masked(q, observation), next_rnn_state

    @torch.no_grad()
    def step(self, observation: Any, prev_action: Any, prev_reward: torch.Tensor) -> AgentStep:
        """Choose actions, and advance the recurrent state; on the CPU, without gradient.

        Inputs have leading dims [B] or []. Returns AgentStep(action [*lead], AgentInfo(q [*lead,n], prev_rnn_state [B,N,H])).
        """
        prev_rnn_state = self.prev_rnn_state
        inputs = self._model_inputs(observation, prev_action, prev_reward)
        q, next_rnn_state = self._q_and_state((*inputs, prev_rnn_state))
        q, prev_rnn_state = self._to_cpu((q, recorded_rnn_state(prev_rnn_state, next_rnn_state)))
        q = self._masked(q, observation)
        step = AgentStep(self._sample(q, observation), AgentInfo(q, prev_rnn_state))
        self.advance_rnn_state(next_rnn_state)
        return step

    def _q_and_state(self, inputs: tuple) -> tuple[torch.Tensor, Any]:
        q_and_state: tuple[torch.Tensor, Any] = self._outputs(*inputs)
        return q_and_state

    def target(  # type: ignore[override]
        self, observation: Any, prev_action: Any, prev_reward: torch.Tensor, init_rnn_state: Any
    ) -> tuple[torch.Tensor, Any]:
        """Return the target model's (Q-values [*lead,n], next_rnn_state) for training data, on the training device."""
        inputs = self._model_inputs(observation, prev_action, prev_reward)
        q, next_rnn_state = self.target_model(*inputs, self._to_device(init_rnn_state))
        return self._masked(q, observation), next_rnn_state


class R2d1Agent(RecurrentAgentMixin, R2d1AgentBase):
    """Recurrent DQN agent."""


class R2d1AlternatingAgent(AlternatingRecurrentAgentMixin, R2d1AgentBase):
    """The same for alternating samplers."""
