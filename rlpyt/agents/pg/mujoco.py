"""Policy gradient agents for continuous control."""

from collections.abc import Sequence

import numpy as np

from rlpyt.agents.pg.gaussian import AlternatingRecurrentGaussianPgAgent, GaussianPgAgent, RecurrentGaussianPgAgent
from rlpyt.envs.base import ActionForm, for_envs
from rlpyt.models.pg.mujoco_ff_model import MujocoFfModel
from rlpyt.models.pg.mujoco_lstm_model import MujocoLstmModel
from rlpyt.utils.logging import logger


class MujocoMixin:
    """Gives the model observation_shape and action_size."""

    model_arguments: Sequence[str] = ("observation_shape", "action_size", "n_observations")


class MujocoFfAgent(MujocoMixin, GaussianPgAgent):
    """Feedforward agent for actions in [-1,1]: by default its model squashes the mean of the action by tanh."""

    ModelCls = MujocoFfModel

    def make_models(self) -> None:
        """Extend the method: warn if no mean reaches the largest actions of the environment."""
        super().make_models()
        space = self.env_spaces.action
        if not isinstance(self.model, MujocoFfModel) or not self.model.squashes_mean:
            return
        reached = [for_envs(space, ActionForm.of(self))(np.full(space.shape, sign, space.dtype)) for sign in (-1, 1)]
        bounds = np.abs(np.broadcast_arrays(space.low, space.high, reached[0])[:2])
        is_out_of_reach = np.isfinite(bounds) & (bounds > np.abs(reached) * (1 + 1e-5))
        if is_out_of_reach.any():
            logger.warn(
                f"{type(self).__name__} takes actions with means between -1 and 1 (mu_nonlinearity=Tanh of its model), but those of the "
                f"environment go to {bounds[is_out_of_reach].max():g}: rescale_actions=True, or mu_nonlinearity=None in model_kwargs, "
                "reaches them. (BehaviorCloning takes the latter only.)"
            )


class MujocoLstmAgent(MujocoMixin, RecurrentGaussianPgAgent):
    """Recurrent agent for continuous actions."""

    ModelCls = MujocoLstmModel


class AlternatingMujocoLstmAgent(MujocoMixin, AlternatingRecurrentGaussianPgAgent):
    """MujocoLstmAgent for alternating samplers."""

    ModelCls = MujocoLstmModel
