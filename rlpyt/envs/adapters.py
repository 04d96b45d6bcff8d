"""The three kinds of environments, and conversions between them.

=========================================  ===================================================  ================================
kind                                       ``step`` returns                                     becomes another kind by
=========================================  ===================================================  ================================
`rlpyt.envs.environment.Environment`       an ``EnvStep`` with its `rlpyt.envs.specs.StepType`  `as_gymnasium`, `as_rlpyt`
gymnasium's ``Env``                        five values                                          `as_environment`, `as_rlpyt`
`rlpyt.envs.base.Env`, for samplers        ``EnvStep`` namedtuple                               `as_environment`, `as_gymnasium`
=========================================  ===================================================  ================================

Samplers turn the first two kinds into the third.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, cast

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec as GymnasiumSpec

from rlpyt.envs.base import (
    CompletedEnv,
    Env,
    StatefulEnv,
    SteppableEnv,
    as_flag,
    as_number,
    close_env,
    flag_in,
    forwarded_attribute,
    has_state,
    horizon_of,
    is_rlpyt,
    unwrapped,
    write_observation,
)
from rlpyt.envs.environment import CountingEnvironment, Environment, Wrapper
from rlpyt.envs.gym import GymEnvWrapper
from rlpyt.envs.gym_env import GymEnv
from rlpyt.envs.specs import STEP_TYPES, EnvStep, StepType, checked_reset, checked_step
from rlpyt.envs.state import complete_state, set_state
from rlpyt.spaces.base import CompletedSpace
from rlpyt.utils.collections import fields_of
from rlpyt.utils.misc import has_all, may_take_keyword
from rlpyt.utils.plain import NotPlain, check_form, from_plain, to_plain
from rlpyt.utils.seed import seed_env, seed_method

_TERMINAL, _TIMEOUT = int(StepType.TERMINAL), int(StepType.TIMEOUT)  # Comparisons with numbers are faster.


def is_gym(env: Any) -> bool:
    """Return whether `env` is an environment of gymnasium or has the same methods, like those of classic gym."""
    if isinstance(env, gymnasium.Env):
        return True
    parts = ("reset", "step", "action_space", "observation_space")
    return not isinstance(env, (type, Environment)) and not is_rlpyt(env) and has_all(env, *parts)


def is_env(env: Any) -> bool:
    """Return whether `env` is an environment of any kind."""
    return not isinstance(env, type) and (isinstance(env, Environment) or is_rlpyt(env) or is_gym(env))


def as_environment(env: Any, auto_reset: bool = False) -> Environment:
    """Return `env` as an `Environment`.

    Args:
        env: the environment, of any kind.
        auto_reset: let a `step` after the last one of an episode reset the environment instead of raising (see `AutoReset`).

    An environment of gymnasium becomes a `rlpyt.envs.gym_env.GymEnv`. Every ``done`` of an rlpyt environment ends an episode. If
    ``traj_done`` is False there (e.g. a life is lost), the next `Environment.reset` does not reset the game.

    Raises:
        TypeError: it is no environment.
    """
    if auto_reset:
        return AutoReset(as_environment(env))
    if isinstance(env, Environment):
        return env
    if isinstance(env, (EnvironmentAsGymnasium, EnvironmentAsRlpyt)):
        return env.environment
    if is_rlpyt(env):
        return RlpytAsEnvironment(env)
    if isinstance(env, gymnasium.Env):
        return GymEnv(env)
    if is_gym(env):
        return RlpytAsEnvironment(GymEnvWrapper(env))
    raise _no_env(env)


def as_gymnasium(env: Any) -> gymnasium.Env:
    """Return `env` as an environment of gymnasium: ``reset`` returns the information on the episode as its info.

    Raises:
        TypeError: it is no environment.
    """
    return env if isinstance(env, gymnasium.Env) else EnvironmentAsGymnasium(as_environment(env))


def as_rlpyt(env: Any) -> SteppableEnv:
    """Return `env` as an environment that samplers step. Samplers convert everything that ``EnvCls`` makes.

    `rlpyt.envs.gym.GymEnvWrapper` wraps the other two kinds. Its env_info leaves out entries that are not numbers.

    Raises:
        TypeError: it is no environment.
    """
    if is_rlpyt(env):
        return env
    if isinstance(env, RlpytAsEnvironment):
        return env.env
    if isinstance(env, EnvironmentAsGymnasium):
        return EnvironmentAsRlpyt(env.environment)
    if isinstance(env, Environment):
        return EnvironmentAsRlpyt(env)
    if is_gym(env):
        return GymEnvWrapper(env)
    raise _no_env(env)


def seeds_itself(env: Any) -> bool:
    """Return whether an environment defines how to seed itself; the method of the base class seeds only the spaces."""
    inner = unwrapped(env)
    if isinstance(inner, gymnasium.Env):
        return may_take_keyword(inner.reset, "seed")
    method: Any = seed_method(type(inner))
    return method not in (None, Env.seed, Environment.seed, Wrapper.seed)


def original(env: Any) -> Any:
    """Return the environment that `as_rlpyt` converted to `env`, if known; else `env` itself."""
    if isinstance(env, EnvironmentAsRlpyt):
        return env.environment
    return env.env if type(env) is GymEnvWrapper else env


def _no_env(env: Any) -> TypeError:
    return TypeError(f"{env!r} is no environment: expected an rlpyt.episodes.Environment, a gymnasium.Env, or an rlpyt.envs.base.Env.")


# ---------------------------------------------------------------------------------------------------------------------
# Environment to the others
# ---------------------------------------------------------------------------------------------------------------------
class EnvironmentAsGymnasium(gymnasium.Env):
    """An `Environment` with the interface of gymnasium.

    ``reset(seed=...)`` seeds the environment (see `rlpyt.utils.seed.seed_env`). Its info is the information on the episode.

    Args:
        env: the environment.

    Attributes:
        environment: the same.
    """

    def __init__(self, env: Environment) -> None:
        self.env = env  # `rlpyt.envs.state` looks for inner environments under this name.
        self.action_space, self.observation_space = env.action_space, env.observation_space
        self.metadata = {"render_modes": list(env.render_modes)}
        limit = env.spec.max_episode_length
        self.spec = GymnasiumSpec(
            id=f"rlpyt/{type(env.unwrapped).__name__}-v0",
            entry_point=_Copies(env),
            max_episode_steps=int(limit) if limit and np.isfinite(limit) else None,
            disable_env_checker=True,
        )

    __getattr__ = forwarded_attribute

    @property
    def environment(self) -> Environment:
        """The environment itself."""
        return self.env

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        """Start a new episode; return the observation and the information on the episode."""
        super().reset(seed=seed)
        if seed is not None:
            seed_env(self.env, seed)
        return checked_reset(self.env.reset(), self.env)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        """Return ``(observation, reward, terminated, truncated, env_info)``."""
        env_step = checked_step(self.env.step(action), self.env, needs_reward=False)
        step_type = env_step.step_type
        terminated, truncated = step_type == StepType.TERMINAL, step_type == StepType.TIMEOUT
        return env_step.observation, env_step.reward, terminated, truncated, env_step.env_info

    def render(self) -> Any:
        """Render in the mode "rgb_array" if the environment supports it, else in its first mode."""
        modes = self.env.render_modes
        return self.env.render("rgb_array" if "rgb_array" in modes else modes[0])

    def close(self) -> None:
        """Close the environment."""
        self.env.close()


class _Copies:
    """Entry point of an environment's specification: ``gymnasium.make`` calls it to copy the environment."""

    def __init__(self, env: Environment) -> None:
        self.env = env

    def __call__(self, **kwargs: Any) -> EnvironmentAsGymnasium:
        env = copy.deepcopy(self.env)
        seed_env(env, None)
        return EnvironmentAsGymnasium(env)

    def __deepcopy__(self, memo: dict) -> _Copies:
        """Return this object: gymnasium copies the specification for each wrapper, but must not copy the environment."""
        return self


