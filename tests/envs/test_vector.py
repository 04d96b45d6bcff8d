"""Adapters of vectors: against the library's own loop, and against single environments."""

import functools
import importlib.util
import warnings

import gymnasium
import numpy as np
import pytest
from agents_for_tests import RandomAgent
from collecting import assert_same, collect
from envs import GymCounting, make_gym_vector
from gymnasium import spaces
from tiers import full

from rlpyt.envs.gym import GymEnvWrapper
from rlpyt.envs.vector import (
    DISABLED,
    NEXT_STEP,
    SAME_STEP,
    GymVectorEnv,
    VectorEnvs,
    as_vector,
    make_ale,
    make_envpool,
)
from rlpyt.samplers.parallel.cpu.collectors import CpuResetCollector, CpuWaitResetCollector
from rlpyt.samplers.serial.sampler import SerialSampler
from rlpyt.utils.buffer import buffer_from_example
from rlpyt.utils.seed import env_seed

needs_envpool = pytest.mark.skipif(importlib.util.find_spec("envpool") is None, reason="EnvPool is not installed.")
MODES = [NEXT_STEP, SAME_STEP, DISABLED]


def memory(vector):
    return buffer_from_example(vector.observation_space.null_value(), (vector.n,), share_memory=False)


class Structured(gymnasium.Env):
    """Nested observations and actions, of all kinds of dtype; infos with arrays and dictionaries."""

    def __init__(self):
        box = spaces.Box(-9, 9, (2, 3), np.float64)
        self.observation_space = spaces.Dict(
            {"a.b": box, "n": spaces.Discrete(7, start=2), "pair": spaces.Tuple((box, spaces.MultiBinary(3)))}
        )
        self.action_space = spaces.Dict({"x": spaces.Box(-1, 1, (2,), np.float64), "k": spaces.Discrete(4, start=1)})

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self.t = 0
        return self.observation_space.sample(), self.info(np.zeros(2))

    def info(self, x):
        return dict(t=self.t, inner=dict(x=np.array(x, np.float32), half=self.t / 2), name="left out")

    def step(self, action):
        assert self.action_space.contains(action)
        self.t += 1
        return self.observation_space.sample(), float(action["x"].sum() + action["k"]), self.t == 3, False, self.info(action["x"])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.filterwarnings("ignore:Not numbers")
def test_structures_are_translated_as_for_single_environments(mode):
    vector = as_vector(gymnasium.vector.SyncVectorEnv([Structured] * 2, autoreset_mode=mode))
    single = GymEnvWrapper(Structured())
    out, space = memory(vector), single.action_space
    for each, seed in ((vector, [5, 6]), (single, 6)):
        each.seed(seed)
    vector.reset_into(out)
    equal = functools.partial(np.testing.assert_equal)
    equal([np.asarray(leaf) for leaf in flat(out[1])], [np.asarray(leaf) for leaf in flat(single.reset())])
    for _ in range(3):
        action = space.sample()
        actions = buffer_from_example(action, (2,), share_memory=False)
        actions[:] = action
        step = vector.step_into(actions, out)
        observation, reward, done, env_info = single.step(action)
        assert (step.reward[1], step.terminated[1]) == (reward, done)
        equal([leaf[1] for leaf in flat(step.infos)], flat(env_info)[:-1])
        got = step.final_observation if mode == SAME_STEP and done else out
        equal([np.asarray(leaf) for leaf in flat(got[1])], [np.asarray(leaf) for leaf in flat(observation)])
        assert [leaf.dtype for leaf in flat(out)] == [np.asarray(leaf).dtype for leaf in flat(observation)]
    vector.close()


def flat(x):
    return [leaf for part in x for leaf in flat(part)] if isinstance(x, tuple) else [x]


@pytest.mark.parametrize("mode", MODES)
def test_infos_that_appear_only_at_the_end_of_episodes_need_an_example(mode):
    def wrapped(num_envs):
        vector = gymnasium.wrappers.vector.RecordEpisodeStatistics(make_gym_vector(num_envs, mode, lengths=(3,)))
        return GymVectorEnv(vector, info_example=dict(length=0, episode=dict(r=0.0, l=0)))

    vector = VectorEnvs(wrapped)(num_envs=2)
    out = memory(vector)
    vector.seed([1, 2])
    vector.reset_into(out)
    for t in range(3):
        infos = vector.step_into(np.zeros(2, int), out).infos
        is_end = t == 2
        assert infos.length.tolist() == [3 * is_end] * 2 and infos.episode.l.tolist() == [3 * is_end] * 2
        np.testing.assert_allclose(infos.episode.r, 2.0 * is_end)
        assert infos.step.tolist() == [t + 1] * 2


