"""Environments whose steps are whole records, and the way between them and the other two kinds."""

import copy
import gc
import pickle
import warnings

import cloudpickle
import gymnasium
import numpy as np
import pytest
from envs import ClassicGymEnv, CountingEnv, StructuredGymEnv, WalkGymEnv, make_structured, make_walk
from gymnasium import spaces
from policies_for_tests import NoisyEnvironment

from rlpyt.envs.adapters import (
    AutoReset,
    EnvironmentAsGymnasium,
    EnvironmentAsRlpyt,
    RlpytAsEnvironment,
    as_environment,
    as_gymnasium,
    as_rlpyt,
)
from rlpyt.envs.base import Env
from rlpyt.envs.contract import check_env
from rlpyt.envs.environment import Environment, Wrapper
from rlpyt.envs.grid_world import MAPS, GridWorldEnv
from rlpyt.envs.gym import GymEnvWrapper
from rlpyt.envs.gym_env import GymEnv
from rlpyt.envs.multitask import TaskOnehotWrapper
from rlpyt.envs.point_env import PointEnv
from rlpyt.envs.specs import EnvSpec, EnvStep, StepType
from rlpyt.envs.state import get_state, set_state

ENVIRONMENTS = {
    "grid": lambda: GridWorldEnv(max_episode_length=7),
    "point": lambda: PointEnv(goal=(0.3, 0.2), max_episode_length=9),
    "wrapped point": lambda: Wrapper(PointEnv(goal=(0.3, 0.2), max_episode_length=9)),
    "gymnasium": lambda: GymEnv(WalkGymEnv(), max_episode_length=6),
    "gymnasium by name": lambda: GymEnv("CartPole-v1"),
    "rlpyt": lambda: as_environment(CountingEnv(episode_length=[5, 3], end=["terminated", "timeout"])),
    "rlpyt, structured": lambda: as_environment(make_structured()),
    "classic gym": lambda: as_environment(ClassicGymEnv()),
}
every_environment = pytest.mark.parametrize("make", ENVIRONMENTS.values(), ids=ENVIRONMENTS)


def play(env, n_steps, seed=0):
    """Seed `env` and take random steps; return observations, rewards, step types and env_infos."""
    env.seed(seed)
    log = [("reset", copy.deepcopy(env.reset()[0]))]
    for _ in range(n_steps):
        env_step = env.step(env.action_space.sample())
        log.append((env_step.step_type, copy.deepcopy(env_step.observation), env_step.reward, copy.deepcopy(env_step.env_info)))
        if env_step.last:
            log.append(("reset", copy.deepcopy(env.reset()[0])))
    return log


def same(a, b):
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return np.array_equal(a, b)


# ---------------------------------------------------------------------------------------------------------------------
# The interface
# ---------------------------------------------------------------------------------------------------------------------
@every_environment
def test_an_episode_begins_with_first_goes_on_with_mid_and_ends_once(make):
    env = make()
    assert isinstance(env, Environment)
    types = [entry[0] for entry in play(env, 60)]
    assert "reset" in types[1:]
    limit = env.spec.max_episode_length
    for before, after in zip(types, types[1:]):
        if before == "reset":
            assert after in (StepType.FIRST, StepType.TERMINAL, StepType.TIMEOUT)
        elif before in (StepType.FIRST, StepType.MID):
            assert after in (StepType.MID, StepType.TERMINAL, StepType.TIMEOUT)
        else:
            assert after == "reset"
    if limit is not None:
        starts = [i for i, kind in enumerate(types) if kind == "reset"]
        assert max(np.diff(starts)) <= limit + 1


@every_environment
def test_spec_spaces_and_steps_fit_together(make):
    env = make()
    assert env.spec == EnvSpec(env.observation_space, env.action_space, env.spec.max_episode_length)
    env.seed(1)
    observation, episode_info = env.reset()
    assert env.observation_space.contains(observation) and isinstance(episode_info, dict)
    action = env.action_space.sample()
    env_step = env.step(action)
    assert env_step.env_spec == env.spec and env_step.action is action
    assert type(env_step.reward) is float and isinstance(env_step.env_info, dict)
    assert env.observation_space.contains(env_step.observation)
    env.close()
    env.close()


