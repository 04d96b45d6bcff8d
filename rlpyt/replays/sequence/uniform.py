"""Uniform replay of sequences."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlpyt.replays.async_ import AsyncReplayBufferMixin
from rlpyt.replays.draws import Draw
from rlpyt.replays.non_sequence.uniform import UniformReplay
from rlpyt.replays.sequence.n_step import SequenceNStepReturnBuffer


class UniformSequenceReplay(UniformReplay):
    """Replays sequences, with the same probability for all valid starts. Put it in front of a sequence buffer."""

    batch_T: int | None

    def set_batch_T(self, batch_T: int) -> None:
        """Set the default number of steps in a sequence for `sample_batch`."""
        self.batch_T = batch_T

    def sample_batch(self, batch_B: int, batch_T: int | None = None) -> Any:
        """Return `batch_B` random sequences of `batch_T` steps (by default, the number set before); see `extract_batch`."""
        return self.draw_and_gather(batch_B, batch_T)[0]

    def sample_idxs(self, batch_B: int, batch_T: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Return (T_idxs [batch_B], B_idxs [batch_B]) of random steps at which a sequence of `batch_T` steps can start now.

        Raises:
            ValueError: nothing can be replayed yet.
        """
        return self.draws.select(batch_B, self.start_zones(self._checked(batch_T))[0])

    def _draw(self, batch_B: int, batch_T: int | None = None) -> Draw:
        batch_T = self._checked(batch_T)
        return Draw((*self.sample_idxs(batch_B, batch_T), batch_T))

    def _checked(self, batch_T: int | None) -> int:
        batch_T = self.batch_T if batch_T is None else batch_T
        if batch_T is None:
            raise ValueError("How long are the sequences? Give batch_T, here, to set_batch_T or to the constructor.")
        if batch_T < 1:
            raise ValueError(f"batch_T={batch_T} must be at least 1.")
        return batch_T


class UniformSequenceReplayBuffer(UniformSequenceReplay, SequenceNStepReturnBuffer):
    """Sequences; full observations; uniform."""


class AsyncUniformSequenceReplayBuffer(AsyncReplayBufferMixin, UniformSequenceReplayBuffer):
    """Sequences; full observations; uniform; shared by processes."""
