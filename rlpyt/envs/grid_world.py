"""A walk on a grid of squares: small, deterministic, to be understood at a glance."""

from __future__ import annotations

from collections.abc import Sequence

from gymnasium import spaces

from rlpyt.envs.environment import Environment
from rlpyt.envs.specs import EnvSpec, EnvStep, StepType

MAPS = {
    "chain": ["GFFFFFFFFFFFFFSFFFFFFFFFFFFFG"],
    "4x4_safe": ["SFFF", "FWFW", "FFFW", "WFFG"],
    "4x4": ["SFFF", "FHFH", "FFFH", "HFFG"],
    "8x8": ["SFFFFFFF", "FFFFFFFF", "FFFHFFFF", "FFFFFHFF", "FFFHFFFF", "FHHFFFHF", "FHFFHFHF", "FFFHFFFG"],
}
MOVES = {0: (0, -1), 1: (1, 0), 2: (0, 1), 3: (-1, 0)}  # left, down, right, up: (rows, columns)


class GridWorldEnv(Environment):
    """One moves from square to square, to a goal.

    ====  ====================================================
    S     where one starts
    F     free
    W     wall: one stays where one is
    H     hole: the episode ends, with reward 0
    G     goal: the episode ends, with reward 1
    ====  ====================================================

    The observation is the number of the square, ``row * columns + column``. Actions are 0 left, 1 down, 2 right, 3 up; nobody leaves the
    grid. env_info holds ``success`` (bool): whether this is the goal.

    Args:
        desc: name of one of `MAPS`, or rows of letters.
        max_episode_length: steps after which an episode times out; None for no limit.

    Raises:
        ValueError: there is no such map, or `max_episode_length` is less than 1.
    """

    def __init__(self, desc: str | Sequence[str] = "4x4", max_episode_length: int | None = None) -> None:
        if isinstance(desc, str) and desc not in MAPS:
            raise ValueError(f"desc={desc!r} must be one of {sorted(MAPS)}, or a list of rows of letters.")
        self._desc = [list(row) for row in (MAPS[desc] if isinstance(desc, str) else desc)]
        self._n_rows, self._n_columns = len(self._desc), len(self._desc[0])
        letters = [letter for row in self._desc for letter in row]
        if len(letters) != self._n_rows * self._n_columns or not set(letters) <= set("SFWHG") or letters.count("S") != 1:
            raise ValueError(f"desc={desc!r} must be rows of one length, of the letters S, F, W, H and G, with one S.")
        self._start = letters.index("S")
        self._state = self._start
        self._n_steps: int | None = None  # In this episode; None where there is none.
        self._observation_space = spaces.Discrete(len(letters))
        self._action_space = spaces.Discrete(len(MOVES))
        self._spec = EnvSpec(
            observation_space=self._observation_space, action_space=self._action_space, max_episode_length=max_episode_length
        )

    @property
    def action_space(self) -> spaces.Discrete:
        """The space of actions."""
        return self._action_space

    @property
    def observation_space(self) -> spaces.Discrete:
        """The space of observations."""
        return self._observation_space

    @property
    def spec(self) -> EnvSpec:
        """Both spaces, and the largest number of steps in an episode."""
        return self._spec

    @property
    def render_modes(self) -> list[str]:
        """The grid as text."""
        return ["ansi"]

    def reset(self) -> tuple[int, dict]:
        """Go to the start; return its number, and nothing to tell about the episode."""
        self._state = self._start
        self._n_steps = 0
        return self._state, {}

    def step(self, action: int) -> EnvStep:
        """Move by one square.

        Raises:
            RuntimeError: there was no `reset` before. ValueError: there is no such action.
        """
        if self._n_steps is None:
            raise RuntimeError("reset() must be called before step(): no episode has begun, or it has ended.")
        if int(action) not in MOVES:
            raise ValueError(f"action={action!r} must be 0 (left), 1 (down), 2 (right) or 3 (up).")
        row, column = divmod(self._state, self._n_columns)
        down, right = MOVES[int(action)]
        row, column = min(max(row + down, 0), self._n_rows - 1), min(max(column + right, 0), self._n_columns - 1)
        square = self._desc[row][column]
        if square != "W":
            self._state = row * self._n_columns + column
        self._n_steps += 1
        limit = self._spec.max_episode_length
        step_type = StepType.from_flags(
            first=self._n_steps == 1, terminated=square in "HG", truncated=limit is not None and self._n_steps >= limit
        )
        if step_type in (StepType.TERMINAL, StepType.TIMEOUT):
            self._n_steps = None
        return EnvStep(
            env_spec=self._spec,
            action=action,
            reward=float(square == "G"),
            observation=self._state,
            env_info={"success": square == "G"},
            step_type=step_type,
        )

    def render(self, mode: str) -> str:
        """Return the grid, with brackets around where one is."""
        self._validate_render_mode(mode)
        here = divmod(self._state, self._n_columns)
        rows = ([f"[{x}]" if (r, c) == here else f" {x} " for c, x in enumerate(row)] for r, row in enumerate(self._desc))
        return "\n".join("".join(row) for row in rows)

    def visualize(self) -> None:
        """Print the grid: there is no window."""
        print(self.render("ansi"))

    def close(self) -> None:
        """Nothing to free."""
