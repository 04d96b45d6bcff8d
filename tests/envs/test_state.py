"""Environments go on exactly where they stopped, in another object, from a file that holds plain data."""

import io
from collections import OrderedDict, deque
from functools import partial

import gymnasium
import numpy as np
import pytest
import torch
from envs import CountingEnv
from tiers import processes, thinned

from rlpyt.envs.adapters import as_rlpyt
from rlpyt.envs.base import Wrapper, fast_reset, fast_step
from rlpyt.envs.gym import GymEnvWrapper, make
from rlpyt.envs.multitask import MultiEnvWrapper, TaskNameWrapper, TaskOnehotWrapper
from rlpyt.envs.point_env import PointEnv
from rlpyt.envs.state import get_state, set_state
from rlpyt.experiments.envs import make_partial, make_scaled
from rlpyt.spaces.composite import Composite
from rlpyt.spaces.float_box import FloatBox
from rlpyt.spaces.gym_wrapper import GymSpaceWrapper
from rlpyt.spaces.int_box import IntBox
from rlpyt.utils.buffer import buffer_func, buffer_leaves
from rlpyt.utils.collections import dynamic_namedtuple
from rlpyt.utils.logging.snapshot import serialize
from rlpyt.utils.plain import NotPlain, Reader, Writer, from_plain, to_plain


def make_atari(**kwargs):
    from rlpyt.envs.atari.atari_env import AtariEnv

    return AtariEnv(**kwargs)


ENVS = {
    "cartpole": lambda: make("CartPole-v1"),
    "pendulum": lambda: make("Pendulum-v1"),
    "acrobot": lambda: make("Acrobot-v1"),
    "frozen lake": lambda: make("FrozenLake-v1"),
    "taxi": lambda: make("Taxi-v4"),
    "half cheetah": lambda: make("HalfCheetah-v5", max_episode_steps=60),
    "hopper": lambda: make("Hopper-v5"),
    "humanoid": lambda: make("Humanoid-v5", max_episode_steps=30),
    "ant": lambda: make("Ant-v5", max_episode_steps=30),
    "cartpole with one-hot": lambda: as_rlpyt(TaskOnehotWrapper(make("CartPole-v1"), 0, 2)),
    "two cartpoles": lambda: as_rlpyt(MultiEnvWrapper([partial(make, "CartPole-v1")] * 2)),
    "two cartpoles of gymnasium": lambda: as_rlpyt(MultiEnvWrapper([partial(gymnasium.make, "CartPole-v1")] * 2)),
    "three points": lambda: as_rlpyt(MultiEnvWrapper([PointEnv((x, 1), max_episode_length=4) for x in (1, 2, 3)])),
    "several among several": lambda: as_rlpyt(
        TaskNameWrapper(MultiEnvWrapper([partial(MultiEnvWrapper, [PointEnv] * 2, mode="vanilla")] * 2), task_id=0)
    ),
    "part of cartpole": lambda: make_partial("CartPole-v1", [0, 2]),
    "normalized observations": lambda: GymEnvWrapper(gymnasium.wrappers.NormalizeObservation(gymnasium.make("CartPole-v1"))),
    "normalized rewards": lambda: GymEnvWrapper(gymnasium.wrappers.NormalizeReward(gymnasium.make("Pendulum-v1"))),
    "lunar lander": lambda: make("LunarLander-v3"),
    "lunar lander, windy": lambda: GymEnvWrapper(gymnasium.make("LunarLander-v3", continuous=True, enable_wind=True).unwrapped),
    "scaled rewards": lambda: make_scaled("Pendulum-v1", discount=0.9),
    "pong": lambda: make_atari(game="pong", horizon=150),
    "breakout, sticky": lambda: make_atari(game="breakout", repeat_action_probability=0.25, fire_on_reset=True),
}


def through_a_file(state):
    return torch.load(io.BytesIO(serialize(state)), weights_only=True)


