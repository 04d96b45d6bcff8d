"""What is in a batch, with environments that are reset as soon as their trajectory ends."""

import numpy as np
import pytest
from agents_for_tests import RecordingAgent
from collecting import along_time, collect, kinds
from envs import CountingEnv
from tiers import processes

from rlpyt.samplers.collections import TrajInfo
from rlpyt.samplers.parallel.cpu.collectors import CpuResetCollector, CpuWaitResetCollector
from rlpyt.samplers.serial.sampler import SerialSampler


@pytest.fixture(scope="module", params=kinds(["serial", "CPU, 2 workers", "GPU, 2 workers", "alternating, 4 workers"]))
def collected(request):
    return collect(request.param)


@pytest.fixture(scope="module")
def batches(collected):
    return collected.batches


def test_observations_follow_each_other_also_from_batch_to_batch(batches):
    observation = along_time(batches, lambda batch: batch.env.observation)
    next_observation = along_time(batches, lambda batch: batch.env.next_observation)
    np.testing.assert_array_equal(observation[1:], next_observation[:-1])
    np.testing.assert_array_equal(along_time(batches, lambda batch: batch.agent.agent_info.observation), observation)


def test_next_observation_is_the_reset_observation_after_a_trajectory_and_only_then(batches):
    step = along_time(batches, lambda batch: batch.env.observation[..., 2])
    next_step = along_time(batches, lambda batch: batch.env.next_observation[..., 2])
    traj_done = along_time(batches, lambda batch: batch.env.env_info.traj_done)
    np.testing.assert_array_equal(next_step[traj_done], 0)
    np.testing.assert_array_equal(next_step[~traj_done], step[~traj_done] + 1)
    assert (along_time(batches, lambda batch: batch.env.done) & ~traj_done).any(), "a life must have been lost in this test"


def test_the_agent_sees_nulls_after_done_and_what_is_stored_is_shifted(batches):
    done = along_time(batches, lambda batch: batch.env.done)[:-1]
    action = along_time(batches, lambda batch: batch.agent.action)
    reward = along_time(batches, lambda batch: batch.env.reward)
    seen_action = along_time(batches, lambda batch: batch.agent.agent_info.prev_action)
    seen_reward = along_time(batches, lambda batch: batch.agent.agent_info.prev_reward)
    np.testing.assert_array_equal(seen_action[1:], np.where(done, 0, action[:-1]))
    np.testing.assert_array_equal(seen_reward[1:], np.where(done, 0, reward[:-1]))
    for batch in batches:
        np.testing.assert_array_equal(batch.agent.prev_action[1:], batch.agent.action[:-1])
        np.testing.assert_array_equal(batch.env.prev_reward[1:], batch.env.reward[:-1])
        # Row 0 of a batch is written on its own, nulled already.
        np.testing.assert_array_equal(batch.agent.prev_action[0], batch.agent.agent_info.prev_action[0])
        np.testing.assert_array_equal(batch.env.prev_reward[0], batch.agent.agent_info.prev_reward[0])


def test_timeouts_are_told_apart_and_what_they_end_with_is_kept(batches):
    n_timeouts = 0
    for batch in batches:
        np.testing.assert_array_equal(batch.env.timeout, batch.env.env_info.timeout)
        assert batch.env.done[batch.env.timeout].all()
        for b in range(batch.env.done.shape[1]):
            for slot, t in enumerate(np.flatnonzero(batch.env.timeout[:, b])):
                final = batch.final_observation[slot, b]
                np.testing.assert_array_equal(final[:2], batch.env.observation[t, b, :2])
                assert final[2] == batch.env.observation[t, b, 2] + 1, "the observation after the last step"
                n_timeouts += 1
    assert n_timeouts > 5


def test_each_time_limit_of_a_batch_has_the_value_of_the_observation_that_it_ended_with():
    for batch in collect("serial", env=dict(episode_length=[2, 3], end="timeout"), T=9, decorrelation=0).batches:
        assert (batch.env.timeout.sum(axis=0) >= 3).all()
        expected = np.where(batch.env.timeout, 10 * (batch.env.observation[..., 2] + 1) + batch.env.reward, 0)
        np.testing.assert_array_equal(batch.agent.timeout_value, expected)


def test_values_of_final_observations_are_recorded_where_episodes_were_truncated(batches):
    for batch in batches:
        expected = np.where(batch.env.timeout, 10 * (batch.env.observation[..., 2] + 1) + batch.env.reward, 0)
        np.testing.assert_array_equal(batch.agent.timeout_value, expected)


def test_bootstrap_value_is_that_of_the_observation_after_the_batch(batches):
    for batch in batches:
        last = batch.env.next_observation[-1, :, 2]
        reward = np.where(batch.env.done[-1], 0, batch.env.reward[-1])
        np.testing.assert_array_equal(batch.agent.bootstrap_value[0], 10 * last + reward)


