"""An environment whose actions start elsewhere counts from 0: for agents, for the batch, and with the same episodes."""

import copy
from collections import namedtuple

import numpy as np
import pytest
from envs import CountingEnv

from rlpyt.agents.dqn.mlp_dqn_agent import MlpDqnAgent
from rlpyt.agents.pg.composite import MlpCompositeFfAgent
from rlpyt.agents.pg.mlp import MlpFfAgent
from rlpyt.envs.base import EnvStep
from rlpyt.envs.contract import check_env
from rlpyt.envs.from_zero import FromZero
from rlpyt.samplers.serial.sampler import SerialSampler
from rlpyt.spaces.composite import Composite
from rlpyt.spaces.float_box import FloatBox
from rlpyt.spaces.int_box import IntBox

Info = namedtuple("Info", ["got"])
Pair = namedtuple("Pair", ["n", "x"])


class Elsewhere(CountingEnv):
    """Takes integers of a space, refuses others, and tells what it got."""

    def __init__(self, space):
        super().__init__(episode_length=4)
        self._action_space = space

    def step(self, action):
        assert self._action_space.contains(action), action
        observation, reward, done, _ = super().step(np.int64(0))
        got = action.n if isinstance(action, tuple) else action
        return EnvStep(observation, reward, done, Info(np.asarray(got, np.int64)))


def make(space):
    return FromZero(Elsewhere(copy.deepcopy(space)))  # Environments do not share random generators.


STRUCTURE = Composite([IntBox(-2, 1), FloatBox(-1, 1, (2,))], Pair)


@pytest.mark.parametrize(
    "space, agent, low",
    [
        (IntBox(3, 6), MlpFfAgent(), 3),
        (IntBox(-5, 0), MlpDqnAgent(), -5),
        (IntBox(5, 7, (3,)), MlpCompositeFfAgent(), 5),
        (STRUCTURE, MlpCompositeFfAgent(), -2),
    ],
)
def test_agents_choose_numbers_from_0_and_environments_get_theirs(space, agent, low):
    sampler = SerialSampler(make, dict(space=space), batch_T=20, batch_B=2, max_decorrelation_steps=5)
    sampler.initialize(agent, seed=1, bootstrap_value=hasattr(agent, "value"))
    samples, _ = sampler.obtain_samples(0)
    sampler.shutdown()
    action = samples.agent.action.n if space is STRUCTURE else samples.agent.action
    assert action.min() == 0 and len(action.unique()) > 1
    np.testing.assert_array_equal(action + low, samples.env.env_info.got)


@pytest.mark.parametrize("space", [IntBox(3, 6), IntBox(-5, 0, (2,), null_value=-6), STRUCTURE])
def test_the_contract_of_environments_is_kept(space):
    check_env(make, dict(space=space))


def test_spaces_count_from_0():
    space = make(IntBox(3, 6)).action_space
    assert (space.low, space.high, int(space.null_value())) == (0, 3, 0)
    wide = make(IntBox(-100, 100, dtype="int8")).action_space
    assert (wide.n, wide.dtype) == (200, np.int64)
    env = Elsewhere(IntBox(0, 4))
    assert FromZero(env).action_space is env.action_space and FromZero(env).spaces.observation is env.observation_space
    drawn = []
    for env in (make(IntBox(3, 60)), make(IntBox(3, 60))):
        env.seed(7)
        drawn.append([int(env.action_space.sample()) for _ in range(10)])
    assert drawn[0] == drawn[1]
