"""A point that moves to a goal; each task has another goal."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from gymnasium import spaces

from rlpyt.envs.environment import CountingEnvironment
from rlpyt.envs.specs import EnvStep

STEP = 0.1  # The furthest that the point moves per step, in each direction.
SUCCESS_DISTANCE = math.sqrt(0.02)


class PointEnv(CountingEnvironment):
    """A point moves in the plane, from the origin to a goal.

    The observation, float32 ``[3]``, is ``(x, y, distance to the goal)``. The action, float32 ``[2]``, moves the point by up to 0.1 in each
    direction; larger numbers are clipped to 0.1. The reward is the negative distance. An episode ends when the distance is less than √0.02.

    env_info holds ``task``, the dictionary that `set_task` takes, and ``success`` (bool).

    Args:
        goal: coordinates of the goal, ``(x, y)``.
        arena_size: the coordinates of the point stay within ``[-arena_size, arena_size]``.
        done_bonus: added to the reward at the goal.
        never_done: continue the episode at the goal.
        max_episode_length: limit after which an episode times out (env steps); infinite, or None, for no limit.

    Raises:
        ValueError: `goal` is not two numbers, or `max_episode_length` less than 1.
    """

    def __init__(
        self,
        goal: Any = (1.0, 1.0),
        arena_size: float = 5.0,
        done_bonus: float = 0.0,
        never_done: bool = False,
        max_episode_length: float | None = math.inf,
    ) -> None:
        self._goal = _checked(goal)
        self._arena_size = arena_size
        self._done_bonus = done_bonus
        self._never_done = never_done
        self._point = np.zeros(2, np.float32)
        limit = None if max_episode_length in (None, math.inf) else int(max_episode_length)
        super().__init__(spaces.Box(-np.inf, np.inf, (3,), np.float32), spaces.Box(-STEP, STEP, (2,), np.float32), limit)

    @property
    def render_modes(self) -> list[str]:
        """A line of text, or a picture."""
        return ["ansi", "rgb_array"]

    @property
    def task(self) -> dict:
        """``{"goal": (x, y)}``."""
        return {"goal": self._goal.copy()}

    def reset(self) -> tuple[np.ndarray, dict]:
        """Put the point at the origin; return the observation, and the goal."""
        self._point = np.zeros(2, np.float32)
        self._n_steps = 0
        return self._observation(), self.task

    def step(self, action: np.ndarray) -> EnvStep:
        """Move the point.

        Raises:
            RuntimeError: no episode is running: call `reset` first.
        """
        self._require_reset()
        move = np.clip(action, -STEP, STEP)
        self._point = np.clip(self._point + move, -self._arena_size, self._arena_size).astype(np.float32)
        observation = self._observation()
        distance = float(observation[2])
        success = distance < SUCCESS_DISTANCE
        return EnvStep(
            env_spec=self._spec,
            action=action,
            reward=-distance + (self._done_bonus if success else 0.0),
            observation=observation,
            env_info={"task": self.task, "success": success},
            step_type=self._count_step(success and not self._never_done, False, self._spec.max_episode_length),
        )

    def _observation(self) -> np.ndarray:
        return np.append(self._point, np.linalg.norm(self._point - self._goal)).astype(np.float32)

    def sample_tasks(self, num_tasks: int, rng: np.random.Generator | None = None) -> list[dict]:
        """Return `num_tasks` tasks with goals drawn uniformly from ``[-2, 2]`` squared, by numpy's global random state if `rng` is None."""
        uniform = (rng or np.random).uniform
        return [{"goal": goal} for goal in uniform(-2, 2, size=(num_tasks, 2)).astype(np.float32)]

    def set_task(self, task: dict) -> None:
        """Set the goal to ``task["goal"]``; the next observation contains its distance.

        Raises:
            ValueError: the goal is not two numbers.
        """
        self._goal = _checked(task["goal"])

    def render(self, mode: str) -> str | np.ndarray:
        """Return the positions of point and goal as text, or as a picture of the arena, uint8 [100,100,3]: goal green, point red."""
        self._validate_render_mode(mode)
        if mode == "rgb_array":
            picture = np.full((100, 100, 3), 255, np.uint8)
            for (x, y), color in ((self._goal, (0, 160, 0)), (self._point, (200, 0, 0))):
                column, row = (round(48 + 46 * float(np.clip(part / self._arena_size, -1, 1))) for part in (x, -y))
                picture[row : row + 4, column : column + 4] = color
            return picture
        return f"point ({self._point[0]:.2f}, {self._point[1]:.2f}), goal ({self._goal[0]:.2f}, {self._goal[1]:.2f})"

    def visualize(self) -> None:
        """Print the positions of point and goal instead of opening a window."""
        print(self.render("ansi"))


def _checked(goal: Any) -> np.ndarray:
    """Return a goal as an array, float32 ``[2]``."""
    array = np.array(goal, dtype=np.float32)
    if array.shape != (2,):
        raise ValueError(f"goal={goal!r} must be two numbers, (x, y).")
    return array
