"""Samplers of whole episodes: all return the same, in whichever way they are made, and nothing is left behind."""

import math
import os
import pickle
import random
import signal
import subprocess
import sys
import threading
import time
import warnings
from functools import partial
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch
from agents_for_tests import RandomAgent, RecordingAgent
from envs import CountingEnv, FailingEnv, SlowEnv
from leftovers import living_children
from policies_for_tests import (
    PATH,
    NoisyEnvironment,
    PictureEnv,
    RandomLengthEnv,
    RandomPolicy,
    RememberingPolicy,
    ScriptedPolicy,
    TellingGym,
    factory,
    grid,
    n_different,
    noisy_envs,
)
from tiers import full, processes, start_methods, thinned

from rlpyt.agents.pg.mlp import MlpFfAgent
from rlpyt.envs.multitask import TaskNameWrapper
from rlpyt.envs.point_env import PointEnv
from rlpyt.episodes.batch import EpisodeBatch
from rlpyt.samplers.episodic import (
    DefaultWorker,
    ExistingEnvUpdate,
    FragmentWorker,
    LocalSampler,
    MultiprocessingSampler,
    NewEnvUpdate,
    SetTaskUpdate,
    VecWorker,
    WorkerFactory,
    multiprocessing,
)
from rlpyt.samplers.workers import WorkerError
from rlpyt.utils.seed import set_seed

SAMPLERS = [LocalSampler, MultiprocessingSampler]
every_sampler = pytest.mark.parametrize("SamplerCls", SAMPLERS)
pytestmark = [processes, pytest.mark.timeout(120), pytest.mark.usefixtures("nothing_is_left_behind")]


@pytest.fixture
def make():
    """Makes samplers that are shut down afterwards."""
    made = []

    def make(SamplerCls, *args, **kwargs):
        made.append(SamplerCls(*args, **kwargs))
        return made[-1]

    yield make
    while made:
        made.pop().shutdown_worker()


# ---------------------------------------------------------------------------------------------------------------------
# The same from all
# ---------------------------------------------------------------------------------------------------------------------
@every_sampler
def test_the_deterministic_grid(make, SamplerCls):
    sampler = make(SamplerCls, ScriptedPolicy(), grid(), max_episode_length=100, n_workers=2, seed=0)
    batch = sampler.obtain_exact_episodes(3, None)
    assert batch.lengths.tolist() == [6] * 6 and batch.actions.tolist() == PATH * 6
    assert batch.last_observations.tolist() == [15] * 6 and batch.terminals.sum() == 6
    more = sampler.obtain_samples(0, 13, ScriptedPolicy().get_param_values())
    assert more.lengths.tolist() == [6] * 3 and sampler.total_env_steps == 54, "7 steps of one worker, 6 of the other"


AGENTS = {
    "policy": lambda: RandomPolicy(3),
    "agent": lambda: RandomAgent(),
    "network": lambda: MlpFfAgent(model_kwargs=dict(hidden_sizes=[8])),
}


@pytest.mark.parametrize("n_steps", [20, 1000])
def test_all_samplers_return_the_same_text(make, n_steps, monkeypatch):
    """Also with batches that are large enough for shared memory, which cannot hold it."""
    monkeypatch.setattr(multiprocessing, "PICKLED_BYTES", 5000)  # A step takes about 33 bytes.
    env = partial(TellingGym, "dict")
    made = [make(SamplerCls, RandomPolicy(3), env, max_episode_length=9, n_workers=2, seed=0) for SamplerCls in SAMPLERS]
    local, other = (sampler.obtain_samples(0, n_steps, None) for sampler in made)
    assert local == other and {*local.observations["words"].tolist()} == {"x" * n for n in range(1, 5)}


@pytest.mark.parametrize("name", thinned(AGENTS, quick=list(AGENTS)[:2]))
@pytest.mark.parametrize("worker_class,args", [(DefaultWorker, {}), (VecWorker, dict(n_envs=3)), (FragmentWorker, dict(n_envs=2))])
def test_all_samplers_return_the_same(make, name, worker_class, args):
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    batches = []
    for SamplerCls in SAMPLERS:
        torch.manual_seed(0)
        agent = AGENTS[name]()
        sampler = make(SamplerCls, agent, NewEnvUpdate(lambda: CountingEnv([3, 7, 1])), worker_factory=factory(worker_class, 2, **args))
        some = [sampler.obtain_samples(itr, 40, None) for itr in range(2)]
        if worker_class is not FragmentWorker:
            some.append(sampler.obtain_exact_episodes(4, None))
            assert some[-1].n_episodes == 8
        batches.append(some)
    for local, other in zip(*batches):
        assert local == other and local.lengths.sum() >= 40 - (local is batches[0][-1]) * 40
    torch.manual_seed(0)
    AGENTS[name]()
    assert random.getstate() == states[0] and str(np.random.get_state()) == str(states[1])


