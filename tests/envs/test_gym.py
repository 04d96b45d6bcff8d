import pickle
import re
import subprocess
import sys
import threading
import warnings
from functools import partial

import envs
import gymnasium
import numpy as np
import pytest
from absent import make_absent
from envs import ClassicGymEnv, ReusingGymEnv, StructuredGymEnv, WalkGymEnv
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit

from rlpyt.envs import gym, gym_schema
from rlpyt.envs.base import EnvStep, fast_reset, fast_step
from rlpyt.envs.gym import EnvInfoWrapper, GymEnvWrapper, build_info_tuples, infill_info, info_to_nt, make
from rlpyt.envs.gym_env import GymEnv
from rlpyt.experiments.envs import make_partial, make_scaled

BOTH = pytest.mark.parametrize("module", [gym, gym_schema])


class ScriptedEnv(gymnasium.Env):
    """Plays back what it is given: a function of the step (from 1) for each part of the outcome."""

    observation_space = spaces.Box(-10, 10, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, observation=None, reward=lambda t: 0.5, terminated=lambda t: False, truncated=lambda t: False, info=lambda t: {}):
        self.script = observation or (lambda t: np.zeros(2, np.float32)), reward, terminated, truncated, info

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self.script[0](0), {}

    def step(self, action):
        self.t += 1
        return tuple(part(self.t) for part in self.script)


def step_through(env, n, action=0):
    env.reset()
    return [env.step(action) for _ in range(n)]


# ---------------------------------------------------------------------------------------------------------------------
# Returns and episode ends
# ---------------------------------------------------------------------------------------------------------------------
@BOTH
def test_the_same_numbers_come_out_as_from_the_bare_environment(module):
    env, bare = module.make("CartPole-v1"), gymnasium.make("CartPole-v1")
    env.seed(5)
    observation, _ = bare.reset(seed=5)
    assert (env.reset() == observation).all()
    done = False
    while not done:
        action = env.action_space.sample()
        observation, reward, done, info = env.step(action)
        expected, expected_reward, terminated, truncated, _ = bare.step(action)
        assert (observation == expected).all() and reward == expected_reward and done == (terminated or truncated)
        assert info.timeout is (truncated and not terminated)
    env.reset()
    assert isinstance(env.step(0), EnvStep)


@pytest.mark.parametrize(
    "terminated, truncated, done, timeout",
    [(False, False, False, False), (True, False, True, False), (False, True, True, True), (True, True, True, False)],
)
def test_timeout_means_truncated_and_not_terminated(terminated, truncated, done, timeout):
    env = GymEnvWrapper(ScriptedEnv(terminated=lambda t: np.bool_(terminated), truncated=lambda t: np.bool_(truncated)))
    (step,) = step_through(env, 1)
    assert step.done is done and step.env_info.timeout is timeout


def test_a_classic_environment_gives_the_same_as_its_gymnasium_twin():
    classic, modern = envs.make_classic(), envs.make_walk()
    for env in (classic, modern):
        env.seed(11)
    n_timeouts = 0
    for _ in range(30):
        done = False
        assert (classic.reset() == modern.reset()).all()
        while not done:
            action = modern.action_space.sample()
            one, two = classic.step(action), modern.step(action)
            assert (one.observation == two.observation).all()
            assert one[1:] == two[1:]
            done = one.done
        n_timeouts += one.env_info.timeout
    assert 0 < n_timeouts < 30


def test_a_classic_reset_may_return_a_pair_that_is_an_observation():
    class Pair(ClassicGymEnv):
        observation_space = spaces.Tuple((spaces.Box(-1, 1, (1,)), spaces.Dict({"a": spaces.Discrete(2)})))

        def reset(self):
            super().reset()
            return np.zeros(1, np.float32), {"a": 1}

        def step(self, action):
            return self.reset(), *super().step(action)[1:]

    observation = GymEnvWrapper(Pair()).reset()
    assert observation.item_1.a == 1