def play(env, observation, n, seed):
    """What happens in `n` steps of random actions, with resets."""
    step, reset, rng, happened = fast_step(env), fast_reset(env), np.random.default_rng(seed), []
    space = env.action_space
    for _ in range(n):
        action = rng.integers(space.n) if hasattr(space, "n") else rng.uniform(-1, 1, space.shape).astype(np.float32)
        reward, done, info = step(action, observation)
        happened.append([buffer_func(observation, np.copy), reward, done, *map(np.asarray, buffer_leaves(info))])
        if getattr(info, "traj_done", done):
            reset(observation)
            happened.append(buffer_func(observation, np.copy))
    return happened


@processes
@pytest.mark.parametrize("name", thinned(ENVS, quick=set(ENVS) - {"taxi", "hopper", "humanoid", "ant", "pong"}))
@pytest.mark.parametrize("n_before", thinned([0, 77], quick=[77]))
def test_another_object_goes_on_from_a_saved_state(name, n_before):
    env, other = ENVS[name](), ENVS[name]()
    for i, e in enumerate((env, other)):
        e.seed(i)
    observation = np.array(env.reset())
    other.reset()
    play(env, observation, n_before, seed=0)
    state = through_a_file(get_state(env))
    expected = play(env, observation.copy(), 120, seed=1)
    set_state(other, state)
    np.testing.assert_equal(play(other, observation.copy(), 120, seed=1), expected)
    set_state(env, state)
    np.testing.assert_equal(play(env, observation.copy(), 120, seed=1), expected)


def test_what_cannot_be_told_is_none():
    class Opaque(gymnasium.Wrapper):
        def __init__(self, env):
            super().__init__(env)
            self.world = object()

    env = make("CartPole-v1")
    env.env = Opaque(env.env)
    assert get_state(env) is None
    assert get_state(CountingEnv()) is None and get_state(as_rlpyt(MultiEnvWrapper([CountingEnv] * 2))) is None
    with pytest.raises(NotPlain, match="Opaque.world is a builtins.object"):
        env.get_state()


GOALS = np.arange(8.0).reshape(4, 2)
TARGETS = [np.zeros(2), np.ones(2)]


class Sharing(gymnasium.Env):
    """Its attributes are constants, parts of each other, and the same objects under several names."""

    observation_space, action_space = gymnasium.spaces.Box(-np.inf, np.inf, (9,), np.float64), gymnasium.spaces.Discrete(2)

    def __init__(self):
        self.table = np.zeros((3, 2))
        self.position, self.row = self.table[0], self.table[1:].T[0]
        self.head = np.zeros(1)
        self.bodies = [self.head, np.zeros(1)]
        self.by_name = dict(head=self.bodies[0], all=self.bodies)

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.wind = self.np_random
        self.goal, self.target = GOALS[self.np_random.integers(4)], TARGETS[self.np_random.integers(2)]
        self.table[:] = self.np_random.normal(size=(3, 2))
        for body in self.bodies:
            body[:] = 0
        self.reward_of = self.calm
        return self._observation(), {}

    def step(self, action):
        self.position += self.wind.normal(size=2)
        self.row[1] += self.np_random.normal()
        self.by_name["head"][0] += action
        self.by_name["all"][1] -= 1
        if self.head > 2:
            self.reward_of = self.storm
        return self._observation(), self.reward_of(), bool(self.np_random.random() < 0.1), False, {}

    def calm(self):
        return 1.0

    def storm(self):
        return -5.0

    def _observation(self):
        return np.concatenate([self.table.ravel()[:4], self.head, self.bodies[1], self.goal, self.target[:1]])


class Delayed(Wrapper):
    """Gives every reward one step late."""

    late = 0.0

    def step(self, action):
        observation, reward, done, info = self.env.step(action)
        self.late, reward = reward, self.late
        return observation, reward, done, info


def goes_on(make_env, n_before, seeds=(0, 1)):
    """Check that another environment goes on as the first one does, and return both."""
    env, other = make_env(), make_env()
    for e, seed in zip((env, other), seeds):
        e.seed(seed)
    observation = np.array(env.reset())
    other.reset()
    play(env, observation, n_before, seed=0)
    state = through_a_file(get_state(env))
    set_state(other, state)
    np.testing.assert_equal(play(other, observation.copy(), 60, seed=1), play(env, observation.copy(), 60, seed=1))
    return env, other


