"""Evaluation: how many steps and episodes are played, that none is preferred, and that training does not notice."""

import threading
import time
import tracemalloc

import numpy as np
import pytest
import torch
from agents_for_tests import RecordingAgent
from collecting import KINDS, ONE_OF_EACH, assert_same, assert_signals_are_empty, collect, kinds, make_agent, make_sampler
from envs import CountingEnv, EnvFailure, FailingEnv, SlowEnv
from tiers import processes, thinned

from rlpyt.samplers.collectors import episodes_per_env
from rlpyt.spaces.int_box import IntBox


def evaluated(kind, **kwargs):
    """Return the lengths of the episodes of one evaluation, in increasing order."""
    return sorted(info.Length for info in collect(kind, n_batches=1, evaluate_after=(0,), **kwargs).evals[0])


@pytest.mark.parametrize("kind", kinds(ONE_OF_EACH, quick=["serial", "GPU, 2 workers"]))
def test_evaluation_stops_at_the_step_limit_and_counts_complete_episodes_only(kind):
    env = dict(episode_length=[11, 25], end="terminated")
    assert evaluated(kind, env=env, eval_max_steps=3 * 30) == [11, 11, 11]
    assert evaluated(kind, env=env, eval_max_steps=3 * 35) == [11, 11, 11]
    assert evaluated(kind, env=env, eval_max_steps=3 * 36) == [11, 11, 11, 25, 25, 25]
    assert evaluated(kind, env=env, eval_max_steps=3 * 10) == []


