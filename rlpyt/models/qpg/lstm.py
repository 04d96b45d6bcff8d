"""Recurrent models for Q-function policy gradients with vector observations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from rlpyt.models.lstm import RnnState, make_rnn
from rlpyt.models.mlp import MlpModel, NormalizingModel
from rlpyt.models.utils import as_vectors
from rlpyt.utils.settings import COUNT, checked
from rlpyt.utils.tensor import restore_leading_dims

__all__ = ["MuLstmModel", "PiLstmModel", "QofMuLstmModel", "QpgLstm", "RnnState"]


class QpgLstm(NormalizingModel):
    """A perceptron, a recurrent layer that also sees the previous action and reward, and a second perceptron, the head.

    The head sees the state of the recurrent layer, and the observation itself. So it can do at once what needs no memory (Ni et al. 2022,
    https://arxiv.org/abs/2110.05038).

    Its settings are those of `rlpyt.models.mlp.NormalizingModel`, and:

    Args:
        action_size: components of an action.
        output_size: number of outputs.
        takes_action: the head also sees an action.
        hidden_sizes: widths of the hidden layers before the recurrent layer; default none.
        lstm_size: width of the recurrent layer.
        head_size: width(s) of the hidden layer(s) of the head.
        rnn: the recurrent layer, "lstm" or "gru".
    """

    @checked(lstm_size=COUNT)
    def __init__(
        self,
        observation_shape: Sequence,
        action_size: int,
        output_size: int,
        takes_action: bool = False,
        hidden_sizes: Sequence[int] | int | None = None,
        lstm_size: int = 64,
        head_size: Sequence[int] | int = 128,
        rnn: str = "lstm",
        n_observations: int | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(observation_shape, n_observations=n_observations, **settings)
        self.mlp = MlpModel(self.observation.size, hidden_sizes)
        self.lstm = make_rnn(rnn, self.mlp.output_size, action_size, lstm_size)
        self.head = MlpModel(lstm_size + self.observation.size + takes_action * action_size, head_size, output_size)

    def remember(
        self, observation: Any, prev_action: torch.Tensor, prev_reward: torch.Tensor, init_rnn_state: Any
    ) -> tuple[torch.Tensor, Any, tuple[int, int, int]]:
        """Go through steps with leading dims [T,B], [B] or []; the head has no part in it.

        Returns:
            The inputs of the head [T*B,size], without the action; the state after the last step, a structure of [N,B,H]; and
            (lead_dim, T, B).
        """
        x, (lead_dim, T, B) = self.observation_vector(observation)
        out, next_rnn_state = self.lstm(self.mlp(x), prev_action, prev_reward, init_rnn_state, T, B)
        return torch.cat([out, x.to(out.dtype)], dim=1), next_rnn_state, (lead_dim, T, B)

    def output(self, *inputs: Any, action: torch.Tensor | None = None) -> tuple[torch.Tensor, Any]:
        """The inputs of `remember`, and an action with the same leading dims -> outputs [T,B,output_size], and the state after them."""
        x, next_rnn_state, lead_dims = self.remember(*inputs)
        if action is not None:
            x = torch.cat([x, as_vectors(action, len(x)).to(x.dtype)], dim=1)
        return restore_leading_dims(self.head(x), *lead_dims), next_rnn_state


class MuLstmModel(QpgLstm):
    """A deterministic recurrent policy: ``output_max * tanh`` of the outputs.

    Its settings are those of `QpgLstm`, and:

    Args:
        output_max: largest absolute value of an action's components.
    """

    @checked(without=("output_size", "takes_action"))
    def __init__(self, observation_shape: Sequence, action_size: int, *, output_max: float = 1, **settings: Any) -> None:
        super().__init__(observation_shape, action_size, output_size=action_size, **settings)
        self._output_max = output_max

    def forward(self, observation: Any, prev_action: Any, prev_reward: Any, init_rnn_state: Any) -> tuple[torch.Tensor, Any]:
        """Action [T,B,action_size], and the state after the last step."""
        x, next_rnn_state = self.output(observation, prev_action, prev_reward, init_rnn_state)
        return self._output_max * torch.tanh(x), next_rnn_state


class PiLstmModel(QpgLstm):
    """A Gaussian recurrent policy.

    Its settings are those of `QpgLstm`.
    """

    @checked(without=("output_size", "takes_action"))
    def __init__(self, observation_shape: Sequence, action_size: int, **settings: Any) -> None:
        super().__init__(observation_shape, action_size, output_size=2 * action_size, **settings)

    def forward(self, observation: Any, prev_action: Any, prev_reward: Any, init_rnn_state: Any) -> tuple[torch.Tensor, torch.Tensor, Any]:
        """mean and log_std, both [T,B,action_size], and the state after the last step."""
        x, next_rnn_state = self.output(observation, prev_action, prev_reward, init_rnn_state)
        return *x.chunk(2, dim=-1), next_rnn_state


class QofMuLstmModel(QpgLstm):
    """The value of an action, by the history before it.

    Its settings are those of `QpgLstm`.
    """

    @checked(without=("output_size", "takes_action"))
    def __init__(self, observation_shape: Sequence, action_size: int, **settings: Any) -> None:
        super().__init__(observation_shape, action_size, output_size=1, takes_action=True, **settings)

    def forward(
        self, observation: Any, prev_action: Any, prev_reward: Any, init_rnn_state: Any, action: torch.Tensor
    ) -> tuple[torch.Tensor, Any]:
        """Q [T,B], and the state after the last step."""
        q, next_rnn_state = self.output(observation, prev_action, prev_reward, init_rnn_state, action=action)
        return q.squeeze(-1), next_rnn_state
