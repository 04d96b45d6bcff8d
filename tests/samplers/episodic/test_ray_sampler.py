"""The sampler of episodes on a real Ray cluster: the same episodes as in this process, and what becomes of lost actors."""

import os
from functools import partial

import cloudpickle
import numpy as np
import pytest
import torch
from envs import CountingEnv, FailingEnv
from policies_for_tests import PATH, NoisyEnvironment, RandomPolicy, ScriptedPolicy, factory, grid, n_different
from ray_clusters import lose
from tiers import full, processes, ray

from rlpyt.agents.pg.mlp import MlpFfAgent
from rlpyt.envs.gym import make as gym_make
from rlpyt.samplers.episodic import (
    DefaultWorker,
    EnvUpdate,
    FragmentWorker,
    LocalSampler,
    NewEnvUpdate,
    RaySampler,
    VecWorker,
)
from rlpyt.samplers.workers import WorkerError
from rlpyt.utils.cluster import import_ray

SAMPLERS = LocalSampler, RaySampler
pytestmark = [ray, processes, pytest.mark.timeout(180)]


@pytest.fixture
def make(ray_address):
    """Makes samplers that are shut down afterwards."""
    made = []

    def make(*args, SamplerCls=RaySampler, **kwargs):
        made.append(SamplerCls(*args, **kwargs, **(dict(address=ray_address) if SamplerCls is RaySampler else {})))
        return made[-1]

    yield make
    for sampler in made:
        sampler.shutdown_worker()
        sampler.shutdown_worker()
    assert not import_ray().is_initialized()


def test_the_deterministic_grid(make):
    sampler = make(ScriptedPolicy(), grid(), max_episode_length=100, n_workers=2, seed=0)
    batch = sampler.obtain_exact_episodes(2, None)
    assert batch.lengths.tolist() == [len(PATH)] * 4 and batch.actions.tolist() == PATH * 4
    assert batch == LocalSampler(ScriptedPolicy(), grid(), max_episode_length=100, n_workers=2, seed=0).obtain_exact_episodes(2, None)
    assert sampler.total_env_steps == 4 * len(PATH)


@full
def test_copies_of_an_environment_have_random_numbers_of_their_own(make):
    kwargs = dict(worker_factory=factory(VecWorker, 2, n_envs=2))
    local, ray = (make(RandomPolicy(), NoisyEnvironment(), **kwargs, SamplerCls=Cls).obtain_exact_episodes(4, None) for Cls in SAMPLERS)
    assert local == ray and n_different(local) == local.n_episodes == 8


@full
@pytest.mark.parametrize("worker_class, args", [(DefaultWorker, {}), (VecWorker, dict(n_envs=3)), (FragmentWorker, dict(n_envs=2))])
def test_it_returns_what_a_local_sampler_does_also_after_updates(make, worker_class, args):
    batches = []
    for SamplerCls in SAMPLERS:
        torch.manual_seed(0)
        agent = MlpFfAgent(model_kwargs=dict(hidden_sizes=[8]))
        env = NewEnvUpdate(lambda: CountingEnv([3, 7, 1]))
        sampler = make(agent, env, worker_factory=factory(worker_class, 2, **args), SamplerCls=SamplerCls)
        some = [sampler.obtain_samples(0, 40, None)]
        for parameter in agent.parameters():
            parameter.data += 0.5
        some.append(sampler.obtain_samples(1, 40, agent.state_dict()))
        some.append(sampler.obtain_samples(2, 40, agent, NewEnvUpdate(lambda: CountingEnv([4, 2]))))
        batches.append(some)
    assert [local == other for local, other in zip(*batches)] == [True] * 3
    assert len({str(batch.agent_infos["dist_info"]["prob"][0]) for batch in batches[1]}) > 1


@full
def test_another_sampler_goes_on_from_where_one_was(make):
    agent, settings = MlpFfAgent(model_kwargs=dict(hidden_sizes=[8])), dict(max_episode_length=50, n_workers=2)
    first = make(agent, partial(gym_make, id="CartPole-v1"), seed=0, **settings)
    first.obtain_samples(0, 40, None)
    state = first.state_dict()
    expected = first.obtain_samples(1, 40, None)
    first.shutdown_worker()  # The cluster has room for two workers.
    for SamplerCls in (RaySampler, LocalSampler):
        other = make(agent, partial(gym_make, id="CartPole-v1"), seed=1, SamplerCls=SamplerCls, **settings)
        other.load_state_dict(state)
        assert other.obtain_samples(1, 40, None) == expected and other.total_env_steps == first.total_env_steps


@full
def test_an_update_for_all_workers_is_put_into_the_store_once(make, monkeypatch):
    sampler = make(ScriptedPolicy(), grid(), max_episode_length=100, n_workers=2)
    ray = import_ray()
    put, n_put = ray.put, []
    monkeypatch.setattr(ray, "put", lambda value: n_put.append(value) or put(value))
    update = ScriptedPolicy(default=1).get_param_values()
    sampler.obtain_exact_episodes(1, update)
    assert len(n_put) == 1
    sampler.obtain_exact_episodes(1, [update, ScriptedPolicy(table={}, default=2).get_param_values()])
    assert len(n_put) == 3