@every_environment
def test_equal_seeds_give_equal_episodes(make):
    assert same(play(make(), 40, seed=5), play(make(), 40, seed=5))


@every_environment
def test_a_step_without_reset_is_refused(make):
    env = make()
    with pytest.raises(RuntimeError, match=r"reset\(\)"):
        env.step(env.action_space.sample())
    env.reset()
    while not env.step(env.action_space.sample()).last:
        pass
    with pytest.raises(RuntimeError, match=r"reset\(\)"):
        env.step(env.action_space.sample())
    env.reset()
    env.step(env.action_space.sample())


@every_environment
def test_environments_are_picklable_and_keep_their_spec(make):
    env = make()
    twin = cloudpickle.loads(cloudpickle.dumps(env))
    assert twin.spec == env.spec
    assert same(play(twin, 30), play(env, 30))


@every_environment
def test_an_unknown_render_mode_is_refused_with_those_there_are(make):
    with pytest.raises(ValueError, match="render modes are"):
        make().render("smell")


def test_an_environment_without_all_its_parts_cannot_be_made():
    class Empty(Environment):
        pass

    with pytest.raises(TypeError, match="abstract"):
        Empty()


def test_an_environment_closes_when_it_is_gone_but_its_wrapper_leaves_it_alone():
    closed = []

    class Closing(PointEnv):
        def close(self):
            closed.append(1)

    inner = Closing()
    wrapper = Wrapper(inner)
    del wrapper
    gc.collect()
    assert not closed
    del inner
    gc.collect()
    assert closed


def test_a_picture_of_the_point_shows_where_it_is():
    point = PointEnv(goal=(0, 2.5), arena_size=5.0)
    point.reset()
    picture = point.render("rgb_array")
    assert picture.shape == (100, 100, 3) and picture.dtype == np.uint8
    rows, columns = np.nonzero((picture == (200, 0, 0)).all(axis=-1))
    assert (rows.mean(), columns.mean()) == (49.5, 49.5), "the point, in the middle"
    rows, columns = np.nonzero((picture == (0, 160, 0)).all(axis=-1))
    assert (rows.mean(), columns.mean()) == (26.5, 49.5), "the goal, half way to the upper edge"


def test_a_wrapper_forwards_public_attributes_and_says_what_is_private_or_missing():
    point = PointEnv(goal=(1, 2))
    env = Wrapper(Wrapper(point))
    np.testing.assert_array_equal(env.task["goal"], [1, 2])
    env.set_task({"goal": (3, 4)})
    np.testing.assert_array_equal(point.task["goal"], [3, 4])
    assert env.unwrapped is point and point.unwrapped is point and env._env is env.env
    assert env.render("ansi") == point.render("ansi") and env.render_modes == ["ansi", "rgb_array"]
    with pytest.raises(AttributeError, match="private attribute"):
        assert env._goal
    with pytest.raises(AttributeError, match="not found"):
        assert env.nothing
    assert not hasattr(env, "nothing")


def test_the_documented_rollout_runs():
    env = GridWorldEnv("4x4_safe", max_episode_length=30)
    observation, episode_info = env.reset()
    env.visualize()
    episode = [env.step(1)]
    while not episode[-1].last:
        episode.append(env.step(2))
    env.close()
    assert episode[0].first and episode[-1].timeout and len(episode) == 30


# ---------------------------------------------------------------------------------------------------------------------
# Grid world and point
# ---------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("desc", MAPS)
def test_grid_world_agrees_with_a_walk_on_the_map(desc):
    env, rows = GridWorldEnv(desc), MAPS[desc]
    rng = np.random.default_rng(0)
    observation, _ = env.reset()
    row, column = next((r, c) for r, line in enumerate(rows) for c, letter in enumerate(line) if letter == "S")
    assert observation == row * len(rows[0]) + column
    for _ in range(500):
        action = int(rng.integers(4))
        r, c = row + (action == 1) - (action == 3), column + (action == 2) - (action == 0)
        inside = 0 <= r < len(rows) and 0 <= c < len(rows[0])
        if inside and rows[r][c] != "W":
            row, column = r, c
        env_step = env.step(action)
        assert env_step.observation == row * len(rows[0]) + column
        letter = rows[row][column]
        assert env_step.reward == (letter == "G") and env_step.terminal == (letter in "GH")
        assert env_step.env_info == {"success": letter == "G"}
        if env_step.last:
            env.reset()
            row, column = next((r, c) for r, line in enumerate(rows) for c, x in enumerate(line) if x == "S")


