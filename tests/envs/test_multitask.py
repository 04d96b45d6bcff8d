"""Which task it is, in observations and env_info."""

import pickle
import random
import re
from functools import partial

import gymnasium
import numpy as np
import pytest
from envs import CountingEnv, StructuredGymEnv, WalkGymEnv
from gymnasium import spaces

from rlpyt.envs.adapters import as_rlpyt
from rlpyt.envs.contract import check_env
from rlpyt.envs.environment import Environment
from rlpyt.envs.grid_world import GridWorldEnv
from rlpyt.envs.gym import GymEnvWrapper
from rlpyt.envs.gym_env import GymEnv
from rlpyt.envs.multitask import MultiEnvWrapper, TaskNameWrapper, TaskOnehotWrapper, round_robin_strategy, uniform_random_strategy
from rlpyt.envs.point_env import PointEnv


class NarrowEnv(WalkGymEnv):
    """Bounded observations of dtype float32."""

    observation_space = spaces.Box(-50, 50, (2,), np.float32)

    def _observation(self):
        return super()._observation().astype(np.float32)


# ---------------------------------------------------------------------------------------------------------------------
# One-hots
# ---------------------------------------------------------------------------------------------------------------------
def test_the_one_hot_is_appended_for_environments_of_gymnasium():
    env = TaskOnehotWrapper(WalkGymEnv(), task_index=1, n_total_tasks=3)
    assert isinstance(env, TaskOnehotWrapper) and isinstance(env, gymnasium.Wrapper) and env.task_index == 1
    assert env.observation_space.shape == (5,)
    np.testing.assert_array_equal(env.observation_space.low[2:], 0)
    np.testing.assert_array_equal(env.observation_space.high[2:], 1)
    observation, info = env.reset(seed=3)
    np.testing.assert_array_equal(observation[2:], [0, 1, 0])
    np.testing.assert_array_equal(info["task_one_hot"], [0, 1, 0])
    inner = WalkGymEnv()
    np.testing.assert_array_equal(observation[:2], inner.reset(seed=3)[0])
    action = np.array([0.5], np.float32)
    theirs, ours = inner.step(action), env.step(action)
    np.testing.assert_array_equal(ours[0], [*theirs[0], 0, 1, 0])
    assert ours[1:4] == theirs[1:4] and ours[4] == {**theirs[4], "task_id": 1}
    assert env.unwrapped is env.env


def test_the_one_hot_is_appended_for_environments_of_whole_steps():
    env = TaskOnehotWrapper(PointEnv(goal=(1, 0), max_episode_length=8), 0, 2)
    assert isinstance(env, TaskOnehotWrapper) and isinstance(env, Environment)
    assert env.spec.max_episode_length == 8 and env.spec.observation_space is env.observation_space
    assert env.observation_space.shape == (5,)
    observation, episode_info = env.reset()
    np.testing.assert_array_equal(observation, [0, 0, 1, 1, 0])
    np.testing.assert_array_equal(episode_info["task_one_hot"], [1, 0])
    env_step = env.step(np.zeros(2))
    np.testing.assert_array_equal(env_step.observation, [0, 0, 1, 1, 0])
    assert env_step.env_info["task_id"] == 0 and env_step.env_spec is env.spec and "success" in env_step.env_info
    assert env.task["goal"][0] == 1  # Attributes are forwarded.


def test_gymnasiums_one_hot_of_an_episode_is_told_by_an_environment_of_whole_steps():
    assert set(TaskOnehotWrapper(GymEnv(WalkGymEnv()), 1, 2).reset()[1]) == {"task_one_hot"}


def test_what_to_derive_from_is_said():
    with pytest.raises(TypeError, match="Mine cannot be derived from TaskOnehotWrapper.*rlpyt.episodes.Wrapper"):

        class Mine(TaskOnehotWrapper):
            pass


def test_other_environments_become_environments_of_whole_steps():
    env = TaskOnehotWrapper(CountingEnv(), 1, 2)
    assert isinstance(env, Environment)
    np.testing.assert_array_equal(env.reset()[0][4:], [0, 1])


@pytest.mark.parametrize("make", [NarrowEnv, lambda: GymEnv(NarrowEnv()), PointEnv])
def test_the_one_hot_has_the_dtype_of_observations_so_that_the_space_contains_them(make):
    env = TaskOnehotWrapper(make(), 0, 2)
    observation = env.reset()[0]
    assert observation.dtype == np.float32 and env.observation_space.contains(observation)
    step = env.step(env.action_space.sample())
    observation = step[0] if isinstance(step, tuple) else step.observation
    assert observation.dtype == np.float32 and env.observation_space.contains(observation)