class Bandit(gymnasium.Env):
    """Infos of resets have other fields than those of steps, and `dtype`. Random numbers come from a generator of its own."""

    observation_space, action_space = spaces.Box(-100, 100, (1,), np.float32), spaces.Discrete(2)
    seed = 5  # No method.

    def __init__(self, lengths, dtype=float):
        self.lengths, self.dtype, self.rng = lengths, dtype, np.random.default_rng()

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t, self.length = 0, self.rng.integers(*self.lengths, endpoint=True)
        return np.zeros(1, np.float32), {"arm": 3, "regret": np.dtype(self.dtype).type(0)}

    def step(self, action):
        self.t += 1
        return self.rng.normal(size=1).astype(np.float32), 1.0, bool(self.t >= self.length), False, {"regret": 0.5}


@pytest.mark.parametrize("lengths", [(1, 1), (1, 3), (3, 3)])
@pytest.mark.parametrize("mode", MODES)
def test_infos_are_those_of_steps_and_random_numbers_those_of_single_environments(mode, lengths):
    def make_vector(num_envs):
        return gymnasium.vector.SyncVectorEnv([lambda: Bandit(lengths)] * num_envs, autoreset_mode=mode)

    def batch(EnvCls):
        sampler = SerialSampler(EnvCls, {}, batch_T=8, batch_B=3, max_decorrelation_steps=0)
        sampler.initialize(RandomAgent(), seed=4)
        samples, _ = sampler.obtain_samples(0)
        sampler.shutdown()
        return samples

    samples, single = batch(VectorEnvs(make_vector)), batch(lambda: Bandit(lengths))
    assert samples.env.env_info._fields == ("regret", "timeout")
    valid = np.ones((8, 3), bool) if samples.env.valid is None else samples.env.valid.numpy()
    assert np.array_equal(samples.env.env_info.regret.numpy(), valid * 0.5)
    if valid.all():
        np.testing.assert_array_equal(samples.env.observation, single.env.observation)
        np.testing.assert_array_equal(samples.env.done, single.env.done)


def test_infos_of_resets_with_other_dtypes_are_told_and_not_those_of_last_steps():
    vector = gymnasium.vector.SyncVectorEnv([lambda: Bandit((2, 2), int)] * 2, autoreset_mode=SAME_STEP)
    with pytest.warns(UserWarning, match=r"regret.*return them with the same dtype"):
        vector = GymVectorEnv(vector)
    out = memory(vector)
    vector.reset_into(out)
    assert [vector.step_into(np.zeros(2, int), out).infos.regret.tolist() for _ in range(3)] == [[0.5, 0.5]] * 3
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        GymVectorEnv(gymnasium.vector.SyncVectorEnv([lambda: Bandit((2, 2), int)], autoreset_mode=SAME_STEP))  # Nothing to merge with.
        GymVectorEnv(gymnasium.vector.SyncVectorEnv([lambda: Bandit((2, 2), int)] * 2, autoreset_mode=DISABLED))


class AddsTotals(gymnasium.vector.VectorWrapper):
    """Adds the steps so far to the infos of resets and of steps."""

    def reset(self, **kwargs):
        observation, infos = self.env.reset(**kwargs)
        self.totals = np.zeros(self.num_envs, int)
        return observation, dict(infos, total=self.totals.copy())

    def step(self, actions):
        *outcome, infos = self.env.step(actions)
        assert self.env.call("seed") == (5,) * self.num_envs  # Attributes of environments can be read as always.
        self.totals += 1
        return *outcome, dict(infos, total=self.totals.copy())


