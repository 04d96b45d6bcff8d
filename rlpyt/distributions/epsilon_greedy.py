"""Epsilon-greedy choice of actions."""

import torch

from rlpyt.distributions.base import Distribution
from rlpyt.distributions.discrete import DiscreteMixin


class EpsilonGreedy(DiscreteMixin, Distribution):
    """The action of the highest Q-value, or, with probability epsilon, any action, uniformly.

    epsilon: a number, or a tensor [B] with a value of its own for each environment.
    """

    def __init__(self, epsilon: float | torch.Tensor = 1, **kwargs):
        super().__init__(**kwargs)
        self._epsilon = epsilon

    def sample(self, q: torch.Tensor) -> torch.Tensor:
        """Q-values [T,B,dim], [B,dim] or [dim] -> actions [T,B], [B] or []."""
        greedy = q.argmax(dim=-1)
        epsilon = self._epsilon.to(q.device) if isinstance(self._epsilon, torch.Tensor) else self._epsilon
        explore = torch.rand(greedy.shape, device=q.device) < epsilon
        uniform = torch.randint_like(greedy, self.dim)
        return torch.where(explore, uniform, greedy).to(self.dtype)

    @property
    def epsilon(self) -> float | torch.Tensor:
        """Probability of choosing at random."""
        return self._epsilon

    def set_epsilon(self, epsilon: float | torch.Tensor) -> None:
        """Assign epsilon: a number, or a tensor [B]."""
        self._epsilon = epsilon