def test_a_step_of_another_form_is_refused():
    class Odd(ScriptedEnv):
        def step(self, action):
            return super().step(action)[:3]

    with pytest.raises(TypeError, match="must return"):
        GymEnvWrapper(Odd())


@pytest.mark.parametrize("ended", ["False", np.nan, 2], ids=str)
def test_a_classic_environment_says_whether_time_ran_out_by_true_or_false(ended):
    class Unclear(ClassicGymEnv):
        def step(self, action):
            observation, reward, done, info = super().step(action)
            return observation, reward, done, {**info, "TimeLimit.truncated": ended} if done else info

    env = GymEnvWrapper(Unclear())
    env.reset()
    with pytest.raises(TypeError, match=r"info\['TimeLimit.truncated'\]: expected True or False, got "):
        for _ in range(1000):
            assert not env.step(env.action_space.sample()).done


@pytest.mark.parametrize("later, said", [(lambda result: result[:4], "4 values, as in classic gym"), (lambda result: None, "NoneType")])
def test_a_step_of_another_form_later_is_refused_in_a_sentence(later, said):
    class OddLater(ScriptedEnv):
        def step(self, action):
            result = super().step(action)
            return later(result) if self.t == 2 else result

    for method in ("step", "bind_step"):
        env = GymEnvWrapper(OddLater())
        env.reset()
        step = env.step if method == "step" else lambda action, env=env: env.bind_step()(action, np.zeros(2, np.float32))
        step(0)
        with pytest.raises(ValueError, match=rf"step\(\) of OddLater must return observation, reward, .* It returned {said}"):
            step(0)


@pytest.mark.parametrize("reward", [1, 1.5, np.float32(1.5), np.float64(1.5), np.array(1), np.array([1.5]), True])
def test_rewards_of_any_numeric_type_become_floats(reward):
    (step,) = step_through(GymEnvWrapper(ScriptedEnv(reward=lambda t: reward)), 1)
    assert type(step.reward) is float and step.reward == float(np.asarray(reward).item())


@pytest.mark.parametrize("reward", [None, "1", np.zeros(2), [1, 2]])
def test_what_is_not_one_number_is_refused_as_reward(reward):
    with pytest.raises(TypeError, match="reward: expected one number, got " + re.escape(repr(reward))):
        GymEnvWrapper(ScriptedEnv(reward=lambda t: reward))


@pytest.mark.parametrize("name", ["terminated", "truncated", "done"])
@pytest.mark.parametrize("flag", [None, "False", float("nan"), 7, np.zeros(2, bool)], ids=str)
def test_what_is_no_flag_is_refused_by_name_at_once_and_later(name, flag):
    for first in (1, 3):
        env = ScriptedEnv(**{name.replace("done", "terminated"): lambda t, first=first: flag if t >= first else np.bool_(False)})
        if name == "done":
            env = Classic(env)
        with pytest.raises(TypeError, match=rf"{name}: expected True or False, got {re.escape(repr(flag))}"):
            step_through(GymEnvWrapper(env), 5)


class Classic:
    """Steps as those of classic gym are."""

    def __init__(self, env):
        self.env, self.action_space, self.observation_space = env, env.action_space, env.observation_space

    def reset(self):
        return self.env.reset()[0]

    def step(self, action):
        observation, reward, terminated, _, info = self.env.step(action)
        return observation, reward, terminated, info


def test_a_reward_that_is_missing_later_is_refused_at_that_step():
    env = GymEnvWrapper(ScriptedEnv(reward=lambda t: None if t == 2 else 1.0))
    env.reset()
    env.step(0)
    with pytest.raises(TypeError, match="got None"):
        env.step(0)


# ---------------------------------------------------------------------------------------------------------------------
# Observations and actions
# ---------------------------------------------------------------------------------------------------------------------
def test_a_mismatch_later_than_the_first_step_names_field_expected_and_got():
    for wrong, error, message in (
        (np.zeros(3, np.float32), ValueError, r"observation: expected shape \(2,\), got \(3,\)"),
        (np.zeros(2, complex), TypeError, "observation: expected dtype float32, got complex128"),
        ({"a": 1}, ValueError, r"observation: expected shape"),
    ):
        env = GymEnvWrapper(ScriptedEnv(observation=lambda t, wrong=wrong: wrong if t == 3 else np.zeros(2, np.float32)))
        out = np.zeros(2, np.float32)
        for step in (env.step, lambda action, env=env, out=out: fast_step(env)(action, out)):
            env.reset()
            step(0), step(0)
            with pytest.raises(error, match=message):
                step(0)