def test_grid_world_says_what_is_wrong_with_a_map_or_an_action():
    for desc in ("5x5", ["SF", "F"], ["SX"], ["FF"]):
        with pytest.raises(ValueError, match="desc="):
            GridWorldEnv(desc)
    env = GridWorldEnv()
    env.reset()
    with pytest.raises(ValueError, match="0 .left."):
        env.step(4)
    assert env.render("ansi").splitlines()[0] == "[S] F  F  F "


def test_point_goes_to_its_goal_and_no_faster_than_it_may():
    env = PointEnv(goal=(1.0, 0.0), done_bonus=5.0)
    observation, episode_info = env.reset()
    np.testing.assert_array_equal(observation, np.array([0, 0, 1], np.float32))
    np.testing.assert_array_equal(episode_info["goal"], [1, 0])
    action = np.array([7.0, 0.0], np.float32)
    steps = [env.step(action)]
    while not steps[-1].last:
        steps.append(env.step(action))
    np.testing.assert_array_equal(action, [7, 0])
    np.testing.assert_allclose(steps[2].observation, [0.3, 0, 0.7], rtol=1e-5)
    assert steps[2].reward == pytest.approx(-0.7) and not steps[2].env_info["success"]
    assert steps[-1].terminal and steps[-1].env_info["success"] and steps[-1].reward == pytest.approx(5 - steps[-1].observation[2])
    assert steps[-1].observation[2] < np.sqrt(0.02)
    assert steps[0].observation.dtype == np.float32


def test_point_stays_in_its_arena_and_goes_on_if_it_is_never_done():
    env = PointEnv(goal=(0.0, 0.0), arena_size=0.25, never_done=True, max_episode_length=50)
    env.reset()
    steps = [env.step(np.array([0.1, 0.1])) for _ in range(50)]
    assert not any(step.last for step in steps[:-1]) and steps[-1].timeout
    np.testing.assert_allclose(steps[-1].observation[:2], [0.25, 0.25])


def test_point_says_what_is_wrong_with_a_goal():
    for goal in ((1, 2, 3), 1, [[1, 2]]):
        with pytest.raises(ValueError, match="goal=.* must be two numbers"):
            PointEnv(goal=goal)
        with pytest.raises(ValueError, match="goal=.* must be two numbers"):
            PointEnv().set_task({"goal": goal})


@pytest.mark.parametrize(
    "make", [PointEnv, GridWorldEnv, lambda max_episode_length: GymEnv(WalkGymEnv(), max_episode_length=max_episode_length)]
)
def test_a_time_limit_is_at_least_one_step_and_none_is_no_limit(make):
    assert make(max_episode_length=None).spec.max_episode_length is None
    assert make(max_episode_length=1).spec.max_episode_length == 1
    for limit in (0, -3):
        with pytest.raises(ValueError, match=f"max_episode_length={limit} must be at least 1"):
            make(max_episode_length=limit)


def test_tasks_of_the_point_are_drawn_from_a_square_and_can_be_set():
    env = PointEnv()
    tasks = env.sample_tasks(200, rng=np.random.default_rng(0))
    goals = np.array([task["goal"] for task in tasks])
    assert goals.shape == (200, 2) and np.abs(goals).max() <= 2 and np.abs(goals).max() > 1.8
    env.set_task(tasks[3])
    _, episode_info = env.reset()
    np.testing.assert_array_equal(episode_info["goal"], goals[3])
    np.random.seed(1)
    a = env.sample_tasks(2)
    np.random.seed(1)
    assert same(a, env.sample_tasks(2))


