"""Recurrent model for Q-values of vector observations."""

from collections.abc import Sequence
from typing import Any

import torch

from rlpyt.models.dqn.heads import make_head
from rlpyt.models.dqn.mlp_iqn_model import as_rows
from rlpyt.models.lstm import RnnState, make_rnn
from rlpyt.models.mlp import MlpModel, ObservationVector
from rlpyt.models.utils import Model
from rlpyt.utils.settings import checked
from rlpyt.utils.tensor import restore_leading_dims

__all__ = ["MlpR2d1Model", "RnnState"]


class MlpR2d1Model(Model):
    """A multilayer perceptron, an LSTM, and a fully connected head with one Q-value per action.

    The LSTM also sees the previous action and reward.

    Args:
        hidden_sizes: of the perceptron; default [64].
        lstm_size: width of the recurrent layer.
        rnn: the recurrent layer, "lstm" or "gru".
        head_size: width(s) of the hidden layer(s) of the head.
        dueling: use a dueling head.
        noisy: explore by noise on the weights of the head, see `NoisyLinear`.
        n_atoms: quantiles of the return for each action, at fixed fractions; None for Q-values.
        implicit: quantiles of the return at any fractions, which are a further input, by `QuantileHead`.
    """

    @checked()
    def __init__(
        self,
        observation_shape: Sequence,
        output_size: int,
        hidden_sizes: Sequence[int] | int | None = None,
        lstm_size: int = 64,
        head_size: Sequence[int] | int = 64,
        dueling: bool = False,
        n_observations: int | None = None,
        noisy: bool = False,
        rnn: str = "lstm",
        n_atoms: int | None = None,
        implicit: bool = False,
    ) -> None:
        super().__init__()
        self.dueling = dueling
        hidden_sizes = [64] if hidden_sizes is None else hidden_sizes
        self.observation = ObservationVector(observation_shape, n_observations)
        self.mlp = MlpModel(self.observation.size, hidden_sizes)
        self.lstm = make_rnn(rnn, self.mlp.output_size, output_size, lstm_size)
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

        fractions: [T,B,n_atoms], or [n_atoms] for all, if the model is implicit.
        """
        x, (lead_dim, T, B) = self.observation(observation)
        features, next_rnn_state = self.lstm(self.mlp(x), prev_action, prev_reward, init_rnn_state, T, B)
        return restore_leading_dims(self.head(features, *map(as_rows, fractions)), lead_dim, T, B), next_rnn_state
