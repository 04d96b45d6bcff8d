import gymnasium
import numpy as np
import pytest

from rlpyt.agents.pg.mujoco import MujocoFfAgent
from rlpyt.envs import repeated
from rlpyt.envs.base import NotRestored, unwrapped, wrapper_chain
from rlpyt.envs.gym import GymEnvWrapper, make
from rlpyt.envs.repeated import RepeatedEpisode, repeat_episodes
from rlpyt.envs.state import get_state, set_state
from rlpyt.envs.vector import make_vec
from rlpyt.samplers.serial.sampler import SerialSampler
from rlpyt.utils.plain import NotPlain


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
        return self.hidden.position, float(self.hidden.position[0]), bool(self.hidden.position[1] > 20), False, {}


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


def test_an_episode_that_comes_to_another_place_is_not_restored():
    env = RepeatedEpisode(Walk(chance=True))
    env.reset(seed=0)
    state = env.get_state()
    env.set_state(state)
    env.step(np.ones(2, np.float32))
    with pytest.raises(NotRestored, match="Walk came to another observation when it repeated the 1 actions of its episode"):
        env.set_state(env.get_state())


@pytest.mark.parametrize("damage", [dict(generator="{}"), dict(arguments=3), dict(arguments=dict(size=1)), dict(actions=("no", 1))])
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


@pytest.mark.parametrize("id", ["LunarLander-v3", "LunarLanderContinuous-v3"])
def test_environments_of_box2d_repeat_their_episodes_and_give_the_numbers_of_gymnasium(id):
    env, bare = make(id), gymnasium.make(id)
    assert [type(each) for each in wrapper_chain(GymEnvWrapper(env.env))].count(RepeatedEpisode) == 1
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
