"""Policy gradient agents for continuous control."""

from typing import Any

import torch

from rlpyt.agents.pg.gaussian import AlternatingRecurrentGaussianPgAgent, GaussianPgAgent, RecurrentGaussianPgAgent
from rlpyt.models.pg.mujoco_ff_model import MujocoFfModel
from rlpyt.models.pg.mujoco_lstm_model import MujocoLstmModel
from rlpyt.models.utils import unwrap_ddp
from rlpyt.utils.settings import checked


class MujocoMixin:
    """Gives the model the observation's shape and the action's size, and observations to normalize by.

    Environments get actions clipped to their bounds, unless clip_actions is False (see `rlpyt.agents.pg.gaussian.GaussianMixin`).

    deterministic_eval: in evaluation take the mean of the distribution as the action, instead of a sample.
    """

    @checked()
    def __init__(self, *args, deterministic_eval: bool = False, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self.deterministic_eval = deterministic_eval

    def make_env_to_model_kwargs(self, env_spaces) -> dict[str, Any]:
        """observation_shape and action_size."""
        return dict(observation_shape=env_spaces.observation.shape, action_size=env_spaces.action.shape[0])

    def update_obs_rms(self, observation) -> None:
        """Add observations [T,B,...] or [B,...] to the model's running statistics; in data-parallel training all ranks together.

        Nothing happens with a model of yours that has no ``update_obs_rms``.
        """
        model = unwrap_ddp(self.model)
        if hasattr(model, "update_obs_rms"):
            model.update_obs_rms(self._to_device(observation))

    def _set_mode(self, mode: str, training: bool) -> None:
        if self.deterministic_eval and (mode == "eval") != (self._mode == "eval"):
            if mode == "eval":
                self._std = self.distribution.std
            self.distribution.set_std(0.0 if mode == "eval" else self._std)
        super()._set_mode(mode, training)


class MujocoFfAgent(MujocoMixin, GaussianPgAgent):
    """Feedforward agent for actions in [-1,1]."""

    def __init__(self, ModelCls: type[torch.nn.Module] = MujocoFfModel, **kwargs):
        super().__init__(ModelCls=ModelCls, **kwargs)


class MujocoLstmAgent(MujocoMixin, RecurrentGaussianPgAgent):
    """Recurrent agent for continuous actions."""

    def __init__(self, ModelCls: type[torch.nn.Module] = MujocoLstmModel, **kwargs):
        super().__init__(ModelCls=ModelCls, **kwargs)


class AlternatingMujocoLstmAgent(MujocoMixin, AlternatingRecurrentGaussianPgAgent):
    """MujocoLstmAgent for alternating samplers."""

    def __init__(self, ModelCls: type[torch.nn.Module] = MujocoLstmModel, **kwargs):
        super().__init__(ModelCls=ModelCls, **kwargs)
