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


class CategoricalEpsilonGreedy(EpsilonGreedy):
    """The same for distributions of the return: the value of an action is the mean of its distribution.

    z: values [P] of the atoms.
    """

    def __init__(self, z: torch.Tensor | None = None, **kwargs):
        super().__init__(**kwargs)
        self.z = z

    def sample(self, p: torch.Tensor, z: torch.Tensor | None = None) -> torch.Tensor:
        """Probabilities [T,B,dim,P], [B,dim,P] or [dim,P] of atoms -> actions [T,B], [B] or [].

        z: other values [P] of the atoms, for this time.
        ValueError if there are no values of atoms.
        """
        z = self.z if z is None else z
        if z is None:
            raise ValueError("What are the atoms worth? Give z [P] to sample, to set_z or to the constructor.")
        return super().sample(p @ z.to(p))

    def set_z(self, z: torch.Tensor) -> None:
        """Assign the values [P] of the atoms."""
        self.z = z
