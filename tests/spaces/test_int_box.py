import numpy as np
import pytest

from rlpyt.spaces.int_box import IntBox


def test_high_is_excluded_and_every_value_below_it_occurs():
    space = IntBox(2, 5, shape=(200,))
    space.seed(0)
    assert set(space.sample()) == {2, 3, 4}
    assert space.n == 3
    assert space.bounds == (2, 5)


@pytest.mark.parametrize("dtype", ["uint8", "int32", "int64"])
@pytest.mark.parametrize("shape", [None, 4, (2, 3)])
def test_samples_and_null_value_have_the_dtype_and_shape_of_the_space(dtype, shape):
    space = IntBox(1, 7, shape=shape, dtype=dtype)
    for x in (space.sample(), space.null_value()):
        assert x.dtype == dtype
        assert x.shape == space.shape
        assert space.contains(x)


def test_null_value_is_low_unless_given():
    assert IntBox(3, 9).null_value() == 3
    assert (IntBox(3, 9, shape=(2,), null_value=0).null_value() == [0, 0]).all()


def test_changing_a_null_value_does_not_change_the_next():
    space = IntBox(0, 4, shape=(2,))
    space.null_value()[:] = 3
    assert (space.null_value() == 0).all()


def test_all_of_uint8_can_be_sampled():
    space = IntBox(0, 256, shape=(5000,), dtype="uint8")
    space.seed(1)
    assert set(space.sample()) == set(range(256))


def test_samples_come_from_numpys_global_state_until_the_space_is_seeded():
    space = IntBox(0, 1000, shape=(5,))
    np.random.seed(3)
    first = space.sample()
    np.random.seed(3)
    assert (space.sample() == first).all()
    space.seed(7)
    seeded = space.sample()
    np.random.seed(3)
    space.seed(7)
    state = np.random.get_state()[1].copy()
    assert (space.sample() == seeded).all()
    assert (np.random.get_state()[1] == state).all()
    space.seed(None)
    np.random.seed(3)
    assert (space.sample() == first).all()


def test_contains_checks_range_shape_and_type():
    space = IntBox(0, 3, shape=(2,))
    assert space.contains([0, 2])
    assert not space.contains([0, 3])
    assert not space.contains([-1, 0])
    assert not space.contains([0, 1, 2])
    assert not space.contains([0.0, 1.0])


@pytest.mark.parametrize("low, high, dtype", [(3, 3, "int32"), (4, 3, "int32"), (0, 257, "uint8"), (-1, 4, "uint8")])
def test_empty_ranges_and_ranges_beyond_the_dtype_are_refused(low, high, dtype):
    with pytest.raises(ValueError, match="range"):
        IntBox(low, high, dtype=dtype)


def test_real_dtypes_and_array_bounds_are_refused():
    with pytest.raises(ValueError, match="FloatBox"):
        IntBox(0, 3, dtype="float32")
    with pytest.raises(ValueError, match="scalar"):
        IntBox(np.zeros(2), np.ones(2))
