"""Feedforward models for policy gradients from vector observations."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F

from rlpyt.models.mlp import MlpModel, ObservationVector
from rlpyt.models.pg.mujoco_ff_model import MujocoFfModel
from rlpyt.models.utils import Model, orthogonal_policy_
from rlpyt.utils.settings import checked
from rlpyt.utils.tensor import restore_leading_dims


class MlpFfModel(Model):
    """One multilayer perceptron for action probabilities, another for the state value.

    Args:
        hidden_sizes: of both perceptrons; default [64, 64].
        nonlinearity: class of the activation module.
        orthogonal_init: initialize layers by `rlpyt.models.utils.orthogonal_policy_` instead of torch's defaults.
    """

    uses_prev_action = False

    @checked()
    def __init__(
        self,
        observation_shape: Sequence,
        output_size: int,
        hidden_sizes: Sequence[int] | int | None = None,
        nonlinearity: type[torch.nn.Module] = torch.nn.Tanh,
        n_observations: int | None = None,
        *,
        orthogonal_init: bool = False,
    ) -> None:
        super().__init__()
        hidden_sizes = [64, 64] if hidden_sizes is None else hidden_sizes
        self.observation = ObservationVector(observation_shape, n_observations)
        self.pi = MlpModel(self.observation.size, hidden_sizes, output_size, nonlinearity)
        self.value = MlpModel(self.observation.size, hidden_sizes, 1, nonlinearity)
        if orthogonal_init:
            orthogonal_policy_([self.pi, self.value], self.pi.model[-1], self.value.model[-1])

    def forward(self, observation: Any, prev_action: Any, prev_reward: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """Action probabilities [T,B,output_size] and value [T,B]."""
        x, lead_dims = self.observation(observation)
        pi = F.softmax(self.pi(x), dim=-1)
        value = self.value(x).squeeze(-1)
        return restore_leading_dims((pi, value), *lead_dims)


class MlpGaussianFfModel(MujocoFfModel):
    """MujocoFfModel with a mean that is not limited to [-1,1], for actions of any range."""

    @checked()
    def __init__(self, *, mu_nonlinearity: type[torch.nn.Module] = torch.nn.Identity, **settings: Any) -> None:
        super().__init__(mu_nonlinearity=mu_nonlinearity, **settings)
