"""Policy gradient algorithms train on whole episodes."""

import warnings
from collections import namedtuple

import numpy as np
import pytest
import torch
from collecting import ENV
from envs import CountingEnv
from played import SPEC, Play
from tiers import full, learning

from rlpyt.agents.pg.mlp import MlpFfAgent
from rlpyt.algos.pg.a2c import A2C
from rlpyt.algos.pg.ppo import PPO
from rlpyt.envs.base import Env, EnvStep
from rlpyt.episodes import EpisodeAssembler, EpisodeBatch
from rlpyt.samplers.collections import BatchSpec
from rlpyt.samplers.serial.sampler import SerialSampler
from rlpyt.spaces.float_box import FloatBox
from rlpyt.spaces.int_box import IntBox
from rlpyt.utils.buffer import buffer_leaves
from rlpyt.utils.misc import torch_threads

ArgmaxInfo = namedtuple("ArgmaxInfo", ["timeout"])


class ArgmaxEnv(Env):
    """The right action is the index of the largest of three random numbers; episodes have 2 to 6 steps, every other is truncated."""

    def __init__(self):
        self._observation_space, self._action_space = FloatBox(-1, 1, (3,)), IntBox(0, 3)
        self.rng, self.n_episodes = np.random.default_rng(0), 0

    def seed(self, seed):
        self.rng = np.random.default_rng(seed)

    @property
    def horizon(self):
        return None

    def reset(self):
        self.t, self.length, self.n_episodes = 0, self.rng.integers(2, 7), self.n_episodes + 1
        return self._observe()

    def _observe(self):
        self.observation = self.rng.uniform(-1, 1, 3).astype(np.float32)
        return self.observation.copy()

    def step(self, action):
        self.t += 1
        reward = float(action == self.observation.argmax())
        done = self.t >= self.length
        return EnvStep(self._observe(), reward, done, ArgmaxInfo(timeout=done and self.n_episodes % 2 == 0))


def make_agent():
    return MlpFfAgent(model_kwargs=dict(hidden_sizes=[16]))


@learning
@full
@pytest.mark.parametrize("Algo", [A2C, PPO])
def test_it_learns_a_game_from_whole_episodes(Algo):
    torch.manual_seed(0)
    np.random.seed(0)
    T, B, n_itr = 8, 8, 300 if Algo is A2C else 60
    sampler = SerialSampler(ArgmaxEnv, {}, T, B, max_decorrelation_steps=0, keep_terminal_observations=True)
    agent, assembler = make_agent(), EpisodeAssembler(None, B, first=True)
    sampler.initialize(agent, seed=0, bootstrap_value=True)
    algo = Algo(discount=0.5, learning_rate=0.01, gae_lambda=0.9)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # The number of steps differs from batch to batch.
        algo.initialize(agent, n_itr, BatchSpec(T, B), mid_batch_reset=False)
    returns, lengths = [], []
    with torch_threads(1):  # Batches are small.
        for itr in range(n_itr):
            agent.sample_mode(itr)
            episodes = assembler.push(sampler.obtain_samples(itr)[0])
            agent.train_mode(itr)
            algo.optimize_agent(itr, episodes.to_samples(value=agent.value)[0])
            returns.append(episodes.rewards.sum())
            lengths.append(len(episodes))
    sampler.shutdown()
    tenth = n_itr // 10
    before, after = (sum(returns[part]) / sum(lengths[part]) for part in (slice(tenth), slice(-tenth, None)))
    assert before < 0.55 and after > 0.8, "of the actions are right"


def play_with_network(wait_reset=True, env=ENV, T=20, B=4):
    torch.manual_seed(1)
    agent = make_agent()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        play = Play(T, B, make_env=CountingEnv, env=env, wait_reset=wait_reset, agent=agent, seed=None)
    return play, agent


def initialized(algo, agent, T, B):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        algo.initialize(agent, 10, BatchSpec(T, B), mid_batch_reset=False)
    return algo


@pytest.mark.parametrize("gae_lambda", [1, 0.9])
@pytest.mark.parametrize("end", ["terminated", "timeout", ["timeout", "terminated"]])
def test_returns_and_advantages_are_those_of_the_batch_itself(end, gae_lambda):
    """A batch of a sampler that waits with resets, one episode in each column, says the same as itself by way of episodes."""
    play, agent = play_with_network(env=dict(episode_length=[7, 12, 3], end=end))
    algo = initialized(A2C(gae_lambda=gae_lambda, discount=0.9), agent, 20, 4)
    for _ in range(3):
        samples, _ = play.batch()
        assert samples.env.done.any(dim=0).all()
        ours, valid = EpisodeBatch.from_samples(samples, SPEC, mid_batch_reset=False).to_samples(value=agent.value)
        T = len(valid)
        agent.train_mode(0)
        expected, got = algo.process_returns(samples), algo.process_returns(ours)
        agent.sample_mode(0)
        assert torch.equal(got[2], valid) and torch.equal(expected[2][:T], valid) and not expected[2][T:].any()
        for x, y in zip(expected[:2], got[:2]):
            torch.testing.assert_close(x[:T] * valid, y * valid)


def test_gradients_are_those_of_the_batch_itself():
    play, agent = play_with_network(env=dict(episode_length=[7, 12, 3], end=["timeout", "terminated"]))
    samples, _ = play.batch()
    ours, _ = EpisodeBatch.from_samples(samples, SPEC, mid_batch_reset=False).to_samples(value=agent.value)
    algo = initialized(A2C(discount=0.9), agent, 20, 4)
    agent.train_mode(0)
    gradients = []
    for batch in (samples, ours):
        algo.optimizer.zero_grad()
        algo.loss(batch)[0].backward()
        gradients.append([p.grad.clone() for p in agent.parameters()])
    for x, y in zip(*gradients):
        torch.testing.assert_close(x, y)
        assert x.any()


def test_padding_is_never_trained_on():
    """Whatever is written into rows that are no steps, the loss is the same."""
    play, agent = play_with_network(wait_reset=False, T=40)
    samples, valid = EpisodeBatch.from_samples(play.batch()[0], SPEC, partial="drop").to_samples(value=agent.value)
    algo = initialized(A2C(discount=0.9), agent, *valid.shape)
    agent.train_mode(0)
    before = algo.loss(samples)[0].item()
    for leaf in buffer_leaves((samples.env.observation, samples.agent.agent_info, samples.agent.action)):
        leaf[valid == 0] = 1
    assert algo.loss(samples)[0].item() == pytest.approx(before) and not valid.all()