class EnvironmentAsRlpyt(GymEnvWrapper):
    """An `Environment` with the interface of rlpyt.

    Args:
        env: the environment.

    Attributes:
        environment: the same.
    """

    _left_out = ("task_name",)  # Text; `task_id` is recorded instead.

    def __init__(self, env: Environment) -> None:
        super().__init__(EnvironmentAsGymnasium(env))

    @property
    def environment(self) -> Environment:
        """The environment itself."""
        return self.env.env


class InPlaceEnvironment:
    """An `Environment` with the calls of an rlpyt environment that workers of episodes use; observations are written in place.

    Observations, actions and infos keep the form that the environment gives them. `EnvironmentAsRlpyt` changes them so that they fit into
    batches.

    Args:
        env: the environment.

    Attributes:
        episode_info: the information on the episode that the last reset returned.
        timed_out: whether the last step truncated the episode.
        widened: function ``(observation, observation_out)`` that returns the memory for an observation if the dtypes of `observation_out`
            do not hold it; None if there is no other memory. Whoever owns the memory sets it.
    """

    episode_info: dict = {}
    timed_out = False
    widened: Callable[[Any, Any], Any] | None = None

    def __init__(self, env: Environment) -> None:
        self.env = env

    def reset(self) -> Any:
        """Start a new episode; return its first observation."""
        observation, self.episode_info = checked_reset(self.env.reset(), self.env)
        return observation

    def reset_into(self, observation_out: Any) -> None:
        """Start a new episode; write its first observation."""
        self._write(self.reset(), observation_out)

    def step_into(self, action: Any, observation_out: Any) -> tuple[float, bool, dict]:
        """Run one step, write the observation, and return ``(reward, done, env_info)``."""
        env_step = self.env.step(action)
        if type(env_step) is not EnvStep or env_step.step_type not in STEP_TYPES or env_step.reward is None:
            checked_step(env_step, self.env)
        self._write(env_step.observation, observation_out)
        self.timed_out = env_step.step_type == _TIMEOUT
        reward = env_step.reward if type(env_step.reward) is float else as_number(env_step.reward)
        return reward, env_step.step_type >= _TERMINAL, env_step.env_info

    def _write(self, observation: Any, out: Any) -> None:
        try:
            write_observation(observation, out)
        except TypeError:
            if self.widened is None:
                raise
            write_observation(observation, self.widened(observation, out))


