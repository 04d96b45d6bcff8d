"""Heads of deep Q-learning models: Q-values, or distributions of the return."""

from collections.abc import Sequence

import torch

from rlpyt.models.dqn.dueling import DistributionalDuelingHeadModel, DuelingHeadModel
from rlpyt.models.dqn.noisy import make_noisy
from rlpyt.models.dqn.quantiles import QuantileHead
from rlpyt.models.mlp import MlpModel


class DistributionalHeadModel(torch.nn.Module):
    """Multilayer perceptron with logits of `n_atoms` atoms for each action.

    Args:
        input_size: number of input features.
        layer_sizes: hidden layer(s).
        output_size: number of actions.
        n_atoms: atoms of a distribution.
    """

    def __init__(self, input_size: int, layer_sizes: Sequence[int] | int, output_size: int, n_atoms: int) -> None:
        super().__init__()
        self.mlp = MlpModel(input_size, layer_sizes, output_size * n_atoms)
        self.output_size, self.n_atoms = output_size, n_atoms

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Features [B,input_size] -> logits [B,output_size,n_atoms]."""
        return self.mlp(input).view(-1, self.output_size, self.n_atoms)


def make_head(
    input_size: int,
    hidden_sizes: Sequence[int] | int,
    output_size: int,
    dueling: bool = False,
    n_atoms: int | None = None,
    noisy: bool = False,
    implicit: bool = False,
) -> torch.nn.Module:
    """Make the head: features [B,input_size] -> Q-values [B,output_size], or logits [B,output_size,n_atoms] if `n_atoms` is given.

    Args:
        input_size: number of input features.
        hidden_sizes: hidden layer(s), of each stream of a dueling head.
        output_size: number of actions.
        dueling: make a dueling head.
        n_atoms: atoms of a distribution; None for Q-values.
        noisy: replace all linear layers by `NoisyLinear`.
        implicit: make a `QuantileHead`, which also gets fractions; the noise is not in its embedding of these.
    """
    sizes = input_size, hidden_sizes, output_size
    head: torch.nn.Module
    if n_atoms is None:
        head = (DuelingHeadModel if dueling else MlpModel)(*sizes)
    else:
        head = (DistributionalDuelingHeadModel if dueling else DistributionalHeadModel)(*sizes, n_atoms)
    if noisy:
        make_noisy(head)
    return QuantileHead(head, input_size) if implicit else head


def atoms(V_min: float, V_max: float, n_atoms: int, like: torch.Tensor | None = None) -> torch.Tensor:
    """Return the returns [n_atoms] that the atoms of a distribution stand for: evenly spaced from `V_min` to `V_max`.

    like: a tensor of the dtype and on the device to use; None means float32 on the CPU.
    """
    dtype, device = (None, None) if like is None else (like.dtype, like.device)
    return torch.linspace(V_min, V_max, n_atoms, dtype=dtype, device=device)
