"""Policy gradient agents for continuous control."""

from collections.abc import Sequence

from rlpyt.agents.pg.gaussian import AlternatingRecurrentGaussianPgAgent, GaussianPgAgent, RecurrentGaussianPgAgent
from rlpyt.models.pg.mujoco_ff_model import MujocoFfModel
from rlpyt.models.pg.mujoco_lstm_model import MujocoLstmModel


class MujocoMixin:
    """Gives the model observation_shape and action_size."""

    model_arguments: Sequence[str] = ("observation_shape", "action_size", "n_observations")


class MujocoFfAgent(MujocoMixin, GaussianPgAgent):
    """Feedforward agent for actions in [-1,1]."""

    ModelCls = MujocoFfModel


class MujocoLstmAgent(MujocoMixin, RecurrentGaussianPgAgent):
    """Recurrent agent for continuous actions."""

    ModelCls = MujocoLstmModel


class AlternatingMujocoLstmAgent(MujocoMixin, AlternatingRecurrentGaussianPgAgent):
    """MujocoLstmAgent for alternating samplers."""

    ModelCls = MujocoLstmModel
