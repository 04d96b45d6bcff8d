"""Each column of a batch may have an environment of its own, which can be changed between batches."""

import copy
import multiprocessing
import os
import threading
import uuid
from collections import namedtuple
from functools import partial

import numpy as np
import pytest
from agents_for_tests import RecordingAgent
from collecting import (
    ASYNC_KINDS,
    KINDS,
    ONE_OF_EACH,
    assert_same,
    assert_same_arrays,
    collect,
    collect_in_parts,
    kinds,
    make_agent,
    make_sampler,
)
from envs import CountingEnv, FailingEnv, make_walk
from policies_for_tests import NoisyRlpytEnv

from rlpyt.envs.adapters import as_environment, as_gymnasium
from rlpyt.envs.env_update import ExistingEnvUpdate, NewEnvUpdate, SetTaskUpdate
from rlpyt.envs.multitask import MultiEnvWrapper, TaskOnehotWrapper, round_robin_strategy
from rlpyt.envs.point_env import PointEnv
from rlpyt.samplers.base import BaseSampler
from rlpyt.samplers.collections import TaskTrajInfo
from rlpyt.samplers.workers import WorkerError
from rlpyt.utils.buffer import buffer_func, numpify_buffer
from rlpyt.utils.seed import env_seed

B = 6
LENGTHS = [dict(episode_length=3 + b, reward_scale=b + 1, end="timeout" if b % 2 else "terminated") for b in range(B)]
CONSTRUCTORS = [partial(CountingEnv, **kwargs) for kwargs in LENGTHS]

pytestmark = pytest.mark.timeout(280)
every_kind = pytest.mark.parametrize("kind", kinds([*ONE_OF_EACH, "CPU, 4 workers"], quick=["serial", "GPU, 2 workers"]))
and_spawned = pytest.mark.parametrize("kind", kinds([*ONE_OF_EACH, "CPU, spawn", "GPU, forkserver"], quick=["serial", "CPU, 2 workers"]))
one_of_each = pytest.mark.parametrize("kind", kinds(ONE_OF_EACH, quick=["serial", "CPU, 2 workers"]))


@pytest.fixture(autouse=True)
def no_process_is_left():
    yield
    assert not multiprocessing.active_children()


# ---------------------------------------------------------------------------------------------------------------------
# Lists of constructors
# ---------------------------------------------------------------------------------------------------------------------
@every_kind
def test_every_column_is_what_it_would_be_among_its_like(kind):
    mixed = collect(kind, EnvCls=CONSTRUCTORS, env={}, eval_n_envs=0, evaluate_after=())
    for b in (0, 3, 5):
        alike = collect("serial", EnvCls=CONSTRUCTORS[b], env={}, eval_n_envs=0, evaluate_after=())
        for ours, theirs in zip(mixed.batches, alike.batches):
            for name in ("observation", "reward", "done", "timeout"):
                np.testing.assert_array_equal(getattr(ours.env, name)[:, b], getattr(theirs.env, name)[:, b])
            np.testing.assert_array_equal(ours.agent.action[:, b], theirs.agent.action[:, b])


@one_of_each
def test_a_list_of_arguments_is_a_list_of_constructors(kind):
    assert_same(collect(kind, EnvCls=CountingEnv, env=LENGTHS), collect("serial", EnvCls=CONSTRUCTORS, env={}))


def make_counting_environment():
    return as_environment(CountingEnv())


def make_counting_gymnasium():
    return as_gymnasium(CountingEnv())


AROUND_RLPYT = {
    "one-hots": TaskOnehotWrapper.wrap_env_cons_list([CountingEnv, CountingEnv]) * 3,
    "several in one": partial(MultiEnvWrapper, [CountingEnv, CountingEnv]),
    "whole steps": make_counting_environment,
    "gymnasium": make_counting_gymnasium,
}


@pytest.mark.parametrize("kind", kinds(["serial", "CPU, 2 workers", "GPU, 2 workers"], quick=["serial", "GPU, 2 workers"]))
@pytest.mark.parametrize("EnvCls", AROUND_RLPYT.values(), ids=AROUND_RLPYT)
def test_what_wraps_an_rlpyt_environment_is_stepped_as_what_it_is(kind, EnvCls):
    batch = collect(kind, EnvCls=EnvCls, env={}, n_batches=1, decorrelation=0, eval_n_envs=2).batches[0]
    has_one_hot = EnvCls in (AROUND_RLPYT["one-hots"], AROUND_RLPYT["several in one"])
    assert batch.env.observation.shape == (6, B, 6 if has_one_hot else 4)
    np.testing.assert_array_equal(batch.env.reward, np.array([1, 2, 3, 4, 5, 1])[:, None].repeat(B, 1))
    if has_one_hot:
        np.testing.assert_array_equal(batch.env.observation[:, :, 4:].argmax(-1), batch.env.env_info.task_id)


