"""DDPG agent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from rlpyt.agents.base import AgentStep
from rlpyt.agents.qpg.base import QpgAgent, largest_action
from rlpyt.distributions.gaussian import DistInfo, Gaussian
from rlpyt.models.qpg.mlp import MuMlpModel
from rlpyt.models.utils import matching_state_dict, unwrap_ddp
from rlpyt.utils.collections import namedarraytuple
from rlpyt.utils.logging import logger
from rlpyt.utils.misc import is_of_rlpyt
from rlpyt.utils.quick_args import save__init__args
from rlpyt.utils.settings import NON_NEGATIVE, RATE, checked, or_array

MOST_NOISE = 0.4  # Standard deviation, as part of the largest action, up to which there is no warning.

AgentInfo = namedarraytuple("AgentInfo", ["mu"])


class DdpgAgent(QpgAgent):
    """Agent for deep deterministic policy gradients: actions mu(s) with Gaussian noise, a Q-function, targets of both.

    The state dict has the keys model (mu), q_model, target_model and target_q_model.

    Its settings are those of `rlpyt.agents.qpg.base.QpgAgent`, and:

    Args:
        ModelCls: class of mu, which returns actions [*lead,A]. If it takes output_max, it gets the largest action, unless model_kwargs
            has another.
        initial_model_state_dict: of mu alone, or of the whole agent.
        initial_q_model_state_dict: of Q.
        action_std: standard deviation of the noise added to actions when sampling; in evaluation they have no noise.
        action_noise_clip: largest absolute noise, or None.
    """

    hidden_sizes = (400, 300)
    model_names = {"model": "model", "q_model": "q_model", "target_model": "target_model", "target_q_model": "target_q_model"}
    q_names: Sequence[str] = ("q_model",)
    target_names = {"model": "target_model", "q_model": "target_q_model"}
    settings_names = {"q_model": ("QModelCls", "q_model_kwargs")}
    noise_names: tuple[str, ...] = ("action_std",)  # Standard deviations of noise during learning.

    ModelCls: type[torch.nn.Module]
    initial_q_model_state_dict: Mapping[str, Any] | None
    action_std: float
    action_noise_clip: float | None
    target_model: torch.nn.Module
    distribution: Gaussian

    @checked(action_std=or_array(RATE), action_noise_clip=NON_NEGATIVE)
    def __init__(
        self,
        *,
        ModelCls: type[torch.nn.Module] = MuMlpModel,
        initial_q_model_state_dict: Mapping[str, Any] | None = None,
        action_std: float = 0.1,
        action_noise_clip: float | None = None,
        **settings: Any,
    ) -> None:
        save__init__args(locals())
        super().__init__(**settings)

    @property
    def shared_mu_model(self) -> torch.nn.Module | None:
        """`shared_model`, which is mu."""
        return self.shared_model

    def make_policy(self, **kwargs: Any) -> torch.nn.Module:
        """Extend the base class by `largest_output`."""
        return super().make_policy(**self.largest_output(), **kwargs)

    def make_models(self) -> None:
        """Extend the base class by the initial parameters of single models."""
        super().make_models()
        self._load_initial("q_model", self.initial_q_model_state_dict)

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Load a `state_dict`; the state dict of mu alone fills mu and its target."""
        if "model" not in state_dict:
            self._load_initial("model", state_dict)
        else:
            super().load_state_dict(state_dict)

    def _load_initial(self, name: str, state_dict: Mapping[str, Any] | None) -> None:
        if state_dict is not None:
            for attribute in (name, self.target_names[name]):
                model = unwrap_ddp(getattr(self, attribute))
                model.load_state_dict(matching_state_dict(model, state_dict))

    def make_distribution(self, action_space: Any) -> None:
        """Gaussian noise; actions are clipped at their bounds."""
        self.distribution = Gaussian(
            dim=action_space.shape[0], std=self.action_std, noise_clip=self.action_noise_clip, clip=largest_action(action_space)
        )

    def check_bounds(self) -> None:
        """Log a warning if noise is so large that actions are often at their bounds. Algorithms call this."""
        if not is_of_rlpyt(self.make_distribution):
            return  # A subclass may have other noise.
        largest = largest_action(self.env_spaces.action)
        for name in self.noise_names:
            std = float(np.max(getattr(self, name)))
            if std > MOST_NOISE * largest:
                logger.warn(
                    f"{type(self).__name__} adds noise with a standard deviation of {std:g} ({name}) to actions, which the environment "
                    f"bounds by {largest:g}. The unit is that of the action: a tenth of the bound is {0.1 * largest:g}."
                )

    def q(self, observation: Any, prev_action: Any, prev_reward: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        """Return Q [*lead] of an action, with gradient."""
        return self._q_values(self.q_names, observation, prev_action, prev_reward, action)[0]

    def mu(self, observation: Any, prev_action: Any, prev_reward: torch.Tensor) -> torch.Tensor:
        """Return the policy's action [*lead,A], with gradient to the policy."""
        return self.model(*self._model_inputs(observation, prev_action, prev_reward))

    def q_at_mu(self, observation: Any, prev_action: Any, prev_reward: torch.Tensor) -> torch.Tensor:
        """Return Q [*lead] of the policy's action, with gradient through the (first) Q-function to the policy."""
        inputs = self._model_inputs(observation, prev_action, prev_reward)
        return self._q_values(self.q_names[:1], *inputs, self.model(*inputs))[0]

    @torch.no_grad()
    def target_q_at_mu(self, observation: Any, prev_action: Any, prev_reward: torch.Tensor) -> torch.Tensor:
        """Return the target network's Q [*lead] of the target network's action."""
        inputs = self._model_inputs(observation, prev_action, prev_reward)
        return self._q_values(["target_q_model"], *inputs, self.target_model(*inputs))[0]

    @torch.no_grad()
    def step(self, observation: Any, prev_action: Any, prev_reward: torch.Tensor) -> AgentStep:
        """Choose actions: AgentStep(action [*lead,A], AgentInfo(mu [*lead,A])) on the CPU, without gradient."""
        mu = self._to_cpu(self._outputs(*self._model_inputs(observation, prev_action, prev_reward)))
        return AgentStep(self.distribution.sample(DistInfo(mu)), AgentInfo(mu))

    def mu_parameters(self) -> Iterator[torch.nn.Parameter]:
        """Return the parameters of the policy."""
        return self.model.parameters()

    def sample_std(self, itr: int) -> float:
        """Standard deviation of the noise of sampler iteration `itr`."""
        return self.action_std

    def sample_mode(self, itr: int) -> None:
        """Extend the base class: actions are noisy."""
        super().sample_mode(itr)
        self.distribution.set_std(self.sample_std(itr))

    def eval_mode(self, itr: int) -> None:
        """Extend the base class: actions are those of the policy."""
        super().eval_mode(itr)
        self.distribution.set_std(0.0)
