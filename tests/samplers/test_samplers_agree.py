"""Whatever sampler collects them, the samples are the same."""

import copy
from collections import namedtuple

import numpy as np
import pytest
from agents_for_tests import RecordingAgent
from envs import CountingEnv

from rlpyt.samplers.buffer import get_example_outputs
from rlpyt.samplers.collections import TrajInfo
from rlpyt.samplers.parallel.cpu.sampler import CpuSampler
from rlpyt.samplers.serial.sampler import SerialSampler
from rlpyt.utils.buffer import buffer_func, buffer_leaves, numpify_buffer

ENV = dict(episode_length=[5, 3, 7], end=["terminated", "timeout", "life", "timeout"])
KINDS = {
    "serial": (SerialSampler, None, None),
    "1 worker": (CpuSampler, 1, "fork"),
    "2 workers": (CpuSampler, 2, "fork"),
    "3 workers": (CpuSampler, 3, "fork"),
    "more workers than environments": (CpuSampler, 9, "fork"),
    "spawn": (CpuSampler, 2, "spawn"),
    "forkserver": (CpuSampler, 2, "forkserver"),
}


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


def run(kind, T=6, B=5, n_batches=4, seed=3, TrajInfoCls=TrajInfo, env=ENV, decorrelation=8, **kwargs):
    """Collect batches, with an evaluation in between; return copies of everything a sampler hands over."""
    SamplerCls, n_workers, start_method = KINDS[kind]
    agent = RecordingAgent()
    sampler = SamplerCls(
        EnvCls=CountingEnv,
        env_kwargs=env,
        batch_T=T,
        batch_B=B,
        max_decorrelation_steps=decorrelation,
        TrajInfoCls=TrajInfoCls,
        **{**dict(eval_n_envs=3, eval_max_steps=3 * 30, start_method=start_method), **kwargs},
    )
    affinity = None if n_workers is None else dict(workers_cpus=list(range(n_workers)), set_affinity=False)
    examples = sampler.initialize(agent, affinity=affinity, seed=seed, bootstrap_value=True, traj_info_kwargs=dict(discount=0.5))
    batches, infos, evals = [], [], []
    try:
        for itr in range(n_batches):
            samples, traj_infos = sampler.obtain_samples(itr)
            batches.append(buffer_func(numpify_buffer(samples), np.copy))
            infos.append(copy.deepcopy(traj_infos))
            if itr == 1:
                evals = sampler.evaluate_agent(itr)
    finally:
        sampler.shutdown()
    return batches, infos, evals, examples


@pytest.fixture(scope="module")
def serial():
    return run("serial")


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "serial"])
@pytest.mark.filterwarnings("ignore:9 workers for batch_B=5")
def test_serial_and_cpu_sampler_agree_step_by_step(kind, serial):
    batches, infos, evals, examples = run(kind)
    for ours, theirs in zip(batches, serial[0]):
        assert ours._fields == theirs._fields
        for a, b in zip(buffer_leaves(ours), buffer_leaves(theirs)):
            assert a.dtype == b.dtype
            np.testing.assert_array_equal(a, b)
    assert infos == serial[1] and [type(i) for i in infos[0]] == [type(i) for i in serial[1][0]]
    assert sorted(map(str, evals)) == sorted(map(str, serial[2])) and len(evals) > 3
    assert {name: np.shape(x) for name, x in examples.items() if name != "agent_info"} == {
        name: np.shape(x) for name, x in serial[3].items() if name != "agent_info"
    }


def test_the_same_seed_gives_the_same_samples_and_another_seed_others(serial):
    again, other = run("2 workers"), run("2 workers", seed=4)
    np.testing.assert_array_equal(again[0][-1].env.observation, serial[0][-1].env.observation)
    assert (other[0][-1].env.observation != serial[0][-1].env.observation).any()


def test_no_two_environments_share_a_seed(serial):
    codes = serial[0][0].env.observation[0, :, 0]
    assert len(set(codes)) == len(codes)


@pytest.mark.parametrize("kind", ["serial", "2 workers"])
def test_a_users_traj_info_is_told_about_every_step(kind):
    batches, infos, _, _ = run(kind, TrajInfoCls=TotalAction, decorrelation=0)
    plain = run(kind, decorrelation=0)[1]
    actions = np.concatenate([batch.agent.action for batch in batches])  # [T,B]
    ends = np.concatenate([batch.env.env_info.traj_done for batch in batches])
    expected = sorted(actions[a + 1 : b + 1, col].sum() for col in range(5) for a, b in segments(ends[:, col]))
    assert sorted(i.TotalAction for batch in infos for i in batch) == expected
    assert [i.Return for batch in infos for i in batch] == [i.Return for batch in plain for i in batch]
    assert [i.DiscountedReturn for b in infos for i in b] == pytest.approx([i.DiscountedReturn for b in plain for i in b])
    assert all(i.FirstStep == 0 and i.FinalStep == i.Length for batch in infos for i in batch)


