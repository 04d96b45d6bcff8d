import pickle
from collections import namedtuple

import pytest

from rlpyt.spaces.composite import Composite
from rlpyt.spaces.float_box import FloatBox
from rlpyt.spaces.int_box import IntBox

Inner = namedtuple("Inner", ["x", "y"])
Outer = namedtuple("Outer", ["k", "inner"])


def make_space():
    inner = Composite([FloatBox(-1, 1, shape=(2,)), FloatBox(0, 1, shape=(3,), null_value=0.5)], Inner)
    return Composite([IntBox(0, 1000), inner], Outer)


def flat(value):
    return [value.k.tolist(), value.inner.x.tolist(), value.inner.y.tolist()]


def test_values_shapes_and_dtypes_are_namedtuples_in_the_order_of_the_spaces():
    space = make_space()
    assert isinstance(space.sample(), Outer) and isinstance(space.sample().inner, Inner)
    assert space.shape == Outer(k=(), inner=Inner(x=(2,), y=(3,)))
    assert space.dtype == Outer(k="int32", inner=Inner(x="float32", y="float32"))
    assert flat(space.null_value()) == [0, [0.0, 0.0], [0.5, 0.5, 0.5]]
    assert space.names == ("k", "inner")
    assert isinstance(space.spaces, list) and isinstance(space.spaces[0], IntBox)  # A tuple and a list, as in the original.


def test_seed_reaches_every_sub_space_with_a_seed_of_its_own():
    one, two = make_space(), make_space()
    one.seed(3)
    two.seed(3)
    assert flat(one.sample()) == flat(two.sample())
    two.seed(4)
    assert flat(one.sample()) != flat(two.sample())
    pair = Composite([IntBox(0, 10**6), IntBox(0, 10**6)], Inner)
    pair.seed(0)
    assert pair.sample().x != pair.sample().y


def test_contains_asks_every_sub_space():
    space = make_space()
    sample = space.sample()
    assert space.contains(sample)
    assert not space.contains(sample._replace(k=1000))
    assert not space.contains(sample.inner)
    assert not space.contains(0)


def test_number_of_spaces_and_fields_must_agree():
    with pytest.raises(ValueError, match="fields"):
        Composite([IntBox(0, 2)], Inner)


def test_a_composite_can_be_pickled():
    space = make_space()
    space.seed(5)
    assert flat(pickle.loads(pickle.dumps(space)).sample()) == flat(space.sample())


def test_clipping_clips_every_sub_space():
    space = make_space()
    sample = space.sample()
    beyond = sample._replace(inner=Inner(sample.inner.x * 0 - 5, sample.inner.y * 0 + 5))
    clipped = space.clip(beyond)
    assert type(clipped) is Outer and flat(clipped) == [sample.k.tolist(), [-1, -1], [1, 1, 1]] and space.contains(clipped)
