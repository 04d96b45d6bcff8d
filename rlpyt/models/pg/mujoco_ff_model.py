"""Feedforward model for policy gradients with continuous actions."""

from collections.abc import Sequence
from typing import Any

import torch

from rlpyt.models.mlp import MlpModel, ObservationVector
from rlpyt.models.running_mean_std import RunningMeanStdModel
from rlpyt.models.utils import Model, orthogonal_policy_
from rlpyt.utils.settings import Number, checked
from rlpyt.utils.tensor import restore_leading_dims


class NormalizingModel(Model):
    """Base of models that take observations as vectors, normalized by the statistics of those given to `update_obs_rms`.

    Args:
        normalize_observation: subtract the running mean of observations, divide by their standard deviation.
        norm_obs_clip: limit of normalized observations.
        norm_obs_var_clip: least variance to normalize by; None for no limit, which gives NaN where observations are constant.
    """

    @checked(norm_obs_var_clip=Number(0, above=True, optional=True))
    def __init__(
        self,
        observation_shape: Sequence,
        normalize_observation: bool = False,
        norm_obs_clip: float = 10,
        norm_obs_var_clip: float = 1e-6,
        n_observations: int | None = None,
    ) -> None:
        super().__init__()
        self.observation = ObservationVector(observation_shape, n_observations)
        self._obs_ndim = len(observation_shape)
        self.normalize_observation = normalize_observation
        self.norm_obs_clip = norm_obs_clip
        self.norm_obs_var_clip = norm_obs_var_clip
        if normalize_observation:
            self.obs_rms = RunningMeanStdModel((self.observation.size,))

    def observation_vector(self, observation: Any) -> tuple[torch.Tensor, tuple[int, int, int]]:
        """Observation with leading dims [T,B], [B] or [] -> [T*B,size], (lead_dim, T, B)."""
        x, lead_dims = self.observation(observation)
        if self.normalize_observation:
            x = self.obs_rms.normalize(x, self.norm_obs_clip, self.norm_obs_var_clip)
        return x, lead_dims

    def update_obs_rms(self, observation: Any) -> None:
        """Add observations to the running statistics, if they are used."""
        if self.normalize_observation:
            self.obs_rms.update(self.observation(observation)[0])


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
