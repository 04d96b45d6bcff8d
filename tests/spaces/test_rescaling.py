"""From what a policy chose, in [-1,1], to the units of the space."""

import gymnasium.spaces
import numpy as np
import pytest

from rlpyt.envs.base import ActionForm, for_envs
from rlpyt.spaces.composite import Composite
from rlpyt.spaces.float_box import FloatBox
from rlpyt.spaces.gym_wrapper import GymSpaceWrapper
from rlpyt.spaces.int_box import IntBox
from rlpyt.utils.collections import dynamic_namedtuple

Pair = dynamic_namedtuple("Pair", ["box", "number"])


def boxes(low, high, shape=None):
    """The same box as a space of rlpyt, and as one of Gymnasium in both precisions."""
    low, high = np.asarray(low, np.float32), np.asarray(high, np.float32)
    shape = shape or low.shape
    low, high = np.broadcast_to(low, shape), np.broadcast_to(high, shape)
    yield FloatBox(low, high)
    yield GymSpaceWrapper(gymnasium.spaces.Box(low, high, shape, np.float32))
    yield GymSpaceWrapper(gymnasium.spaces.Box(low, high, shape, np.float64))


@pytest.mark.parametrize("low, high", [([0, 0], [1, 1]), ([-1, -2], [1, 2]), ([-3, 5], [1, 5.5]), ([-3e38, 0.1], [2e38, 0.3])])
def test_minus_one_zero_and_one_become_the_bounds_and_their_middle(low, high):
    for space in boxes(low, high):
        rescale = space.rescaling()
        assert np.array_equal(rescale(-np.ones((3, 2), np.float32)), np.broadcast_to(np.float32(low), (3, 2)))
        assert np.array_equal(rescale(np.ones((3, 2), np.float32)), np.broadcast_to(np.float32(high), (3, 2)))
        middle = (np.float64(low) + np.float64(high)) / 2
        np.testing.assert_allclose(rescale(np.zeros((3, 2), np.float32)), np.broadcast_to(middle, (3, 2)), rtol=1e-6)


@pytest.mark.parametrize("low, high", [(-1, 1), (-2, 2), (-0.4, 0.4), (-np.inf, np.inf)])
def test_the_same_bounds_everywhere_need_no_rescaling(low, high):
    x = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    for space in boxes(low, high, (3,)):
        y = space.rescaling()(x)
        assert np.array_equal(y, x) and not np.shares_memory(x, y)
        expected = x * high if np.isfinite(high) else x
        np.testing.assert_allclose(space.rescaling(everywhere=True)(x), expected, rtol=1e-6)


def test_components_with_an_infinite_bound_stay_as_they_are():
    x = np.array([[-0.5, 7.0, -7.0, 7.0]], np.float32)
    for space in boxes([0, 0, -np.inf, -np.inf], [4, np.inf, 1, np.inf]):
        assert space.rescaling()(x).tolist() == [[1.0, 7.0, -7.0, 7.0]]
        clipped = for_envs(space, ActionForm(clip=True, rescale="auto"))(3 * x)
        assert clipped.tolist() == [[0.0, 21.0, -21.0, 21.0]]


def test_integers_and_parts_of_structures_are_left_alone_or_rescaled_by_themselves():
    action = Pair(np.float32([[0.5]]), np.array([2]))
    gym = GymSpaceWrapper(gymnasium.spaces.Dict(box=gymnasium.spaces.Box(0, 4, (1,)), number=gymnasium.spaces.Discrete(3)))
    for space in (Composite([FloatBox(0, 4, (1,)), IntBox(0, 3)], Pair), gym):
        rescaled = space.rescaling()(action)
        assert type(rescaled) is Pair and rescaled.box.tolist() == [[3.0]] and rescaled.number.tolist() == [2]
    assert gym.rescaling()(dict(box=action.box, number=2))["box"].tolist() == [[3.0]]
    integers = GymSpaceWrapper(gymnasium.spaces.Box(0, 4, (2,), np.int64))
    assert integers.rescaling(everywhere=True)(np.array([1, 4])).tolist() == [1, 4]


@pytest.mark.parametrize("form, expected", [
    (ActionForm(), 1.5), (ActionForm(clip=True), 1.0), (ActionForm(rescale="auto"), 1.25), (ActionForm(clip=True, rescale=True), 1.0),
])  # fmt: skip
def test_environments_get_what_the_agent_asks_for(form, expected):
    for space in boxes([0], [1]):
        x = np.float32([[1.5]])
        y = for_envs(space, form)(x)
        assert y.tolist() == [[expected]] and not np.shares_memory(x, y)
