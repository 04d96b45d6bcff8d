"""Agent for SAC with a value function, the algorithm's first form."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from rlpyt.agents.base import MODEL_METHODS
from rlpyt.agents.qpg.sac_base import MAX_LOG_STD, MIN_LOG_STD, AgentInfo, BaseSacAgent, Models
from rlpyt.models.qpg.mlp import VMlpModel
from rlpyt.utils.quick_args import save__init__args
from rlpyt.utils.settings import ArgumentsFor, checked

__all__ = ["MAX_LOG_STD", "MIN_LOG_STD", "AgentInfo", "Models", "SacAgent"]


class SacAgent(BaseSacAgent):
    """Agent for soft actor-critic with a value function: a squashed Gaussian policy, two Q-functions, V and its target network.

    The state dict has the keys model (the policy), q1_model, q2_model, v_model and target_v_model.

    Its settings are those of `rlpyt.agents.qpg.sac_base.BaseSacAgent`, and:

    Args:
        VModelCls: class of the value function, which returns [*lead].
    """

    model_names = {
        "model": "model",
        "q1_model": "q1_model",
        "q2_model": "q2_model",
        "v_model": "v_model",
        "target_v_model": "target_v_model",
    }
    target_names = {"v_model": "target_v_model"}
    settings_names = {
        "q1_model": ("QModelCls", "q_model_kwargs"),
        "q2_model": ("QModelCls", "q_model_kwargs"),
        "v_model": ("VModelCls", "v_model_kwargs"),
    }

    v_model: torch.nn.Module
    target_v_model: torch.nn.Module

    @checked(v_model_kwargs=ArgumentsFor("VModelCls", by=MODEL_METHODS))
    def __init__(
        self,
        *,
        VModelCls: type[torch.nn.Module] = VMlpModel,
        model_kwargs: dict[str, Any] | None = None,
        v_model_kwargs: dict[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        save__init__args(locals())
        super().__init__(**settings)

    def v(self, observation: Any, prev_action: Any, prev_reward: torch.Tensor) -> torch.Tensor:
        """Return V [*lead], with gradient."""
        return self.v_model(*self._model_inputs(observation, prev_action, prev_reward))

    @torch.no_grad()
    def target_v(self, observation: Any, prev_action: Any, prev_reward: torch.Tensor) -> torch.Tensor:
        """Return the target network's V [*lead]."""
        return self.target_v_model(*self._model_inputs(observation, prev_action, prev_reward))

    def v_parameters(self) -> Iterator[torch.nn.Parameter]:
        """Return the parameters of V."""
        return self.v_model.parameters()

    @property
    def models(self) -> Models:
        """Models(pi, q1, q2, v)."""
        return Models(self.model, self.q1_model, self.q2_model, self.v_model)
