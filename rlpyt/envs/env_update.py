"""Changes of environments, to be sent to where the environments are and applied there.

An update is called with the environment so far, or None, and returns the one to use from now on; it closes what it replaces. Wherever
updates are taken (episodic samplers, and `update_envs` of the others), so are constructors, and environments:

==================================  =====================================================================
update                              the environment from now on
==================================  =====================================================================
None                                the same
`EnvUpdate`                         what it returns
environment of any kind             that one; the old one is closed
constructor (class or function)     what it makes; the old one is closed
==================================  =====================================================================
"""

from __future__ import annotations

import copy
import inspect
import warnings
from collections.abc import Callable, Iterable
from typing import Any

from rlpyt.envs.base import close_env
from rlpyt.utils.seed import seed_env, unseedable_in


class EnvUpdate:
    """Changes nothing; to be extended."""

    def __call__(self, old_env: Any = None) -> Any:
        """Return the environment to use from now on.

        Args:
            old_env: the one so far; None where there is none.
        """
        return old_env


class NewEnvUpdate(EnvUpdate):
    """A new environment each time.

    Args:
        env_constructor: makes it, without arguments.
    """

    def __init__(self, env_constructor: Callable[[], Any]) -> None:
        self._env_constructor = env_constructor

    def __call__(self, old_env: Any = None) -> Any:
        """Close `old_env` and return a new one."""
        close_env(old_env)
        return self._env_constructor()


class ExistingEnvUpdate(EnvUpdate):
    """An environment that is there already. Sent to another process, it is pickled, with a warning: that may be slow.

    Args:
        env: the environment.
    """

    def __init__(self, env: Any) -> None:
        self._env = env

    def __call__(self, old_env: Any = None) -> Any:
        """Return the environment, leaving `old_env` open: it may be used elsewhere."""
        return self._env

    def __getstate__(self) -> dict:
        warnings.warn("ExistingEnvUpdate is pickled, with its whole environment: NewEnvUpdate sends only how to make one.", stacklevel=2)
        return self.__dict__


class SetTaskUpdate(EnvUpdate):
    """Another task for an environment that has ``set_task(task)``.

    The innermost environment of the old one (its ``unwrapped``) is used again if it is exactly of type `env_type`. The wrappers around it
    are made anew, so that they belong to the new task.

    Args:
        env_type: class of the innermost environment; made without arguments where there is none to use again.
        task: what `set_task` takes.
        wrapper_constructor: called with the innermost environment, and the task if it takes two arguments; returns it wrapped. None for no
            wrapper.

    Raises:
        ValueError: `env_type` is no class.
    """

    def __init__(self, env_type: type, task: Any, wrapper_constructor: Callable | None = None) -> None:
        if not isinstance(env_type, type):
            raise ValueError(f"env_type={env_type!r} should be a type, of the environments that `set_task` is called on.")
        self._env_type = env_type
        self._task = task
        self._wrapper_constructor = wrapper_constructor

    def __call__(self, old_env: Any = None) -> Any:
        """Set the task of what is inside `old_env`, or of a new environment; return it, wrapped anew."""
        inner = None if old_env is None else getattr(old_env, "unwrapped", old_env)
        if inner is not None and type(inner) is not self._env_type:
            warnings.warn(
                f"SetTaskUpdate is for environments of type {self._env_type.__name__}, but got one of {type(inner).__name__}, which is "
                "closed and replaced: use NewEnvUpdate where types differ.",
                stacklevel=2,
            )
            close_env(old_env)
            inner = None
        is_new = inner is None
        if is_new:
            inner = self._env_type()
        inner.set_task(self._task)
        if self._wrapper_constructor is not None:
            takes_task = _n_arguments(self._wrapper_constructor) >= 2
            return self._wrapper_constructor(inner, self._task) if takes_task else self._wrapper_constructor(inner)
        return inner if is_new else old_env


