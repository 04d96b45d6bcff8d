"""Sampling on a real Ray cluster of two CPUs: the same samples as everywhere else, and no actor is lost without being told."""

import copy
import os
import subprocess
import sys
import threading
import time
from collections import deque
from functools import partial

import numpy as np
import pytest
import torch
from agents_for_tests import RecordingAgent, RnnAgent
from collecting import ENV, Collected, assert_same, assert_same_arrays, collect, make_sampler
from envs import CountingEnv, FailingEnv, ReadyVector, SlowEnv, make_gym_vector
from ray_clusters import lose
from tiers import full, processes, ray, thinned

from rlpyt.agents.pg.mlp import MlpFfAgent, MlpGaussianFfAgent
from rlpyt.agents.policy import PolicyAgent
from rlpyt.envs.gym import make as gym_make
from rlpyt.envs.vector import VectorEnvs
from rlpyt.episodes import EpisodeBatch
from rlpyt.samplers.async_.ray_sampler import AsyncRayBatchSampler
from rlpyt.samplers.parallel.cpu.collectors import CpuResetCollector, CpuWaitResetCollector
from rlpyt.samplers.parallel.gpu.collectors import GpuResetCollector
from rlpyt.samplers.ray.actors import Call
from rlpyt.samplers.ray.batch_sampler import RayBatchSampler
from rlpyt.samplers.ray.cluster import Cluster
from rlpyt.samplers.workers import WorkerError
from rlpyt.utils.buffer import buffer_func, numpify_buffer
from rlpyt.utils.cluster import import_ray
from rlpyt.utils.seed import set_seed

pytestmark = [ray, processes, pytest.mark.timeout(180)]
T, B = 6, 6


def make(address, EnvCls=CountingEnv, env=ENV, n_actors=2, wait_reset=False, **kwargs):
    sizes = dict(batch_T=T, batch_B=B, max_decorrelation_steps=8, eval_n_envs=3, eval_max_steps=3 * 30)
    settings = dict(sizes, env_kwargs=env, n_actors=n_actors, address=address)
    CollectorCls = CpuWaitResetCollector if wait_reset else CpuResetCollector
    return RayBatchSampler(EnvCls=EnvCls, CollectorCls=CollectorCls, **{**settings, **kwargs})


def start(sampler, agent=None, seed=3, **kwargs):
    agent = RecordingAgent() if agent is None else agent
    sampler.initialize(agent, seed=seed, bootstrap_value=True, traj_info_kwargs=dict(discount=0.5), **kwargs)
    return sampler


def copied(samples):
    return buffer_func(numpify_buffer(samples), np.copy)


def run(sampler, agent=None, n_batches=4, evaluate_after=(1,), **kwargs):
    """As `collecting.collect`."""
    agent = RecordingAgent() if agent is None else agent
    examples = sampler.initialize(agent, seed=3, bootstrap_value=True, traj_info_kwargs=dict(discount=0.5), **kwargs)
    batches, infos, evals = [], [], []
    try:
        for itr in range(n_batches):
            samples, traj_infos = sampler.obtain_samples(itr)
            batches.append(copied(samples))
            infos.append(copy.deepcopy(traj_infos))
            agent.train_mode(itr)
            if itr in evaluate_after:
                evals.append(copy.deepcopy(sampler.evaluate_agent(itr)))
    finally:
        sampler.shutdown()
    return Collected(batches, infos, evals, examples)


# ---------------------------------------------------------------------------------------------------------------------
# The same samples
# ---------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("n_actors", thinned([1, 2], quick=[2]))
def test_one_actor_and_two_sample_what_a_cpu_sampler_does(n_actors, ray_address):
    assert_same(run(make(ray_address, n_actors=n_actors)), collect("CPU, 2 workers"))


@full
@pytest.mark.parametrize("agent, wait_reset, env", [("recurrent", True, ENV), ("recurrent", False, dict(episode_length=4, end="timeout"))])
def test_whatever_agent_collector_and_ends_of_episodes(agent, wait_reset, env, ray_address):
    theirs = collect("serial", agent=agent, wait_reset=wait_reset, env=env)
    assert_same(run(make(ray_address, wait_reset=wait_reset, env=env), RnnAgent()), theirs)