def test_a_first_observation_that_contradicts_the_space_is_refused_at_construction():
    with pytest.raises(ValueError, match=r"observation: expected shape \(2,\), got \(5,\)"):
        GymEnvWrapper(ScriptedEnv(observation=lambda t: np.zeros(5, np.float32)))


def test_safe_casts_are_done_with_one_warning():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        env = GymEnvWrapper(ScriptedEnv(observation=lambda t: np.full(2, 0.5)))
        steps = step_through(env, 3)
        out = np.zeros(2, np.float32)
        env.step_into(0, out)
    assert len(caught) == 1 and "observation: the space says float32 but the values are float64" in str(caught[0].message)
    assert steps[0].observation.dtype == np.float32 and (out == 0.5).all()


def test_a_batch_is_not_corrupted_by_an_environment_that_reuses_its_memory():
    env, twin = GymEnvWrapper(ReusingGymEnv()), GymEnvWrapper(WalkGymEnv())
    batch = np.zeros((11, 2), np.float32)
    for e in (env, twin):
        e.seed(0)
    fast_reset(env)(batch[0])
    expected = [twin.reset()]
    for t in range(10):
        fast_step(env)(np.zeros(1), batch[t + 1])
        expected.append(twin.step(np.zeros(1)).observation)
    assert (batch == np.stack(expected)).all()


OUTCOMES = {
    "plain": lambda t: (np.full(2, t, np.float32), 0.5, False, False, {}),
    "terminated": lambda t: (np.full(2, t, np.float32), 0.5, True, False, {}),
    "truncated": lambda t: (np.full(2, t, np.float32), 0.5, False, True, {}),
    "both": lambda t: (np.full(2, t, np.float32), 0.5, True, True, {}),
    "numpy's numbers": lambda t: (np.full(2, t, np.float32), np.float32(0.5), np.bool_(t == 1), np.bool_(t == 2), {}),
    "an integer as reward": lambda t: (np.full(2, t, np.float32), 1, 0, 1, {}),
    "a list as observation": lambda t: ([t, t + 1], 0.5, False, False, {}),
    "info": lambda t: (np.full(2, t, np.float32), 0.5, False, t == 2, {"x": t}),
}


@pytest.mark.parametrize("name", OUTCOMES)
def test_what_samplers_call_gives_the_same_as_step(name):
    class Outcomes(ScriptedEnv):
        t = 0

        def step(self, action):
            self.t += 1
            return OUTCOMES[name](self.t)

    env, other, third = (GymEnvWrapper(Outcomes()) for _ in range(3))
    assert fast_step(env) != env.step_into, "one that was made for many steps"
    calls, out = (fast_step(env), third.step_into), np.zeros(2, np.float32)
    for _ in range(4):
        step = other.step(0)
        for call in calls:
            outcome = call(0, out)
            assert outcome == (step.reward, step.done, step.env_info)
            assert [type(x) for x in outcome] == [float, bool, type(step.env_info)] and type(outcome[2].timeout) is bool
            assert (out == step.observation).all()


def test_an_environment_that_is_made_anew_at_each_reset_is_the_one_that_is_stepped():
    class Anew(GymEnvWrapper):
        def _reset(self):
            self.env = ScriptedEnv(observation=lambda t: np.full(2, t, np.float32))
            return super()._reset()

    env, out = Anew(ScriptedEnv()), np.zeros(2, np.float32)
    call = fast_step(env)
    for _ in range(2):
        env.reset()
        call(0, out), call(0, out)
        assert (out == 2).all()