def as_in_place(env: Any) -> SteppableEnv | InPlaceEnvironment:
    """Return `env`, of any kind, in the form that workers of episodes step.

    Raises:
        TypeError: it is no environment.
    """
    if isinstance(env, RlpytAsEnvironment) and not _has_structures(env):  # The environment inside has structures of another form.
        return env.env
    return env if is_rlpyt(env) and not isinstance(env, EnvironmentAsRlpyt) else InPlaceEnvironment(as_environment(env))


def _has_structures(env: Any) -> bool:
    """Return whether actions or observations of an `Environment` are dictionaries or tuples."""
    return any(hasattr(space, "spaces") for space in (env.action_space, env.observation_space))


# ---------------------------------------------------------------------------------------------------------------------
# The others to Environment
# ---------------------------------------------------------------------------------------------------------------------
class RlpytAsEnvironment(CountingEnvironment):
    """An rlpyt environment with the interface of an `Environment`: structures become dictionaries, spaces become gymnasium's.

    Every ``done`` ends an episode. If ``env_info.traj_done`` is False there, the trajectory continues: `reset` then returns the last
    observation and, like samplers, does not reset the environment. If ``traj_done`` is True without ``done``, the episode times out.

    Args:
        env: the rlpyt environment.
    """

    def __init__(self, env: SteppableEnv) -> None:
        self.env = env
        super().__init__(gymnasium_space(env.observation_space), gymnasium_space(env.action_space), horizon_of(env))
        self._null_action = env.action_space.null_value()
        self._goes_on_from: Any = None  # First observation of the next episode, if the trajectory continues.

    __getattr__ = forwarded_attribute

    @property
    def unwrapped(self) -> Any:
        """The innermost environment."""
        return unwrapped(self.env)

    @property
    def render_modes(self) -> list[str]:
        """``rgb_array`` if the environment has a method ``render``."""
        return [] if CompletedEnv(self.env).render is None else ["rgb_array"]

    def reset(self) -> tuple[Any, dict]:
        """Start a new episode; return its first observation and an empty dictionary."""
        self._n_steps = 0
        observation, self._goes_on_from = self._goes_on_from, None
        return (to_dict(self.env.reset()) if observation is None else observation), {}

    def step(self, action: Any) -> EnvStep:
        """Run one step."""
        self._require_reset()
        observation, reward, done, env_info = self.env.step(from_dict(action, self._null_action))
        observation = to_dict(observation)  # A copy, because environments may reuse their memory.
        done = as_flag(done)
        traj_done = flag_in(env_info, "traj_done", done)
        timeout = flag_in(env_info, "timeout", False) if done else traj_done
        if done or traj_done:
            self._goes_on_from = None if traj_done else observation
        return EnvStep(
            env_spec=self._spec,
            action=action,
            reward=as_number(reward),
            observation=observation,
            env_info={} if env_info is None else to_dict(env_info),
            step_type=self._count_step(done and not timeout, timeout),
        )

    def seed(self, seed: int) -> None:
        """Seed the spaces and the environment."""
        super().seed(seed)
        self._goes_on_from = None
        method = seed_method(self.env)
        if method is not None:
            method(seed)

    def get_state(self) -> dict:
        """Return the state of the rlpyt environment, and the number of steps in the episode, as plain data.

        Raises:
            NotPlain: the state is unknown.
        """
        if not has_state(self.env):
            raise NotPlain(f"{type(self.env).__name__} has no methods get_state and set_state.")
        return dict(env=complete_state(self.env), n_steps=self._n_steps, goes_on_from=to_plain(self._goes_on_from))

    def set_state(self, state: dict) -> None:
        """Restore a state that `get_state` returned."""
        check_form(state, dict(env=object, n_steps=(int, type(None)), goes_on_from=object), "The state of the environment")
        set_state(cast(StatefulEnv, self.env), state["env"])
        self._n_steps, self._goes_on_from = state["n_steps"], from_plain(state["goes_on_from"], "goes_on_from")

    def __del__(self) -> None:
        """Leave the environment open: it may be in use elsewhere."""

    def render(self, mode: str) -> Any:
        """Render the environment."""
        self._validate_render_mode(mode)
        render = CompletedEnv(self.env).render
        return None if render is None else render()

    def visualize(self) -> None:
        """Raise NotImplementedError: rlpyt environments open no window."""
        raise NotImplementedError(f"{type(self.env).__name__} cannot open a window; `python -m rlpyt video` records videos of agents.")

    def close(self) -> None:
        """Close the environment."""
        close_env(self.env)


