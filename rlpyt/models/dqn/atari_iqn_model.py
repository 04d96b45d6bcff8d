"""Convolutional model for quantiles of the return at any fraction, from images."""

from collections.abc import Sequence
from typing import Any

import torch

from rlpyt.models.dqn.atari_dqn_model import DqnImageModel
from rlpyt.models.dqn.heads import make_head
from rlpyt.models.dqn.mlp_iqn_model import as_rows
from rlpyt.models.dqn.noisy import make_noisy
from rlpyt.models.dqn.quantiles import QuantileHead
from rlpyt.utils.settings import checked
from rlpyt.utils.tensor import restore_leading_dims


class AtariIqnModel(DqnImageModel):
    """Convolutions over the frames of an observation; their output times an embedding of a fraction goes through a fully connected head.

    Settings of the convolutions are those of `rlpyt.models.dqn.atari_dqn_model.DqnImageModel`.

    Args:
        fc_sizes: width(s) of the hidden layer(s) of the head.
        dueling: use a dueling head.
        noisy: explore by noise on the weights of the head, see `NoisyLinear`.
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
        **settings: Any,
    ) -> None:
        super().__init__(**settings)
        self.dueling = dueling
        self.conv, n_features = self.make_conv(image_shape)
        self.head = QuantileHead(make_head(n_features, fc_sizes, output_size, dueling), n_features)
        if noisy:
            make_noisy(self.head.head)

    def forward(self, observation: Any, prev_action: Any, prev_reward: Any, fractions: torch.Tensor) -> torch.Tensor:
        """Quantiles [T,B,output_size,N] at fractions [T,B,N], or [N] for all.

        observation: [T,B,C,H,W], uint8 in [0,255] or float in [0,1]. The other inputs are ignored.
        """
        x, lead_dims = self.image_batch(observation)
        quantiles = self.head(self.conv(x).flatten(1), as_rows(fractions))
        return restore_leading_dims(quantiles, *lead_dims)