@pytest.mark.parametrize("kind", kinds(ONE_OF_EACH, quick=["serial", "CPU, 2 workers"]))
@pytest.mark.parametrize("n_trajectories", [1, 2, 3, 7])
def test_evaluation_plays_exactly_the_episodes_asked_for(kind, n_trajectories):
    env = dict(episode_length=[20, 2], end="terminated")  # Racing to the limit would prefer the short ones.
    lengths = evaluated(kind, env=env, eval_max_trajectories=n_trajectories, eval_max_steps=3 * 50)
    assert lengths == sorted([20, 2, 20][i // 3] for i in range(n_trajectories))


@pytest.mark.parametrize("kind", kinds(ONE_OF_EACH, quick=["serial", "GPU, 2 workers"]))
def test_evaluation_does_not_prefer_short_episodes(kind):
    """Twelve episodes of four environments are three of each, however long those of one of them take."""
    lengths = evaluated(kind, EnvCls=UnequalEnv, env={}, eval_n_envs=4, eval_max_trajectories=12, eval_max_steps=4 * 1000)
    assert len(lengths) == 12 and all(lengths.count(length) % 3 == 0 for length in lengths) and lengths[-1] > lengths[0]


class UnequalEnv(CountingEnv):
    """All episodes of one environment have the same length, which depends on its seed."""

    def seed(self, seed):
        super().seed(seed)
        self.episode_length = 2 + 7 * (seed % 13)
        self._begin()


@pytest.mark.parametrize("kind", kinds(ONE_OF_EACH, quick=["serial", "CPU, 2 workers"]))
def test_whichever_limit_is_reached_first_ends_the_evaluation(kind):
    env = dict(episode_length=[20, 2], end="terminated")  # Of the seven episodes the last one does not fit into 30 steps.
    assert evaluated(kind, env=env, eval_max_trajectories=7, eval_max_steps=3 * 30) == [2, 2, 2, 20, 20, 20]


@pytest.mark.parametrize("kind", kinds(ONE_OF_EACH, quick=["serial", "GPU, 2 workers"]))
def test_evaluation_ends_when_all_episodes_are_played(kind):
    """Using up the steps would take long."""
    env = dict(episode_length=[4, 9], seconds=0.001)
    assert evaluated(kind, EnvCls=SlowEnv, env=env, eval_max_trajectories=5, eval_max_steps=10**6) == [4, 4, 4, 9, 9]


@pytest.mark.parametrize("kind", kinds(ONE_OF_EACH, quick=["serial", "CPU, 2 workers"]))
def test_an_episode_that_loses_a_life_goes_on(kind):
    env = dict(episode_length=[3, 4], end=["life", "terminated"])
    assert evaluated(kind, env=env, eval_max_trajectories=5, eval_max_steps=3 * 50) == [7] * 5


@processes
@pytest.mark.parametrize(
    "kind, eval_n_envs",
    thinned(
        [
            *(("alternating, 2 workers", n) for n in (1, 2, 5)),
            *(("alternating, 4 workers", n) for n in (1, 2)),
            *(("CPU, 3 workers", 2), ("GPU, 3 workers", 5), ("GPU, 3 workers", 1), ("no overlap, 4 workers", 5)),
        ],
        quick=[("alternating, 2 workers", 1)],
    ),
)
def test_evaluation_environments_need_not_be_as_many_as_workers(kind, eval_n_envs):
    """Where there is one environment, one half of an alternating sampler has none."""
    settings = dict(agent="recurrent", eval_n_envs=eval_n_envs, eval_max_steps=eval_n_envs * 100, evaluate_after=(0, 1, 2))
    for limit in (None, 1, 7):
        ours, serial = (collect(k, eval_max_trajectories=limit, **settings) for k in (kind, "serial"))
        assert_same(ours, serial)
        assert all(ours.evals) and (limit is None or all(len(infos) == limit for infos in ours.evals))


@pytest.mark.parametrize("kind", kinds(ONE_OF_EACH, quick=["serial", "GPU, 2 workers"]))
def test_evaluation_environments_may_have_arguments_of_their_own(kind):
    assert evaluated(kind, eval_env_kwargs=dict(episode_length=6)) == [6] * 15


@pytest.mark.parametrize("wait_reset", [False, True])
@pytest.mark.parametrize("kind", kinds(ONE_OF_EACH, quick=["serial", "CPU, 2 workers"]))
def test_evaluation_does_not_disturb_training(kind, wait_reset):
    with_evaluation = collect(kind, wait_reset=wait_reset, evaluate_after=(0, 1, 2), eval_max_trajectories=5)
    without = collect(kind, wait_reset=wait_reset, evaluate_after=())
    assert_same(with_evaluation._replace(evals=[]), without)


@pytest.mark.parametrize("kind", kinds(ONE_OF_EACH, quick=["serial", "CPU, 2 workers"]))
def test_each_evaluation_starts_with_fresh_episodes(kind):
    """None is carried over from the evaluation before, in which the limit cut it short."""
    evals = collect(kind, env=dict(episode_length=20), eval_max_steps=3 * 30, evaluate_after=(0, 1, 2)).evals
    assert [[info.Length for info in infos] for infos in evals] == [[20] * 3] * 3


@pytest.mark.parametrize("kind", kinds(["serial", "GPU, 2 workers", "no overlap, 4 workers"], quick=["serial", "GPU, 2 workers"]))
def test_each_evaluation_starts_with_the_null_action_and_reward(kind):
    agent = FirstInputsAgent()
    collect(kind, agent=agent, EnvCls=NullActionEnv, env=dict(episode_length=20), eval_max_steps=3 * 30, evaluate_after=(0, 1, 2))
    assert len(agent.first) == 3 * (2 if KINDS[kind].alternating else 1)
    assert all((prev_action == 2).all() and not prev_reward.any() for prev_action, prev_reward in agent.first)
    assert any(prev_reward.any() for _, prev_reward in agent.last), "of evaluations that were cut short"


class NullActionEnv(CountingEnv):
    """Action 2 is what the agent is given as the previous one where there is none."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self._action_space = IntBox(0, 3, null_value=2)


class FirstInputsAgent(RecordingAgent):
    """Notes the previous actions and rewards that it is given first and last in each evaluation, for each group of environments."""

    def __init__(self):
        super().__init__()
        self.first, self.last, self.n_groups_left = [], [], 0

    def eval_mode(self, itr):
        super().eval_mode(itr)
        self.n_groups_left = 2 if self.alternating else 1

    def step(self, observation, prev_action, prev_reward):
        if self._mode == "eval":
            inputs = prev_action.clone(), prev_reward.clone()
            if self.n_groups_left:
                self.n_groups_left -= 1
                self.first.append(inputs)
            self.last = [*self.last[-1:], inputs]
        return super().step(observation, prev_action, prev_reward)


@pytest.mark.parametrize("kind", kinds(ONE_OF_EACH, quick=["serial", "GPU, 2 workers"]))
def test_the_agent_is_told_that_it_is_evaluated(kind):
    agent = ModesAgent()
    collect(kind, agent=agent, n_batches=2, evaluate_after=(0, 1))
    if KINDS[kind].acts_in_master or kind == "serial":
        assert agent.modes == [("sample", 0), ("eval", 0), ("sample", 1), ("eval", 1)]


class ModesAgent(RecordingAgent):
    """Notes the modes in which it was made to act."""

    def __init__(self):
        super().__init__()
        self.modes, self.itr = [], None

    def sample_mode(self, itr):
        super().sample_mode(itr)
        self.itr = itr

    def eval_mode(self, itr):
        super().eval_mode(itr)
        self.itr = itr

    def step(self, *inputs):
        if self._mode and self.modes[-1:] != [(self._mode, self.itr)]:
            self.modes.append((self._mode, self.itr))
        return super().step(*inputs)


# ---------------------------------------------------------------------------------------------------------------------
# Stopping
# ---------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("n_trajectories", [None, 10**6])
@pytest.mark.parametrize("kind", kinds([*ONE_OF_EACH, "alternating, 4 workers", "GPU, 3 workers"]))
def test_a_running_evaluation_can_be_stopped_and_training_goes_on(kind, n_trajectories):
    settings = dict(EnvCls=SlowEnv, env=dict(seconds=0.001, episode_length=7), T=6)
    sampler = make_sampler(kind, eval_max_steps=10**6, eval_max_trajectories=n_trajectories, **settings)
    sampler.initialize(make_agent("recurrent", kind), affinity=KINDS[kind].affinity, seed=3, bootstrap_value=True)
    sampler.obtain_samples(0)
    timer = threading.Timer(0.1, sampler.stop_evaluation)
    timer.start()
    infos = sampler.evaluate_agent(0)  # Would take long.
    assert all(info.Length == 7 for info in infos)
    assert_signals_are_empty(sampler)
    samples, _ = sampler.obtain_samples(1)
    assert_signals_are_empty(sampler)
    observation = samples.env.observation.numpy().copy()
    assert len(sampler.evaluate_agent(1)) == 0, "all later evaluations end at once"
    assert_signals_are_empty(sampler)
    sampler.shutdown()
    timer.join()
    undisturbed = collect("serial", agent="recurrent", n_batches=2, evaluate_after=(), **settings)
    np.testing.assert_array_equal(observation, undisturbed.batches[1].env.observation)


@pytest.mark.parametrize("kind", kinds(ONE_OF_EACH))
def test_an_evaluation_that_is_stopped_before_it_begins_is_over_at_once(kind):
    sampler = make_sampler(kind, EnvCls=SlowEnv, env=dict(seconds=0.001), eval_max_steps=10**6)
    sampler.stop_evaluation()  # Before `initialize` there is nothing to stop.
    sampler.initialize(make_agent("recording", kind), affinity=KINDS[kind].affinity, seed=3)
    sampler.stop_evaluation()
    begin = time.monotonic()
    assert sampler.evaluate_agent(0) == []
    assert time.monotonic() - begin < 100, "not a measure of speed: it would take long"
    sampler.obtain_samples(0)
    assert_signals_are_empty(sampler)
    sampler.shutdown()


# ---------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", kinds(["serial", "GPU, 2 workers"]))
def test_memory_does_not_grow_with_the_step_limit(kind):
    sampler = make_sampler(kind, eval_max_steps=10**7, eval_max_trajectories=3)
    sampler.initialize(make_agent("recording", kind), affinity=KINDS[kind].affinity, seed=3)
    tracemalloc.start()
    assert len(sampler.evaluate_agent(0)) == 3
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    sampler.shutdown()
    assert peak < 4 * 2**20


def test_episodes_are_shared_out_evenly():
    assert episodes_per_env(None, 3) is None
    assert episodes_per_env(7, 3) == [3, 2, 2] and episodes_per_env(2, 3) == [1, 1, 0] and episodes_per_env(6, 3) == [2, 2, 2]


class FirstOf(CountingEnv):
    """Its first observation of an episode has another dtype than the others."""

    def __init__(self, dtype="float32", **kwargs):
        super().__init__(**kwargs)
        self.dtype = dtype

    def reset(self):
        super().reset()
        return np.zeros(4, self.dtype)


@pytest.mark.parametrize("dtype", ["float64", "int64", "float16", "bool"])
@pytest.mark.parametrize("kind", kinds(ONE_OF_EACH, quick=["serial", "GPU, 2 workers"]))
def test_the_agent_is_evaluated_on_observations_of_the_dtype_that_it_is_trained_on(kind, dtype):
    agent = DtypeAgent()
    sampler = make_sampler(kind, EnvCls=FirstOf, env=dict(dtype=dtype), T=4, B=4, eval_n_envs=2, eval_max_steps=20, decorrelation=0)
    sampler.initialize(agent, affinity=KINDS[kind].affinity, seed=0)
    sampler.obtain_samples(0)
    assert len(sampler.evaluate_agent(0)) == 4
    sampler.shutdown()


class DtypeAgent(RecordingAgent):
    def step(self, observation, prev_action, prev_reward):
        assert observation.dtype == torch.float32
        return super().step(observation, prev_action, prev_reward)


def test_an_error_in_an_evaluation_names_the_environment_by_its_number_in_all_ranks():
    env = dict(fail_in="step", fail_at=3)
    sampler = make_sampler("serial", env={}, eval_EnvCls=FailingEnv, eval_env_kwargs=env, eval_n_envs=2, eval_max_steps=20)
    sampler.initialize(RecordingAgent(), seed=0, rank=1, world_size=2)
    with pytest.raises(EnvFailure) as info:
        sampler.evaluate_agent(0)
    assert "environment 2, step 2 of the evaluation" in "".join(info.value.__notes__)
    sampler.shutdown()
