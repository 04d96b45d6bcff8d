"""Agent for categorical DQN."""

from __future__ import annotations

from typing import Any

import torch

from rlpyt.agents.base import AgentStep
from rlpyt.agents.dqn.dqn_agent import DqnAgent
from rlpyt.distributions.epsilon_greedy import CategoricalEpsilonGreedy
from rlpyt.models.dqn.heads import atoms
from rlpyt.utils.collections import namedarraytuple
from rlpyt.utils.settings import Number, checked

AgentInfo = namedarraytuple("AgentInfo", ["p"])


class CatDqnAgent(DqnAgent):
    """Agent for categorical DQN: epsilon-greedy on the means of distributions of the return.

    Its model, and so `__call__` and `target`, return probabilities [*lead,n,n_atoms].

    The algorithm assigns the atoms' returns by `give_V_min_max`; until then they range from -1 to 1. Any range orders the means
    equally, so sampler workers need not know it.

    Its settings are those of `rlpyt.agents.dqn.dqn_agent.DqnAgent`, and:

    Args:
        n_atoms: atoms of a distribution; the model gets it, too.

    Raises:
        ValueError: there are fewer than two atoms, or `model_kwargs` has another number.
    """

    output_settings = ("n_atoms",)
    distribution: CategoricalEpsilonGreedy

    @checked(n_atoms=Number(2, whole=True))
    def __init__(self, n_atoms: int = 51, **settings: Any) -> None:
        super().__init__(**settings)
        self.n_atoms = n_atoms
        self.give_model("n_atoms", n_atoms, "give n_atoms to the agent alone, which hands it on")

    def make_distribution(self, n_actions: int) -> CategoricalEpsilonGreedy:
        """The distribution that chooses actions."""
        return CategoricalEpsilonGreedy(dim=n_actions, z=atoms(-1, 1, self.n_atoms))

    def give_V_min_max(self, V_min: float, V_max: float) -> None:
        """Assign the returns that the first and the last atom stand for; called by the algorithm."""
        self.V_min, self.V_max = V_min, V_max
        self.distribution.set_z(atoms(V_min, V_max, self.n_atoms))

    @torch.no_grad()
    def step(self, observation: Any, prev_action: Any, prev_reward: torch.Tensor) -> AgentStep:
        """Choose actions: AgentStep(action [*lead], AgentInfo(p [*lead,n,n_atoms])) on the CPU, without gradient."""
        p = self._act(observation, prev_action, prev_reward)
        return AgentStep(self._sample(p, observation), AgentInfo(p))

    def _masked(self, q: torch.Tensor, observation: Any) -> torch.Tensor:
        """Return distributions as they are: the mask is for their means, see `CategoricalEpsilonGreedy` and the algorithm's loss."""
        return q