@full
@pytest.mark.parametrize(
    "make_vector, env",
    [(make_gym_vector, dict(mode="SameStep")), (make_gym_vector, dict(mode="NextStep")), (ReadyVector, dict(n_ready=1))],
)
def test_vectors_of_environments_are_sampled_as_by_a_cpu_sampler(make_vector, env, ray_address):
    env = dict(env, lengths=(5, 1, 3, 7))
    ours, theirs = (
        run(make(ray_address, EnvCls=VectorEnvs(make_vector), env=env)),
        collect("CPU, 2 workers", EnvCls=VectorEnvs(make_vector), env=env),
    )
    assert sum(map(len, ours.infos)) > 10
    assert_same(ours, theirs)


@full
@pytest.mark.parametrize("wait_reset", [False, True])
def test_observations_that_end_terminated_episodes_come_too(wait_reset, ray_address):
    theirs = collect("serial", wait_reset=wait_reset, keep_terminal_observations=True)
    ours = run(make(ray_address, wait_reset=wait_reset, keep_terminal_observations=True))
    for mine, other in zip(ours.batches, theirs.batches, strict=True):
        pieces = [EpisodeBatch.from_samples(batch, mid_batch_reset=not wait_reset) for batch in (mine, other)]
        assert pieces[0] == pieces[1] and pieces[0].terminals.any()


@full
def test_batches_of_one_step_of_two_environments_and_one_more_than_actors(ray_address):
    theirs = collect("serial", T=1, B=3, n_batches=12, env=dict(episode_length=1, end=["timeout", "life", "terminated"]))
    env = dict(episode_length=1, end=["timeout", "life", "terminated"])
    assert_same(run(make(ray_address, batch_T=1, batch_B=3, env=env), n_batches=12), theirs)


@full
def test_columns_have_environments_of_their_own_which_can_be_changed(ray_address):
    each = [dict(episode_length=2 + b, end=["timeout", "terminated"]) for b in range(B)]
    changes = [None, partial(CountingEnv, episode_length=4), None, None, lambda: CountingEnv(episode_length=9, reward_scale=2.0), None]

    def played(sampler):
        start(sampler)
        batches = [copied(sampler.obtain_samples(0)[0])]
        assert sampler.update_envs(changes) == sampler.take_restarted() == [1, 4]
        batches.append(copied(sampler.obtain_samples(1)[0]))
        sampler.shutdown()
        return batches

    for ours, theirs in zip(played(make(ray_address, env=each)), played(make_sampler("serial", env=each))):
        assert_same_arrays(ours.env, theirs.env, "env")
        np.testing.assert_array_equal(ours.agent.action, theirs.agent.action)
    ahead = make(ray_address, in_flight=1)
    with pytest.raises(NotImplementedError, match="in_flight=0 to change"):
        ahead.update_envs(changes)


@full
def test_environments_get_actions_within_their_bounds(ray_address):
    agent = MlpGaussianFfAgent(model_kwargs=dict(init_log_std=1.0))
    for batch in run(make(ray_address, env=dict(n_actions=0)), agent).batches:
        assert (np.abs(batch.agent.action) > 1).any()
        np.testing.assert_array_equal(np.clip(batch.agent.action[..., 0], -1, 1), batch.env.env_info.action)


class Always:
    """A policy that is no module."""

    def get_action(self, observation):
        return 2, {}

    def reset(self, do_resets=None):
        pass


@full
def test_policies_without_parameters_act_in_actors_too(ray_address):
    sampler = make(ray_address)
    sampler.initialize(PolicyAgent(Always()), seed=3)
    try:
        for itr in range(2):
            assert (sampler.obtain_samples(itr)[0].agent.action == 2).all()
    finally:
        sampler.shutdown()


@full
def test_actors_act_with_the_latest_parameters(ray_address):
    expected = with_offsets(None, [0, 1, 2, 3])
    sampler = make(ray_address)
    assert_same_batches(with_offsets(sampler, [0, 1, 2, 3]), expected)
    assert sampler.batch_parameters_version == sampler.parameters_version == 4


