"""Recurrent SAC agents."""

from __future__ import annotations

from typing import Any

import torch

from rlpyt.agents.base import AgentStep, AlternatingRecurrentAgentMixin, RecurrentAgentMixin
from rlpyt.agents.qpg.recurrent import RnnStates, check_models, each_state, q, remember, step_networks, target_q
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

    The methods for training take inputs with leading dims [T,B], and `init_rnn_state`, the states before the first step: `RnnStates` of
    [N,B,H], or None for zeros. `rlpyt.agents.qpg.recurrent` says what models do.

    Its settings are those of `rlpyt.agents.qpg.sac_agent.SacAgent`.

    Args:
        ModelCls: class of the policy, which returns mean and log_std, both [*lead,A], and the state after the last step.
        QModelCls: class of the Q-functions, which also take an action, and return Q [*lead] and the state after the last step.
    """

    hidden_sizes = (64,)  # type: ignore[assignment]
    acting_names = ("model", "q1_model", "q2_model")
    q = q  # type: ignore[assignment]
    target_q = target_q  # type: ignore[assignment]
    remember = remember

    @checked()
    def __init__(
        self, *, ModelCls: type[torch.nn.Module] = PiLstmModel, QModelCls: type[torch.nn.Module] = QofMuLstmModel, **settings: Any
    ) -> None:
        save__init__args(locals())
        super().__init__(**settings)

    def make_models(self) -> None:
        """Also check that models can remember."""
        super().make_models()
        check_models(self)

    def pi(  # type: ignore[override]
        self, observation: Any, prev_action: Any, prev_reward: torch.Tensor, init_rnn_state: Any
    ) -> tuple[torch.Tensor, torch.Tensor, DistInfoStd]:
        """Return new actions [T,B,A], the log of their densities [T,B], and dist_info, all with gradient to the policy."""
        *outputs, _ = self.model(*self._model_inputs(observation, prev_action, prev_reward), each_state(self, init_rnn_state)[0])
        dist_info = DistInfoStd(*outputs)
        return *self.distribution.sample_loglikelihood(dist_info), dist_info

    def joint_pi(self, inputs: Any, target_inputs: Any) -> None:
        """Return None: there is no pass for both, since their sequences begin with different states."""

    @torch.no_grad()
    def step(self, observation: Any, prev_action: Any, prev_reward: torch.Tensor) -> AgentStep:
        """Choose actions, and advance the recurrent states; on the CPU, without gradient.

        Inputs have leading dims [B] or []. Returns AgentStep(action [*lead,A], AgentInfo(dist_info [*lead,A], prev_rnn_state [B,N,H])).
        """
        outputs, prev_rnn_state = step_networks(self, self._model_inputs(observation, prev_action, prev_reward))
        dist_info = DistInfoStd(*outputs)
        return AgentStep(self.distribution.sample(dist_info), AgentInfo(dist_info, prev_rnn_state))


class SacLstmAgent(RecurrentAgentMixin, SacLstmAgentBase):
    """Recurrent SAC agent."""


class AlternatingSacLstmAgent(AlternatingRecurrentAgentMixin, SacLstmAgentBase):
    """The same for alternating samplers."""