@pytest.mark.parametrize("start_method", start_methods("fork", "spawn"))
def test_large_episodes_come_through_shared_memory(make, start_method):
    args = RandomPolicy(), PictureEnv(episode_length=[4, 9])
    kwargs = dict(worker_factory=factory(VecWorker, 2, n_envs=2))
    expected = make(LocalSampler, *args, **kwargs).obtain_samples(0, 30, None)
    sampler = make(MultiprocessingSampler, *args, **kwargs, start_method=start_method)
    batch = sampler.obtain_samples(0, 30, None)
    assert batch == expected and batch.observations.nbytes > 2e6 and batch.observations.flags.writeable
    again = sampler.obtain_samples(1, 30, None)
    assert batch == expected, "a batch is not overwritten by the next one"
    assert again != expected
    view, keys = batch.observations[3:], set(sampler._memories.maps)
    del batch
    sampler.obtain_samples(2, 30, None)
    assert np.array_equal(view, expected.observations[3:]), "nor while a part of it is held"
    del view, again
    for itr in range(5):
        sampler.obtain_samples(itr, 30, None)
    assert keys & set(sampler._memories.maps) and len(sampler._memories.maps) <= 3, "but when nobody does"


@pytest.mark.parametrize("name", thinned(noisy_envs(), quick=["environment", "gym"]))
@pytest.mark.parametrize("worker_class, args", [pytest.param(DefaultWorker, {}, marks=full), (VecWorker, dict(n_envs=2))])
def test_copies_of_an_environment_have_random_numbers_of_their_own(make, name, worker_class, args):
    def play(SamplerCls, seed=3):
        sampler = make(SamplerCls, RandomPolicy(), noisy_envs()[name], worker_factory=factory(worker_class, 2, seed=seed, **args))
        return sampler.obtain_exact_episodes(4, None)

    local = play(LocalSampler)
    assert n_different(local) == local.n_episodes == 8
    assert play(LocalSampler) == local == play(MultiprocessingSampler) != play(LocalSampler, seed=4)


@pytest.mark.parametrize(
    "worker_class, args, unbiased",
    [(FragmentWorker, dict(n_envs=2, timesteps_per_call=2), True), pytest.param(VecWorker, dict(n_envs=2), False, marks=full)],
)
def test_a_policy_remembers_the_episodes_of_its_worker_only(make, worker_class, args, unbiased):
    batches, policies = [], []
    for SamplerCls in SAMPLERS:
        policies.append(RememberingPolicy())
        kwargs = dict(worker_factory=factory(worker_class, 2, **args), unbiased=unbiased)
        envs = [[lambda: CountingEnv([5, 7, 11]), lambda: CountingEnv([3, 8])]] * 2
        sampler = make(SamplerCls, policies[-1], envs, **kwargs)
        one, different = {"value": torch.tensor(0.3)}, [{"value": torch.tensor(x)} for x in (2.0, 3.0)]
        updates = (None, None, one, None, different, None, RememberingPolicy(), None)
        batches.append([sampler.obtain_samples(itr, 16, update) for itr, update in enumerate(updates)])
    assert batches[0] == batches[1]
    if worker_class is FragmentWorker:  # Whose episodes are not dropped with an update.
        for batch in batches[0][:6]:
            assert batch.agent_infos["n_steps"].tolist() == batch.env_infos["t"].tolist()