def segments(ends):
    """Pairs of (index before the first step, index of the last step) of complete episodes."""
    at = [-1, *np.flatnonzero(ends)]
    return zip(at, at[1:])


# ---------------------------------------------------------------------------------------------------------------------
# What is in a batch
# ---------------------------------------------------------------------------------------------------------------------
def joined(batches):
    """All batches as one structure along time."""
    fields = ["observation", "reward", "prev_reward", "done", "timeout", "next_observation"]
    env = {name: np.concatenate([getattr(batch.env, name) for batch in batches]) for name in fields}
    info = np.concatenate([batch.env.env_info.traj_done for batch in batches])
    agent = {name: np.concatenate([getattr(batch.agent, name) for batch in batches]) for name in ("action", "prev_action")}
    seen = {name: np.concatenate([getattr(batch.agent.agent_info, name) for batch in batches]) for name in SEEN}
    return env, info, agent, seen


SEEN = ("observation", "prev_action", "prev_reward")


def test_observations_follow_each_other_also_from_batch_to_batch(serial):
    env, _, _, seen = joined(serial[0])
    np.testing.assert_array_equal(env["observation"][1:], env["next_observation"][:-1])
    np.testing.assert_array_equal(seen["observation"], env["observation"])


def test_next_observation_is_the_reset_observation_after_a_trajectory_and_only_then(serial):
    env, traj_done, _, _ = joined(serial[0])
    step, next_step = env["observation"][..., 2], env["next_observation"][..., 2]
    np.testing.assert_array_equal(next_step[traj_done], 0)
    np.testing.assert_array_equal(next_step[~traj_done], step[~traj_done] + 1)
    assert (env["done"] & ~traj_done).any(), "a life must have been lost in this test"


def test_the_agent_sees_nulls_after_done_and_what_is_stored_is_shifted(serial):
    env, _, agent, seen = joined(serial[0])
    np.testing.assert_array_equal(agent["prev_action"][1:6], agent["action"][:5])
    np.testing.assert_array_equal(env["prev_reward"][1:6], env["reward"][:5])
    done = env["done"][:-1]
    np.testing.assert_array_equal(seen["prev_action"][1:], np.where(done, 0, agent["action"][:-1]))
    np.testing.assert_array_equal(seen["prev_reward"][1:], np.where(done, 0, env["reward"][:-1]))
    # Row 0 of a batch is written on its own, nulled already.
    first = serial[0][1]
    np.testing.assert_array_equal(first.agent.prev_action[0], first.agent.agent_info.prev_action[0])
    np.testing.assert_array_equal(first.env.prev_reward[0], first.agent.agent_info.prev_reward[0])


def test_timeouts_are_told_apart_and_what_they_end_with_is_kept(serial):
    n_timeouts = 0
    for batch in serial[0]:
        np.testing.assert_array_equal(batch.env.timeout, batch.env.env_info.timeout)
        assert batch.env.done[batch.env.timeout].all()
        for b in range(batch.env.done.shape[1]):
            for slot, t in enumerate(np.flatnonzero(batch.env.timeout[:, b])):
                final = batch.final_observation[slot, b]
                np.testing.assert_array_equal(final[:2], batch.env.observation[t, b, :2])
                assert final[2] == batch.env.observation[t, b, 2] + 1, "the observation after the last step"
                n_timeouts += 1
    assert n_timeouts > 5


def test_values_of_final_observations_are_recorded_where_episodes_were_truncated(serial):
    for batch in serial[0]:
        expected = np.where(batch.env.timeout, 10 * (batch.env.observation[..., 2] + 1) + batch.env.reward, 0)
        np.testing.assert_array_equal(batch.agent.timeout_value, expected)


def test_bootstrap_value_is_that_of_the_observation_after_the_batch(serial):
    for batch in serial[0]:
        last = batch.env.next_observation[-1, :, 2]
        reward = np.where(batch.env.done[-1], 0, batch.env.reward[-1])
        np.testing.assert_array_equal(batch.agent.bootstrap_value[0], 10 * last + reward)


def test_traj_infos_sum_up_episodes(serial):
    lengths = {5, 3 + 7, 3, 7 + 5, 7}
    for info in (info for infos in serial[1] for info in infos):
        assert info.Length in lengths | {7 + 3, 3 + 5, 5 + 3, 5 + 7}
        assert info.Return == info.Length * (info.Length + 1) / 2 and info.NonzeroRewards == info.Length
        assert info.DiscountedReturn == pytest.approx(sum(0.5**i * (i + 1) for i in range(info.Length)))


