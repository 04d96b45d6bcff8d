"""Policy gradient agents for vector observations."""

from rlpyt.agents.mlp import MlpMixin
from rlpyt.agents.pg.categorical import AlternatingRecurrentCategoricalPgAgent, CategoricalPgAgent, RecurrentCategoricalPgAgent
from rlpyt.agents.pg.mujoco import MujocoFfAgent
from rlpyt.models.pg.mlp_ff_model import MlpFfModel, MlpGaussianFfModel
from rlpyt.models.pg.mlp_lstm_model import MlpLstmModel


class MlpFfAgent(MlpMixin, CategoricalPgAgent):
    """Feedforward agent for vector observations and discrete actions, e.g. CartPole."""

    ModelCls = MlpFfModel


class MlpGaussianFfAgent(MujocoFfAgent):
    """Feedforward agent for vector observations and continuous actions of any range, e.g. Pendulum.

    Environments get actions clipped to their bounds, unless clip_actions is False, see `rlpyt.agents.pg.gaussian.GaussianPgAgent`. The
    recurrent counterpart is `rlpyt.agents.pg.mujoco.MujocoLstmAgent`.
    """

    ModelCls = MlpGaussianFfModel


class MlpLstmAgent(MlpMixin, RecurrentCategoricalPgAgent):
    """Recurrent agent for vector observations and discrete actions, e.g. CartPole without velocities."""

    ModelCls = MlpLstmModel


class AlternatingMlpLstmAgent(MlpMixin, AlternatingRecurrentCategoricalPgAgent):
    """MlpLstmAgent for alternating samplers."""

    ModelCls = MlpLstmModel
