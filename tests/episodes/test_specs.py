"""Step types, specifications, single steps."""

import dataclasses

import cloudpickle
import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from rlpyt.envs.gym_env import GymEnv
from rlpyt.envs.point_env import PointEnv
from rlpyt.envs.specs import flat_dim
from rlpyt.episodes import EnvSpec, EnvStep, InOutSpec, StepType, TimeStep, as_environment, as_gymnasium, as_rlpyt
from rlpyt.spaces.float_box import FloatBox
from rlpyt.spaces.gym_wrapper import GymSpaceWrapper
from rlpyt.spaces.int_box import IntBox

BOX, DISCRETE = spaces.Box(-1.0, 1.0, (3,), np.float32), spaces.Discrete(4)


# Step types ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("step_cnt", "limit", "done", "expected"),
    [
        (1, 5, False, StepType.FIRST),
        (2, 5, False, StepType.MID),
        (4, 5, True, StepType.TERMINAL),
        (5, 5, False, StepType.TIMEOUT),
        (5, 5, True, StepType.TIMEOUT),
        (6, 5, False, StepType.TIMEOUT),
        (1, 5, True, StepType.TERMINAL),
        (1, 1, False, StepType.TIMEOUT),
        (10**9, None, False, StepType.MID),
        (10**9, float("inf"), False, StepType.MID),
        (7, None, True, StepType.TERMINAL),
    ],
)
def test_step_type_by_count_and_merged_flag(step_cnt, limit, done, expected):
    assert StepType.get_step_type(step_cnt, limit, done) is expected


@pytest.mark.parametrize("step_cnt", [None, 0, -1])
@pytest.mark.parametrize("done", [False, True])
@pytest.mark.parametrize("limit", [None, 0, 5])
def test_counting_from_less_than_one_says_to_reset(step_cnt, limit, done):
    with pytest.raises(ValueError, match=r"reset\(\)"):
        StepType.get_step_type(step_cnt, limit, done)


def test_of_separate_flags_termination_wins():
    assert StepType.from_flags(first=True, terminated=True, truncated=True) is StepType.TERMINAL
    assert StepType.from_flags(False, False, True) is StepType.TIMEOUT
    assert StepType.from_flags(True, False, True) is StepType.TIMEOUT
    assert StepType.from_flags(True, False, False) is StepType.FIRST
    assert StepType.from_flags(False, False, False) is StepType.MID
    types = StepType.from_flags(np.array([True, True, False]), False, np.array([False, True, False]))
    assert types.dtype == np.uint8 and types.tolist() == [StepType.FIRST, StepType.TIMEOUT, StepType.MID]


def test_step_types_are_the_numbers_0_to_3():
    assert [int(x) for x in (StepType.FIRST, StepType.MID, StepType.TERMINAL, StepType.TIMEOUT)] == [0, 1, 2, 3]


# Specifications ------------------------------------------------------------------------------------------------------
def test_in_out_spec_is_frozen_and_compared_by_value():
    spec = InOutSpec(input_space=BOX, output_space=DISCRETE)
    assert spec.input_space is BOX and spec.output_space is DISCRETE
    assert spec == InOutSpec(spaces.Box(-1.0, 1.0, (3,), np.float32), spaces.Discrete(4))
    assert spec != InOutSpec(BOX, spaces.Discrete(5))
    with pytest.raises(dataclasses.FrozenInstanceError):
        spec.input_space = DISCRETE


def test_env_spec_names_its_spaces():
    spec = EnvSpec(observation_space=BOX, action_space=DISCRETE, max_episode_length=7)
    assert spec.observation_space is spec.output_space is BOX
    assert spec.action_space is spec.input_space is DISCRETE
    assert spec.max_episode_length == 7 and EnvSpec(BOX, DISCRETE).max_episode_length is None
    for name in ("observation_space", "action_space", "max_episode_length"):
        with pytest.raises(AttributeError):
            setattr(spec, name, None)


def test_env_specs_differ_in_spaces_and_length():
    spec = EnvSpec(BOX, DISCRETE, 7)
    assert spec == EnvSpec(BOX, DISCRETE, 7)
    assert spec != EnvSpec(BOX, DISCRETE, 8) and spec != EnvSpec(BOX, DISCRETE) and spec != EnvSpec(DISCRETE, BOX, 7)
    assert spec != InOutSpec(DISCRETE, BOX)


def test_env_specs_can_be_keys():
    names = {EnvSpec(BOX, DISCRETE, 7): "a", EnvSpec(BOX, DISCRETE): "b", InOutSpec(DISCRETE, BOX): "c"}
    same = EnvSpec(spaces.Box(-1.0, 1.0, (3,), np.float32), spaces.Discrete(4), 7)
    assert names[same] == "a" and hash(same) == hash(EnvSpec(BOX, DISCRETE, 7)) and same in {EnvSpec(BOX, DISCRETE, 7)}
    assert names[EnvSpec(BOX, DISCRETE)] == "b" and names[InOutSpec(DISCRETE, BOX)] == "c" and EnvSpec(BOX, DISCRETE, 8) not in names
    assert EnvSpec(FloatBox(-1, 1, (2,)), IntBox(0, 3)) in {EnvSpec(FloatBox(-1, 1, (2,)), IntBox(0, 3))}


