"""Agent for SAC with a value function, the algorithm's first form."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from rlpyt.agents.base import MODEL_METHODS
from rlpyt.agents.qpg.sac_base import MAX_LOG_STD, MIN_LOG_STD, SQUASH, AgentInfo, BaseSacAgent, Models
from rlpyt.models.qpg.mlp import PiMlpModel, QofMuMlpModel, VMlpModel
from rlpyt.utils.quick_args import save__init__args
from rlpyt.utils.settings import RATE, ArgumentsFor, checked, or_array

__all__ = ["MAX_LOG_STD", "MIN_LOG_STD", "AgentInfo", "Models", "SacAgent"]


class SacAgent(BaseSacAgent):
    """Agent for soft actor-critic with a value function: a squashed Gaussian policy, two Q-functions, V and its target network.

    The state dict has the keys model (the policy), q1_model, q2_model, v_model and target_v_model.

    Args:
        ModelCls: class of the policy, which returns mean and log_std, both [*lead,A].
        QModelCls: class of the Q-functions, which are also given an action and return [*lead].
        VModelCls: class of the value function, which returns [*lead].
        model_kwargs, q_model_kwargs, v_model_kwargs: their keyword arguments, besides observation_shape and action_size; None means
            hidden_sizes=[256, 256].
        initial_model_state_dict: of the whole agent.
        action_squash: largest absolute action: actions are ``action_squash * tanh(x)``, x Gaussian; "auto" is what the
            environment's action space says, None is no squashing.
        pretrain_std: standard deviation of x before learning begins; None means the policy's.
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

    @checked(
        model_kwargs=ArgumentsFor("ModelCls", by=MODEL_METHODS),
        q_model_kwargs=ArgumentsFor("QModelCls", by=MODEL_METHODS),
        v_model_kwargs=ArgumentsFor("VModelCls", by=MODEL_METHODS),
        action_squash=SQUASH,
        pretrain_std=or_array(RATE),
    )
    def __init__(
        self,
        ModelCls: type[torch.nn.Module] = PiMlpModel,
        QModelCls: type[torch.nn.Module] = QofMuMlpModel,
        VModelCls: type[torch.nn.Module] = VMlpModel,
        model_kwargs: dict[str, Any] | None = None,
        q_model_kwargs: dict[str, Any] | None = None,
        v_model_kwargs: dict[str, Any] | None = None,
        initial_model_state_dict: Mapping[str, Any] | None = None,
        action_squash: float | str | None = 1.0,
        pretrain_std: float | None = 0.75,
    ):
        save__init__args(locals())
        super().__init__()

    def v(self, observation, prev_action, prev_reward) -> torch.Tensor:
        """V [*lead], with gradient."""
        return self.v_model(*self._model_inputs(observation, prev_action, prev_reward))

    @torch.no_grad()
    def target_v(self, observation, prev_action, prev_reward) -> torch.Tensor:
        """The target network's V [*lead]."""
        return self.target_v_model(*self._model_inputs(observation, prev_action, prev_reward))

    def v_parameters(self) -> Iterator[torch.nn.Parameter]:
        """Parameters of V."""
        return self.v_model.parameters()

    @property
    def models(self) -> Models:
        """Models(pi, q1, q2, v)."""
        return Models(self.model, self.q1_model, self.q2_model, self.v_model)
