import pickle
import warnings

import numpy as np
import pytest
from envs import StructuredGymEnv
from gymnasium import spaces

from rlpyt.spaces import gym_wrapper, gym_wrapper_schema
from rlpyt.spaces.gym_wrapper import dict_to_nt, fits_losslessly, nt_to_dict
from rlpyt.utils.structures import field_names

BOTH = pytest.mark.parametrize("wrapper", [gym_wrapper.GymSpaceWrapper, gym_wrapper_schema.GymSpaceWrapper])

ALL_SPACES = [
    spaces.Box(-1.0, 1.0, (3,), np.float32),
    spaces.Box(-np.inf, np.inf, (2, 2), np.float64),
    spaces.Box(0, 255, (4, 5), np.uint8),
    spaces.Discrete(5),
    spaces.Discrete(5, start=3),
    spaces.Discrete(5, start=-2),
    spaces.MultiDiscrete([2, 3, 4]),
    spaces.MultiDiscrete([2, 3], start=[1, -1]),
    spaces.MultiBinary(4),
    spaces.Tuple((spaces.Discrete(2), spaces.Box(0.0, 1.0, (2,)))),
    StructuredGymEnv.observation_space,
    StructuredGymEnv.action_space,
]
EVERY_SPACE = pytest.mark.parametrize("space", ALL_SPACES, ids=str)


def equal(x, y):
    """Same types of containers, keys, dtypes, shapes and values."""
    if isinstance(x, dict):
        return isinstance(y, dict) and list(x) == list(y) and all(equal(x[k], y[k]) for k in x)
    if isinstance(x, tuple):
        return isinstance(y, tuple) and len(x) == len(y) and all(equal(a, b) for a, b in zip(x, y))
    x, y = np.asarray(x), np.asarray(y)
    return x.dtype == y.dtype and x.shape == y.shape and (x == y).all()


@BOTH
@EVERY_SPACE
def test_revert_is_the_inverse_of_convert(wrapper, space):
    wrapped = wrapper(space, force_float32=False)
    for _ in range(10):
        value = space.sample()
        assert equal(wrapped.revert(wrapped.convert(value)), value)


@BOTH
@EVERY_SPACE
def test_convert_is_the_inverse_of_revert_and_float32_is_kept(wrapper, space):
    wrapped = wrapper(space)
    for _ in range(10):
        sample = wrapped.sample()
        reverted = wrapped.revert(sample)
        assert space.contains(reverted)
        assert equal(wrapped.convert(reverted), sample)


@BOTH
@EVERY_SPACE
def test_samples_are_contained_and_the_null_value_has_their_form(wrapper, space):
    def form(value):
        return [form(v) for v in value] if isinstance(value, tuple) else (np.shape(value), np.asarray(value).dtype)

    wrapped = wrapper(space)
    assert wrapped.contains(wrapped.sample())
    assert form(wrapped.null_value()) == form(wrapped.sample())


@pytest.mark.parametrize("low, high", [(-0.1, 0.1), (0.1, 0.1), (0.7, 0.9), (-1e300, 1e300)])
@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
def test_the_bounds_of_a_float64_box_belong_to_it_as_float32_and_what_is_beyond_does_not(low, high):
    space = spaces.Dict({"x": spaces.Box(low, high, (1,), np.float64)})
    wrapped = gym_wrapper.GymSpaceWrapper(space)
    for value in (low, high):
        for x in (np.array([value]), np.array([value], np.float32)):
            assert wrapped.contains(wrapped.null_value()._replace(x=x))
    assert wrapped.contains(wrapped.null_value()._replace(x=np.array([1.0]))) is (high > 1)
    for wrong in ([np.nan], [low, high], low, ["a"], [None]):
        assert not wrapped.contains(wrapped.null_value()._replace(x=np.array(wrong)))


@EVERY_SPACE
def test_equal_seeds_give_equal_samples_and_survive_pickling(space):
    wrapped = gym_wrapper.GymSpaceWrapper(space)
    wrapped.seed(4)
    first = [wrapped.sample() for _ in range(3)]
    wrapped.seed(4)
    copy = pickle.loads(pickle.dumps(wrapped))
    assert all(equal(a, wrapped.sample()) for a in first)
    assert all(equal(a, copy.sample()) for a in first)
    assert copy == wrapped


def test_float64_boxes_become_float32_unless_told_otherwise():
    space = spaces.Box(-2.0, 2.0, (3,), np.float64)
    wrapped = gym_wrapper.GymSpaceWrapper(space)
    assert {wrapped.dtype, wrapped.low.dtype, wrapped.high.dtype, wrapped.convert(space.sample()).dtype} == {np.dtype("float32")}
    assert wrapped.revert(wrapped.sample()).dtype == np.float64
    assert gym_wrapper.GymSpaceWrapper(space, force_float32=False).sample().dtype == np.float64


