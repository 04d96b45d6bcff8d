"""Wrappers for training on several tasks: they add the task to observations and env_info.

``env_info["task_id"]`` is the number of the task. Samplers record it, and `rlpyt.types.TaskTrajInfo` logs the return of each task.
``env_info["task_name"]`` is the name of the task; samplers leave it out.
"""

from __future__ import annotations

import operator
import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, SupportsFloat

import gymnasium
import numpy as np
from gymnasium import spaces

from rlpyt.envs.adapters import as_environment, is_env
from rlpyt.envs.environment import Environment, Wrapper
from rlpyt.envs.specs import EnvSpec, EnvStep, checked_reset, sub_spaces
from rlpyt.envs.state import restore_each
from rlpyt.spaces.base import CompletedSpace
from rlpyt.spaces.composite import child_seeds
from rlpyt.utils.misc import takes_keyword
from rlpyt.utils.plain import check_form, from_plain, to_plain
from rlpyt.utils.seed import rng_from_global_seed


# ---------------------------------------------------------------------------------------------------------------------
# The number of the task as a one-hot
# ---------------------------------------------------------------------------------------------------------------------
class TaskOnehotWrapper:
    """Adds the task of an environment to its observations, as a one-hot vector.

    The vector is appended to an observation of one dimension, in its dtype; a dictionary gets the entry ``task``, float32
    ``[n_total_tasks]``. env_info gets ``task_id`` (int), and the information on the episode from `reset` gets ``task_one_hot``.

    The result is an environment of gymnasium if `env` is one, else an `Environment`. (`GymEnv` leaves out the info of gymnasium's
    `reset`. To have ``task_one_hot`` among the infos of episodes, write ``TaskOnehotWrapper(GymEnv(env), ...)``.)

    `wrap_env_cons_list` makes the list of environments for a sampler.

    Args:
        env: the environment.
        task_index: number of its task, from 0.
        n_total_tasks: number of tasks.

    Raises:
        ValueError: `task_index` is out of range, or observations are neither vectors nor dictionaries.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if not issubclass(cls, (Environment, gymnasium.Env)):
            raise TypeError(
                f"{cls.__name__} cannot be derived from TaskOnehotWrapper, which has another class for each kind of environment: derive "
                "it from rlpyt.episodes.Wrapper or gymnasium.Wrapper, and wrap one in the other."
            )

    def __new__(cls, env: Any = None, task_index: int = 0, n_total_tasks: int = 1) -> TaskOnehotWrapper:
        """Make an object of the class for this kind of environment."""
        if cls is TaskOnehotWrapper:
            cls = _GymnasiumTaskOnehot if isinstance(env, gymnasium.Env) else _EnvironmentTaskOnehot
        return super().__new__(cls)

    def _prepare(self, task_index: int, n_total_tasks: int, space: gymnasium.Space) -> gymnasium.Space:
        """Make the one-hot vector; return the observation space with it."""
        if not 0 <= task_index < n_total_tasks:
            raise ValueError(f"task_index={task_index} must be from 0 to {n_total_tasks - 1}: there are n_total_tasks={n_total_tasks}.")
        self._task_index = int(task_index)
        self._one_hot = _one_hot(task_index, n_total_tasks, space)
        return with_one_hot(space, n_total_tasks)

    @property
    def task_index(self) -> int:
        """Number of the task."""
        return self._task_index

    @classmethod
    def wrap_env_list(cls, envs: Sequence[Any]) -> list[TaskOnehotWrapper]:
        """Wrap environments; the position in the list is the number of the task, so always keep the order."""
        return [cls(env, i, len(envs)) for i, env in enumerate(envs)]

    @classmethod
    def wrap_env_cons_list(cls, env_cons: Sequence[Callable]) -> list[Callable]:
        """Return constructors of wrapped environments; the position in the list is the number of the task.

        They pass their arguments on, and can be pickled if the given constructors can. A sampler with several environments of each task::

            EnvCls=TaskOnehotWrapper.wrap_env_cons_list([make_left, make_right]) * 4, batch_B=8
        """
        return [partial(_construct, cls, constructor, i, len(env_cons)) for i, constructor in enumerate(env_cons)]


class _OtherSpec(Wrapper):
    """Holds an environment, and has another observation space, which the constructor sets."""

    _observation_space: gymnasium.Space
    _spec: EnvSpec

    @property
    def observation_space(self) -> gymnasium.Space:
        """The space of observations, with or without a one-hot."""
        return self._observation_space

    @property
    def spec(self) -> EnvSpec:
        """Both spaces, and the largest number of steps in an episode."""
        return self._spec


class _EnvironmentTaskOnehot(TaskOnehotWrapper, _OtherSpec):
    """`TaskOnehotWrapper` for environments that are not of gymnasium."""

    def __init__(self, env: Any, task_index: int, n_total_tasks: int) -> None:
        Wrapper.__init__(self, as_environment(env))
        self._observation_space = self._prepare(task_index, n_total_tasks, self.env.observation_space)
        self._spec = EnvSpec(self._observation_space, self.env.spec.action_space, self.env.spec.max_episode_length)

    def reset(self) -> tuple[Any, dict]:
        """Reset the wrapped environment."""
        observation, episode_info = checked_reset(self.env.reset(), self.env)
        return _append(observation, self._one_hot), {**episode_info, "task_one_hot": self._one_hot.copy()}

    def step(self, action: Any) -> EnvStep:
        """Step the wrapped environment."""
        env_step = self.env.step(action)
        return _changed(env_step, self._spec, _append(env_step.observation, self._one_hot), {"task_id": self._task_index})


class _GymnasiumTaskOnehot(TaskOnehotWrapper, gymnasium.Wrapper, gymnasium.utils.RecordConstructorArgs):
    """`TaskOnehotWrapper` for gymnasium, which can make copies of it from its ``spec``."""

    def __init__(self, env: gymnasium.Env, task_index: int, n_total_tasks: int) -> None:
        gymnasium.utils.RecordConstructorArgs.__init__(self, task_index=task_index, n_total_tasks=n_total_tasks)
        gymnasium.Wrapper.__init__(self, env)
        self.observation_space = self._prepare(task_index, n_total_tasks, env.observation_space)

    def reset(self, **kwargs: Any) -> tuple[Any, dict]:
        """Reset the wrapped environment."""
        observation, info = self.env.reset(**kwargs)
        return _append(observation, self._one_hot), {**info, "task_one_hot": self._one_hot.copy()}

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict]:
        """Step the wrapped environment."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        return _append(observation, self._one_hot), reward, terminated, truncated, {**info, "task_id": self._task_index}


