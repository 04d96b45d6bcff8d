"""Recurrent TD3 agents."""

from __future__ import annotations

from typing import Any

import torch

from rlpyt.agents.base import AgentStep, AlternatingRecurrentAgentMixin, RecurrentAgentMixin
from rlpyt.agents.qpg.recurrent import RnnStates, check_models, each_state, q, recurrent_q_values, remember, step_networks, target_q
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

    The methods for training take inputs with leading dims [T,B], and `init_rnn_state`, the states before the first step: `RnnStates` of
    [N,B,H], or None for zeros. `rlpyt.agents.qpg.recurrent` says what models do.

    Its settings are those of `rlpyt.agents.qpg.td3_agent.Td3Agent`.

    Args:
        ModelCls: class of mu, which returns actions [*lead,A], and the state after the last step. If it takes output_max, it gets the
            largest action, unless model_kwargs has another.
        QModelCls: class of the Q-functions, which also take an action, and return Q [*lead] and the state after the last step.
    """

    hidden_sizes = (64,)  # type: ignore[assignment]
    acting_names = ("model", "q_model", "q2_model")
    q = q  # type: ignore[assignment]
    remember = remember

    @checked()
    def __init__(
        self, *, ModelCls: type[torch.nn.Module] = MuLstmModel, QModelCls: type[torch.nn.Module] = QofMuLstmModel, **settings: Any
    ) -> None:
        save__init__args(locals())
        super().__init__(**settings)

    def make_models(self) -> None:
        """Also check that models can remember."""
        super().make_models()
        check_models(self)

    def mu(  # type: ignore[override]
        self, observation: Any, prev_action: Any, prev_reward: torch.Tensor, init_rnn_state: Any
    ) -> torch.Tensor:
        """Return the policy's actions [T,B,A], with gradient to the policy."""
        return self._mu(self.model, observation, prev_action, prev_reward, init_rnn_state)

    def _mu(self, model: torch.nn.Module, observation: Any, prev_action: Any, prev_reward: torch.Tensor, states: Any) -> torch.Tensor:
        return model(*self._model_inputs(observation, prev_action, prev_reward), each_state(self, states)[0])[0]

    def q_at_mu(  # type: ignore[override]
        self, observation: Any, prev_action: Any, prev_reward: torch.Tensor, init_rnn_state: Any
    ) -> torch.Tensor:
        """Return Q [T,B] of the policy's actions, with gradient through the first Q-function to the policy."""
        inputs = observation, prev_action, prev_reward, init_rnn_state
        return recurrent_q_values(self, self.q_names[:1], *inputs, self.mu(*inputs))[0]

    @torch.no_grad()
    def target_q_at_mu(  # type: ignore[override]
        self, observation: Any, prev_action: Any, prev_reward: torch.Tensor, init_rnn_state: Any
    ) -> tuple[torch.Tensor, ...]:
        """Return both target networks' Q [T,B] of the target policy's actions with noise."""
        inputs = observation, prev_action, prev_reward, init_rnn_state
        action = self.target_distribution.sample(DistInfo(self._mu(self.target_model, *inputs)))
        return target_q(self, *inputs, action)

    @torch.no_grad()
    def step(self, observation: Any, prev_action: Any, prev_reward: torch.Tensor) -> AgentStep:
        """Choose actions, and advance the recurrent states; on the CPU, without gradient.

        Inputs have leading dims [B] or []. Returns AgentStep(action [*lead,A], AgentInfo(mu [*lead,A], prev_rnn_state [B,N,H])).
        """
        (mu,), prev_rnn_state = step_networks(self, self._model_inputs(observation, prev_action, prev_reward))
        return AgentStep(self.distribution.sample(DistInfo(mu)), AgentInfo(mu, prev_rnn_state))


class Td3LstmAgent(RecurrentAgentMixin, Td3LstmAgentBase):
    """Recurrent TD3 agent."""


class AlternatingTd3LstmAgent(AlternatingRecurrentAgentMixin, Td3LstmAgentBase):
    """The same for alternating samplers."""