# ---------------------------------------------------------------------------------------------------------------------
# gymnasium's environments
# ---------------------------------------------------------------------------------------------------------------------
def test_gym_env_takes_a_name_or_an_environment_and_nothing_else():
    assert isinstance(GymEnv("CartPole-v1").unwrapped, gymnasium.Env)
    assert GymEnv(gymnasium.make("CartPole-v1")).spec.max_episode_length == 500
    for wrong in (3, ClassicGymEnv(), PointEnv(), gymnasium.Env):
        with pytest.raises(ValueError, match="GymEnv can take env"):
            GymEnv(wrong)
    with pytest.raises(ValueError, match="render_mode.*gymnasium.make"):
        GymEnv(WalkGymEnv(), render_mode="human")


def test_a_limit_that_is_given_takes_the_place_of_the_environments_own():
    with pytest.warns(UserWarning, match="max_episode_length=700 replaces"):
        env = GymEnv(gymnasium.make("Pendulum-v1"), max_episode_length=700)
    assert env.spec.max_episode_length == 700
    env.reset()
    steps = [env.step(env.action_space.sample()) for _ in range(700)]
    assert [i for i, step in enumerate(steps) if step.last] == [699] and steps[-1].timeout
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert GymEnv(gymnasium.make("Pendulum-v1"), max_episode_length=200).spec.max_episode_length == 200
        assert GymEnv(WalkGymEnv()).spec.max_episode_length is None
        assert GymEnv(WalkGymEnv(), max_episode_length=3).spec.max_episode_length == 3


class Scripted(gymnasium.Env):
    """Its steps return what it was made with, in turn."""

    observation_space = spaces.Box(-1, 1, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, *outcomes):
        self.outcomes = list(outcomes)

    def reset(self, *, seed=None, options=None):
        return np.zeros(2, np.float32), {"ignored": 1}

    def step(self, action):
        terminated, truncated, info = self.outcomes.pop(0)
        return np.zeros(2, np.float32), np.float64(1.5), terminated, truncated, info


def test_termination_wins_over_a_time_limit_in_the_same_step():
    for flags, expected in (((True, True), StepType.TERMINAL), ((False, True), StepType.TIMEOUT), ((True, False), StepType.TERMINAL)):
        env = GymEnv(Scripted((*flags, {})), max_episode_length=1)
        env.reset()
        assert env.step(0).step_type == expected


def test_an_explicit_not_truncated_in_the_info_is_no_timeout():
    env = GymEnv(Scripted((False, False, {"TimeLimit.truncated": False}), (True, False, {"TimeLimit.truncated": False})))
    env.reset()
    first, last = env.step(0), env.step(0)
    assert first.first and last.terminal and type(last.reward) is float
    for step in (first, last):
        assert step.env_info == {"TimeLimit.truncated": False, "GymEnv.TimeLimitTerminated": False}


def test_env_info_says_that_time_ran_out_in_two_keys_that_are_always_there():
    env = GymEnv(Scripted((False, False, {"a": 1}), (False, True, {"a": 2})))
    assert env.reset()[1] == {}
    assert env.step(0).env_info == {"a": 1, "TimeLimit.truncated": False, "GymEnv.TimeLimitTerminated": False}
    assert env.step(0).env_info == {"a": 2, "TimeLimit.truncated": True, "GymEnv.TimeLimitTerminated": True}


def test_keys_that_come_and_go_are_refused_unless_there_is_an_example():
    outcomes = (False, False, {"a": 1}), (False, False, {"b": 1})
    env = GymEnv(Scripted(*outcomes))
    env.reset()
    env.step(0)
    with pytest.raises(RuntimeError, match="GymEnv outputs inconsistent env_info keys.*'a', 'b'"):
        env.step(0)
    env = GymEnv(Scripted(*outcomes), info_example=dict(a=0, b=0))
    env.reset()
    assert [env.step(0).env_info[key] for key in ("a", "a")] == [1, 0]


def test_an_observation_of_another_size_is_refused():
    env = GymEnv(Scripted())
    env.env.reset = lambda **kwargs: (np.zeros(3), {})
    with pytest.raises(RuntimeError, match="3 elements.*has 2"):
        env.reset()