def test_discrete_values_are_indexes_from_zero():
    wrapped = gym_wrapper.GymSpaceWrapper(spaces.Discrete(3, start=3))
    assert wrapped.n == 3
    assert [wrapped.convert(v) for v in (3, 4, 5)] == [0, 1, 2]
    assert [wrapped.revert(np.int64(i)) for i in range(3)] == [3, 4, 5]
    assert wrapped.null_value() == 0
    assert wrapped.contains(np.int64(2)) and not wrapped.contains(np.int64(3))
    for value in (2, 6):
        with pytest.raises(ValueError, match="from 3 to 5"):
            wrapped.convert(value)
    with pytest.raises(TypeError, match="integer"):
        wrapped.convert(3.5)


@pytest.mark.parametrize("dtype", [np.int64, np.uint8])
def test_integers_outside_of_a_space_are_refused(dtype):
    several = gym_wrapper.GymSpaceWrapper(spaces.MultiDiscrete([2, 5], start=[1, 0], dtype=dtype))
    out = np.zeros((2, 2), dtype)
    several.convert_into(np.array([[1, 4], [2, 0]], dtype), out)
    np.testing.assert_array_equal(out, [[0, 4], [1, 0]])
    np.testing.assert_array_equal(several.convert(np.array([2, 4], dtype)), [1, 4])
    for value in ([0, 0], [3, 0], [1, 5]):
        for refuse in (several.convert, lambda value: several.convert_into(np.stack([value, value]), out)):
            with pytest.raises(ValueError, match=r"expected integers from \[1, 0\] to \[2, 4\]"):
                refuse(np.array(value, dtype))
    one, out = gym_wrapper.GymSpaceWrapper(spaces.Discrete(3)), np.zeros(2, np.int64)
    for values in ([7, 0], [0, -3]):
        with pytest.raises(ValueError, match="expected integers from 0 to 2"):
            one.convert_into(np.array(values), out)


def test_plain_values_of_the_right_form_pass_without_a_copy():
    x = np.zeros(3, np.float32)
    wrapped = gym_wrapper.GymSpaceWrapper(spaces.Box(-1, 1, (3,), np.float32))
    assert wrapped.convert(x) is x and wrapped.revert(x) is x


def test_dictionaries_become_namedtuples_with_sanitised_fields_in_the_order_of_the_space():
    wrapped = gym_wrapper.GymSpaceWrapper(StructuredGymEnv.observation_space, name="observation")
    value = wrapped.sample()
    assert value._fields == tuple(wrapped.names)
    assert set(wrapped.names) == {"camera_left", "joints", "goal"}
    assert value.joints._fields == ("item_0", "item_1")
    assert set(value.goal._fields) == {"class_", "key_0"}
    assert wrapped.shape.camera_left == (3, 2)
    assert wrapped.dtype.joints.item_0 == np.float32
    assert type(value.goal).__name__ == "observation_goal"
    assert set(wrapped.revert(value)["goal"]) == {"class", "0"}


def test_values_are_picklable_wherever_they_were_made():
    value = gym_wrapper.GymSpaceWrapper(StructuredGymEnv.observation_space).sample()
    assert equal(pickle.loads(pickle.dumps(value)), value)


def test_two_spaces_of_one_name_do_not_clash():
    one = gym_wrapper.GymSpaceWrapper(spaces.Dict({"a": spaces.Discrete(2)}), name="same")
    two = gym_wrapper.GymSpaceWrapper(spaces.Dict({"b": spaces.Discrete(2)}), name="same")
    assert one.sample()._fields == ("a",) and two.sample()._fields == ("b",)


def test_null_values_can_be_given_for_each_key():
    space = spaces.Dict({"a": spaces.Box(-1, 1, (2,)), "b": spaces.Box(-1, 1, (1,))})
    null = gym_wrapper.GymSpaceWrapper(space, null_value={"a": 0.5}).null_value()
    assert null.a.tolist() == [0.5, 0.5] and null.b.tolist() == [0.0]


def test_attributes_a_space_does_not_have_are_not_invented():
    box, discrete = (gym_wrapper.GymSpaceWrapper(s) for s in (spaces.Box(-1, 1, (2,)), spaces.Discrete(4)))
    assert box.low.tolist() == [-1, -1] and box.high.tolist() == [1, 1] and box.shape == (2,)
    assert not hasattr(box, "n") and not hasattr(discrete, "low") and not hasattr(discrete, "names")


@pytest.mark.parametrize("space", [spaces.Text(5), spaces.Sequence(spaces.Discrete(2)), spaces.OneOf([spaces.Discrete(2)])])
def test_unsupported_spaces_are_refused_with_the_list_of_supported_ones(space):
    for nested in (space, spaces.Dict({"a": spaces.Discrete(2), "b": space})):
        with pytest.raises(ValueError, match="Supported are Box, MultiDiscrete, MultiBinary, Discrete, Tuple, Dict"):
            gym_wrapper.GymSpaceWrapper(nested)


def test_spaces_are_recognized_by_class_name_so_that_classic_gym_works():
    class Box:
        dtype, shape, low, high = np.dtype("float32"), (2,), np.zeros(2), np.ones(2)

    wrapped = gym_wrapper.GymSpaceWrapper(Box())
    assert wrapped.convert([0.5, 0.5]).dtype == np.float32


