"""Recurrent convolutional model for Q-values of images."""

from collections.abc import Sequence
from typing import Any

import torch

from rlpyt.models.dqn.atari_dqn_model import DqnImageModel
from rlpyt.models.dqn.heads import make_head
from rlpyt.models.dqn.mlp_iqn_model import as_rows
from rlpyt.models.lstm import RnnState, make_rnn
from rlpyt.models.mlp import MlpModel
from rlpyt.utils.settings import checked
from rlpyt.utils.tensor import restore_leading_dims

__all__ = ["AtariR2d1Model", "RnnState"]


class AtariR2d1Model(DqnImageModel):
    """Convolutions, a fully connected layer, an LSTM, and a fully connected head with one Q-value per action.

    The LSTM also sees the previous action and reward. Settings of the convolutions are those of
    `rlpyt.models.dqn.atari_dqn_model.DqnImageModel`.

    Args:
        fc_size: width(s) of the fully connected layer(s) before the LSTM.
        lstm_size: width of the recurrent layer.
        rnn: the recurrent layer, "lstm" or "gru".
        head_size: width(s) of the hidden layer(s) of the head.
        dueling: use a dueling head.
        noisy: explore by noise on the weights of the head, see `NoisyLinear`.
        n_atoms: quantiles of the return for each action, at fixed fractions; None for Q-values.
        implicit: quantiles of the return at any fractions, which are a further input, by `QuantileHead`.
    """

    former_names = {"conv.conv.conv.": "conv.conv.", "conv.head.": "fc."}

    @checked()
    def __init__(
        self,
        image_shape: Sequence[int],
        output_size: int,
        fc_size: Sequence[int] | int = 512,
        lstm_size: int = 512,
        head_size: Sequence[int] | int = 512,
        dueling: bool = False,
        *,
        noisy: bool = False,
        rnn: str = "lstm",
        n_atoms: int | None = None,
        implicit: bool = False,
        **settings: Any,
    ) -> None:
        super().__init__(**settings)
        self.dueling = dueling
        self.conv, n_features = self.make_conv(image_shape)
        self.fc = MlpModel(n_features, fc_size)
        self.lstm = make_rnn(rnn, self.fc.output_size, output_size, lstm_size)
        self.head = make_head(lstm_size, head_size, output_size, dueling, n_atoms, noisy, implicit)

    def forward(
        self,
        observation: Any,
        prev_action: torch.Tensor,
        prev_reward: torch.Tensor,
        init_rnn_state: RnnState | None,
        *fractions: torch.Tensor,
    ) -> tuple[torch.Tensor, RnnState]:
        """Q-values [T,B,output_size], or quantiles [T,B,output_size,n_atoms], and the state after the last step [N,B,H].

        observation: [T,B,C,H,W], uint8 in [0,255] or float in [0,1].
        fractions: [T,B,n_atoms], or [n_atoms] for all, if the model is implicit.
        """
        x, (lead_dim, T, B) = self.image_batch(observation)
        features = self.fc(self.conv(x).flatten(1))
        features, next_rnn_state = self.lstm(features, prev_action, prev_reward, init_rnn_state, T, B)
        return restore_leading_dims(self.head(features, *map(as_rows, fractions)), lead_dim, T, B), next_rnn_state
