"""Agents for deep Q-learning of quantiles with a recurrent model."""

from __future__ import annotations

from typing import Any

import torch

from rlpyt.agents.base import AlternatingRecurrentAgentMixin, RecurrentAgentMixin
from rlpyt.agents.dqn.quantile_agents import IqnAgent, QrDqnAgent, QuantileAgent
from rlpyt.agents.dqn.r2d1_agent import R2d1AgentBase
from rlpyt.utils.settings import checked


# --- methods that the classes below name ------------------------------------------------------------------------------
def learned(
    self: QuantileAgent,
    observation: Any,
    prev_action: Any,
    prev_reward: torch.Tensor,
    init_rnn_state: Any,
    fractions: torch.Tensor | None = None,
) -> tuple[torch.Tensor, Any]:
    """Return quantiles [*lead,n,N] for training data [T,B,...], with gradient, and the state after the last step, on the training device.

    fractions: [T,B,N], or [N] for all; None for those with which the agent acts.
    """
    inputs = (*self._model_inputs(observation, prev_action, prev_reward), self._to_device(init_rnn_state))
    return self._quantiles(self.model, inputs, fractions)


def target(
    self: QuantileAgent,
    observation: Any,
    prev_action: Any,
    prev_reward: torch.Tensor,
    init_rnn_state: Any,
    fractions: torch.Tensor | None = None,
) -> tuple[torch.Tensor, Any]:
    """Return the target model's quantiles and state; arguments and result are those of `__call__`."""
    inputs = (*self._model_inputs(observation, prev_action, prev_reward), self._to_device(init_rnn_state))
    return self._quantiles(self.target_model, inputs, fractions)


def q_and_state(self: QuantileAgent, inputs: tuple) -> tuple[torch.Tensor, Any]:
    """Return means of quantiles, and the state after the step."""
    quantiles, next_rnn_state = self._quantiles(self._outputs, inputs)
    return quantiles.mean(dim=-1), next_rnn_state


# --- agents -----------------------------------------------------------------------------------------------------------
class QrR2d1AgentBase(QrDqnAgent):
    """QR-DQN agent with a recurrent model; a mixin in front of it keeps the state.

    The model also takes the state before the first step, and returns (quantiles [*lead,n,n_quantiles], state after the last step). States
    are those of `rlpyt.agents.dqn.r2d1_agent.R2d1AgentBase`.
    """

    __call__, target, step, _q_and_state = learned, target, R2d1AgentBase.step, q_and_state  # type: ignore[assignment]


class IqnR2d1AgentBase(IqnAgent):
    """IQN agent with a recurrent model, which gets ``implicit=True``; a mixin in front of it keeps the state.

    The model takes, after the previous reward, the state before the first step and fractions [*lead,N] or [N], and returns
    (quantiles [*lead,n,N], state after the last step). States are those of `rlpyt.agents.dqn.r2d1_agent.R2d1AgentBase`.

    It has the settings of `rlpyt.agents.dqn.quantile_agents.IqnAgent`.

    Raises:
        ValueError: `model_kwargs` has ``implicit=False``.
    """

    output_settings = ("implicit",)

    @checked()
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.give_model("implicit", True, "leave it out, or take an agent of recurrent QR-DQN, such as MlpQrR2d1Agent")

    __call__, target, step, _q_and_state = learned, target, R2d1AgentBase.step, q_and_state  # type: ignore[assignment]


class QrR2d1Agent(RecurrentAgentMixin, QrR2d1AgentBase):
    """Recurrent QR-DQN agent."""


class QrR2d1AlternatingAgent(AlternatingRecurrentAgentMixin, QrR2d1AgentBase):
    """The same for alternating samplers."""


class IqnR2d1Agent(RecurrentAgentMixin, IqnR2d1AgentBase):
    """Recurrent IQN agent."""


class IqnR2d1AlternatingAgent(AlternatingRecurrentAgentMixin, IqnR2d1AgentBase):
    """The same for alternating samplers."""
