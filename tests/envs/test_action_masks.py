"""Environments of Gymnasium that say which actions may follow: the mask is part of the observation."""

from collections import namedtuple

import gymnasium
import numpy as np
import pytest
from envs import CountingEnv, MaskedGymEnv, make_masked
from gymnasium import spaces
from tiers import thinned

from rlpyt.envs import gym_schema
from rlpyt.envs.action_masks import ActionMaskWrapper, VectorActionMaskWrapper
from rlpyt.envs.contract import check_env
from rlpyt.envs.gym import GymEnvWrapper, make
from rlpyt.envs.vector import GymVectorEnv, VectorEnvs, make_vec
from rlpyt.samplers.vector import VectorCalls
from rlpyt.spaces.composite import Composite
from rlpyt.spaces.float_box import FloatBox
from rlpyt.spaces.gym_wrapper import GymSpaceWrapper
from rlpyt.spaces.int_box import IntBox
from rlpyt.spaces.masked import MaskedObservation, allowed_action, is_masked, mask_size, masked_space, split, without_mask
from rlpyt.types import AgentInputs, TrajInfo
from rlpyt.utils.buffer import buffer_from_example, buffer_leaves
from rlpyt.utils.collections import fields_of


@pytest.mark.parametrize("where", ["info", "observation"])
@pytest.mark.parametrize("kind", MaskedGymEnv.ACTIONS)
def test_the_mask_is_beside_the_observation_also_after_a_reset(kind, where):
    """The environment also tells the mask in its observation."""
    env = make_masked(kind, where)
    assert (
        env.observation_space.names == ("observation", "action_mask") and without_mask(env.observation_space).shape == env.reset()[0].shape
    )
    for seed in range(5):
        env.seed(seed)
        observation, done = env.reset(), False
        while True:
            vector, mask = split(observation)
            assert mask.dtype == np.int8 and env.observation_space.contains(observation)
            assert done or np.array_equal(mask, vector[:-1])
            if done:
                break
            action = allowed_action(env.action_space, env.action_space.sample(), observation)
            observation, _, done, env_info = env.step(action)
            assert "action_mask" not in env_info._fields, "once is enough"


@pytest.mark.parametrize("where", ["info", "observation"])
@pytest.mark.parametrize("kind", MaskedGymEnv.ACTIONS)
def test_it_keeps_the_contract(kind, where):
    check_env(make_masked, dict(kind=kind, where=where), n_steps=40)


def test_an_action_that_is_allowed_stays_and_another_becomes_one():
    space = GymSpaceWrapper(MaskedGymEnv.ACTIONS["structure"])
    size = mask_size(space)
    assert size == 3 + 2 + 2 + 2 + 3
    rng = np.random.default_rng(0)
    for _ in range(100):
        mask = (rng.random(size) < 0.5).astype(np.int8)
        action = space.sample()
        allowed = allowed_action(space, action, MaskedObservation(0, mask))
        assert space.contains(allowed)
        values = [allowed.a, *allowed.c.item_0, *allowed.c.item_1]
        before = [action.a, *action.c.item_0, *action.c.item_1]
        for value, was, of_integer in zip(values, before, np.split(mask, [3, 5, 7, 9]), strict=True):
            assert of_integer[value] or not of_integer.any()
            assert value == was or not of_integer[was]


def test_environments_of_rlpyt_declare_the_same_space():
    space = masked_space(FloatBox(-1, 1, (4,)), IntBox(0, 3))
    assert is_masked(space.sample()) and space.spaces[1].shape == (3,)
    assert without_mask(space) is space.spaces[0]
    assert split(np.ones(3)) == (pytest.approx(np.ones(3)), None)
    of_gym = GymSpaceWrapper(spaces.Dict([("observation", spaces.Box(-1, 1, (4,))), ("action_mask", spaces.MultiBinary(3))]))
    assert without_mask(of_gym) is of_gym.spaces[0] and is_masked(of_gym.sample())


