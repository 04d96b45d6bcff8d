"""The recurrent part of models."""

from __future__ import annotations

from operator import index
from typing import Any

import torch

from rlpyt.models.utils import Model, as_vectors
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
        self.lstm = torch.nn.LSTM(feature_size + action_size + 1, index(lstm_size))

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
        x = _joined(features, prev_action, prev_reward, T, B)
        out, (h, c) = self.lstm(x, None if init_rnn_state is None else tuple(init_rnn_state))
        return out.flatten(0, 1), RnnState(h=h, c=c)


class GruWithInputs(Model):
    """GRU (Cho et al. 2014, arXiv:1406.1078) in place of the LSTM of `LstmWithInputs`. Its state is one tensor [N,B,H].

    It has three quarters of the LSTM's parameters.

    Args:
        feature_size, action_size: those of `LstmWithInputs`.
        gru_size: width.
    """

    def __init__(self, feature_size: int, action_size: int, gru_size: int) -> None:
        super().__init__()
        self.gru = torch.nn.GRU(feature_size + action_size + 1, index(gru_size))

    def forward(
        self,
        features: torch.Tensor,
        prev_action: torch.Tensor,
        prev_reward: torch.Tensor,
        init_rnn_state: torch.Tensor | None,
        T: int,
        B: int,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Outputs [T*B,H], and the state after the last step [N,B,H], like `LstmWithInputs`."""
        out, state = self.gru(_joined(features, prev_action, prev_reward, T, B), init_rnn_state)
        return out.flatten(0, 1), state


def make_rnn(rnn: str, feature_size: int, action_size: int, size: int) -> LstmWithInputs | GruWithInputs:
    """Make the recurrent layer of a model: "lstm" or "gru", of width `size`. ValueError for another name."""
    RnnCls: Any = {"lstm": LstmWithInputs, "gru": GruWithInputs}.get(rnn)
    if RnnCls is None:
        raise ValueError(f"rnn={rnn!r} is not possible; it must be 'lstm' or 'gru'.")
    return RnnCls(feature_size, action_size, size)


def _joined(features: torch.Tensor, prev_action: torch.Tensor, prev_reward: torch.Tensor, T: int, B: int) -> torch.Tensor:
    """Return the inputs of the recurrent layer [T,B,size]."""
    inputs = [features, as_vectors(prev_action, T * B), prev_reward.reshape(T * B, 1)]
    x = torch.cat(inputs, dim=1)
    return x.view(T, B, x.shape[1])
