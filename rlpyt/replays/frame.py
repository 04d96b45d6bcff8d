"""Storage of image observations that share frames: each frame once."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlpyt.utils.buffer import numpify_buffer


class FrameBufferMixin:
    """Stores of every observation [C,H,W], the C latest frames from OLDEST to NEWEST, only the newest one.

    To put in front of an n-step buffer, whose ``samples.observation`` then holds the frames [T,B,H,W]. What
    reads them puts observations together again, so that besides the rows that the n-step buffer leaves out,
    those up to ``C - 2`` after the cursor cannot be replayed, because part of their frames has been
    overwritten.

    Raises:
        ValueError: observations are not stacks of frames.
    """

    def __init__(self, example: Any, **kwargs: Any) -> None:
        shape = np.shape(example.observation)
        if len(shape) < 2:
            raise ValueError(
                "A frame buffer stores observations [C,H,W], the C latest frames, but the example has shape "
                f"{shape}: use a buffer without 'Frame' in its name."
            )
        self.n_frames = shape[0]
        self._frames_checked = self.n_frames == 1
        self._unchecked = None  # The last observation and done [1,B,...], until the check is done.
        super().__init__(example=example._replace(observation=example.observation[-1]), **kwargs)
        self.off_forward = max(self.off_forward, self.n_frames - 1)

    @property
    def samples_frames(self) -> np.ndarray:
        """Frames [T,B,H,W]."""
        return self.samples.observation

    def append_samples(self, samples: Any) -> None:
        """Append samples with observations [T',B,C,H,W], and final observations [K,B,C,H,W] if there are any.

        Raises:
            ValueError: an observation is not the previous one moved on by one frame.
        """
        samples = numpify_buffer(samples)
        if not self._frames_checked:
            self._check_frames(samples)
        newest = samples._replace(observation=samples.observation[:, :, -1])
        if getattr(samples, "final_observation", None) is not None:
            newest = newest._replace(final_observation=samples.final_observation[:, :, -1])
        super().append_samples(newest)

    def _check_frames(self, samples: Any) -> None:
        """Compare each observation with the one before it, until one that differed tells a stack of frames from other images."""
        observation, done = samples.observation, samples.done.astype(bool)
        if self._unchecked is not None:
            observation = np.concatenate([self._unchecked[0], observation])
            done = np.concatenate([self._unchecked[1], done])
        self._unchecked = observation[-1:].copy(), done[-1:].copy()
        before, after = observation[:-1][~done[:-1]], observation[1:][~done[:-1]]  # [n,C,H,W]
        if np.array_equal(before, after):
            return
        if not np.array_equal(before[:, 1:], after[:, :-1]):
            raise ValueError(
                f"Observations of shape {observation.shape[2:]} are not stacks of the {self.n_frames} latest "
                "frames, oldest first: one is not the one before it moved on by one frame. Use a buffer that "
                "stores full observations, e.g. ReplayBufferCls=UniformReplayBuffer."
            )
        self._frames_checked, self._unchecked = True, None
