"""Sequences with image observations, stored as unique frames."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlpyt.replays.async_ import AsyncReplayBufferMixin
from rlpyt.replays.frame import FrameBufferMixin, as_bytes
from rlpyt.replays.sequence.n_step import SequenceNStepReturnBuffer
from rlpyt.replays.sequence.prioritized import PrioritizedSequenceReplay
from rlpyt.replays.sequence.uniform import UniformSequenceReplay
from rlpyt.utils.lazy import LazyModule

kernels = LazyModule("rlpyt.utils.kernels")


class SequenceNStepFrameBuffer(FrameBufferMixin, SequenceNStepReturnBuffer):
    """Puts the observations of sequences together from stored frames."""

    def extract_observation(self, T_idxs: np.ndarray, B_idxs: np.ndarray, T: int) -> np.ndarray:
        """Return the observations [T,n,C,H,W] of the `T` steps from ``[T_idxs, B_idxs]`` on, frames from OLDEST to NEWEST along C.

        Frames from before the start of the episode are zero.
        """
        T_idxs, B_idxs = self._checked_idxs(T_idxs, B_idxs)
        observation = self._observation_memory(T, len(T_idxs), pin=False)
        self._gather_frames(T_idxs, B_idxs, observation)
        return observation

    def _gather_frames(self, T_idxs: np.ndarray, B_idxs: np.ndarray, observation: np.ndarray) -> None:
        T, n = observation.shape[:2]
        out = as_bytes(observation, T, n, self.n_frames)
        kernels.gather_frames_of_sequences(*self._stored_frames, T_idxs, B_idxs, out, 0, n)

    def _gather_observations(self, m: Any, T_idxs: np.ndarray, B_idxs: np.ndarray) -> None:
        """Write the observations of all steps, which share frames."""
        self._gather_frames(T_idxs, B_idxs, m.observation)


class UniformSequenceReplayFrameBuffer(UniformSequenceReplay, SequenceNStepFrameBuffer):
    """Sequences; frames stored once; uniform."""


class PrioritizedSequenceReplayFrameBuffer(PrioritizedSequenceReplay, SequenceNStepFrameBuffer):
    """Sequences; frames stored once; prioritized."""


class AsyncUniformSequenceReplayFrameBuffer(AsyncReplayBufferMixin, UniformSequenceReplayFrameBuffer):
    """Sequences; frames stored once; uniform; shared by processes."""


class AsyncPrioritizedSequenceReplayFrameBuffer(AsyncReplayBufferMixin, PrioritizedSequenceReplayFrameBuffer):
    """Sequences; frames stored once; prioritized; shared by processes."""
