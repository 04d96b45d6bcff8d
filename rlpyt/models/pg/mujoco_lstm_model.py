"""Recurrent model for policy gradients with continuous actions."""

from collections.abc import Sequence
from typing import Any

import torch

from rlpyt.models.linear import OutputLinear
from rlpyt.models.lstm import RnnState, make_rnn
from rlpyt.models.mlp import MlpModel, NormalizingModel
from rlpyt.models.utils import POLICY_GAIN, orthogonal_policy_
from rlpyt.utils.settings import checked
from rlpyt.utils.tensor import restore_leading_dims

__all__ = ["MujocoLstmModel", "RnnState"]


class MujocoLstmModel(NormalizingModel):
    """A multilayer perceptron and an LSTM, with outputs for the mean of the action, its log_std, and the state value.

    The LSTM also sees the previous action and reward. The mean has no limits, and the log_std depends on the history. The other
    settings are those of `rlpyt.models.mlp.NormalizingModel`.

    Args:
        hidden_sizes: of the perceptron; default [256, 256].
        lstm_size: width of the recurrent layer.
        rnn: the recurrent layer, "lstm" or "gru".
        nonlinearity: class of the perceptron's activation module.
        orthogonal_init: initialize layers by `rlpyt.models.utils.orthogonal_policy_` instead of torch's defaults.
    """

    _normalizes = True

    @checked()
    def __init__(
        self,
        observation_shape: Sequence,
        action_size: int,
        hidden_sizes: Sequence[int] | int | None = None,
        lstm_size: int = 256,
        nonlinearity: type[torch.nn.Module] = torch.nn.ReLU,
        *,
        rnn: str = "lstm",
        orthogonal_init: bool = False,
        **settings: Any,
    ) -> None:
        super().__init__(observation_shape, **settings)
        hidden_sizes = [256, 256] if hidden_sizes is None else hidden_sizes
        self.action_size = action_size
        self.mlp = MlpModel(self.observation.size, hidden_sizes, nonlinearity=nonlinearity)
        self.lstm = make_rnn(rnn, self.mlp.output_size, action_size, lstm_size)
        self.head = OutputLinear(lstm_size, 2 * action_size + 1)
        if orthogonal_init:
            orthogonal_policy_([self.mlp], self.head, self.head, recurrent=self.lstm)
            self.head.weight.data[: 2 * action_size] *= POLICY_GAIN  # The last row is that of the value.

    def forward(
        self, observation: Any, prev_action: torch.Tensor, prev_reward: torch.Tensor, init_rnn_state: RnnState | None
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, RnnState]:
        """mu and log_std [T,B,action_size], value [T,B], and the state after the last step [N,B,H]."""
        x, (lead_dim, T, B) = self.observation_vector(observation)
        features, next_rnn_state = self.lstm(self.mlp(x), prev_action, prev_reward, init_rnn_state, T, B)
        mu, log_std, value = self.head(features).split([self.action_size, self.action_size, 1], dim=-1)
        outputs = restore_leading_dims((mu, log_std, value.squeeze(-1)), lead_dim, T, B)
        return *outputs, next_rnn_state