def test_traj_infos_sum_up_episodes(collected):
    lengths = {5, 3 + 7, 3, 7 + 5, 7}
    for info in (info for infos in collected.infos for info in infos):
        assert info.Length in lengths | {7 + 3, 3 + 5, 5 + 3, 5 + 7}
        assert info.Return == info.Length * (info.Length + 1) / 2 and info.NonzeroRewards == info.Length
        assert info.DiscountedReturn == pytest.approx(sum(0.5**i * (i + 1) for i in range(info.Length)))


def test_without_a_trajectory_signal_done_ends_the_trajectory():
    collected = collect("serial", env=dict(episode_length=4, end="terminated"), decorrelation=0)
    assert all(info.Length == 4 for infos in collected.infos for info in infos)
    assert sum(map(len, collected.infos)) == sum(batch.env.done.sum() for batch in collected.batches)


def test_decorrelation_takes_one_step_to_as_many_as_it_may():
    (batch,) = collect("serial", B=40, decorrelation=3, env=dict(episode_length=100), n_batches=1, evaluate_after=()).batches
    assert set(batch.env.observation[0, :, 2]) == {1, 2, 3}, "the step that each environment is at"


def test_no_decorrelation_starts_all_environments_at_their_beginning():
    batches = collect("serial", decorrelation=0, n_batches=1).batches
    np.testing.assert_array_equal(batches[0].env.observation[0, :, 2], 0)


