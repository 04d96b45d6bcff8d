"""DQN agent."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from rlpyt.agents.base import AgentStep, BaseAgent, action_mask, discrete_action_count
from rlpyt.agents.dqn.epsilon_greedy import EpsilonGreedyAgentMixin
from rlpyt.distributions.epsilon_greedy import EpsilonGreedy, masked_q
from rlpyt.envs.base import EnvSpaces
from rlpyt.models.dqn.noisy import set_noise
from rlpyt.models.utils import update_state_dict
from rlpyt.utils.collections import namedarraytuple
from rlpyt.utils.misc import is_of_rlpyt
from rlpyt.utils.settings import checked

AgentInfo = namedarraytuple("AgentInfo", "q")

# Settings of rlpyt's models that decide what a model returns: the value for Q-values, and the agents that take other outputs.
OUTPUT_SETTINGS = {
    "n_atoms": (
        None,
        "categorical DQN or QR-DQN, which give it to the model themselves, such as MlpCatDqnAgent (by n_atoms), MlpQrDqnAgent or "
        "MlpQrR2d1Agent (by n_quantiles)",
    ),
    "implicit": (False, "recurrent IQN, which give it to the model themselves, such as MlpIqnR2d1Agent"),
}


class DqnAgent(EpsilonGreedyAgentMixin, BaseAgent):
    """Agent for DQN algorithms: epsilon-greedy on the model's Q-values, with a target network.

    Its model returns Q-values [*lead,n], and receives the previous action one-hot. `target_model` starts as a copy of
    `model`. The state dict is {"model": ..., "target": ...}.

    If observations come with a mask of actions (see `rlpyt.spaces.masked`), masked actions are never chosen, and their Q-values are minus
    infinity, also in training.

    Noisy layers (see `rlpyt.models.dqn.noisy`) are noisy in training, in both models, and while sampling, but not in evaluation. Since
    the noise explores, epsilon may then be 0 throughout.

    Its settings are those of `rlpyt.agents.dqn.epsilon_greedy.EpsilonGreedyAgentMixin` and `rlpyt.agents.base.BaseAgent`.

    Raises:
        ValueError: by a setting in `model_kwargs`, a model of rlpyt would return what another agent takes.
    """

    model_names = {"model": "model", "target": "target_model"}
    # Those of `OUTPUT_SETTINGS` that the agent gives to its model, by `give_model`.
    output_settings: Sequence[str] = ()

    @checked()
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        if not is_of_rlpyt(self.ModelCls):  # A user's model may return Q-values whatever its settings.
            return
        for name, (of_q, others) in OUTPUT_SETTINGS.items():
            if name not in self.output_settings and self.model_kwargs.get(name, of_q) != of_q:
                raise ValueError(
                    f"{type(self).__name__} cannot take what its model returns with {name}={self.model_kwargs[name]!r} in model_kwargs: "
                    f"leave it out, or take an agent of {others}."
                )

    def give_model(self, name: str, value: Any, instead: str) -> None:
        """Give the model a setting that this agent decides; called by the constructor.

        Args:
            instead: what users shall do who have another value in `model_kwargs`.

        Raises:
            ValueError: they do.
        """
        given = self.model_kwargs.get(name, value)
        if given != value:
            raise ValueError(f"model_kwargs has {name}={given!r}, but {type(self).__name__} gives its model {name}={value!r}: {instead}.")
        self.model_kwargs = {**self.model_kwargs, name: value}

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

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Load a `state_dict`, or the parameters of "model" into both models if there are none for "target"."""
        super().load_state_dict({"target": state_dict["model"], **state_dict} if "model" in state_dict else state_dict)

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