def with_offsets(sampler, offsets):
    """The batches of an agent whose parameter has these values in turn; of a serial sampler, if `sampler` is None."""
    agent = RecordingAgent()
    sampler = start(make_sampler("serial") if sampler is None else sampler, agent)
    batches = []
    try:
        for itr, offset in enumerate(offsets):
            agent.model.offset.data.fill_(offset)
            batches.append(copied(sampler.obtain_samples(itr)[0]))
    finally:
        sampler.shutdown()
    return batches


def assert_same_batches(ours, theirs):
    assert len(ours) == len(theirs)
    for i, (a, b) in enumerate(zip(ours, theirs)):
        assert_same_arrays(a, b, f"batch {i}")


@full
@pytest.mark.parametrize("in_flight", [1, 2])
def test_batches_in_flight_are_collected_with_parameters_of_so_many_updates_before(in_flight, ray_address):
    offsets = [0, 1, 2, 3, 4, 5]
    ours = with_offsets(make(ray_address, in_flight=in_flight), offsets)
    assert_same_batches(ours, with_offsets(None, [offsets[max(itr - in_flight, 0)] for itr in range(6)]))


@full
def test_the_version_of_a_batch_in_flight_says_which_parameters_it_was_collected_with(ray_address):
    sampler = start(make(ray_address, in_flight=1))
    try:
        versions = [(sampler.obtain_samples(itr), sampler.batch_parameters_version, sampler.parameters_version)[1:] for itr in range(4)]
    finally:
        sampler.shutdown()
    assert versions == [(1, 1), (1, 2), (2, 3), (3, 4)]


@full
def test_parameters_are_put_into_the_store_once_for_all_actors(ray_address, monkeypatch):
    sampler = start(make(ray_address))
    ray = import_ray()
    try:
        put, n_put = ray.put, []
        monkeypatch.setattr(ray, "put", lambda value: n_put.append(value) or put(value))
        sampler.obtain_samples(0)
        sampler.obtain_samples(1)
        assert len(n_put) == 2
    finally:
        sampler.shutdown()


# ---------------------------------------------------------------------------------------------------------------------
# Checkpoints
# ---------------------------------------------------------------------------------------------------------------------
def cartpole(address, **kwargs):
    return make(address, EnvCls=gym_make, env=dict(id="CartPole-v1"), batch_T=30, eval_max_steps=3 * 500, **kwargs)


def stochastic_agent():
    set_seed(7)
    return MlpFfAgent(model_kwargs=dict(hidden_sizes=[8]))


@full
@pytest.mark.parametrize("in_flight", [0, 1])
def test_a_sampler_goes_on_from_its_state_as_if_it_had_never_stopped(in_flight, ray_address, tmp_path):
    whole = run(cartpole(ray_address, in_flight=in_flight), stochastic_agent(), n_batches=5, evaluate_after=(0, 3))
    sampler = start(cartpole(ray_address, in_flight=in_flight), stochastic_agent())
    try:
        for itr in range(2):
            sampler.obtain_samples(itr)
            if itr == 0:
                sampler.evaluate_agent(itr)
        torch.save(sampler.state_dict(), tmp_path / "state.pt")
    finally:
        sampler.shutdown()
    sampler = start(cartpole(ray_address, in_flight=in_flight), stochastic_agent())
    try:
        assert sampler.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True)) == []
        for itr in range(2, 5):
            samples, infos = sampler.obtain_samples(itr)
            assert_same_arrays(without_slots(copied(samples)), without_slots(whole.batches[itr]), f"batch {itr}")
            assert infos == whole.infos[itr]
            if itr == 3:
                assert sorted(map(str, sampler.evaluate_agent(itr))) == sorted(map(str, whole.evals[1]))
    finally:
        sampler.shutdown()
    assert any(whole.infos[2:])


def without_slots(batch):
    return batch._replace(final_observation=None)  # Unused ones hold those of earlier batches.


