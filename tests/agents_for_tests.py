"""Agents whose every output can be predicted: importable as ``agents_for_tests`` here and in spawned processes."""

from contextlib import contextmanager

import torch

from rlpyt.agents.base import AgentStep, AlternatingRecurrentAgentMixin, BaseAgent, RecurrentAgentMixin
from rlpyt.utils.buffer import buffer_func, buffer_leaves, torchify_buffer
from rlpyt.utils.collections import namedarraytuple

SeenInfo = namedarraytuple("SeenInfo", ["observation", "prev_action", "prev_reward"])
BulkyInfo = namedarraytuple("BulkyInfo", ["observation", "prev_action", "prev_reward", "bulk"])
RnnSeenInfo = namedarraytuple("RnnSeenInfo", ["observation", "prev_action", "prev_reward", "ones", "prev_rnn_state"])


class Offset(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.offset = torch.nn.Parameter(torch.zeros(()))


class RecordingAgent(BaseAgent):
    """Acts by arithmetic on its inputs, and records what it saw in agent_info.

    action = (1 + step in the episode + 2 * prev_action + prev_reward + offset) mod n_actions, where `offset` is its only parameter.
    value = 10 * step in the episode + prev_reward.

    Args:
        n_actions: number of discrete actions.
        fail_at: which call of the method `fail_in` ("step", "value" or "reset_one") raises, from 1; the example outputs take one call of
            `step`. None: never.
    """

    def __init__(self, n_actions=3, fail_at=None, fail_in="step"):
        super().__init__(ModelCls=Offset)
        self.n_actions, self.fail_at, self.fail_in, self.n_calls = n_actions, fail_at, fail_in, 0
        self.resets = []
        self.columns = None  # Of all environments, those that the agent is asked about.

    def _count(self, method):
        self.n_calls += method == self.fail_in
        if method == self.fail_in and self.fail_at is not None and self.n_calls >= self.fail_at:
            raise ArithmeticError("planned failure of the agent")

    def step(self, observation, prev_action, prev_reward):
        self._count("step")
        total = 1 + observation[..., 2] + 2 * prev_action + prev_reward + self.model.offset.detach()
        action = total.round().long() % self.n_actions
        return AgentStep(action=action, agent_info=SeenInfo(observation.clone(), prev_action.clone(), prev_reward.clone()))

    def value(self, observation, prev_action, prev_reward):
        self._count("value")
        return 10 * observation[..., 2] + prev_reward

    def reset_one(self, idx):
        self._count("reset_one")
        self.resets.append(int(idx if self.columns is None else self.columns[idx]))

    @contextmanager
    def acting_for(self, columns, B):
        self.columns = columns
        with super().acting_for(columns, B):
            yield
        self.columns = None


class BulkyAgent(RecordingAgent):
    """A RecordingAgent whose agent_info takes long to write: `bulk` is 50,000 times the step in the episode."""

    def step(self, observation, prev_action, prev_reward):
        step = super().step(observation, prev_action, prev_reward)
        bulk = observation[..., 2, None].expand(*prev_reward.shape, 50_000).clone()
        return step._replace(agent_info=BulkyInfo(*step.agent_info, bulk))


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


# ---------------------------------------------------------------------------------------------------------------------
# Recurrent
# ---------------------------------------------------------------------------------------------------------------------
class RnnArithmetic(BaseAgent):
    """Acts by its recurrent state, to which everything it has seen since the last reset contributes.

    state [N=2,B,H=3]: h' = h / 2 + 1 + step in the episode + (n + 1) * prev_action + (k + 1) * prev_reward for layer n and unit k; float32,
    which is exact for 15 steps of a CountingEnv at least. Not zero after any step, so that none goes unnoticed.
    action = floor(h'[0, :, 0]) mod n_actions.
    value = 10 * step in the episode + prev_reward + h[0, :, 0].

    Its agent_info holds what it saw, ones, and the state before the step.
    """

    N, H = 2, 3

    def __init__(self, n_actions=3):
        super().__init__(ModelCls=Offset)
        self.n_actions = n_actions

    def _state(self, prev_reward):
        state = self.prev_rnn_state  # [N,B,H], or None
        return torch.zeros(self.N, prev_reward.numel(), self.H) if state is None else state

    def step(self, observation, prev_action, prev_reward):
        before = self._state(prev_reward)
        layer, unit = torch.arange(1, self.N + 1)[:, None, None], torch.arange(1, self.H + 1)[None, None, :]
        episode_step, action, reward = (x.reshape(1, -1, 1) for x in (observation[..., 2], prev_action, prev_reward))
        after = before / 2 + 1 + episode_step + layer * action + unit * reward
        self.advance_rnn_state(after)
        seen = observation.clone(), prev_action.clone(), prev_reward.clone()
        agent_info = RnnSeenInfo(*seen, torch.ones(prev_reward.shape), before.transpose(0, 1).contiguous())
        return AgentStep((after[0, :, 0].floor().long() % self.n_actions).reshape(prev_reward.shape), agent_info)

    def value(self, observation, prev_action, prev_reward):
        return 10 * observation[..., 2] + prev_reward + self._state(prev_reward)[0, :, 0]


class RnnAgent(RecurrentAgentMixin, RnnArithmetic):
    """For samplers that step all environments at once."""


class AlternatingRnnAgent(AlternatingRecurrentAgentMixin, RnnArithmetic):
    """For samplers that step two halves of the environments in turn."""


# ---------------------------------------------------------------------------------------------------------------------
# Composite spaces
# ---------------------------------------------------------------------------------------------------------------------
class StructuredAgent(BaseAgent):
    """Acts on composite spaces by integer arithmetic on everything it sees, and records that in agent_info.

    With n = the sum of what it sees, rounded down, number k of the action's arrays is (n + k) mod 2 if it is discrete, and
    ((n + k) mod 5 - 2) / 2, from -1 to 1, if it is continuous.
    """

    def __init__(self):
        super().__init__(ModelCls=Offset)

    def step(self, observation, prev_action, prev_reward):
        shape = prev_reward.shape
        parts = buffer_leaves((observation, prev_action, prev_reward))
        n = sum((4 * part.double()).floor().long().reshape((*shape, -1)).sum(-1) for part in parts)
        count = iter(range(100))

        def choose(leaf):
            k = next(count)
            chosen = ((n + k) % 5 - 2) / 2 if leaf.is_floating_point() else (n + k) % 2
            return chosen.to(leaf.dtype).reshape((*shape, *[1] * leaf.dim())).expand((*shape, *leaf.shape)).clone()

        action = same_type(torchify_buffer(self.env_spaces.action.null_value()), choose)
        seen = (buffer_func(part, torch.clone) for part in (observation, prev_action, prev_reward))
        return AgentStep(action=action, agent_info=SeenInfo(*seen))

    def value(self, observation, prev_action, prev_reward):
        return 2 * prev_reward


def same_type(structure, func):
    """Apply `func` to all arrays of a structure, keeping the types of its tuples."""
    if isinstance(structure, tuple):
        return structure._make(same_type(part, func) for part in tuple(structure))
    return func(structure)