@pytest.mark.parametrize("n_before", range(8))
def test_attributes_share_what_they_shared_and_constants_stay(n_before):
    constants = GOALS.copy(), [target.copy() for target in TARGETS]
    _, other = goes_on(lambda: as_rlpyt(Sharing()), n_before, seeds=(n_before, n_before + 100))
    np.testing.assert_equal((GOALS, TARGETS), constants)
    own = other.env.unwrapped
    assert own.wind is own.np_random and own.head is own.bodies[0] is own.by_name["head"] and own.by_name["all"] is own.bodies
    assert np.shares_memory(own.position, own.table) and np.shares_memory(own.row, own.table)


class OfClass(gymnasium.Env):
    observation_space, action_space = gymnasium.spaces.Box(0, 1, (2,)), gymnasium.spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        return self.observe(), {}

    def step(self, action):
        return self.observe(), 1.0, False, False, {}

    def observe(self):
        return self.observation_space.sample()


class OfObject(OfClass):
    """Observes samples of any space, flat."""

    def __init__(self, space):
        self.observation_space = gymnasium.spaces.Box(-9, 9, (2,))
        self.inner, self.same = space, space

    def reset(self, seed=None, options=None):
        if seed is not None:
            self.inner.seed(seed)
        return super().reset(seed=seed)

    def observe(self):
        leaves = [self.inner.sample()]
        while not isinstance(leaves[0], np.ndarray):
            leaves = [*(leaves[0].values() if isinstance(leaves[0], dict) else leaves[0]), *leaves[1:]]
        return leaves[0].astype(np.float32)


class Noisy(Wrapper):
    """Adds a sample of one of rlpyt's spaces to observations."""

    def __init__(self, env):
        super().__init__(env)
        self.noise = FloatBox(-1, 1, (4,))

    def seed(self, seed):
        self.env.seed(seed)
        self.noise.seed(seed)

    def step(self, action):
        observation, *others = self.env.step(action)
        return observation + self.noise.sample(), *others


def of_rlpyt():
    return Composite([FloatBox(0, 1, (2,)), IntBox(0, 9)], dynamic_namedtuple("mine", ["a", "b"]))


BOX = partial(gymnasium.spaces.Box, 0, 1, (2,))


@pytest.mark.parametrize(
    "make_env",
    [
        lambda: as_rlpyt(OfObject(BOX())),
        lambda: as_rlpyt(OfObject(gymnasium.spaces.Dict(a=BOX(), b=gymnasium.spaces.Discrete(3)))),
        lambda: as_rlpyt(OfObject(gymnasium.spaces.Tuple([gymnasium.spaces.Dict(a=BOX())]))),
        lambda: as_rlpyt(OfObject(FloatBox(0, 1, (2,)))),
        lambda: as_rlpyt(OfObject(of_rlpyt())),
        lambda: as_rlpyt(OfObject(GymSpaceWrapper(gymnasium.spaces.Dict(a=BOX())))),
        lambda: Noisy(make("CartPole-v1")),
    ],
    ids=["Box", "Dict", "Tuple", "FloatBox", "Composite", "wrapped", "wrapper"],
)
def test_environments_that_sample_their_spaces_go_on_with_the_same_samples(make_env):
    goes_on(make_env, 5)


def test_spaces_that_a_class_holds_for_all_its_environments_go_on_with_the_same_samples():
    env = as_rlpyt(OfClass())
    env.seed(0)
    observation = np.array(env.reset())
    state = through_a_file(get_state(env))
    expected = play(env, observation.copy(), 20, seed=1)
    other = as_rlpyt(OfClass())
    set_state(other, state)
    np.testing.assert_equal(play(other, observation.copy(), 20, seed=1), expected)