def test_dictionaries_get_an_entry():
    env = TaskOnehotWrapper(StructuredGymEnv(), 1, 2)
    observation, _ = env.reset(seed=0)
    assert set(observation) == {"camera.left", "joints", "goal", "task"} and env.observation_space.contains(observation)
    np.testing.assert_array_equal(observation["task"], [0, 1])
    assert env.observation_space.contains(env.step(env.action_space.sample())[0])


def test_what_cannot_have_a_one_hot_is_refused():
    for index in (-1, 2):
        with pytest.raises(ValueError, match=f"task_index={index} must be from 0 to 1"):
            TaskOnehotWrapper(PointEnv(), index, 2)
    with pytest.raises(ValueError, match="observations of one dimension.*Discrete"):
        TaskOnehotWrapper(GridWorldEnv(), 0, 2)


def test_a_list_of_environments_is_numbered():
    envs = [PointEnv(), PointEnv(), PointEnv()]
    wrapped = TaskOnehotWrapper.wrap_env_list(envs)
    assert [env.task_index for env in wrapped] == [0, 1, 2] and [env.env for env in wrapped] == envs
    np.testing.assert_array_equal(wrapped[2].reset()[0][3:], [0, 0, 1])


made = []


def make_noted(**kwargs):
    made.append(kwargs)
    return WalkGymEnv(**kwargs)


def test_constructors_make_nothing_before_they_are_called_and_can_be_pickled():
    made.clear()
    constructors = TaskOnehotWrapper.wrap_env_cons_list([make_noted, PointEnv, partial(PointEnv, goal=(0, 1))])
    assert not made
    constructors = [*constructors[:1], *pickle.loads(pickle.dumps(constructors[1:]))]
    envs = [constructor() for constructor in constructors]
    assert made == [{}] and [env.task_index for env in envs] == [0, 1, 2]
    assert isinstance(envs[0], gymnasium.Env) and isinstance(envs[1], Environment)
    assert constructors[0](info={"x": 1}).env.extra_info == {"x": 1}


@pytest.mark.parametrize(
    "make",
    [
        lambda: GymEnvWrapper(TaskOnehotWrapper(WalkGymEnv(), 1, 2)),
        lambda: as_rlpyt(TaskOnehotWrapper(PointEnv(max_episode_length=9), 1, 2)),
        lambda: as_rlpyt(TaskOnehotWrapper(CountingEnv(end="timeout"), 1, 2)),
        lambda: as_rlpyt(TaskNameWrapper(PointEnv(max_episode_length=9), task_name="a", task_id=4)),
        lambda: as_rlpyt(MultiEnvWrapper([PointEnv(max_episode_length=9), PointEnv((0.2, 0.2), max_episode_length=7)])),
    ],
)
def test_wrapped_environments_keep_the_contract_of_samplers(make):
    check_env(make, n_steps=50)
    env = make()
    env.reset()
    assert env.step(env.action_space.sample()).env_info.task_id in (0, 1, 4)


@pytest.mark.parametrize("env", [TaskOnehotWrapper(WalkGymEnv(), 1, 2), TaskOnehotWrapper(PointEnv(), 1, 2)])
def test_wrappers_are_picklable(env):
    twin = pickle.loads(pickle.dumps(env))
    assert type(twin) is type(env) and twin.task_index == 1 and twin.observation_space == env.observation_space


# ---------------------------------------------------------------------------------------------------------------------
# Several environments in one
# ---------------------------------------------------------------------------------------------------------------------
def points(n=3):
    return [PointEnv(goal=(i, 1), max_episode_length=4 + i) for i in range(n)]


def test_every_reset_chooses_the_next_environment():
    env = MultiEnvWrapper(points(), round_robin_strategy, env_names=["a", "b", "c"])
    assert env.active_task_index is None and env.num_tasks == 3 and env.task_space.shape == (3,)
    assert env.observation_space.shape == (6,) and env.spec.max_episode_length == 6
    for i in (0, 1, 2, 0, 1):
        observation, episode_info = env.reset()
        one_hot = np.eye(3)[i]
        np.testing.assert_array_equal(observation[3:], one_hot)
        np.testing.assert_array_equal(episode_info["task_one_hot"], one_hot)
        assert episode_info["goal"][0] == i and env.active_task_index == i
        steps = [env.step(np.zeros(2))]
        while not steps[-1].last:
            steps.append(env.step(np.zeros(2)))
        assert len(steps) == 4 + i and env.observation_space.contains(steps[0].observation)
        assert steps[0].env_info["task_id"] == i and steps[0].env_info["task_name"] == "abc"[i]


