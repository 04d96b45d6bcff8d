"""The interface between environments and samplers."""

from __future__ import annotations

import warnings
from collections import namedtuple
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeGuard, cast

import numpy as np

from rlpyt.spaces.base import CompletedSpace, Space
from rlpyt.spaces.composite import child_seeds
from rlpyt.spaces.parts import leaf_spaces
from rlpyt.types import CompletedAgent
from rlpyt.utils.buffer import buffer_func
from rlpyt.utils.collections import field_of, fields_of
from rlpyt.utils.completed import Completed
from rlpyt.utils.misc import attributes, has_all
from rlpyt.utils.seed import seed_method
from rlpyt.utils.structures import dtype_of

EnvStep = namedtuple("EnvStep", ["observation", "reward", "done", "env_info"])
EnvInfo = namedtuple("EnvInfo", [])  # The env_info of an environment that has no further information.
EnvSpaces = namedtuple("EnvSpaces", ["observation", "action"])


class SteppableEnv(Protocol):
    """The methods and properties that samplers require; `Env` says what each means. A class need not derive from this one.

    Samplers also use these parts if an environment has them:

    - `InPlaceEnv`: ``step_into`` and ``reset_into``, to save copies of observations;
    - `BindingEnv`: ``bind_step``, to look up beforehand what each step uses;
    - `StatefulEnv`: ``get_state`` and ``set_state``, to resume a run in the middle of an episode;
    - ``seed(seed)``, ``horizon``, ``truncates_only_at_horizon`` and ``close()``, as in `Env`.
    """

    @property
    def action_space(self) -> Space:
        """The space of actions."""

    @property
    def observation_space(self) -> Space:
        """The space of observations."""

    @property
    def spaces(self) -> EnvSpaces:
        """Both spaces."""

    def step(self, action: Any) -> EnvStep:
        """Run one step; return ``(observation, reward, done, env_info)``."""

    def reset(self) -> Any:
        """Start a new episode; return its first observation."""


class InPlaceEnv(Protocol):
    """An environment that writes observations into the sampler's memory; see `Env.step_into`."""

    def step_into(self, action: Any, observation_out: Any) -> tuple[float, bool, Any]:
        """Run one step, write the observation into `observation_out`, and return ``(reward, done, env_info)``."""

    def reset_into(self, observation_out: Any) -> None:
        """Start a new episode and write its first observation into `observation_out`."""


class BindingEnv(InPlaceEnv, Protocol):
    """An environment that can look up beforehand what its steps use."""

    def bind_step(self) -> Callable[[Any, Any], tuple[float, bool, Any]]:
        """Return a callable that does what `step_into` does. Samplers call it for many steps."""


class NotRestored(Exception):
    """The state is intact, but the environment cannot return to it. The caller begins a new episode."""


class StatefulEnv(Protocol):
    """An environment whose complete state can be saved; `AtariEnv` and `GymEnvWrapper` are examples.

    After ``other.set_state(env.get_state())`` the same actions have the same results in both environments.
    """

    def get_state(self) -> Any:
        """Return the state as plain data (see `rlpyt.utils.plain`). `NotPlain` says that the state is unknown."""

    def set_state(self, state: Any) -> None:
        """Restore a state that `get_state` of an environment made with the same arguments returned.

        Raises:
            NotRestored: the environment cannot return to it.
        """


class DeclaresSpaces:
    """Base class of one environment and of a vector of them (`rlpyt.envs.vector.VectorEnv`): spaces and horizon.

    Attributes:
        truncates_only_at_horizon: whether timeouts occur only at the `horizon`-th step of an episode. Samplers then reserve less memory
            for final observations.
    """

    truncates_only_at_horizon = False
    _action_space: Space
    _observation_space: Space

    @property
    def action_space(self) -> Space:
        """The space of actions of one environment."""
        return self._action_space

    @property
    def observation_space(self) -> Space:
        """The space of observations of one environment."""
        return self._observation_space

    @property
    def spaces(self) -> EnvSpaces:
        """``EnvSpaces(observation, action)`` of one environment."""
        return EnvSpaces(observation=self.observation_space, action=self.action_space)

    @property
    def horizon(self) -> int | None:
        """Largest number of steps in an episode, or None if there is no limit or it is not known."""
        return None

    def close(self) -> None:
        """Free resources; may be called more than once."""