def test_a_state_with_the_generator_of_a_space_alone_can_be_read():
    env = as_rlpyt(OfObject(BOX()))
    env.seed(0)
    env.reset()
    state = get_state(env)
    generators = from_plain(state["env"][-1]["inner"][1])
    assert [*generators[0]] == ["_np_random"]
    state["env"] = [{"inner": ("space", to_plain(generators[0]["_np_random"]))}]
    expected = [env.step(0).observation.tolist() for _ in range(3)]
    set_state(env, through_a_file(state))
    assert [env.step(0).observation.tolist() for _ in range(3)] == expected


def test_wrappers_without_methods_for_it_save_their_attributes():
    _, other = goes_on(lambda: Delayed(Delayed(make("Pendulum-v1"))), 5)
    assert get_state(other).keys() == {"wrapper", "env"}
    inner = as_rlpyt(TaskOnehotWrapper(Delayed(make("Pendulum-v1")), 0, 2))
    assert "wrapper" in str(get_state(inner))
    older = make("Pendulum-v1")
    older.reset()
    set_state(other.env, get_state(older))  # The state of a wrapper had no attributes.
    np.testing.assert_equal(other.env.env.env.unwrapped.state, older.env.unwrapped.state)


def test_a_function_that_is_another_one_now_is_an_error():
    class Switching(Sharing):
        def reset(self, **kwargs):
            self.which = partial(min, 3)
            return super().reset(**kwargs)

    env, other = as_rlpyt(Switching()), as_rlpyt(Switching())
    env.reset(), other.reset()
    env.env.unwrapped.which = partial(max, 3)
    with pytest.raises(ValueError, match="Switching.which was 'builtins:max' when the state was saved, and is 'builtins:min' now"):
        set_state(other, get_state(env))
    other.env.unwrapped.which = None  # It has not been chosen yet.
    set_state(other, get_state(env))
    assert other.env.unwrapped.which is None


class Held(gymnasium.Env):
    """Others hold its arrays, too."""

    observation_space, action_space = gymnasium.spaces.Box(-np.inf, np.inf, (3,), np.float64), gymnasium.spaces.Discrete(2)

    class Member:
        def __init__(self, x):
            self.x = x

        def get_state(self):
            return None

        def set_state(self, state):
            pass

    def __init__(self):
        self.x, self.y = np.zeros(1), np.zeros(1)
        self.member, self.of_y = self.Member(self.x), self._reader_of(self.y)
        self.event = None

    @staticmethod
    def _reader_of(y):
        def read():
            return y[0]

        return read

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.x[:], self.y[:], self.event = 0, 0, None
        return self._observation(), {}

    def step(self, action):
        self.x += 1
        self.y -= action
        self.event = [None, self.late, None, self.early][int(self.x[0]) % 4]
        return self._observation(), self.event() if self.event else 0.0, bool(self.x[0] > 20), False, {}

    def early(self):
        return 1.0

    def late(self):
        return 2.0

    def _observation(self):
        return np.array([self.member.x[0], self.of_y(), self.early() if self.event is None else self.event()])


@pytest.mark.parametrize("n_before", [5, 6, 7, 8])
def test_objects_that_hold_an_array_of_the_environment_see_what_is_restored(n_before):
    _, other = goes_on(lambda: as_rlpyt(Held()), n_before)
    own = other.env.unwrapped
    assert own.member.x is own.x and own.of_y() == own.y


def test_functions_that_stand_in_for_methods_stay():
    def make_timed():
        env = make("Pendulum-v1")
        inner = env.env.unwrapped
        inner.step, inner.render = partial(type(inner).step, inner), lambda: None
        return env

    goes_on(make_timed, 5)