@pytest.mark.parametrize("kind", kinds(["async serial", "async CPU", "async GPU", "async alternating"]))
@pytest.mark.parametrize("n_parts", [1, 3])
def test_asynchronous_samplers_take_lists_however_they_are_split(kind, n_parts):
    ours = collect_in_parts(kind, n_parts, EnvCls=CONSTRUCTORS, env={}, eval_n_envs=6, eval_max_steps=6 * 30)
    theirs = collect("serial", EnvCls=CONSTRUCTORS, env={}, eval_n_envs=6, eval_max_steps=6 * 30)
    for a, b in zip(ours.batches, theirs.batches):
        np.testing.assert_array_equal(a.env.observation, b.env.observation)
        np.testing.assert_array_equal(a.env.reward, b.env.reward)
    assert [sorted(map(str, infos)) for infos in ours.evals] == [sorted(map(str, infos)) for infos in theirs.evals]


def lengths(evaluation):
    return sorted({info.Length for info in evaluation})


@one_of_each
def test_evaluation_goes_through_the_list_in_turn_or_has_its_own(kind):
    settings = dict(EnvCls=CONSTRUCTORS, env={}, eval_max_steps=8 * 30, n_batches=1, evaluate_after=(0,))
    assert lengths(collect(kind, eval_n_envs=8, **settings).evals[0]) == [3, 4, 5, 6, 7, 8]
    assert lengths(collect(kind, eval_n_envs=2, **settings).evals[0]) == [3, 4]
    own = [partial(CountingEnv, episode_length=9), partial(CountingEnv, episode_length=7)]
    assert lengths(collect(kind, eval_n_envs=2, eval_EnvCls=own, **settings).evals[0]) == [7, 9]
    eval_kwargs = [dict(episode_length=4), dict(episode_length=9)]
    settings["EnvCls"] = CountingEnv
    assert lengths(collect(kind, eval_n_envs=2, eval_env_kwargs=eval_kwargs, **settings).evals[0]) == [4, 9]


def test_several_samplers_of_a_run_go_through_the_evaluation_tasks_together():
    settings = dict(EnvCls=CONSTRUCTORS, env={}, T=30, eval_n_envs=3, n_batches=1, evaluate_after=(0,), world_size=2)
    first, second = (collect("serial", rank=rank, **settings) for rank in (0, 1))
    assert lengths(first.evals[0]) == [3, 4, 5] and lengths(second.evals[0]) == [6, 7, 8]
    for result in (first, second):  # Each has all tasks in its columns.
        for b, length in enumerate(each["episode_length"] for each in LENGTHS):
            ends = np.flatnonzero(result.batches[0].env.done[:, b])
            assert len(ends) > 1 and set(np.diff(ends)) == {length}


@pytest.mark.parametrize(
    "kwargs, said",
    [
        (dict(EnvCls=CONSTRUCTORS[:5]), "EnvCls is a list of 5: it must have batch_B=6 entries"),
        (dict(env=LENGTHS[:2]), "env_kwargs is a list of 2: it must have batch_B=6"),
        (dict(eval_EnvCls=CONSTRUCTORS), "eval_EnvCls is a list of 6: it must have eval_n_envs=3"),
        (dict(eval_env_kwargs=LENGTHS), "eval_env_kwargs is a list of 6: it must have eval_n_envs=3"),
    ],
)
@one_of_each
def test_lists_of_another_length_are_refused(kind, kwargs, said):
    with pytest.raises(ValueError, match=said):
        make_sampler(kind, **{**dict(env={}), **kwargs})


ENV = CountingEnv()


