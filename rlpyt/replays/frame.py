"""Storage of image observations that share frames: each frame once."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlpyt.replays.base import EXAMPLE
from rlpyt.replays.batches import rows_like
from rlpyt.utils.collections import namedarraytuple
from rlpyt.utils.lazy import LazyModule
from rlpyt.utils.settings import checked

kernels = LazyModule("rlpyt.utils.kernels")

# The fields of a step that a frame buffer works with; an example may be of any type that has them, and more.
BufferSamples = namedarraytuple(
    "BufferSamples", ["observation", "action", "reward", "done", "timeout", "final_observation"], defaults=(None, None)
)


class FrameBufferMixin:
    """Stores of every observation [C,H,W], the C latest frames from OLDEST to NEWEST, only the newest one.

    To put in front of an n-step buffer, whose ``samples.observation`` then holds the frames [T,B,H,W]. What
    reads them puts observations together again, so that besides the rows that the n-step buffer leaves out,
    those up to ``C - 2`` after the cursor cannot be replayed, because part of their frames has been
    overwritten. Frames from before the start of an episode are read out as zeros, which they must have been.

    Raises:
        ValueError: observations are not stacks of frames.
    """

    @checked(example=EXAMPLE)
    def __init__(self, example: Any, **kwargs: Any) -> None:
        shape = np.shape(example.observation)
        if len(shape) < 2:
            raise ValueError(
                "A frame buffer stores observations [C,H,W], the C latest frames, but the example has shape "
                f"{shape}: use a buffer without 'Frame' in its name."
            )
        self.n_frames = shape[0]
        self._moves_by_frames = self.n_frames == 1  # Known of observations, as soon as one differed from the one before.
        self._last_observation = None  # [1,B,...], and the number of the row after it, until that is known.
        self.off_forward = max(self.off_forward, self.n_frames - 1)
        super().__init__(example=example._replace(observation=example.observation[-1]), **kwargs)

    @property
    def samples_frames(self) -> np.ndarray:
        """Frames [T,B,H,W]."""
        return self.samples.observation

    def append_samples(self, samples: Any) -> tuple[int, slice | np.ndarray]:
        """Append samples with observations [T',B,C,H,W], and final observations [K,B,C,H,W] if there are any.

        Raises:
            ValueError: an observation is not the previous one moved on by one frame, or one that follows the end
                of an episode has older frames that are not zero.
        """
        return super().append_samples(samples)

    def _stored_observation(self, samples: Any, name: str) -> Any:
        """Return the newest frames [K,B,H,W] of the base class's observations [K,B,C,H,W]."""
        observation = super()._stored_observation(samples, name)
        return None if observation is None else observation[:, :, -1]

    def _expected_samples(self, example: Any) -> list[tuple[str, tuple, np.dtype]]:
        leaves = super()._expected_samples(example)
        return [(name, (self.n_frames, *shape) if name == "observation" else shape, dtype) for name, shape, dtype in leaves]

    def _check_samples(self, samples: Any, n: int) -> None:
        super()._check_samples(samples, n)
        self._check_frames(samples.observation, samples.done.astype(bool))

    def _write_observation(self, rows: slice | np.ndarray, observation: np.ndarray) -> None:
        """Store the newest frames of observations [n,B,C,H,W]."""
        n = observation.shape[0] * self.B
        if isinstance(rows, slice) and observation.flags.c_contiguous and observation.dtype == self.samples_frames.dtype:
            kernels.store_newest_frames(as_bytes(observation, n, self.n_frames), as_bytes(self.samples_frames[rows], n))
        else:
            self.samples_frames[rows] = observation[:, :, -1]

    def _observation_memory(self, *leading_dims: int, pin: bool) -> np.ndarray:
        """Allocate memory for observations put together, [...,C,H,W]."""
        return rows_like(self._rows.observation, *leading_dims, self.n_frames, pin=pin)

    @property
    def _stored_frames(self) -> tuple[Any, ...]:
        """First arguments of the kernels that put observations together: frames [T*B,bytes], done [T*B], T, B, C."""
        n = self.size
        return as_bytes(self._rows.observation[:n], n), self._rows.done[:n], self.T, self.B, self.n_frames

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore what `state_dict` returned; errors as of that of the buffer."""
        super().load_state_dict(state_dict)
        self._last_observation = None  # What comes next does not follow it.

    def _check_frames(self, observation: np.ndarray, done: np.ndarray) -> None:
        """Check that the observations to append are what will be read out, [T',B,C,H,W] and done [T',B].

        The comparison of all observations with those before them ends with the first that differed, which tells a stack of
        frames from other images.
        """
        starts = np.zeros_like(done)  # The first observation of all may be any.
        starts[1:] = done[:-1]
        if self.ring.written:
            starts[0] = self.samples.done[self.ring.t - 1]
        if observation[starts][:, :-1].any():
            raise self._not_frames(
                "one that starts an episode has older frames that are not zero (but, say, copies of the first frame as "
                "padding), and zeros would be replayed in their place"
            )
        if self._moves_by_frames:
            return
        written = self.ring.written + len(observation)
        if self._last_observation is not None and self._last_observation[1] == self.ring.written:
            observation = np.concatenate([self._last_observation[0], observation])
            starts = np.concatenate([starts[:1], starts])
        self._last_observation = observation[-1:].copy(), written
        before, after = observation[:-1][~starts[1:]], observation[1:][~starts[1:]]  # [n,C,H,W]
        if np.array_equal(before, after):
            return
        if not np.array_equal(before[:, 1:], after[:, :-1]):
            raise self._not_frames("one is not the one before it moved on by one frame")
        self._moves_by_frames, self._last_observation = True, None

    def _not_frames(self, reason: str) -> ValueError:
        shape = (self.n_frames, *self.samples_frames.shape[2:])
        return ValueError(
            f"Observations of shape {shape} are not stacks of the {self.n_frames} latest frames, oldest first: {reason}. Use a "
            "buffer that stores full observations, e.g. ReplayBufferCls=UniformReplayBuffer."
        )


def as_bytes(frames: np.ndarray, *leading_dims: int) -> np.ndarray:
    """Return frames as bytes uint8 [...,n] with other leading dimensions, over the same memory."""
    return frames.reshape(*leading_dims, -1).view(np.uint8)