def test_tasks_in_turn_begin_with_the_first_after_seeding():
    env = MultiEnvWrapper(points(), round_robin_strategy)
    chosen = []
    for n in (2, 4):  # Such as a sampler's probe, and then its episodes.
        env.seed(3)
        chosen.append([(env.reset(), env.active_task_index)[1] for _ in range(n)])
    assert chosen == [[0, 1], [0, 1, 2, 0]]
    env.reset()
    env.seed(4)
    assert env.step(np.zeros(2)).env_info["task_id"] == 1  # Until the next reset, the episode is that of task 1.
    env.set_state(env.get_state())
    assert (env.reset(), env.active_task_index)[1] == 0


@pytest.mark.parametrize("task", [-1, 3, None, 1.0, "1", [0]])
def test_a_strategy_that_returns_no_number_of_a_task_is_refused_and_the_episode_goes_on(task):
    chosen = iter([np.int64(1), task])
    env = MultiEnvWrapper(points(), lambda num_tasks, last_task: next(chosen))
    env.reset()
    with pytest.raises(ValueError, match=rf"sample_strategy returned {re.escape(repr(task))}, .* from 0 to 2"):
        env.reset()
    assert env.step(np.zeros(2)).env_info["task_id"] == 1 == env.get_state()["active"]


def test_a_state_without_a_generator_is_restored():
    env, other = (MultiEnvWrapper(points(), round_robin_strategy) for _ in range(2))
    env.reset()
    env.reset()
    other.set_state(env.get_state())
    assert other.active_task_index == 1 and (other.reset(), other.active_task_index)[1] == 2


def test_modes_add_take_away_or_leave_the_one_hot():
    vanilla = MultiEnvWrapper(points(), round_robin_strategy, mode="vanilla")
    assert vanilla.observation_space.shape == (3,) and vanilla.reset()[0].shape == (3,)
    without = MultiEnvWrapper(TaskOnehotWrapper.wrap_env_list(points()), round_robin_strategy, mode="del-onehot")
    assert without.observation_space.shape == (3,)
    np.testing.assert_array_equal(without.reset()[0], vanilla.env.reset()[0])
    assert without.step(np.zeros(2)).observation.shape == (3,)
    with pytest.raises(ValueError, match="mode='onehot' must be"):
        MultiEnvWrapper(points(), mode="onehot")
    with pytest.raises(ValueError, match="del-onehot"):
        MultiEnvWrapper([GridWorldEnv()], mode="del-onehot")


def test_environments_that_differ_in_shape_and_wrong_names_are_refused():
    with pytest.raises(ValueError, match="observation_space of environment 1"):
        MultiEnvWrapper([GridWorldEnv("4x4"), GridWorldEnv("8x8")], mode="vanilla")
    with pytest.raises(ValueError, match="action_space of environment 1"):
        MultiEnvWrapper([PointEnv(), GymEnv("Pendulum-v1")], mode="vanilla")
    for names in (["a", "b"], ["a", "a", "b"], ("a", "b", "c")):
        with pytest.raises(ValueError, match="env_names"):
            MultiEnvWrapper(points(), env_names=names)
    with pytest.raises(ValueError, match="empty"):
        MultiEnvWrapper([])


class Empty(gymnasium.Env):
    """Nothing but spaces."""

    def __init__(self, observation_space=None, action_space=None):
        self.observation_space = observation_space or spaces.Discrete(2)
        self.action_space = action_space or spaces.Discrete(2)


BOX = spaces.Box(-1, 1, (2,), np.float32)


@pytest.mark.parametrize(
    "a, b",
    [
        (spaces.Dict(x=BOX), spaces.Dict(y=BOX)),
        (spaces.Dict(x=BOX), spaces.Dict(x=BOX, y=BOX)),
        (spaces.Dict(x=spaces.Dict(y=BOX)), spaces.Dict(x=spaces.Dict(y=spaces.Box(-1, 1, (3,), np.float32)))),
        (spaces.Tuple([BOX, BOX]), spaces.Tuple([BOX])),
        (spaces.MultiDiscrete([2, 3]), spaces.MultiDiscrete([5, 5])),
        (BOX, spaces.Box(-1, 1, (2,), np.float64)),
        (spaces.Discrete(3), spaces.Discrete(4)),
    ],
)
def test_parts_number_of_values_and_dtype_must_be_the_same(a, b):
    for space in (a, b):
        MultiEnvWrapper([Empty(space), Empty(space)], mode="vanilla")
        MultiEnvWrapper([Empty(action_space=space), Empty(action_space=space)], mode="vanilla")
    for first, second in ((a, b), (b, a)):
        with pytest.raises(ValueError, match="observation_space of environment 1"):
            MultiEnvWrapper([Empty(first), Empty(second)], mode="vanilla")
        with pytest.raises(ValueError, match="action_space of environment 1"):
            MultiEnvWrapper([Empty(action_space=first), Empty(action_space=second)], mode="vanilla")