@pytest.mark.parametrize(
    "kwargs, said",
    [
        (dict(EnvCls="CartPole-v1"), "EnvCls has 'CartPole-v1', which cannot be called.*rlpyt.envs.gym.make"),
        (dict(EnvCls=None), "EnvCls has None, which cannot be called"),
        (dict(EnvCls=[ENV] * 6), "EnvCls has .*CountingEnv.*wrap_env_cons_list"),
        (dict(EnvCls=[CountingEnv] * 5 + [None]), "EnvCls has None, which cannot be called"),
        (dict(eval_EnvCls=ENV), "eval_EnvCls has .*CountingEnv"),
        (dict(eval_EnvCls=["CartPole-v1"] * 3), "eval_EnvCls has 'CartPole-v1'"),
    ],
)
@one_of_each
def test_what_does_not_make_environments_is_refused(kind, kwargs, said):
    with pytest.raises(TypeError, match=said):
        make_sampler(kind, **{**dict(env={}), **kwargs})


OTHERS = {
    "observations": (make_walk, "column 4 has observations of"),
    "actions": (partial(CountingEnv, n_actions=2), "column 4 takes actions of"),
    "kind of actions": (partial(CountingEnv, n_actions=0), "column 4 has actions of"),
}


@one_of_each
@pytest.mark.parametrize("EnvCls, said", OTHERS.values(), ids=OTHERS)
def test_columns_that_do_not_agree_are_refused_before_any_process_starts(kind, EnvCls, said, monkeypatch):
    monkeypatch.setattr(multiprocessing.Process, "start", lambda process: pytest.fail("a process was started"))
    sampler = make_sampler(kind, EnvCls=[*CONSTRUCTORS[:4], EnvCls, CountingEnv], env={})
    with pytest.raises(ValueError, match=said):
        sampler.initialize(RecordingAgent(), affinity=KINDS[kind].affinity, seed=0)
    sampler = make_sampler(kind, env={}, eval_EnvCls=[CountingEnv, EnvCls, CountingEnv])
    with pytest.raises(ValueError, match=said.replace("column 4", "evaluation environment 1")):
        sampler.initialize(RecordingAgent(), affinity=KINDS[kind].affinity, seed=0)


@one_of_each
@pytest.mark.parametrize("by_arguments", [False, True])
def test_evaluation_environments_of_one_kind_that_do_not_fit_are_refused_too(kind, by_arguments, monkeypatch):
    monkeypatch.setattr(multiprocessing.Process, "start", lambda process: pytest.fail("a process was started"))
    own = dict(eval_env_kwargs=dict(n_actions=2)) if by_arguments else dict(eval_EnvCls=partial(CountingEnv, n_actions=2))
    sampler = make_sampler(kind, env={}, **own)
    with pytest.raises(ValueError, match="evaluation environment 0 takes actions of"):
        sampler.initialize(RecordingAgent(), affinity=KINDS[kind].affinity, seed=0)


class TellingMore(CountingEnv):
    """Has another env_info than CountingEnv, and may be truncated at any step."""

    def step(self, action):
        observation, reward, done, _ = super().step(action)
        return observation, reward, done, namedtuple("told", ["traj_done", "timeout", "more"])(done, False, 1.0)


@one_of_each
@pytest.mark.parametrize("as_list", [False, True])
def test_a_batch_is_made_for_the_environments_of_its_columns_not_for_those_of_evaluation(kind, as_list):
    settings = dict(env=dict(episode_length=7, end="timeout"), n_batches=1, evaluate_after=(0,))
    theirs = collect(kind, **settings)
    ours = collect(kind, **settings, eval_EnvCls=[TellingMore] * 3 if as_list else TellingMore, eval_env_kwargs=dict(episode_length=4))
    assert_same_arrays(ours.batches[0], theirs.batches[0], "batch")
    assert lengths(ours.evals[0]) == [4]


def test_memory_suffices_for_the_shortest_horizon_of_all():
    mixed = [partial(CountingEnv, episode_length=n, end="timeout") for n in (50, 2, 50, 50, 50, 50)]
    batch = collect("serial", EnvCls=mixed, env={}, n_batches=1, evaluate_after=()).batches[0]
    assert len(batch.final_observation) == 4 and batch.env.timeout[:, 1].sum() == 3


def test_one_example_is_made_of_each_kind_and_closed(tmp_path):
    (tmp_path / "a").mkdir()
    few = [partial(OnceClosingEnv, str(tmp_path / "a"))] * 3 + [partial(OnceClosingEnv, str(tmp_path / "a"), episode_length=9)] * 3
    sampler = make_sampler("serial", EnvCls=few, env={}, eval_n_envs=0)
    sampler.initialize(RecordingAgent(), seed=0)
    assert len(list((tmp_path / "a").iterdir())) == 2
    sampler.shutdown()