def without_task(env_cons: Any) -> Any:
    """Return the original of a constructor that `TaskOnehotWrapper.wrap_env_cons_list` wrapped; return any other unchanged."""
    return env_cons.args[1] if isinstance(env_cons, partial) and env_cons.func is _construct else env_cons


def _construct(cls: type, constructor: Callable, task_index: int, n_total_tasks: int, **kwargs: Any) -> TaskOnehotWrapper:
    return cls(constructor(**kwargs), task_index, n_total_tasks)


def with_one_hot(space: gymnasium.Space, n: int) -> gymnasium.Space:
    """Return an observation space with a one-hot of `n` elements: a longer vector, or a dictionary with the entry ``task``.

    Raises:
        ValueError: `space` is neither, or already has that entry.
    """
    if isinstance(space, spaces.Box) and len(space.shape) == 1:
        low, high = np.zeros(n, space.dtype), np.ones(n, space.dtype)
        return spaces.Box(np.concatenate([space.low, low]), np.concatenate([space.high, high]), dtype=space.dtype.type)
    if isinstance(space, spaces.Dict) and "task" not in space.spaces:
        return spaces.Dict({**space.spaces, "task": spaces.Box(0.0, 1.0, (n,), np.float32)})
    raise ValueError(
        "A one-hot can be added to observations of one dimension, and to dictionaries without an entry 'task', but not to those of "
        f"{space}. Put images into a dictionary."
    )


def _one_hot(index: int, n: int, space: gymnasium.Space) -> np.ndarray:
    vector = np.zeros(n, space.dtype if isinstance(space, spaces.Box) else np.float32)
    vector[index] = 1
    return vector


def _append(observation: Any, one_hot: np.ndarray) -> Any:
    if isinstance(observation, dict):
        return {**observation, "task": one_hot.copy()}
    return np.concatenate([np.asarray(observation), one_hot])


def _changed(env_step: EnvStep, spec: EnvSpec, observation: Any, more_info: dict) -> EnvStep:
    """Return a step with another observation, and with additional entries in env_info."""
    return EnvStep(
        env_spec=spec,
        action=env_step.action,
        reward=env_step.reward,
        observation=observation,
        env_info={**env_step.env_info, **more_info},
        step_type=env_step.step_type,
    )


# ---------------------------------------------------------------------------------------------------------------------
# Several environments in one
# ---------------------------------------------------------------------------------------------------------------------
def uniform_random_strategy(num_tasks: int, last_task: int | None, rng: Any = random) -> int:
    """Draw a task uniformly."""
    return int(rng.integers(num_tasks)) if isinstance(rng, np.random.Generator) else rng.randrange(num_tasks)