class Env(DeclaresSpaces):
    """The learning task, e.g. an MDP with transition function T(state, action) -> state'. Inputs and outputs are numpy arrays.

    A new environment sets `_action_space` and `_observation_space` and defines `step` and `reset`;
    `rlpyt.envs.contract.check_env` tests whether it keeps the rules below.

    `step` returns an `env_info`: a namedtuple (possibly nested) with the same fields, shapes and dtypes at every step. Two fields have a
    meaning to samplers and algorithms:

    - ``timeout`` (bool): time ran out, so this step truncates the episode, and `done` is True as well. Algorithms then bootstrap from
      the last observation; after any other `done` future rewards count as zero.
    - ``traj_done`` (bool): whether to reset the environment and end the trajectory's statistics; for environments where this differs
      from `done` (e.g. when a life is lost).

    An observation is valid until the next call of `step` or `reset`: an environment may reuse the memory, so samplers copy.

    Attributes:
        truncates_only_at_horizon: as in `DeclaresSpaces`.
    """

    def step(self, action: Any) -> EnvStep:
        """Run one step of the environment's dynamics.

        Args:
            action: an element of this environment's action space.

        Returns:
            ``EnvStep(observation, reward, done, env_info)``: the observation of the next state, the reward (float) of the transition,
            whether the episode has ended (bool), and a namedtuple of further information. The reward may have any number type, and may be
            an array with one element. `done` may also be 0 or 1, or such an array.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define step(action).")

    def reset(self) -> Any:
        """Start a new episode; return its first observation."""
        raise NotImplementedError(f"{type(self).__name__} does not define reset().")

    def step_into(self, action: Any, observation_out: Any) -> tuple[float, bool, Any]:
        """Like `step`, but write the observation into `observation_out` and return ``(reward, done, env_info)``.

        An environment defines it to avoid a copy of the observation. Samplers do not call it if a subclass overrides `step` only.

        Args:
            observation_out: array of the observation's shape and dtype (0-d for a single number, such as ``array[t, b, ...]``), or a
                namedarraytuple of them.
        """
        observation, reward, done, env_info = self.step(action)
        write_observation(observation, observation_out)
        return reward, done, env_info

    def reset_into(self, observation_out: Any) -> None:
        """Like `reset`, but write the observation into `observation_out` (see `step_into`)."""
        write_observation(self.reset(), observation_out)

    def seed(self, seed: int) -> None:
        """Seed the environment and its spaces; takes effect at the next `reset`.

        An environment that draws random numbers extends this method. Equal seeds must lead to equal episodes, independent of earlier ones.
        (Samplers first seed the random generators in the environment's attributes; see `rlpyt.utils.seed.seed_env`.)
        """
        for space, space_seed in zip(self.spaces, child_seeds(seed, 2)):
            method = seed_method(space)
            if method is not None:
                method(space_seed)


class CompletedSpec(Completed):
    """The `spec` of any environment, or of recorded data; None for those without it.

    Attributes:
        max_episode_steps: Gymnasium's limit on the steps in an episode; None for no limit.
    """

    max_episode_steps: int | None = None


class CompletedEnv(Completed):
    """An environment of any kind, with the optional attributes that samplers and commands read.

    Attributes:
        horizon: largest number of steps in an episode; None if unknown.
        unwrapped: the innermost environment; None if the environment does not name it.
        spec: what registered or described environments tell about themselves; None for others.
        render: method that returns a picture; None without one.
        ale: the emulator of an Atari environment; None for others.
        frame_skip: frames of the emulator in a step.
        metadata: Gymnasium's, such as the frames in a second; None without it.
        env: the environment inside a wrapper; None for others.
        spaces: as in `SteppableEnv`; None for an environment of another library.
        num_tasks: number of tasks to choose from; None if there is no choice.
        envs: single environments inside a vector; none for others.
        leaves_blank_rows, resets_some, n_ready: as in `rlpyt.samplers.vector.VectorColumn`.
    """

    horizon: int | None = None
    unwrapped: Any = None
    spec: Any = None
    render: Callable[[], Any] | None = None
    ale: Any = None
    frame_skip: int = 1
    metadata: Mapping[str, Any] | None = None
    env: Any = None
    spaces: EnvSpaces | None = None
    num_tasks: int | None = None
    envs: Sequence[Any] = ()
    leaves_blank_rows: bool = False
    resets_some: bool = True
    n_ready: int | None = None

    def close(self) -> None:
        """Free resources. The default does nothing."""

    def watch_info(self) -> set[str]:
        """Return a set to which the environment adds the info keys that `env_info` lacks. The default stays empty."""
        return set()


def is_rlpyt(env: Any) -> TypeGuard[SteppableEnv]:
    """Return whether samplers can step `env` without a wrapper."""
    # `spaces` alone is not enough: wrappers of other kinds forward it from an rlpyt environment inside.
    return isinstance(env, Env) or (has_all(env, "spaces", "action_space") and is_space(env.action_space))


def check_makes_envs(name: str, EnvCls: Any, or_else: str = "") -> None:
    """Raise TypeError if `EnvCls`, an argument called `name`, cannot be called; `or_else` says what it may be instead."""
    if not callable(EnvCls):
        raise TypeError(
            f"{name} has {EnvCls!r}, which cannot be called to make an environment: give a class or function (for gymnasium "
            f"rlpyt.envs.gym.make, with the id in env_kwargs){or_else}."
        )


WRAP_HINT = "Wrap a Gymnasium environment by rlpyt.envs.gym.GymEnvWrapper; rlpyt.envs.contract.check_env tests one of your own."


def checked_spaces(env: Any) -> Any:
    """Return the spaces of `env`; raise ValueError if it is not an environment of rlpyt."""
    for space in (env.action_space, env.observation_space):
        if not is_space(space):
            raise ValueError(f"{type(env).__name__} has a {type(space).__name__} space, which is not one of rlpyt.spaces. {WRAP_HINT}")
    if CompletedEnv(env).spaces is None:
        raise ValueError(f"{type(env).__name__} has no attribute `spaces`. {WRAP_HINT}")
    return env.spaces


def is_space(space: Any) -> TypeGuard[Space]:
    """Return whether a space has the methods of rlpyt's; a space of Gymnasium does not."""
    return CompletedSpace(space).null_value is not None


def horizon_of(env: Any) -> int | None:
    """Return the `horizon` of an environment; None if the attribute is missing or not implemented."""
    try:
        return CompletedEnv(env).horizon
    except NotImplementedError:
        return None


def truncates_only_at_horizon(env: Any) -> bool:
    """Return whether an environment says so, see `Env`. What it says does not hold for a wrapper around it that has its own `step`."""
    for layer in wrapper_chain(env):
        if "truncates_only_at_horizon" in attributes(layer) or has_all(type(layer), "truncates_only_at_horizon"):
            return bool(layer.truncates_only_at_horizon)
        if any(has_all(type(layer), name) for name in ("step", "step_into", "bind_step")):
            return False
    return False


def time_limit_of(env: Any) -> int | None:
    """Return the largest number of steps that Gymnasium's or classic gym's ``TimeLimit`` allows; None for another environment."""
    return getattr(env, "_max_episode_steps", None)


def has_state(env: Any) -> TypeGuard[StatefulEnv]:
    """Return whether an environment, or the one it wraps, has `get_state` and `set_state`."""
    return has_all(env, "get_state", "set_state")


def close_env(env: Any) -> None:
    """Close an environment of any kind, if it has a method ``close``."""
    CompletedEnv(env).close()


def unwrapped(env: Any) -> Any:
    """Return the innermost environment, as ``env.unwrapped`` of wrappers of any kind; `env` itself without this attribute."""
    inner = CompletedEnv(env).unwrapped
    return env if inner is None else inner


def wrapper_chain(env: Any) -> Iterator[Any]:
    """Yield `env`, the environment it wraps, and so on inwards."""
    yield env
    while any(cls.__name__ == "Wrapper" for cls in type(env).__mro__):
        env = env.env
        yield env


def forwarded_attribute(wrapper: Any, name: str) -> Any:
    """Return a public attribute of the environments inside `wrapper`; all wrappers use this function as ``__getattr__``."""
    if name == "env":  # It is missing while a wrapper is being unpickled.
        raise AttributeError(f"{type(wrapper).__name__!r} object has no attribute {name!r}")
    if name.startswith("_"):
        raise AttributeError(f"{type(wrapper).__name__!r} object has no attribute {name!r}, and forwards no private attribute.")
    for env in wrapper_chain(wrapper.env):
        try:
            return getattr(env, name)
        except AttributeError:
            continue
    raise AttributeError(f"not found: neither {type(wrapper).__name__!r} nor the environment it wraps has an attribute {name!r}")


class Wrapper:
    """Holds an environment; public attributes that the wrapper does not define are those of the environment."""

    def __init__(self, env: Any) -> None:
        self.env = env

    __getattr__ = forwarded_attribute


def fast_step(env: SteppableEnv) -> Callable[[Any, Any], tuple[float, bool, Any]]:
    """Return the callable ``(action, observation_out) -> (reward, done, env_info)`` with which samplers step `env`.

    This is what the environment's `bind_step` returns, or else its `step_into`. But if a subclass of the class that defines it overrides
    `step`, the callable calls `step` and copies the observation.
    """
    fastest = _first_defined(env, "bind_step", "step_into", "step")
    if fastest == "bind_step":
        return cast(BindingEnv, env).bind_step()
    if fastest == "step_into":
        return cast(InPlaceEnv, env).step_into

    def step_into(action: Any, observation_out: Any) -> tuple[float, bool, Any]:
        observation, reward, done, env_info = env.step(action)
        write_observation(observation, observation_out)
        return reward, done, env_info

    return step_into


def fast_reset(env: SteppableEnv) -> Callable[[Any], None]:
    """Return the callable ``(observation_out) -> None`` with which samplers reset `env`: like `fast_step`, for `reset_into`."""
    if _first_defined(env, "reset_into", "reset") == "reset_into":
        return cast(InPlaceEnv, env).reset_into

    def reset_into(observation_out: Any) -> None:
        write_observation(env.reset(), observation_out)

    return reset_into


def _first_defined(env: Any, *names: str) -> str | None:
    """Return the first of `names` that the object defines, or else the first of its classes that defines any."""
    for namespace in (attributes(env), *map(vars, type(env).__mro__)):
        for name in names:
            if name in namespace:
                return name
    return None


def as_number(value: Any) -> float:
    """Return a reward, a number of any type or the only element of an array, as a float; raise TypeError for anything else."""
    if isinstance(value, (float, int, np.floating, np.integer)):
        return float(value)
    number = _only_number(value)
    if number is None:
        raise TypeError(f"reward: expected one number, got {value!r}.")
    return float(number)


def as_flag(value: Any, name: str = "done") -> bool:
    """Return a bool of any type, 0 or 1, or the only element of an array, as a bool; raise TypeError with `name` for anything else."""
    flag = value if isinstance(value, (bool, np.bool_)) else _only_number(value)
    if flag not in (0, 1):
        raise TypeError(f"{name}: expected True or False, got {value!r}.")
    return bool(flag)


def flag_in(env_info: Any, name: str, default: bool) -> bool:
    """Return the flag `name` of an env_info as a bool, like `as_flag`; `default` if there is no such field, or it is None."""
    value = field_of(env_info, name, default)
    return value if type(value) is bool else default if value is None else as_flag(value, f"env_info.{name}")


def _only_number(value: Any) -> float | int | bool | None:
    try:
        array = np.asarray(value)
    except (TypeError, ValueError):  # Such as lists of different lengths.
        return None
    return array.item() if array.size == 1 and array.dtype.kind in "biuf" else None


def write_observation(observation: Any, out: Any, name: str = "observation") -> None:
    """Copy an observation into the array, or structure of arrays (nested namedtuples, tuples and dictionaries), `out`.

    Raises:
        ValueError: shape, fields or keys differ from those of `out`.
        TypeError: the dtype of `out` does not hold the observation (see `holds`). A cast within one kind of numbers only warns.
    """
    if isinstance(out, dict):
        if not isinstance(observation, dict) or observation.keys() != out.keys():
            got = list(observation) if isinstance(observation, dict) else type(observation).__name__
            raise ValueError(f"{name}: expected the keys {list(out)}, got {got}.")
        for key, part_out in out.items():
            write_observation(observation[key], part_out, f"{name}[{key!r}]")
        return
    if isinstance(out, tuple):
        fields, expected = fields_of(observation), fields_of(out)
        if fields != expected or len(observation) != len(out):
            got = type(observation).__name__ if fields is None else f"fields {list(fields)}"
            raise ValueError(f"{name}: expected {f'{len(out)} parts' if expected is None else f'fields {list(expected)}'}, got {got}.")
        for i, (part, part_out) in enumerate(zip(tuple(observation), tuple(out))):
            write_observation(part, part_out, f"{name}[{i}]" if fields is None else f"{name}.{fields[i]}")
        return
    array = np.asarray(observation)
    if array.shape != out.shape:
        raise ValueError(f"{name}: expected shape {out.shape}, got {array.shape}.")
    if array.dtype != out.dtype and out.dtype != object:
        if not holds(out.dtype, array):
            raise TypeError(f"{name}: expected dtype {out.dtype}, got {array.dtype}, which cannot be cast safely.")
        if dtype_of(observation) is not None:  # Python's own numbers have no dtype to warn about.
            warnings.warn(f"{name}: expected dtype {out.dtype}, got {array.dtype}; it is cast.", stacklevel=3)
    out[...] = array


def holds(dtype: np.dtype, array: np.ndarray) -> bool:
    """Return whether an array of `dtype` can hold the content of another array. Real numbers may be rounded, but text is not cut."""
    if np.can_cast(array.dtype, dtype):
        return True
    if not np.can_cast(array.dtype, dtype, casting="same_kind"):
        return False
    return dtype.kind in "fc" or np.array_equal(array.astype(dtype), array)


def copied(action: Any) -> Any:
    """Return a copy of a structure of arrays."""
    return action.copy() if isinstance(action, np.ndarray) else buffer_func(action, np.copy)


class ActionForm(NamedTuple):
    """How the recorded actions of an agent become those of environments.

    Attributes:
        clip: clip them to the bounds of their space.
        rescale: before that, rescale them from [-1,1] to these bounds. True rescales in all boxes; "auto" leaves out boxes all of whose
            components have the same bounds -a and a.
    """

    clip: bool = False
    rescale: bool | str = False

    @classmethod
    def of(cls, agent: Any) -> ActionForm:
        """Return the form that an agent's attributes `clip_actions` and `rescale_actions` ask for."""
        completed = CompletedAgent(agent)
        return cls(completed.clip_actions, completed.rescale_actions)


def rescales(space: Any, form: ActionForm) -> bool:
    """Return whether actions of this form are rescaled on their way to environments with this action space."""
    for leaf in leaf_spaces(space):
        rescaling = CompletedSpace(leaf).rescaling
        if form.rescale and rescaling is not None:
            ends = np.stack([-np.ones(leaf.shape), np.ones(leaf.shape)])
            if not np.array_equal(rescaling(everywhere=form.rescale is True)(ends), ends):
                return True
    return False


def effective(space: Any, form: ActionForm) -> ActionForm:
    """Return the form without those conversions that change no action of this space: ``ActionForm()`` if none does."""
    bounds = [bound for leaf in leaf_spaces(space) for bound in (CompletedSpace(leaf).low, CompletedSpace(leaf).high)]
    is_bounded = any(np.asarray(bound).dtype.kind == "f" and np.isfinite(bound).any() for bound in bounds if bound is not None)
    return ActionForm(form.clip and is_bounded, form.rescale if rescales(space, form) else False)


def for_envs(space: Any, form: ActionForm) -> Callable[[Any], Any]:
    """Return a function that copies recorded actions ``[B,...]``, so that environments may change theirs.

    Args:
        space: space of the actions.
        form: conversions of the copies.
    """
    completed = CompletedSpace(space)
    clip = (completed.clip or copied) if form.clip else None
    if not form.rescale or completed.rescaling is None:
        return clip or copied
    rescale = completed.rescaling(everywhere=form.rescale is True)
    return rescale if clip is None else lambda value: clip(rescale(value))
