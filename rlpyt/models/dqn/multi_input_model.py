"""Models for Q-values of any observations, images and vectors together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F

from rlpyt.models.dqn.heads import make_head
from rlpyt.models.dqn.mlp_iqn_model import as_rows
from rlpyt.models.dqn.quantiles import QuantileHead
from rlpyt.models.lstm import make_rnn
from rlpyt.models.multi_input import MultiInputModel
from rlpyt.utils.settings import checked
from rlpyt.utils.tensor import restore_leading_dims


class MultiInputDqnModel(MultiInputModel):
    """Features of all inputs, and a fully connected head with one Q-value per action.

    The other settings are those of `rlpyt.models.multi_input.MultiInputModel`.

    Args:
        fc_sizes: width(s) of the hidden layer(s) of the head.
        dueling: use a dueling head.
        noisy: explore by noise on the weights of the head, see `rlpyt.models.dqn.noisy.NoisyLinear`.
        n_atoms: logits of this many atoms of a distribution, or quantiles, per action, in place of a Q-value; None for Q-values.
    """

    uses_prev_action = False

    @checked()
    def __init__(
        self,
        observation_space: Any,
        output_size: int,
        *,
        fc_sizes: Sequence[int] | int = 256,
        dueling: bool = False,
        noisy: bool = False,
        n_atoms: int | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(observation_space, **settings)
        self.dueling = dueling
        self.head = make_head(self.n_features, fc_sizes, output_size, dueling, n_atoms, noisy)

    def forward(self, observation: Any, prev_action: Any, prev_reward: Any) -> torch.Tensor:
        """Q-values [T,B,output_size], or logits or quantiles [T,B,output_size,n_atoms]."""
        features, lead_dims = self.features(observation)
        return restore_leading_dims(self.head(features), *lead_dims)


class MultiInputCatDqnModel(MultiInputDqnModel):
    """Like `MultiInputDqnModel`, with the probabilities of `n_atoms` returns per action instead of a Q-value.

    Args:
        n_atoms: atoms of a distribution.
    """

    uses_prev_action = False

    @checked()
    def __init__(self, observation_space: Any, output_size: int, *, n_atoms: int = 51, **settings: Any) -> None:
        super().__init__(observation_space, output_size, n_atoms=n_atoms, **settings)

    def forward(self, observation: Any, prev_action: Any, prev_reward: Any) -> torch.Tensor:
        """Probabilities [T,B,output_size,n_atoms], which sum to 1 over the atoms."""
        return F.softmax(super().forward(observation, prev_action, prev_reward), dim=-1)


class MultiInputIqnModel(MultiInputDqnModel):
    """Like `MultiInputDqnModel`, with quantiles of the return at any fractions: the head sees features times an embedding of a fraction.

    Its settings are those of `MultiInputDqnModel`, without `n_atoms`.
    """

    uses_prev_action = False

    @checked(without=("n_atoms",))
    def __init__(self, observation_space: Any, output_size: int, **settings: Any) -> None:
        super().__init__(observation_space, output_size, **settings)
        self.head = QuantileHead(self.head, self.n_features)

    def forward(self, observation: Any, prev_action: Any, prev_reward: Any, fractions: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        """Quantiles [T,B,output_size,N] at fractions [T,B,N], or [N] for all."""
        features, lead_dims = self.features(observation)
        return restore_leading_dims(self.head(features, as_rows(fractions)), *lead_dims)


class MultiInputR2d1Model(MultiInputModel):
    """Features of all inputs, an LSTM, and a fully connected head with one Q-value per action.

    The LSTM also sees the previous action and reward. The other settings are those of `rlpyt.models.multi_input.MultiInputModel`.

    Args:
        lstm_size: width of the recurrent layer.
        rnn: the recurrent layer, "lstm" or "gru".
        fc_sizes: width(s) of the hidden layer(s) of the head.
        dueling: use a dueling head.
        noisy: explore by noise on the weights of the head, see `rlpyt.models.dqn.noisy.NoisyLinear`.
        n_atoms: quantiles of the return for each action, at fixed fractions; None for Q-values.
        implicit: quantiles of the return at any fractions, which are a further input, by `rlpyt.models.dqn.quantiles.QuantileHead`.
    """

    @checked()
    def __init__(
        self,
        observation_space: Any,
        output_size: int,
        *,
        lstm_size: int = 256,
        rnn: str = "lstm",
        fc_sizes: Sequence[int] | int = 256,
        dueling: bool = False,
        noisy: bool = False,
        n_atoms: int | None = None,
        implicit: bool = False,
        **settings: Any,
    ) -> None:
        super().__init__(observation_space, **settings)
        self.dueling = dueling
        self.lstm = make_rnn(rnn, self.n_features, output_size, lstm_size)
        self.head = make_head(lstm_size, fc_sizes, output_size, dueling, n_atoms, noisy, implicit)

    def forward(
        self, observation: Any, prev_action: torch.Tensor, prev_reward: torch.Tensor, init_rnn_state: Any, *fractions: torch.Tensor
    ) -> tuple[torch.Tensor, Any]:
        """Q-values [T,B,output_size], or quantiles [T,B,output_size,n_atoms], and the state after the last step [N,B,H].

        fractions: [T,B,n_atoms], or [n_atoms] for all, if the model is implicit.
        """
        features, (lead_dim, T, B) = self.features(observation)
        hidden, next_rnn_state = self.lstm(features, prev_action, prev_reward, init_rnn_state, T, B)
        return restore_leading_dims(self.head(hidden, *map(as_rows, fractions)), lead_dim, T, B), next_rnn_state