def test_parameters_are_the_same_in_all_copies_of_a_policy_in_this_process(make):
    policy = RememberingPolicy()
    sampler = make(LocalSampler, policy, lambda: CountingEnv([5, 7]), worker_factory=factory(FragmentWorker, 3, n_envs=2))
    agents = [worker.agent for worker in sampler._workers]
    assert len({id(agent) for agent in [policy, *agents]}) == 4 and all(agent.value is policy.value for agent in agents)
    sampler.obtain_samples(0, 12, {"value": torch.tensor(5.0)})
    assert policy.value == 5 and not policy.seen.any() and all(agent.seen.any() for agent in agents)
    sampler.obtain_samples(0, 12, [{"value": torch.tensor(x)} for x in (1.0, 2.0, 3.0)])
    assert [worker.agent.value.item() for worker in sampler._workers] == [1, 2, 3]
    for kwargs in (dict(n_workers=1, worker_class=FragmentWorker), dict(n_workers=2, worker_class=VecWorker)):
        sampler = make(LocalSampler, policy, lambda: CountingEnv([5, 7]), max_episode_length=9, **kwargs)
        assert all(worker.agent is policy for worker in sampler._workers), "nothing is remembered from call to call"
    policy.seen = policy.seen * policy.value  # With a gradient, which torch does not copy.
    with pytest.warns(UserWarning, match="RememberingPolicy cannot be copied .*, so all workers share it"):
        sampler = make(LocalSampler, policy, lambda: CountingEnv([5, 7]), worker_factory=factory(FragmentWorker, 2, n_envs=2))


def test_one_is_warned_of_policies_whose_copies_draw_the_same_random_numbers(make):
    policy = RandomPolicy()
    policy.mine = np.random.default_rng(0)
    with pytest.warns(UserWarning, match="RandomPolicy holds a random generator, so its copies in all 2 workers draw the same"):
        sampler = make(MultiprocessingSampler, policy, grid(), max_episode_length=9, n_workers=2)
    with pytest.warns(UserWarning, match="RandomPolicy holds a random generator"):
        sampler.obtain_samples(0, 1, policy)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make(LocalSampler, policy, grid(), max_episode_length=9, n_workers=2)
        make(MultiprocessingSampler, policy, grid(), max_episode_length=9, n_workers=1)
        make(MultiprocessingSampler, [policy, RandomPolicy()], grid(), max_episode_length=9, n_workers=2)


def test_one_is_warned_of_copies_that_cannot_have_random_numbers_of_their_own(make):
    class Kept(NoisyEnvironment):
        def __init__(self):
            super().__init__()
            mine = random.Random(0)
            self.observe = lambda: np.array([mine.random()])

    class Seeded(Kept):
        def seed(self, seed):
            super().seed(seed)
            self.observe = lambda: np.random.default_rng(seed).uniform(size=1)

    with pytest.warns(UserWarning, match=r"Copies of this Kept may all draw the same .* the generator in .*lambda.* Define Kept.seed"):
        make(LocalSampler, RandomPolicy(), Kept(), max_episode_length=9, n_workers=2)
    sampler = make(LocalSampler, RandomPolicy(), grid(), max_episode_length=9, n_workers=2)
    with pytest.warns(UserWarning, match="Kept"):
        sampler.obtain_samples(0, 1, None, env_update=Kept())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for envs, n_workers in ((Kept(), 1), (Kept, 2), (Seeded(), 2), (NoisyEnvironment(), 2), (grid(), 2)):
            make(LocalSampler, RandomPolicy(), envs, max_episode_length=9, n_workers=n_workers)


def test_strings_in_infos(make):
    names = [lambda name=name: TaskNameWrapper(PointEnv(max_episode_length=3), task_name=name, task_id=0) for name in ("a", "longer")]

    class Still(RandomPolicy):
        def get_action(self, observation):
            return np.zeros(2, np.float32), {}

    samplers = [make(SamplerCls, Still(), names, max_episode_length=9, n_workers=2) for SamplerCls in SAMPLERS]
    batches = [sampler.obtain_exact_episodes(1, None) for sampler in samplers]
    for batch in batches:
        assert batch.env_infos["task_name"].tolist() == ["a"] * 3 + ["longer"] * 3
    assert batches[0] == batches[1]


# ---------------------------------------------------------------------------------------------------------------------
# Making, updating, ending
# ---------------------------------------------------------------------------------------------------------------------
@every_sampler
def test_all_ways_to_make_one(make, SamplerCls):
    made, agent, env = factory(DefaultWorker), ScriptedPolicy(), grid()
    samplers = [
        make(SamplerCls, made, agent, env),
        make(SamplerCls, agent, env, worker_factory=made),
        make(SamplerCls, worker_factory=made, agents=agent, envs=env),
        make(SamplerCls.from_worker_factory, made, agent, env),
        make(SamplerCls, [agent], [grid], max_episode_length=math.inf, n_workers=1, seed=3),
    ]
    assert len({str(sampler.obtain_samples(0, 1, None).observations) for sampler in samplers}) == 1
    samplers[0].start_worker()