# ---------------------------------------------------------------------------------------------------------------------
# Changes between batches
# ---------------------------------------------------------------------------------------------------------------------
def run_with_update(kind, updates, agent="recording", n_before=2, n_after=2, **kwargs):
    """Collect batches, change environments in between; return the batches, their TrajInfos, the changed columns, and the agent."""
    agent = make_agent(agent, kind)
    sampler = make_sampler(kind, **{**dict(env=dict(episode_length=[5, 3, 7], end=["terminated", "timeout"])), **kwargs})
    sampler.initialize(agent, affinity=KINDS[kind].affinity, seed=3, bootstrap_value=True, traj_info_kwargs=dict(discount=0.5))
    batches, infos = [], []
    try:
        for itr in range(n_before + n_after):
            if itr == n_before:
                columns = sampler.update_envs(updates() if callable(updates) else updates)
                assert sampler.take_restarted() == columns and sampler.take_restarted() == []
            samples, completed = sampler.obtain_samples(itr)
            batches.append(buffer_func(numpify_buffer(samples), np.copy))
            infos.append(copy.deepcopy(completed))
        if sampler.eval_n_envs:
            sampler.evaluate_agent(3)
    finally:
        sampler.shutdown()
    return batches, infos, columns


def changes():
    """One of each kind; column 0 and 4 stay."""
    return [
        None,
        NewEnvUpdate(partial(CountingEnv, episode_length=4)),
        partial(CountingEnv, episode_length=2),
        CountingEnv(episode_length=6, reward_scale=2.0),
        None,
        ExistingEnvUpdate(CountingEnv(episode_length=3, end="timeout")),
    ]


CHANGED = [1, 2, 3, 5]


@every_kind
@pytest.mark.filterwarnings("ignore:ExistingEnvUpdate")
@pytest.mark.parametrize("agent", ["recording", "recurrent"])
def test_changed_columns_begin_a_new_episode_and_the_others_go_on(kind, agent):
    batches, infos, columns = run_with_update(kind, changes, agent)
    assert columns == CHANGED
    undisturbed, undisturbed_infos, _ = run_with_update("serial", [None] * B, agent)
    for itr, (ours, theirs) in enumerate(zip(batches, undisturbed)):
        for b in range(B) if itr < 2 else (0, 4):
            np.testing.assert_array_equal(ours.env.observation[:, b], theirs.env.observation[:, b])
            np.testing.assert_array_equal(ours.agent.action[:, b], theirs.agent.action[:, b])
            np.testing.assert_array_equal(ours.agent.bootstrap_value[:, b], theirs.agent.bootstrap_value[:, b])
    after = batches[2]
    for b in CHANGED:
        np.testing.assert_array_equal(after.env.observation[0, b, 1:3], [0, 0])  # First episode, no step yet,
        assert after.env.observation[0, b, 0] == env_seed(env_seed(3, "algo", 2), "train_env", b) % 2**16  # with a seed of its own.
        seen = after.agent.agent_info
        assert seen.prev_action[0, b] == 0 and seen.prev_reward[0, b] == 0
        if agent == "recurrent":
            assert not seen.prev_rnn_state[0, b].any() and seen.prev_rnn_state[1, b].any()
    ends = {b: int(np.argmax(after.env.done[:, b])) + 1 for b in CHANGED}
    assert ends == {1: 4, 2: 2, 3: 6, 5: 3}
    np.testing.assert_array_equal(after.env.reward[:3, 3], [2, 4, 6])
    assert after.env.timeout[2, 5] and not after.env.timeout[3, 1]
    assert {2, 3, 4, 6} <= {info.Length for info in infos[2]}  # Nothing of what was before counts.


@and_spawned
@pytest.mark.filterwarnings("ignore:ExistingEnvUpdate")
def test_all_samplers_do_the_same_after_a_change(kind):
    ours, theirs = run_with_update(kind, changes), run_with_update("serial", changes)
    for a, b in zip(ours[0], theirs[0]):
        for name in ("observation", "reward", "done", "timeout", "next_observation"):
            np.testing.assert_array_equal(getattr(a.env, name), getattr(b.env, name))
        np.testing.assert_array_equal(a.agent.prev_action, b.agent.prev_action)
        np.testing.assert_array_equal(a.agent.action, b.agent.action)
    assert [sorted(map(str, infos)) for infos in ours[1]] == [sorted(map(str, infos)) for infos in theirs[1]]


