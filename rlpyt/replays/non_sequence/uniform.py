"""Uniform replay of transitions."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlpyt.replays.async_ import AsyncReplayBufferMixin
from rlpyt.replays.draws import Draw, UniformDraws
from rlpyt.replays.n_step import BufferMixin
from rlpyt.replays.non_sequence.n_step import NStepReturnBuffer


class UniformReplay(BufferMixin):
    """Replays all valid steps with the same probability. Put it in front of an n-step buffer."""

    draws: UniformDraws

    def _make_draws(self) -> UniformDraws:
        return UniformDraws(self.starts, self.B, *self.start_zones(), self.storage.valid)

    def _draw(self, batch_B: int) -> Draw:
        return Draw(tuple(self.sample_idxs(batch_B)))

    def sample_batch(self, batch_B: int) -> Any:  # type: ignore[override]
        """Return a batch of `batch_B` random samples; see `extract_batch`."""
        return self.draw_and_gather(batch_B)[0]

    def sample_idxs(self, batch_B: int) -> tuple[np.ndarray, np.ndarray]:
        """Return (T_idxs [batch_B], B_idxs [batch_B]) of random steps that are valid now.

        Raises:
            ValueError: no step is valid yet.
        """
        return self.draws.select(batch_B)


class UniformReplayBuffer(UniformReplay, NStepReturnBuffer):
    """Transitions; full observations; uniform."""


class AsyncUniformReplayBuffer(AsyncReplayBufferMixin, UniformReplayBuffer):
    """Transitions; full observations; uniform; shared by processes."""