@pytest.mark.parametrize("lengths", [[1, 1], [2, 3]])
@pytest.mark.parametrize("mode", [NEXT_STEP, SAME_STEP])
def test_infos_that_a_wrapper_of_the_vector_adds_are_kept_at_last_steps(mode, lengths):
    inner = gymnasium.vector.SyncVectorEnv([lambda n=n: Bandit((n, n)) for n in lengths], autoreset_mode=mode)
    vector = GymVectorEnv(AddsTotals(inner))
    out = memory(vector)
    vector.reset_into(out)
    steps = [vector.step_into(np.zeros(2, int), out).infos for _ in range(4)]
    assert [infos.total.tolist() for infos in steps] == [[t, t] for t in (1, 2, 3, 4)] and steps[0]._fields == ("regret", "total")


def test_a_reset_that_overwrites_the_last_observation_is_told():
    class Reusing(GymCounting):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self.memory = np.zeros(4, np.float32)

        def reset(self, **kwargs):
            self.memory[...], info = super().reset(**kwargs)
            return self.memory, info

        def step(self, action):
            self.memory[...], *outcome = super().step(action)
            return self.memory, *outcome

    class Constant(GymCounting):
        """The same memory, in which nothing is lost."""

        constant = np.ones(4, np.float32)

        def _observation(self):
            return self.constant

    class Copying(Reusing):
        def step(self, action):
            observation, *outcome = super().step(action)
            return observation.copy(), *outcome

    def last(cls, mode=SAME_STEP):
        vector = GymVectorEnv(gymnasium.vector.SyncVectorEnv([lambda: cls(lengths=(2,))] * 2, autoreset_mode=mode))
        out = memory(vector)
        vector.reset_into(out)
        return [vector.step_into(np.zeros(2, int), out) for _ in range(2)][-1]

    assert last(Reusing, NEXT_STEP).terminated is not None
    for cls in (Copying, Constant):
        assert last(cls).final_observation is not None
    with pytest.raises(ValueError, match=r"last observation of an episode is lost. Return copies"):
        last(Reusing)


@pytest.mark.parametrize("CollectorCls", [CpuResetCollector, CpuWaitResetCollector])
@pytest.mark.parametrize("mode", MODES)
def test_gymnasiums_statistics_of_episodes_are_those_of_the_sampler(mode, CollectorCls):
    def wrapped(num_envs):
        vector = gymnasium.vector.SyncVectorEnv(
            [functools.partial(GymCounting, lengths=(3 + i,)) for i in range(num_envs)], autoreset_mode=mode
        )
        vector = gymnasium.wrappers.vector.RecordEpisodeStatistics(vector)
        return GymVectorEnv(vector, info_example=dict(length=0, episode=dict(r=0.0, l=0)))

    sampler = SerialSampler(VectorEnvs(wrapped), {}, batch_T=4, batch_B=3, max_decorrelation_steps=0, CollectorCls=CollectorCls)
    sampler.initialize(RandomAgent(), seed=3)
    own, theirs = [], []
    for itr in range(9):
        samples, infos = sampler.obtain_samples(itr)
        lengths = samples.env.env_info.episode.l
        theirs += lengths[lengths > 0].tolist()
        own += [info["Length"] for info in infos]
    sampler.shutdown()
    assert sorted(own) == sorted(theirs) and len(set(own)) == 3


@pytest.mark.parametrize("wrapper", ["around all", "around each"])
def test_normalized_observations_are_those_of_gymnasium_with_the_same_seed(wrapper):
    def make_normalized():
        if wrapper == "around each":
            return gymnasium.make_vec("CartPole-v1", 2, "sync", wrappers=[gymnasium.wrappers.NormalizeObservation])
        return gymnasium.wrappers.vector.NormalizeObservation(gymnasium.make_vec("CartPole-v1", 2, "sync"))

    vector, bare = GymVectorEnv(make_normalized()), make_normalized()
    vector.seed([3, 4])
    observations = np.zeros((2, 4), np.float32)
    vector.reset_into(observations)
    np.testing.assert_allclose(observations, bare.reset(seed=[3, 4])[0], rtol=1e-6)
    for i in range(30):
        actions = np.array([i % 2, 1])
        vector.step_into(actions, observations)
        np.testing.assert_allclose(observations, bare.step(actions)[0], rtol=1e-6)


def test_a_vector_without_lists_of_seeds_gets_the_first_one():
    vectors = [VectorEnvs(gymnasium.make_vec)(num_envs=3, id="CartPole-v1", vectorization_mode="vector_entry_point") for _ in range(2)]
    outs = [memory(vector) for vector in vectors]
    for vector, out in zip(vectors, outs):
        vector.seed([4, 5, 6])
        vector.reset_into(out)
    np.testing.assert_array_equal(*outs)
    assert outs[0].any() and vectors[0].horizon == 500 and not vectors[0].resets_some