@one_of_each
@pytest.mark.filterwarnings("ignore:ExistingEnvUpdate")
def test_environments_that_stand_still_can_be_changed(kind):
    batches, _, columns = run_with_update(kind, changes, wait_reset=True, env=dict(episode_length=4))
    assert batches[1].env.done[-1].all()
    for b in range(B):
        np.testing.assert_array_equal(batches[2].env.observation[0, b, 2], 0)
    assert batches[2].env.done[1, 2] and not batches[2].env.done[0, 2]


@one_of_each
def test_before_the_first_batch_environments_can_be_changed_too(kind):
    batches, _, columns = run_with_update(kind, partial(CountingEnv, episode_length=2), n_before=0)
    assert columns == list(range(B))
    assert batches[0].env.done[1].all() and not batches[0].env.done[0].any()


@one_of_each
def test_one_environment_for_all_columns_is_copied_and_each_has_its_own_random_numbers(kind):
    for env in (CountingEnv(episode_length=9), NoisyRlpytEnv()):
        batches, _, columns = run_with_update(kind, env)
        assert columns == list(range(B))
        assert len(np.unique(batches[2].env.observation[:, :, 3])) == 6 * B


def test_an_environment_that_cannot_be_copied_is_refused_with_what_to_give_instead():
    class Locked(CountingEnv):
        def __init__(self):
            super().__init__()
            self.lock = threading.Lock()

    sampler = make_sampler("serial", env={})
    sampler.initialize(RecordingAgent(), seed=0)
    with pytest.raises(TypeError, match="Locked cannot be copied .*lock.*: give a function without arguments that makes one instead"):
        sampler.update_envs(Locked())
    sampler.obtain_samples(0)
    sampler.update_envs(Locked)
    sampler.obtain_samples(1)
    sampler.shutdown()


@one_of_each
def test_an_environment_that_can_be_called_is_copied_like_any_other(kind):
    batches, _, columns = run_with_update(kind, lambda: CallableEnv(episode_length=9))  # It is called by the test.
    assert columns == list(range(B))
    assert len(np.unique(batches[2].env.observation[:, :, 3])) == 6 * B


class CallableEnv(CountingEnv):
    def __call__(self):
        raise AssertionError("this is an environment, and makes none")


@one_of_each
def test_what_is_no_update_is_refused_and_sampling_goes_on(kind):
    sampler = make_sampler(kind, env={})
    with pytest.raises(RuntimeError, match="initialize"):
        sampler.update_envs([None] * B)
    sampler.initialize(RecordingAgent(), affinity=KINDS[kind].affinity, seed=0)
    with pytest.raises(ValueError, match="2 environment updates.*6 columns"):
        sampler.update_envs([None, None])
    with pytest.raises(TypeError, match="Unknown environment update 5"):
        sampler.update_envs([None] * 5 + [5])
    sampler.obtain_samples(0)
    sampler.shutdown()


@one_of_each
def test_a_new_environment_with_other_spaces_is_refused_and_all_is_shut_down(kind):
    sampler = make_sampler(kind, env={})
    sampler.initialize(RecordingAgent(), affinity=KINDS[kind].affinity, seed=0)
    Error = ValueError if kind == "serial" else WorkerError
    with pytest.raises(Error, match="The new environment 2 takes actions of"):
        sampler.update_envs([None, None, partial(CountingEnv, n_actions=5), None, None, None])
    with pytest.raises(RuntimeError, match="initialize"):
        sampler.obtain_samples(0) if kind == "serial" else sampler._running_pool().send(None, "")


@one_of_each
def test_a_constructor_that_fails_is_named_by_its_error(kind):
    sampler = make_sampler(kind, env={})
    sampler.initialize(RecordingAgent(), affinity=KINDS[kind].affinity, seed=0)
    with pytest.raises(Exception, match="planned failure in reset"):
        sampler.update_envs(partial(FailingEnv, fail_in="reset"))
    sampler.shutdown()