def round_robin_strategy(num_tasks: int, last_task: int | None) -> int:
    """Return the next task in turn, starting with the first."""
    return 0 if last_task is None else (last_task + 1) % num_tasks


class MultiEnvWrapper(_OtherSpec):
    """Several environments as one: every `reset` chooses one of them.

    All observation spaces must have the same fields, shapes and dtypes, and all action spaces must be equal: one agent acts in all.
    env_info gets ``task_id`` (int), unless the environment sets it, and ``task_name`` if `env_names` is given.

    Args:
        envs: environments of any kind, or constructors of them. Give constructors if several wrappers must not share environments.
        sample_strategy: function of the number of tasks and the last task (None at first) that returns the next task. If it takes the
            keyword `rng`, it gets a generator, seeded by `seed`, or else from numpy's global random state. `reset` raises ValueError
            if there is no such task.
        mode: "add-onehot" adds a one-hot of the task to observations, "del-onehot" removes a one-hot at their end, "vanilla" leaves them
            unchanged.
        env_names: one name for each environment.

    Raises:
        ValueError: spaces differ, an environment is given twice, `mode` is unknown, or the number of names is wrong.
    """

    def __init__(
        self,
        envs: Sequence[Any],
        sample_strategy: Callable = uniform_random_strategy,
        mode: str = "add-onehot",
        env_names: list[str] | None = None,
    ) -> None:
        if mode not in ("vanilla", "add-onehot", "del-onehot"):
            raise ValueError(f"mode={mode!r} must be 'vanilla', 'add-onehot' or 'del-onehot'.")
        if not len(envs):
            raise ValueError("envs is empty: there must be at least one environment.")
        made = [env if is_env(env) else env() for env in envs]
        if len({id(env) for env in made}) < len(made):
            raise ValueError("envs contains the same environment twice: give copies, or a constructor.")
        self._envs = [as_environment(env) for env in made]
        super().__init__(self._envs[0])
        if env_names is not None and not (
            isinstance(env_names, list) and len(env_names) == len(envs) and len(set(env_names)) == len(env_names)
        ):
            raise ValueError(f"env_names={env_names!r} must be a list of {len(envs)} names, one for each environment, all different.")
        _check_spaces(self._envs)
        self._strategy, self._mode, self._names = sample_strategy, mode, env_names
        self._strategy_takes_rng = takes_keyword(sample_strategy, "rng")
        self._rng: np.random.Generator | None = None  # Made by `seed`, or else by the first reset.
        self._active: int | None = None
        self._begins_anew = False  # Whether the next choice does not depend on the present task.
        space = self.env.observation_space
        self._one_hots = [_one_hot(i, self.num_tasks, space) for i in range(self.num_tasks)]
        if mode == "add-onehot":
            space = with_one_hot(space, self.num_tasks)
        elif mode == "del-onehot":
            space = self._without_one_hot(space)
        limits = [env.spec.max_episode_length for env in self._envs if env.spec.max_episode_length is not None]
        limit = max(limits) if len(limits) == len(self._envs) else None  # Of any of the environments.
        self._observation_space, self._spec = space, EnvSpec(space, self.env.action_space, limit)

    def _without_one_hot(self, space: gymnasium.Space) -> gymnasium.Space:
        if not (isinstance(space, spaces.Box) and len(space.shape) == 1 and space.shape[0] > self.num_tasks):
            raise ValueError(f"mode='del-onehot' needs vectors as observations that end with a one-hot of {self.num_tasks}, not {space}.")
        return spaces.Box(space.low[: -self.num_tasks], space.high[: -self.num_tasks], dtype=space.dtype.type)

    @property
    def num_tasks(self) -> int:
        """Number of environments."""
        return len(self._envs)

    @property
    def task_space(self) -> spaces.Box:
        """The space of one-hots."""
        return spaces.Box(0.0, 1.0, (self.num_tasks,), np.float32)

    @property
    def active_task_index(self) -> int | None:
        """Number of the task of this episode; None before the first one."""
        return self._active

    @property
    def active_task_one_hot(self) -> np.ndarray:
        """The number of the task as a one-hot vector; task 0 before the first episode."""
        return self._one_hots[self._active or 0].copy()

    def reset(self) -> tuple[Any, dict]:
        """Choose an environment and reset it; the information on the episode gets ``task_one_hot``."""
        if self._strategy_takes_rng and self._rng is None:
            self._rng = rng_from_global_seed()
        rng = dict(rng=self._rng) if self._strategy_takes_rng else {}
        self._active = self._checked_task(self._strategy(self.num_tasks, None if self._begins_anew else self._active, **rng))
        self._begins_anew = False
        self.env = self._envs[self._active]
        observation, episode_info = checked_reset(self.env.reset(), self.env)
        return self._observation(observation), {**episode_info, "task_one_hot": self.active_task_one_hot}

    def _checked_task(self, task: Any) -> int:
        """Return the number that `sample_strategy` has chosen; ValueError if there is no such task."""
        try:
            number = operator.index(task)
        except TypeError:
            number = -1
        if not 0 <= number < self.num_tasks:
            raise ValueError(f"sample_strategy returned {task!r}, but must return the number of a task, from 0 to {self.num_tasks - 1}.")
        return number

    def step(self, action: Any) -> EnvStep:
        """Step the chosen environment."""
        env_step = self.env.step(action)
        info: dict[str, Any] = {} if "task_id" in env_step.env_info else {"task_id": self._active}
        if self._names is not None:
            info["task_name"] = self._names[self._active or 0]
        return _changed(env_step, self._spec, self._observation(env_step.observation), info)

    def _observation(self, observation: Any) -> Any:
        if self._mode == "vanilla":
            return observation
        return _append(observation, self._one_hots[self._active or 0]) if self._mode == "add-onehot" else observation[: -self.num_tasks]

    def seed(self, seed: int) -> None:
        """Seed the choice of tasks and each environment, all differently. The next reset chooses as the first one does."""
        own, spaces_seed, *seeds = child_seeds(seed, self.num_tasks + 2)
        self._begins_anew = True  # What samplers have tried before they seed does not count: tasks in turn begin with the first.
        self._rng = np.random.default_rng(own)
        for env, env_seed in zip(self._envs, seeds):
            env.seed(env_seed)
        Environment.seed(self, spaces_seed)

    def get_state(self) -> dict:
        """Return the chosen environment, and the states of all environments and of the generator, as plain data.

        Raises:
            NotPlain: the state of an environment is unknown.
        """
        active = None if self._begins_anew else self._active
        return dict(envs=[env.get_state() for env in self._envs], active=active, rng=to_plain(self._rng))

    def set_state(self, state: dict) -> None:
        """Restore a state that `get_state` returned."""
        check_form(state, dict(envs=list, active=(int, type(None)), rng=(tuple, type(None))), "The state of MultiEnvWrapper")
        rng = None if state["rng"] is None else from_plain(state["rng"], "rng")
        if not isinstance(rng, (np.random.Generator, type(None))) or not 0 <= (state["active"] or 0) < len(self._envs) == len(
            state["envs"]
        ):
            raise ValueError(f"The state does not belong to {len(self._envs)} environments: make MultiEnvWrapper with the same ones.")
        self._active, self._rng, self._begins_anew = state["active"], rng, False
        self.env = self._envs[self._active or 0]
        restore_each(self._envs, state["envs"], lambda env, env_state: env.set_state(env_state))

    def close(self) -> None:
        """Close all environments."""
        for env in self._envs:
            env.close()


