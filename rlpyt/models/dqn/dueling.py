"""Dueling head for Q-values (Wang et al. 2016, https://arxiv.org/abs/1511.06581)."""

from collections.abc import Sequence

import torch

from rlpyt.models.mlp import MlpModel
from rlpyt.models.utils import scale_grad


class DuelingHeadModel(torch.nn.Module):
    """Q(s,a) = V(s) + A(s,a) - mean_a A(s,a), with one stream each for the value V and the advantages A.

    All advantages share one bias.

    Args:
        input_size: number of input features.
        hidden_sizes: hidden layer(s) of each stream.
        output_size: number of actions.
        grad_scale: factor on the gradient that leaves both streams towards the layers before.
    """

    def __init__(
        self, input_size: int, hidden_sizes: Sequence[int] | int, output_size: int, grad_scale: float = 2 ** (-1 / 2)
    ):
        super().__init__()
        self.grad_scale = grad_scale
        self.advantage_hidden = MlpModel(input_size, hidden_sizes)
        self.advantage_out = torch.nn.Linear(self.advantage_hidden.output_size, output_size, bias=False)
        self.advantage_bias = torch.nn.Parameter(torch.zeros(1))
        self.value = MlpModel(input_size, hidden_sizes, output_size=1)

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Features [B,input_size] -> Q-values [B,output_size]."""
        x = scale_grad(input, self.grad_scale)
        advantage = self.advantage(x)
        return self.value(x) + advantage - advantage.mean(dim=-1, keepdim=True)

    def advantage(self, input: torch.Tensor) -> torch.Tensor:
        """Features [B,input_size] -> advantages [B,output_size], before their mean is taken off."""
        return self.advantage_out(self.advantage_hidden(input)) + self.advantage_bias
