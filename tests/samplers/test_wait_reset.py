"""With wait-reset, an environment whose episode has ended stands still for the rest of the batch and is reset between batches."""

import numpy as np
import pytest
from agents_for_tests import RecordingAgent
from collecting import ENV, along_time, collect, kinds
from envs import CountingEnv
from tiers import processes

from rlpyt.samplers.parallel.cpu.collectors import CpuResetCollector, CpuWaitResetCollector
from rlpyt.samplers.parallel.gpu.collectors import GpuResetCollector, GpuWaitResetCollector
from rlpyt.samplers.serial.sampler import SerialSampler
from rlpyt.utils.buffer import buffer_leaves
from rlpyt.utils.seed import env_seed

T, B, SEED = 6, 6, 3
TESTED = ["serial", "CPU, 2 workers", "GPU, 2 workers", "alternating, 4 workers", "no overlap, 2 workers"]


@pytest.fixture(scope="module", params=kinds(TESTED))
def collected(request):
    return collect(request.param, wait_reset=True, decorrelation=0, n_batches=8, seed=SEED, T=T, B=B)


@pytest.fixture(scope="module")
def batches(collected):
    return collected.batches


def standing_still(batch):
    """Where an environment was not stepped: in all rows after the first with done. [T,B]"""
    return np.concatenate([np.zeros((1, B), bool), np.logical_or.accumulate(batch.env.done)[:-1]])


def test_collectors_say_what_they_do():
    assert CpuResetCollector.mid_batch_reset and GpuResetCollector.mid_batch_reset
    assert not CpuWaitResetCollector.mid_batch_reset and not GpuWaitResetCollector.mid_batch_reset
    sampler = SerialSampler(EnvCls=CountingEnv, env_kwargs={}, batch_T=2, batch_B=2, CollectorCls=CpuWaitResetCollector)
    assert not sampler.mid_batch_reset


def test_a_batch_is_what_stepping_each_environment_by_hand_gives(batches):
    for b in range(B):
        env = CountingEnv(**ENV)
        env.seed(env_seed(SEED, "train_env", b))
        observation, prev_action, prev_reward = env.reset(), 0, 0
        for batch in batches:
            done = traj_done = False
            n_timeouts = 0
            env_rows, agent_rows = batch.env[:, b], batch.agent[:, b]
            np.testing.assert_array_equal(env_rows.observation[0], observation)
            for t in range(T):
                if done:
                    continue
                seen = agent_rows.agent_info[t]
                np.testing.assert_array_equal(env_rows.observation[t], observation)
                np.testing.assert_array_equal(seen.observation, observation)
                assert (seen.prev_action, seen.prev_reward) == (prev_action, prev_reward)
                observation, reward, done, env_info = env.step(agent_rows.action[t])
                assert (env_rows.reward[t], env_rows.done[t], env_rows.timeout[t]) == (reward, done, env_info.timeout)
                assert tuple(env_rows.env_info[t]) == tuple(env_info)
                prev_action, prev_reward = agent_rows.action[t], reward
                if env_info.timeout:
                    np.testing.assert_array_equal(batch.final_observation[n_timeouts, b], observation)
                    n_timeouts += 1
                    assert agent_rows.timeout_value[t] == 10 * observation[2] + reward
                if not done:
                    np.testing.assert_array_equal(env_rows.next_observation[t], observation)
                traj_done = env_info.traj_done
            if done:
                prev_action, prev_reward = 0, 0
                if traj_done:
                    observation = env.reset()
            else:
                assert agent_rows.bootstrap_value[0] == 10 * observation[2] + prev_reward


def test_wait_reset_starts_next_batch_with_reset_observation(batches):
    n_resets = 0
    for batch, next_batch in zip(batches, batches[1:]):
        ended = batch.env.env_info.traj_done.any(0)
        first = next_batch.env.observation[0]
        np.testing.assert_array_equal(first[ended, 2], 0)
        np.testing.assert_array_equal(first[ended, 1], batch.env.observation[0, ended, 1] + 1)
        n_resets += ended.sum()
    assert n_resets > B


def test_life_loss_without_game_over_keeps_its_observation(batches):
    n_lives = 0
    for batch, next_batch in zip(batches, batches[1:]):
        for b in np.flatnonzero(batch.env.done.any(0) & ~batch.env.env_info.traj_done.any(0)):
            t = np.argmax(batch.env.done[:, b])
            first = next_batch.env.observation[0, b]
            assert first[2] == batch.env.observation[t, b, 2] + 1 == batch.env.reward[t, b], "the step counter goes on"
            assert first[1] == batch.env.observation[t, b, 1] and first[3] not in batch.env.observation[: t + 1, b, 3]
            n_lives += 1
    assert n_lives > 3