def test_a_mismatch_names_field_expected_and_got():
    wrapped = gym_wrapper.GymSpaceWrapper(StructuredGymEnv.observation_space, name="observation")
    good = StructuredGymEnv.observation_space.sample()
    with pytest.raises(ValueError, match=r"observation\['joints'\]\[0\]: expected shape \(2,\), got \(3,\)"):
        wrapped.convert({**good, "joints": (np.zeros(3), good["joints"][1])})
    with pytest.raises(TypeError, match=r"observation\['camera.left'\]: expected dtype uint8, got float64"):
        wrapped.convert({**good, "camera.left": np.zeros((3, 2))})
    with pytest.raises(ValueError, match=r"missing \['goal'\], not in the space \['gaol'\]"):
        wrapped.convert({"camera.left": good["camera.left"], "joints": good["joints"], "gaol": good["goal"]})
    with pytest.raises(ValueError, match=r"missing \[\], not in the space \['more'\]"):
        wrapped.convert({**good, "more": 0})
    with pytest.raises(ValueError, match="expected a dictionary"):
        wrapped.convert(np.zeros(3))
    with pytest.raises(ValueError, match="expected a tuple of 2 parts, got 1"):
        wrapped.convert({**good, "joints": (np.zeros(2),)})


def test_a_safe_cast_is_done_with_one_warning_and_python_numbers_need_none():
    wrapped = gym_wrapper.GymSpaceWrapper(spaces.Box(-1, 1, (2,), np.float32), name="observation")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            assert wrapped.convert(np.ones(2)).dtype == np.float32
    assert [str(w.message) for w in caught] == ["observation: the space says float32 but the values are float64; they are cast."]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert gym_wrapper.GymSpaceWrapper(spaces.Box(0, 9, (2,), np.uint8)).convert([1, 2]).dtype == np.uint8


def test_field_names_are_valid_unique_and_unchanged_where_possible():
    assert field_names(["a", "b_1"]) == ["a", "b_1"]
    assert field_names(["a.b", "a_b", "a b"]) == ["a_b_2", "a_b", "a_b_3"]
    assert field_names(["0", "_x", "class", "get", "items", "index", "", "é-e"]) == [
        "key_0",
        "x",
        "class_",
        "get_",
        "items_",
        "index_",
        "key",
        "é_e",
    ]
    assert field_names(["timeout"], taken=["timeout"]) == ["timeout_"]


def test_dict_to_nt_and_back():
    value = {"a": 1, "b": {"c": np.ones(2), "d": 3.0}}
    nt = dict_to_nt(value, "x")
    assert nt.a == 1 and nt.b.d == 3.0 and type(nt.b).__name__ == "x_b"
    assert equal(nt_to_dict(nt), value)
    schemas = {}
    with_schemas = gym_wrapper_schema.dict_to_nt(value, "x", schemas)
    assert equal(nt_to_dict(with_schemas), value)
    assert set(schemas) == {"x", "x_b"}


def test_the_schema_wrapper_collects_its_schemas():
    schemas = {}
    gym_wrapper_schema.GymSpaceWrapper(StructuredGymEnv.observation_space, name="observation", schemas=schemas)
    assert set(schemas) == {"observation", "observation_joints", "observation_goal"}


@BOTH
@EVERY_SPACE
def test_clipping_leaves_alone_what_is_in_the_space_in_either_form(wrapper, space):
    wrapped = wrapper(space, force_float32=False)
    value = space.sample()
    converted = wrapped.convert(value)
    assert equal(wrapped.clip(value), value)
    assert equal(wrapped.clip(converted), converted) and type(wrapped.clip(converted)) is type(converted)


def test_what_was_clipped_is_in_a_space_of_float64_whose_bounds_are_no_float32():
    space = spaces.Dict({"move": spaces.Box(-0.1, 0.1, (2,), np.float64), "tool": spaces.Discrete(3, start=1)})
    assert float(np.float32(0.1)) > 0.1
    wrapped = gym_wrapper.GymSpaceWrapper(space, name="action")
    beyond = wrapped.null_value()._replace(move=np.array([0.7, -0.7], np.float32))
    reverted = wrapped.revert(wrapped.clip(beyond))
    assert reverted["move"].tolist() == [0.1, -0.1] and space.contains(reverted)
    assert space.contains(wrapped.clip({"move": np.array([9.0, 0.0]), "tool": np.int64(1)}))


@pytest.mark.parametrize(
    "value, dtype, fits",
    [
        (np.array([127]), np.int8, True),
        (np.array([300]), np.int8, False),
        (np.array([-1]), np.uint8, False),
        (np.array([300], np.uint16), np.uint8, False),
        (np.array([2**40]), np.int64, True),
        (np.array([True]), np.int8, True),
        (np.array([0.1]), np.float32, True),
        (np.array([3]), np.float32, True),
        (np.array([1.5]), np.int64, False),
        (np.array([2.0]), np.int64, True),
    ],
)
def test_numbers_fit_if_they_keep_their_values(value, dtype, fits):
    assert fits_losslessly(value, np.dtype(dtype)) is fits
