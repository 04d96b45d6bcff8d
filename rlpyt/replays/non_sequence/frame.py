"""Transitions with image observations, stored as unique frames."""

from __future__ import annotations

import numpy as np

from rlpyt.replays.frame import FrameBufferMixin
from rlpyt.replays.non_sequence.n_step import NStepReturnBuffer
from rlpyt.replays.non_sequence.uniform import UniformReplay


class NStepFrameBuffer(FrameBufferMixin, NStepReturnBuffer):
    """Puts observations together from stored frames."""

    def extract_observation(self, T_idxs: np.ndarray, B_idxs: np.ndarray) -> np.ndarray:
        """Return the observations [n,C,H,W] at ``[T_idxs, B_idxs]``, frames from OLDEST to NEWEST along C.

        Frames from before the start of the episode are zero.
        """
        C = self.n_frames
        B_idxs = B_idxs[:, None]
        rows = self.ring.wrap(T_idxs[:, None] + np.arange(1 - C, 1))  # [n,C]
        observation = self.samples_frames[rows, B_idxs]
        # A frame is from before the start if any step from it up to the one before the newest frame was done.
        done = self.samples.done[rows[:, :-1], B_idxs].astype(bool)
        blank = np.logical_or.accumulate(done[:, ::-1], axis=1)[:, ::-1]  # [n,C-1]
        observation[:, :-1][blank] = 0
        return observation

    def extract_final_observation(self, T_idxs: np.ndarray, B_idxs: np.ndarray) -> np.ndarray:
        """Return the observations [n,C,H,W] that ended the episodes truncated at ``[T_idxs, B_idxs]``."""
        newest = super().extract_final_observation(T_idxs, B_idxs)
        return np.concatenate([self.extract_observation(T_idxs, B_idxs)[:, 1:], newest[:, None]], axis=1)


class UniformReplayFrameBuffer(UniformReplay, NStepFrameBuffer):
    """Transitions; frames stored once; uniform."""
