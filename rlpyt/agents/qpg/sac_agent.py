"""SAC agent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from rlpyt.agents.base import MODEL_METHODS
from rlpyt.agents.qpg.sac_base import MAX_LOG_STD, MIN_LOG_STD, SQUASH, AgentInfo, BaseSacAgent, Models
from rlpyt.models.qpg.mlp import PiMlpModel, QofMuMlpModel
from rlpyt.utils.quick_args import save__init__args
from rlpyt.utils.settings import RATE, ArgumentsFor, checked, or_array

__all__ = ["MAX_LOG_STD", "MIN_LOG_STD", "AgentInfo", "Models", "SacAgent"]


class SacAgent(BaseSacAgent):
    """Agent for soft actor-critic: a squashed Gaussian policy, and two Q-functions with target networks.

    The state dict has the keys model (the policy), q1_model, q2_model, target_q1_model and target_q2_model.

    Args:
        ModelCls: class of the policy, which returns mean and log_std, both [*lead,A].
        QModelCls: class of the Q-functions, which are also given an action and return [*lead].
        model_kwargs, q_model_kwargs: their keyword arguments, besides observation_shape and action_size; None means
            hidden_sizes=[256, 256].
        v_model_kwargs: not used.
        initial_model_state_dict: of the whole agent.
        action_squash: largest absolute action: actions are ``action_squash * tanh(x)``, x Gaussian; "auto" is what the
            environment's action space says, None is no squashing.
        pretrain_std: standard deviation of x before learning begins; None means the policy's.
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

    @checked(
        model_kwargs=ArgumentsFor("ModelCls", by=MODEL_METHODS),
        q_model_kwargs=ArgumentsFor("QModelCls", by=MODEL_METHODS),
        action_squash=SQUASH,
        pretrain_std=or_array(RATE),
    )
    def __init__(
        self,
        ModelCls: type[torch.nn.Module] = PiMlpModel,
        QModelCls: type[torch.nn.Module] = QofMuMlpModel,
        model_kwargs: dict[str, Any] | None = None,
        q_model_kwargs: dict[str, Any] | None = None,
        v_model_kwargs: dict[str, Any] | None = None,
        initial_model_state_dict: Mapping[str, Any] | None = None,
        action_squash: float | str | None = 1.0,
        pretrain_std: float | None = 0.75,
    ):
        save__init__args(locals())
        super().__init__()

    @torch.no_grad()
    def target_q(self, observation, prev_action, prev_reward, action) -> tuple[torch.Tensor, torch.Tensor]:
        """Both target networks' Q [*lead] of an action."""
        return self._q_values(["target_q1_model", "target_q2_model"], observation, prev_action, prev_reward, action)

    @property
    def models(self) -> Models:
        """Models(pi, q1, q2, v=None)."""
        return Models(self.model, self.q1_model, self.q2_model)