def test_images_must_look_like_images():
    class Screen(Scripted):
        observation_space = spaces.Box(0, 255, (4, 5, 3), np.uint8)

    assert GymEnv(Screen(), is_image=True).is_image
    with pytest.raises(ValueError, match="uint8"):
        GymEnv(Scripted(), is_image=True)


class WithWindow(WalkGymEnv):
    """Has something open that cannot be pickled."""

    metadata = {"render_modes": ["rgb_array", "human"]}
    screen = None

    def __init__(self, render_mode=None):
        super().__init__()
        self.render_mode = render_mode

    def render(self):
        self.screen = open("/dev/null")
        return f"drawn as {self.render_mode}"

    def close(self):
        if self.screen is not None:
            self.screen.close()


def test_gym_env_is_pickled_without_its_window():
    env = GymEnv(gymnasium.wrappers.TimeLimit(WithWindow(render_mode="rgb_array"), 9))
    env.reset()
    assert env.render("rgb_array") == "drawn as rgb_array"
    twin = pickle.loads(pickle.dumps(env))
    assert twin.spec == env.spec and env.unwrapped.screen is not None and twin.unwrapped.screen is None
    assert same(twin.step(twin.action_space.sample()).observation.shape, (2,))  # The episode goes on there.


def test_gym_env_renders_in_any_mode_whatever_it_was_made_with():
    env = GymEnv(WithWindow())
    env.reset()
    assert env.render("rgb_array") == "drawn as rgb_array" and env.unwrapped.render_mode is None
    env.visualize()
    assert env.unwrapped.render_mode == "human"


def test_gym_env_forwards_attributes():
    env = GymEnv(WalkGymEnv())
    assert env.max_steps == 20 and env.unwrapped is env.env
    with pytest.raises(AttributeError, match="private"):
        assert env._hidden
    with pytest.raises(AttributeError, match="not found"):
        assert env.nothing


# ---------------------------------------------------------------------------------------------------------------------
# From each kind to each other
# ---------------------------------------------------------------------------------------------------------------------
def test_each_kind_stays_what_it_is_and_adapters_come_off():
    point, walk, counting = PointEnv(), WalkGymEnv(), CountingEnv()
    assert as_environment(point) is point and as_gymnasium(walk) is walk and as_rlpyt(counting) is counting
    assert as_environment(as_gymnasium(point)) is point and as_environment(as_rlpyt(point)) is point
    assert as_rlpyt(as_environment(counting)) is counting
    assert as_rlpyt(as_gymnasium(point)).environment is point
    assert isinstance(as_environment(walk), GymEnv) and isinstance(as_rlpyt(walk), GymEnvWrapper)
    assert isinstance(as_gymnasium(counting), gymnasium.Env) and isinstance(as_gymnasium(point), gymnasium.Env)
    for convert in (as_environment, as_gymnasium, as_rlpyt):
        with pytest.raises(TypeError, match="is no environment"):
            convert(3)


def test_an_environment_is_the_same_in_gymnasium():
    grid, gym = GridWorldEnv(max_episode_length=5), as_gymnasium(GridWorldEnv(max_episode_length=5))
    assert gym.spec.max_episode_steps == 5 and gym.observation_space == grid.observation_space
    observation, _ = grid.reset()
    assert gym.reset(seed=3)[0] == observation
    rng = np.random.default_rng(0)
    for _ in range(100):
        action = int(rng.integers(4))
        ours, theirs = grid.step(action), gym.step(action)
        assert theirs == (ours.observation, ours.reward, ours.terminal, ours.timeout, ours.env_info)
        if ours.last:
            grid.reset()
            gym.reset()


