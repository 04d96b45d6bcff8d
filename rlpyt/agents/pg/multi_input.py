"""Policy gradient agents for any observations, images and vectors together, and for any actions."""

from __future__ import annotations

from collections.abc import Sequence

from rlpyt.agents.base import AlternatingRecurrentAgentMixin, RecurrentAgentMixin
from rlpyt.agents.pg.composite import CompositePgAgent, RecurrentCompositePgAgentBase
from rlpyt.agents.pg.mujoco import MujocoMixin
from rlpyt.models.pg.multi_input_model import MultiInputFfModel, MultiInputLstmModel


class MultiInputMixin(MujocoMixin):
    """Gives the model the observation space, the distribution over actions, and observations for its running statistics."""

    model_arguments: Sequence[str] = ("observation_space", "distribution")


class MultiInputFfAgent(MultiInputMixin, CompositePgAgent):
    """Feedforward agent for observations of images, vectors and numbers, one or any number of each, and for any actions."""

    ModelCls = MultiInputFfModel


class MultiInputLstmAgent(MultiInputMixin, RecurrentAgentMixin, RecurrentCompositePgAgentBase):
    """Recurrent agent for such observations, and for any actions."""

    ModelCls = MultiInputLstmModel


class AlternatingMultiInputLstmAgent(MultiInputMixin, AlternatingRecurrentAgentMixin, RecurrentCompositePgAgentBase):
    """MultiInputLstmAgent for alternating samplers."""

    ModelCls = MultiInputLstmModel