def test_structured_observations_and_actions():
    env = envs.make_structured()
    observation, reward, _, _ = [env.reset(), env.step(env.action_space.null_value())][1]
    assert observation._fields == ("camera_left", "goal", "joints")
    assert observation.joints.item_0.dtype == np.float32
    assert reward == 3.0  # the second tool is Discrete(3, start=3), and its null value index 0
    with pytest.raises(AssertionError, match="is not in"):
        env.step(env.action_space.sample()._replace(move=np.full(2, 5.0)))


def test_null_values():
    env = GymEnvWrapper(WalkGymEnv(), act_null_value=0.5, obs_null_value=-1)
    assert env.action_space.null_value().tolist() == [0.5]
    assert env.observation_space.null_value().tolist() == [-1, -1]


def test_float64_can_be_kept():
    env = GymEnvWrapper(WalkGymEnv(), force_float32=False)
    assert env.reset().dtype == env.observation_space.dtype == np.float64


def test_an_overridden_step_takes_effect():
    class Louder(GymEnvWrapper):
        def step(self, action):
            step = super().step(action)
            return step._replace(reward=step.reward + 10)

    env = Louder(ScriptedEnv())
    env.reset()
    assert fast_step(env)(0, np.zeros(2, np.float32))[0] == 10.5


# ---------------------------------------------------------------------------------------------------------------------
# env_info
# ---------------------------------------------------------------------------------------------------------------------
@BOTH
def test_info_becomes_a_nested_namedtuple_with_a_timeout(module):
    env = module.GymEnvWrapper(StructuredGymEnv())
    env.seed(0)
    env.reset()
    infos = [env.step(env.action_space.sample()).env_info for _ in range(4)]
    assert infos[0]._fields == ("energy_used", "parts", "timeout")
    assert infos[0].parts._fields == ("left", "right")
    assert [info.energy_used for info in infos] == [0.5, 1.0, 1.5, 2.0]
    assert [info.parts.left for info in infos] == [1, 2, 3, 4]
    assert pickle.loads(pickle.dumps(infos[0]))._fields == infos[0]._fields


@BOTH
def test_late_keys_are_ignored_and_vanishing_ones_are_zero_not_stale(module):
    def info(t):
        if t == 2:
            return {"b": {"x": 2.0}, "late": 1}
        if t == 3:
            return {"a": None}
        return {"a": float(t), "b": {"x": 1.0, "y": np.ones(2)}, "n": t}

    infos = [step.env_info for step in step_through(module.GymEnvWrapper(ScriptedEnv(info=info)), 4)]
    assert infos[1]._fields == ("a", "b", "n", "timeout")
    assert (infos[1].a, infos[1].b.x, infos[1].n) == (0.0, 2.0, 0) and infos[1].b.y.tolist() == [0, 0]
    assert (infos[2].a, infos[2].b.x, infos[2].n) == (0.0, 0.0, 0) and infos[2].b.y.tolist() == [0, 0]
    assert (infos[3].a, infos[3].n) == (4.0, 4) and infos[3].b.y.tolist() == [1, 1]
    assert type(infos[1].n) is int and infos[1].b.y.dtype == np.float64


def test_strings_and_objects_are_dropped_with_one_warning_that_names_them():
    def info(t):
        return {"name": "pole", "x": 1.0, "thing": object(), "ragged": [[1], [1, 2]], "nothing": None}

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        steps = step_through(GymEnvWrapper(ScriptedEnv(info=info)), 3)
    assert steps[-1].env_info._fields == ("x", "timeout")
    assert len(caught) == 1
    assert "info keys 'name', 'thing', 'ragged', 'nothing'" in str(caught[0].message)