def _check_spaces(envs: Sequence[Environment]) -> None:
    """Raise ValueError unless one agent can act in all environments."""
    for i, env in enumerate(envs):
        space, first = env.observation_space, envs[0].observation_space
        if _form(space) != _form(first):
            raise ValueError(
                f"The observation_space of environment {i} is {space}, the first one's {first}: their fields, shapes and dtypes must be "
                "the same."
            )
        space, first = env.action_space, envs[0].action_space
        if space != first:
            raise ValueError(f"The action_space of environment {i} is {space}, the first one's {first}: they must be equal.")


def _form(space: gymnasium.Space) -> Any:
    """Return the form of a space's elements: type, shape, dtype, and number of discrete values of each part."""
    parts = sub_spaces(space)
    if parts:
        return type(space), {name: _form(part) for name, part in parts.items()}
    completed = CompletedSpace(space)
    n_values = [None if n is None else np.array(n).tolist() for n in (completed.n, completed.nvec)]
    return type(space), space.shape, space.dtype, n_values


class TaskNameWrapper(Wrapper):
    """Adds the name of the task, its number, or both to env_info.

    Args:
        env: the environment, of any kind.
        task_name: value of ``task_name``; None to leave it out.
        task_id: value of ``task_id``; None to leave it out.
    """

    def __init__(self, env: Any, *, task_name: str | None = None, task_id: int | None = None) -> None:
        super().__init__(as_environment(env))
        self._task = {key: value for key, value in dict(task_name=task_name, task_id=task_id).items() if value is not None}

    def step(self, action: Any) -> EnvStep:
        """Step the wrapped environment."""
        env_step = self.env.step(action)
        env_step.env_info = {**env_step.env_info, **self._task}
        return env_step