class Plain(gymnasium.Env):
    """Its mask is what a test wants."""

    observation_space, action_space = spaces.Dict(a=spaces.Discrete(2), b=spaces.Discrete(3)), spaces.Discrete(3)
    masks = {}

    def reset(self, *, seed=None, options=None):
        return dict(a=0, b=1), dict(self.masks)

    def step(self, action):
        return dict(a=0, b=1), 0.0, False, False, dict(self.masks)


@pytest.mark.parametrize(
    "action_space, masks, says",
    [
        (spaces.Discrete(3), {}, "there is no mask of this name in the info that reset"),
        (spaces.Discrete(3), dict(mask=np.ones(4, np.int8)), "has 4 entries .* needs 3"),
        (spaces.Discrete(3), dict(mask=np.zeros(3, np.int8)), "allows no action, but the episode continues"),
        (
            spaces.MultiDiscrete([2, 3]),
            dict(mask=(np.ones(2, np.int8), np.zeros(3, np.int8))),
            "allows no action, but the episode continues",
        ),
        (spaces.MultiBinary(2), dict(mask=np.array([1, 1, 0, 0])), "allows no action, but the episode continues"),
        (spaces.Box(-1, 1, (3,)), dict(mask=np.ones(3, np.int8)), "is for discrete actions"),
    ],
)
def test_masks_that_cannot_be_are_refused(action_space, masks, says):
    env = Plain()
    env.action_space, env.masks = action_space, masks
    with pytest.raises(ValueError, match=says):
        GymEnvWrapper(env, action_mask="mask")


@pytest.mark.parametrize("in_vector", [False, True])
@pytest.mark.parametrize(
    "action_space, mask, entry",
    [
        (spaces.Discrete(3), np.array([-1e9, 0.0, 0.0]), "-1000000000.0"),  # To be added to logits: 0 allows an action.
        (spaces.Discrete(3), np.array([1, -1, 1]), "-1"),
        (spaces.Discrete(3), [0.0, float("-inf"), 1.0], "-inf"),
        (spaces.Discrete(3), np.array([1.0, np.nan, 1.0]), "nan"),
        (spaces.MultiDiscrete([2, 3]), (np.array([1, 0]), np.array([0, 0.5, 1])), "0.5"),
        (spaces.MultiBinary(2), np.array([0, -1e9]), "-1000000000.0"),
        (spaces.MultiBinary(2), np.array([3, 2]), "3"),
        (spaces.MultiBinary(2), np.array([0, 2, 1, 1]), "2"),
    ],
)
def test_masks_with_other_entries_than_0_and_1_are_refused(action_space, mask, entry, in_vector):
    with pytest.raises(ValueError, match=f"The mask 'mask' has the entry {entry}. A mask has (0 or )?1 for each"):
        mask_of(action_space, mask, in_vector)


@pytest.mark.parametrize("in_vector", [False, True])
@pytest.mark.parametrize("dtype", [bool, np.int8, np.uint8, int, np.float32, float, object])
def test_entries_of_masks_may_have_any_type(dtype, in_vector):
    assert mask_of(spaces.Discrete(3), np.array([0, 1, 1], dtype), in_vector).tolist() == [0, 1, 1]
    assert mask_of(spaces.MultiBinary(2), np.array([0, 1], dtype), in_vector).tolist() == [1, 0, 0, 1]
    if dtype is not bool:
        assert mask_of(spaces.MultiBinary(2), np.array([2, 1], dtype), in_vector).tolist() == [1, 1, 0, 1]


def test_check_env_reports_other_entries_than_0_and_1():
    class Declared(CountingEnv):
        """Has rlpyt's interface, and declares the space of the mask itself."""

        def __init__(self):
            super().__init__()
            self._observation_space = Composite([self._observation_space, FloatBox(-1e9, 1, (3,))], MaskedObservation)

        def _observation(self):
            return MaskedObservation(super()._observation(), np.array([0, 1, -1e9 if self.t == 2 else 1], np.float32))

    with pytest.raises(AssertionError, match="The mask of step.* at step 1 must have 1 for each value of an action that may be taken"):
        check_env(Declared)


BOTH = spaces.Dict([("move", spaces.Discrete(3)), ("hand.left", spaces.Discrete(2)), ("speed", spaces.Box(-1, 1, (2,)))])
PAIR = spaces.Tuple((spaces.Discrete(3), spaces.Discrete(2)))
MOVE, HAND = np.array([0, 1, 1], np.int8), np.array([1, 0], np.int8)