def test_info_that_changes_its_kind_names_key_expected_and_got():
    env = GymEnvWrapper(ScriptedEnv(info=lambda t: {"score": 0 if t == 1 else 0.5}))
    env.reset()
    env.step(0)
    with pytest.raises(ValueError, match=r"info\['score'\]: expected dtype int64 and shape \(\) as at the first step, got 0.5"):
        env.step(0)
    env = GymEnvWrapper(ScriptedEnv(info=lambda t: {"x": 1.0 if t == 1 else "text"}))
    env.reset()
    env.step(0)
    with pytest.raises(ValueError, match=r"info\['x'\].* got 'text'"):
        env.step(0)
    for later, said in (
        (5, r"info\['x'\]: expected a dictionary with the keys \['y'\] as at the first step, got 5"),
        ({"y": 5}, r"info\['x'\]\['y'\]: expected a dictionary with the keys \['z'\] as at the first step, got 5"),
    ):
        env = GymEnvWrapper(ScriptedEnv(info=lambda t, later=later: {"x": {"y": {"z": 1}} if t == 1 else later}))
        env.reset()
        env.step(0)
        with pytest.raises(ValueError, match=said):
            env.step(0)


def test_info_of_another_type_and_the_same_value_is_cast():
    env = GymEnvWrapper(ScriptedEnv(info=lambda t: {"x": 1.0 if t == 1 else np.int64(3), "n": 1 if t == 1 else 2.0, "l": [1, 2]}))
    info = step_through(env, 2)[1].env_info
    assert info.x == 3.0 and info.x.dtype == np.float64 and info.n == 2 and info.n.dtype == np.int64
    assert info.l.tolist() == [1, 2]


def test_a_key_named_timeout_is_kept_under_another_name():
    (step,) = step_through(GymEnvWrapper(ScriptedEnv(info=lambda t: {"timeout": 7.0})), 1)
    assert step.env_info._fields == ("timeout_", "timeout") and step.env_info.timeout_ == 7.0 and step.env_info.timeout is False


def test_info_tuples_of_two_environments_do_not_clash():
    one, two = (GymEnvWrapper(ScriptedEnv(info=lambda t, k=k: {k: 1.0})) for k in "ab")
    assert step_through(one, 1)[0].env_info.a == step_through(two, 1)[0].env_info.b == 1.0


def test_the_info_wrapper_fills_in_what_is_missing_now_and_then():
    example = {"rare": 0.0, "deep": {"er": np.zeros(2)}}
    env = ScriptedEnv(info=lambda t: {"rare": 5.0, "deep": {"er": np.ones(2)}} if t == 3 else {"always": t})
    infos = [step.env_info for step in step_through(GymEnvWrapper(EnvInfoWrapper(env, example)), 3)]
    assert [info.rare for info in infos] == [0.0, 0.0, 5.0]
    assert [info.always for info in infos] == [1, 2, 0]
    assert infos[2].deep.er.tolist() == [1, 1] and example["deep"]["er"].tolist() == [0, 0]
    assert EnvInfoWrapper(env, example).t == env.t


def test_infill_info_goes_into_nested_dictionaries_and_leaves_its_arguments_alone():
    info, sometimes = {"a": 1, "b": {"c": 2}}, {"a": 0, "b": {"c": 0, "d": 3}, "e": 4}
    assert infill_info(info, sometimes) == {"a": 1, "b": {"c": 2, "d": 3}, "e": 4}
    assert info == {"a": 1, "b": {"c": 2}} and sometimes["b"] == {"c": 0, "d": 3}


def test_info_tuples_can_be_built_by_hand():
    info = {"a.b": 1, "c": {"d": 2.0}}
    assert build_info_tuples(info, "mine")._fields == ("a_b", "c")
    nt = info_to_nt(info, "mine")
    assert type(nt) is build_info_tuples(info, "mine") and type(nt.c).__name__ == "mine_c"
    assert (nt.a_b, nt.c.d) == (1, 2.0)
    assert info_to_nt(3.0) == 3.0


def test_info_to_nt_with_schemas_keeps_to_the_schema():
    schemas = {}
    first = gym_schema.info_to_nt({"a": 1, "b": {"c": 2.0}}, schemas)
    assert set(schemas) == {"info", "info_b"} and first.b.c == 2.0
    later = gym_schema.info_to_nt({"a": 2, "new": 3}, schemas)
    assert later._fields == ("a", "b") and later.a == 2 and later.b.c == 0