def test_without_a_trajectory_signal_done_ends_the_trajectory():
    batches, infos, _, _ = run("serial", env=dict(episode_length=4, end="terminated"), decorrelation=0)
    assert all(info.Length == 4 for batch in infos for info in batch)
    assert sum(map(len, infos)) == sum(batch.env.done.sum() for batch in batches)


def test_no_decorrelation_starts_all_environments_at_their_beginning():
    batches = run("serial", decorrelation=0, n_batches=1)[0]
    np.testing.assert_array_equal(batches[0].env.observation[0, :, 2], 0)


def test_a_horizon_bounds_the_memory_for_final_observations():
    batches = run("2 workers", env=dict(episode_length=4, end="timeout"), T=9)[0]
    assert batches[0].final_observation.shape[:2] == (9 // 4 + 1, 5)
    assert max(batch.env.timeout.sum(0).max() for batch in batches) == 3


# ---------------------------------------------------------------------------------------------------------------------
# Evaluation
# ---------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", ["serial", "2 workers"])
@pytest.mark.parametrize("n_trajectories", [2, 3, 7])
def test_evaluation_plays_exactly_the_episodes_asked_for(kind, n_trajectories):
    env = dict(episode_length=[20, 2], end="terminated")  # Racing to the limit would prefer the short ones.
    evals = run(kind, env=env, eval_max_trajectories=n_trajectories, eval_max_steps=3 * 50)[2]
    assert len(evals) == n_trajectories
    expected = sorted([20, 2, 20][i // 3] for i in range(n_trajectories))
    assert sorted(info.Length for info in evals) == expected


def test_evaluation_stops_at_the_step_limit_and_counts_complete_episodes_only():
    evals = run("serial", env=dict(episode_length=[11, 25], end="terminated"))[2]  # 30 steps per environment.
    assert sorted(info.Length for info in evals) == [11, 11, 11]


def test_evaluation_does_not_disturb_the_training_environments(serial):
    env, traj_done, _, _ = joined(serial[0])
    assert (env["next_observation"][~traj_done][:, 2] == env["observation"][~traj_done][:, 2] + 1).all()


# ---------------------------------------------------------------------------------------------------------------------
# What environments and agents get wrong
# ---------------------------------------------------------------------------------------------------------------------
Info = namedtuple("Info", ["a", "b"])
Swapped = namedtuple("Swapped", ["b", "a"])


class OddEnv(CountingEnv):
    """Goes wrong in its sixth step, in the way it is told."""

    def __init__(self, odd=None):
        super().__init__(episode_length=100)
        self.odd, self.n_steps = odd or {}, 0

    def step(self, action):
        self.n_steps += 1
        step = super().step(action)._replace(env_info=Info(1, 2))
        return step._replace(**self.odd) if self.n_steps == 6 else step


@pytest.mark.parametrize(
    "odd, said",
    [
        (dict(env_info=Swapped(2, 1)), r"env_info: expected the fields \['a', 'b'\].*got fields \['b', 'a'\]"),
        (dict(env_info=dict(a=1, b=2)), "env_info: expected the fields.*got dict"),
        (dict(reward=None), "reward: expected a finite number, got nan"),
        (dict(reward=float("inf")), "reward: expected a finite number, got inf"),
        (dict(observation=np.zeros(3, np.float32)), r"observation: expected shape \(4,\), got \(3,\)"),
        (dict(observation=np.zeros(4, complex)), "observation: expected dtype float32, got complex128"),
    ],
)
def test_what_an_environment_gets_wrong_later_on_is_named_with_environment_and_step(odd, said):
    sampler = SerialSampler(EnvCls=OddEnv, env_kwargs=dict(odd=odd), batch_T=4, batch_B=2, max_decorrelation_steps=0)
    sampler.initialize(RecordingAgent(), seed=0)
    sampler.obtain_samples(0)
    with pytest.raises((ValueError, TypeError), match=said) as info:
        sampler.obtain_samples(1)
    assert "environment 0, step 1 of batch 1 (environment step 5)" in info.value.__notes__[0]
    sampler.shutdown()


class ForgetfulAgent(RecordingAgent):
    def step(self, *inputs):
        step = super().step(*inputs)
        return step if self.n_calls < 3 else step._replace(agent_info=step.agent_info._replace(prev_action=None))


def test_an_agent_that_leaves_out_a_field_of_agent_info_later_on_is_refused():
    sampler = SerialSampler(EnvCls=CountingEnv, env_kwargs={}, batch_T=4, batch_B=2)
    sampler.initialize(ForgetfulAgent(), seed=0)
    with pytest.raises(ValueError, match="agent_info must have the same fields"):
        sampler.obtain_samples(0)


class GreedyHandsEnv(CountingEnv):
    """Changes the action it is given."""

    def step(self, action):
        step = super().step(action)
        action *= 0
        return step


def test_an_environment_that_changes_its_action_changes_nothing_that_is_stored_or_seen():
    class VectorAgent(RecordingAgent):
        def step(self, observation, prev_action, prev_reward):
            step = super().step(observation, prev_action[..., 0], prev_reward)
            return step._replace(action=(step.action.float() + 1)[..., None].expand(*prev_action.shape).clone())

    sampler = SerialSampler(EnvCls=GreedyHandsEnv, env_kwargs=dict(n_actions=0), batch_T=4, batch_B=2, max_decorrelation_steps=0)
    sampler.initialize(VectorAgent(), seed=0)
    samples, _ = sampler.obtain_samples(0)
    assert (samples.agent.action > 0).all()
    np.testing.assert_array_equal(samples.agent.agent_info.prev_action[1:], samples.agent.action[:-1, :, 0])


class MemoryTrajInfo(TrajInfo):
    """Keeps what it is told."""

    def __init__(self):
        super().__init__()
        self._told = []

    def step(self, observation, action, reward, done, agent_info, env_info):
        super().step(observation, action, reward, done, agent_info, env_info)
        self._told.append((observation, action, agent_info))


def test_what_a_traj_info_keeps_is_not_overwritten_by_later_batches():
    infos = run("serial", TrajInfoCls=MemoryTrajInfo, decorrelation=0, T=2)[1]
    told = [info._told for batch in infos for info in batch]
    assert told and all([observation[2] for observation, _, _ in one] == list(range(len(one))) for one in told)
    assert all(agent_info.observation[2] == observation[2] for one in told for observation, _, agent_info in one)


class ClassicEnv:
    """Not an environment of this framework."""

    import gymnasium

    action_space = observation_space = gymnasium.spaces.Discrete(2)

    def reset(self):
        return 0

    def step(self, action):
        return 0, 0.0, False, False, {}


def test_an_environment_of_another_framework_is_pointed_to_its_wrapper():
    sampler = SerialSampler(EnvCls=ClassicEnv, env_kwargs={}, batch_T=4, batch_B=2)
    with pytest.raises(ValueError, match="GymEnvWrapper"):
        get_example_outputs(RecordingAgent(), ClassicEnv(), {})
    sampler.shutdown()


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


# ---------------------------------------------------------------------------------------------------------------------
# Misuse
# ---------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("SamplerCls", [SerialSampler, CpuSampler])
@pytest.mark.parametrize(
    "bad",
    [
        dict(batch_T=0),
        dict(batch_B=0),
        dict(batch_B=2.5),
        dict(eval_n_envs=2),
        dict(eval_n_envs=4, eval_max_steps=3),
        dict(max_decorrelation_steps=-1),
        dict(start_method="thread"),
    ],
)
def test_impossible_settings_are_refused_by_name_before_anything_starts(SamplerCls, bad):
    with pytest.raises(ValueError, match=list(bad)[0]):
        SamplerCls(**{**dict(EnvCls=CountingEnv, env_kwargs={}, batch_T=2, batch_B=2), **bad})


@pytest.mark.parametrize("SamplerCls", [SerialSampler, CpuSampler])
def test_use_before_initialize_and_after_shutdown_says_so(SamplerCls):
    sampler = SamplerCls(EnvCls=CountingEnv, env_kwargs={}, batch_T=2, batch_B=2)
    sampler.shutdown()
    with pytest.raises(RuntimeError, match="initialize"):
        sampler.obtain_samples(0)
    sampler.initialize(RecordingAgent(), affinity=dict(workers_cpus=[0], set_affinity=False), seed=0)
    sampler.obtain_samples(0)
    with pytest.raises(RuntimeError, match="eval_n_envs"):
        sampler.evaluate_agent(0)
    sampler.shutdown()
    sampler.shutdown()
    with pytest.raises(RuntimeError, match="initialize"):
        sampler.obtain_samples(1)


def test_more_workers_than_environments_start_only_as_many_as_are_needed():
    sampler = CpuSampler(EnvCls=CountingEnv, env_kwargs={}, batch_T=2, batch_B=2)
    with pytest.warns(UserWarning, match="3 workers for batch_B=2"):
        sampler.initialize(RecordingAgent(), affinity=dict(workers_cpus=[0, 1, 2], set_affinity=False), seed=0)
    assert len(sampler._pool.processes) == 2
    sampler.shutdown()
