"""Random batches as a sampler would hand them over, and a game that is learned in seconds."""

from __future__ import annotations

import numpy as np
import torch

from rlpyt.agents.base import BaseAgent
from rlpyt.agents.pg.base import AgentInfoRnn
from rlpyt.distributions.categorical import Categorical, DistInfo
from rlpyt.envs.base import EnvSpaces
from rlpyt.samplers.collections import AgentSamplesBsv, BatchSpec, EnvSamples, Samples
from rlpyt.spaces.float_box import FloatBox
from rlpyt.spaces.int_box import IntBox
from rlpyt.utils.buffer import numpify_buffer, torchify_buffer
from rlpyt.utils.tensor import infer_leading_dims

N_ACTIONS, OBSERVATION_SIZE = 3, 4
SPACES = EnvSpaces(FloatBox(-1, 1, shape=(OBSERVATION_SIZE,)), IntBox(0, N_ACTIONS))


def random_samples(agent, T, B, seed=0, p_done=0.2, timeouts=True, agent_info=None):
    """Batch [T,B] in which `agent` acted on random observations; no environment behind it."""
    rng = np.random.default_rng(seed)
    dtype = next(agent.parameters()).dtype

    def normal(*shape):
        return torch.from_numpy(rng.normal(size=shape)).to(dtype)

    done = torch.from_numpy(rng.random((T, B)) < p_done)
    timeout = done & torch.from_numpy(rng.random((T, B)) < 0.5) if timeouts else None
    all_observation, all_reward = normal(T + 1, B, OBSERVATION_SIZE), normal(T + 1, B)
    all_action = torch.from_numpy(rng.integers(0, N_ACTIONS, size=(T + 1, B)))
    if agent_info is None:
        step = agent.step(all_observation[:-1], all_action[:-1], all_reward[:-1])
        all_action[1:], agent_info = step.action, step.agent_info
    return Samples(
        AgentSamplesBsv(all_action[1:], all_action[:-1], agent_info, normal(1, B), normal(T, B) * timeout if timeouts else None),
        EnvSamples(all_observation[:-1], all_reward[1:], all_reward[:-1], done, None, timeout, all_observation[1:]),
        normal(T, B, OBSERVATION_SIZE) if timeouts else None,
    )


def start(algo, agent, T, B, n_itr=10, mid_batch_reset=True, examples=None):
    """Initialize agent and algorithm as sampler and runner do; float64, to compare with formulas."""
    torch.manual_seed(0)
    np.random.seed(0)
    agent.initialize(SPACES)
    in_float64(agent)
    algo.initialize(agent, n_itr, BatchSpec(T, B), mid_batch_reset=mid_batch_reset, examples=examples)
    agent.train_mode(0)
    return algo


def in_float64(agent):
    """Let the models of an agent compute in float64, from vectors or uint8 images, to compare with formulas."""
    for model in agent.named_models().values():
        model.to(torch.float64)
        if hasattr(model, "observation"):
            model.observation = DoubleVector()
        if hasattr(model, "conv"):  # It leaves images that are no longer uint8 as they are.
            model.conv.register_forward_pre_hook(lambda _, inputs: inputs[0].double() / 255)


class DoubleVector(torch.nn.Module):
    """In place of what makes float32 vectors of observations."""

    def forward(self, observation):
        lead_dim, T, B, _ = infer_leading_dims(observation, 1)
        return observation.double().reshape(T * B, -1), (lead_dim, T, B)


class PickTheLargest:
    """A game: the observation is random, the right action is the index of the largest of its first numbers.

    Each of B environments gives reward 1 for the right action and 0 otherwise; episodes end at random.
    """

    def __init__(self, B, seed=0):
        self.B, self.rng = B, np.random.default_rng(seed)
        self.observation, self.action, self.reward = self.observe(), np.zeros(B, np.int64), np.zeros(B, np.float32)

    def observe(self):
        return self.rng.uniform(-1, 1, size=(self.B, OBSERVATION_SIZE)).astype(np.float32)

    def sample(self, agent, itr, T, bootstrap_value=False):
        """Play T steps with `agent`, as a sampler does."""
        agent.sample_mode(itr)
        observations, actions, rewards = [self.observation], [self.action], [self.reward]
        infos, done = [], self.rng.random((T, self.B)) < 0.3
        for _ in range(T):
            inputs = torchify_buffer((observations[-1], actions[-1], rewards[-1]))
            action, info = numpify_buffer(tuple(agent.step(*inputs)))
            infos.append(info)
            right = observations[-1][:, :N_ACTIONS].argmax(axis=1)
            actions.append(action)
            rewards.append((action == right).astype(np.float32))
            observations.append(self.observe())
        inputs = torchify_buffer((observations[-1], actions[-1], rewards[-1]))
        value = agent.value(*inputs)[None] if bootstrap_value else None
        self.observation, self.action, self.reward = observations[-1], actions[-1], rewards[-1]
        observation, action, reward = (torch.from_numpy(np.stack(x)) for x in (observations, actions, rewards))
        agent_info = torchify_buffer(stack(infos))
        return Samples(
            AgentSamplesBsv(action[1:], action[:-1], agent_info, value),
            EnvSamples(observation[:-1], reward[1:], reward[:-1], torch.from_numpy(done), None),
        )

    def examples(self):
        return dict(observation=self.observation[0], action=self.action[0], reward=self.reward[0], done=np.bool_(False))


def stack(parts):
    """Stack structures of arrays along a new first dimension."""
    if isinstance(parts[0], tuple):
        return parts[0]._make(stack([tuple(part)[i] for part in parts]) for i in range(len(parts[0])))
    return np.stack(parts)


class GruModel(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = torch.nn.GRU(OBSERVATION_SIZE, 5)
        self.pi, self.value = torch.nn.Linear(5, N_ACTIONS), torch.nn.Linear(5, 1)

    def forward(self, observation, init_rnn_state):
        hidden, last = self.gru(observation, init_rnn_state)
        return torch.softmax(self.pi(hidden), -1), self.value(hidden).squeeze(-1), last


class GruAgent(BaseAgent):
    """A recurrent agent with as little around it as an algorithm needs."""

    recurrent = True

    def __init__(self):
        super().__init__(ModelCls=GruModel)

    def initialize(self, *args, **kwargs):
        super().initialize(*args, **kwargs)
        self.distribution = Categorical(N_ACTIONS)

    def __call__(self, observation, prev_action, prev_reward, init_rnn_state):
        prob, value, last = self.model(observation, init_rnn_state)
        return DistInfo(prob), value, last

    @torch.no_grad()
    def info(self, observation, init_rnn_state):
        """agent_info [T,B,...] of acting on observations [T,B,...] from a state [B,N,H]; only row 0 of the states is right."""
        prob, value, _ = self.model(observation, init_rnn_state.transpose(0, 1).contiguous())
        return AgentInfoRnn(DistInfo(prob), value, init_rnn_state.expand(len(observation), *init_rnn_state.shape))