def failing(make, tmp_path, how, **kwargs):
    env = dict(episode_length=[5, 3], fail_at=7, how=how, spare_pid=os.getpid(), once=str(tmp_path / "failed"))
    return make(MlpFfAgent(), lambda: FailingEnv(**env), max_episode_length=100, n_workers=2, seed=1, **kwargs)


@full
def test_a_lost_actor_is_replaced_and_plays_its_share(make, tmp_path):
    sampler = failing(make, tmp_path, "sigkill")
    assert sampler.obtain_exact_episodes(4, None).n_episodes == 8 and sampler.n_restarts == 1
    assert sampler.obtain_samples(1, 50, None).lengths.sum() >= 50


class Scaled(EnvUpdate):
    """Multiplies the rewards of the environment that is there."""

    def __init__(self, factor):
        self.factor = factor

    def __call__(self, old_env=None):
        old_env.reward_scale *= self.factor
        return old_env


class Constant:
    """Does always the same."""

    def __init__(self, action):
        self.action = action

    def get_action(self, observation):
        return self.action, {}

    def get_actions(self, observations):
        return np.full(len(observations), self.action), {}

    def reset(self, do_resets=None):
        pass

    def set_param_values(self, params):
        self.action = params["action"]


@full
@pytest.mark.parametrize("worker_class, args", [(DefaultWorker, {}), (VecWorker, dict(n_envs=2))])
def test_an_actor_that_replaces_a_lost_one_has_the_policy_the_parameters_and_the_environments_of_that(make, worker_class, args):
    kwargs = dict(worker_class=worker_class, worker_args=args, max_episode_length=100, n_workers=2, seed=0)
    env = NewEnvUpdate(lambda: CountingEnv([3]))
    sampler = make(Constant(0), env, max_restarts=10, **kwargs)
    local = make(Constant(0), env, SamplerCls=LocalSampler, **kwargs)

    def assert_same(agent_update, env_update):
        expected, batch = (each.obtain_exact_episodes(2, agent_update, env_update) for each in (local, sampler))
        np.testing.assert_array_equal(batch.actions, expected.actions)
        np.testing.assert_array_equal(batch.rewards, expected.rewards)

    assert_same({"action": 1}, Scaled(2.0))
    assert_same({"action": 2}, Scaled(3.0))
    lose(sampler, 1)
    assert_same(None, None)
    lose(sampler, 1)
    assert_same({"action": 0}, Scaled(5.0))
    assert_same(Constant(1), NewEnvUpdate(lambda: CountingEnv([4])))
    assert_same(None, [Scaled(7.0), None])
    for rank in range(2):
        lose(sampler, rank)
    assert_same(None, None)
    assert sampler.n_restarts == 4


@full
def test_more_losses_than_may_be_replaced_are_an_error(make, tmp_path):
    sampler = failing(make, tmp_path, "sigkill", max_restarts=0)
    with pytest.raises(WorkerError, match=r"(?s)Worker \d of 2 of the RaySampler was lost while obtaining 8 episodes.*max_restarts=0"):
        sampler.obtain_exact_episodes(4, None)
    with pytest.raises(RuntimeError, match="make a new one"):
        sampler.obtain_exact_episodes(4, None)


@full
def test_more_workers_than_the_cluster_has_cpus_are_refused(make):
    with pytest.raises(ValueError, match="3 actors with num_cpus=1 need more than the 2 CPUs .*less n_workers"):
        make(ScriptedPolicy(), grid(), max_episode_length=100, n_workers=3)
    assert not import_ray().is_initialized()
    sampler = make(ScriptedPolicy(), grid(), max_episode_length=100, n_workers=3, actor_options=dict(num_cpus=0.5))
    assert sampler.obtain_exact_episodes(1, None).actions.tolist() == PATH * 3


@full
def test_what_an_environment_raises_is_what_you_see(make, tmp_path):
    sampler = failing(make, tmp_path, "raise")
    with pytest.raises(WorkerError, match="(?s)planned failure in step.*worker . of 2.*Traceback of the worker"):
        sampler.obtain_exact_episodes(4, None)


@full
def test_a_connection_of_ones_own_is_left_as_it_is(ray_address):
    ray = import_ray()
    ray.init(address=ray_address, logging_level="ERROR")
    try:
        sampler = RaySampler(ScriptedPolicy(), grid(), max_episode_length=100, n_workers=2)
        sampler.shutdown_worker()
        assert ray.is_initialized() and ray.get(ray.put(1)) == 1
    finally:
        ray.shutdown()


@full
def test_a_sampler_can_be_pickled(make):
    sampler = make(ScriptedPolicy(), grid(), max_episode_length=100, n_workers=1, seed=0)
    batch = sampler.obtain_exact_episodes(2, None)
    other = cloudpickle.loads(cloudpickle.dumps(sampler))
    try:
        assert other.total_env_steps == sampler.total_env_steps
        assert np.array_equal(other.obtain_exact_episodes(2, None).actions, batch.actions)
    finally:
        other.shutdown_worker()
