"""Recurrent convolutional model for policy gradients from images."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F

from rlpyt.models.conv2d import Conv2dHeadModel, ImageModel
from rlpyt.models.linear import OutputLinear
from rlpyt.models.lstm import RnnState, make_rnn
from rlpyt.models.pg.atari_ff_model import SMALL_CONV
from rlpyt.models.utils import orthogonal_policy_
from rlpyt.utils.settings import checked
from rlpyt.utils.tensor import restore_leading_dims

__all__ = ["AtariLstmModel", "RnnState"]


class AtariLstmModel(ImageModel):
    """Convolutions, a fully connected layer and an LSTM, with outputs for action probabilities and state value.

    The LSTM also sees the previous action and reward.

    By default the convolutions are those of `rlpyt.models.pg.atari_ff_model.AtariFfModel`. Their settings are those of
    `rlpyt.models.conv2d.ImageModel`.

    Args:
        fc_sizes: width(s) of the fully connected layer(s).
        lstm_size: width of the recurrent layer.
        rnn: the recurrent layer, "lstm" or "gru".
        orthogonal_init: initialize layers by `rlpyt.models.utils.orthogonal_policy_` instead of torch's defaults.
    """

    conv_defaults = SMALL_CONV

    @checked()
    def __init__(
        self,
        image_shape: Sequence[int],
        output_size: int,
        fc_sizes: Sequence[int] | int = 512,
        lstm_size: int = 512,
        *,
        orthogonal_init: bool = False,
        rnn: str = "lstm",
        **settings: Any,
    ) -> None:
        super().__init__(**settings)
        self.conv = Conv2dHeadModel(image_shape, hidden_sizes=fc_sizes, **self.conv_settings)
        self.lstm = make_rnn(rnn, self.conv.output_size, output_size, lstm_size)
        self.pi = OutputLinear(lstm_size, output_size)
        self.value = OutputLinear(lstm_size, 1)
        if orthogonal_init:
            orthogonal_policy_([self.conv], self.pi, self.value, recurrent=self.lstm)

    def forward(
        self, image: torch.Tensor, prev_action: torch.Tensor, prev_reward: torch.Tensor, init_rnn_state: RnnState | None
    ) -> tuple[torch.Tensor, torch.Tensor, RnnState]:
        """Action probabilities [T,B,output_size], value [T,B], and the state after the last step [N,B,H].

        image: [T,B,C,H,W], uint8 in [0,255] or float in [0,1].
        """
        x, (lead_dim, T, B) = self.image_batch(image)
        features = self.conv(x)
        features, next_rnn_state = self.lstm(features, prev_action, prev_reward, init_rnn_state, T, B)
        pi = F.softmax(self.pi(features), dim=-1)
        value = self.value(features).squeeze(-1)
        return *restore_leading_dims((pi, value), lead_dim, T, B), next_rnn_state