@full
def test_with_another_number_of_actors_episodes_begin_anew(ray_address, tmp_path):
    sampler = start(make(ray_address, in_flight=1, env=dict(episode_length=100)))  # No episode ends.
    try:
        sampler.obtain_samples(0)
        torch.save(sampler.state_dict(), tmp_path / "state.pt")
        state = torch.load(tmp_path / "state.pt", weights_only=True)
    finally:
        sampler.shutdown()
    sampler = start(make(ray_address, n_actors=1, in_flight=1))
    try:
        assert sorted(sampler.load_state_dict(state)) == list(range(B))
        sampler.obtain_samples(1)
    finally:
        sampler.shutdown()


# ---------------------------------------------------------------------------------------------------------------------
# Losses and failures
# ---------------------------------------------------------------------------------------------------------------------
def failing(address, tmp_path, how="sigkill", fail_at=25, fail_in="step", **kwargs):
    """A sampler one of whose environments fails, once, in an actor."""
    env = dict(ENV, fail_in=fail_in, fail_at=fail_at, how=how, spare_pid=os.getpid(), once=str(tmp_path / "failed"))
    return make(address, EnvCls=FailingEnv, env=env, max_decorrelation_steps=0, **kwargs)


@full
@pytest.mark.parametrize("in_flight", [0, 1])
def test_a_lost_actor_is_replaced_and_its_environments_begin_anew_while_the_others_go_on(in_flight, ray_address, tmp_path, capsys):
    expected = with_offsets(make(ray_address, max_decorrelation_steps=0, in_flight=in_flight), [0] * 8)
    sampler = start(failing(ray_address, tmp_path, in_flight=in_flight))
    try:
        batches, begun_anew = zip(*[(copied(sampler.obtain_samples(itr)[0]), sampler.take_restarted()) for itr in range(8)])
        assert sampler.n_restarts == 1
        assert [itr for itr in range(8) if begun_anew[itr]] == [25 // T] and begun_anew[25 // T] in ([0, 1, 2], [3, 4, 5])
        assert sampler.evaluate_agent(7)
    finally:
        sampler.shutdown()
    said = capsys.readouterr().out
    assert "was lost while collecting batch" in said and "(1 of max_restarts=3)" in said
    same = [[same_column(a, b, columns) for a, b in zip(batches, expected)] for columns in (slice(0, 3), slice(3, 6))]
    n_before = 25 // T
    assert sorted(map(all, same)) == [False, True]  # One actor's columns are as if nothing had happened,
    lost = same[0] if not all(same[0]) else same[1]
    assert all(lost[:n_before]) and not any(lost[n_before:])  # and the other's are so until then.


@full
@pytest.mark.parametrize("lost_in, in_flight", [("collecting", 0), ("collecting", 2), ("evaluating", 1), ("saving", 1)])
def test_columns_of_a_lost_actor_begin_anew_with_the_first_batch_that_it_has_not_collected(lost_in, in_flight, ray_address):
    endless = dict(EnvCls=EndlessEnv, env={}, max_decorrelation_steps=0, in_flight=in_flight)
    sampler, state = start(make(ray_address, **endless)), None
    try:
        begun = {itr: begun_anew(sampler, itr) for itr in range(2)}
        for call in sampler._pending:
            import_ray().wait(call.refs, num_returns=2)
        lose(sampler, 1)
        if lost_in == "evaluating":
            assert sampler.evaluate_agent(1) == []
        if lost_in == "saving":
            state = sampler.state_dict()
        begun.update({itr: begun_anew(sampler, itr) for itr in range(2, 7)})
        assert sampler.n_restarts == 1
    finally:
        sampler.shutdown()
    expected = {2 + in_flight: [3, 4, 5]}
    assert {itr: columns for itr, columns in begun.items() if columns} == {0: list(range(B)), **expected}
    if state is None:
        return
    sampler = start(make(ray_address, **endless))
    try:
        assert sampler.load_state_dict(state) == []
        begun = {itr: begun_anew(sampler, itr) for itr in range(2, 7)}
    finally:
        sampler.shutdown()
    assert {itr: columns for itr, columns in begun.items() if columns} == expected


class EndlessEnv(CountingEnv):
    """Tells its state."""

    def __init__(self):
        super().__init__(episode_length=10**6)

    def get_state(self):
        return dict(episode=self.episode, t=self.t)

    def set_state(self, state):
        self.episode, self.t, self._next_end, self._end = state["episode"], state["t"], 10**6, "terminated"


def begun_anew(sampler, itr):
    """The columns that begin this batch with a reset; which the sampler tells, but for the first batch."""
    step_in_episode = numpify_buffer(sampler.obtain_samples(itr)[0]).env.observation[0, :, 2]
    columns, told = np.flatnonzero(step_in_episode == 0).tolist(), sampler.take_restarted()
    assert told == (columns if itr else [])
    return columns


@full
def test_that_changed_environments_are_lost_with_an_actor_is_said(ray_address, capsys):
    sampler = start(make(ray_address))
    try:
        sampler.update_envs([None, partial(CountingEnv, episode_length=4), None, None, partial(CountingEnv, episode_length=4), None])
        sampler.obtain_samples(0)
        for n in (1, 2):
            lose(sampler, 0)
            sampler.obtain_samples(n)
            said = capsys.readouterr().out
            assert sampler.n_restarts == n and f"({n} of max_restarts=3)" in said
            assert ("Environments are those of EnvCls again in columns [1] of the batch" in said) == (n == 1)
    finally:
        sampler.shutdown()


def same_column(a, b, columns):
    try:
        assert_same_arrays(without_slots(a)[:, columns], without_slots(b)[:, columns], "columns")
    except AssertionError:
        return False
    return True


@full
def test_more_losses_than_may_be_replaced_are_an_error_that_names_the_actor(ray_address, tmp_path):
    sampler = start(failing(ray_address, tmp_path, max_restarts=0))
    with pytest.raises(WorkerError, match=r"(?s)Sampler worker \d \(environ.* was lost while collecting batch 4.*max_restarts=0"):
        for itr in range(8):
            sampler.obtain_samples(itr)
    with pytest.raises(RuntimeError, match="initialize"):
        sampler.obtain_samples(8)
    sampler.shutdown()


@full
def test_what_an_environment_raises_is_what_you_see(ray_address, tmp_path):
    sampler = start(failing(ray_address, tmp_path, how="raise"))
    with pytest.raises(WorkerError, match="planned failure in step") as caught:
        for itr in range(8):
            sampler.obtain_samples(itr)
    text = str(caught.value)
    assert "EnvFailure" in text and "in step" in text and "This was in environment" in text and "while collecting batch 4" in text
    assert "Traceback of the worker" in text and sampler.n_restarts == 0
    sampler.shutdown()


@full
def test_a_failure_while_actors_start_is_reported_and_the_cluster_is_left(ray_address):
    with pytest.raises(WorkerError, match="planned failure in reset"):
        start(make(ray_address, EnvCls=FailingEnv, env=dict(fail_in="reset", spare_pid=os.getpid())))
    assert not import_ray().is_initialized()


@full
def test_a_failure_in_close_is_reported_at_shutdown(ray_address):
    sampler = start(make(ray_address, EnvCls=FailingEnv, env=dict(fail_in="close", spare_pid=os.getpid())))
    with pytest.raises(WorkerError, match="planned failure in close"):
        sampler.shutdown()


@full
def test_a_hanging_environment_is_reported_with_its_stack(ray_address, tmp_path):
    sampler = start(failing(ray_address, tmp_path, how="hang"))
    sampler._pool.timeout = 8  # From now on: actors may take longer to start.
    with pytest.raises(WorkerError, match=r"(?s)No reply.*worker_timeout=8.*collecting batch 4.*_maybe_fail"):
        for itr in range(8):
            sampler.obtain_samples(itr)
    sampler.shutdown()


@full
def test_an_evaluation_can_be_stopped(ray_address):
    sampler = start(make(ray_address, EnvCls=SlowEnv, env=dict(episode_length=10**6), eval_max_steps=3 * 10**5))
    try:
        timer = threading.Timer(1.0, sampler.stop_evaluation)
        timer.start()
        began = time.monotonic()
        assert sampler.evaluate_agent(0) == [] and time.monotonic() - began < 60
    finally:
        sampler.shutdown()


@full
def test_environments_that_cannot_be_sent_are_named_before_any_actor_starts(ray_address):
    with pytest.raises(TypeError, match="env_kwargs=.*cannot be sent to Ray's actors"):
        start(make(ray_address, env=dict(ENV, episode_length=Unpicklable([5]))))
    assert not import_ray().is_initialized()


class Unpicklable(list):
    def __reduce__(self):
        raise RuntimeError("it has a window open")


@pytest.mark.parametrize(
    "settings, message",
    [
        (dict(n_actors=0), "n_actors=0 is not possible; it must be a whole number at least 1, or None"),
        (dict(in_flight=-1), "in_flight=-1 is not possible; it must be a whole number at least 0"),
        (dict(max_restarts=True), "max_restarts=True is not possible"),
        (dict(CollectorCls=GpuResetCollector), "takes collectors from"),
    ],
)
def test_impossible_settings_are_refused(settings, message):
    pytest.importorskip("ray")
    with pytest.raises(ValueError, match=message):
        RayBatchSampler(**dict(dict(EnvCls=CountingEnv, env_kwargs={}, batch_T=2, batch_B=2), **settings))


@full
def test_more_actors_than_the_cluster_has_cpus_are_refused(ray_address):
    with pytest.raises(ValueError, match="5 actors with num_cpus=1 need more than the 2 CPUs"):
        start(make(ray_address, n_actors=5))
    sampler = start(make(ray_address, n_actors=3, actor_options=dict(num_cpus=0.5)))
    sampler.shutdown()


@full
def test_the_samplers_of_a_run_share_a_cluster(ray_address):
    for n_actors in (None, 1):
        sampler = start(make(ray_address, n_actors=n_actors), world_size=2, rank=1)
        assert len(sampler._pool.names) == 1
        sampler.shutdown()
    with pytest.raises(ValueError, match="2 actors with num_cpus=1 need more than the 2 CPUs of the Ray cluster, which 2 samplers of this"):
        start(make(ray_address, n_actors=2), world_size=2, rank=0)
    assert not import_ray().is_initialized()


def test_so_do_the_parts_of_an_asynchronous_one():
    pytest.importorskip("ray")
    sampler = AsyncRayBatchSampler(CountingEnv, {}, batch_T=2, batch_B=5)
    sampler.async_initialize(RecordingAgent())
    assert sampler._n_samplers == 1
    assert [part._n_samplers for part in sampler.parts(3)] == [3, 3, 3]


class NoPool:
    """In place of actors; a call notes the parameters with which it is collected."""

    def submit(self, name, argument, doing, parameters):
        return Call(name, argument, doing, parameters)

    def receive(self, call):
        self.acted = call.parameters
        return [(([], []), [])]

    def kill(self):
        pass


@pytest.mark.parametrize("in_flight", [0, 2])
def test_beside_training_the_version_that_acted_is_known(in_flight, monkeypatch):
    sampler = AsyncRayBatchSampler(CountingEnv, {}, batch_T=2, batch_B=5, in_flight=in_flight)
    agent = RecordingAgent()
    sampler.async_initialize(agent)
    pool = sampler._pool = NoPool()
    sampler._pending, sampler._restart_next, sampler._columns = deque(), set(), []
    monkeypatch.setattr(sampler, "_put_parameters", lambda: agent.parameters_version)
    monkeypatch.setattr(agent, "recv_shared_memory", lambda: setattr(agent, "parameters_version", agent.parameters_version + 3))
    acted = []
    for itr in range(5):
        sampler.obtain_samples(itr, itr % 2)
        acted.append(sampler.acting_parameters_version)
        assert acted[-1] == pool.acted and sampler.policy_lag == agent.parameters_version - pool.acted
    assert acted == [3, 6, 9, 12, 15] if in_flight == 0 else [3, 3, 3, 6, 9]


def test_a_cluster_that_was_started_here_is_not_shared(monkeypatch):
    pytest.importorskip("ray")
    ray = import_ray()
    monkeypatch.setattr(ray, "init", lambda address, **kwargs: None)
    monkeypatch.setattr(ray, "cluster_resources", lambda: {"CPU": 4.0})
    monkeypatch.setattr(ray, "available_resources", lambda: {"CPU": 4.0})
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    for address, n in ((None, 4), ("somewhere:1", 2)):
        cluster = Cluster(address)
        assert [cluster.n_places(num_cpus, 2) for num_cpus in (1, 0, 0.5, 8)] == [n, n, 2 * n, 0]
        cluster.check_room(n, 1, "n_actors", 2)
        with pytest.raises(ValueError, match="less n_actors"):
            cluster.check_room(n + 1, 1, "n_actors", 2)
        cluster.close()


@full
def test_that_actors_have_to_wait_for_others_is_said(ray_address, capsys):
    sampler = start(make(ray_address))
    try:
        cluster = sampler._cluster
        deadline = time.monotonic() + 30
        while cluster._free_cpus() and time.monotonic() < deadline:
            time.sleep(0.1)
        cluster.check_room(5, 0, "n_actors")
        assert "wait until" not in capsys.readouterr().out
        cluster.check_room(1, 1, "n_actors")
        said = capsys.readouterr().out
        assert "1 actors with num_cpus=1 wait until CPUs become free: now 0 of the 2 CPUs" in said and "less n_actors" in said
    finally:
        sampler.shutdown()
    sampler = start(make(ray_address))  # As soon as they are free.
    sampler.shutdown()
    assert "wait until" not in capsys.readouterr().out


def test_without_ray_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r'pip install -c constraints.txt -e "\.\[ray\]"'):
        RayBatchSampler(CountingEnv, {}, 2, 2)