def mask_of(action_space, mask, in_vector):
    """What the wrappers make of the mask that an environment gives."""
    env = Plain()
    env.action_space, env.masks = action_space, dict(mask=mask)
    if not in_vector:
        return ActionMaskWrapper(env, "mask").reset()[0]["action_mask"]
    vector = gymnasium.vector.SyncVectorEnv([lambda: env] * 2)
    return VectorActionMaskWrapper(vector, "mask").reset()[0]["action_mask"][1]


@pytest.mark.parametrize("in_vector", [False, True])
@pytest.mark.parametrize(
    "action_space, mask, says",
    [
        (
            BOTH,
            {"move": MOVE, "hand.lft": HAND, "speed": None},
            r"has the parts \['move', 'hand.lft', 'speed'\] for .* 'hand.left', 'speed'\]",
        ),
        (
            BOTH,
            {"go": MOVE, "hand.left": HAND, "speed": None},
            r"has the parts \['go', .* needs the parts \['move', 'hand.left', 'speed'\]",
        ),
        (BOTH, {"move": MOVE, "speed": None}, r"has the parts \['move', 'speed'\] for .* needs the parts \['move', 'hand.left', 'speed'\]"),
        (PAIR, (MOVE, HAND, HAND), r"has 3 parts for .* needs the parts \[0, 1\]"),
        (PAIR, (MOVE,), r"has 1 parts for .* needs the parts \[0, 1\]"),
        (spaces.MultiDiscrete([3, 2]), (HAND, MOVE), r"has parts of \[2, 3\] entries for .* needs parts of \[3, 2\]"),
        (spaces.MultiDiscrete([3, 3]), np.ones((3, 2), np.int8), r"has parts of \[2, 2, 2\] entries for .* needs parts of \[3, 3\]"),
        (spaces.MultiBinary(2), (MOVE, np.ones(1, np.int8)), r"has parts of \[3, 1\] entries for .* needs parts of \[2, 2\]"),
    ],
)
def test_masks_with_other_parts_are_refused(action_space, mask, says, in_vector):
    with pytest.raises(ValueError, match=f"The mask 'mask' {says}"):
        mask_of(action_space, mask, in_vector)


@pytest.mark.parametrize("in_vector", [False, True])
@pytest.mark.parametrize(
    "action_space, mask",
    [
        (BOTH, {"hand.left": HAND, "move": MOVE, "speed": None}),  # By key, in any order,
        (BOTH, dict(hand_left=HAND, move=MOVE, speed=None)),  # or by field,
        (BOTH, namedtuple("Mask", ["hand_left", "speed", "move"])(HAND, None, MOVE)),
        (BOTH, (MOVE, HAND, None)),
        (BOTH, np.array([0, 1, 1, 1, 0])),
        (PAIR, (MOVE, HAND)),
        (spaces.MultiDiscrete([3, 2]), [[0, 1, 1], [1, 0]]),
        (spaces.MultiDiscrete([3, 2]), [0, 1, 1, 1, 0]),
    ],
)
def test_masks_have_one_of_several_forms(action_space, mask, in_vector):
    assert mask_of(action_space, mask, in_vector).tolist() == [0, 1, 1, 1, 0]


def test_other_fields_of_a_structured_observation_stay_a_structure():
    env = Plain()
    env.masks = dict(mask=[True, False, True])
    wrapped = GymEnvWrapper(env, action_mask="mask")
    observation = wrapped.reset()
    assert observation.observation._fields == ("a", "b") and observation.action_mask.tolist() == [1, 0, 1]
    assert len(buffer_leaves(observation)) == 3


def test_make_takes_the_name_of_the_mask():
    gymnasium.register("rlpyt/Masked-v0", MaskedGymEnv)
    try:
        assert is_masked(make("rlpyt/Masked-v0", action_mask="action_mask").reset())
    finally:
        del gymnasium.registry["rlpyt/Masked-v0"]


