import sys
import warnings

import envs
import gymnasium
import numpy as np
import pytest
from envs import CountingEnv, FailingEnv
from tiers import full, processes

from rlpyt.envs import gym, gym_schema
from rlpyt.envs.base import Env
from rlpyt.envs.contract import check_env
from rlpyt.spaces.float_box import FloatBox
from rlpyt.spaces.int_box import IntBox


@pytest.mark.parametrize(
    "make, kwargs",
    [
        (CountingEnv, {}),
        (CountingEnv, dict(end=["life", "timeout", "terminated"], episode_length=[3, 4])),
        (CountingEnv, dict(end="timeout", n_actions=0)),
        (FailingEnv, dict(fail_at=10**9)),
        (gym.make, dict(id="CartPole-v1")),
        (gym_schema.make, dict(id="CartPole-v1")),
        (envs.make_classic, {}),
        *[pytest.param(make, {}, marks=full) for make in (envs.make_walk, envs.make_reusing, envs.make_structured)],
        pytest.param(gym.make, dict(id="Pendulum-v1"), marks=full),
    ],
)
@pytest.mark.filterwarnings("ignore:env_info leaves out")
def test_every_environment_keeps_the_contract(make, kwargs):
    check_env(make, kwargs, n_steps=220)


@pytest.mark.parametrize("low", [-0.1, 0.1])
def test_observations_may_be_bounds_of_float64_that_are_no_float32(low):
    class AtTheBound(envs.WalkGymEnv):
        observation_space = gymnasium.spaces.Box(low, 0.1, (2,), np.float64)

        def _observation(self):
            return np.full(2, 0.1)

    check_env(AtTheBound)


@pytest.mark.filterwarnings("ignore:env_info leaves out")
def test_the_structured_environment_keeps_the_contract_with_schemas():
    check_env(lambda: gym_schema.GymEnvWrapper(envs.StructuredGymEnv()))


class WrongDtype(CountingEnv):
    def _observation(self):
        return super()._observation().astype(np.float64)


class WrongShapeLater(CountingEnv):
    def _observation(self):
        return super()._observation()[: 3 if self.t == 2 else 4]


class InfoIsADict(CountingEnv):
    def step(self, action):
        return super().step(action)._replace(env_info={})


class InfoChanges(CountingEnv):
    def step(self, action):
        step = super().step(action)
        return step._replace(env_info=step.env_info._replace(t=float(self.t)) if self.t == 3 else step.env_info)


class TimeoutWithoutDone(CountingEnv):
    def step(self, action):
        step = super().step(action)
        return step._replace(env_info=step.env_info._replace(timeout=True))


class RewardIsAnArray(CountingEnv):
    def step(self, action):
        return super().step(action)._replace(reward=np.zeros(2))


class FarAway(CountingEnv):
    """What it observes is in its space."""

    def __init__(self):
        super().__init__()
        self._observation_space = FloatBox(-np.inf, np.inf, shape=(4,))

    def _observation(self):
        return np.full(4, np.inf, np.float32)


class DoneIsANumber(CountingEnv):
    def step(self, action):
        return super().step(action)._replace(done=0)


class ForgetsTheSeed(CountingEnv):
    def _begin(self):
        super()._begin()
        self._rng = np.random.default_rng()


class TakesTheFirstSeedOnly(CountingEnv):
    is_seeded = False

    def seed(self, seed):
        if not self.is_seeded:
            super().seed(seed)
        else:
            Env.seed(self, seed)  # The spaces.
        self.is_seeded = True


class NoiseWithoutSeed(CountingEnv):
    """Only its steps do not follow the seed."""

    def step(self, action):
        step = super().step(action)
        step.observation[3] = np.random.random()
        return step


class ContinuousEnv(CountingEnv):
    def __init__(self):
        super().__init__(n_actions=0)


class RefusesBounds(ContinuousEnv):
    def step(self, action):
        assert np.abs(action).max() < 1, "the action is on a bound"
        return super().step(action)


class InfiniteAtBounds(ContinuousEnv):
    def step(self, action):
        with np.errstate(divide="ignore"):
            return super().step(action)._replace(reward=float(np.log(1 - action[0] ** 2)))


class SpacesForgetTheSeed(CountingEnv):
    def seed(self, seed):
        super().seed(seed)
        self._action_space.seed(None)


class RemembersThePast(CountingEnv):
    past = 0

    def step(self, action):
        self.past += 1
        return super().step(action)._replace(reward=float(self.past))


