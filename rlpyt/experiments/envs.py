"""Modified environments of Gymnasium, for experiments."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np

from rlpyt.envs.gym import GymEnvWrapper, make_gym


class SomeComponents(gymnasium.ObservationWrapper):
    """Shows only some components of a vector observation: ``observation[components]``.

    Raises:
        ValueError: observations are no vectors, or have no such component.
    """

    def __init__(self, env: gymnasium.Env, components: Sequence[int]) -> None:
        super().__init__(env)
        self.components = list(components)
        space: Any = env.observation_space
        if not isinstance(space, gymnasium.spaces.Box) or len(space.shape) != 1:
            raise ValueError(f"Components can be chosen of vectors only, and observations are of {space}.")
        n = space.shape[0]
        if not self.components or not all(-n <= i < n for i in self.components):
            raise ValueError(
                f"components={self.components} must be at least one of the numbers 0 to {n - 1} of the observation's components."
            )
        self.observation_space = gymnasium.spaces.Box(space.low[self.components], space.high[self.components], dtype=space.dtype)

    def observation(self, observation: np.ndarray) -> np.ndarray:
        return observation[self.components]


class ScaledReward(gymnasium.Wrapper):
    """Divides rewards by the running standard deviation of their discounted sum, and limits them to [-10,10].

    The sum is G <- discount * G + reward, and 0 at the start of an episode. A new seed resets the statistics, so that equal seeds give
    equal rewards.
    """

    def __init__(self, env: gymnasium.Env, discount: float) -> None:
        super().__init__(env)
        self.discount = discount
        self._forget()

    def _forget(self) -> None:
        self._count, self._mean, self._square_deviation = 0, 0.0, 0.0

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple:
        if seed is not None:
            self._forget()
        self._return = 0.0
        return self.env.reset(seed=seed, options=options)

    def step(self, action: np.ndarray) -> tuple:
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._return = self.discount * self._return + float(reward)
        self._count += 1
        deviation = self._return - self._mean
        self._mean += deviation / self._count
        self._square_deviation += deviation * (self._return - self._mean)  # Welford (1962)
        variance = self._square_deviation / self._count if self._count > 1 else 1.0
        reward = min(max(float(reward) / math.sqrt(variance + 1e-8), -10.0), 10.0)
        return observation, reward, terminated, truncated, info


def make_partial(id: str, components: Sequence[int], render_mode: str | None = None) -> GymEnvWrapper:
    """Make the environment `id` with only some `components` of its observations, e.g. CartPole without velocities, [0, 2]."""
    return GymEnvWrapper(SomeComponents(make_gym(id, render_mode=render_mode), components))


def make_scaled(id: str, discount: float | None = None, render_mode: str | None = None) -> GymEnvWrapper:
    """Make the environment `id` with rewards of about size 1.

    The targets of a value function then have the same size in every environment, see `ScaledReward`. With discount None, for
    evaluation, rewards are unchanged.
    """
    env = make_gym(id, render_mode=render_mode)
    return GymEnvWrapper(env if discount is None else ScaledReward(env, discount))