def test_a_new_environment_that_may_be_truncated_more_often_than_there_is_memory_for_is_refused():
    sampler = make_sampler("serial", env=dict(episode_length=50, end="timeout"))
    sampler.initialize(RecordingAgent(), seed=0)
    assert len(sampler.samples_np.final_observation) == 1
    assert sampler.update_envs([partial(CountingEnv, episode_length=40, end="timeout")] + [None] * 5) == [0]
    with pytest.raises(ValueError, match="The new environment 1 may be truncated more often"):
        sampler.update_envs([None, partial(CountingEnv, episode_length=4, end="timeout"), None, None, None, None])


class OnceClosingEnv(CountingEnv):
    """Leaves a file of its own in `directory` when it is first closed."""

    def __init__(self, directory, **kwargs):
        super().__init__(**kwargs)
        self.file = os.path.join(directory, uuid.uuid4().hex)

    def close(self):
        open(self.file, "w").close()


@one_of_each
def test_every_environment_is_closed_at_the_end(kind, tmp_path):
    directories = [tmp_path / name for name in ("old", "new")]
    for directory in directories:
        directory.mkdir()
    old, new = (partial(OnceClosingEnv, str(directory)) for directory in directories)
    sampler = make_sampler(kind, EnvCls=old, env={}, eval_n_envs=0)
    sampler.initialize(RecordingAgent(), affinity=KINDS[kind].affinity, seed=0)
    n_examples = len(list(directories[0].iterdir()))
    sampler.update_envs(new)
    assert len(list(directories[0].iterdir())) == n_examples + B and not list(directories[1].iterdir())
    sampler.obtain_samples(0)
    sampler.shutdown()
    assert len(list(directories[1].iterdir())) == B


@one_of_each
@pytest.mark.filterwarnings("ignore:ExistingEnvUpdate")
def test_environments_that_an_update_leaves_open_are_closed_at_the_end_if_the_sampler_made_them(kind, tmp_path):
    def n_closed(name):
        return len(list((tmp_path / name).iterdir()))

    def existing(name):
        return [ExistingEnvUpdate(OnceClosingEnv(str(tmp_path / name))) for _ in range(B)]

    for name in ("made", "given", "given later"):
        (tmp_path / name).mkdir()
    sampler = make_sampler(kind, EnvCls=partial(OnceClosingEnv, str(tmp_path / "made")), env={}, eval_n_envs=0)
    sampler.initialize(RecordingAgent(), affinity=KINDS[kind].affinity, seed=0)
    n_examples = n_closed("made")
    for name in ("given", "given later"):
        sampler.update_envs(existing(name))
        assert n_closed("made") == n_examples and n_closed("given") == n_closed("given later") == 0
    sampler.shutdown()
    assert n_closed("made") == n_examples + B and n_closed("given") == 0 and n_closed("given later") == B


def test_asynchronous_samplers_say_that_their_environments_cannot_be_reached():
    for name in ASYNC_KINDS:
        with pytest.raises(NotImplementedError, match="never stop sampling.*MultiEnvWrapper"):
            make_sampler(name).update_envs(CountingEnv)
    with pytest.raises(NotImplementedError, match="cannot change its environments"):
        BaseSampler.update_envs(make_sampler("serial"), CountingEnv)


# ---------------------------------------------------------------------------------------------------------------------
# Tasks
# ---------------------------------------------------------------------------------------------------------------------
class PointAgent(RecordingAgent):
    """Always moves to the upper right."""

    def step(self, observation, prev_action, prev_reward):
        import torch

        from rlpyt.agents.base import AgentStep

        return AgentStep(action=torch.full((*observation.shape[:-1], 2), 0.1), agent_info=None)

    def value(self, observation, prev_action, prev_reward):
        return observation[..., 0]


POINTS = [partial(PointEnv, goal=(x, x), max_episode_length=6) for x in (0.1, 0.5, 5.0)]


class NamedTrajInfo(TaskTrajInfo):
    task_names = ("near", "middle")


def expected_return(x):
    """Of always moving by 0.1 in both directions from the origin to (x, x), for 6 steps at most."""
    total = 0.0
    for step in range(1, 7):
        distance = np.hypot(0.1 * step - x, 0.1 * step - x)
        total -= distance
        if distance < np.sqrt(0.02):
            break
    return total


