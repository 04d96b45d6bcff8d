"""Draws the next tasks to train on, as lists of environment updates: ``sampler.update_envs(task_sampler.sample(B))``."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rlpyt.envs.base import CompletedEnv
from rlpyt.envs.env_update import EnvUpdate, ExistingEnvUpdate, NewEnvUpdate, SetTaskUpdate
from rlpyt.utils.misc import n_required, takes_keyword
from rlpyt.utils.seed import seed_env
from rlpyt.utils.settings import checked, has, list_of, one_of

RNG = has("a generator, such as numpy.random.default_rng()", "permutation", "integers")


class TaskSampler:
    """Draws tasks, as updates of environments.

    Args:
        rng: the random generator; None makes one, seeded from numpy's global random state.
    """

    @checked(rng=RNG)
    def __init__(self, rng: np.random.Generator | None = None) -> None:
        self.rng = np.random.default_rng(np.random.randint(2**32, size=4, dtype=np.uint32)) if rng is None else rng

    @property
    def n_tasks(self) -> int | None:
        """Number of tasks; None if it is unlimited."""
        return None

    def sample(self, n_tasks: int, with_replacement: bool = False) -> list[EnvUpdate]:
        """Return `n_tasks` updates, one for each environment.

        Args:
            n_tasks: number of updates.
            with_replacement: draw each task independently. Otherwise every task is drawn once before any is drawn again.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define sample(n_tasks, with_replacement).")

    def _draw(self, n: int, n_available: int, with_replacement: bool) -> list[int]:
        """Return `n` numbers of tasks."""
        if with_replacement:
            return [int(i) for i in self.rng.integers(n_available, size=n)]
        rounds = [self.rng.permutation(n_available) for _ in range(-(-n // n_available))]
        return [int(i) for i in np.concatenate(rounds)[:n]] if rounds else []


class ConstructEnvsSampler(TaskSampler):
    """Draws tasks that are constructors of environments.

    Args:
        env_constructors: one per task, without arguments.
        rng: see `TaskSampler`.
    """

    @checked(env_constructors=list_of("what makes environments", callable), rng=RNG)
    def __init__(self, env_constructors: Sequence[Callable[[], Any]], rng: np.random.Generator | None = None) -> None:
        super().__init__(rng)
        self._env_constructors = list(_some(env_constructors, "env_constructors"))

    @property
    def n_tasks(self) -> int:
        """Number of constructors."""
        return len(self._env_constructors)

    def sample(self, n_tasks: int, with_replacement: bool = False) -> list[EnvUpdate]:
        """Return `n_tasks` updates; each makes a new environment."""
        return [NewEnvUpdate(self._env_constructors[i]) for i in self._draw(n_tasks, self.n_tasks, with_replacement)]


class SetTaskSampler(TaskSampler):
    """Draws tasks by ``env.sample_tasks(n)``, and sets them in environments of one class by ``set_task(task)``.

    Args:
        env_constructor: the class.
        env: an environment to draw tasks from; None makes one.
        wrapper: see `SetTaskUpdate`: called with an environment of the class, and the task if it takes two arguments.
        rng: see `TaskSampler`; given to ``sample_tasks`` if that has an argument `rng`.
    """

    @checked(rng=RNG)
    def __init__(
        self, env_constructor: type, *, env: Any = None, wrapper: Callable | None = None, rng: np.random.Generator | None = None
    ) -> None:
        super().__init__(rng)
        self._env_constructor = env_constructor
        self._env = env_constructor() if env is None else env
        self._wrapper = wrapper

    @property
    def n_tasks(self) -> int | None:
        """The environment's ``num_tasks``; None if it has no such attribute."""
        return CompletedEnv(self._env).num_tasks

    def sample(self, n_tasks: int, with_replacement: bool = False) -> list[EnvUpdate]:
        """Return `n_tasks` updates; each sets a task."""
        available = self.n_tasks
        if available is None or (n_tasks <= available and not with_replacement):
            tasks = self._sample_tasks(n_tasks)
        else:
            all_tasks = self._sample_tasks(available)
            tasks = [all_tasks[i] for i in self._draw(n_tasks, available, with_replacement)]
        return [SetTaskUpdate(self._env_constructor, task, self._wrapper) for task in tasks]

    def _sample_tasks(self, n: int) -> list:
        sample_tasks = self._env.sample_tasks
        return list(sample_tasks(n, rng=self.rng) if takes_keyword(sample_tasks, "rng") else sample_tasks(n))


class EnvPoolSampler(TaskSampler):
    """Draws environments from a pool; each is used in at most one place at a time.

    Args:
        envs: the pool.
        rng: see `TaskSampler`.
    """

    @checked(envs=list_of("environments", lambda env: hasattr(env, "step")), rng=RNG)
    def __init__(self, envs: Sequence[Any], rng: np.random.Generator | None = None) -> None:
        super().__init__(rng)
        self._envs = list(_some(envs, "envs"))

    @property
    def n_tasks(self) -> int:
        """Number of environments in the pool."""
        return len(self._envs)

    def sample(self, n_tasks: int, with_replacement: bool = False) -> list[EnvUpdate]:
        """Return `n_tasks` updates; each is an environment of the pool.

        Raises:
            ValueError: `n_tasks` exceeds the pool, or `with_replacement` is given: an environment cannot be in two places.
        """
        if n_tasks > len(self._envs):
            raise ValueError(f"There are {len(self._envs)} environments in the pool, not {n_tasks}: see grow_pool().")
        if with_replacement:
            raise ValueError("EnvPoolSampler cannot sample with replacement: an environment cannot be in two places.")
        return [ExistingEnvUpdate(self._envs[i]) for i in self._draw(n_tasks, len(self._envs), False)]

    def grow_pool(self, new_size: int) -> None:
        """Enlarge the pool to `new_size` by copies of its environments, each with a separate random stream.

        Raises:
            ValueError: the pool is larger than `new_size`.
        """
        if new_size < len(self._envs):
            raise ValueError(f"The pool has {len(self._envs)} environments already: it cannot grow to {new_size}.")
        for i in range(new_size - len(self._envs)):
            env = copy.deepcopy(self._envs[i])
            seed_env(env, int(self.rng.integers(2**31)))
            self._envs.append(env)


class MetaWorldTaskSampler(TaskSampler):
    """Draws tasks of a Meta-World benchmark, which has classes of environments with many variations each.

    Every sample has the same number of tasks of each class.

    Args:
        benchmark: a benchmark such as ``metaworld.MT10()``; has ``train_classes``, ``train_tasks``, ``test_classes``, ``test_tasks``.
        kind: "train" or "test".
        wrapper: called with an environment, and the task if it takes two arguments; returns it wrapped.
        add_env_onehot: wrap each environment in a `TaskOnehotWrapper` with the number of its class.
        rng: see `TaskSampler`.

    Raises:
        ValueError: the benchmark has no class of this kind, or a class has no task.
    """

    @checked(benchmark=has("a benchmark of Meta-World", "train_classes", "train_tasks"), kind=one_of("train", "test"), rng=RNG)
    def __init__(
        self,
        benchmark: Any,
        kind: str,
        wrapper: Callable | None = None,
        add_env_onehot: bool = False,
        rng: np.random.Generator | None = None,
    ) -> None:
        super().__init__(rng)
        self._classes = dict(getattr(benchmark, f"{kind}_classes", {}))
        if not self._classes:
            raise ValueError(f"kind={kind!r} is not possible: this benchmark has no {kind}_classes.")
        tasks = getattr(benchmark, f"{kind}_tasks", ())
        self._tasks = {name: [task for task in tasks if task.env_name == name] for name in self._classes}
        without = [name for name, tasks_of in self._tasks.items() if not tasks_of]
        if without:
            raise ValueError(f"{kind}_tasks of the benchmark has no task of {', '.join(sorted(without))}: every class needs at least one.")
        self._wrappers = {
            name: _ClassWrapper(i, len(self._classes), wrapper, add_env_onehot) for i, name in enumerate(sorted(self._classes))
        }
        self._upcoming: dict[str, list] = {name: [] for name in self._classes}  # Tasks in the order in which they will be drawn.

    @property
    def n_tasks(self) -> int:
        """Number of tasks of all classes."""
        return sum(map(len, self._tasks.values()))

    def sample(self, n_tasks: int, with_replacement: bool = False) -> list[EnvUpdate]:
        """Return `n_tasks` updates, class by class.

        Raises:
            ValueError: `n_tasks` is not a multiple of the number of classes.
        """
        each, rest = divmod(n_tasks, len(self._classes))
        if rest:
            raise ValueError(f"n_tasks={n_tasks} must be a multiple of the {len(self._classes)} classes of environments.")
        updates: list[EnvUpdate] = []
        for name in sorted(self._classes):
            tasks = self._tasks[name]
            upcoming = self._upcoming[name]
            if with_replacement:
                drawn = self._draw(each, len(tasks), True)
            else:
                while len(upcoming) < each:
                    upcoming.extend(self._draw(len(tasks), len(tasks), False))
                drawn, upcoming[:each] = upcoming[:each], []
            updates += [SetTaskUpdate(self._classes[name], tasks[i], self._wrappers[name]) for i in drawn]
        return updates


class _ClassWrapper:
    """Wraps environments of one class for `MetaWorldTaskSampler`."""

    def __init__(self, index: int, n_classes: int, wrapper: Callable | None, onehot: bool) -> None:
        self.index, self.n_classes, self.wrapper, self.onehot = index, n_classes, wrapper, onehot

    def __call__(self, env: Any, task: Any) -> Any:
        from rlpyt.envs.multitask import TaskNameWrapper, TaskOnehotWrapper

        if self.wrapper is not None:
            env = self.wrapper(env, task) if n_required(self.wrapper) >= 2 else self.wrapper(env)
        env = TaskNameWrapper(env, task_name=task.env_name, task_id=self.index)
        return TaskOnehotWrapper(env, self.index, self.n_classes) if self.onehot else env


def _some(items: Sequence, name: str) -> Sequence:
    if not len(items):
        raise ValueError(f"{name} is empty: there must be at least one task.")
    return items
