"""Which tasks come next."""

from collections import Counter, namedtuple
from functools import partial

import numpy as np
import pytest
from policies_for_tests import NoisyEnvironment

from rlpyt.envs.env_update import ExistingEnvUpdate, NewEnvUpdate, SetTaskUpdate
from rlpyt.envs.point_env import PointEnv
from rlpyt.experiments.task_sampler import ConstructEnvsSampler, EnvPoolSampler, MetaWorldTaskSampler, SetTaskSampler


def rng(seed=0):
    return np.random.default_rng(seed)


def goals(updates):
    return [tuple(float(x) for x in update().unwrapped.task["goal"]) for update in updates]


CONSTRUCTORS = [partial(PointEnv, goal=(i, i)) for i in range(4)]


def test_without_replacement_every_task_appears_before_any_appears_again():
    sampler = ConstructEnvsSampler(CONSTRUCTORS, rng=rng())
    assert sampler.n_tasks == 4
    updates = sampler.sample(10)
    assert all(type(update) is NewEnvUpdate for update in updates)
    drawn = goals(updates)
    assert len(set(drawn[:4])) == len(set(drawn[4:8])) == 4 and len(set(drawn[8:])) == 2
    assert sampler.sample(0) == []


def test_with_replacement_tasks_are_drawn_independently():
    counts = Counter(goals(ConstructEnvsSampler(CONSTRUCTORS, rng=rng()).sample(400, with_replacement=True)))
    assert len(counts) == 4 and min(counts.values()) > 70 and len(set(counts.values())) > 1


def test_equal_generators_draw_equal_tasks():
    first, second = (goals(ConstructEnvsSampler(CONSTRUCTORS, rng=rng(5)).sample(20)) for _ in range(2))
    assert first == second
    np.random.seed(3)
    without = goals(ConstructEnvsSampler(CONSTRUCTORS).sample(20))
    np.random.seed(3)
    assert without == goals(ConstructEnvsSampler(CONSTRUCTORS).sample(20)) != first


def test_no_tasks_are_refused():
    with pytest.raises(ValueError, match="env_constructors is empty"):
        ConstructEnvsSampler([])
    with pytest.raises(ValueError, match="envs is empty"):
        EnvPoolSampler([])


def test_tasks_of_an_environment_are_set():
    sampler = SetTaskSampler(PointEnv, rng=rng())
    assert sampler.n_tasks is None
    updates = sampler.sample(5)
    assert all(type(update) is SetTaskUpdate for update in updates) and len(set(goals(updates))) == 5
    env = PointEnv()
    updates[0](env)
    assert tuple(map(float, env.task["goal"])) == goals(updates)[0]
    assert goals(updates) == goals(SetTaskSampler(PointEnv, rng=rng()).sample(5))


class LocalRng(PointEnv):
    def sample_tasks(self, n):
        rng = np.random.default_rng(n)
        return [{"goal": goal} for goal in rng.uniform(size=(n, 2))]


def test_a_local_variable_named_rng_is_no_argument():
    assert goals(SetTaskSampler(LocalRng, rng=rng()).sample(3)) == [
        tuple(map(float, goal)) for goal in np.random.default_rng(3).uniform(size=(3, 2)).astype(np.float32)
    ]


class FewTasks(PointEnv):
    num_tasks = 3

    def sample_tasks(self, n):
        assert n <= 3
        return [{"goal": (i, 0)} for i in range(n)]


def test_where_tasks_are_few_they_repeat():
    sampler = SetTaskSampler(FewTasks, env=FewTasks(), rng=rng())
    assert sampler.n_tasks == 3
    drawn = goals(sampler.sample(7))
    assert len(set(drawn[:3])) == len(set(drawn[3:6])) == 3
    assert len(sampler.sample(7, with_replacement=True)) == 7


def test_environments_of_a_pool_are_in_one_place_at_a_time():
    envs = [PointEnv(goal=(i, 0)) for i in range(3)]
    sampler = EnvPoolSampler(envs, rng=rng())
    updates = sampler.sample(3)
    assert all(type(update) is ExistingEnvUpdate for update in updates) and {id(update()) for update in updates} == {id(e) for e in envs}
    with pytest.raises(ValueError, match="3 environments in the pool, not 4"):
        sampler.sample(4)
    with pytest.raises(ValueError, match="replacement"):
        sampler.sample(2, with_replacement=True)
    sampler.grow_pool(8)
    assert sampler.n_tasks == 8 and len({id(update()) for update in sampler.sample(8)}) == 8
    with pytest.raises(ValueError, match="cannot grow to 2"):
        sampler.grow_pool(2)


def test_copies_in_a_pool_have_random_numbers_of_their_own():
    class Random(PointEnv):
        def seed(self, seed):
            super().seed(seed)
            self.seeded = seed

    sampler = EnvPoolSampler([Random()], rng=rng())
    sampler.grow_pool(4)
    assert len({update().seeded for update in sampler.sample(4) if hasattr(update(), "seeded")}) == 3
    sampler = EnvPoolSampler([NoisyEnvironment()], rng=rng())
    sampler.grow_pool(4)
    assert len({float(update().observe()[0]) for update in sampler.sample(4)}) == 4


class Reach(PointEnv):
    def set_task(self, task):
        super().set_task({"goal": (task.data, 0)})


class Push(Reach):
    pass


def test_classes_of_a_benchmark_get_equal_shares():
    Task = namedtuple("Task", ["env_name", "data"])
    Benchmark = namedtuple("Benchmark", ["train_classes", "train_tasks"])
    tasks = [Task(name, i) for name in ("reach", "push") for i in range(3)]
    sampler = MetaWorldTaskSampler(Benchmark({"reach": Reach, "push": Push}, tasks), "train", add_env_onehot=True, rng=rng())
    assert sampler.n_tasks == 6
    with pytest.raises(ValueError, match="multiple of the 2 classes"):
        sampler.sample(3)
    envs = [update() for update in sampler.sample(6)]
    assert [type(env.unwrapped) for env in envs] == [Push] * 3 + [Reach] * 3
    assert sorted(float(env.unwrapped.task["goal"][0]) for env in envs[:3]) == [0, 1, 2]
    envs[3].reset()
    step = envs[3].step(np.zeros(2))
    assert step.env_info["task_name"] == "reach" and step.env_info["task_id"] == 1
    np.testing.assert_array_equal(step.observation[3:], [0, 1])
    assert len(sampler.sample(4, with_replacement=True)) == 4
    with pytest.raises(ValueError, match="kind='all'"):
        MetaWorldTaskSampler(Benchmark({}, []), "all")
    for kind in ("train", "test"):
        with pytest.raises(ValueError, match=f"kind='{kind}' is not possible: this benchmark has no {kind}_classes"):
            MetaWorldTaskSampler(Benchmark({}, tasks), kind)
    with pytest.raises(ValueError, match="train_tasks of the benchmark has no task of push, reach: every class needs"):
        MetaWorldTaskSampler(Benchmark({"reach": Reach, "push": Push}, []), "train")
