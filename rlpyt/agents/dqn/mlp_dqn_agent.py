"""DQN agent for vector observations."""

import torch

from rlpyt.agents.dqn.dqn_agent import DqnAgent
from rlpyt.agents.mlp import MlpMixin
from rlpyt.models.dqn.mlp_dqn_model import MlpDqnModel


class MlpDqnAgent(MlpMixin, DqnAgent):
    """DQN agent for vector observations, e.g. CartPole."""

    def __init__(self, ModelCls: type[torch.nn.Module] = MlpDqnModel, **kwargs):
        super().__init__(ModelCls=ModelCls, **kwargs)