def test_gymnasiums_own_checker_accepts_what_we_make():
    from gymnasium.utils.env_checker import check_env as check_gymnasium

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # On unbounded boxes, and the like.
        check_gymnasium(as_gymnasium(GridWorldEnv(max_episode_length=5)), skip_render_check=True)
        check_gymnasium(as_gymnasium(PointEnv(max_episode_length=5)), skip_render_check=True)
        check_gymnasium(as_gymnasium(TaskOnehotWrapper(PointEnv(max_episode_length=5), 1, 2)), skip_render_check=True)
        one_hot = TaskOnehotWrapper(gymnasium.make("CartPole-v1"), 1, 2)
        check_gymnasium(one_hot, skip_render_check=True)
    again = gymnasium.make(one_hot.spec)
    assert again.observation_space == one_hot.observation_space and again.reset()[0][-1] == 1


def test_copies_that_gymnasium_makes_have_random_numbers_of_their_own():
    env = as_gymnasium(NoisyEnvironment())
    assert len({float(gymnasium.make(env.spec).reset()[0][0]) for _ in range(3)}) == 3
    assert env.reset(seed=3)[0] == gymnasium.make(env.spec).reset(seed=3)[0] != env.reset(seed=4)[0]


def test_what_reset_tells_about_an_episode_is_gymnasiums_info():
    _, info = as_gymnasium(PointEnv(goal=(1, 2))).reset()
    np.testing.assert_array_equal(info["goal"], [1, 2])


@pytest.mark.parametrize(
    "make",
    [
        lambda: as_rlpyt(GridWorldEnv(max_episode_length=7)),
        lambda: as_rlpyt(PointEnv(goal=(0.2, 0.1), max_episode_length=9)),
        lambda: as_rlpyt(GymEnv(WalkGymEnv())),
        lambda: EnvironmentAsRlpyt(RlpytAsEnvironment(CountingEnv(episode_length=5, end="timeout"))),
        lambda: EnvironmentAsRlpyt(RlpytAsEnvironment(make_structured())),
        lambda: EnvironmentAsRlpyt(AutoReset(GridWorldEnv(max_episode_length=7))),
    ],
)
def test_what_becomes_an_rlpyt_environment_keeps_its_contract(make):
    check_env(make, n_steps=60)


def test_an_environment_and_its_rlpyt_form_play_the_same():
    ours, env = as_rlpyt(PointEnv(goal=(0.3, 0.2), max_episode_length=9)), PointEnv(goal=(0.3, 0.2), max_episode_length=9)
    assert ours.horizon == 9 and ours.action_space.shape == (2,)
    np.testing.assert_array_equal(ours.reset(), env.reset()[0])
    rng = np.random.default_rng(0)
    for _ in range(60):
        action = rng.uniform(-0.1, 0.1, 2).astype(np.float32)
        mine, theirs = ours.step(action), env.step(action)
        np.testing.assert_array_equal(mine.observation, theirs.observation)
        assert (mine.reward, mine.done, mine.env_info.timeout) == (theirs.reward, theirs.last, theirs.timeout)
        assert bool(mine.env_info.success) == theirs.env_info["success"]
        np.testing.assert_array_equal(mine.env_info.task.goal, theirs.env_info["task"]["goal"])
        if theirs.last:
            np.testing.assert_array_equal(ours.reset(), env.reset()[0])


