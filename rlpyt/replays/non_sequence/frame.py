"""Transitions with image observations, stored as unique frames."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlpyt.replays.async_ import AsyncReplayBufferMixin
from rlpyt.replays.frame import FrameBufferMixin, as_bytes
from rlpyt.replays.non_sequence.n_step import NStepReturnBuffer
from rlpyt.replays.non_sequence.prioritized import PrioritizedReplay
from rlpyt.replays.non_sequence.uniform import UniformReplay
from rlpyt.utils.lazy import LazyModule

kernels = LazyModule("rlpyt.utils.kernels")


class NStepFrameBuffer(FrameBufferMixin, NStepReturnBuffer):
    """Puts observations together from stored frames."""

    def extract_observation(self, T_idxs: np.ndarray, B_idxs: np.ndarray) -> np.ndarray:
        """Return the observations [n,C,H,W] at ``[T_idxs, B_idxs]``, frames from OLDEST to NEWEST along C.

        Frames from before the start of the episode are zero.
        """
        T_idxs, B_idxs = self._checked_idxs(T_idxs, B_idxs)
        n = len(T_idxs)
        observation = self._observation_memory(n, pin=False)
        kernels.gather_frames(*self._stored_frames, T_idxs, B_idxs, as_bytes(observation, n, self.n_frames), 0, n)
        return observation

    def extract_final_observation(self, T_idxs: np.ndarray, B_idxs: np.ndarray) -> np.ndarray:
        """Return the observations [n,C,H,W] that ended the episodes truncated at ``[T_idxs, B_idxs]``."""
        newest = super().extract_final_observation(T_idxs, B_idxs)
        return np.concatenate([self.extract_observation(T_idxs, B_idxs)[:, 1:], newest[:, None]], axis=1)

    def _gather_observations(self, m: Any, T_idxs: np.ndarray, B_idxs: np.ndarray) -> None:
        """Write the observations of both ends, which share frames."""
        n = len(T_idxs)
        ends = as_bytes(m.observation, 2 * n, self.n_frames)
        kernels.gather_frames_of_transitions(*self._stored_frames, T_idxs, m.n_steps, B_idxs, ends[:n], ends[n:], 0, n)


class UniformReplayFrameBuffer(UniformReplay, NStepFrameBuffer):
    """Transitions; frames stored once; uniform."""


class PrioritizedReplayFrameBuffer(PrioritizedReplay, NStepFrameBuffer):
    """Transitions; frames stored once; prioritized."""


class AsyncUniformReplayFrameBuffer(AsyncReplayBufferMixin, UniformReplayFrameBuffer):
    """Transitions; frames stored once; uniform; shared by processes."""


class AsyncPrioritizedReplayFrameBuffer(AsyncReplayBufferMixin, PrioritizedReplayFrameBuffer):
    """Transitions; frames stored once; prioritized; shared by processes."""
