"""A walk on a grid of squares: a small deterministic environment."""

from __future__ import annotations

from collections.abc import Sequence

from gymnasium import spaces

from rlpyt.envs.environment import CountingEnvironment
from rlpyt.envs.specs import EnvStep

MAPS = {
    "chain": ["GFFFFFFFFFFFFFSFFFFFFFFFFFFFG"],
    "4x4_safe": ["SFFF", "FWFW", "FFFW", "WFFG"],
    "4x4": ["SFFF", "FHFH", "FFFH", "HFFG"],
    "8x8": ["SFFFFFFF", "FFFFFFFF", "FFFHFFFF", "FFFFFHFF", "FFFHFFFF", "FHHFFFHF", "FHFFHFHF", "FFFHFFFG"],
}
MOVES = {0: (0, -1), 1: (1, 0), 2: (0, 1), 3: (-1, 0)}  # left, down, right, up: (rows, columns)


class GridWorldEnv(CountingEnvironment):
    """The agent moves from square to square, to a goal.

    ====  ====================================================
    S     start
    F     free
    W     wall: the agent stays where it is
    H     hole: the episode ends, with reward 0
    G     goal: the episode ends, with reward 1
    ====  ====================================================

    The observation is the number of the agent's square, ``row * columns + column``. Actions are 0 left, 1 down, 2 right, 3 up; at the
    edge of the grid the agent stays where it is. env_info holds ``success`` (bool): whether the agent has reached the goal.

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
        super().__init__(spaces.Discrete(len(letters)), spaces.Discrete(len(MOVES)), max_episode_length)

    @property
    def render_modes(self) -> list[str]:
        """The grid as text."""
        return ["ansi"]

    def reset(self) -> tuple[int, dict]:
        """Go to the start; return the number of its square and an empty dictionary."""
        self._state = self._start
        self._n_steps = 0
        return self._state, {}

    def step(self, action: int) -> EnvStep:
        """Move by one square.

        Raises:
            RuntimeError: no episode is running: call `reset` first.
            ValueError: `action` is not 0, 1, 2 or 3.
        """
        self._require_reset()
        if int(action) not in MOVES:
            raise ValueError(f"action={action!r} must be 0 (left), 1 (down), 2 (right) or 3 (up).")
        row, column = divmod(self._state, self._n_columns)
        down, right = MOVES[int(action)]
        row, column = min(max(row + down, 0), self._n_rows - 1), min(max(column + right, 0), self._n_columns - 1)
        square = self._desc[row][column]
        if square != "W":
            self._state = row * self._n_columns + column
        return EnvStep(
            env_spec=self._spec,
            action=action,
            reward=float(square == "G"),
            observation=self._state,
            env_info={"success": square == "G"},
            step_type=self._count_step(square in "HG", False, self._spec.max_episode_length),
        )

    def render(self, mode: str) -> str:
        """Return the grid as text, with brackets around the agent's square."""
        self._validate_render_mode(mode)
        here = divmod(self._state, self._n_columns)
        rows = ([f"[{x}]" if (r, c) == here else f" {x} " for c, x in enumerate(row)] for r, row in enumerate(self._desc))
        return "\n".join("".join(row) for row in rows)

    def visualize(self) -> None:
        """Print the grid instead of opening a window."""
        print(self.render("ansi"))
