"""Environments whose actions are integers that start elsewhere than at 0."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rlpyt.envs.base import EnvSpaces, EnvStep, Wrapper, fast_step, truncates_only_at_horizon
from rlpyt.spaces.composite import Composite, child_seeds
from rlpyt.spaces.int_box import IntBox
from rlpyt.spaces.parts import composite_of
from rlpyt.utils.seed import seed_method


class FromZero(Wrapper):
    """Lets the actions of an environment count from 0: one that takes 3, 4 or 5, ``IntBox(3, 6)``, takes 0, 1 or 2, ``IntBox(0, 3)``.

    Agents for discrete actions choose such numbers. (The wrapper of Gymnasium's spaces does the same for ``start`` of Discrete and
    MultiDiscrete.) The batch, and what the agent sees as its previous action, hold the numbers from 0 on. ``EnvCls`` may be a function::

        def make(**kwargs):
            return FromZero(MyEnv(**kwargs))

    Args:
        env: environment of rlpyt, whose action space is an `IntBox`, or a `Composite` with some. Other parts stay as they are.
    """

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.action_space, self._shift = _from_zero(env.action_space)

    @property
    def truncates_only_at_horizon(self) -> bool:
        """As the environment inside, since steps are its own."""
        return truncates_only_at_horizon(self.env)

    @property
    def spaces(self) -> EnvSpaces:
        """``EnvSpaces(observation, action)``."""
        return EnvSpaces(observation=self.env.observation_space, action=self.action_space)

    def step(self, action: Any) -> EnvStep:
        """Run one step."""
        return self.env.step(self._shift(action))

    def step_into(self, action: Any, observation_out: Any) -> tuple[float, bool, Any]:
        """Run one step, and write the observation; see `rlpyt.envs.base.Env.step_into`."""
        return fast_step(self.env)(self._shift(action), observation_out)

    def bind_step(self) -> Callable[[Any, Any], tuple[float, bool, Any]]:
        """Return a callable that does what `step_into` does; see `rlpyt.envs.base.BindingEnv`."""
        step_into, shift = fast_step(self.env), self._shift
        return lambda action, observation_out: step_into(shift(action), observation_out)

    def seed(self, seed: int) -> None:
        """Seed the environment and the spaces."""
        method = seed_method(self.env)
        if method is not None:
            method(seed)
        self.action_space.seed(child_seeds(seed, 2)[1])


def _from_zero(space: Any) -> tuple[Any, Callable[[Any], Any]]:
    """Return the space of actions from 0 on, and the function that turns these into actions of `space`."""
    composite = composite_of(space)
    if composite is not None:
        spaces, shifts = zip(*map(_from_zero, composite.spaces))
        return Composite(spaces, type(space.null_value())), lambda value: value._make(
            shift(part) for shift, part in zip(shifts, tuple(value))
        )
    if not isinstance(space, IntBox) or space.low == 0:
        return space, lambda value: value
    n, low, dtype = space.n, space.low, space.dtype
    null = int(space.null_value().flat[0]) - low
    fits = all(np.iinfo(dtype).min <= x <= np.iinfo(dtype).max for x in (null, n - 1))
    return (
        IntBox(0, n, space.shape, dtype if fits else np.int64, null),
        lambda value: np.asarray(np.asarray(value, np.int64) + low, dtype)[()],
    )