class AutoReset(Wrapper):
    """Resets automatically: the `step` after the end of an episode resets the environment and ignores the action.

    That step has type FIRST and holds the new observation; its action and reward are None. The next one has type MID.
    """

    def __init__(self, env: Environment) -> None:
        super().__init__(env)
        self._over = self._has_first = False

    def reset(self) -> tuple[Any, dict]:
        """Reset the wrapped environment."""
        self._over = self._has_first = False
        return self.env.reset()

    def step(self, action: Any) -> EnvStep:
        """Run one step, or start a new episode."""
        if self._over:
            observation, _ = self.reset()
            self._has_first = True
            none: Any = None
            return EnvStep(self.spec, action=none, reward=none, observation=observation, env_info={}, step_type=StepType.FIRST)
        env_step = self.env.step(action)
        self._over = env_step.step_type in (StepType.TERMINAL, StepType.TIMEOUT)
        if self._has_first and env_step.step_type == StepType.FIRST:
            env_step.step_type = StepType.MID
        return env_step


# ---------------------------------------------------------------------------------------------------------------------
# Spaces and structures
# ---------------------------------------------------------------------------------------------------------------------
def gymnasium_space(space: Any) -> gymnasium.Space:
    """Return the space of gymnasium with the same elements as an rlpyt space; structures become a ``Dict``."""
    completed = CompletedSpace(space)
    if completed.names is not None:
        return spaces.Dict({name: gymnasium_space(part) for name, part in zip(completed.names, space.spaces)})
    dtype, shape = np.dtype(space.dtype), tuple(space.shape)
    if dtype.kind == "f":
        return spaces.Box(np.broadcast_to(space.low, shape), np.broadcast_to(space.high, shape), shape, dtype.type)
    if completed.nvec is not None:
        return spaces.MultiDiscrete(space.nvec, dtype=dtype.type)
    if shape == () and completed.n is not None:
        return spaces.Discrete(int(completed.n), start=0 if completed.low is None else int(np.min(completed.low)))
    if completed.bounds is not None:  # An IntBox, whose upper bound is excluded.
        return spaces.Box(space.low, space.high - 1, shape, dtype.type)
    if completed.low is not None:
        return spaces.Box(np.broadcast_to(space.low, shape), np.broadcast_to(space.high, shape), shape, dtype.type)
    return spaces.MultiBinary(shape)


def to_dict(value: Any) -> Any:
    """Return nested namedtuples as nested dictionaries of copies."""
    if fields_of(value) is not None:
        return {name: to_dict(part) for name, part in zip(value._fields, tuple(value))}
    return np.array(value) if isinstance(value, np.ndarray) else value


def from_dict(value: Any, like: Any) -> Any:
    """Return nested dictionaries as nested namedtuples of the types in `like`."""
    if fields_of(like) is not None:
        return like._make(from_dict(value[name], part) for name, part in zip(like._fields, tuple(like)))
    return value