@full
# ---------------------------------------------------------------------------------------------------------------------
# Clusters
# ---------------------------------------------------------------------------------------------------------------------
def test_a_connection_of_ones_own_is_left_as_it_is(ray_address):
    ray = import_ray()
    ray.init(address=ray_address, logging_level="ERROR")
    try:
        sampler = start(make("nowhere:1"))
        sampler.shutdown()
        assert ray.is_initialized() and ray.get(ray.put(1)) == 1
    finally:
        ray.shutdown()


@full
def test_the_last_of_several_samplers_leaves_the_cluster(ray_address):
    ray = import_ray()
    first, second = start(make(ray_address, n_actors=1)), start(make(ray_address, n_actors=1))
    first.shutdown()
    second.obtain_samples(0)
    second.shutdown()
    assert not ray.is_initialized()


LOCAL = """
import sys
sys.path[:0] = {path!r}
import psutil
from agents_for_tests import RecordingAgent
from envs import CountingEnv
from rlpyt.envs.vector import VectorEnvs
from rlpyt.episodes import EpisodeBatch
from rlpyt.samplers.async_.ray_sampler import AsyncRayBatchSampler
from rlpyt.samplers.ray.batch_sampler import RayBatchSampler

if __name__ == "__main__":
    sampler = RayBatchSampler(CountingEnv, dict(episode_length=3), batch_T=4, batch_B=2, n_actors=1,
        init_kwargs=dict(num_cpus=1, object_store_memory=100_000_000, log_to_driver=False))
    sampler.initialize(RecordingAgent(), seed=0)
    _, infos = sampler.obtain_samples(0)
    started = [process.pid for process in psutil.Process().children(recursive=True)]
    print("sampled", len(infos), "with", len(started), flush=True)
    {then}
    left = psutil.wait_procs([psutil.Process(pid) for pid in started if psutil.pid_exists(pid)], timeout=20)[1]
    print("left", left)
"""


@full
@pytest.mark.timeout(500)
@pytest.mark.parametrize("then", ["sampler.shutdown()", "raise SystemExit"])
def test_a_cluster_that_was_started_ends_with_the_sampler_or_the_program(then):
    script = LOCAL.format(path=sys.path, then=then)
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=400, env=environment)
    assert out.returncode == 0 and "sampled 2 with" in out.stdout, out.stderr
    if "shutdown" in then:
        assert "left []" in out.stdout
