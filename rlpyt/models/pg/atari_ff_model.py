"""Feedforward convolutional model for policy gradients from images."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F

from rlpyt.models.conv2d import Conv2dHeadModel, ImageModel
from rlpyt.models.linear import OutputLinear
from rlpyt.models.utils import orthogonal_policy_
from rlpyt.utils.settings import checked
from rlpyt.utils.tensor import restore_leading_dims

SMALL_CONV = dict(channels=[16, 32], kernel_sizes=[8, 4], strides=[4, 2], paddings=[0, 1])


class AtariFfModel(ImageModel):
    """Convolutions and a fully connected layer, with outputs for action probabilities and state value.

    By default there are 16 channels of 8x8 with stride 4, then 32 of 4x4 with stride 2 and padding 1. Settings of the convolutions are
    those of `rlpyt.models.conv2d.ImageModel`.

    Args:
        fc_sizes: width(s) of the fully connected layer(s).
        orthogonal_init: initialize layers by `orthogonal_policy_` instead of torch's defaults.
    """

    uses_prev_action = False
    conv_defaults = SMALL_CONV

    @checked()
    def __init__(
        self,
        image_shape: Sequence[int],
        output_size: int,
        fc_sizes: Sequence[int] | int = 512,
        *,
        orthogonal_init: bool = False,
        **settings: Any,
    ) -> None:
        super().__init__(**settings)
        self.conv = Conv2dHeadModel(image_shape, hidden_sizes=fc_sizes, **self.conv_settings)
        self.pi = OutputLinear(self.conv.output_size, output_size)
        self.value = OutputLinear(self.conv.output_size, 1)
        if orthogonal_init:
            orthogonal_policy_([self.conv], self.pi, self.value)

    def forward(self, image: torch.Tensor, prev_action: Any, prev_reward: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """Action probabilities [T,B,output_size] and value [T,B].

        image: [T,B,C,H,W], uint8 in [0,255] or float in [0,1]. The other inputs are ignored.
        """
        x, lead_dims = self.image_batch(image)
        features = self.conv(x)
        pi = F.softmax(self.pi(features), dim=-1)
        value = self.value(features).squeeze(-1)
        return restore_leading_dims((pi, value), *lead_dims)
