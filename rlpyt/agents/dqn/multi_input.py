"""Deep Q-learning agents for any observations, images and vectors together."""

from collections.abc import Sequence

from rlpyt.agents.dqn.catdqn_agent import CatDqnAgent
from rlpyt.agents.dqn.dqn_agent import DqnAgent
from rlpyt.agents.dqn.quantile_agents import IqnAgent, QrDqnAgent
from rlpyt.agents.dqn.r2d1_agent import R2d1Agent, R2d1AlternatingAgent
from rlpyt.agents.dqn.recurrent_quantile_agents import IqnR2d1Agent, IqnR2d1AlternatingAgent, QrR2d1Agent, QrR2d1AlternatingAgent
from rlpyt.models.dqn.multi_input_model import MultiInputCatDqnModel, MultiInputDqnModel, MultiInputIqnModel, MultiInputR2d1Model


class MultiInputMixin:
    """Gives the model the observation space and output_size, the number of actions."""

    model_arguments: Sequence[str] = ("observation_space", "output_size")


class MultiInputDqnAgent(MultiInputMixin, DqnAgent):
    """DQN agent for observations of images, vectors and numbers, one or any number of each."""

    ModelCls = MultiInputDqnModel


class MultiInputCatDqnAgent(MultiInputMixin, CatDqnAgent):
    """Categorical DQN agent for such observations."""

    ModelCls = MultiInputCatDqnModel


class MultiInputQrDqnAgent(MultiInputMixin, QrDqnAgent):
    """QR-DQN agent for such observations."""

    ModelCls = MultiInputDqnModel


class MultiInputIqnAgent(MultiInputMixin, IqnAgent):
    """IQN agent for such observations."""

    ModelCls = MultiInputIqnModel


class MultiInputR2d1Agent(MultiInputMixin, R2d1Agent):
    """Recurrent DQN agent for such observations."""

    ModelCls = MultiInputR2d1Model


class MultiInputR2d1AlternatingAgent(MultiInputMixin, R2d1AlternatingAgent):
    """MultiInputR2d1Agent for alternating samplers."""

    ModelCls = MultiInputR2d1Model


class MultiInputQrR2d1Agent(MultiInputMixin, QrR2d1Agent):
    """Recurrent QR-DQN agent for such observations."""

    ModelCls = MultiInputR2d1Model


class MultiInputQrR2d1AlternatingAgent(MultiInputMixin, QrR2d1AlternatingAgent):
    """MultiInputQrR2d1Agent for alternating samplers."""

    ModelCls = MultiInputR2d1Model


class MultiInputIqnR2d1Agent(MultiInputMixin, IqnR2d1Agent):
    """Recurrent IQN agent for such observations."""

    ModelCls = MultiInputR2d1Model


class MultiInputIqnR2d1AlternatingAgent(MultiInputMixin, IqnR2d1AlternatingAgent):
    """MultiInputIqnR2d1Agent for alternating samplers."""

    ModelCls = MultiInputR2d1Model
