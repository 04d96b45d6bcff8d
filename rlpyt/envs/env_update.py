"""Changes of environments, which are sent to the workers and applied there.

An update is called with the old environment, or None. It returns the environment to use from now on, and closes one that it replaces.
Episodic samplers, and `update_envs` of other samplers, accept updates, constructors, and environments:

==================================  =====================================================================
update                              the environment from now on
==================================  =====================================================================
None                                the same
`EnvUpdate`                         its result
environment of any kind             that one; the old one is closed
constructor (class or function)     its result; the old one is closed
==================================  =====================================================================
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterable
from typing import Any

from rlpyt.envs.base import close_env, unwrapped
from rlpyt.utils.misc import n_required
from rlpyt.utils.seed import seed_env, unseedable_in


class EnvUpdate:
    """Leaves the environment unchanged; the base class of updates."""

    def __call__(self, old_env: Any = None) -> Any:
        """Return the environment to use from now on.

        Args:
            old_env: the environment in use; None at first.
        """
        return old_env


class NewEnvUpdate(EnvUpdate):
    """Replaces the environment by a new one.

    Args:
        env_constructor: function without arguments that makes an environment.
    """

    def __init__(self, env_constructor: Callable[[], Any]) -> None:
        self._env_constructor = env_constructor

    def __call__(self, old_env: Any = None) -> Any:
        """Close `old_env` and return a new one."""
        close_env(old_env)
        return self._env_constructor()


class ExistingEnvUpdate(EnvUpdate):
    """Replaces the environment by a given one. Pickling it for another process may be slow, and warns.

    Args:
        env: the environment.
    """

    def __init__(self, env: Any) -> None:
        self._env = env

    def __call__(self, old_env: Any = None) -> Any:
        """Return the given environment; leave `old_env` open, as it may be in use elsewhere."""
        return self._env

    def __getstate__(self) -> dict:
        warnings.warn("ExistingEnvUpdate is pickled, with its whole environment: NewEnvUpdate sends only how to make one.", stacklevel=2)
        return self.__dict__


class SetTaskUpdate(EnvUpdate):
    """Sets another task by the environment's ``set_task(task)``.

    The innermost old environment (``unwrapped``) is reused if its type is exactly `env_type`. Its wrappers are replaced by new ones for
    the new task.

    Args:
        env_type: class of the innermost environment; called without arguments if the old one cannot be reused.
        task: argument of `set_task`.
        wrapper_constructor: function that takes the innermost environment, and the task if it has two arguments, and returns the
            wrapped environment. None for no wrapper.

    Raises:
        ValueError: `env_type` is not a class.
    """

    def __init__(self, env_type: type, task: Any, wrapper_constructor: Callable | None = None) -> None:
        if not isinstance(env_type, type):
            raise ValueError(f"env_type={env_type!r} must be a type: that of the environments whose `set_task` is called.")
        self._env_type = env_type
        self._task = task
        self._wrapper_constructor = wrapper_constructor

    def __call__(self, old_env: Any = None) -> Any:
        """Set the task of the innermost old environment, or of a new one; return it in new wrappers."""
        inner: Any = None if old_env is None else unwrapped(old_env)
        if inner is not None and type(inner) is not self._env_type:
            warnings.warn(
                f"SetTaskUpdate is for environments of type {self._env_type.__name__}, but got one of {type(inner).__name__}, which is "
                "closed and replaced: use NewEnvUpdate if types differ.",
                stacklevel=2,
            )
            close_env(old_env)
            inner = None
        is_new = inner is None
        if is_new:
            inner = self._env_type()
        inner.set_task(self._task)
        if self._wrapper_constructor is not None:
            takes_task = n_required(self._wrapper_constructor) >= 2
            return self._wrapper_constructor(inner, self._task) if takes_task else self._wrapper_constructor(inner)
        return inner if is_new else old_env


def apply_env_update(old_env: Any, update: Any) -> Any:
    """Return the environment to use from now on, by the table at the top of this module.

    Args:
        old_env: the environment in use, or None.
        update: None, an `EnvUpdate`, an environment, or a constructor.

    Raises:
        TypeError: `update` is of another type, or does not return an environment.
    """
    check_env_update(update)
    if update is None:
        return old_env
    if isinstance(update, EnvUpdate):
        return _checked(update(old_env), f"{type(update).__name__}.__call__(old_env)")
    if not _is_env(update):
        update = _checked(update(), f"{update!r}, called as the constructor of an environment,")
    if update is not old_env:
        close_env(old_env)
    return update


def _checked(env: Any, what: str) -> Any:
    if not _is_env(env):
        raise TypeError(f"{what} must return the environment to use from now on, but returned {env!r}.")
    return env


def check_env_update(update: Any) -> None:
    """Raise TypeError if `update` is not in the table at the top of this module."""
    if update is None or isinstance(update, EnvUpdate) or _is_env(update) or callable(update):
        return
    raise TypeError(f"Unknown environment update {update!r}: expected None, an EnvUpdate, an environment, or a constructor of one.")


def supersedes(update: Any, earlier: Any) -> bool:
    """Return whether `update` alone leads to the same environment as `earlier` followed by `update`.

    Both may be lists with one update for each of several environments.

    Args:
        update: the later update; in a list, None means no change.
        earlier: the update just before it.
    """
    if isinstance(update, list):
        before = earlier if isinstance(earlier, list) else [earlier] * len(update)
        return all(supersedes(*each) for each in zip(update, before, strict=True))
    if isinstance(earlier, list):
        return all(supersedes(update, each) for each in earlier)
    if not isinstance(update, EnvUpdate):
        return update is not None
    method = type(update).__call__  # An override in a subclass may change the old environment.
    if method in (NewEnvUpdate.__call__, ExistingEnvUpdate.__call__):
        return True
    if not isinstance(update, SetTaskUpdate) or not isinstance(earlier, SetTaskUpdate):
        return False
    return method is SetTaskUpdate.__call__ and type(earlier) is type(update) and earlier._env_type is update._env_type


def env_updates(updates: Any, n: int, of_what: str) -> list:
    """Return one update for each of `n` environments: the entries of a list, or the same one `n` times (an environment as deep copies).

    Args:
        of_what: noun for the receivers of the `n` updates, such as "workers"; used in messages.

    Raises:
        ValueError: the length of a list is wrong, or it contains one environment twice.
        TypeError: an entry is not an update.
    """
    if isinstance(updates, (list, tuple)):
        if len(updates) != n:
            raise ValueError(
                f"The list has {len(updates)} environment updates: give one for each of the {n} {of_what}, None for no change."
            )
        each = list(updates)
    else:
        warn_of_copies([updates] * (n > 1))
        each = [updates] + [_with_other_numbers(updates) for _ in range(n - 1)]
    for update in each:
        check_env_update(update)
    envs = [id(env) for env in map(_env_in, each) if env is not None]
    if len(set(envs)) < len(envs):
        raise ValueError("The list contains the same environment twice: give copies, or a constructor.")
    return each


def first_update(updates: Any) -> Any:
    """Return the update of the first environment: `updates` itself, or the first entry of lists, nested if each worker has several."""
    while isinstance(updates, list):
        updates = updates[0]
    return updates


def warn_of_copies(updates: Iterable[Any]) -> None:
    """Warn if copies of the environments in these updates may all draw the same random numbers."""
    from rlpyt.envs.adapters import seeds_itself

    for env in {id(env): env for env in map(_env_in, updates) if env is not None}.values():
        parts = [] if seeds_itself(env) else unseedable_in(env)
        if parts:
            name = type(env).__name__
            warnings.warn(
                f"Copies of this {name} may all draw the same random numbers: it defines no seed(seed), and {', '.join(parts)} "
                f"cannot be seeded from outside. Define {name}.seed, or give a function that makes the environment in its place.",
                stacklevel=3,
            )


def _env_in(update: Any) -> Any:
    """Return the environment that an update is or contains, or None."""
    if isinstance(update, ExistingEnvUpdate):
        return update._env
    return update if _is_env(update) else None


def copied_update(update: Any) -> Any:
    """Return a copy of an environment, or of an `EnvUpdate`. A function or class that makes environments is returned unchanged.

    Raises:
        TypeError: the update cannot be copied.
    """
    if not isinstance(update, EnvUpdate) and not _is_env(update):
        return update
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # ExistingEnvUpdate warns of pickling for another process.
            return copy.deepcopy(update)
    except Exception as error:
        raise TypeError(
            f"{type(update).__name__} cannot be copied ({error}), but one environment is needed for each place: give a function "
            "without arguments that makes one instead."
        ) from error


def _with_other_numbers(update: Any) -> Any:
    """Return an update with a copy of its environment, if any; the copy draws other random numbers."""
    if _env_in(update) is None:
        return update
    update = copied_update(update)
    seed_env(_env_in(update), None)  # A sampler with a seed seeds the copy again.
    return update


def _is_env(value: Any) -> bool:
    from rlpyt.envs.adapters import is_env

    return is_env(value)
