"""Convolutional model for Q-values of images."""

from collections.abc import Sequence

import torch

from rlpyt.models.conv2d import Conv2dModel, ImageModel, settings_of_layers
from rlpyt.models.dqn.heads import make_head
from rlpyt.models.dqn.noisy import make_noisy
from rlpyt.utils.tensor import restore_leading_dims


def dqn_conv(
    image_shape: Sequence[int],
    use_maxpool: bool = False,
    channels: Sequence[int] | None = None,
    kernel_sizes: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
    paddings: Sequence[int] | None = None,
) -> tuple[Conv2dModel, int]:
    """Convolutions for images (C,H,W), and how many features they give.

    By default 32 channels of 8x8 with stride 4, 64 of 4x4 with stride 2 and padding 1, 64 of 3x3 with padding 1; arguments as of
    `Conv2dModel`. Where some of them are for fewer layers, the others' first defaults are taken.
    """
    c, h, w = image_shape
    defaults = dict(channels=[32, 64, 64], kernel_sizes=[8, 4, 3], strides=[4, 2, 1], paddings=[0, 1, 1])
    layers = settings_of_layers(defaults, channels=channels, kernel_sizes=kernel_sizes, strides=strides, paddings=paddings)
    conv = Conv2dModel(in_channels=c, use_maxpool=use_maxpool, **layers)
    return conv, conv.conv_out_size(h, w)


class AtariDqnModel(ImageModel):
    """Convolutions over the frames of an observation and a fully connected head with one Q-value per action.

    Args:
        image_shape: (C,H,W).
        output_size: number of actions.
        fc_sizes: width(s) of the hidden layer(s) of the head.
        dueling: use a dueling head.
        use_maxpool, channels, kernel_sizes, strides, paddings: of the convolutions, see `dqn_conv`.
        noisy: explore by noise on the weights of the head, see `NoisyLinear`.
        n_atoms: give logits of so many atoms of a distribution per action instead of a Q-value; None for Q-values.
    """

    uses_prev_action = False

    def __init__(
        self,
        image_shape: Sequence[int],
        output_size: int,
        fc_sizes: Sequence[int] | int = 512,
        dueling: bool = False,
        use_maxpool: bool = False,
        channels: Sequence[int] | None = None,
        kernel_sizes: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
        paddings: Sequence[int] | None = None,
        noisy: bool = False,
        n_atoms: int | None = None,
    ):
        super().__init__()
        self.dueling = dueling
        self.conv, n_features = dqn_conv(image_shape, use_maxpool, channels, kernel_sizes, strides, paddings)
        self.head = make_head(n_features, fc_sizes, output_size, dueling, n_atoms)
        if noisy:
            make_noisy(self.head)

    def forward(self, observation, prev_action, prev_reward) -> torch.Tensor:
        """Q-values [T,B,output_size], or logits [T,B,output_size,n_atoms]; leading dims may also be [B] or [].

        observation: [T,B,C,H,W], uint8 in [0,255] or float in [0,1]. The other inputs are ignored.
        """
        x, lead_dims = self.image_batch(observation)
        features = self.conv(x)
        return restore_leading_dims(self.head(features.flatten(1)), *lead_dims)
