import warnings

import numpy as np
import pytest
from envs import CountingEnv

from rlpyt.envs.base import Env, EnvSpaces, EnvStep, close_env, fast_reset, fast_step, has_state, write_observation
from rlpyt.envs.environment import CountingEnvironment
from rlpyt.envs.gym import Wrapper
from rlpyt.envs.specs import StepType
from rlpyt.utils.collections import dynamic_namedtuple, namedarraytuple_like


def test_the_base_class_gives_spaces_and_no_horizon():
    env = CountingEnv()
    assert env.spaces == EnvSpaces(observation=env.observation_space, action=env.action_space)
    assert Env().horizon is None and not Env.truncates_only_at_horizon
    assert Env().close() is None
    for call in (Env().reset, lambda: Env().step(0)):
        with pytest.raises(NotImplementedError, match="Env does not define"):
            call()


def test_seed_gives_the_two_spaces_different_streams():
    env = CountingEnv(n_actions=0)
    env._observation_space = type(env.action_space)(-1, 1, shape=(2,))
    env.seed(0)
    assert (env.action_space.sample() != env.observation_space.sample()).all()


def test_fast_methods_of_the_base_class_write_what_the_plain_ones_return():
    env, twin = CountingEnv(), CountingEnv()
    out = np.full(4, np.nan, np.float32)
    for e in (env, twin):
        e.seed(1)
    assert twin.reset_into(out) is None
    assert (out == env.reset()).all()
    for _ in range(3):
        observation, *rest = env.step(1)
        assert list(twin.step_into(1, out)) == rest
        assert (out == observation).all()


class FastEnv(CountingEnv):
    def step_into(self, action, observation_out):
        observation_out[...] = -5
        return 0.0, False, None

    def reset_into(self, observation_out):
        observation_out[...] = -5


class OverridingStep(FastEnv):
    def step(self, action):
        return super().step(action)._replace(reward=100.0)


class OverridingReset(FastEnv):
    def reset(self):
        return super().reset() + 100


@pytest.mark.parametrize(
    "EnvCls, step_is_fast, reset_is_fast", [(FastEnv, True, True), (OverridingStep, False, True), (OverridingReset, True, False)]
)
def test_overriding_a_plain_method_takes_effect(EnvCls, step_is_fast, reset_is_fast):
    env = EnvCls()
    env.reset()
    out = np.zeros(4, np.float32)
    fast_step(env)(0, out)
    assert (out == -5).all() == step_is_fast
    fast_reset(env)(out)
    assert (out == -5).all() == reset_is_fast
    if EnvCls is OverridingStep:
        env.reset()
        assert fast_step(env)(0, out)[0] == 100.0


def test_a_method_replaced_on_the_object_takes_effect():
    env = FastEnv()
    env.step = lambda action: EnvStep(np.ones(4, np.float32), 7.0, False, None)
    assert fast_step(env)(0, np.zeros(4, np.float32))[0] == 7.0


def test_environments_and_wrappers_without_the_base_class_are_stepped_too():
    class Forwarding:
        def __init__(self, env):
            self.env = env

        def step(self, action):
            return self.env.step(action)._replace(reward=9.0)

        def __getattr__(self, name):
            return getattr(self.env, name)

    env = Forwarding(FastEnv())
    env.reset()
    out = np.zeros(4, np.float32)
    assert fast_step(env)(0, out)[0] == 9.0 and out[2] == 1
    fast_reset(env)(out)
    assert out[2] == 0


