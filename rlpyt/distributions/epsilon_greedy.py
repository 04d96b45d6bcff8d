"""Epsilon-greedy choice of actions."""

from typing import Any

import torch

from rlpyt.distributions.discrete import DiscreteMixin
from rlpyt.utils.tensor import OnDevices


class EpsilonGreedy(DiscreteMixin):
    """Chooses the action of the highest Q-value, or with probability epsilon any action, uniformly.

    Args:
        epsilon: a number, or a tensor [B] with a value for each environment.
        kwargs: arguments of `DiscreteMixin`.
    """

    def __init__(self, epsilon: float | torch.Tensor = 1, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._epsilon = epsilon
        self._epsilons = OnDevices()

    def sample(self, q: torch.Tensor, *, mask: torch.Tensor | None = None) -> torch.Tensor:
        """Q-values [T,B,dim], [B,dim] or [dim] -> actions [T,B], [B] or [].

        Args:
            mask: bool like `q`, False for actions not to choose; None allows all.

        Raises:
            ValueError: epsilon has the values of another number of environments.
        """
        greedy = (q if mask is None else masked_q(q, mask)).argmax(dim=-1)
        epsilon = self._epsilons.on(q.device, self._epsilon)
        if isinstance(epsilon, torch.Tensor) and epsilon.dim() and epsilon.shape != greedy.shape[-1:]:
            if epsilon.numel() != 1:
                raise ValueError(
                    f"Epsilon has shape {list(epsilon.shape)}, with a value for each environment that the agent samples from, but Q-values "
                    f"have shape {list(q.shape)}. Initialize the agent for these environments, or set_epsilon of its distribution."
                )
            epsilon = epsilon.reshape(())
        explore = torch.rand(greedy.shape, device=q.device) < epsilon
        uniform = torch.randint_like(greedy, self.dim) if mask is None else masked_q(torch.rand_like(q), mask).argmax(dim=-1)
        return torch.where(explore, uniform, greedy).to(self.dtype)

    @property
    def epsilon(self) -> float | torch.Tensor:
        """Probability of choosing at random."""
        return self._epsilon

    def set_epsilon(self, epsilon: float | torch.Tensor) -> None:
        """Assign epsilon: a number, or a tensor [B]."""
        self._epsilon = epsilon


class CategoricalEpsilonGreedy(EpsilonGreedy):
    """`EpsilonGreedy` for distributions of the return: the Q-value of an action is the mean of its distribution.

    Args:
        z: values [P] of the atoms.
        kwargs: arguments of `EpsilonGreedy`.
    """

    def __init__(self, z: torch.Tensor | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.z = z
        self._zs = OnDevices()

    def sample(self, p: torch.Tensor, z: torch.Tensor | None = None, *, mask: torch.Tensor | None = None) -> torch.Tensor:
        """Probabilities [T,B,dim,P], [B,dim,P] or [dim,P] of atoms -> actions [T,B], [B] or [].

        Args:
            z: other values [P] of the atoms, for this call.
            mask: bool [T,B,dim], [B,dim] or [dim], False for actions not to choose; None allows all.

        Raises:
            ValueError: the atoms have no values.
        """
        z = self._zs.on(p.device, self.z) if z is None else z
        if z is None:
            raise ValueError("The atoms have no values: give z [P] to sample, to set_z or to the constructor.")
        return super().sample(p @ z.to(p), mask=mask)

    def set_z(self, z: torch.Tensor | None) -> None:
        """Assign the values [P] of the atoms."""
        self.z = z


def masked_q(q: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    """Return Q-values [*lead,n] that are minus infinity where `mask` [*lead,n] (bool) is False, so that the maximum is never there.

    Where no action is allowed, all are. A mask that is None changes nothing.
    """
    if mask is None:
        return q
    allowed = mask | ~mask.any(dim=-1, keepdim=True)
    return q.clamp(min=torch.finfo(q.dtype).min).masked_fill(~allowed, -torch.inf)  # An allowed action is above a masked one in any case.