def test_what_a_sampler_refuses():
    with pytest.raises(TypeError, match="Must construct a sampler from"):
        LocalSampler(ScriptedPolicy(), grid())
    with pytest.raises(TypeError, match="needs envs"):
        LocalSampler(ScriptedPolicy(), max_episode_length=5)
    with pytest.raises(TypeError, match="two values for agents"):
        LocalSampler(ScriptedPolicy(), grid(), agents=ScriptedPolicy(), max_episode_length=5)
    with pytest.raises(TypeError, match="LocalSampler got a worker_factory, so max_episode_length, n_workers, worker_class"):
        LocalSampler(factory(DefaultWorker), ScriptedPolicy(), grid(), n_workers=4, max_episode_length=3, worker_class=VecWorker)
    for given in (dict(seed=3), dict(seed=None), dict(worker_args={})):
        with pytest.raises(TypeError, match=f"so {next(iter(given))} must be given to the WorkerFactory"):
            LocalSampler(ScriptedPolicy(), grid(), worker_factory=factory(DefaultWorker), **given)
    with pytest.raises(TypeError, match="environment"):
        MultiprocessingSampler(ScriptedPolicy(), "grid", max_episode_length=5)
    for agents, envs in (([ScriptedPolicy()] * 3, grid()), (ScriptedPolicy(), [grid()] * 3)):
        with pytest.raises(ValueError, match="3 entries, but n_workers=2"):
            MultiprocessingSampler(agents, envs, max_episode_length=5, n_workers=2)


def test_there_are_not_more_workers_by_themselves_than_this_process_may_use_cores(monkeypatch):
    for allowed, n_cores, n in (({0, 1, 2, 3}, 2, 2), ({5}, 4, 1), ({0, 2}, None, 1)):
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid, allowed=allowed: allowed)
        monkeypatch.setattr(psutil, "cpu_count", lambda logical, n_cores=n_cores: n_cores)
        assert WorkerFactory(max_episode_length=5).n_workers == n


@every_sampler
def test_updates_reach_the_workers(make, SamplerCls):
    class Still(RandomPolicy):
        def get_action(self, observation):
            return np.zeros(2, np.float32), {}

    sampler = make(SamplerCls, Still(), PointEnv(), max_episode_length=4, n_workers=2)
    tasks = [SetTaskUpdate(PointEnv, {"goal": np.array(goal, np.float32)}) for goal in ((1, 0), (0, 2))]
    batch = sampler.obtain_exact_episodes(1, None, env_update=tasks)
    assert batch.episode_infos_by_episode["goal"].tolist() == [[1, 0], [0, 2]]
    batch = sampler.obtain_exact_episodes(1, None, env_update=[None, lambda: PointEnv(goal=(3, 3))])
    assert batch.episode_infos_by_episode["goal"].tolist() == [[1, 0], [3, 3]]
    for wrong in ([None] * 3, [tasks[0]]):
        with pytest.raises(ValueError, match="n_workers=2"):
            sampler.obtain_samples(0, 1, None, env_update=wrong)
    with pytest.raises(TypeError):
        sampler.obtain_samples(0, 1, None, env_update=3)
    for wrong in (0, 1.5, math.nan, "2", None):
        with pytest.raises(ValueError, match=rf"n_eps_per_worker={wrong!r} must be a whole number"):
            sampler.obtain_exact_episodes(wrong, None)
    for wrong in (math.nan, math.inf, "2", None):
        with pytest.raises(ValueError, match=rf"num_samples={wrong!r} must be a finite number"):
            sampler.obtain_samples(0, wrong, None)
    assert sampler.obtain_exact_episodes(np.int64(1), None).n_episodes == 2, "nothing was done, and sampling goes on"