@pytest.mark.parametrize("mode", thinned(["SameStep", "NextStep", "Disabled"], quick=["SameStep"]))
@pytest.mark.parametrize("kind", MaskedGymEnv.ACTIONS)
def test_random_actions_in_a_vector_are_allowed_ones(kind, mode):
    """The environments refuse others."""
    make_one = [lambda: ActionMaskWrapper(MaskedGymEnv(kind))] * 4
    vector = VectorEnvs(lambda num_envs: gymnasium.vector.SyncVectorEnv(make_one, autoreset_mode=mode))(4)
    vector.seed(range(4))
    inputs = AgentInputs(
        observation=buffer_from_example(vector.observation_space.null_value(), (4,), share_memory=False),
        prev_action=buffer_from_example(vector.action_space.null_value(), (4,), share_memory=False),
        prev_reward=np.zeros(4, np.float32),
    )
    VectorCalls(vector, range(4)).start(inputs, TrajInfo, 40)
    vector.close()


def vector_of(make_one, n, mode, **kwargs):
    vector = gymnasium.vector.SyncVectorEnv([make_one] * n, autoreset_mode=mode, copy=False)
    return GymVectorEnv(vector, **kwargs)


@pytest.mark.parametrize("mode", thinned(["SameStep", "NextStep", "Disabled"], quick=["SameStep", "Disabled"]))
@pytest.mark.parametrize("where", ["info", "observation"])
@pytest.mark.parametrize("kind", thinned(MaskedGymEnv.ACTIONS, quick=["discrete", "structure"]))
def test_a_vector_has_the_masks_of_its_environments(kind, where, mode):
    """Compared with masks that each environment puts beside its observation, at every step, and at the end of every episode."""
    key = dict(info="action_mask", observation="allowed")[where]
    ours = vector_of(lambda: MaskedGymEnv(kind, where), 4, mode, action_mask=key)
    theirs = vector_of(lambda: ActionMaskWrapper(MaskedGymEnv(kind, where), key), 4, mode)
    assert ours.observation_space.names == ("observation", "action_mask")
    outs = [buffer_from_example(ours.observation_space.null_value(), (4,), share_memory=False) for _ in range(2)]
    for vector, out in zip((ours, theirs), outs):
        vector.seed(range(4))
        vector.reset_into(out)
    n_ended = 0
    for _ in range(40):
        assert_equal(outs[0], outs[1])
        actions = buffer_from_example(ours.action_space.null_value(), (4,), share_memory=False)
        for b in range(4):
            actions[b] = allowed_action(ours.action_space, ours.action_space.sample(), outs[0][b])
        steps = [vector.step_into(actions, out) for vector, out in zip((ours, theirs), outs)]
        for mine, other in zip(*(step[:3] for step in steps)):
            np.testing.assert_array_equal(mine, other)
        assert "action_mask" not in (fields_of(steps[0].infos) or ()), "once is enough"
        ended = steps[0].terminated | steps[0].truncated
        n_ended += ended.sum()
        if mode == "SameStep" and ended.any():
            assert_equal(steps[0].final_observation[ended], steps[1].final_observation[ended])
        if mode == "Disabled" and ended.any():
            for vector, out in zip((ours, theirs), outs):
                vector.reset_into(out, ended)
    assert n_ended > 5
    assert ours.get_state().keys() == theirs.get_state().keys(), "the wrapper around the vector has no state"
    ours.set_state(ours.get_state())
    ours.close()
    theirs.close()


def assert_equal(mine, other):
    for x, y in zip(buffer_leaves(mine), buffer_leaves(other), strict=True):
        np.testing.assert_array_equal(x, y)


class MaskInObservation(gymnasium.Env):
    """Its mask is a tuple in the observation, as Gymnasium's for MultiDiscrete is."""

    action_space = spaces.MultiDiscrete([2, 2])
    observation_space = spaces.Dict(a=spaces.Discrete(2), mask=spaces.Tuple([spaces.MultiBinary(2)] * 2))

    def __init__(self, mask):
        self.observation = dict(a=1, mask=mask)

    def reset(self, *, seed=None, options=None):
        return self.observation, {}

    def step(self, action):
        return self.observation, 0.0, True, False, {}


