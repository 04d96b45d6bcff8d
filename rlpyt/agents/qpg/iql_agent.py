"""Agent for implicit Q-learning."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch

from rlpyt.agents.base import MODEL_METHODS
from rlpyt.agents.qpg.base import largest_action
from rlpyt.agents.qpg.sac_agent import SacAgent
from rlpyt.distributions.gaussian import DistInfoStd, Gaussian
from rlpyt.models.qpg.mlp import BoundedPiMlpModel, VMlpModel
from rlpyt.utils.quick_args import save__init__args
from rlpyt.utils.settings import ArgumentsFor, checked

MIN_LOG_STD, MAX_LOG_STD = -5, 2


class IqlAgent(SacAgent):
    """Agent for IQL: a Gaussian policy with its mean inside the bounds, two Q-functions with target networks, and V.

    Actions are clipped at their bounds; evaluation takes the mean. The state dict has the keys of SacAgent, and v_model.

    Its settings are those of `rlpyt.agents.qpg.sac_agent.SacAgent`, except action_squash and pretrain_std, and:

    Args:
        ModelCls: class of the policy, which returns mean and log_std, both [*lead,A]. If it takes output_max, it gets the largest action,
            unless `model_kwargs` has another.
        VModelCls: class of the value function, which returns [*lead].
    """

    env_spaces: Any
    v_model: Any
    model: Any
    distribution: Any

    model_names = {**SacAgent.model_names, "v_model": "v_model"}
    settings_names = {**SacAgent.settings_names, "v_model": ("VModelCls", "v_model_kwargs")}

    @checked(without=("action_squash", "pretrain_std"), v_model_kwargs=ArgumentsFor("VModelCls", by=MODEL_METHODS))
    def __init__(
        self,
        *,
        ModelCls: type[torch.nn.Module] = BoundedPiMlpModel,
        VModelCls: type[torch.nn.Module] = VMlpModel,
        v_model_kwargs: dict[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        save__init__args(locals())
        super().__init__(action_squash=None, pretrain_std=None, **settings)

    def make_policy(self, **kwargs: Any) -> torch.nn.Module:
        """Extend the base class by `largest_output`."""
        return super().make_policy(**self.largest_output(), **kwargs)

    def make_distribution(self, action_space: Any) -> None:
        """A Gaussian, clipped at the bounds."""
        self.distribution = Gaussian(
            dim=action_space.shape[0], clip=largest_action(action_space), min_std=math.exp(MIN_LOG_STD), max_std=math.exp(MAX_LOG_STD)
        )

    def v(self, observation: Any, prev_action: Any, prev_reward: torch.Tensor) -> torch.Tensor:
        """Return V [*lead], with gradient."""
        return self.v_model(*self._model_inputs(observation, prev_action, prev_reward))

    def log_pi(self, observation: Any, prev_action: Any, prev_reward: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        """Return the log-density [*lead] of an action before clipping, with gradient to the policy."""
        dist_info = DistInfoStd(*self.model(*self._model_inputs(observation, prev_action, prev_reward)))
        return self.distribution.log_likelihood(self._to_device(action), dist_info)

    def v_parameters(self) -> Iterator[torch.nn.Parameter]:
        """Return the parameters of V."""
        return self.v_model.parameters()