# ---------------------------------------------------------------------------------------------------------------------
# Seeding, horizon, attributes, make
# ---------------------------------------------------------------------------------------------------------------------
def trajectory(env, n=50):
    observations = [env.reset()]
    for _ in range(n):
        step = env.step(env.action_space.sample())
        observations.append(env.reset() if step.done else step.observation)
    return np.stack(observations)


@pytest.mark.parametrize("make_env", [envs.make_walk, envs.make_classic, lambda: make("CartPole-v1")])
def test_equal_seeds_give_equal_trajectories_and_other_seeds_others(make_env):
    one, two, three = make_env(), make_env(), make_env()
    one.seed(3), two.seed(3), three.seed(4)
    first = trajectory(one)
    assert (first == trajectory(two)).all()
    assert not (first == trajectory(three)).all()
    one.seed(3)
    assert (first == trajectory(one)).all()


def test_environments_that_share_one_space_object_sample_independently():
    one, two = envs.make_walk(), envs.make_walk()
    assert one.env.action_space is two.env.action_space
    one.seed(1), two.seed(2)
    first = [one.action_space.sample() for _ in range(3)]
    one.seed(1), two.seed(2)
    mixed = []
    for _ in range(3):
        mixed.append(one.action_space.sample())
        two.action_space.sample()
    assert np.array_equal(first, mixed)


def test_wrapping_leaves_the_generator_of_the_action_space_alone():
    bare, wrapped = ScriptedEnv(), ScriptedEnv()
    bare.action_space, wrapped.action_space = spaces.Discrete(10**6, seed=5), spaces.Discrete(10**6, seed=5)
    assert GymEnvWrapper(wrapped).action_space.sample() == bare.action_space.sample() == wrapped.action_space.sample()