@processes
def test_a_horizon_bounds_the_memory_for_final_observations():
    batches = collect("CPU, 2 workers", env=dict(episode_length=4, end="timeout"), T=9).batches
    assert batches[0].final_observation.shape[:2] == (9 // 4 + 1, 6)
    assert max(batch.env.timeout.sum(0).max() for batch in batches) == 3


# ---------------------------------------------------------------------------------------------------------------------
# What a TrajInfo is told
# ---------------------------------------------------------------------------------------------------------------------
class TotalAction(TrajInfo):
    """Overrides `step`, so that it must be called for every environment step."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.TotalAction = 0
        self.FirstStep = None
        self.FinalStep = None

    def step(self, observation, action, reward, done, agent_info, env_info):
        super().step(observation, action, reward, done, agent_info, env_info)
        self.TotalAction += int(action)
        self.FirstStep = float(observation[2]) if self.FirstStep is None else self.FirstStep

    def terminate(self, observation):
        self.FinalStep = float(observation[2])
        return super().terminate(observation)


@pytest.mark.parametrize("kind", kinds(["serial", "CPU, 2 workers", "GPU, 2 workers", "alternating, 4 workers"]))
def test_a_users_traj_info_is_told_about_every_step(kind):
    told, plain = collect(kind, TrajInfoCls=TotalAction, decorrelation=0), collect(kind, decorrelation=0)
    action = along_time(told.batches, lambda batch: batch.agent.action)
    ends = along_time(told.batches, lambda batch: batch.env.env_info.traj_done)
    expected = sorted(action[a + 1 : b + 1, col].sum() for col in range(6) for a, b in segments(ends[:, col]))
    infos, plain_infos = sum(told.infos, []), sum(plain.infos, [])
    assert sorted(info.TotalAction for info in infos) == expected
    assert [info.Return for info in infos] == [info.Return for info in plain_infos]
    assert [info.DiscountedReturn for info in infos] == pytest.approx([info.DiscountedReturn for info in plain_infos])
    assert all(info.FirstStep == 0 and info.FinalStep == info.Length for info in infos)


def segments(ends):
    """Pairs of (index before the first step, index of the last step) of complete episodes."""
    at = [-1, *np.flatnonzero(ends)]
    return zip(at, at[1:])


class MemoryTrajInfo(TrajInfo):
    """Keeps what it is told."""

    def __init__(self):
        super().__init__()
        self._told = []

    def step(self, observation, action, reward, done, agent_info, env_info):
        super().step(observation, action, reward, done, agent_info, env_info)
        self._told.append((observation, action, agent_info))


@pytest.mark.parametrize("kind", kinds(["serial", "GPU, 2 workers"]))
def test_what_a_traj_info_keeps_is_not_overwritten_by_later_batches(kind):
    infos = collect(kind, TrajInfoCls=MemoryTrajInfo, decorrelation=0, T=2).infos
    told = [info._told for batch in infos for info in batch]
    assert told and all([observation[2] for observation, _, _ in one] == list(range(len(one))) for one in told)
    assert all(agent_info.observation[2] == observation[2] for one in told for observation, _, agent_info in one)


# ---------------------------------------------------------------------------------------------------------------------
# What environments do to their inputs
# ---------------------------------------------------------------------------------------------------------------------
class GreedyHandsEnv(CountingEnv):
    """Changes the action it is given."""

    def step(self, action):
        step = super().step(action)
        action *= 0
        return step


class VectorAgent(RecordingAgent):
    """For continuous actions of shape [2]; never zero."""

    def step(self, observation, prev_action, prev_reward):
        step = super().step(observation, prev_action[..., 0], prev_reward)
        return step._replace(action=(step.action.float() + 1)[..., None].expand(*prev_action.shape).clone())


@pytest.mark.parametrize("wait_reset", [False, True])
@pytest.mark.parametrize("kind", kinds(["serial", "CPU, 2 workers", "GPU, 2 workers", "alternating, 4 workers"]))
def test_an_environment_that_changes_its_action_changes_nothing_that_is_stored_or_seen(kind, wait_reset):
    env = dict(n_actions=0, episode_length=50)
    collected = collect(kind, VectorAgent(), EnvCls=GreedyHandsEnv, env=env, decorrelation=0, wait_reset=wait_reset)
    for batch in collected.batches:
        assert (batch.agent.action > 0).all()
        np.testing.assert_array_equal(batch.agent.agent_info.prev_action[1:], batch.agent.action[:-1, :, 0])


def test_initializing_again_closes_the_environments_of_before():
    closed = []

    class Closing(CountingEnv):
        def close(self):
            closed.append(self)

    sampler = SerialSampler(EnvCls=Closing, env_kwargs={}, batch_T=4, batch_B=2)
    sampler.initialize(RecordingAgent(), seed=0)
    sampler.initialize(RecordingAgent(), seed=0)
    sampler.shutdown()
    assert len(closed) == 2 * (1 + 2)


def test_decorrelation_records_the_action_that_it_chose_not_what_an_environment_made_of_it():
    class Doubling(CountingEnv):
        def step(self, action):
            chosen.append(action.copy())
            action *= 2
            return super().step(action)

    chosen = []
    sampler = SerialSampler(Doubling, dict(n_actions=0, episode_length=50), batch_T=4, batch_B=1, max_decorrelation_steps=20)
    sampler.initialize(VectorAgent(), seed=0)
    assert len(chosen) > 2
    np.testing.assert_array_equal(sampler.agent_inputs.prev_action[0], chosen[-1])
    sampler.shutdown()


@pytest.mark.parametrize("wait_reset", [False, True])
@pytest.mark.parametrize("stopped_by", [KeyboardInterrupt, ZeroDivisionError])
def test_after_a_batch_that_was_cut_short_all_environments_begin_a_new_episode(stopped_by, wait_reset):
    """A notebook goes on with a sampler after Ctrl-C."""

    class Stopping(CountingEnv):
        n_left = 10

        def step(self, action):
            type(self).n_left -= 1
            if not self.n_left:
                raise stopped_by
            return super().step(action)

    CollectorCls = CpuWaitResetCollector if wait_reset else CpuResetCollector
    sampler = SerialSampler(Stopping, dict(episode_length=7), batch_T=4, batch_B=1, max_decorrelation_steps=0, CollectorCls=CollectorCls)
    sampler.initialize(RecordingAgent(), seed=0)
    Stopping.n_left = 7  # In the third step of the second batch.
    sampler.obtain_samples(0)
    with pytest.raises(stopped_by):
        sampler.obtain_samples(1)
    assert not sampler.take_restarted()
    batches, completed = [], []
    for itr in (1, 2):
        samples, infos = sampler.obtain_samples(itr)
        batches.append(samples.env.observation[:, 0, 2].tolist())
        completed += infos
        assert sampler.take_restarted() == [0] * (itr == 1)
    assert batches[0] == [0, 1, 2, 3] and batches[1][:3] == [4, 5, 6]
    assert [info.Length for info in completed] == [7]
    sampler.shutdown()


@pytest.mark.parametrize("wait_reset", [False, True])
@pytest.mark.parametrize("kind", kinds(["serial", "CPU, 2 workers", "GPU, 2 workers", "alternating, 4 workers"]))
def test_a_trajectory_that_ends_without_done_is_truncated(kind, wait_reset):
    """The next observation is of another episode, from which nothing may bootstrap, and of which the agent must not remember this one."""
    env = dict(episode_length=[3, 2])
    for batch in collect(kind, EnvCls=UndoneEnv, env=env, decorrelation=0, wait_reset=wait_reset).batches:
        steps, over = batch.env.observation[..., 2], batch.env.env_info.traj_done.astype(bool)
        assert over.any() and batch.env.done[over].all() and batch.env.timeout[over].all()
        assert not batch.env.done[~over].any() or wait_reset
        for b in range(over.shape[1]):
            ends = batch.final_observation[: over[:, b].sum(), b]
            np.testing.assert_array_equal(ends[:, 2], steps[over[:, b], b] + 1)
        if not wait_reset:
            np.testing.assert_array_equal(batch.agent.agent_info.prev_action[1:][over[:-1]], 0)


class UndoneEnv(CountingEnv):
    """Says that the trajectory is over, but not that it is done."""

    def step(self, action):
        return super().step(action)._replace(done=False)
