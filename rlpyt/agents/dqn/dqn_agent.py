"""DQN agent."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch

from rlpyt.agents.base import AgentStep, BaseAgent, action_mask, discrete_action_count
from rlpyt.agents.dqn.epsilon_greedy import EpsilonGreedyAgentMixin
from rlpyt.distributions.epsilon_greedy import EpsilonGreedy, masked_q
from rlpyt.envs.base import EnvSpaces
from rlpyt.models.dqn.noisy import set_noise
from rlpyt.models.utils import update_state_dict
from rlpyt.utils.collections import namedarraytuple

AgentInfo = namedarraytuple("AgentInfo", "q")


class DqnAgent(EpsilonGreedyAgentMixin, BaseAgent):
    """Agent for DQN algorithms: epsilon-greedy on the model's Q-values, with a target network.

    Its model returns Q-values [*lead,n], and receives the previous action one-hot. `target_model` starts as a copy of
    `model`. The state dict is {"model": ..., "target": ...}.

    If observations come with a mask of actions (see `rlpyt.spaces.masked`), masked actions are never chosen, and their Q-values are minus
    infinity, also in training.

    Noisy layers (see `rlpyt.models.dqn.noisy`) are noisy in training, in both models, and while sampling, but not in evaluation. Since
    the noise explores, epsilon may then be 0 throughout.
    """

    model_names = {"model": "model", "target": "target_model"}

    def initialize(  # type: ignore[override]
        self, env_spaces: EnvSpaces, share_memory: bool = False, global_B: int = 1, env_ranks: Sequence[int] | None = None
    ) -> None:
        """Also make the distribution, and an epsilon for each environment if `eps_final_min` asks for it.

        Raises:
            ValueError: the action space is not discrete from 0.
        """
        n_actions = discrete_action_count(self, env_spaces.action)
        super().initialize(env_spaces, share_memory, global_B=global_B, env_ranks=env_ranks)
        self.distribution = self.make_distribution(n_actions)
        if env_ranks is not None:
            self.make_vec_eps(global_B, env_ranks)

    def make_distribution(self, n_actions: int) -> EpsilonGreedy:
        """Return the distribution that chooses actions."""
        return EpsilonGreedy(dim=n_actions)

    def make_models(self) -> None:
        """Extend the base class by the target model."""
        super().make_models()
        self.target_model = copy.deepcopy(self.model).requires_grad_(False).eval()

    def __call__(self, observation: Any, prev_action: Any, prev_reward: torch.Tensor) -> torch.Tensor:
        """Return Q-values [*lead,n] for training data [T,B,...] or [B,...], with gradient, on the training device."""
        return self._masked(self.model(*self._model_inputs(observation, prev_action, prev_reward)), observation)

    @torch.no_grad()
    def step(self, observation: Any, prev_action: Any, prev_reward: torch.Tensor) -> AgentStep:
        """Choose actions: AgentStep(action [*lead], AgentInfo(q [*lead,n])) on the CPU, without gradient."""
        q = self._masked(self._act(observation, prev_action, prev_reward), observation)
        return AgentStep(self._sample(q, observation), AgentInfo(q))

    def _act(self, *agent_inputs: Any) -> torch.Tensor:
        return self._to_cpu(self._outputs(*self._model_inputs(*agent_inputs)))

    def _masked(self, q: torch.Tensor, observation: Any) -> torch.Tensor:
        """Return Q-values [*lead,n] that are minus infinity for masked actions, so that no maximum and no target is theirs."""
        return masked_q(q, action_mask(observation, q.device))

    def _sample(self, q: torch.Tensor, observation: Any) -> torch.Tensor:
        """Choose actions [*lead] that are not masked."""
        mask = action_mask(observation, q.device)
        return self.distribution.sample(q) if mask is None else self.distribution.sample(q, mask=mask)

    def target(self, observation: Any, prev_action: Any, prev_reward: torch.Tensor) -> torch.Tensor:
        """Return the target model's Q-values [*lead,n] for training data, on the training device."""
        return self._masked(self.target_model(*self._model_inputs(observation, prev_action, prev_reward)), observation)

    def update_target(self, tau: float = 1) -> None:
        """Move the target model towards the model: ``tau * model + (1 - tau) * target``."""
        update_state_dict(self.target_model, self.model.state_dict(), tau)

    def _set_mode(self, mode: str, training: bool) -> None:
        super()._set_mode(mode, training)
        for model in self.named_models().values():
            set_noise(model, mode != "eval")