def test_bounds_may_differ_between_observations_but_not_between_actions():
    wide = spaces.Box(-9, 9, (2,), np.float32)
    MultiEnvWrapper([Empty(BOX), Empty(wide)], mode="vanilla")
    with pytest.raises(ValueError, match="action_space of environment 1 .* must be equal"):
        MultiEnvWrapper([Empty(action_space=BOX), Empty(action_space=wide)], mode="vanilla")


def test_an_environment_cannot_be_two_tasks():
    point, walk = PointEnv(), WalkGymEnv()
    for envs in ([point, point], [walk, walk], [lambda: point, point]):
        with pytest.raises(ValueError, match="the same environment twice"):
            MultiEnvWrapper(envs)
    assert MultiEnvWrapper([PointEnv] * 2).num_tasks == 2


def test_a_task_id_that_is_there_is_kept():
    env = MultiEnvWrapper([TaskNameWrapper(PointEnv(), task_id=7)])
    env.reset()
    assert env.step(np.zeros(2)).env_info["task_id"] == 7


def test_tasks_are_drawn_uniformly_and_follow_the_seed():
    random.seed(0)
    drawn = [uniform_random_strategy(3, None) for _ in range(3000)]
    assert min(np.bincount(drawn, minlength=3)) > 900

    def tasks(seed):
        env = MultiEnvWrapper(points())
        env.seed(seed)
        for _ in range(20):
            env.reset()
            yield env.active_task_index

    assert list(tasks(1)) == list(tasks(1)) != list(tasks(2))


def test_each_task_has_a_seed_of_its_own():
    seeds = []

    class Seeded(PointEnv):
        def seed(self, seed):
            seeds.append(seed)
            super().seed(seed)

    MultiEnvWrapper([Seeded(), Seeded(), Seeded()]).seed(3)
    assert len(seeds) == len(set(seeds)) == 3


def local_rng_strategy(num_tasks, last_task):
    rng = np.random.default_rng(0)
    return int(rng.integers(num_tasks))


class RngStrategy:
    """Needs a generator."""

    def __call__(self, num_tasks, last_task, rng):
        return int(rng.integers(num_tasks))


def tasks_of(strategy, seed=None):
    env = MultiEnvWrapper(points(), strategy)
    if seed is not None:
        env.seed(seed)
    tasks = []
    for _ in range(20):
        env.reset()
        tasks.append(env.active_task_index)
    return tasks


def test_a_strategy_with_a_local_variable_named_rng_needs_none():
    assert tasks_of(local_rng_strategy, seed=3) == [local_rng_strategy(3, None)] * 20


@pytest.mark.parametrize("strategy", [uniform_random_strategy, partial(uniform_random_strategy), RngStrategy()])
def test_strategies_of_any_kind_get_a_generator_that_follows_the_seed(strategy):
    assert tasks_of(strategy, 1) == tasks_of(uniform_random_strategy, 1) != tasks_of(strategy, 2)
    np.random.seed(4)
    unseeded = tasks_of(strategy)
    assert unseeded != tasks_of(strategy)
    np.random.seed(4)
    assert tasks_of(strategy) == unseeded


def test_all_environments_are_closed():
    closed = []

    class Closing(PointEnv):
        def close(self):
            closed.append(self)

    envs = [Closing(), Closing()]
    MultiEnvWrapper(envs).close()
    assert closed == envs


def test_names_and_numbers_of_tasks_are_added():
    for kwargs in (dict(task_name="reach"), dict(task_id=3), dict(task_name="reach", task_id=3)):
        env = TaskNameWrapper(GymEnv(WalkGymEnv()), **kwargs)
        env.reset()
        info = env.step(env.action_space.sample()).env_info
        assert {key: info[key] for key in kwargs} == kwargs and "position" in info
        assert ("task_id" in info) == ("task_id" in kwargs)
