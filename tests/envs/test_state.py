"""Environments go on exactly where they stopped, in another object, from a file that holds plain data."""

import io
from collections import OrderedDict, deque
from functools import partial

import gymnasium
import numpy as np
import pytest
import torch
from envs import CountingEnv
from tiers import processes

from rlpyt.envs.adapters import as_rlpyt
from rlpyt.envs.base import fast_reset, fast_step
from rlpyt.envs.gym import make
from rlpyt.envs.multitask import MultiEnvWrapper, TaskNameWrapper, TaskOnehotWrapper
from rlpyt.envs.point_env import PointEnv
from rlpyt.envs.state import get_state, set_state
from rlpyt.experiments.envs import make_partial, make_scaled
from rlpyt.utils.buffer import buffer_func, buffer_leaves
from rlpyt.utils.logging.snapshot import serialize
from rlpyt.utils.plain import NotPlain, from_plain, to_plain


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
    "humanoid": lambda: make("Humanoid-v5"),
    "cartpole with one-hot": lambda: as_rlpyt(TaskOnehotWrapper(make("CartPole-v1"), 0, 2)),
    "two cartpoles": lambda: as_rlpyt(MultiEnvWrapper([partial(make, "CartPole-v1")] * 2)),
    "two cartpoles of gymnasium": lambda: as_rlpyt(MultiEnvWrapper([partial(gymnasium.make, "CartPole-v1")] * 2)),
    "three points": lambda: as_rlpyt(MultiEnvWrapper([PointEnv((x, 1), max_episode_length=4) for x in (1, 2, 3)])),
    "several among several": lambda: as_rlpyt(
        TaskNameWrapper(MultiEnvWrapper([partial(MultiEnvWrapper, [PointEnv] * 2, mode="vanilla")] * 2), task_id=0)
    ),
    "part of cartpole": lambda: make_partial("CartPole-v1", [0, 2]),
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
@pytest.mark.parametrize("name", ENVS)
@pytest.mark.parametrize("n_before", [0, 77])
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
        (lambda state: state[-1].update(state=("nokind", 5)), "CartPoleEnv.state is not of the kind 'plain'"),
        (lambda state: state[-1].update(state=("plain", ("array", ["O", [1], b""]))), "CartPoleEnv.state has dtype 'O'"),
        (lambda state: state.pop(), r"The state has \d nested environments"),
        (lambda state: state.__setitem__(-1, 5), "CartPoleEnv is 5, and not dict"),
    ],
)
def test_a_state_takes_the_place_of_attributes_and_of_no_method(change, said):
    env = make(id="CartPole-v1")
    env.reset()
    state = get_state(env)
    set_state(env, state)
    change(state["env"])
    with pytest.raises(ValueError, match=said):
        set_state(env, state)
