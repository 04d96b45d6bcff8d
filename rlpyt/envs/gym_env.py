"""Environments of gymnasium as `Environment` objects, whose steps are complete records."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np

from rlpyt.envs.base import CompletedSpec, as_flag, as_number, forwarded_attribute, time_limit_of, wrapper_chain
from rlpyt.envs.environment import CountingEnvironment
from rlpyt.envs.gym import infill_info, make_gym
from rlpyt.envs.specs import EnvStep, StepType, checked_reset
from rlpyt.envs.state import with_known_state
from rlpyt.utils.misc import attributes, may_take_keyword
from rlpyt.utils.seed import seed_method

TIME_LIMIT_KEYS = ("TimeLimit.truncated", "GymEnv.TimeLimitTerminated")  # Keys of every env_info: whether the episode timed out.
# Attributes that cannot be pickled; gymnasium recreates them when needed.
_WINDOWS = ("viewer", "_viewers", "screen", "surf", "window", "window_surface", "clock")


class GymEnv(CountingEnvironment):
    """An environment of gymnasium as an `Environment`.

    An episode times out when gymnasium's environment says so (``truncated``), or after `max_episode_length` steps, unless it terminates
    with the same step. env_info is the info of the step, whose keys must stay the same during an episode. Two more keys,
    ``TimeLimit.truncated`` and ``GymEnv.TimeLimitTerminated`` (bool), say whether the episode timed out.

    Other attributes are those of the environment.

    Args:
        env: the environment, or its name for ``gymnasium.make``.
        is_image: whether observations are images, which must be uint8 with two or three dimensions.
        max_episode_length: limit after which an episode times out (env steps). None for the environment's limit, from its specification
            or ``TimeLimit``; another number replaces that limit, with a warning.
        info_example: keys, and values to use in env_info at steps without them.
        kwargs: arguments of ``gymnasium.make``, if `env` is a name.

    Raises:
        ValueError: `env` is neither an environment nor a name, or `max_episode_length` is less than 1.
    """

    def __init__(
        self,
        env: gymnasium.Env | str,
        is_image: bool = False,
        max_episode_length: int | None = None,
        info_example: Mapping | None = None,
        **kwargs: Any,
    ) -> None:
        if isinstance(env, str):
            inner = make_gym(env, info_example=None, **kwargs)
        elif not isinstance(env, gymnasium.Env):
            raise ValueError(f"GymEnv can take env as either a string, or a gymnasium environment, but got {env!r} instead.")
        elif kwargs:
            raise ValueError(f"{sorted(kwargs)} are arguments of gymnasium.make, and only allowed if env is a name.")
        else:
            inner = env
        self.env: gymnasium.Env = with_known_state(inner)
        self._is_own = isinstance(env, str)
        self._info_example = info_example
        self._seed: int | None = None
        self._keys: set | None = None  # Keys of the info dictionaries in this episode.
        space = inner.observation_space
        if is_image and not (space.dtype == np.uint8 and space.shape is not None and len(space.shape) in (2, 3)):
            raise ValueError(f"is_image=True needs observations of dtype uint8 and two or three dimensions, not those of {space}.")
        self.is_image = is_image
        self._size = None if space.shape is None else int(np.prod(space.shape))  # None for structures.
        super().__init__(space, inner.action_space, self._limit(max_episode_length))

    def _limit(self, given: int | None) -> int | None:
        """Return the time limit (env steps), and set a `given` one in gymnasium's ``TimeLimit``."""
        limits = [layer for layer in wrapper_chain(self.env) if type(layer).__name__ == "TimeLimit"]
        found = time_limit_of(limits[0] if limits else self.env)
        if found is None:
            found = CompletedSpec(self.env.spec).max_episode_steps
        if given is None or not np.isfinite(given):
            return found
        if found is not None and found != given:
            warnings.warn(f"max_episode_length={given} replaces the environment's limit of {found} steps.", stacklevel=3)
        for layer in limits:
            layer._max_episode_steps = int(given)
        return int(given)

    __getattr__ = forwarded_attribute

    @property
    def action_space(self) -> gymnasium.Space:
        """The space of actions."""
        return self.env.action_space

    @property
    def observation_space(self) -> gymnasium.Space:
        """The space of observations."""
        return self.env.observation_space

    @property
    def unwrapped(self) -> gymnasium.Env:
        """The innermost environment of gymnasium."""
        return self.env.unwrapped

    @property
    def render_modes(self) -> list[str]:
        """The render modes in the environment's ``metadata``."""
        return list(self.env.metadata.get("render_modes", []))

    def reset(self) -> tuple[Any, dict]:
        """Start a new episode, with the seed of a preceding call of `seed` if any.

        Returns:
            The observation and an empty dictionary. (The form of gymnasium's info may differ from reset to reset, so it is left out.)
        """
        seed, self._seed = self._seed, None
        observation, _ = checked_reset(self.env.reset() if seed is None else self.env.reset(seed=seed), self.env)
        self._check(observation)
        self._n_steps, self._keys = 0, None
        return observation, {}

    def step(self, action: Any) -> EnvStep:
        """Run one step.

        Raises:
            RuntimeError: no episode is running, or the form of observation or env_info is wrong.
        """
        self._require_reset()
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._check(observation)
        terminated, truncated = as_flag(terminated, "terminated"), as_flag(truncated, "truncated")
        step_type = self._count_step(terminated, truncated, self._spec.max_episode_length)
        timeout = step_type == StepType.TIMEOUT
        if self._info_example is not None:
            info = infill_info(info, self._info_example)
        env_info = {**info, **dict.fromkeys(TIME_LIMIT_KEYS, timeout)}
        if self._keys is None:
            self._keys = set(env_info)
        elif self._keys != set(env_info):
            raise RuntimeError(
                f"GymEnv outputs inconsistent env_info keys. {sorted(map(str, self._keys ^ set(env_info)))} are missing at some steps: "
                "give info_example={key: value for steps without it}."
            )
        return EnvStep(
            env_spec=self._spec,
            action=action,
            reward=as_number(reward),
            observation=observation,
            env_info=env_info,
            step_type=step_type,
        )

    def _check(self, observation: Any) -> None:
        """Raise RuntimeError if the number of elements differs from that of the observation space."""
        if self._size is not None and np.size(observation) != self._size:
            raise RuntimeError(
                f"The observation has {np.size(observation)} elements, shape {np.shape(observation)}; the observation space has "
                f"{self._size}, shape {self.observation_space.shape}."
            )

    def seed(self, seed: int) -> None:
        """Seed the spaces and the environment, by ``reset(seed=seed)`` at the next reset, or else by its method ``seed``."""
        super().seed(seed)
        if all(may_take_keyword(layer.reset, "seed") for layer in wrapper_chain(self.env)):
            self._seed = seed
        elif callable(own := seed_method(self.env)):
            own(seed)
        else:
            warnings.warn(
                f"{self.env} has neither reset(seed=...) nor seed(): its randomness does not follow the run's seed.", stacklevel=2
            )

    def render(self, mode: str) -> Any:
        """Render in `mode`, even if the environment was made with another ``render_mode``."""
        self._validate_render_mode(mode)
        inner = self.env.unwrapped
        made_with = inner.render_mode
        inner.render_mode = mode
        try:
            return self.env.render()
        finally:
            inner.render_mode = made_with

    def visualize(self) -> None:
        """Open a window that shows the environment from now on."""
        self._validate_render_mode("human")
        self.env.unwrapped.render_mode = "human"  # The environment then renders at every step.
        self.env.render()

    def close(self) -> None:
        """Close the environment."""
        if "env" in self.__dict__:
            self.env.close()

    def __del__(self) -> None:
        """Close the environment if this object made it; a given environment may be in use elsewhere."""
        if self.__dict__.get("_is_own"):
            super().__del__()

    def __getstate__(self) -> dict:
        """Return the attributes without windows, for pickling."""
        return {**self.__dict__, "env": _without_windows(self.env)}


def _without_windows(env: Any) -> Any:
    """Return a shallow copy of an environment and its wrappers, with None instead of windows."""
    twin = object.__new__(type(env))
    twin.__dict__.update(attributes(env))
    for name in _WINDOWS:
        if name in vars(twin):
            setattr(twin, name, None)
    if "env" in vars(twin):
        twin.env = _without_windows(twin.env)
    return twin
