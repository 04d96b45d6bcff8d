"""Policy gradient agents for vector observations."""

import torch

from rlpyt.agents.mlp import MlpMixin
from rlpyt.agents.pg.categorical import AlternatingRecurrentCategoricalPgAgent, CategoricalPgAgent, RecurrentCategoricalPgAgent
from rlpyt.agents.pg.gaussian import GaussianPgAgent
from rlpyt.agents.pg.mujoco import MujocoMixin
from rlpyt.models.pg.mlp_ff_model import MlpFfModel, MlpGaussianFfModel
from rlpyt.models.pg.mlp_lstm_model import MlpLstmModel


class MlpFfAgent(MlpMixin, CategoricalPgAgent):
    """Feedforward agent for vector observations and discrete actions, e.g. CartPole."""

    def __init__(self, ModelCls: type[torch.nn.Module] = MlpFfModel, **kwargs):
        super().__init__(ModelCls=ModelCls, **kwargs)


class MlpGaussianFfAgent(MujocoMixin, GaussianPgAgent):
    """Feedforward agent for vector observations and continuous actions of any range, e.g. Pendulum.

    The environment gets actions clipped to its bounds, unless clip_actions is False (see `GaussianMixin`). Its recurrent counterpart is
    rlpyt.agents.pg.mujoco.MujocoLstmAgent.
    """

    def __init__(self, ModelCls: type[torch.nn.Module] = MlpGaussianFfModel, **kwargs):
        super().__init__(ModelCls=ModelCls, **kwargs)


class MlpLstmAgent(MlpMixin, RecurrentCategoricalPgAgent):
    """Recurrent agent for vector observations and discrete actions, e.g. CartPole without velocities."""

    def __init__(self, ModelCls: type[torch.nn.Module] = MlpLstmModel, **kwargs):
        super().__init__(ModelCls=ModelCls, **kwargs)


class AlternatingMlpLstmAgent(MlpMixin, AlternatingRecurrentCategoricalPgAgent):
    """MlpLstmAgent for alternating samplers."""

    def __init__(self, ModelCls: type[torch.nn.Module] = MlpLstmModel, **kwargs):
        super().__init__(ModelCls=ModelCls, **kwargs)
