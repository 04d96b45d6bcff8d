"""Dueling heads for Q-values, and for distributions of returns (Wang et al. 2016, https://arxiv.org/abs/1511.06581)."""

from collections.abc import Sequence

import torch

from rlpyt.models.linear import OutputLinear
from rlpyt.models.mlp import MlpModel
from rlpyt.models.utils import scale_grad


class _Dueling(torch.nn.Module):
    """Two streams, one for the value V and one for the advantages A of all actions, with `n_atoms` outputs for each."""

    def __init__(
        self,
        input_size: int,
        hidden_sizes: Sequence[int] | int,
        output_size: int,
        n_atoms: int,
        grad_scale: float = 2 ** (-1 / 2),
    ) -> None:
        super().__init__()
        self.output_size, self.n_atoms, self.grad_scale = output_size, n_atoms, grad_scale
        self.advantage_hidden = MlpModel(input_size, hidden_sizes)
        self.advantage_out = OutputLinear(self.advantage_hidden.output_size, output_size * n_atoms, bias=False)
        self.advantage_bias = torch.nn.Parameter(torch.zeros(n_atoms))
        self.value = MlpModel(input_size, hidden_sizes, output_size=n_atoms)

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Features [B,input_size] -> Q-values [B,output_size], or logits [B,output_size,n_atoms]."""
        x = scale_grad(input, self.grad_scale)
        advantage = self.advantage(x)
        value = self.value(x).view(-1, 1, *advantage.shape[2:])
        return value + advantage - advantage.mean(dim=1, keepdim=True)

    def advantage(self, input: torch.Tensor) -> torch.Tensor:
        """Features [B,input_size] -> advantages [B,output_size] or [B,output_size,n_atoms], before their mean is subtracted."""
        raise NotImplementedError


class DuelingHeadModel(_Dueling):
    """Q(s,a) = V(s) + A(s,a) - mean_a A(s,a), with one stream each for the value V and the advantages A.

    All advantages share one bias. Arguments are those of `DistributionalDuelingHeadModel`, without `n_atoms`.
    """

    def __init__(self, input_size: int, hidden_sizes: Sequence[int] | int, output_size: int, grad_scale: float = 2 ** (-1 / 2)) -> None:
        super().__init__(input_size, hidden_sizes, output_size, 1, grad_scale)

    def advantage(self, input: torch.Tensor) -> torch.Tensor:
        """Features [B,input_size] -> advantages [B,output_size], before their mean is subtracted."""
        return self.advantage_out(self.advantage_hidden(input)) + self.advantage_bias


class DistributionalDuelingHeadModel(_Dueling):
    """Like `DuelingHeadModel` for logits of the atoms of a distribution; the advantages of an atom share one bias.

    Args:
        input_size: number of input features.
        hidden_sizes: hidden layer(s) of each stream.
        output_size: number of actions.
        n_atoms: atoms of a distribution.
        grad_scale: factor on the gradient that both streams pass back to the layers before.
    """

    def advantage(self, input: torch.Tensor) -> torch.Tensor:
        """Features [B,input_size] -> advantages [B,output_size,n_atoms], before their mean over the actions is subtracted."""
        advantage = self.advantage_out(self.advantage_hidden(input)).view(-1, self.output_size, self.n_atoms)
        return advantage + self.advantage_bias