@and_spawned
def test_each_column_reports_the_return_of_its_own_task(kind):
    constructors = TaskOnehotWrapper.wrap_env_cons_list(POINTS) * 2
    result = collect(
        kind, PointAgent(), EnvCls=constructors, env={}, T=13, n_batches=2, decorrelation=0, TrajInfoCls=NamedTrajInfo, eval_n_envs=3
    )
    for batch in result.batches:
        np.testing.assert_array_equal(batch.env.env_info.task_id, np.broadcast_to([0, 1, 2, 0, 1, 2], (13, 6)))
        np.testing.assert_array_equal(batch.env.observation[..., 3:], np.broadcast_to(np.eye(3)[[0, 1, 2] * 2], (13, 6, 3)))
    for infos in (*result.infos, *result.evals):
        for name, x in (("near", 0.1), ("middle", 0.5), ("2", 5.0)):
            returns = [info[f"Task{name}Return"] for info in infos if f"Task{name}Return" in info]
            assert returns
            np.testing.assert_allclose(returns, expected_return(x), rtol=1e-4)
        assert all(sum(field.startswith("Task") for field in info) == 1 for info in infos)


@one_of_each
def test_environments_that_tell_no_task_are_refused_where_it_is_to_be_logged(kind, monkeypatch):
    monkeypatch.setattr(multiprocessing.Process, "start", lambda process: pytest.fail("a process was started"))
    sampler = make_sampler(kind, env={}, TrajInfoCls=NamedTrajInfo)
    with pytest.raises(ValueError, match="NamedTrajInfo needs 'task_id' in env_info, which has the fields.*'traj_done'.*TaskNameWrapper"):
        sampler.initialize(RecordingAgent(), affinity=KINDS[kind].affinity, seed=0)


class OwnStep(TaskTrajInfo):
    def step(self, *args):
        self.Length += 1

    def terminate(self, observation):
        return self


@one_of_each
def test_statistics_with_a_step_of_their_own_may_do_without_what_others_sum_up(kind):
    result = collect(kind, env=dict(episode_length=3), TrajInfoCls=OwnStep, n_batches=1, decorrelation=0)
    assert {info.Length for info in result.infos[0]} == {3}


@one_of_each
def test_environments_that_change_their_task_by_themselves_report_it_too(kind):
    together = partial(MultiEnvWrapper, POINTS, round_robin_strategy)
    result = collect(kind, PointAgent(), EnvCls=together, env={}, T=20, n_batches=2, decorrelation=0, TrajInfoCls=TaskTrajInfo)
    for i, x in enumerate((0.1, 0.5, 5.0)):
        returns = [info[f"Task{i}Return"] for infos in result.infos for info in infos if f"Task{i}Return" in info]
        np.testing.assert_allclose(returns, expected_return(x), rtol=1e-4)


@one_of_each
def test_tasks_are_set_between_batches_in_the_environment_that_is_there(kind):
    sampler = make_sampler(kind, EnvCls=partial(PointEnv, goal=(0.1, 0.1), max_episode_length=6), env={}, decorrelation=0, T=7)
    sampler.initialize(PointAgent(), affinity=KINDS[kind].affinity, seed=0)
    try:
        for itr, x in enumerate((0.1, 0.5, 5.0)):
            if itr:
                assert sampler.update_envs(SetTaskUpdate(PointEnv, {"goal": (x, x)})) == list(range(B))
            samples, infos = sampler.obtain_samples(itr)
            np.testing.assert_allclose(samples.env.env_info.task.goal, x)
            np.testing.assert_allclose([info.Return for info in infos], expected_return(x), rtol=1e-4)
    finally:
        sampler.shutdown()


def test_a_task_that_was_set_is_part_of_the_samplers_state():
    def start(goal):
        sampler = make_sampler("serial", EnvCls=partial(PointEnv, goal=goal), env={}, decorrelation=0)
        sampler.initialize(PointAgent(), seed=0)
        return sampler

    sampler, resumed = start((1, 1)), start((1, 1))
    sampler.obtain_samples(0)
    sampler.update_envs([SetTaskUpdate(PointEnv, {"goal": (2, 0)}), NewEnvUpdate(partial(PointEnv, goal=(3, 3))), None, None, None, None])
    assert resumed.load_state_dict(sampler.state_dict()) == [1]
    goals = resumed.obtain_samples(1)[0].env.env_info.task.goal[0]
    np.testing.assert_array_equal(goals, [[2, 0]] + [[1, 1]] * 5)
    for each in (sampler, resumed):
        each.shutdown()