@pytest.mark.parametrize("mode", ["SameStep", "NextStep", "Disabled"])
def test_tuples_in_the_observations_of_a_vector_are_taken_apart_by_environment(mode):
    """A tuple of the vector has as many parts as the action, each with a row for each environment: here two and two."""
    masks = [(np.array([1, 0], np.int8), np.array([1, 1], np.int8)), (np.array([0, 1], np.int8), np.array([0, 1], np.int8))]
    vector = gymnasium.vector.SyncVectorEnv([lambda mask=mask: MaskInObservation(mask) for mask in masks], autoreset_mode=mode)
    vector = VectorActionMaskWrapper(vector, "mask")
    expected = [np.concatenate(mask).tolist() for mask in masks]
    assert vector.reset()[0]["action_mask"].tolist() == expected
    observation, *_, infos = vector.step(np.array([[0, 1], [1, 1]]))
    assert observation["action_mask"].tolist() == expected
    if mode == "SameStep":
        assert [final["action_mask"].tolist() for final in infos["final_obs"]] == expected


def test_a_key_that_only_some_environments_of_a_vector_give_is_missing_in_the_others():
    envs = [Plain(), Plain()]
    for env, mask in zip(envs, (dict(move=MOVE, hand=HAND), dict(move=MOVE))):
        env.action_space, env.masks = spaces.Dict(move=spaces.Discrete(3), hand=spaces.Discrete(2)), dict(mask=mask)
    with pytest.raises(ValueError, match=r"has the parts \['move'\] for"):
        VectorActionMaskWrapper(gymnasium.vector.SyncVectorEnv([lambda env=env: env for env in envs]), "mask").reset()


@pytest.mark.parametrize(
    "masks, says",
    [
        ({}, "there is no mask of this name in the info that reset.. of an environment of SyncVectorEnv"),
        (dict(mask=np.zeros(3, np.int8)), "allows no action, but the episode continues"),
        (dict(mask=np.ones(4, np.int8)), "has 4 entries .* needs 3"),
    ],
)
def test_masks_of_a_vector_that_cannot_be_are_refused(masks, says):
    def make_one():
        env = Plain()
        env.masks = masks
        return env

    with pytest.raises(ValueError, match=says):
        vector_of(make_one, 2, "SameStep", action_mask="mask")


def test_make_vec_takes_the_name_of_the_mask():
    vector = VectorEnvs(make_vec)(3, id="Taxi-v4", action_mask="action_mask")
    out = buffer_from_example(vector.observation_space.null_value(), (3,), share_memory=False)
    vector.reset_into(out)
    assert is_masked(out) and out.action_mask.shape == (3, 6) and out.action_mask.any(axis=1).all() and not out.action_mask.all()
    assert "prob" in vector.step_into(np.zeros(3, int), out).infos._fields
    vector.close()


@pytest.mark.parametrize(
    "space, mask, expected",
    [
        (spaces.Dict(a=spaces.Discrete(3), f=spaces.Box(-1, 1)), dict(a=np.array([1, 0, 1])), [1, 0, 1]),  # Real numbers need no mask.
        (spaces.Discrete(3), np.array([[1], [0], [1]]), [1, 0, 1]),
        (
            spaces.MultiDiscrete([[2, 3], [4, 2]]),
            (([1, 0], [0, 1, 1]), ([1, 1, 0, 1], [1, 1])),
            [1, 0, 0, 1, 1, 1, 1, 0, 1, 1, 1],
        ),
    ],
)
def test_masks_in_other_forms_are_understood(space, mask, expected):
    class Masked(gymnasium.Env):
        observation_space, action_space = spaces.Box(0, 1, (1,), np.float32), space

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return np.zeros(1, np.float32), dict(action_mask=mask)

    observation, _ = ActionMaskWrapper(Masked()).reset()
    assert observation["action_mask"].tolist() == expected


def test_wrapping_by_schemas_takes_masks_of_composite_actions():
    check_env(lambda: gym_schema.GymEnvWrapper(MaskedGymEnv("structure", "info"), action_mask="action_mask"), n_steps=40)