@pytest.mark.parametrize(
    "make, error, message",
    [
        (lambda: VectorEnvs(3), TypeError, "needs a function that makes a vector"),
        (lambda: VectorEnvs(make_gym_vector, n=0), ValueError, "n=0 must be a number of environments"),
        (lambda: VectorEnvs(lambda num_envs: GymCounting())(num_envs=2), TypeError, "is no vector"),
        (lambda: make_ale("pongg"), ValueError, "game='pongg' is no game of ale-py. Did you mean 'pong'"),
        (
            lambda: VectorEnvs(make_ale)(num_envs=2, game="pong", batch_size=1),
            ValueError,
            "batch_size=1 of AtariVectorEnv must be left out",
        ),
    ],
)
def test_what_is_no_vector_is_told(make, error, message):
    with pytest.raises(error, match=message):
        make()


def sampled(make, env_kwargs, T=30, n_batches=4, B=2, seed=3):
    """Sample with random actions; return batches, TrajInfos, and the seeds of environments."""
    sampler = SerialSampler(VectorEnvs(make), env_kwargs, batch_T=T, batch_B=B, max_decorrelation_steps=0, keep_terminal_observations=True)
    sampler.initialize(RandomAgent(), seed=seed)
    batches, infos = [], []
    for itr in range(n_batches):
        samples, traj_infos = sampler.obtain_samples(itr)
        batches.append(_copied(samples))
        infos += traj_infos
    sampler.shutdown()
    return batches, infos, [env_seed(seed, "train_env", b) for b in range(B)]


def _copied(x):
    if isinstance(x, tuple):
        return x._make(map(_copied, tuple(x)))
    return None if x is None else x.numpy().copy()


def check_replay(batches, infos, reset, step, b):
    """Replay the recorded actions of column `b` in a fresh environment with `reset` and `step` of the library, one row after the other."""
    observation, blank, lengths, returns = reset(), False, 0, 0.0
    episodes = []
    for batch in batches:
        env = batch.env
        n_final = n_terminal = 0
        for t in range(len(env.reward)):
            valid = env.valid is None or env.valid[t, b]
            assert valid == (not blank)
            if valid:
                np.testing.assert_array_equal(env.observation[t, b], observation)
            observation, reward, terminated, truncated = step(batch.agent.action[t, b])
            if not valid:
                assert env.done[t, b] and env.reward[t, b] == 0
                blank = False
                continue
            assert env.reward[t, b] == np.float32(reward) and env.done[t, b] == (terminated or truncated)
            assert env.timeout[t, b] == (truncated and not terminated)
            lengths, returns = lengths + 1, returns + float(np.float32(reward))
            if env.done[t, b]:
                slots, k = (batch.final_observation, n_final) if env.timeout[t, b] else (batch.terminal_observation, n_terminal)
                np.testing.assert_array_equal(slots[k, b], observation)
                n_final, n_terminal = n_final + env.timeout[t, b], n_terminal + (not env.timeout[t, b])
                episodes.append((lengths, returns))
                lengths, returns, blank = 0, 0.0, True
    assert episodes and set(episodes) <= {(info.Length, info.Return) for info in infos}


@full
def test_ale_is_sampled_as_its_own_loop_would_see_it():
    from ale_py.vector_env import AtariVectorEnv

    settings = dict(max_num_frames_per_episode=120, num_threads=1)
    batches, infos, seeds = sampled(make_ale, dict(game="breakout", **settings))
    for b in range(2):
        fresh = AtariVectorEnv("breakout", 1, **settings)
        check_replay(
            batches,
            infos,
            lambda fresh=fresh, b=b: fresh.reset(seed=np.array([seeds[b] % 2**31]))[0][0],
            lambda action, fresh=fresh: [part[0] for part in fresh.step(np.array([action]))[:4]],
            b,
        )
        fresh.close()


