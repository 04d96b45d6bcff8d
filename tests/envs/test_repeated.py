from functools import partial

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.box2d.lunar_lander import LunarLander

from rlpyt.agents.pg.mujoco import MujocoFfAgent
from rlpyt.envs import repeated
from rlpyt.envs.base import NotRestored, unwrapped, wrapper_chain
from rlpyt.envs.gym import GymEnvWrapper, make
from rlpyt.envs.gym_env import GymEnv
from rlpyt.envs.multitask import MultiEnvWrapper
from rlpyt.envs.repeated import RepeatedEpisode, repeat_episodes
from rlpyt.envs.state import get_state, set_state, set_states
from rlpyt.envs.vector import make_vec
from rlpyt.samplers.serial.sampler import SerialSampler
from rlpyt.utils.plain import NotPlain, generator_state, set_generator_state


class Hidden:
    """What no one can look into."""

    __slots__ = ("position",)


class Walk(gymnasium.Env):
    """A walk in two dimensions, in an object without attributes; with `chance`, some of it follows numpy's global random numbers."""

    observation_space, action_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,)), gymnasium.spaces.Box(-1, 1, (2,))

    def __init__(self, chance=False):
        self.hidden, self.chance = Hidden(), chance
        self.hidden.position = np.zeros(2, np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        start = 1 if options is None else options["start"]
        self.hidden.position = self.np_random.normal(start, size=2).astype(np.float32)
        return self.hidden.position, {}

    def step(self, action):
        self.hidden.position = self.hidden.position + action + self.np_random.normal(size=2).astype(np.float32)
        if self.chance:
            self.hidden.position = self.hidden.position + np.random.random(2).astype(np.float32)
        return self.hidden.position.copy(), float(self.hidden.position[0]), bool(self.hidden.position[1] > 20), False, {}


def make_walk(chance=False, limit=30):
    return GymEnvWrapper(repeat_episodes(gymnasium.wrappers.TimeLimit(Walk(chance), limit)))


def play(env, n, rng):
    happened = []
    for _ in range(n):
        action = rng.uniform(-1, 1, 2).astype(np.float32)
        observation, reward, done, info = env.step(action)
        action[:] = np.nan  # Its memory is used again.
        happened.append((observation.copy(), reward, done, bool(info.timeout), env.reset().copy() if done else None))
    return happened


@pytest.mark.parametrize("n_before", [0, 1, 29, 30, 44])
def test_an_environment_that_hides_its_state_goes_on_from_it(n_before):
    assert get_state(GymEnvWrapper(Walk())) is None
    env, other = make_walk(), make_walk()
    assert repeat_episodes(env) is env
    env.seed(5)
    env.reset()
    play(env, n_before, np.random.default_rng(0))
    state = get_state(env)
    expected = play(env, 70, np.random.default_rng(1))
    for each in (other, env):
        set_state(each, state)
        np.testing.assert_equal(get_state(each), state)
        np.testing.assert_equal(play(each, 70, np.random.default_rng(1)), expected)


def test_it_may_be_inside_of_wrappers_of_gymnasium():
    env, other = (GymEnvWrapper(gymnasium.wrappers.TimeLimit(repeat_episodes(Walk()), 30)) for _ in range(2))
    env.reset()
    play(env, 20, np.random.default_rng(0))
    set_state(other, get_state(env))
    np.testing.assert_equal(play(other, 30, np.random.default_rng(1)), play(env, 30, np.random.default_rng(1)))


def test_before_the_first_reset_the_random_numbers_are_its_state():
    env, other = RepeatedEpisode(Walk()), RepeatedEpisode(Walk())
    env.np_random = np.random.default_rng(3)
    assert env.env.np_random is env.np_random
    other.set_state(env.get_state())
    np.testing.assert_equal(env.reset(), other.reset())


def test_arguments_of_the_reset_are_repeated():
    env, other = RepeatedEpisode(Walk()), RepeatedEpisode(Walk())
    observation, _ = env.reset(seed=7, options=dict(start=100))
    assert observation.min() > 90
    other.set_state(env.get_state())
    np.testing.assert_equal(other.step(np.zeros(2, np.float32)), env.step(np.zeros(2, np.float32)))


def played(env, n):
    env.reset(seed=0)
    for _ in range(n):
        env.step(np.ones(2, np.float32))
    return env


def test_an_episode_that_comes_to_another_place_is_not_restored():
    env = played(RepeatedEpisode(Walk(chance=True)), 0)
    env.set_state(env.get_state())
    played(env, 1)
    with pytest.raises(NotRestored, match="Walk came to another observation when it repeated the 1 actions of its episode"):
        env.set_state(env.get_state())


@pytest.mark.parametrize(
    "change", [lambda rng: rng.random(), lambda rng: set_generator_state(rng, generator_state(np.random.default_rng(9)))]
)
def test_a_generator_that_was_seeded_or_drawn_from_since_is_restored(change):
    env, other = played(RepeatedEpisode(Walk()), 3), RepeatedEpisode(Walk())
    change(env.np_random)
    other.set_state(env.get_state())
    np.testing.assert_equal(other.step(np.ones(2, np.float32)), env.step(np.ones(2, np.float32)))


class Structured(Walk):
    """Actions are a dictionary."""

    action_space = gymnasium.spaces.Dict(where=Walk.action_space, fast=gymnasium.spaces.Discrete(2))

    def step(self, action):
        return super().step(action["where"] * (1 + action["fast"]))


class Halved(gymnasium.Wrapper):
    def step(self, action):
        observation, *rest = self.env.step(action)
        observation /= 2
        return observation, *rest


def test_memory_that_others_write_into_does_not_change_the_record():
    env, other = (Halved(repeat_episodes(Structured())) for _ in range(2))
    action = dict(where=np.zeros(2, np.float32), fast=0)
    env.reset(seed=0)
    for i in range(5):
        action["where"][:], action["fast"] = i, i % 2
        env.step(action)
    other.env.set_state(env.env.get_state())
    np.testing.assert_equal([each["where"][0] for each in other.env._actions], [*range(5)])


@pytest.mark.parametrize(
    "damage", [dict(before="{}"), dict(arguments=3), dict(arguments=dict(size=1)), dict(actions=3), dict(actions=["x"])]
)
def test_a_damaged_state_is_refused(damage):
    env = RepeatedEpisode(Walk())
    env.reset(seed=0)
    with pytest.raises(ValueError):
        env.set_state({**env.get_state(), **damage})


def test_very_long_episodes_have_no_state(monkeypatch):
    monkeypatch.setattr(repeated, "MOST_STEPS", 3)
    env = RepeatedEpisode(Walk())
    for n in (3, 4, 2):
        env.reset()
        for _ in range(n):
            env.step(np.zeros(2, np.float32))
        if n == 4:
            with pytest.raises(NotPlain, match="The episode of Walk has more than 3 steps"):
                env.get_state()
        else:
            assert len(env._actions) == n and env.get_state()


@pytest.mark.parametrize("make_env", [lambda: make("LunarLander-v3"), lambda: GymEnv("LunarLander-v3"), lambda: make("CarRacing-v3")])
def test_environments_of_box2d_repeat_their_episodes(make_env):
    env, wrapped = make_env(), GymEnvWrapper(make_env().env)
    for each in (env, wrapped):
        assert [type(layer) for layer in wrapper_chain(each.env)].count(RepeatedEpisode) == 1
        assert get_state(each) is not None
    assert env.env.spec.additional_wrappers == () and "RepeatedEpisode<" in str(env.env)


def test_environments_that_may_keep_more_do_not():
    class Curriculum(LunarLander):
        pass

    for env in (make("BipedalWalker-v3"), GymEnvWrapper(Curriculum())):
        assert get_state(env) is None


@pytest.mark.parametrize("id", ["LunarLander-v3", "LunarLanderContinuous-v3"])
def test_they_give_the_numbers_of_gymnasium(id):
    env, bare = make(id), gymnasium.make(id)
    assert type(env.unwrapped) is type(unwrapped(env)) is type(bare.unwrapped)
    env.seed(3)
    space, seed = bare.action_space, 3
    space.seed(0)
    for _ in range(2):
        np.testing.assert_equal(env.reset(), bare.reset(seed=seed)[0])
        seed, over = None, False
        while not over:
            action = space.sample()
            observation, reward, terminated, truncated, _ = bare.step(action)
            over = terminated or truncated
            np.testing.assert_equal(env.step(action)[:3], (observation, reward, over))


def test_so_do_those_of_a_vector():
    vector, other = (
        make_vec("LunarLander-v3", 2, vectorization_mode="sync", vector_kwargs=dict(autoreset_mode="SameStep")) for _ in range(2)
    )
    observations, actions = np.empty((2, 8), np.float32), np.array([0, 2])

    def play(vector, n):
        steps = [(vector.step_into(actions, observations), observations.copy()) for _ in range(n)]
        return [(step.reward.copy(), step.terminated.copy(), observation) for step, observation in steps]

    for seed, each in enumerate((other, vector)):
        each.seed([seed, seed + 10])
        each.reset_into(observations)
    assert any(terminated.any() for _, terminated, _ in play(vector, 120))
    state = vector.get_state()
    expected = play(vector, 100)
    other.set_state(state)
    np.testing.assert_equal(play(other, 100), expected)


@pytest.mark.parametrize("chance, restarted", [(False, []), (True, [0, 1, 2])])
def test_environments_that_do_not_come_back_begin_a_new_episode(chance, restarted):
    sampler, resumed = (SerialSampler(make_walk, dict(chance=chance), batch_T=8, batch_B=3, max_decorrelation_steps=0) for _ in range(2))
    for each in (sampler, resumed):
        each.initialize(MujocoFfAgent(), seed=0)
    for itr in range(5):
        sampler.obtain_samples(itr)
    assert resumed.load_state_dict(sampler.state_dict()) == restarted
    assert np.isfinite(resumed.obtain_samples(5)[0].env.observation).all()


def test_evaluation_environments_that_do_not_come_back_have_no_seed_from_the_start():
    env, resumed = make_walk(chance=True), make_walk(chance=True)
    for each in (env, resumed):
        each.seed(3)
    env.reset()
    play(env, 3, np.random.default_rng(0))
    set_states([resumed], [get_state(env)], "envs")
    assert resumed._seed is None


def test_an_environment_that_does_not_come_back_leaves_none_of_the_others_behind():
    def make_several():
        return MultiEnvWrapper([make_walk, partial(make_walk, chance=True), make_walk], mode="vanilla")

    several, others = make_several(), make_several()
    for env in several._envs:
        env.reset()
        env.step(np.ones(2, np.float32))
    with pytest.raises(NotRestored):
        others.set_state(several.get_state())
    np.testing.assert_equal([get_state(others._envs[i]) for i in (0, 2)], [get_state(several._envs[i]) for i in (0, 2)])
