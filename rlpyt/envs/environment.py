"""Environments whose steps are complete records; `rlpyt.envs.adapters` converts them to the other two kinds, and back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from rlpyt.envs.base import forwarded_attribute
from rlpyt.envs.specs import EnvSpec, EnvStep, StepType
from rlpyt.envs.state import get_gym_state, set_gym_state
from rlpyt.spaces.composite import child_seeds

if TYPE_CHECKING:
    import gymnasium


class Environment(ABC):
    """An environment whose steps have a `StepType`: first, middle, or last, and if last, whether the episode terminated or timed out.

    A simple rollout::

        observation, episode_info = env.reset()
        last = False
        while not last:
            env_step = env.step(policy(observation))
            observation, last = env_step.observation, env_step.last
        env.close()

    Environments should be picklable (by cloudpickle); if an attribute is not, define ``__getstate__`` and ``__setstate__``.
    """

    @property
    @abstractmethod
    def action_space(self) -> gymnasium.Space:
        """The space of actions."""

    @property
    @abstractmethod
    def observation_space(self) -> gymnasium.Space:
        """The space of observations."""

    @property
    @abstractmethod
    def spec(self) -> EnvSpec:
        """Both spaces, and the largest number of steps in an episode."""

    @property
    @abstractmethod
    def render_modes(self) -> list[str]:
        """The modes that `render` supports."""

    @abstractmethod
    def reset(self) -> tuple[Any, dict]:
        """Start a new episode.

        Returns:
            The first observation, and a dictionary of information on the whole episode, such as its goal. (Information on one step is in
            the step's env_info.)
        """

    @abstractmethod
    def step(self, action: Any) -> EnvStep:
        """Run one step.

        Args:
            action: an element of the action space.

        Returns:
            The step. Its type is TIMEOUT if it reaches `spec.max_episode_length` and does not terminate the episode.

        Raises:
            RuntimeError: no episode is running: call `reset` first.
        """

    @abstractmethod
    def render(self, mode: str) -> Any:
        """Return a picture of the current state.

        Args:
            mode: one of `render_modes`. By convention ``"rgb_array"`` is a uint8 array ``[height, width, 3]``, ``"ansi"`` a string.
        """

    @abstractmethod
    def visualize(self) -> None:
        """Open a window that shows the environment from now on. Call it once, after `reset`."""

    @abstractmethod
    def close(self) -> None:
        """Free resources, also windows; may be called more than once."""

    def seed(self, seed: int) -> None:
        """Seed the spaces; takes effect at the next `reset`. An environment that draws random numbers extends this method.

        Samplers first seed the random generators in the environment's attributes; see `rlpyt.utils.seed.seed_env`.
        """
        for space, space_seed in zip((self.action_space, self.observation_space), child_seeds(seed, 2)):
            space.seed(space_seed)

    def get_state(self) -> Any:
        """Return the state for a resumed run as plain data: the attributes of this environment and of those it wraps.

        Raises:
            NotPlain: an attribute is not plain data (see `rlpyt.utils.plain`): override `get_state` and `set_state`.
        """
        return get_gym_state(self)

    def set_state(self, state: Any) -> None:
        """Restore a state from `get_state` of an environment made with the same arguments."""
        set_gym_state(self, state)

    @property
    def unwrapped(self) -> Any:
        """The innermost environment: this one, if it wraps none."""
        return self

    def _validate_render_mode(self, mode: str) -> None:
        """Raise ValueError if `mode` is not one of `render_modes`."""
        if mode not in self.render_modes:
            raise ValueError(f"Supported render modes are {self.render_modes}, but got render mode {mode!r} instead.")

    def __del__(self) -> None:
        with suppress(Exception):  # The constructor may have failed, or the interpreter may be shutting down.
            self.close()


class CountingEnvironment(Environment):
    """Base class that holds the spaces and the time limit, and counts the steps of an episode.

    A subclass defines `reset`, which sets ``_n_steps`` to 0, and `step`, which first calls ``_require_reset()`` and gets the type of the
    step from ``_count_step``.

    Args:
        observation_space, action_space: spaces of gymnasium.
        max_episode_length: limit of an episode (env steps); None for no limit.
    """

    def __init__(self, observation_space: gymnasium.Space, action_space: gymnasium.Space, max_episode_length: float | None = None) -> None:
        self._observation_space, self._action_space = observation_space, action_space
        self._spec = EnvSpec(observation_space=observation_space, action_space=action_space, max_episode_length=max_episode_length)
        self._n_steps: int | None = None  # Steps of the running episode; None if no episode is running.

    @property
    def action_space(self) -> gymnasium.Space:
        """The space of actions."""
        return self._action_space

    @property
    def observation_space(self) -> gymnasium.Space:
        """The space of observations."""
        return self._observation_space

    @property
    def spec(self) -> EnvSpec:
        """Both spaces, and the largest number of steps in an episode."""
        return self._spec

    def close(self) -> None:
        """Do nothing: such an environment holds no resources, unless a subclass says so."""

    def _require_reset(self) -> None:
        """Raise RuntimeError if no episode is running."""
        if self._n_steps is None:
            raise RuntimeError("reset() must be called before step(): no episode has begun, or it has ended.")

    def _count_step(self, terminated: bool, truncated: bool, limit: float | None = None) -> StepType:
        """Count one step and return its type; the step that reaches `limit` (env steps) is truncated as well."""
        n_steps = (self._n_steps or 0) + 1
        truncated = truncated or (limit is not None and n_steps >= limit)
        self._n_steps = None if terminated or truncated else n_steps
        return StepType.from_flags(n_steps == 1, terminated, truncated)


class Wrapper(Environment):
    """Holds an `Environment` and forwards everything to it; subclasses override parts.

    Args:
        env: the environment.
    """

    def __init__(self, env: Environment) -> None:
        self.env = env

    @property
    def _env(self) -> Environment:
        return self.env

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
    def spec(self) -> EnvSpec:
        """Both spaces, and the largest number of steps in an episode."""
        return self.env.spec

    @property
    def render_modes(self) -> list[str]:
        """The modes that `render` supports."""
        return self.env.render_modes

    @property
    def unwrapped(self) -> Any:
        """The innermost environment."""
        return self.env.unwrapped

    def reset(self) -> tuple[Any, dict]:
        """Reset the wrapped environment."""
        return self.env.reset()

    def step(self, action: Any) -> EnvStep:
        """Step the wrapped environment."""
        return self.env.step(action)

    def render(self, mode: str) -> Any:
        """Render the wrapped environment."""
        return self.env.render(mode)

    def visualize(self) -> None:
        """Open the window of the wrapped environment."""
        self.env.visualize()

    def seed(self, seed: int) -> None:
        """Seed the wrapped environment."""
        self.env.seed(seed)

    def close(self) -> None:
        """Close the wrapped environment."""
        self.env.close()

    def __del__(self) -> None:
        """Leave the wrapped environment open: it may be in use elsewhere, and it closes itself."""
