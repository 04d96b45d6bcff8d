"""Which of the stored steps to replay."""

from __future__ import annotations

import numpy as np

from rlpyt.replays.ring import Ring


class UniformSelector:
    """Draws valid steps uniformly, with replacement, by random numbers of its own.

    Args:
        ring: where the buffer writes.
        B: number of environments.
        off_backward, off_forward: how many rows before and after the cursor are not valid.

    Attributes:
        rng: seeded from numpy's global generator, so that seeding that one makes a run repeatable.
    """

    def __init__(self, ring: Ring, B: int, off_backward: int, off_forward: int) -> None:
        self.ring, self.B = ring, B
        self.off_backward, self.off_forward = off_backward, off_forward
        self.rng = np.random.default_rng(np.random.randint(2**31, size=4))

    def select(self, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the indexes (T_idxs [n], B_idxs [n]) of `n` steps.

        Raises:
            ValueError: no step is valid yet.
        """
        first, n_valid = self.ring.window(self.off_backward, self.off_forward)
        if n_valid == 0:
            stored = self.ring.T if self.ring.full else self.ring.t
            raise ValueError(
                f"Nothing to replay yet: {stored} time steps are stored, and more than "
                f"{self.off_backward + self.off_forward} are needed: raise {'replay_size' if self.ring.full else 'min_steps_learn'}."
            )
        T_idxs = self.ring.wrap(first + self.rng.integers(n_valid, size=n))
        return T_idxs, self.rng.integers(self.B, size=n)