@every_sampler
def test_parameters_reach_the_workers(make, SamplerCls):
    sampler = make(SamplerCls, ScriptedPolicy(), grid(), max_episode_length=5, n_workers=2)
    stuck = ScriptedPolicy(dict.fromkeys([0, 4, 8, 9, 13, 14], 0)).get_param_values()
    assert sampler.obtain_exact_episodes(1, stuck).actions.tolist() == [0] * 10
    to_goal = ScriptedPolicy().get_param_values()
    assert sampler.obtain_exact_episodes(1, [to_goal, None]).actions.tolist() == PATH[:5] + [0] * 5
    assert sampler.obtain_exact_episodes(1, ScriptedPolicy({}, default=3)).actions.tolist() == [3] * 10, "another policy altogether"


@every_sampler
def test_an_agent_is_updated_by_its_parameters_or_itself(make, SamplerCls):
    agent = MlpFfAgent(model_kwargs=dict(hidden_sizes=[8]))
    sampler = make(SamplerCls, agent, CountingEnv, max_episode_length=5, n_workers=2)

    def prob(update):
        return sampler.obtain_exact_episodes(1, update).agent_infos["dist_info"]["prob"]

    before = prob(None)
    for parameter in agent.parameters():
        parameter.data += 0.5 * torch.randn_like(parameter)
    after = prob(agent.state_dict())
    assert not np.allclose(before[0], after[0])
    for parameter in agent.parameters():
        parameter.data *= 0
    assert np.allclose(prob(agent), 1 / 3)


class Constant:
    """Does always the same."""

    def __init__(self, action):
        self.action = action

    def get_action(self, observation):
        return self.action, {}

    def reset(self, do_resets=None):
        pass

    def get_param_values(self):
        return {"action": np.array(self.action)}

    def set_param_values(self, params):
        self.action = int(params["action"])


@every_sampler
def test_each_worker_plays_what_it_was_given_last_whatever_others_were(make, SamplerCls):
    n_workers, draw = 3, np.random.default_rng(0)
    played = [0, 1, 2]
    agents = [Constant(action) for action in played]
    sampler = make(SamplerCls, agents, lambda: CountingEnv(2, n_actions=1000), max_episode_length=9, n_workers=n_workers)
    for i in range(10, 200, 4):
        given = [None, Constant(i), Constant(i + 1).get_param_values(), Constant(i + 2).get_param_values()]
        which = draw.integers(4, size=n_workers) if draw.random() < 0.6 else np.repeat(draw.integers(4), n_workers)
        values = [None, i, i + 1, i + 2]
        played = [old if choice == 0 else values[choice] for old, choice in zip(played, which)]
        updates = [given[choice] for choice in which]
        batch = sampler.obtain_exact_episodes(1, given[which[0]] if len(set(which)) == 1 else updates)
        assert batch.actions.tolist() == np.repeat(played, 2).tolist()


@every_sampler
def test_agents_may_change_places_and_new_ones_are_the_same_for_all(make, SamplerCls):
    a, b, new = (MlpFfAgent(model_kwargs=dict(hidden_sizes=[n])) for n in (4, 8, 16))
    sampler = make(SamplerCls, [a, b], lambda: CountingEnv(3), max_episode_length=5, n_workers=2, seed=0)

    def assert_plays(update, *agents):
        batch = sampler.obtain_exact_episodes(1, update)
        for episode, agent in zip(batch.split(), agents, strict=True):
            observation = torch.as_tensor(episode.observations)
            prob = agent.model(observation, torch.zeros(3, 3), torch.zeros(3))[0].detach()
            np.testing.assert_allclose(episode.agent_infos["dist_info"]["prob"], prob.numpy(), rtol=1e-5)

    assert_plays(None, a, b)
    assert_plays(a, a, a)
    assert_plays([b, a], b, a)
    for parameter in (*a.parameters(), *b.parameters()):
        parameter.data += 0.3
    assert_plays([b, a], b, a)
    assert_plays([a, b], a, b)
    assert_plays(new, new, new)
    assert_plays([None, b], new, b)


@every_sampler
def test_the_agent_itself_as_an_update_changes_nothing_but_its_parameters(make, SamplerCls):
    batches = []
    for as_parameters in (False, True):
        set_seed(0)
        agent = RecordingAgent()
        kwargs = dict(worker_class=FragmentWorker, worker_args=dict(n_envs=2, timesteps_per_call=1), max_episode_length=50, n_workers=2)
        sampler = make(SamplerCls, agent, lambda: CountingEnv(5), seed=0, **kwargs)
        batches.append([sampler.obtain_samples(itr, 1, agent.state_dict() if as_parameters else agent) for itr in range(8)])
    assert batches[0] == batches[1]


