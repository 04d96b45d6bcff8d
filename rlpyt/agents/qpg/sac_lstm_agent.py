"""Recurrent SAC agents."""

from __future__ import annotations

import functools
from typing import Any

import torch

from rlpyt.agents.base import AgentStep, AlternatingRecurrentAgentMixin, RecurrentAgentMixin
from rlpyt.agents.qpg.recurrent import RecurrentModels, RnnStates
from rlpyt.agents.qpg.sac_agent import SacAgent
from rlpyt.distributions.gaussian import DistInfoStd
from rlpyt.models.qpg.lstm import PiLstmModel, QofMuLstmModel
from rlpyt.utils.collections import namedarraytuple
from rlpyt.utils.quick_args import save__init__args
from rlpyt.utils.settings import checked

__all__ = ["AgentInfo", "AlternatingSacLstmAgent", "RnnStates", "SacLstmAgent", "SacLstmAgentBase"]

#   dist_info       [B,A], mean and log_std
#   prev_rnn_state  `RnnStates` [B,N,H] before the step
AgentInfo = namedarraytuple("AgentInfo", ["dist_info", "prev_rnn_state"])


class SacLstmAgentBase(SacAgent):
    """SAC agent with a recurrent policy and recurrent Q-functions; a mixin in front of it keeps their states.

    Its settings are those of `rlpyt.agents.qpg.sac_agent.SacAgent`.

    Args:
        ModelCls: class of the policy, which returns mean and log_std, both [*lead,A], and the state after the last step.
        QModelCls: class of the Q-functions, which also take an action, and return Q [*lead] and the state after the last step.
    """

    hidden_sizes = (64,)  # type: ignore[assignment]
    acting_names = ("model", "q1_model", "q2_model")

    @checked()
    def __init__(
        self, *, ModelCls: type[torch.nn.Module] = PiLstmModel, QModelCls: type[torch.nn.Module] = QofMuLstmModel, **settings: Any
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

    def joint_pi(self, inputs: Any, target_inputs: Any) -> None:
        """Return None: sequences and those for targets begin with different states."""

    def pi(  # type: ignore[override]
        self, observation: Any, prev_action: Any, prev_reward: torch.Tensor, init_rnn_state: Any
    ) -> tuple[torch.Tensor, torch.Tensor, DistInfoStd]:
        """Return new actions [T,B,A], the log of their densities [T,B], and dist_info, all with gradient to the policy."""
        dist_info = DistInfoStd(*self.recurrent_models.policy(self.model, observation, prev_action, prev_reward, init_rnn_state))
        return *self.distribution.sample_loglikelihood(dist_info), dist_info

    @torch.no_grad()
    def step(self, observation: Any, prev_action: Any, prev_reward: torch.Tensor) -> AgentStep:
        """Choose actions, and advance the recurrent states; on the CPU, without gradient.

        Inputs have leading dims [B] or []. Returns AgentStep(action [*lead,A], AgentInfo(dist_info [*lead,A], prev_rnn_state [B,N,H])).
        """
        outputs, prev_rnn_state = self.recurrent_models.step(observation, prev_action, prev_reward)
        dist_info = DistInfoStd(*outputs)
        return AgentStep(self.distribution.sample(dist_info), AgentInfo(dist_info, prev_rnn_state))

    @torch.no_grad()
    def target_q(  # type: ignore[override]
        self, observation: Any, prev_action: Any, prev_reward: torch.Tensor, init_rnn_state: Any, action: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        """Return both target networks' Q [T,B] of actions [T,B,A]."""
        names = [self.target_names[name] for name in self.q_names]
        return self.recurrent_models.q_values(names, observation, prev_action, prev_reward, init_rnn_state, action)


class SacLstmAgent(RecurrentAgentMixin, SacLstmAgentBase):
    """Recurrent SAC agent."""


class AlternatingSacLstmAgent(AlternatingRecurrentAgentMixin, SacLstmAgentBase):
    """The same for alternating samplers."""