@pytest.mark.parametrize("seed", range(40))
def test_a_reader_shares_what_the_writer_shared(seed):
    """Random arrays, of which some are parts of others, in random containers."""
    rng = np.random.default_rng(seed)
    arrays = [np.arange(24.0).reshape(4, 6), np.arange(5.0), np.zeros((0, 3))]
    for _ in range(5):
        whole = arrays[rng.integers(2)]
        parts = [whole[1:], whole[::2], whole[::-1], whole.T, whole.reshape(-1)[2:5], whole[..., 1:3], whole, whole.copy()]
        arrays.append(parts[rng.integers(len(parts))])
    arrays = [arrays[i] for i in rng.permutation(len(arrays))]
    generator = np.random.default_rng(seed)
    values = [arrays[:3], dict(a=arrays[2:5], b=(arrays[5], generator)), deque([arrays[6], generator]), arrays[7], arrays[0]]
    writer, reader = Writer(values), Reader()
    plain = through_a_file([writer.write(value, f"value {i}") for i, value in enumerate(values)])
    back = [reader.read(each, f"value {i}") for i, each in enumerate(plain)]

    def all_of(values):
        first, by_name, queue, *others = values
        return [*first, *by_name["a"], by_name["b"][0], queue[0], *others], [by_name["b"][1], queue[1]]

    (old, _), (new, generators) = all_of(values), all_of(back)
    np.testing.assert_equal(new, old)
    assert generators[0] is generators[1] and back[0][2] is back[1]["a"][0]
    for i in range(len(old)):
        for j in range(i):
            assert np.shares_memory(old[i], old[j]) == np.shares_memory(new[i], new[j]) and (old[i] is old[j]) == (new[i] is new[j])
        if old[i].size:
            old[i].flat[0] = new[i].flat[0] = rng.normal()
            np.testing.assert_equal(new, old)


def test_what_a_reader_cannot_share_is_not_written():
    whole, loop = np.arange(10), [1]
    loop.append(loop)
    for values, why in (([whole, whole.view(np.int32)], "shares memory with"), ([loop], "itself")):
        with pytest.raises(NotPlain, match=why):
            writer = Writer(values)
            [writer.write(value, "value") for value in values]


@pytest.mark.parametrize("parts", [lambda w: [w[:6], w[4:]], lambda w: [w[::2], w[1::2]], lambda w: [*w.reshape(2, 5), *w.reshape(2, 5).T]])
def test_parts_of_an_array_that_is_not_there_share_what_they_shared(parts):
    old = parts(np.arange(10.0))
    writer, reader = Writer(old), Reader()
    new = [reader.read(each, "value") for each in through_a_file([writer.write(each, "value") for each in old])]
    for a, b in zip(old, new):
        a[...] = b[...] = np.random.rand()
        np.testing.assert_equal(new, old)


@pytest.mark.parametrize(
    "plain",
    [
        ("same", 0), ("same", -1), ("same", "0"), ("list", [("same", 0)]), ("list", [("same", 1)]), ("view", []),
        ("view", [("same", 0), 0, [1], [8]]), ("view", [5, 0, [1], [8]]),
        *(
            ("view", [("array", ["<f8", [3], bytes(24)]), offset, shape, strides])
            for offset, shape, strides in (
                (0, [4], [8]), (8, [3], [8]), (0, [2], [-8]), (0, [2], [16.0]), (4, [1], [8]), (0, [2], [4]), (-8, [1], [8]),
                (0, [2**61], [8]), (0, [2, 2], [8]), (0, [-1], [8]), (2**62, [1], [8]), (0, [2**40, 2**40], [0, 0]),
                (0, [1] * 65, [8] * 65), (0, [5], [2**62]), (0, [3], [-(2**63)]), (0, [3, 3], [2**62, 2**62]), (0, [2**31 + 1], [2**33]),
                (0, [9, 9], [2**61, -(2**61)]), (0, [3], [16]), (24, [1], [8]), (0, [0], [8]),
            )
        ),
    ],
)  # fmt: skip
def test_a_reader_takes_nothing_that_is_damaged(plain):
    with pytest.raises(ValueError):
        Reader().read(plain, "value")
    with pytest.raises(ValueError):
        from_plain(plain)


