"""Convolutional model for distributions of the return, from images."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F

from rlpyt.models.dqn.atari_dqn_model import dqn_conv
from rlpyt.models.dqn.dueling import DistributionalDuelingHeadModel
from rlpyt.models.dqn.noisy import make_noisy
from rlpyt.models.mlp import MlpModel
from rlpyt.utils.tensor import infer_leading_dims, restore_leading_dims


class DistributionalHeadModel(torch.nn.Module):
    """Multilayer perceptron with logits of `n_atoms` atoms for each action.

    Args:
        input_size: number of input features.
        layer_sizes: hidden layer(s).
        output_size: number of actions.
        n_atoms: atoms of a distribution.
    """

    def __init__(self, input_size: int, layer_sizes: Sequence[int] | int, output_size: int, n_atoms: int):
        super().__init__()
        self.mlp = MlpModel(input_size, layer_sizes, output_size * n_atoms)
        self.output_size, self.n_atoms = output_size, n_atoms

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Features [B,input_size] -> logits [B,output_size,n_atoms]."""
        return self.mlp(input).view(-1, self.output_size, self.n_atoms)


class AtariCatDqnModel(torch.nn.Module):
    """Like `AtariDqnModel`, with the probabilities of `n_atoms` returns per action instead of a Q-value.

    Args:
        image_shape: (C,H,W).
        output_size: number of actions.
        n_atoms: atoms of a distribution.
        fc_sizes, dueling, use_maxpool, channels, kernel_sizes, strides, paddings, noisy: as in `AtariDqnModel`.
    """

    uses_prev_action = False

    def __init__(
        self,
        image_shape: Sequence[int],
        output_size: int,
        n_atoms: int = 51,
        fc_sizes: Sequence[int] | int = 512,
        dueling: bool = False,
        use_maxpool: bool = False,
        channels: Sequence[int] | None = None,
        kernel_sizes: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
        paddings: Sequence[int] | None = None,
        noisy: bool = False,
    ):
        super().__init__()
        self.dueling = dueling
        self.conv, n_features = dqn_conv(image_shape, use_maxpool, channels, kernel_sizes, strides, paddings)
        HeadCls = DistributionalDuelingHeadModel if dueling else DistributionalHeadModel
        self.head = HeadCls(n_features, fc_sizes, output_size, n_atoms)
        if noisy:
            make_noisy(self.head)

    def forward(self, observation, prev_action, prev_reward) -> torch.Tensor:
        """Probabilities [T,B,output_size,n_atoms], which sum to 1 over the atoms; leading dims may also be [B] or [].

        observation: [T,B,C,H,W], uint8 in [0,255] (used as [0,1]) or float. The other inputs are ignored.
        """
        lead_dim, T, B, image_shape = infer_leading_dims(observation, 3)
        features = self.conv(observation.reshape(T * B, *image_shape))
        p = F.softmax(self.head(features.flatten(1)), dim=-1)
        return restore_leading_dims(p, lead_dim, T, B)
