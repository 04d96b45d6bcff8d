"""Models for policy gradients from vector observations, with actions of any kind: discrete, continuous, or composed of such parts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from rlpyt.distributions.base import Distribution
from rlpyt.distributions.categorical import Categorical, DistInfo
from rlpyt.distributions.composite import Composite, leaves
from rlpyt.distributions.gaussian import DistInfoStd
from rlpyt.models.linear import OutputLinear
from rlpyt.models.lstm import RnnState, make_rnn
from rlpyt.models.mlp import MlpModel, ObservationVector
from rlpyt.models.utils import Model, orthogonal_policy_
from rlpyt.utils.settings import checked
from rlpyt.utils.tensor import restore_leading_dims


class DistributionHead(torch.nn.Module):
    """A linear layer from features to the parameters of a distribution over actions.

    A Categorical or MultiCategorical has probabilities. A Gaussian has a mean and a log_std, which is learned but does not depend on the
    features. A Composite has the parameters of all its parts.

    Args:
        input_size: number of features.
        distribution: the distribution.
        init_log_std: initial log of standard deviations.
    """

    def __init__(self, input_size: int, distribution: Distribution, init_log_std: float = 0.0) -> None:
        super().__init__()
        self.distribution = distribution
        parts = leaves(distribution)
        self.sizes = [part.dim for part in parts]
        self.std_sizes = [part.dim for part in parts if not isinstance(part, Categorical)]
        self.linear = OutputLinear(input_size, sum(self.sizes))
        if self.std_sizes:
            self.log_std = torch.nn.Parameter(torch.full((sum(self.std_sizes),), float(init_log_std)))

    def forward(self, features: torch.Tensor) -> Any:
        """Features [B,input_size] -> dist_info of `distribution`, [B,...]."""
        outputs = iter(self.linear(features).split(self.sizes, dim=-1))
        # a copy, which outlives the parameter's next update
        log_stds = iter(self.log_std.repeat(len(features), 1).split(self.std_sizes, dim=-1) if self.std_sizes else ())
        return _dist_info(self.distribution, outputs, log_stds)


def _dist_info(distribution: Distribution, outputs: Iterator[torch.Tensor], log_stds: Iterator[torch.Tensor]) -> Any:
    """Take the parameters of `distribution` from `outputs` and `log_stds`."""
    if isinstance(distribution, Composite):
        return distribution.DistInfoCls(*(_dist_info(part, outputs, log_stds) for part in distribution.parts))
    if isinstance(distribution, Categorical):
        return DistInfo(distribution.prob_of(next(outputs)))
    return DistInfoStd(next(outputs), next(log_stds))


class MlpCompositeFfModel(Model):
    """One multilayer perceptron for the distribution over actions, another for the state value.

    Args:
        distribution: over actions.
        hidden_sizes: of both perceptrons; default [64, 64].
        nonlinearity: class of the activation module.
        init_log_std: initial log of standard deviations.
        orthogonal_init: initialize layers by `rlpyt.models.utils.orthogonal_policy_` instead of torch's defaults.
    """

    uses_prev_action = False

    @checked()
    def __init__(
        self,
        observation_shape: Sequence,
        distribution: Distribution,
        hidden_sizes: Sequence[int] | int | None = None,
        nonlinearity: type[torch.nn.Module] = torch.nn.Tanh,
        init_log_std: float = 0.0,
        *,
        orthogonal_init: bool = False,
        n_observations: int | None = None,
    ) -> None:
        super().__init__()
        hidden_sizes = [64, 64] if hidden_sizes is None else hidden_sizes
        self.observation = ObservationVector(observation_shape, n_observations)
        self.mlp = MlpModel(self.observation.size, hidden_sizes, nonlinearity=nonlinearity)
        self.pi = DistributionHead(self.mlp.output_size, distribution, init_log_std)
        self.value = MlpModel(self.observation.size, hidden_sizes, 1, nonlinearity)
        if orthogonal_init:
            orthogonal_policy_([self.mlp, self.value], self.pi, self.value.model[-1])

    def forward(self, observation: Any, prev_action: Any, prev_reward: Any) -> tuple:
        """The fields of dist_info [T,B,...], and value [T,B]."""
        x, lead_dims = self.observation(observation)
        dist_info = self.pi(self.mlp(x))
        value = self.value(x).squeeze(-1)
        return restore_leading_dims((*dist_info, value), *lead_dims)


class MlpCompositeLstmModel(Model):
    """A multilayer perceptron and an LSTM, with outputs for the distribution over actions and the state value.

    The LSTM also sees the previous action and reward.

    Args:
        distribution: over actions.
        hidden_sizes: of the perceptron; default [64].
        lstm_size: width of the recurrent layer.
        rnn: the recurrent layer, "lstm" or "gru".
        nonlinearity: class of the perceptron's activation module.
        init_log_std: initial log of standard deviations.
        orthogonal_init: initialize layers by `rlpyt.models.utils.orthogonal_policy_` instead of torch's defaults.
    """

    @checked()
    def __init__(
        self,
        observation_shape: Sequence,
        distribution: Distribution,
        hidden_sizes: Sequence[int] | int | None = None,
        lstm_size: int = 64,
        nonlinearity: type[torch.nn.Module] = torch.nn.Tanh,
        init_log_std: float = 0.0,
        rnn: str = "lstm",
        *,
        orthogonal_init: bool = False,
        n_observations: int | None = None,
    ) -> None:
        super().__init__()
        hidden_sizes = [64] if hidden_sizes is None else hidden_sizes
        self.observation = ObservationVector(observation_shape, n_observations)
        self.mlp = MlpModel(self.observation.size, hidden_sizes, nonlinearity=nonlinearity)
        self.lstm = make_rnn(rnn, self.mlp.output_size, distribution.dim, lstm_size)
        self.pi = DistributionHead(lstm_size, distribution, init_log_std)
        self.value = OutputLinear(lstm_size, 1)
        if orthogonal_init:
            orthogonal_policy_([self.mlp], self.pi, self.value, recurrent=self.lstm)

    def forward(
        self, observation: Any, prev_action: torch.Tensor, prev_reward: torch.Tensor, init_rnn_state: RnnState | None
    ) -> tuple[Any, ...]:
        """The fields of dist_info [T,B,...], value [T,B], and the state after the last step, an RnnState of [N,B,H].

        The previous action is a vector, one-hot where it is discrete.
        """
        x, (lead_dim, T, B) = self.observation(observation)
        features, next_rnn_state = self.lstm(self.mlp(x), prev_action, prev_reward, init_rnn_state, T, B)
        outputs = (*self.pi(features), self.value(features).squeeze(-1))
        return *restore_leading_dims(outputs, lead_dim, T, B), next_rnn_state