class GoalEnv(gymnasium.Env):
    observation_space, action_space = spaces.Box(-9, 9, (2,), np.float32), spaces.Discrete(2)

    def __init__(self):
        self.goal = np.zeros(2, np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.goal[:] = self.np_random.uniform(size=2)
        return self.goal.copy(), {}

    def step(self, action):
        return self.goal.copy(), 0.0, False, False, {}


class DistanceToGoal(gymnasium.Wrapper):
    """Shares an array with the environment, beside statistics of any kind."""

    def __init__(self, env, statistics):
        super().__init__(env)
        self.goal, self.statistics = env.unwrapped.goal, statistics

    def step(self, action):
        observation, *others = self.env.step(action)
        return observation - self.goal, *others


@pytest.mark.parametrize("members", [dict(n=0), dict(__slots__=()), dict(lock=threading.Lock()), dict(mean=np.zeros(2))])
def test_what_a_wrapper_shares_with_its_environment_stays_shared_beside_statistics(members):
    of_class = {name: value for name, value in members.items() if name == "__slots__"}
    statistics = type("RunningMeanStd", (), of_class)()
    for name in members.keys() - of_class.keys():
        setattr(statistics, name, members[name])
    env = GymEnvWrapper(DistanceToGoal(GoalEnv(), statistics))
    env.reset()
    assert env.step(0).observation.tolist() == [0, 0]


@pytest.mark.parametrize("wrapper", [gymnasium.wrappers.NormalizeObservation, gymnasium.wrappers.NormalizeReward])
def test_normalized_numbers_are_those_of_gymnasium_with_the_same_seed(wrapper):
    def make_normalized():
        return wrapper(gymnasium.make("Pendulum-v1", max_episode_steps=7))

    env, bare = GymEnvWrapper(make_normalized(), force_float32=False), make_normalized()
    env.seed(3)
    np.testing.assert_array_equal(env.reset(), bare.reset(seed=3)[0])
    for action in np.linspace(-1, 1, 20).reshape(-1, 1):
        observation, reward, done, _ = env.step(action.astype(np.float32))
        bare_observation, bare_reward, _, truncated, _ = bare.step(action.astype(np.float32))
        np.testing.assert_allclose(observation, bare_observation, rtol=1e-6)
        np.testing.assert_allclose(reward, bare_reward, rtol=1e-6)
        assert done == truncated
        if done:
            np.testing.assert_allclose(env.reset(), bare.reset()[0], rtol=1e-6)


def test_seeding_without_a_way_to_seed_warns_and_seeds_the_spaces():
    class Stubborn(ClassicGymEnv):
        seed = None

    one, two = GymEnvWrapper(Stubborn()), GymEnvWrapper(Stubborn())
    for env in (one, two):
        with pytest.warns(UserWarning, match="has neither reset"):
            env.seed(1)
    assert one.action_space.sample() == two.action_space.sample()
    one.reset()


def test_the_horizon_comes_from_a_time_limit_anywhere_in_the_chain_or_from_the_spec():
    assert make("CartPole-v1").horizon == 500
    assert make("CartPole-v1", max_episode_steps=7).horizon == 7
    inner = gymnasium.wrappers.TimeAwareObservation(TimeLimit(WalkGymEnv(), 9), flatten=True)
    assert GymEnvWrapper(inner).horizon == 9
    assert envs.make_walk().horizon is None


def test_a_time_limit_inside_other_wrappers_gives_timeouts():
    env = GymEnvWrapper(gymnasium.wrappers.RescaleAction(TimeLimit(WalkGymEnv(), 3), -1, 1))
    env.seed(0)
    env.reset()
    steps = [env.step(np.zeros(1, np.float32)) for _ in range(3)]
    assert [step.env_info.timeout for step in steps] == [False, False, True] == [step.done for step in steps]


def test_attributes_of_the_wrapped_environments_can_be_read():
    env = make("CartPole-v1")
    env.seed(0)
    env.reset()
    assert np.allclose(env.state, env.unwrapped.state)
    assert env.spec.id == "CartPole-v1" and env.length == env.unwrapped.length
    with pytest.raises(AttributeError, match="has an attribute 'nonsense'"):
        env.nonsense  # noqa: B018
    with pytest.raises(AttributeError):
        env._private  # noqa: B018


def test_a_wrapped_environment_can_be_pickled():
    env = envs.make_walk()
    env.seed(0)
    copy = pickle.loads(pickle.dumps(env))
    assert (trajectory(env) == trajectory(copy)).all()


def test_constructor_arguments_are_attributes():
    env = GymEnvWrapper(WalkGymEnv(), act_null_value=1, obs_null_value=2, force_float32=False)
    assert (env.act_null_value, env.obs_null_value, env.force_float32) == (1, 2, False)


def test_make_passes_arguments_on_and_takes_an_info_example():
    env = make("CartPole-v1", render_mode="rgb_array", info_example={"bonus": 1.5})
    env.reset()
    assert env.step(0).env_info.bonus == 1.5
    assert env.unwrapped.render_mode == "rgb_array"
    env.close()


@BOTH
def test_a_misspelt_id_gives_gymnasiums_error(module):
    with pytest.raises(gymnasium.error.NameNotFound, match="Did you mean: `CartPole`\\?$") as raised:
        module.make("CartPoel-v1")
    assert raised.value.__suppress_context__  # One traceback.
    with pytest.raises(gymnasium.error.VersionNotFound, match=r"It provides[^.]*\.$"):
        module.make("CartPole-v99")


@BOTH
@pytest.mark.parametrize(
    "kwargs, given", [({}, ""), (dict(env_id="CartPole-v1", sutton_barto_reward=True), " instead of env_id, sutton_barto_reward")]
)
def test_a_missing_id_is_named(module, kwargs, given):
    with pytest.raises(TypeError, match=f'make needs the id of an environment{given}: for example env_kwargs=dict.id="CartPole-v1".'):
        module.make(**kwargs)


@BOTH
def test_an_unknown_id_says_how_to_register_it(module):
    advice = "import that package first, or write id='package:Unheard-v0'. (For classic gym, import gym too.)"
    with pytest.raises(gymnasium.error.NameNotFound, match=f"{re.escape(advice)}$"):
        module.make("Unheard-v0")


def needs(module, cause=ModuleNotFoundError):
    def entry_point(**kwargs):
        error = cause(f"No module named {module!r}", name=module)
        raise gymnasium.error.DependencyNotInstalled(f"{module} is not installed, run `pip install something`") from error

    return entry_point


@pytest.fixture
def registered():
    """Registers an environment for one test: ``registered("Name-v0", entry_point)``."""
    ids = []

    def register(id, entry_point):
        gymnasium.register(id, entry_point=entry_point)
        ids.append(id)

    yield register
    for id in ids:
        gymnasium.registry.pop(id)


@BOTH
@pytest.mark.parametrize("module_name, extra", [("mujoco", "mujoco"), ("Box2D", "box2d"), ("pygame", "video"), ("ale_py", "atari")])
def test_a_missing_extra_names_the_install_command(module, module_name, extra, registered, monkeypatch):
    make_absent(monkeypatch, module_name)
    registered("Needs-v0", needs(module_name))
    with pytest.raises(ImportError, match=re.escape(f'pip install -c constraints.txt -e ".[{extra}]"')) as raised:
        module.make("Needs-v0")
    assert module_name in str(raised.value)


def test_nothing_is_proposed_to_be_installed_that_is_installed(registered):
    registered("Broken-v0", needs("numpy.random", ImportError))
    registered("Needs-v0", needs("mujoco", ImportError))
    with pytest.raises(gymnasium.error.DependencyNotInstalled, match=r"numpy.random is not installed"):
        make("Broken-v0")  # None of our extras: gymnasium's error as it is.
    with pytest.raises(ImportError, match="Needs-v0 needs packages that are installed but cannot be imported: No module") as raised:
        make("Needs-v0")
    assert "not installed" not in str(raised.value) and "To reinstall them: pip uninstall -y mujoco" in str(raised.value)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    "make_env, id, newest, has_mujoco",
    [
        (make, "Hopper-v3", "Hopper-v5", True),
        (make, "Hopper-v3", "Hopper-v5", False),
        (GymEnv, "Ant-v2", "Ant-v5", True),
        (gym_schema.make, "Humanoid-v2", "Humanoid-v5", True),
        (partial(make_partial, components=[0]), "Reacher-v2", "Reacher-v5", True),
        (make_scaled, "HalfCheetah-v3", "HalfCheetah-v5", True),
    ],
)
def test_versions_that_gymnasium_has_given_up_name_the_newest(make_env, id, newest, has_mujoco, monkeypatch):
    if not has_mujoco:
        make_absent(monkeypatch, "mujoco")
    with pytest.raises(ImportError, match=rf"{id} cannot be made: .*\. Use {newest}\.$") as raised:
        make_env(id)
    assert "pip" not in str(raised.value)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_versions_of_other_packages_are_left_to_them(registered):
    registered("Foreign-v1", needs("nowhere"))
    registered("Foreign-v0", raises_import_error)
    with pytest.raises(ImportError, match="^buy a licence$"):
        make("Foreign-v0")


def raises_import_error(**kwargs):
    raise ImportError("buy a licence")


def test_atari_games_are_found_by_gymnasiums_ids():
    pytest.importorskip("ale_py")
    code = (
        "import gymnasium; from rlpyt.envs.gym import make; assert 'ALE/Pong-v5' not in gymnasium.registry;"
        "env = make('ALE/Pong-v5'); print(env.reset().shape); env.close(); make('BreakoutNoFrameskip-v4').close()"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "(210, 160, 3)" in done.stdout, done.stderr


def test_without_ale_py_atari_games_name_the_install_command(monkeypatch):
    make_absent(monkeypatch, "ale_py")
    monkeypatch.setattr(gymnasium, "registry", {})
    with pytest.raises(ImportError, match=r'ALE/Pong-v5 needs packages that are not installed \(ale_py\).*".\[atari\]"'):
        make("ALE/Pong-v5")


def test_environments_of_box2d_are_made():
    pytest.importorskip("Box2D")
    env = make("LunarLander-v3")
    env.seed(0)
    assert env.reset().shape == (8,)
    env.close()