def test_an_observation_that_does_not_fit_names_field_expected_and_got():
    out = np.zeros((3, 4), np.float32)
    with pytest.raises(ValueError, match=r"observation: expected shape \(4,\), got \(1,\)"):
        write_observation(np.zeros(1, np.float32), out[1])
    with pytest.raises(TypeError, match="observation: expected dtype uint8, got float32"):
        write_observation(np.zeros(4, np.float32), np.zeros(4, np.uint8))
    two = dynamic_namedtuple("two", ["a", "b"])
    rows = namedarraytuple_like(two)(out[0], np.zeros(2, np.int32))
    with pytest.raises(ValueError, match=r"observation.b: expected shape \(2,\), got \(3,\)"):
        write_observation(two(np.zeros(4, np.float32), np.zeros(3, np.int32)), rows)
    with pytest.raises(ValueError, match=r"expected fields \['a', 'b'\], got ndarray"):
        write_observation(np.zeros(4), rows)
    with pytest.raises(ValueError, match=r"expected fields \['a', 'b'\], got fields \['a', 'c'\]"):
        write_observation(dynamic_namedtuple("two", ["a", "c"])(1, 2), rows)
    with pytest.raises(TypeError, match="observation: expected dtype int8, got int64"):
        write_observation(300, np.zeros((), np.int8))
    with pytest.raises(TypeError, match="observation: expected dtype <U2, got <U3"):
        write_observation("abc", np.array("ab"))
    with pytest.raises(TypeError, match=r"observation: expected dtype datetime64\[D\], got datetime64\[h\]"):
        write_observation(np.datetime64("2020-01-01T05"), np.array("2020-01-01", "datetime64[D]"))
    assert not out.any()


def test_a_safe_cast_warns_and_numbers_of_python_do_not():
    out = np.zeros(2, np.float32)
    with pytest.warns(UserWarning, match="expected dtype float32, got float64"):
        write_observation(np.ones(2), out)
    assert (out == 1).all()
    batch = np.zeros((2, 3), np.int32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        write_observation(5, batch[1, 2, ...])
        write_observation([0.25, 0.5], out)
        write_observation(np.array(["a", "abc"]), text := np.empty(2, object))
    assert text.tolist() == ["a", "abc"]
    assert batch[1, 2] == 5 and out.tolist() == [0.25, 0.5]


class SavedEnv(CountingEnv):
    closed = False

    def get_state(self):
        return 5

    def set_state(self, state):
        pass

    def close(self):
        self.closed = True


def test_a_state_may_be_forwarded_by_a_wrapper_and_needs_both_methods():
    assert has_state(SavedEnv()) and has_state(Wrapper(Wrapper(SavedEnv())))
    assert not has_state(CountingEnv()) and not has_state(Wrapper(CountingEnv()))


def test_an_environment_is_closed_if_it_can_be():
    env = SavedEnv()
    close_env(env)
    assert env.closed
    close_env(object())
    close_env(None)


def test_forwarding_looks_for_a_public_attribute_in_all_wrapped_environments():
    env = SavedEnv()
    env.only_inside, env._private = 3, 4
    assert Wrapper(Wrapper(env)).only_inside == 3
    with pytest.raises(AttributeError, match="private attribute"):
        Wrapper(env)._private  # noqa: B018
    with pytest.raises(AttributeError, match="not found"):
        Wrapper(env).nothing  # noqa: B018
    with pytest.raises(AttributeError, match="'env'"):
        object.__new__(Wrapper).env  # noqa: B018


class Counting(CountingEnvironment):
    render_modes = ()
    reset = step = render = visualize = close = None


@pytest.mark.parametrize(
    "flags, limit, step_types",
    [
        ([(False, False)] * 3, 3, [StepType.FIRST, StepType.MID, StepType.TIMEOUT]),
        ([(False, False), (False, True)], None, [StepType.FIRST, StepType.TIMEOUT]),
        ([(False, False), (True, True)], 2, [StepType.FIRST, StepType.TERMINAL]),
        ([(True, False)], 1, [StepType.TERMINAL]),
        ([(False, False)], 1, [StepType.TIMEOUT]),
    ],
)
def test_counted_steps_end_an_episode_by_flags_or_limit(flags, limit, step_types):
    env = Counting(None, None, limit)
    with pytest.raises(RuntimeError, match="reset"):
        env._require_reset()
    for _ in range(2):
        env._n_steps = 0
        env._require_reset()
        assert [env._count_step(*each, limit) for each in flags] == step_types
        with pytest.raises(RuntimeError, match="reset"):
            env._require_reset()


def test_text_and_times_are_written_where_nothing_is_cut():
    out = np.zeros((), "U3")
    write_observation(np.array("ab", "U5"), out)
    assert out == "ab"
    with pytest.raises(TypeError, match="cannot be cast safely"):
        write_observation(np.array("abcd"), out)
    out = np.zeros((), "datetime64[us]")
    write_observation(np.datetime64(5000, "ns"), out)
    with pytest.raises(TypeError, match="cannot be cast safely"):
        write_observation(np.datetime64(5001, "ns"), out)
