"""TD3 agent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from rlpyt.agents.qpg.base import largest_action
from rlpyt.agents.qpg.ddpg_agent import DdpgAgent
from rlpyt.distributions.gaussian import DistInfo, Gaussian
from rlpyt.utils.quick_args import save__init__args
from rlpyt.utils.settings import NON_NEGATIVE, RATE, checked, or_array


class Td3Agent(DdpgAgent):
    """Agent for TD3: two Q-functions with target networks, and noise on the target policy's actions.

    The state dict has the keys of DdpgAgent, and q2_model and target_q2_model.

    Its settings are those of `rlpyt.agents.qpg.ddpg_agent.DdpgAgent`, and:

    Args:
        pretrain_std: standard deviation of the noise added to actions before learning begins.
        target_noise_std: standard deviation of the noise added to actions of the target policy.
        target_noise_clip: its largest absolute value.
        initial_q2_model_state_dict: of the second Q-function.
    """

    model_names = {**DdpgAgent.model_names, "q2_model": "q2_model", "target_q2_model": "target_q2_model"}
    q_names = ("q_model", "q2_model")
    target_names = {**DdpgAgent.target_names, "q2_model": "target_q2_model"}
    settings_names = {**DdpgAgent.settings_names, "q2_model": ("QModelCls", "q_model_kwargs")}
    noise_names = ("action_std", "target_noise_std")

    pretrain_std: float
    target_noise_std: float
    target_noise_clip: float | None
    initial_q2_model_state_dict: Mapping[str, Any] | None

    @checked(pretrain_std=or_array(RATE), target_noise_std=or_array(RATE), target_noise_clip=NON_NEGATIVE)
    def __init__(
        self,
        pretrain_std: float = 0.5,
        target_noise_std: float = 0.2,
        target_noise_clip: float | None = 0.5,
        initial_q2_model_state_dict: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        save__init__args(locals())
        super().__init__(**settings)

    def make_models(self) -> None:
        """Extend the base class by the initial parameters of the second Q-function."""
        super().make_models()
        self._load_initial("q2_model", self.initial_q2_model_state_dict)

    def make_distribution(self, action_space: Any) -> None:
        """Extend the base class by the noise of the target policy; its actions, too, are clipped at their bounds."""
        super().make_distribution(action_space)
        self.target_distribution = Gaussian(
            dim=action_space.shape[0],
            std=self.target_noise_std,
            noise_clip=self.target_noise_clip,
            clip=largest_action(action_space),
        )

    def q(  # type: ignore[override]
        self, observation: Any, prev_action: Any, prev_reward: torch.Tensor, action: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        """Return both Q [*lead] of an action, with gradient."""
        return self._q_values(self.q_names, observation, prev_action, prev_reward, action)

    @torch.no_grad()
    def target_q_at_mu(  # type: ignore[override]
        self, observation: Any, prev_action: Any, prev_reward: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        """Return both target networks' Q [*lead] of the target policy's action with noise."""
        inputs = self._model_inputs(observation, prev_action, prev_reward)
        action = self.target_distribution.sample(DistInfo(self.target_model(*inputs)))
        return self._q_values(["target_q_model", "target_q2_model"], *inputs, action)

    def set_target_noise(self, std: float, noise_clip: float | None = None) -> None:
        """Assign the noise of the target policy's actions."""
        self.target_distribution.set_std(std)
        self.target_distribution.set_noise_clip(noise_clip)

    def sample_std(self, itr: int) -> float:
        """`pretrain_std` before learning begins, `action_std` afterwards."""
        return self.pretrain_std if itr < self.min_itr_learn else self.action_std
