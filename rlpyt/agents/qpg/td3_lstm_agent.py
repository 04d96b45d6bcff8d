"""Recurrent TD3 agents."""

from __future__ import annotations

import functools
from typing import Any

import torch

from rlpyt.agents.base import AgentStep, AlternatingRecurrentAgentMixin, RecurrentAgentMixin
from rlpyt.agents.qpg.recurrent import RecurrentModels, RnnStates
from rlpyt.agents.qpg.td3_agent import Td3Agent
from rlpyt.distributions.gaussian import DistInfo
from rlpyt.models.qpg.lstm import MuLstmModel, QofMuLstmModel
from rlpyt.utils.collections import namedarraytuple
from rlpyt.utils.quick_args import save__init__args
from rlpyt.utils.settings import checked

__all__ = ["AgentInfo", "AlternatingTd3LstmAgent", "RnnStates", "Td3LstmAgent", "Td3LstmAgentBase"]

#   mu              [B,A], the policy's action
#   prev_rnn_state  `RnnStates` [B,N,H] before the step
AgentInfo = namedarraytuple("AgentInfo", ["mu", "prev_rnn_state"])


class Td3LstmAgentBase(Td3Agent):
    """TD3 agent with a recurrent policy and recurrent Q-functions; a mixin in front of it keeps their states.

    Its settings are those of `rlpyt.agents.qpg.td3_agent.Td3Agent`.

    Args:
        ModelCls: class of mu, which returns actions [*lead,A], and the state after the last step. If it takes output_max, it gets the
            largest action, unless model_kwargs has another.
        QModelCls: class of the Q-functions, which also take an action, and return Q [*lead] and the state after the last step.
    """

    hidden_sizes = (64,)  # type: ignore[assignment]
    acting_names = ("model", "q_model", "q2_model")

    @checked()
    def __init__(
        self, *, ModelCls: type[torch.nn.Module] = MuLstmModel, QModelCls: type[torch.nn.Module] = QofMuLstmModel, **settings: Any
    ) -> None:
        save__init__args(locals())
        super().__init__(**settings)

    @functools.cached_property
    def recurrent_models(self) -> RecurrentModels:
        """The models with their states."""
        return RecurrentModels(self)

    def remember(
        self, observation: Any, prev_action: Any, prev_reward: torch.Tensor, init_rnn_state: Any = None, target: bool = False
    ) -> RnnStates:
        """Return the states after the last step of sequences [T,B], see `RecurrentModels.remember`."""
        return self.recurrent_models.remember(observation, prev_action, prev_reward, init_rnn_state, target)

    def q(  # type: ignore[override]
        self, observation: Any, prev_action: Any, prev_reward: torch.Tensor, init_rnn_state: Any, action: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        """Return both Q [T,B] of actions [T,B,A], with gradient."""
        return self.recurrent_models.q_values(self.q_names, observation, prev_action, prev_reward, init_rnn_state, action)

    def mu(  # type: ignore[override]
        self, observation: Any, prev_action: Any, prev_reward: torch.Tensor, init_rnn_state: Any
    ) -> torch.Tensor:
        """Return the policy's actions [T,B,A], with gradient to the policy."""
        return self._mu(self.model, observation, prev_action, prev_reward, init_rnn_state)

    def _mu(self, model: torch.nn.Module, observation: Any, prev_action: Any, prev_reward: torch.Tensor, states: Any) -> torch.Tensor:
        return self.recurrent_models.policy(model, observation, prev_action, prev_reward, states)[0]

    def q_at_mu(  # type: ignore[override]
        self, observation: Any, prev_action: Any, prev_reward: torch.Tensor, init_rnn_state: Any
    ) -> torch.Tensor:
        """Return Q [T,B] of the policy's actions, with gradient through the first Q-function to the policy."""
        inputs = observation, prev_action, prev_reward, init_rnn_state
        return self.recurrent_models.q_values(self.q_names[:1], *inputs, self.mu(*inputs))[0]

    @torch.no_grad()
    def target_q_at_mu(  # type: ignore[override]
        self, observation: Any, prev_action: Any, prev_reward: torch.Tensor, init_rnn_state: Any
    ) -> tuple[torch.Tensor, ...]:
        """Return both target networks' Q [T,B] of the target policy's actions with noise."""
        inputs = observation, prev_action, prev_reward, init_rnn_state
        action = self.target_distribution.sample(DistInfo(self._mu(self.target_model, *inputs)))
        return self.recurrent_models.q_values([self.target_names[name] for name in self.q_names], *inputs, action)

    @torch.no_grad()
    def step(self, observation: Any, prev_action: Any, prev_reward: torch.Tensor) -> AgentStep:
        """Choose actions, and advance the recurrent states; on the CPU, without gradient.

        Inputs have leading dims [B] or []. Returns AgentStep(action [*lead,A], AgentInfo(mu [*lead,A], prev_rnn_state [B,N,H])).
        """
        (mu,), prev_rnn_state = self.recurrent_models.step(observation, prev_action, prev_reward)
        return AgentStep(self.distribution.sample(DistInfo(mu)), AgentInfo(mu, prev_rnn_state))


class Td3LstmAgent(RecurrentAgentMixin, Td3LstmAgentBase):
    """Recurrent TD3 agent."""


class AlternatingTd3LstmAgent(AlternatingRecurrentAgentMixin, Td3LstmAgentBase):
    """The same for alternating samplers."""