@every_sampler
def test_it_cannot_go_on_from_elsewhere_after_its_end(SamplerCls):
    sampler = SamplerCls(ScriptedPolicy(), grid(), max_episode_length=5, n_workers=1)
    state = sampler.state_dict()
    sampler.shutdown_worker()
    with pytest.raises(RuntimeError, match="shut down"):
        sampler.load_state_dict(state)
    assert sampler.state_dict()["workers"] is None


def test_environments_are_closed_if_another_one_cannot_be_made():
    made, closed = [], []

    class Third(CountingEnv):
        def __init__(self):
            super().__init__()
            made.append(self)
            if len(made) == 3:
                raise RuntimeError("no third one")

        def close(self):
            closed.append(self)

    with pytest.raises(RuntimeError, match="no third one"):
        LocalSampler(Constant(0), Third, max_episode_length=5, n_workers=3)
    assert closed == made[:2]


def test_without_bias_whatever_the_sampler(make):
    lengths, sampler = [], make(MultiprocessingSampler, RandomPolicy(), RandomLengthEnv, worker_factory=factory(VecWorker, 2))
    for itr in range(30):
        lengths += sampler.obtain_samples(itr, 16, RandomPolicy()).lengths.tolist()
    assert 0.4 < np.mean(np.array(lengths) > 1) < 0.6


def test_no_two_samplers_of_a_process_play_the_same_and_a_second_time_each_does_what_it_did(make):
    kwargs, settings = dict(max_episode_length=30, n_workers=2), (RandomPolicy(), lambda: CountingEnv(30))

    def played(seed):
        set_seed(seed)
        samplers = [make(LocalSampler, *settings, **kwargs), make(MultiprocessingSampler, *settings, **kwargs)]
        samplers += [make(LocalSampler, *settings, **kwargs) for _ in range(2)]
        return [sampler.obtain_exact_episodes(1, None) for sampler in samplers]

    first, again, other = played(4), played(4), played(5)
    assert first == again
    streams = [episode.actions.tolist() for batch in first + other for episode in batch.split()]
    seeds = [episode.observations[0, 0] for batch in first + other for episode in batch.split()]
    assert len(set(map(str, streams))) == len(set(seeds)) == 16
    assert make(LocalSampler, *settings, seed=4, **kwargs).obtain_exact_episodes(1, None) == first[0]


@every_sampler
def test_a_sampler_goes_on_from_its_state_in_a_process_that_has_made_others(make, SamplerCls):
    settings, kwargs = (RandomPolicy(), lambda: CountingEnv([3, 8])), dict(max_episode_length=30, n_workers=2)
    set_seed(4)
    sampler = make(SamplerCls, *settings, **kwargs)
    sampler.obtain_samples(0, 20, None)
    state, expected = sampler.state_dict(), sampler.obtain_samples(1, 20, None)
    other = make(SamplerCls, *settings, **kwargs)
    other.load_state_dict(state)
    np.testing.assert_array_equal(other.obtain_samples(1, 20, None).actions, expected.actions)


@every_sampler
def test_a_sampler_can_be_pickled(make, SamplerCls):
    sampler = make(SamplerCls, ScriptedPolicy(), grid(), max_episode_length=50, n_workers=2, seed=5)
    sampler.obtain_samples(0, 1, None)
    copy = make(pickle.loads, pickle.dumps(sampler))
    assert type(copy) is SamplerCls and copy.total_env_steps == sampler.total_env_steps == 6
    assert copy.obtain_samples(1, 1, None) == sampler.obtain_samples(1, 1, None)


@every_sampler
def test_after_the_end(SamplerCls):
    sampler = SamplerCls(ScriptedPolicy(), grid(), max_episode_length=5, n_workers=2)
    sampler.shutdown_worker()
    sampler.shutdown_worker()
    with pytest.raises(RuntimeError, match="shut down"):
        sampler.obtain_samples(0, 1, None)


