"""Feedforward convolutional model for policy gradients from images."""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F

from rlpyt.models.conv2d import Conv2dHeadModel, ImageModel, settings_of_layers
from rlpyt.models.linear import OutputLinear
from rlpyt.models.utils import orthogonal_
from rlpyt.utils.tensor import restore_leading_dims


def small_conv(
    image_shape: Sequence[int],
    fc_sizes: Sequence[int] | int,
    use_maxpool: bool,
    channels: Sequence[int] | None,
    kernel_sizes: Sequence[int] | None,
    strides: Sequence[int] | None,
    paddings: Sequence[int] | None,
) -> Conv2dHeadModel:
    """Convolutions and fully connected layer(s); by default the two layers of convolutions which `AtariFfModel` documents."""
    defaults = dict(channels=[16, 32], kernel_sizes=[8, 4], strides=[4, 2], paddings=[0, 1])
    layers = settings_of_layers(defaults, channels=channels, kernel_sizes=kernel_sizes, strides=strides, paddings=paddings)
    return Conv2dHeadModel(image_shape=image_shape, use_maxpool=use_maxpool, hidden_sizes=fc_sizes, **layers)


class AtariFfModel(ImageModel):
    """Convolutions and a fully connected layer, with outputs for action probabilities and state value.

    Args:
        image_shape: (C,H,W).
        output_size: number of actions.
        fc_sizes: width(s) of the fully connected layer(s).
        use_maxpool, channels, kernel_sizes, strides, paddings: of the convolutions, see `Conv2dModel`; by default 16
            channels of 8x8 with stride 4, then 32 of 4x4 with stride 2 and padding 1.
        orthogonal_init: initialize layers by `orthogonal_` instead of torch's way.
    """

    uses_prev_action = False

    def __init__(
        self,
        image_shape: Sequence[int],
        output_size: int,
        fc_sizes: Sequence[int] | int = 512,
        use_maxpool: bool = False,
        channels: Sequence[int] | None = None,
        kernel_sizes: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
        paddings: Sequence[int] | None = None,
        orthogonal_init: bool = False,
    ):
        super().__init__()
        self.conv = small_conv(image_shape, fc_sizes, use_maxpool, channels, kernel_sizes, strides, paddings)
        self.pi = OutputLinear(self.conv.output_size, output_size)
        self.value = OutputLinear(self.conv.output_size, 1)
        if orthogonal_init:
            for module, gain in ((self.conv, math.sqrt(2)), (self.pi, 0.01), (self.value, 1)):
                orthogonal_(module, gain)

    def forward(self, image, prev_action, prev_reward) -> tuple[torch.Tensor, torch.Tensor]:
        """Action probabilities [T,B,output_size] and value [T,B]; leading dims may also be [B] or [].

        image: [T,B,C,H,W], uint8 in [0,255] or float in [0,1]. The other inputs are ignored.
        """
        x, lead_dims = self.image_batch(image)
        features = self.conv(x)
        pi = F.softmax(self.pi(features), dim=-1)
        value = self.value(features).squeeze(-1)
        return restore_leading_dims((pi, value), *lead_dims)