def test_names_of_tasks_are_left_out_without_a_warning_other_text_with_one():
    class Talking(PointEnv):
        more = {}

        def step(self, action):
            env_step = super().step(action)
            env_step.env_info.update(self.more)
            return env_step

    Talking.more = {"task_name": "left"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env = as_rlpyt(Talking())
    env.reset()
    assert env.step(env.action_space.null_value()).env_info._fields == ("task", "success", "timeout")
    Talking.more = {"mood": "fine"}
    with pytest.warns(UserWarning, match="mood"):
        as_rlpyt(Talking())


def test_structures_become_dictionaries_and_back():
    env = as_environment(make_structured())
    assert set(env.observation_space.spaces) == {"camera_left", "joints", "goal"}
    assert env.action_space["tool"]["item_1"].n == 3
    observation, _ = env.reset()
    assert observation["goal"]["class_"].shape == () and observation["camera_left"].dtype == np.uint8
    env_step = env.step(env.action_space.sample())
    assert env_step.env_info["parts"]["left"] == 1 and env.observation_space.contains(env_step.observation)


def test_after_a_lost_life_reset_goes_on_where_the_game_is():
    env = as_environment(CountingEnv(episode_length=[2, 3, 2], end=["life", "terminated", "terminated"]))
    observation, _ = env.reset()
    assert list(observation[1:3]) == [0, 0]
    env.step(0)
    lost = env.step(0)
    assert lost.terminal and not lost.env_info["traj_done"]
    observation, _ = env.reset()
    np.testing.assert_array_equal(observation, lost.observation)
    assert env.step(0).first and env.step(0).mid
    assert env.step(0).terminal
    assert list(env.reset()[0][1:3]) == [1, 0]


def test_a_trajectory_that_ends_without_done_times_out_and_reset_begins_a_new_one():
    class Silent(CountingEnv):
        """Says only in env_info that it is over."""

        def step(self, action):
            observation, reward, done, env_info = super().step(action)
            return observation, reward, False, env_info

    env = as_environment(Silent(episode_length=3))
    for episode in range(2):
        observation, _ = env.reset()
        assert list(observation[1:3]) == [episode, 0]
        assert [env.step(0).step_type for _ in range(3)] == [StepType.FIRST, StepType.MID, StepType.TIMEOUT]
        with pytest.raises(RuntimeError, match=r"reset\(\)"):
            env.step(0)


def test_observations_are_copies_where_an_environment_reuses_its_memory():
    class Reusing(CountingEnv):
        def _observation(self):
            self._memory = getattr(self, "_memory", np.zeros(4, np.float32))
            self._memory[:] = super()._observation()
            return self._memory

    env = as_environment(Reusing())
    first, _ = env.reset()
    env.step(0)
    assert first[2] == 0


def test_a_step_after_the_last_one_begins_a_new_sequence_if_asked_for():
    env = as_environment(GridWorldEnv(max_episode_length=3), auto_reset=True)
    with pytest.raises(RuntimeError, match=r"reset\(\)"):
        env.step(0)
    env.reset()
    steps = [env.step(1) for _ in range(8)]
    ends = [i for i, step in enumerate(steps) if step.last]
    assert len(ends) >= 2
    for end in ends[:-1]:
        begun = steps[end + 1]
        assert begun.first and begun.action is None and begun.reward is None and begun.observation == 0
        assert not steps[end + 2].first


def test_the_state_of_an_environment_in_rlpyt_form_can_be_saved_and_put_back():
    env, twin = as_rlpyt(PointEnv(goal=(2, 2))), as_rlpyt(PointEnv())
    for each in (env, twin):
        each.reset()
    env.environment.set_task({"goal": (1, -1)})
    env.step(np.array([0.1, 0.05], np.float32))
    set_state(twin, get_state(env))
    action = np.array([0.02, 0.1], np.float32)
    a, b = env.step(action), twin.step(action)
    np.testing.assert_array_equal(a.observation, b.observation)
    np.testing.assert_array_equal(b.env_info.task.goal, [1, -1])


def test_structured_gymnasium_environments_are_environments_as_they_are():
    env = GymEnv(StructuredGymEnv(), info_example={"only.at.the.fourth": 0.0})
    assert isinstance(env, Environment) and not isinstance(env, Env)
    env.reset()
    for _ in range(6):
        env_step = env.step(env.action_space.sample())
    assert isinstance(env_step, EnvStep) and env.observation_space.contains(env_step.observation)
    assert isinstance(as_gymnasium(env), EnvironmentAsGymnasium)


def test_rlpyt_forms_of_gymnasium_agree_through_either_way():
    direct, around = make_walk(), EnvironmentAsRlpyt(RlpytAsEnvironment(make_walk()))
    for env in (direct, around):
        env.seed(4)
    np.testing.assert_array_equal(direct.reset(), around.reset())
    for _ in range(30):
        action = direct.action_space.sample()
        a, b = direct.step(action), around.step(action)
        np.testing.assert_array_equal(a.observation, b.observation)
        assert (a.reward, a.done, a.env_info.timeout) == (b.reward, b.done, b.env_info.timeout)
        if a.done:
            np.testing.assert_array_equal(direct.reset(), around.reset())