def test_an_environment_that_is_there_already_stays_open(make):
    class Closable(CountingEnv):
        closed = False

        def close(self):
            self.closed = True

    env = Closable(3)
    sampler = make(LocalSampler, RandomAgent(), ExistingEnvUpdate(env), max_episode_length=5, n_workers=2)
    assert sampler.obtain_exact_episodes(1, None).lengths.tolist() == [3, 3]
    sampler.shutdown_worker()
    assert not env.closed


def test_unseeded_processes_do_not_play_the_same(make):
    sampler = make(MultiprocessingSampler, RandomPolicy(), CountingEnv(30), max_episode_length=30, n_workers=2, seed=None)
    a, b = sampler.obtain_exact_episodes(1, None).actions_list
    assert a.tolist() != b.tolist()


# ---------------------------------------------------------------------------------------------------------------------
# Failures
# ---------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("exact", thinned([True, False], quick=[True]))
def test_a_worker_killed_while_it_samples_is_named(exact):
    for _ in range(5):
        sampler = MultiprocessingSampler(RandomPolicy(), SlowEnv, max_episode_length=100, n_workers=2)
        victim = random.randrange(2)
        pid = sampler._pool.processes[victim].pid
        threading.Timer(random.random() * 0.2, os.kill, (pid, signal.SIGKILL)).start()
        with pytest.raises(WorkerError, match=f"Worker {victim} of 2 of the MultiprocessingSampler, pid {pid}, was killed by SIGKILL"):
            while True:
                sampler.obtain_exact_episodes(2, None) if exact else sampler.obtain_samples(0, 20, None)
        with pytest.raises(RuntimeError, match="make a new one"):
            sampler.obtain_samples(0, 1, None)
        assert not living_children()


def test_all_workers_killed():
    sampler = MultiprocessingSampler(RandomPolicy(), SlowEnv, max_episode_length=100, n_workers=2)
    for process in sampler._pool.processes:
        os.kill(process.pid, signal.SIGKILL)
    with pytest.raises(WorkerError, match="SIGKILL"):
        sampler.obtain_samples(0, 20, None)


@pytest.mark.parametrize("fail_in", ["reset", "step"])
def test_what_an_environment_raises_is_shown(fail_in):
    sampler = MultiprocessingSampler(RandomPolicy(), lambda: FailingEnv(fail_in=fail_in, fail_at=4), max_episode_length=100, n_workers=2)
    with pytest.raises(WorkerError) as info:
        sampler.obtain_samples(0, 200, None)
    message = str(info.value)
    assert f"EnvFailure: planned failure in {fail_in}, call 4" in message and "envs.py" in message
    assert "This was in environment 0 of worker" in message


def test_what_is_raised_at_the_start_is_shown():
    with pytest.raises(WorkerError, match="planned failure in init"):
        MultiprocessingSampler(RandomPolicy(), lambda: FailingEnv("init"), max_episode_length=100, n_workers=2)


PROGRAM = """
import sys
sys.path[:0] = {path!r}
from envs import SlowEnv
from policies_for_tests import RandomPolicy
from rlpyt.samplers.episodic import MultiprocessingSampler
sampler = MultiprocessingSampler(RandomPolicy(), SlowEnv, max_episode_length=100, n_workers=2)
print(*[process.pid for process in sampler._pool.processes], flush=True)
while True:
    sampler.obtain_samples(0, 20, None)
"""


@full
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupt_leaves_no_process(number):
    here = Path(__file__)
    path = [str(here.parents[2]), str(here.parents[3])]
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(path=path)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
    )
    pids = [int(pid) for pid in program.stdout.readline().split()]
    time.sleep(0.5)
    (os.killpg if number == signal.SIGINT else os.kill)(program.pid, number)
    program.wait(30)
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and any(psutil.pid_exists(pid) for pid in pids):
        time.sleep(0.1)
    assert len(pids) == 2 and not any(psutil.pid_exists(pid) for pid in pids)


def test_batches_are_batches_of_episodes(make):
    sampler = make(MultiprocessingSampler, RandomAgent(), CountingEnv, max_episode_length=5, n_workers=2)
    batch = sampler.obtain_samples(0, 30, None)
    checked = EpisodeBatch(
        **{name: getattr(batch, name) for name in ("env_spec", "observations", "last_observations", "actions", "rewards", "step_types")},
        **{name: getattr(batch, name) for name in ("env_infos", "agent_infos", "lengths")},
        episode_infos=batch.episode_infos_by_episode,
    )
    assert checked == batch