def test_plain_data_comes_back_with_its_types():
    rng, old, python = np.random.default_rng(3), np.random.RandomState(3), __import__("random").Random(3)
    array = np.arange(6, dtype=np.uint8).reshape(2, 3)
    value = dict(a=[1, 2.5, None, "x", b"y", True], b=(np.float32(0.1), np.bool_(True), np.uint16(7), np.str_("z")), c={1: array})
    back = from_plain(through_a_file(to_plain(value)))
    assert back["a"] == value["a"] and back["b"] == value["b"] and [type(x) for x in back["b"]] == [type(x) for x in value["b"]]
    assert back["c"][1].dtype == np.uint8 and np.array_equal(back["c"][1], value["c"][1])
    for generator in (rng, old, python):
        copy = from_plain(through_a_file(to_plain(generator)))
        assert [generator.random() for _ in range(5)] == [copy.random() for _ in range(5)]
    mt = np.random.Generator(np.random.MT19937(5))
    assert from_plain(through_a_file(to_plain(mt))).integers(1000, size=5).tolist() == mt.integers(1000, size=5).tolist()
    queue = from_plain(through_a_file(to_plain(deque([1, 2, 3], maxlen=3))))
    assert list(queue) == [1, 2, 3] and queue.maxlen == 3
    ordered = from_plain(through_a_file(to_plain(OrderedDict(b={1, 2}, a=3))))
    assert type(ordered) is OrderedDict and list(ordered.items()) == [("b", {1, 2}), ("a", 3)]


def test_plain_data_may_hold_what_the_file_can_hold_besides():
    weights = torch.arange(3.0)
    with pytest.raises(NotPlain, match=r"value\['a'\]\[0\] is a torch.Tensor"):
        to_plain(dict(a=[weights]))
    back = from_plain(through_a_file(to_plain(dict(a=[weights, torch.Size((2, 3))], b=np.float32(1)), keep=(torch.Tensor, torch.Size))))
    assert torch.equal(back["a"][0], weights) and back["a"][1] == torch.Size((2, 3)) and type(back["b"]) is np.float32


@pytest.mark.parametrize(
    "change, said",
    [
        (lambda state: state[-1].update(step=("plain", 5)), "CartPoleEnv.step is no attribute that has a state"),
        (lambda state: state[-1].update({"a b": ("plain", 5)}), "CartPoleEnv.a b is no attribute"),
        (lambda state: state[-1].update(env=("plain", 5)), "CartPoleEnv.env is not of the kind|CartPoleEnv.env is no attribute"),
        (lambda state: state[-1].update(action_space=("plain", 5)), "CartPoleEnv.action_space is not of the kind 'space'"),
        (lambda state: state[-1].update(action_space=("space", 5)), "CartPoleEnv.action_space is 5, not a random generator"),
        (
            lambda state: state[-1]["action_space"][1][1].append(to_plain({})),
            "CartPoleEnv.action_space was made of 2 spaces .* and is made of 1",
        ),
        (
            lambda state: state[-1].update(action_space=("space", to_plain([{"_np_random": 5}]))),
            "action_space._np_random is 5, not a random",
        ),
        (lambda state: state[-1].update(action_space=("space", to_plain([{"sample": 5}]))), "action_space.sample is no attribute"),
        (lambda state: state[-1].update(state=("nokind", 5)), "CartPoleEnv.state is not of the kind 'plain'"),
        (lambda state: state[-1].update(state=("plain", ("array", ["O", [1], b""]))), "CartPoleEnv.state has dtype 'O'"),
        (lambda state: state[0]["obs_rms"][1][1].pop(), "NormalizeObservation.obs_rms has no 'count'"),
        (lambda state: state[0].update(obs_rms=("plain", 5)), "NormalizeObservation.obs_rms is not of the kind 'statistics'"),
        (lambda state: state.pop(), r"The state has \d nested environments"),
        (lambda state: state.__setitem__(-1, 5), "CartPoleEnv is 5, and not dict"),
    ],
)
def test_a_state_takes_the_place_of_attributes_and_of_no_method(change, said):
    env = GymEnvWrapper(gymnasium.wrappers.NormalizeObservation(gymnasium.make("CartPole-v1")))
    env.reset()
    state = get_state(env)
    set_state(env, state)
    change(state["env"])
    with pytest.raises(ValueError, match=said):
        set_state(env, state)
