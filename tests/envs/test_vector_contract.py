"""The contract of vectors, kept and broken."""

import functools
import importlib.util
import re
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from envs import make_gym_vector
from tiers import full

from rlpyt.envs.vector import VectorEnv, VectorStep, make_ale, make_envpool
from rlpyt.envs.vector_contract import check_vector_env
from rlpyt.spaces.float_box import FloatBox
from rlpyt.spaces.int_box import IntBox

sys.path.append(str(Path(__file__).parents[2] / "examples"))
from vector_env import CartPoles  # noqa: E402

needs_envpool = pytest.mark.skipif(importlib.util.find_spec("envpool") is None, reason="EnvPool is not installed.")


@pytest.mark.parametrize(
    "make, kwargs",
    [
        (CartPoles, {}),
        (make_gym_vector, dict(mode="NextStep")),
        (make_gym_vector, dict(mode="SameStep")),
        (make_gym_vector, dict(mode="Disabled", n_actions=0)),
        (gymnasium.make_vec, dict(id="CartPole-v1", vectorization_mode="vector_entry_point")),
        pytest.param(make_gym_vector, dict(async_=True), marks=full),
        pytest.param(make_ale, dict(game="breakout", max_num_frames_per_episode=99, num_threads=1, autoreset_mode="SameStep"), marks=full),
        pytest.param(make_ale, dict(game="breakout", max_num_frames_per_episode=99, num_threads=1), marks=full),
        pytest.param(make_envpool, dict(task_id="CartPole-v1"), marks=needs_envpool),
        pytest.param(make_envpool, dict(task_id="HalfCheetah-v4", max_episode_steps=20), marks=[needs_envpool, full]),
    ],
)
@pytest.mark.filterwarnings("ignore:.*precision lowered")
def test_vectors_keep_the_contract(make, kwargs):
    check_vector_env(make, kwargs, n_steps=60)


class Walk(VectorEnv):
    """A right vector of random walks, to be broken."""

    autoreset_mode = "SameStep"
    resets_some = True

    def __init__(self, num_envs, **options):
        self.n, self.options = num_envs, options
        self.autoreset_mode = options.get("mode", "SameStep")
        self._action_space, self._observation_space = IntBox(0, 3), FloatBox(-9, 9, shape=(2,))
        self.t, self.rngs = np.zeros(num_envs, int), [np.random.default_rng() for _ in range(num_envs)]
        self.over = np.zeros(num_envs, bool)

    def seed(self, seeds):
        super().seed(seeds)
        self.rngs = [np.random.default_rng(seed) for seed in seeds]

    def row(self, b):
        return [self.t[b], self.rngs[b].random()]

    def reset_into(self, observation_out, which=None):
        for b in range(self.n) if which is None else np.flatnonzero(which):
            self.t[b], self.over[b] = 0, False
            observation_out[b] = self.row(b)

    def step_into(self, actions, observation_out):
        self.t += 1
        for b in range(self.n):
            observation_out[b] = self.row(b)
        truncated, final = self.t >= 4, None
        if truncated.any() and self.autoreset_mode == "SameStep":
            final = observation_out.copy()
            self.reset_into(observation_out, truncated)
        elif self.autoreset_mode == "NextStep":
            self.t[truncated] = -1
            truncated = truncated & (self.t < 0)
        return VectorStep(np.ones(self.n), np.zeros(self.n, bool), truncated, None, final)


def broken(**parts):
    """Return a class whose steps have other parts, or which changes what it is given."""

    class Broken(Walk):
        def step_into(self, actions, observation_out):
            return super().step_into(actions, observation_out)._replace(**parts)

    return Broken


@pytest.fixture(scope="module")
def walk_keeps_them():
    """What the others are made from breaks no rule."""
    check_vector_env(Walk)


class WritesBeside(Walk):
    def step_into(self, actions, observation_out):
        beside = np.lib.stride_tricks.as_strided(observation_out, (self.n + 1, 2))
        beside[self.n] = 0
        return super().step_into(actions, observation_out)


class ChangesActions(Walk):
    def step_into(self, actions, observation_out):
        actions += 1
        return super().step_into(actions, observation_out)


class IgnoresSeeds(Walk):
    def seed(self, seeds):
        VectorEnv.seed(self, seeds)


class TakesTheFirstSeedsOnly(Walk):
    is_seeded = False

    def seed(self, seeds):
        (VectorEnv.seed if self.is_seeded else Walk.seed)(self, seeds)
        self.is_seeded = True


class ResetsAll(Walk):
    def reset_into(self, observation_out, which=None):
        super().reset_into(observation_out)


class TooLong(Walk):
    horizon = 3


class LeavesARow(Walk):
    def step_into(self, actions, observation_out):
        last = observation_out[-1].copy()
        step = super().step_into(actions, observation_out)
        observation_out[-1] = last
        return step


class Outside(Walk):
    def row(self, b):
        return [self.t[b] + 100, 0]


@pytest.mark.parametrize(
    "VectorCls, message",
    [
        (broken(reward=np.ones(2)), r"reward at step 0 must have shape (3,), got (2,)"),
        (broken(reward=np.full(3, np.nan)), "The rewards at step 0 must be finite"),
        (broken(terminated=np.zeros(3)), "terminated at step 0 must be bool, got float64"),
        (broken(infos=dict(x=1)), "infos at step 0 must be a namedtuple or None"),
        (broken(final_observation=None), "must return final_observation where an episode ends"),
        (functools.partial(Walk, mode="Sometimes"), "autoreset_mode must be one of"),
        (WritesBeside, "step_into() wrote beyond the rows it was given, in observation"),
        (ChangesActions, "step_into() changed the actions it was given at step 0"),
        (IgnoresSeeds, "of reset. Draw all random numbers from a generator that seed() makes"),
        (TakesTheFirstSeedsOnly, "of reset. They differ only since one of them has played before"),
        (ResetsAll, "reset_into() must write only the rows of its mask"),
        (TooLong, "An episode is longer than horizon=3"),
        (LeavesARow, "step_into() did not write the row of environment 2, in observation"),
        (Outside, "must be in the observation_space"),
    ],
)
def test_broken_rules_are_told_in_sentences(VectorCls, message, walk_keeps_them):
    with pytest.raises(AssertionError, match=re.escape(message)):
        check_vector_env(VectorCls)
