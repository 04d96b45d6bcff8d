"""Feedforward model for policy gradients with continuous actions."""

from collections.abc import Sequence
from typing import Any

import torch

from rlpyt.models.mlp import MlpModel, NormalizingModel
from rlpyt.models.utils import orthogonal_policy_
from rlpyt.utils.settings import checked
from rlpyt.utils.tensor import restore_leading_dims


class MujocoFfModel(NormalizingModel):
    """One multilayer perceptron for the mean of the action, another for the state value, and a learned log_std.

    The log_std does not depend on the observation. The other settings are those of `NormalizingModel`.

    Args:
        hidden_sizes: of both perceptrons; default [64, 64].
        hidden_nonlinearity: class of the activation module.
        mu_nonlinearity: the same for the mean's output; Tanh suits actions in [-1,1]. None leaves the output unchanged.
        init_log_std: initial log of the standard deviation.
        orthogonal_init: initialize layers by `rlpyt.models.utils.orthogonal_policy_` instead of torch's defaults.
    """

    uses_prev_action = False
    _normalizes = True

    @checked()
    def __init__(
        self,
        observation_shape: Sequence,
        action_size: int,
        hidden_sizes: Sequence[int] | int | None = None,
        hidden_nonlinearity: type[torch.nn.Module] = torch.nn.Tanh,
        mu_nonlinearity: type[torch.nn.Module] | None = torch.nn.Tanh,
        init_log_std: float = 0.0,
        *,
        orthogonal_init: bool = False,
        **settings: Any,
    ) -> None:
        super().__init__(observation_shape, **settings)
        hidden_sizes = [64, 64] if hidden_sizes is None else hidden_sizes
        mu = MlpModel(self.observation.size, hidden_sizes, action_size, hidden_nonlinearity)
        self.mu = mu if mu_nonlinearity is None else torch.nn.Sequential(mu, mu_nonlinearity())
        self.squashes_mean = mu_nonlinearity is torch.nn.Tanh
        self.v = MlpModel(self.observation.size, hidden_sizes, 1, hidden_nonlinearity)
        if orthogonal_init:
            orthogonal_policy_([mu, self.v], mu.model[-1], self.v.model[-1])
        self.log_std = torch.nn.Parameter(torch.full((action_size,), float(init_log_std)))

    def forward(self, observation: Any, prev_action: Any, prev_reward: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """mu [T,B,action_size], log_std [T,B,action_size] and value [T,B]."""
        x, lead_dims = self.observation_vector(observation)
        mu = self.mu(x)
        log_std = self.log_std.repeat(len(mu), 1)  # a copy, which outlives the parameter's next update
        value = self.v(x).squeeze(-1)
        return restore_leading_dims((mu, log_std, value), *lead_dims)
