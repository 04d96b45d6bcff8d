"""The state of an environment that cannot tell its own: how its episode came about."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from rlpyt.envs.base import NotRestored, Wrapper, wrapper_chain
from rlpyt.utils.misc import attributes
from rlpyt.utils.plain import NotPlain, check_form, from_plain, generator_state, set_generator_state, to_plain

MOST_STEPS = 100_000  # Of a longer episode, the state is unknown.
_FORM = dict(is_reset=bool, generator=str, arguments=object, actions=object, observation=object)


class RepeatedEpisode(Wrapper):
    """Gives a Gymnasium environment a state, with which a run resumes in the middle of an episode.

    The state is that of the random generator before the last reset, with the arguments of the reset and all actions since. `set_state`
    resets the environment and repeats the actions. This leads to the same place if nothing outlives a reset, and if the only random
    numbers are those of ``np_random``. It takes as long as these steps took. It is for simulators, and not for what acts on the world: a
    robot would repeat its movements.

    `repeat_episodes` puts it into an environment.

    Args:
        env: the innermost environment, of Gymnasium.
    """

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self._before: str | None = None  # State of the generator before the reset; None before the first one.
        self._arguments: dict[str, Any] = {}  # Of the reset.
        self._actions: list[Any] | None = []  # None: too many.
        self._observation: Any = None

    @property
    def np_random(self) -> np.random.Generator:
        """The environment's random generator."""
        return self.env.np_random

    @np_random.setter
    def np_random(self, generator: np.random.Generator) -> None:
        self.env.np_random = generator

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> Any:
        """Reset the environment, and begin to record."""
        self._before, self._arguments, self._actions = generator_state(self.np_random), dict(seed=seed, options=options), []
        result = self.env.reset(seed=seed, options=options)
        self._observation = result[0]
        return result

    def step(self, action: Any) -> Any:
        """Step the environment, and record the action."""
        if self._actions is not None:
            self._actions.append(copy.copy(action))  # Its memory may be used again.
            if len(self._actions) > MOST_STEPS:
                self._actions = None
        result = self.env.step(action)
        self._observation = result[0]
        return result

    def get_state(self) -> dict:
        """Return how the episode came about, as plain data, and its last observation.

        Raises:
            NotPlain: the episode is longer than `MOST_STEPS`, or an action or an argument of the reset cannot be written as plain data.
        """
        if self._before is None:
            return dict(is_reset=False, generator=generator_state(self.np_random), arguments=None, actions=[], observation=None)
        if self._actions is None:
            raise NotPlain(f"The episode of {type(self.env).__name__} has more than {MOST_STEPS:,} steps.")
        actions: Any = self._actions
        if actions and all(isinstance(action, (np.ndarray, np.generic)) for action in actions):
            actions = np.stack(actions)  # Much shorter than a list.
        return dict(
            is_reset=True,
            generator=self._before,
            arguments=to_plain(self._arguments, "The arguments of reset"),
            actions=to_plain(actions, "The actions"),
            observation=to_plain(self._observation, "The observation"),
        )

    def set_state(self, state: dict) -> None:
        """Restore a state that `get_state` returned.

        Raises:
            NotRestored: the repeated episode has led to another observation.
        """
        check_form(state, _FORM, "The state of RepeatedEpisode")
        set_generator_state(self.np_random, state["generator"], "The generator of RepeatedEpisode")
        if not state["is_reset"]:
            return
        arguments, actions = from_plain(state["arguments"], "The arguments of reset"), from_plain(state["actions"], "The actions")
        check_form(arguments, dict(seed=(int, type(None)), options=(dict, type(None))), "The arguments of reset")
        self.reset(seed=arguments["seed"], options=arguments["options"])
        for action in actions:
            self.step(action)
        if to_plain(self._observation) != state["observation"]:
            raise NotRestored(
                f"{type(self.env).__name__} came to another observation when it repeated the {len(actions)} actions of its episode."
            )


def repeat_episodes(env: Any) -> Any:
    """Put a `RepeatedEpisode` around the innermost environment, if there is none; return `env`, or the `RepeatedEpisode` without wrappers.

    For a simulator whose state is not known otherwise, and that draws its random numbers from ``np_random``::

        def make_env():
            return GymEnvWrapper(repeat_episodes(gymnasium.make("Simulator-v0")))
    """
    *wrappers, innermost = wrapper_chain(env)
    if any(isinstance(wrapper, RepeatedEpisode) for wrapper in wrappers):
        return env
    repeated = RepeatedEpisode(innermost)
    if not wrappers:
        return repeated
    wrappers[-1].env = repeated
    return env


def with_known_state(env: Any) -> Any:
    """Return `env`, with `repeat_episodes` if it simulates by Box2D, as LunarLander does: a world of Box2D cannot be saved."""
    *_, innermost = wrapper_chain(env)
    is_of_box2d = any(type(value).__module__.partition(".")[0] == "Box2D" for value in attributes(innermost).values())
    return repeat_episodes(env) if is_of_box2d else env