def apply_env_update(old_env: Any, update: Any) -> Any:
    """Return the environment to use from now on, by the table at the top of this module.

    Args:
        old_env: the one so far, or None.
        update: None, an `EnvUpdate`, an environment, or a constructor.

    Raises:
        TypeError: it is none of these, or returns no environment.
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
    """Raise TypeError if `update` is not one of those in the table at the top of this module."""
    if update is None or isinstance(update, EnvUpdate) or _is_env(update) or callable(update):
        return
    raise TypeError(f"Unknown environment update {update!r}: expected None, an EnvUpdate, an environment, or a constructor of one.")


def supersedes(update: Any, earlier: Any) -> bool:
    """Whether `update` leads to the same environment without `earlier` before it as with it.

    Both may be lists, of one for each of several environments.

    Args:
        update: what is to be applied; lists have None for no change.
        earlier: what was applied just before.
    """
    if isinstance(update, list):
        before = earlier if isinstance(earlier, list) else [earlier] * len(update)
        return all(supersedes(*each) for each in zip(update, before, strict=True))
    if isinstance(earlier, list):
        return all(supersedes(update, each) for each in earlier)
    if not isinstance(update, EnvUpdate):
        return update is not None
    method = type(update).__call__  # Of a subclass perhaps another one, which may change the old environment.
    if method in (NewEnvUpdate.__call__, ExistingEnvUpdate.__call__):
        return True
    return method is SetTaskUpdate.__call__ and type(earlier) is type(update) and earlier._env_type is update._env_type


def env_updates(updates: Any, n: int, of_what: str) -> list:
    """Return one update for each of `n` environments: the entries of a list, or `n` times the same; of an environment, deep copies.

    Args:
        of_what: what there are `n` of, for messages.

    Raises:
        ValueError: a list of another length, or with one environment twice. TypeError: an entry is no update.
    """
    if isinstance(updates, (list, tuple)):
        if len(updates) != n:
            raise ValueError(
                f"The list has {len(updates)} environment updates: give one for each of the {n} {of_what}, None for no change."
            )
        each = list(updates)
    else:
        warn_of_copies([updates] * (n > 1))
        each = [updates] + [_copied(updates) for _ in range(n - 1)]
    for update in each:
        check_env_update(update)
    envs = [id(env) for env in map(_env_in, each) if env is not None]
    if len(set(envs)) < len(envs):
        raise ValueError("The same environment is to be used in two places: give copies, or a constructor.")
    return each


def warn_of_copies(updates: Iterable[Any]) -> None:
    """Warn of environments, of which there will be copies, if all copies may draw the same random numbers."""
    from rlpyt.envs.adapters import seeds_itself

    for env in {id(env): env for env in map(_env_in, updates) if env is not None}.values():
        parts = [] if seeds_itself(env) else unseedable_in(env)
        if parts:
            name = type(env).__name__
            warnings.warn(
                f"Copies of this {name} may all draw the same random numbers: it has no seed(seed) of its own, and {', '.join(parts)} "
                f"cannot be seeded from outside. Define {name}.seed, or give a function that makes the environment in its place.",
                stacklevel=3,
            )


def _env_in(update: Any) -> Any:
    """Return the environment that an update is, or carries; None if there is none."""
    if isinstance(update, ExistingEnvUpdate):
        return update._env
    return update if _is_env(update) else None


def _copied(update: Any) -> Any:
    """Return an update of the same kind with an environment of its own, which has random numbers of its own."""
    env = _env_in(update)
    if env is None:
        return update
    env = copy.deepcopy(env)
    seed_env(env, None)  # A sampler that has a seed will seed it by that.
    return type(update)(env) if isinstance(update, ExistingEnvUpdate) else env


def _is_env(value: Any) -> bool:
    from rlpyt.envs.adapters import is_env

    return is_env(value)


def _n_arguments(function: Callable) -> int:
    """Return how many positional arguments a callable requires; a class's constructor without ``self``."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # Built in.
        return 1
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return 2
    return sum(1 for p in positional if p.default is p.empty)