class WritesTooMuch(CountingEnv):
    def step_into(self, action, observation_out):
        result = super().step_into(action, observation_out)
        observation_out.base[0] = 0
        return result


class WritesTooLittle(CountingEnv):
    def step_into(self, action, observation_out):
        before = observation_out[-1].copy()
        result = super().step_into(action, observation_out)
        observation_out[-1] = before
        return result


class ChangesTheAction(CountingEnv):
    def step(self, action):
        action += 1
        return super().step(action)


class OutlivesItsHorizon(CountingEnv):
    horizon = 3


class EndsTheProgram(CountingEnv):
    def step(self, action):
        sys.exit(3)


class ActionOutsideItsSpace(CountingEnv):
    def __init__(self):
        super().__init__()

        class Odd(IntBox):
            def sample(self):
                return np.asarray(99)

        self._action_space = Odd(0, 3)


class RaisesLater(CountingEnv):
    n_steps = 0

    def step(self, action):
        self.n_steps += 1
        if self.n_steps == 7:
            raise RuntimeError("the simulator has no license")
        return super().step(action)


class RaisesInReset(CountingEnv):
    def reset(self):
        if self.episode == 0:
            raise RuntimeError("the simulator has no license")
        return super().reset()


class WrongShapeInGymnasium(envs.WalkGymEnv):
    wrong_at = 8  # One step is that of the wrapper's constructor.
    n_steps = 0

    def step(self, action):
        self.n_steps += 1
        observation, *others = super().step(action)
        return observation[:1] if self.n_steps == self.wrong_at else observation, *others


class WrongShapeAtFirst(WrongShapeInGymnasium):
    wrong_at = 1


class HasNoSpaces(gymnasium.Env):
    def reset(self, *, seed=None, options=None):
        return np.zeros(3, np.float32), {}


class HasSpacesOfGymnasium:
    """Is no gymnasium.Env, and has no method close."""

    observation_space = action_space = gymnasium.spaces.Box(-1, 1, (3,))


@pytest.mark.parametrize(
    "EnvCls, message",
    [
        (WrongDtype, "must have dtype float32, has float64"),
        (WrongShapeLater, "must be in the observation_space"),
        (InfoIsADict, "must be a namedtuple"),
        (InfoChanges, r"env_info at step \d+.t must have dtype int64, has float64"),
        (TimeoutWithoutDone, "env_info.timeout is True at step 0, but done is not"),
        (RewardIsAnArray, "must be one number"),
        (FarAway, r"The observation of reset\(\) must be finite"),
        (DoneIsANumber, "done at step 0 must be True or False"),
        (ForgetsTheSeed, r"Equal seeds .* differ in reset: observation\[3\] is \d[\d.e-]* and \d[\d.e-]*\. Draw all random numbers from"),
        (TakesTheFirstSeedOnly, r"Equal seeds .* differ in reset: .* They differ only since one of them has played before"),
        (RemembersThePast, r"Equal seeds and actions must give equal results: .* since one of them has played before"),
        (NoiseWithoutSeed, r"Equal seeds .* differ in step at step 0: observation\[3\] .* Draw all random numbers from"),
        (RefusesBounds, "the action is on a bound"),
        (InfiniteAtBounds, r"The reward at step \d+ must be finite"),
        (SpacesForgetTheSeed, "spaces of two environments must sample alike"),
        (WritesTooMuch, "wrote beyond the row"),
        (WritesTooLittle, "must write what"),
        (ChangesTheAction, "changed the action"),
        (OutlivesItsHorizon, "continues after its horizon of 3 steps"),
        (ActionOutsideItsSpace, "must be True for its own sample"),
        (EndsTheProgram, r"called sys.exit\(3\)"),
        (RaisesLater, r"RuntimeError in step\(\) at step 6: the simulator has no license"),
        (RaisesInReset, r"RuntimeError in reset\(\) after step 4: the simulator has no license"),
        (WrongShapeInGymnasium, r"ValueError in step\(\) at step 6: observation: expected shape \(2,\), got \(1,\)"),
        (WrongShapeAtFirst, r"ValueError in the first reset and step.*: observation: expected shape \(2,\), got \(1,\)"),
        (HasNoSpaces, r"AttributeError in .*: HasNoSpaces has no action_space. An environment assigns action_space and observation_space"),
        (HasSpacesOfGymnasium, "HasSpacesOfGymnasium has a Box space, which is not one of rlpyt.spaces. Wrap a Gymnasium environment"),
    ],
)
def test_broken_rules_are_told_in_sentences(EnvCls, message):
    with pytest.raises(AssertionError, match=message):
        check_env(EnvCls)


