"""Environments whose steps are whole records; `rlpyt.envs.adapters` turns them into the other two kinds, and back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from rlpyt.envs.specs import EnvSpec, EnvStep
from rlpyt.envs.state import get_gym_state, set_gym_state
from rlpyt.spaces.composite import child_seeds

if TYPE_CHECKING:
    import gymnasium


class Environment(ABC):
    """An environment that says of each of its steps whether it was the first, one in between, or the last, and why it was the last.

    A simple rollout::

        observation, episode_info = env.reset()
        last = False
        while not last:
            env_step = env.step(policy(observation))
            observation, last = env_step.observation, env_step.last
        env.close()

    Environments should be picklable (by cloudpickle); where an attribute is not, define ``__getstate__`` and ``__setstate__``.
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
        """What `render` can be asked for."""

    @abstractmethod
    def reset(self) -> tuple[Any, dict]:
        """Begin a new episode.

        Returns:
            The first observation, and information on the whole episode, such as its goal; what belongs to one step is in its env_info.
        """

    @abstractmethod
    def step(self, action: Any) -> EnvStep:
        """Take one step.

        Args:
            action: an element of the action space.

        Returns:
            The step. Its type is TIMEOUT where `spec.max_episode_length` is reached and the environment has not terminated the episode.

        Raises:
            RuntimeError: there was no `reset` since the environment was made, or since the last step of an episode.
        """

    @abstractmethod
    def render(self, mode: str) -> Any:
        """Return a picture of the present state.

        Args:
            mode: one of `render_modes`. By convention ``"rgb_array"`` is a uint8 array ``[height, width, 3]``, ``"ansi"`` a string.
        """

    @abstractmethod
    def visualize(self) -> None:
        """Open a window that shows the environment from now on. To be called once, after `reset`."""

    @abstractmethod
    def close(self) -> None:
        """Free what the environment holds, windows included; may be called more than once."""

    def seed(self, seed: int) -> None:
        """Seed the spaces; takes effect at the next `reset`. An environment with randomness of its own extends this method.

        Samplers also seed the random generators in its attributes, before they call this; see `rlpyt.utils.seed.seed_env`.
        """
        for space, space_seed in zip((self.action_space, self.observation_space), child_seeds(seed, 2)):
            space.seed(space_seed)

    def get_state(self) -> Any:
        """Return the state, plain data, so that a resumed run goes on from it: the attributes of this environment and of those it wraps.

        Raises:
            NotPlain: an attribute is no plain data (see `rlpyt.utils.plain`): override this method and its inverse.
        """
        return get_gym_state(self)

    def set_state(self, state: Any) -> None:
        """Go on from what `get_state` of an environment made with the same arguments returned."""
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
        with suppress(Exception):  # It may be half made, or the program at its end.
            self.close()


class Wrapper(Environment):
    """Holds an `Environment` and forwards everything to it: to be extended where something should be different.

    Args:
        env: the environment.
    """

    def __init__(self, env: Environment) -> None:
        self.env = env

    @property
    def _env(self) -> Environment:
        return self.env

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"attempted to get private attribute {name!r} of the environment that {type(self).__name__} wraps")
        if name == "env" or not hasattr(self.env, name):  # The former while it is unpickled.
            raise AttributeError(f"attribute {name!r} not found in {type(self).__name__}, nor in the environment it wraps")
        return getattr(self.env, name)

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
        """What `render` can be asked for."""
        return self.env.render_modes

    @property
    def unwrapped(self) -> Any:
        """The innermost environment."""
        return self.env.unwrapped

    def reset(self) -> tuple[Any, dict]:
        """Reset the wrapped environment; return observation and information on the episode."""
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
        """Leave the wrapped environment alone: it may be in use elsewhere, and closes itself when it is not."""