def test_what_goes_on_over_the_end_of_a_batch_is_not_reset(batches):
    for batch, next_batch in zip(batches, batches[1:]):
        running = ~batch.env.done[-1]
        last, first = batch.env.next_observation[-1], next_batch.env.observation[0]
        np.testing.assert_array_equal(last[running], first[running])


def test_rows_after_done_are_blank(batches):
    n_blank = 0
    for batch in batches:
        blank = standing_still(batch)
        assert batch.env.done[blank].all() and not batch.env.timeout[blank].any()
        observation = batch.env.observation[blank], batch.env.next_observation[batch.env.done]
        env, agent = batch.env, batch.agent
        for leaf in (*observation, env.reward[blank], *buffer_leaves(env.env_info[blank]), agent.action[blank], agent.timeout_value[blank]):
            np.testing.assert_array_equal(leaf, np.zeros_like(leaf))
        for leaf in buffer_leaves(agent.agent_info[blank]):
            np.testing.assert_array_equal(leaf, np.zeros_like(leaf))
        n_blank += blank.sum()
    assert n_blank > 5 * B


@processes
def test_blank_rows_are_blank_in_every_batch_whatever_was_there_in_the_batch_before():
    env = dict(episode_length=[T, 1, T - 1, 2], end="terminated")
    for batch in collect("GPU, 2 workers", wait_reset=True, decorrelation=0, env=env, n_batches=6, T=T, B=B).batches:
        blank = standing_still(batch)
        assert not batch.env.observation[blank].any() and not batch.env.reward[blank].any() and not batch.agent.action[blank].any()


def test_the_agent_sees_nulls_at_the_start_of_the_batch_after_done(batches):
    for batch, next_batch in zip(batches, batches[1:]):
        done, seen = batch.env.done[-1], next_batch.agent.agent_info
        action, reward = np.where(done, 0, batch.agent.action[-1]), np.where(done, 0, batch.env.reward[-1])
        for stored in (seen.prev_action, next_batch.agent.prev_action):
            np.testing.assert_array_equal(stored[0], action)
        for stored in (seen.prev_reward, next_batch.env.prev_reward):
            np.testing.assert_array_equal(stored[0], reward)


def test_previous_actions_and_rewards_are_plainly_shifted_within_a_batch(batches):
    for batch in batches:
        np.testing.assert_array_equal(batch.agent.prev_action[1:], batch.agent.action[:-1])
        np.testing.assert_array_equal(batch.env.prev_reward[1:], batch.env.reward[:-1])


def test_traj_infos_are_complete_and_count_no_blank_step(collected):
    infos = sum(collected.infos, [])
    assert all(info.Return == info.Length * (info.Length + 1) / 2 and info.NonzeroRewards == info.Length for info in infos)
    n_ended = along_time(collected.batches, lambda batch: batch.env.env_info.traj_done).sum(0)
    lengths, ends = ENV["episode_length"], ENV["end"]
    expected = []
    for n in n_ended:  # Episodes are taken in turn, and a lost life joins one to the next.
        length, i = 0, 0
        while n:
            length += lengths[i % len(lengths)]
            if ends[i % len(ends)] != "life":
                expected, length, n = [*expected, length], 0, n - 1
            i += 1
    assert sorted(info.Length for info in infos) == sorted(expected) and len(infos) == n_ended.sum()


def test_traj_infos_come_in_the_order_in_which_episodes_ended(collected):
    for batch, infos in zip(collected.batches, collected.infos):
        assert [info.Length for info in infos] == [batch.env.reward[t, b] for t, b in np.argwhere(batch.env.env_info.traj_done)]


class ResetsEnv(CountingEnv):
    """Notes how often it was reset."""

    n_resets = 0

    def reset(self):
        self.n_resets += 1
        return super().reset()


def test_an_environment_is_reset_once_per_trajectory():
    envs = []

    def make():
        envs.append(ResetsEnv(episode_length=[2, 4], end="terminated"))
        return envs[-1]

    sampler = SerialSampler(EnvCls=make, env_kwargs={}, batch_T=5, batch_B=2, CollectorCls=CpuWaitResetCollector, max_decorrelation_steps=0)
    sampler.initialize(RecordingAgent(), seed=0)
    n_infos = sum(len(sampler.obtain_samples(itr)[1]) for itr in range(4))
    sampler.shutdown()
    assert n_infos == 2 * 4, "one trajectory of each environment per batch"
    assert [env.n_resets for env in envs[1:]] in ([4, 4], [5, 5]), "the last ones may be reset already, or be reset when needed"
