"""Agents for deep Q-learning of quantiles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from rlpyt.agents.base import AgentStep
from rlpyt.agents.dqn.dqn_agent import AgentInfo, DqnAgent
from rlpyt.utils.settings import COUNT, checked
from rlpyt.utils.tensor import midpoints


class QuantileAgent(DqnAgent):
    """Epsilon-greedy on means of quantiles of the return, with a target network. Subclasses say at which fractions.

    If observations come with a mask of actions, masked actions are never chosen. Their quantiles are those of the network: an algorithm
    masks means of quantiles.

    `fractions` and `target_fractions` return the fractions at which the algorithm learns, and at which it computes targets.
    """

    model: Any
    distribution: Any

    def fractions(self, n: int) -> torch.Tensor:
        """Return fractions [n,N], or [N] for all, of the quantiles to learn from n samples, on the training device."""
        raise NotImplementedError

    def target_fractions(self, n: int) -> torch.Tensor:
        """Return fractions [n,M], or [M] for all, of the target quantiles of n samples, on the training device."""
        return self.fractions(n)

    @torch.no_grad()
    def step(self, observation: Any, prev_action: Any, prev_reward: torch.Tensor) -> AgentStep:
        """Choose actions: AgentStep(action [*lead], AgentInfo(q [*lead,n])) on the CPU, without gradient; q are means of quantiles."""
        q = self._to_cpu(self._quantiles(self._outputs, self._model_inputs(observation, prev_action, prev_reward)).mean(dim=-1))
        q = self._masked(q, observation)
        return AgentStep(self._sample(q, observation), AgentInfo(q))

    def __call__(
        self, observation: Any, prev_action: Any, prev_reward: torch.Tensor, fractions: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Return quantiles [*lead,n,N] for training data [T,B,...] or [B,...], with gradient, on the training device.

        fractions: [*lead,N], or [N] for all; None for those with which the agent acts.
        """
        return self._quantiles(self.model, self._model_inputs(observation, prev_action, prev_reward), fractions)

    def target(self, observation: Any, prev_action: Any, prev_reward: torch.Tensor, fractions: torch.Tensor | None = None) -> torch.Tensor:
        """Return the target model's quantiles; arguments and result are those of `__call__`."""
        return self._quantiles(self.target_model, self._model_inputs(observation, prev_action, prev_reward), fractions)

    def _quantiles(self, model: Callable[..., Any], inputs: tuple, fractions: torch.Tensor | None = None) -> Any:
        """Return what a model returns for these inputs, at these fractions or those with which the agent acts."""
        raise NotImplementedError


class QrDqnAgent(QuantileAgent):
    """Agent for QR-DQN: quantiles at the midpoints of `n_quantiles` equal parts of [0,1].

    Its model returns quantiles [*lead,n,n_quantiles].

    Its settings are those of `rlpyt.agents.dqn.dqn_agent.DqnAgent`, and:

    Args:
        n_quantiles: N; the model gets it as n_atoms.

    Raises:
        ValueError: `model_kwargs` has another number.
    """

    output_settings = ("n_atoms",)

    @checked(n_quantiles=COUNT)
    def __init__(self, n_quantiles: int = 200, **settings: Any) -> None:
        super().__init__(**settings)
        self.n_quantiles = n_quantiles
        self.give_model("n_atoms", n_quantiles, "give n_quantiles to the agent alone, which hands it on")

    def fractions(self, n: int) -> torch.Tensor:
        """Return the midpoints [n_quantiles]."""
        return midpoints(self.n_quantiles, self.device)

    def _quantiles(self, model: Callable[..., Any], inputs: tuple, fractions: torch.Tensor | None = None) -> Any:
        return model(*inputs)  # Its fractions are fixed.


class IqnAgent(QuantileAgent):
    """Agent for IQN: quantiles at fractions that are drawn in training. It acts on the mean over midpoints of equal parts of [0,1].

    Its model also takes fractions [*lead,N] or [N], and returns quantiles [*lead,n,N]. (The agent of the paper acts on fractions that it
    draws; their mean has more noise.)

    Its settings are those of `rlpyt.agents.dqn.dqn_agent.DqnAgent`, and:

    Args:
        n_quantiles: fractions drawn for each sample to learn from.
        n_target_quantiles: fractions drawn for the target of each sample.
        n_acting_quantiles: fractions over which the agent takes the mean to act.
    """

    @checked(n_quantiles=COUNT, n_target_quantiles=COUNT, n_acting_quantiles=COUNT)
    def __init__(self, n_quantiles: int = 64, n_target_quantiles: int = 64, n_acting_quantiles: int = 32, **settings: Any) -> None:
        super().__init__(**settings)
        self.n_quantiles, self.n_target_quantiles, self.n_acting_quantiles = n_quantiles, n_target_quantiles, n_acting_quantiles

    @property
    def trained_fractions(self) -> tuple[int, int]:
        """Numbers of fractions for each sample to learn from, and for its target."""
        return self.n_quantiles, self.n_target_quantiles

    @property
    def acting_fractions(self) -> tuple[int]:
        """Number of fractions for each observation to act on."""
        return (self.n_acting_quantiles,)

    def fractions(self, n: int) -> torch.Tensor:
        """Return new random fractions [n,n_quantiles]."""
        return torch.rand(n, self.n_quantiles, device=self.device)

    def target_fractions(self, n: int) -> torch.Tensor:
        """Return new random fractions [n,n_target_quantiles]."""
        return torch.rand(n, self.n_target_quantiles, device=self.device)

    def _quantiles(self, model: Callable[..., Any], inputs: tuple, fractions: torch.Tensor | None = None) -> Any:
        if fractions is None:
            fractions = midpoints(self.n_acting_quantiles, self.device)
        return model(*inputs, fractions)
