"""Recurrent model for policy gradients from vector observations."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F

from rlpyt.models.linear import OutputLinear
from rlpyt.models.lstm import RnnState, make_rnn
from rlpyt.models.mlp import MlpModel, ObservationVector
from rlpyt.models.utils import Model, orthogonal_policy_
from rlpyt.utils.settings import checked
from rlpyt.utils.tensor import restore_leading_dims

__all__ = ["MlpLstmModel", "RnnState"]


class MlpLstmModel(Model):
    """A multilayer perceptron and an LSTM, with outputs for action probabilities and state value.

    The LSTM also sees the previous action and reward.

    Args:
        hidden_sizes: of the perceptron; default [64].
        lstm_size: width of the recurrent layer.
        rnn: the recurrent layer, "lstm" or "gru".
        nonlinearity: class of the perceptron's activation module.
        orthogonal_init: initialize layers by `rlpyt.models.utils.orthogonal_policy_` instead of torch's defaults.
    """

    @checked()
    def __init__(
        self,
        observation_shape: Sequence,
        output_size: int,
        hidden_sizes: Sequence[int] | int | None = None,
        lstm_size: int = 64,
        nonlinearity: type[torch.nn.Module] = torch.nn.Tanh,
        n_observations: int | None = None,
        *,
        orthogonal_init: bool = False,
        rnn: str = "lstm",
    ) -> None:
        super().__init__()
        hidden_sizes = [64] if hidden_sizes is None else hidden_sizes
        self.observation = ObservationVector(observation_shape, n_observations)
        self.mlp = MlpModel(self.observation.size, hidden_sizes, nonlinearity=nonlinearity)
        self.lstm = make_rnn(rnn, self.mlp.output_size, output_size, lstm_size)
        self.pi = OutputLinear(lstm_size, output_size)
        self.value = OutputLinear(lstm_size, 1)
        if orthogonal_init:
            orthogonal_policy_([self.mlp], self.pi, self.value, recurrent=self.lstm)

    def forward(
        self, observation: Any, prev_action: torch.Tensor, prev_reward: torch.Tensor, init_rnn_state: RnnState | None
    ) -> tuple[torch.Tensor, torch.Tensor, RnnState]:
        """Action probabilities [T,B,output_size], value [T,B], and the state after the last step [N,B,H]."""
        x, (lead_dim, T, B) = self.observation(observation)
        features, next_rnn_state = self.lstm(self.mlp(x), prev_action, prev_reward, init_rnn_state, T, B)
        pi = F.softmax(self.pi(features), dim=-1)
        value = self.value(features).squeeze(-1)
        return *restore_leading_dims((pi, value), lead_dim, T, B), next_rnn_state
