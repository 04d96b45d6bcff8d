"""The recurrent part of models."""

from typing import Any

import torch

from rlpyt.models.utils import Model
from rlpyt.utils.collections import namedarraytuple

# Hidden state and cell state, both [N,B,H]: layers, environments, width.
RnnState: Any = namedarraytuple("RnnState", ["h", "c"])


class LstmWithInputs(Model):
    """LSTM of one layer, which sees the features of the observation, the previous action, and the previous reward.

    Args:
        feature_size: number of features.
        action_size: number of components of the previous action, as the model receives it (one-hot, if discrete).
        lstm_size: width.
    """

    former_names = {"weight_": "lstm.weight_", "bias_": "lstm.bias_"}

    def __init__(self, feature_size: int, action_size: int, lstm_size: int) -> None:
        super().__init__()
        self.lstm = torch.nn.LSTM(feature_size + action_size + 1, lstm_size)

    def forward(
        self,
        features: torch.Tensor,
        prev_action: torch.Tensor,
        prev_reward: torch.Tensor,
        init_rnn_state: RnnState | None,
        T: int,
        B: int,
    ) -> tuple[torch.Tensor, RnnState]:
        """Outputs [T*B,H], and the state after the last step [N,B,H], for inputs of any leading dims that make up T*B.

        features: [T*B,feature_size]. init_rnn_state: before the first step [N,B,H]; None for zeros.
        """
        inputs = [features, prev_action.reshape(T * B, -1), prev_reward.reshape(T * B, 1)]
        x = torch.cat(inputs, dim=1).view(T, B, -1)
        out, (h, c) = self.lstm(x, None if init_rnn_state is None else tuple(init_rnn_state))
        return out.reshape(T * B, -1), RnnState(h=h, c=c)