def test_an_error_of_the_environment_is_the_cause():
    with pytest.raises(AssertionError) as raised:
        check_env(RaisesLater)
    assert type(raised.value.__cause__) is RuntimeError


def test_an_environment_needs_no_method_close():
    class WithoutClose:
        def __init__(self):
            self._env = CountingEnv()
            self.spaces, self.action_space, self.observation_space = self._env.spaces, self._env.action_space, self._env.observation_space
            self.seed, self.reset, self.step = self._env.seed, self._env.reset, self._env.step

    check_env(WithoutClose, n_steps=20)


@pytest.mark.parametrize("given", ["CartPole-v1", gymnasium.make("CartPole-v1")])
def test_what_cannot_make_an_environment_is_refused_as_in_samplers(given):
    with pytest.raises(TypeError, match="EnvCls has .*CartPole-v1.*cannot be called .* rlpyt.envs.gym.make, with the id in env_kwargs"):
        check_env(given)


def test_actions_are_often_on_the_bounds_and_never_beyond_them():
    played = []

    class Watching(ContinuousEnv):
        def step(self, action):
            assert self.action_space.contains(action)
            played.append(np.array(action))
            return super().step(action)

    check_env(Watching)
    actions = np.array(played)
    for share in ((actions == -1).mean(), (actions == 1).mean()):
        assert 0.1 < share < 0.25
    assert ((-1 < actions) & (actions < 1)).mean() > 0.5


class SucceedsAtTheEnd(gymnasium.Env):
    observation_space = action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.t += 1
        info = {"speed": 0.0, "text": "no number", "parts": {"left": 1}}
        if self.t == 3:
            info.update(success=1.0, also="no number", parts={"left": 1, "right": 2})
        return np.zeros(2, np.float32), 0.0, self.t == 3, False, info


@pytest.mark.filterwarnings("ignore:Not numbers or arrays of numbers")
def test_info_that_appears_only_at_the_end_of_an_episode_is_told_with_what_to_do():
    with pytest.warns(UserWarning, match=r"env_info leaves out .*: parts\['right'\], success\. To include them, .* info_example="):
        check_env(SucceedsAtTheEnd)  # Wrapped as samplers do it.
    example = dict(success=0.0, parts=dict(right=0))
    with warnings.catch_warnings(record=True) as warned:
        check_env(lambda: gym.GymEnvWrapper(gym.EnvInfoWrapper(SucceedsAtTheEnd(), example)))
    assert not warned


def test_environments_that_remember_the_past_after_seeding_are_caught():
    class Unequal(RemembersThePast):
        n_made = 0

        def __init__(self):
            super().__init__()
            Unequal.n_made += 1
            self.past = Unequal.n_made

    with pytest.raises(AssertionError, match="Equal seeds and actions must give equal results"):
        check_env(Unequal)


@processes
def test_the_contract_needs_neither_the_test_framework_nor_torch():
    import subprocess
    import sys

    code = "import sys; import rlpyt.envs.contract, rlpyt.envs.gym, rlpyt.envs.gym_schema; "
    code += "print([m for m in ('pytest', 'torch', 'numba', 'gym', 'gymnasium', 'cv2') if m in sys.modules])"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "[]"


def test_an_environment_may_be_any_class_derived_from_env():
    class Minimal(Env):
        def __init__(self):
            self._action_space, self._observation_space = IntBox(0, 2), IntBox(0, 2)

        def reset(self):
            return np.asarray(0, np.int32)

        def step(self, action):
            from rlpyt.envs.base import EnvInfo, EnvStep

            return EnvStep(np.asarray(action, np.int32), 0.0, False, EnvInfo())

    check_env(Minimal, n_steps=20)


def test_the_first_environment_is_closed_if_there_can_be_no_second():
    class Only(CountingEnv):
        made: list = []
        is_closed = False

        def __init__(self):
            super().__init__()
            if self.made:
                raise RuntimeError("there is only one")
            self.made.append(self)

        def close(self):
            self.is_closed = True

    with pytest.raises(RuntimeError, match="only one"):
        check_env(Only)
    assert Only.made[0].is_closed
