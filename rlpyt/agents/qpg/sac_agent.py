"""SAC agent."""

from __future__ import annotations

from typing import Any

import torch

from rlpyt.agents.qpg.sac_base import MAX_LOG_STD, MIN_LOG_STD, AgentInfo, BaseSacAgent, Models

__all__ = ["MAX_LOG_STD", "MIN_LOG_STD", "AgentInfo", "Models", "SacAgent"]


class SacAgent(BaseSacAgent):
    """Agent for soft actor-critic: a squashed Gaussian policy, and two Q-functions with target networks.

    The state dict has the keys model (the policy), q1_model, q2_model, target_q1_model and target_q2_model.

    Its settings are those of `rlpyt.agents.qpg.sac_base.BaseSacAgent`.
    """

    model_names = {
        "model": "model",
        "q1_model": "q1_model",
        "q2_model": "q2_model",
        "target_q1_model": "target_q1_model",
        "target_q2_model": "target_q2_model",
    }
    target_names = {"q1_model": "target_q1_model", "q2_model": "target_q2_model"}
    settings_names = {"q1_model": ("QModelCls", "q_model_kwargs"), "q2_model": ("QModelCls", "q_model_kwargs")}

    @torch.no_grad()
    def target_q(self, observation: Any, prev_action: Any, prev_reward: torch.Tensor, action: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return both target networks' Q [*lead] of an action."""
        return self._q_values(["target_q1_model", "target_q2_model"], observation, prev_action, prev_reward, action)

    @property
    def models(self) -> Models:
        """Models(pi, q1, q2, v=None)."""
        return Models(self.model, self.q1_model, self.q2_model)
