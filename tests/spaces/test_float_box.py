import numpy as np
import pytest

from rlpyt.spaces.float_box import FloatBox


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_samples_and_null_value_have_the_dtype_and_shape_of_the_space(dtype):
    space = FloatBox(-1, 1, shape=(3, 4), dtype=dtype)
    for x in (space.sample(), space.null_value()):
        assert x.dtype == dtype
        assert x.shape == (3, 4)
        assert space.contains(x)


def test_array_bounds_hold_for_each_element():
    low, high = np.array([-1.0, 10.0]), np.array([0.0, 12.0])
    space = FloatBox(low, high)
    space.seed(0)
    samples = np.stack([space.sample() for _ in range(1000)])
    assert (samples >= low).all() and (samples <= high).all()
    assert np.allclose(samples.mean(axis=0), [-0.5, 11.0], atol=0.1)


def test_unbounded_elements_are_normal_and_half_bounded_ones_exponential():
    inf = np.inf
    space = FloatBox(np.array([-inf, 2.0, -inf, 0.0]), np.array([inf, inf, -3.0, 1.0]))
    space.seed(0)
    samples = np.stack([space.sample() for _ in range(4000)])
    assert np.isfinite(samples).all()
    assert np.allclose(samples.mean(axis=0), [0.0, 3.0, -4.0, 0.5], atol=0.1)
    assert samples[:, 1].min() >= 2 and samples[:, 2].max() <= -3
    assert samples[:, 0].min() < -2 and samples[:, 0].max() > 2


def test_scalar_space_samples_zero_dimensional_arrays():
    space = FloatBox(0.0, 1.0)
    assert space.shape == () and space.sample().shape == () and space.contains(space.sample())


def test_samples_come_from_numpys_global_state_until_the_space_is_seeded():
    space = FloatBox(-1.0, 1.0, shape=(5,))
    np.random.seed(3)
    first = space.sample()
    np.random.seed(3)
    assert (space.sample() == first).all()
    space.seed(7)
    seeded = space.sample()
    space.seed(7)
    assert (space.sample() == seeded).all()


def test_rounding_to_a_coarse_dtype_never_leaves_the_space():
    space = FloatBox(0.999, 1.0, shape=(1000,), dtype="float16")
    assert space.contains(space.sample())


def test_contains_checks_bounds_shape_and_type():
    space = FloatBox(-1.0, 1.0, shape=(2,))
    assert space.contains([-1.0, 1.0])
    assert not space.contains([0.0, 1.1])
    assert not space.contains([0.0, np.nan])
    assert not space.contains([0.0])
    assert not space.contains(["a", "b"])


def test_contradicting_bounds_and_shapes_are_refused():
    with pytest.raises(ValueError, match="shape"):
        FloatBox(np.zeros(2), np.ones(3))
    with pytest.raises(ValueError, match="exceed"):
        FloatBox(1.0, -1.0, shape=(2,))
    with pytest.raises(ValueError, match="IntBox"):
        FloatBox(0, 1, dtype="int32")


def test_null_value_may_be_given():
    assert (FloatBox(-1, 1, shape=(2,), null_value=0.5).null_value() == 0.5).all()


def test_clipping_puts_on_the_bounds_what_is_beyond_them_and_copies():
    space = FloatBox(np.array([-1.0, 0.0, -np.inf]), np.array([1.0, np.inf, np.inf]))
    value = np.array([[-3.0, -3.0, -3.0], [0.5, 0.25, 0.0], [3.0, 3.0, 3.0]], np.float32)
    clipped = space.clip(value)
    assert clipped.tolist() == [[-1.0, 0.0, -3.0], [0.5, 0.25, 0.0], [1.0, 3.0, 3.0]] and clipped.dtype == np.float32
    clipped[:] = 7
    assert value.max() == 3 and space.high[0] == 1
