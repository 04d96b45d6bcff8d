"""Models for policy gradients from any observations, images and vectors together, and for any actions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from rlpyt.distributions.base import Distribution
from rlpyt.models.linear import OutputLinear
from rlpyt.models.lstm import make_rnn
from rlpyt.models.mlp import MlpModel
from rlpyt.models.multi_input import MultiInputModel
from rlpyt.models.pg.mlp_composite_model import DistributionHead
from rlpyt.models.utils import orthogonal_policy_
from rlpyt.utils.settings import checked
from rlpyt.utils.tensor import restore_leading_dims


class MultiInputFfModel(MultiInputModel):
    """Features of all inputs, a fully connected layer, and outputs for the distribution over actions and the state value.

    The other settings are those of `rlpyt.models.multi_input.MultiInputModel`.

    Args:
        distribution: over actions.
        fc_sizes: width(s) of the fully connected layer(s) after the features.
        init_log_std: initial log of the standard deviations of continuous actions.
        orthogonal_init: initialize layers by `rlpyt.models.utils.orthogonal_policy_` instead of torch's defaults.
    """

    uses_prev_action = False

    @checked()
    def __init__(
        self,
        observation_space: Any,
        distribution: Distribution,
        *,
        fc_sizes: Sequence[int] | int = 256,
        init_log_std: float = 0.0,
        orthogonal_init: bool = False,
        **settings: Any,
    ) -> None:
        super().__init__(observation_space, **settings)
        self.fc = MlpModel(self.n_features, fc_sizes)
        self.pi = DistributionHead(self.fc.output_size, distribution, init_log_std)
        self.value = OutputLinear(self.fc.output_size, 1)
        if orthogonal_init:
            orthogonal_policy_([*self.feature_layers(), self.fc], self.pi, self.value)

    def forward(self, observation: Any, prev_action: Any, prev_reward: Any) -> tuple:
        """The fields of dist_info [T,B,...], and value [T,B]."""
        features, lead_dims = self.features(observation)
        hidden = self.fc(features)
        return restore_leading_dims((*self.pi(hidden), self.value(hidden).squeeze(-1)), *lead_dims)


class MultiInputLstmModel(MultiInputModel):
    """Features of all inputs and an LSTM, with outputs for the distribution over actions and the state value.

    The LSTM also sees the previous action and reward. The other settings are those of `rlpyt.models.multi_input.MultiInputModel`.

    Args:
        distribution: over actions.
        lstm_size: width of the recurrent layer.
        rnn: the recurrent layer, "lstm" or "gru".
        init_log_std: initial log of the standard deviations of continuous actions.
        orthogonal_init: initialize layers by `rlpyt.models.utils.orthogonal_policy_` instead of torch's defaults.
    """

    @checked()
    def __init__(
        self,
        observation_space: Any,
        distribution: Distribution,
        *,
        lstm_size: int = 256,
        rnn: str = "lstm",
        init_log_std: float = 0.0,
        orthogonal_init: bool = False,
        **settings: Any,
    ) -> None:
        super().__init__(observation_space, **settings)
        self.lstm = make_rnn(rnn, self.n_features, distribution.dim, lstm_size)
        self.pi = DistributionHead(lstm_size, distribution, init_log_std)
        self.value = OutputLinear(lstm_size, 1)
        if orthogonal_init:
            orthogonal_policy_(self.feature_layers(), self.pi, self.value, recurrent=self.lstm)

    def forward(self, observation: Any, prev_action: torch.Tensor, prev_reward: torch.Tensor, init_rnn_state: Any) -> tuple[Any, ...]:
        """The fields of dist_info [T,B,...], value [T,B], and the state after the last step [N,B,H].

        The previous action is a vector, one-hot where it is discrete.
        """
        features, (lead_dim, T, B) = self.features(observation)
        hidden, next_rnn_state = self.lstm(features, prev_action, prev_reward, init_rnn_state, T, B)
        outputs = (*self.pi(hidden), self.value(hidden).squeeze(-1))
        return *restore_leading_dims(outputs, lead_dim, T, B), next_rnn_state