def test_a_spec_with_another_limit():
    spec = EnvSpec(BOX, DISCRETE, 7)
    assert dataclasses.replace(spec, max_episode_length=4) == EnvSpec(BOX, DISCRETE, 4) and spec.max_episode_length == 7
    assert dataclasses.replace(spec, action_space=BOX) == EnvSpec(BOX, BOX, 7)
    assert repr(spec) == f"EnvSpec(observation_space={BOX}, action_space={DISCRETE}, max_episode_length=7)"


@pytest.mark.parametrize("wrap", [lambda space: space, GymSpaceWrapper])
def test_env_spec_survives_cloudpickle(wrap):
    spec = EnvSpec(wrap(BOX), wrap(DISCRETE), 7)
    copy = cloudpickle.loads(cloudpickle.dumps(spec))
    assert copy == spec and copy.max_episode_length == 7 and copy.observation_space == spec.observation_space


@pytest.mark.parametrize("limit", [7, None])
def test_the_spec_of_an_environment_is_the_same_as_whichever_kind_it_is_had(limit):
    env = GymEnv(gymnasium.make("CartPole-v1", max_episode_steps=limit or -1))
    assert EnvSpec.from_env(env) is env.spec and env.spec.max_episode_length == limit
    for same in (as_gymnasium(env), as_environment(as_gymnasium(env)), as_environment(as_rlpyt(env))):
        assert EnvSpec.from_env(same).max_episode_length == limit and EnvSpec.from_env(same).action_space.n == 2
    assert EnvSpec.from_env(as_rlpyt(env)).max_episode_length == limit


def test_the_spec_of_an_environment_of_ones_own_has_its_limit():
    assert EnvSpec.from_env(PointEnv(max_episode_length=7)).max_episode_length == 7
    assert EnvSpec.from_env(as_rlpyt(PointEnv(max_episode_length=7))).max_episode_length == 7


def test_spaces_of_rlpyt_are_compared_by_value_too():
    assert EnvSpec(FloatBox(-1, 1, (2,)), IntBox(0, 3)) == EnvSpec(FloatBox(-1, 1, (2,)), IntBox(0, 3))
    assert EnvSpec(FloatBox(-1, 1, (2,)), IntBox(0, 3)) != EnvSpec(FloatBox(-1, 2, (2,)), IntBox(0, 3))
    assert EnvSpec(FloatBox(-1, 1, (2,)), IntBox(0, 3)) != EnvSpec(FloatBox(-1, 1, (2,)), IntBox(0, 4))


def test_flat_dim():
    assert flat_dim(BOX) == 3 and flat_dim(DISCRETE) == 4 and flat_dim(spaces.Box(0, 1, (4, 3, 2))) == 24
    assert flat_dim(spaces.MultiDiscrete([2, 5])) == 7 and flat_dim(spaces.MultiBinary(3)) == 3
    assert flat_dim(spaces.Dict(a=BOX, b=spaces.Tuple((DISCRETE, BOX)))) == 10
    assert flat_dim(GymSpaceWrapper(spaces.Dict(a=BOX, b=DISCRETE))) == 7
    assert flat_dim(FloatBox(0, 1, (2, 3))) == 6 and flat_dim(IntBox(0, 5)) == 5


# Single steps --------------------------------------------------------------------------------------------------------
def make_steps(step_type):
    spec = EnvSpec(BOX, DISCRETE, 7)
    arrays = dict(action=np.array([100.0]), reward=1.5, env_info={"x": np.ones(2)}, step_type=step_type)
    before, after = np.full(3, 50.0), np.full(3, -50.0)  # Out of bounds, which nobody minds.
    env_step = EnvStep(env_spec=spec, observation=after, **arrays)
    time_step = TimeStep(
        env_spec=spec, episode_info={"goal": np.zeros(2)}, observation=before, next_observation=after, agent_info={"p": 1}, **arrays
    )
    return env_step, time_step, arrays


def test_steps_keep_the_very_objects():
    env_step, time_step, arrays = make_steps(StepType.MID)
    for name, value in arrays.items():
        assert getattr(env_step, name) is value and getattr(time_step, name) is value


@pytest.mark.parametrize("step_type", StepType)
def test_questions_about_the_step_type_are_properties(step_type):
    for step in make_steps(step_type)[:2]:
        answers = (step.first, step.mid, step.terminal, step.timeout, step.last)
        assert answers == (step_type == 0, step_type == 1, step_type == 2, step_type == 3, step_type >= 2)
        assert all(isinstance(answer, bool) for answer in answers)


def test_a_time_step_from_an_env_step():
    env_step, time_step, _ = make_steps(StepType.FIRST)
    made = TimeStep.from_env_step(env_step, time_step.observation, time_step.agent_info, time_step.episode_info)
    assert made == time_step
    assert made.observation is time_step.observation and made.next_observation is env_step.observation
    assert TimeStep.from_env_step(env_step, time_step.observation, {}).episode_info == {}


def test_steps_are_compared_by_value():
    assert make_steps(StepType.MID)[0] == make_steps(StepType.MID)[0]
    assert make_steps(StepType.MID)[1] == make_steps(StepType.MID)[1]
    assert make_steps(StepType.MID)[1] != make_steps(StepType.FIRST)[1]
    env_step = make_steps(StepType.MID)[0]
    env_step.env_info = {"x": np.zeros(2)}  # An EnvStep can be changed.
    assert env_step != make_steps(StepType.MID)[0]
    with pytest.raises(dataclasses.FrozenInstanceError):
        make_steps(StepType.MID)[1].reward = 2.0
