"""Agents whose every output can be predicted: importable as ``agents_for_tests`` here and in spawned processes."""

import torch

from rlpyt.agents.base import AgentStep, BaseAgent
from rlpyt.utils.collections import namedarraytuple

SeenInfo = namedarraytuple("SeenInfo", ["observation", "prev_action", "prev_reward"])


class RecordingAgent(BaseAgent):
    """Acts by arithmetic on its inputs, and records what it saw in agent_info.

    action = (step in the episode + 2 * prev_action + prev_reward + offset) mod n_actions, where `offset` is its only parameter.
    value = 10 * step in the episode + prev_reward.
    """

    def __init__(self, n_actions=3, fail_at=None):
        super().__init__(ModelCls=Offset)
        self.n_actions, self.fail_at, self.n_calls = n_actions, fail_at, 0
        self.resets = []

    def step(self, observation, prev_action, prev_reward):
        self.n_calls += 1
        if self.fail_at is not None and self.n_calls >= self.fail_at:
            raise ArithmeticError("planned failure of the agent")
        total = observation[..., 2] + 2 * prev_action + prev_reward + self.model.offset.detach()
        action = total.round().long() % self.n_actions
        return AgentStep(action=action, agent_info=SeenInfo(observation.clone(), prev_action.clone(), prev_reward.clone()))

    def value(self, observation, prev_action, prev_reward):
        return 10 * observation[..., 2] + prev_reward

    def reset_one(self, idx):
        self.resets.append(int(idx))


class Offset(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.offset = torch.nn.Parameter(torch.zeros(()))


class RandomAgent(BaseAgent):
    """Takes uniformly random discrete actions, without a network: for measuring what is not the network."""

    def __init__(self):
        super().__init__(ModelCls=Offset)

    def initialize(self, env_spaces, *args, **kwargs):
        super().initialize(env_spaces, *args, **kwargs)
        self.n_actions = env_spaces.action.n

    def step(self, observation, prev_action, prev_reward):
        return AgentStep(action=torch.randint(self.n_actions, prev_action.shape), agent_info=None)

    def value(self, observation, prev_action, prev_reward):
        return torch.zeros(prev_reward.shape)
