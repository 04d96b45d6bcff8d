"""The state of an environment that cannot be read: its episode is recorded, and repeated instead."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np

from rlpyt.envs.base import NotRestored, wrapper_chain
from rlpyt.utils.plain import NotPlain, check_form, from_plain, generator_state, set_generator_state, to_plain

MOST_STEPS = 100_000  # Of a longer episode, the state is unknown.
_FORM = dict(is_reset=bool, before=str, after=str, arguments=object, actions=object, observation=object)


class RepeatedEpisode(gymnasium.Wrapper):
    """Gives a Gymnasium environment a state, with which a run resumes in the middle of an episode.

    The state is that of the random generator before the last reset and now, with the arguments of the reset and all actions since.
    `set_state` resets the environment and repeats the actions. This leads to the same place if nothing outlives a reset, if the only random
    numbers of the environment are those of ``np_random``, and if its wrappers draw none of them. Restoring takes as long as these steps
    did. It is for simulators, and not for what acts on the world: a robot would repeat its movements.

    `repeat_episodes` puts it into an environment.

    Args:
        env: the innermost environment.
    """

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        self._before: str | None = None  # State of the generator before the reset; None before the first one.
        self._arguments: dict[str, Any] = {}  # Of the reset.
        self._actions: list[Any] | None = []  # None: too many.
        self._observation: Any = None

    @property
    def spec(self) -> Any:  # type: ignore[override]
        """The specification of the environment, in which this wrapper does not appear."""
        return self.env.spec

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        """Reset the environment, and begin to record."""
        self._before, self._arguments, self._actions = generator_state(self.np_random), dict(seed=seed, options=options), []
        result = self.env.reset(seed=seed, options=options)
        self._observation = copy.deepcopy(result[0])  # Here and below, others may write into the original.
        return result

    def step(self, action: Any) -> tuple:
        """Step the environment, and record the action."""
        if self._actions is not None:
            self._actions.append(copy.deepcopy(action))
            if len(self._actions) > MOST_STEPS:
                self._actions = None
        result = self.env.step(action)
        self._observation = copy.deepcopy(result[0])
        return result

    def get_state(self) -> dict:
        """Return the record of the episode as plain data, with its last observation and the generator's state now.

        Raises:
            NotPlain: the episode is longer than `MOST_STEPS`, or an action or an argument of the reset cannot be written as plain data.
        """
        if self._actions is None:
            raise NotPlain(f"The episode of {type(self.env).__name__} has more than {MOST_STEPS:,} steps.")
        now = generator_state(self.np_random)
        return dict(
            is_reset=self._before is not None,
            before=self._before or now,
            after=now,
            arguments=to_plain(self._arguments, "The arguments of reset"),
            actions=to_plain(_together(self._actions), "The actions"),
            observation=to_plain(self._observation, "The observation"),
        )

    def set_state(self, state: dict) -> None:
        """Restore a state that `get_state` returned.

        Raises:
            NotRestored: the repeated episode has led to another observation.
            ValueError: the state is damaged, or of another environment.
        """
        check_form(state, _FORM, "The state of RepeatedEpisode")
        set_generator_state(self.np_random, state["before"], "The generator of RepeatedEpisode")
        if not state["is_reset"]:
            return
        arguments, actions = from_plain(state["arguments"], "The arguments of reset"), from_plain(state["actions"], "The actions")
        check_form(arguments, dict(seed=(int, type(None)), options=(dict, type(None))), "The arguments of reset")
        check_form(actions, (list, np.ndarray), "The actions")
        try:
            self.reset(**arguments)
            for action in actions:
                self.step(action)
        except Exception as error:
            raise ValueError(f"The actions of RepeatedEpisode are damaged, or of another environment: {error!r}") from error
        set_generator_state(self.np_random, state["after"], "The generator of RepeatedEpisode")  # It may have been seeded since.
        if to_plain(self._observation) != state["observation"]:
            raise NotRestored(
                f"{type(self.env).__name__} came to another observation when it repeated the {len(actions)} actions of its episode."
            )


def _together(actions: Sequence[Any]) -> Any:
    """Return actions as one array, which is much shorter as plain data, if they are arrays or numbers of one kind."""
    are_arrays = all(isinstance(action, (np.ndarray, np.generic)) for action in actions)
    is_one_kind = are_arrays and len({(action.shape, action.dtype) for action in actions}) == 1
    return np.stack(actions) if is_one_kind else actions


def repeat_episodes(env: Any) -> Any:
    """Put a `RepeatedEpisode` around the innermost environment, in place, unless there is one; return the outermost environment.

    For a simulator whose state cannot be read, and that draws its random numbers from ``np_random``::

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
