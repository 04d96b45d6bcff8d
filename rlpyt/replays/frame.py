"""Storage of stacked image observations, with each frame stored once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rlpyt.replays.batches import New, rows_like
from rlpyt.replays.n_step import BufferMixin
from rlpyt.replays.ring import Ring
from rlpyt.replays.storage import Storage
from rlpyt.utils.collections import namedarraytuple
from rlpyt.utils.lazy import LazyModule

kernels = LazyModule("rlpyt.utils.kernels")

# The fields of a step that a frame buffer needs; an example may be of any type with these fields, and have more.
BufferSamples = namedarraytuple(
    "BufferSamples", ["observation", "action", "reward", "done", "timeout", "final_observation"], defaults=(None, None)
)


class FrameStorage(Storage):
    """Stores only the newest frame of every observation [C,H,W]. An observation is the C latest frames, from OLDEST to NEWEST.

    Reading rebuilds observations, which needs the ``C - 1`` rows before a step. Frames from before the start of an episode are read as
    zeros, so they must have been zeros.
    """

    def __init__(self, example: Any, ring: Ring, B: int, share_memory: bool) -> None:
        self.n_frames = len(example.observation)
        super().__init__(example, ring, B, share_memory)
        self.moves_by_frames = self.n_frames == 1  # Known as soon as one observation differs from the previous one.
        self._last_observation: tuple[np.ndarray, int] | None = None  # [1,B,...] and the number of the next row, until that is known.

    @classmethod
    def stored_example(cls, example: Any) -> Any:
        shape = np.shape(example.observation)
        if len(shape) < 2:
            raise ValueError(
                "A frame buffer stores observations [C,H,W], the C latest frames, but the example has shape "
                f"{shape}: use a buffer without 'Frame' in its name."
            )
        return super().stored_example(example._replace(observation=example.observation[-1]))

    @classmethod
    def rows_before(cls, example: Any) -> int:
        return max(1, len(example.observation) - 1)

    def stored_observation(self, observation: np.ndarray) -> np.ndarray:
        """Return the newest frames [n,B,H,W] of observations [n,B,C,H,W]."""
        return observation[:, :, -1]

    def completed(self, stored: np.ndarray, before: Callable[[], np.ndarray]) -> np.ndarray:
        """Return observations [n,C,H,W] whose newest frames are `stored` [n,H,W]."""
        return np.concatenate([before()[:, 1:], stored[:, None]], axis=1)

    # Writing --------------------------------------------------------------------------------------------------------
    def check(self, samples: Any, n: int) -> None:
        super().check(samples, n)
        self._check_frames(samples.observation, samples.done.astype(bool))

    def _write_observation(self, rows: slice | np.ndarray, observation: np.ndarray) -> None:
        n, frames = observation.shape[0] * self.B, self.samples.observation
        if isinstance(rows, slice) and observation.flags.c_contiguous and observation.dtype == frames.dtype:
            kernels.store_newest_frames(_as_bytes(observation, n, self.n_frames), _as_bytes(frames[rows], n))
        else:
            frames[rows] = self.stored_observation(observation)

    def load_chunk(self, chunk: dict[str, Any], number: int, n: int) -> None:
        super().load_chunk(chunk, number, n)
        self._last_observation = None  # The next append does not follow it.

    def _check_frames(self, observation: np.ndarray, done: np.ndarray) -> None:
        """Check that appended observations [n,B,C,H,W], with done [n,B], will be read back unchanged.

        Each observation is compared with the previous one, until one differs. That one tells stacks of frames from other images.
        """
        starts = np.zeros_like(done)  # The very first observation may be any.
        starts[1:] = done[:-1]
        if self.rows.written:
            starts[0] = self.samples.done[self.rows.row(-1)]
        if observation[starts][:, :-1].any():
            raise self._not_frames(
                "one that starts an episode has older frames that are not zero (but, say, copies of the first frame as "
                "padding), and zeros would be replayed in their place"
            )
        if self.moves_by_frames:
            return
        written = self.rows.written + len(observation)
        if self._last_observation is not None and self._last_observation[1] == self.rows.written:
            observation = np.concatenate([self._last_observation[0], observation])
            starts = np.concatenate([starts[:1], starts])
        self._last_observation = observation[-1:].copy(), written
        before, after = observation[:-1][~starts[1:]], observation[1:][~starts[1:]]  # [n,C,H,W]
        if np.array_equal(before, after):
            return
        if not np.array_equal(before[:, 1:], after[:, :-1]):
            raise self._not_frames("one is not the one before it moved on by one frame")
        self.moves_by_frames, self._last_observation = True, None

    def _not_frames(self, reason: str) -> ValueError:
        shape = (self.n_frames, *self.samples.observation.shape[2:])
        return ValueError(
            f"Observations of shape {shape} are not stacks of the {self.n_frames} latest frames, oldest first: {reason}. Use a "
            "buffer that stores full observations, e.g. ReplayBufferCls=UniformReplayBuffer."
        )

    # Reading --------------------------------------------------------------------------------------------------------
    @property
    def _frames(self) -> tuple[np.ndarray, np.ndarray, int, int, int]:
        """First arguments of the kernels that rebuild observations: frames [T*B,bytes], done [T*B], T, B, C."""
        n = self.size
        return _as_bytes(self.memory.observation[:n], n), self.memory.done[:n], self.T, self.B, self.n_frames

    def observation_memory(self, *leading_dims: int, new: New = np.empty) -> np.ndarray:
        return rows_like(self.memory.observation, *leading_dims, self.n_frames, new=new)

    def observations(self, T_idxs: np.ndarray, B_idxs: np.ndarray, T: int | None = None) -> np.ndarray:
        n = len(T_idxs)
        out = self.observation_memory(n) if T is None else self.observation_memory(T, n)
        if T is None:
            kernels.gather_frames(*self._frames, T_idxs, B_idxs, _as_bytes(out, n, self.n_frames), 0, n)
        else:
            self.gather(None, T_idxs, B_idxs, None, out)
        return out

    def gather(self, rows: np.ndarray | None, T_idxs: np.ndarray, B_idxs: np.ndarray, n_steps: np.ndarray | None, out: np.ndarray) -> None:
        n = len(T_idxs)
        if n_steps is None:
            frames = _as_bytes(out, len(out), n, self.n_frames)
            kernels.gather_frames_of_sequences(*self._frames, T_idxs, B_idxs, frames, 0, n)
        else:
            frames = _as_bytes(out, 2 * n, self.n_frames)
            kernels.gather_frames_of_transitions(*self._frames, T_idxs, n_steps, B_idxs, frames[:n], frames[n:], 0, n)


class FrameBufferMixin(BufferMixin):
    """Stores every frame once. Put it in front of an n-step buffer.

    Observations are stacks of frames [C,H,W], see `FrameStorage`. ``samples.observation`` holds the frames [T,B,H,W]. The next ``C - 2``
    rows after the cursor cannot be replayed either, because some of their frames are overwritten.

    Raises:
        ValueError: observations are not stacks of frames. `append_samples` also raises it if an observation is not the previous one moved
            on by one frame, or if the first observation of an episode has older frames that are not zero.
    """

    StorageCls = FrameStorage
    storage: FrameStorage

    @property
    def n_frames(self) -> int:
        """C, the number of frames in an observation."""
        return self.storage.n_frames

    @property
    def samples_frames(self) -> np.ndarray:
        """Frames [T,B,H,W]."""
        return self.samples.observation


def _as_bytes(frames: np.ndarray, *leading_dims: int) -> np.ndarray:
    """Return a view of frames as bytes uint8 [...,n] with other leading dimensions."""
    return frames.reshape(*leading_dims, -1).view(np.uint8)