@needs_envpool
@pytest.mark.parametrize("batch_size", [None, 1])
@pytest.mark.parametrize("task_id", ["CartPole-v1", pytest.param("Pong-v5", marks=full)])
def test_envpool_is_sampled_as_its_own_loop_would_see_it(task_id, batch_size):
    import envpool

    settings = dict(task_id=task_id, max_episode_steps=17)
    batches, infos, seeds = sampled(make_envpool, dict(settings, batch_size=batch_size))
    for b in range(2):
        fresh = envpool.make(env_type="gymnasium", num_envs=1, seed=[seeds[b] % 2**31], **settings)
        check_replay(
            batches,
            infos,
            lambda fresh=fresh: fresh.reset()[0][0],
            lambda action, fresh=fresh: [part[0] for part in fresh.step(np.array([action]))[:4]],
            b,
        )
        fresh.close()


@needs_envpool
@pytest.mark.parametrize("batch_size", [1, 3, 4])
def test_envpool_is_sampled_alike_if_the_agent_acts_for_those_that_are_ready(batch_size):
    def batches(**kwargs):
        env = dict(task_id="Acrobot-v1", max_episode_steps=13, **kwargs)
        return collect("serial", "recurrent", EnvCls=VectorEnvs(make_envpool), env=env, B=4, T=9, decorrelation=5, evaluate_after=(1,))

    assert_same(batches(batch_size=batch_size), batches())


@needs_envpool
def test_what_envpool_does_not_know_or_check_is_told():
    import envpool

    with pytest.raises(ValueError, match="task_id='CartPoll-v1' is no task of EnvPool. Did you mean 'CartPole-v1'"):
        make_envpool("CartPoll-v1")
    vector = make_envpool("CartPole-v1", 2)
    with pytest.raises(ValueError, match="expected numbers from 0 to 1"):
        vector.step_into(np.array([0, 2]), memory(vector))
    with pytest.raises(ValueError, match="batch_size=0 must be a number of environments, at least 1"):
        make_envpool("CartPole-v1", 2, batch_size=0)
    with pytest.raises(TypeError, match="has no setting 'max_episode_step'. Did you mean 'max_episode_steps'"):
        make_envpool("CartPole-v1", 2, max_episode_step=17)
    with pytest.raises(TypeError, match="give VectorEnvs.make_envpool."):
        as_vector(envpool.make("CartPole-v1", env_type="gymnasium", num_envs=2))


def test_vectors_that_reset_twice_are_refused():
    vector = gymnasium.vector.AsyncVectorEnv([GymCounting] * 2, shared_memory=False)
    try:
        with pytest.raises(ValueError, match="choose shared_memory=True, or autoreset_mode='SameStep'"):
            GymVectorEnv(vector)
    finally:
        vector.close()


@pytest.mark.skipif(importlib.util.find_spec("envpool") is not None, reason="EnvPool is installed.")
def test_without_envpool_it_is_told_how_to_install_it():
    with pytest.raises(ImportError, match=r"make_envpool needs packages that are not installed \(envpool\)"):
        make_envpool("CartPole-v1")


class EndsAlone(gymnasium.vector.VectorEnv):
    """Two environments with observations from 1, of which one ends earlier. Last observations of the other one are zeros."""

    metadata = dict(autoreset_mode=SAME_STEP)
    num_envs = 2
    single_observation_space = gymnasium.spaces.MultiDiscrete([9, 9], start=[1, 1])
    single_action_space = gymnasium.spaces.Discrete(2)
    observation_space = gymnasium.vector.utils.batch_space(single_observation_space, 2)
    action_space = gymnasium.vector.utils.batch_space(single_action_space, 2)

    def reset(self, *, seed=None, options=None):
        self.t = np.zeros(2, int)
        return np.full((2, 2), 1), {}

    def step(self, actions):
        self.t += 1
        ended = self.t >= [3, 5]
        last = np.where(ended[:, None], 1 + np.stack([self.t, self.t], axis=1), 0)
        self.t[ended] = 0
        observations = 1 + np.stack([self.t, self.t], axis=1)
        infos = dict(final_obs=last, _final_obs=ended) if ended.any() else {}
        return observations, np.ones(2), np.zeros(2, bool), ended, infos


def test_last_observations_of_environments_that_go_on_may_be_anything():
    vector = GymVectorEnv(EndsAlone())
    out = memory(vector)
    vector.reset_into(out)
    steps = [vector.step_into(np.zeros(2, int), out) for _ in range(3)]
    assert [step.final_observation is None for step in steps] == [True, True, False]
    assert steps[-1].final_observation[0].tolist() == [3, 3]
