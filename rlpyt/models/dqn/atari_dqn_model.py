"""Convolutional model for Q-values of images."""

from collections.abc import Sequence
from typing import Any

import torch

from rlpyt.models.conv2d import Conv2dModel, ImageModel
from rlpyt.models.dqn.heads import make_head
from rlpyt.utils.settings import checked
from rlpyt.utils.tensor import restore_leading_dims


class DqnImageModel(ImageModel):
    """Base of models for Q-values of images.

    By default there are 32 channels of 8x8 with stride 4, 64 of 4x4 with stride 2 and padding 1, and 64 of 3x3 with padding 1. Settings of
    the convolutions are those of `ImageModel`.
    """

    conv_defaults = dict(channels=[32, 64, 64], kernel_sizes=[8, 4, 3], strides=[4, 2, 1], paddings=[0, 1, 1])

    def make_conv(self, image_shape: Sequence[int]) -> tuple[Conv2dModel, int]:
        """Return the convolutions for images (C,H,W), and how many features they give."""
        c, h, w = image_shape
        conv = Conv2dModel(in_channels=c, **self.conv_settings)
        return conv, conv.conv_out_size(h, w)


class AtariDqnModel(DqnImageModel):
    """Convolutions over the frames of an observation and a fully connected head with one Q-value per action.

    Settings of the convolutions are those of `DqnImageModel`.

    Args:
        fc_sizes: width(s) of the hidden layer(s) of the head.
        dueling: use a dueling head.
        noisy: explore by noise on the weights of the head, see `NoisyLinear`.
        n_atoms: this many logits of the atoms of a distribution, or quantiles, per action, in place of a Q-value; None for Q-values.
    """

    uses_prev_action = False

    @checked()
    def __init__(
        self,
        image_shape: Sequence[int],
        output_size: int,
        fc_sizes: Sequence[int] | int = 512,
        dueling: bool = False,
        *,
        noisy: bool = False,
        n_atoms: int | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(**settings)
        self.dueling = dueling
        self.conv, n_features = self.make_conv(image_shape)
        self.head = make_head(n_features, fc_sizes, output_size, dueling, n_atoms, noisy)

    def forward(self, observation: Any, prev_action: Any, prev_reward: Any) -> torch.Tensor:
        """Q-values [T,B,output_size], or logits or quantiles [T,B,output_size,n_atoms].

        observation: [T,B,C,H,W], uint8 in [0,255] or float in [0,1]. The other inputs are ignored.
        """
        x, lead_dims = self.image_batch(observation)
        features = self.conv(x)
        return restore_leading_dims(self.head(features.flatten(1)), *lead_dims)
