"""Environments are changed by updates, and whoever should be closed is."""

import pickle
import random
import warnings
from functools import partial

import numpy as np
import pytest
from envs import CountingEnv, WalkGymEnv
from policies_for_tests import NoisyEnvironment, noisy_envs

from rlpyt.envs.env_update import (
    EnvUpdate,
    ExistingEnvUpdate,
    NewEnvUpdate,
    SetTaskUpdate,
    apply_env_update,
    env_updates,
    supersedes,
)
from rlpyt.envs.grid_world import GridWorldEnv
from rlpyt.envs.gym_env import GymEnv
from rlpyt.envs.multitask import TaskOnehotWrapper
from rlpyt.envs.point_env import PointEnv


class ClosingPoint(PointEnv):
    """Counts how often it is closed."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.n_closed = 0

    def close(self):
        self.n_closed += 1


class OtherPoint(ClosingPoint):
    pass


def goal(env):
    return list(env.unwrapped.task["goal"])


def test_the_base_class_changes_nothing():
    env = PointEnv()
    assert EnvUpdate()(env) is env and EnvUpdate()() is None


def test_a_new_environment_takes_the_place_of_the_old_one_which_is_closed():
    old = ClosingPoint()
    update = NewEnvUpdate(partial(PointEnv, goal=(1, 2)))
    new = update(old)
    assert goal(new) == [1, 2] and old.n_closed == 1 and update() is not new
    assert goal(pickle.loads(pickle.dumps(update))()) == [1, 2]


def test_an_existing_environment_leaves_the_old_one_open_and_warns_when_it_is_sent():
    old, new = ClosingPoint(), PointEnv(goal=(2, 2))
    update = ExistingEnvUpdate(new)
    assert update(old) is new and update() is new and old.n_closed == 0
    with pytest.warns(UserWarning, match="whole environment"):
        sent = pickle.loads(pickle.dumps(update))
    assert goal(sent()) == [2, 2]


def test_set_task_makes_an_environment_or_uses_the_old_one_again():
    update = SetTaskUpdate(PointEnv, {"goal": (3, 4)})
    new = update()
    assert type(new) is PointEnv and goal(new) == [3, 4]
    assert SetTaskUpdate(PointEnv, {"goal": (5, 6)})(new) is new and goal(new) == [5, 6]


def test_set_task_replaces_an_environment_of_another_class_even_a_subclass():
    old = OtherPoint()
    with pytest.warns(UserWarning, match="OtherPoint"):
        new = SetTaskUpdate(ClosingPoint, {"goal": (3, 4)})(old)
    assert type(new) is ClosingPoint and old.n_closed == 1 and goal(new) == [3, 4]


def test_set_task_takes_classes_only():
    with pytest.raises(ValueError, match="must be a type"):
        SetTaskUpdate(PointEnv(), {}, None)


def onehot_of_task(env, task):
    return TaskOnehotWrapper(env, int(task["goal"][0]), 5)


def test_a_wrapper_is_made_anew_for_a_new_task():
    first = SetTaskUpdate(ClosingPoint, {"goal": (1, 0)}, onehot_of_task)()
    inner = first.env
    np.testing.assert_array_equal(first.reset()[0][3:], np.eye(5)[1])
    second = SetTaskUpdate(ClosingPoint, {"goal": (3, 0)}, onehot_of_task)(first)
    assert second.env is inner and inner.n_closed == 0 and goal(second) == [3, 0]
    np.testing.assert_array_equal(second.reset()[0][3:], np.eye(5)[3])
    del first
    assert inner.n_closed == 0
    assert second.step(np.zeros(2)).env_info["task_id"] == 3


def test_a_wrapper_may_take_the_environment_alone():
    env = SetTaskUpdate(PointEnv, {"goal": (1, 0)}, partial(TaskOnehotWrapper, task_index=2, n_total_tasks=3))()
    np.testing.assert_array_equal(env.reset()[0][3:], [0, 0, 1])

    class TaskWalk(WalkGymEnv):
        def set_task(self, task):
            self.task = task

    first = SetTaskUpdate(TaskWalk, 1, GymEnv)()
    second = SetTaskUpdate(TaskWalk, 2, GymEnv)(first)
    assert second.unwrapped is first.unwrapped and second.task == 2
    del first
    second.reset()


def test_whatever_may_be_given_is_applied_by_one_rule():
    old = ClosingPoint()
    assert apply_env_update(old, None) is old and apply_env_update(old, EnvUpdate()) is old
    assert apply_env_update(old, old) is old and old.n_closed == 0
    new = PointEnv()
    assert apply_env_update(old, new) is new and old.n_closed == 1
    assert isinstance(apply_env_update(old, CountingEnv), CountingEnv) and old.n_closed == 2
    assert isinstance(apply_env_update(old, lambda: WalkGymEnv()), WalkGymEnv) and old.n_closed == 3
    for wrong in (3, "PointEnv", {"goal": (1, 1)}):
        with pytest.raises(TypeError, match="Unknown environment update"):
            apply_env_update(old, wrong)
    assert old.n_closed == 3


def test_an_update_that_returns_no_environment_is_named():
    class Forgetful(EnvUpdate):
        def __call__(self, old_env=None):
            old_env.set_task({"goal": (1, 1)})

    with pytest.raises(TypeError, match=r"Forgetful.__call__\(old_env\) must return the environment.* returned None"):
        apply_env_update(PointEnv(), Forgetful())
    old = ClosingPoint()
    for no_constructor in (lambda: None, lambda: PointEnv):
        with pytest.raises(TypeError, match="lambda.* as the constructor of an environment, must return"):
            apply_env_update(old, no_constructor)
    assert old.n_closed == 0


def test_lists_have_one_update_for_each_environment():
    assert env_updates([None, PointEnv], 2, "columns") == [None, PointEnv]
    assert env_updates(PointEnv, 3, "columns") == [PointEnv] * 3
    with pytest.raises(ValueError, match="2 environment updates.*each of the 3 columns"):
        env_updates([None, None], 3, "columns")
    with pytest.raises(TypeError, match="Unknown environment update 3"):
        env_updates([None, 3], 2, "columns")


def test_one_environment_for_several_is_copied_but_not_put_in_two_places():
    env = PointEnv(goal=(2, 1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        each = env_updates(env, 3, "columns")
        carried = env_updates(ExistingEnvUpdate(env), 2, "columns")
    assert each[0] is env and len({id(x) for x in each}) == 3 and goal(each[2]) == [2, 1]
    assert carried[0]() is env and carried[1]() is not env
    with pytest.raises(ValueError, match="the same environment twice"):
        env_updates([env, None, ExistingEnvUpdate(env)], 3, "columns")


def test_copies_have_random_numbers_of_their_own_also_without_a_seed():
    state = np.random.get_state()[1].tolist()
    for name, env in noisy_envs().items():
        for update in (env, ExistingEnvUpdate(env)):
            envs = [apply_env_update(None, each) for each in env_updates(update, 3, "columns")]
            assert len({np.asarray(env.reset()[0]).tobytes() for env in envs}) == 3, name
    assert np.random.get_state()[1].tolist() == state
    env = NoisyEnvironment()
    env.seeds, env.draw = np.random.SeedSequence(0), random.Random(0).random
    with pytest.warns(UserWarning, match=r"a numpy.random.SeedSequence, the generator of a method random\(\) cannot be seeded"):
        env_updates(env, 2, "columns")


def test_which_updates_make_those_before_them_needless():
    class Changing(NewEnvUpdate):
        def __call__(self, old_env=None):
            return old_env

    new, existing, changing = NewEnvUpdate(GridWorldEnv), ExistingEnvUpdate(GridWorldEnv()), Changing(GridWorldEnv)
    task, other_task, other_type = (SetTaskUpdate(*args) for args in ((PointEnv, 1), (PointEnv, 2), (GridWorldEnv, 2)))
    for update in (new, existing, GridWorldEnv(), GridWorldEnv):
        assert supersedes(update, task) and supersedes(update, [task, new]) and supersedes([update, update], new)
        assert not supersedes([update, None], new) and not supersedes(changing, update) and not supersedes(task, update)
    assert supersedes(task, other_task) and supersedes([task, task], [task, other_task]) and supersedes(task, [task, task])
    assert not supersedes(task, other_type) and not supersedes([task, None], [other_task, None]) and not supersedes(EnvUpdate(), task)
