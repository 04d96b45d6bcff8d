"""Storage of stacked image observations, with each frame stored once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rlpyt.replays.batches import New, rows_like, take_rows
from rlpyt.replays.n_step import BufferMixin
from rlpyt.replays.ring import Ring
from rlpyt.replays.storage import Storage
from rlpyt.utils.buffer import buffer_func, buffer_leaves
from rlpyt.utils.collections import namedarraytuple
from rlpyt.utils.lazy import LazyModule
from rlpyt.utils.structures import dtype_of

kernels = LazyModule("rlpyt.utils.kernels")

# The fields of a step that a frame buffer needs; an example may be of any type with these fields, and have more.
BufferSamples = namedarraytuple(
    "BufferSamples", ["observation", "action", "reward", "done", "timeout", "final_observation"], defaults=(None, None)
)


def stacks_in(observation: Any) -> list[bool]:
    """Return which parts of an observation are stacks of frames [C,H,W]: an array itself; of a structure, its uint8 images."""
    parts = buffer_leaves(observation)
    if parts[0] is observation:
        return [np.ndim(observation) > 1]
    return [np.ndim(part) == 3 and dtype_of(part) == np.uint8 for part in parts]


class Stack:
    """A part of observations that is a stack of frames [C,H,W], and what is known about it.

    Attributes:
        n_frames: C.
        moves_by_frames: whether a part is the previous one moved on by one frame. Known as soon as one differs from the previous one.
        last: the last part that was written, [1,B,C,H,W], and the number of the next row, until that is known.
    """

    def __init__(self, n_frames: int) -> None:
        self.n_frames = n_frames
        self.moves_by_frames = n_frames == 1
        self.last: tuple[np.ndarray, int] | None = None

    def check(self, parts: np.ndarray, starts: np.ndarray, written: int) -> None:
        """Check that appended parts [n,B,C,H,W] will be read back unchanged.

        Each observation is compared with the one before it, until the first pair that differs. That pair must be moved on by one frame.
        Equal pairs tell nothing.

        Args:
            starts: [n,B], bool: where episodes start.
            written: number of the first row.
        """
        if parts[starts][:, :-1].any():
            raise self._not_frames(
                parts,
                "one that starts an episode has older frames that are not zero (but, say, copies of the first frame as "
                "padding), and zeros would be replayed in their place",
            )
        if self.moves_by_frames:
            return
        n = len(parts)
        if self.last is not None and self.last[1] == written:
            parts = np.concatenate([self.last[0], parts])
            starts = np.concatenate([starts[:1], starts])
        self.last = parts[-1:].copy(), written + n
        before, after = parts[:-1][~starts[1:]], parts[1:][~starts[1:]]  # [n,C,H,W]
        if not np.array_equal(before[:, 1:], after[:, :-1]):
            raise self._not_frames(parts, "one is not the one before it moved on by one frame")
        if not np.array_equal(before, after):
            self.moves_by_frames, self.last = True, None

    def _not_frames(self, parts: np.ndarray, reason: str) -> ValueError:
        return ValueError(
            f"Observations of shape {parts.shape[2:]} are not stacks of the {self.n_frames} latest frames, oldest first: {reason}. Use a "
            "buffer that stores full observations, e.g. ReplayBufferCls=UniformReplayBuffer."
        )


class FrameStorage(Storage):
    """Stores only the newest frame of every observation [C,H,W]. An observation is the C latest frames, from OLDEST to NEWEST.

    If observations are structures, such as images with a mask of actions, each uint8 image [C,H,W] in them is stored in this way, and other
    parts whole.

    Reading rebuilds observations, which needs the ``C - 1`` rows before a step. Frames from before the start of an episode are read as
    zeros, so they must have been zeros.

    Attributes:
        stacks: for each part of observations, its `Stack`, or None if the part is stored whole.
    """

    def __init__(self, example: Any, ring: Ring, B: int, share_memory: bool) -> None:
        parts = zip(stacks_in(example.observation), buffer_leaves(example.observation))
        self.stacks = [Stack(len(part)) if is_stack else None for is_stack, part in parts]
        super().__init__(example, ring, B, share_memory)

    @property
    def n_frames(self) -> int:
        """C of the first stack."""
        return next(stack.n_frames for stack in self.stacks if stack is not None)

    @classmethod
    def stored_example(cls, example: Any) -> Any:
        are_stacks = stacks_in(example.observation)
        if not any(are_stacks):
            shapes = [np.shape(part) for part in buffer_leaves(example.observation)]
            raise ValueError(
                "A frame buffer stores observations [C,H,W], the C latest frames, but the example has shape "
                f"{', '.join(map(str, shapes))}: use a buffer without 'Frame' in its name."
            )
        stacks = iter(are_stacks)
        newest = buffer_func(example.observation, lambda part: part[-1] if next(stacks) else part)
        return super().stored_example(example._replace(observation=newest))

    @classmethod
    def rows_before(cls, example: Any) -> int:
        parts = zip(stacks_in(example.observation), buffer_leaves(example.observation))
        return max([1, *(len(part) - 1 for is_stack, part in parts if is_stack)])

    def _by_part(self, function: Callable[[Stack | None, Any], Any], observation: Any) -> Any:
        """Return a structure of ``function(stack, part)`` for the parts of observations."""
        stacks = iter(self.stacks)
        return buffer_func(observation, lambda part: function(next(stacks), part))

    def stored_observation(self, observation: Any) -> Any:
        """Return the newest frames [n,B,H,W] of observations [n,B,C,H,W]."""
        return self._by_part(lambda stack, part: part if stack is None else part[:, :, -1], observation)

    def completed(self, stored: Any, before: Callable[[], Any]) -> Any:
        """Return observations [n,C,H,W] whose newest frames are `stored` [n,H,W]."""
        older = iter(buffer_leaves(before()))

        def complete(stack: Stack | None, part: np.ndarray) -> np.ndarray:
            earlier = next(older)
            return part if stack is None else np.concatenate([earlier[:, 1:], part[:, None]], axis=1)

        return self._by_part(complete, stored)

    # Writing --------------------------------------------------------------------------------------------------------
    def check(self, samples: Any, n: int) -> None:
        super().check(samples, n)
        done = samples.done.astype(bool)
        starts = np.zeros_like(done)  # The very first observation may be any.
        starts[1:] = done[:-1]
        if self.rows.written:
            starts[0] = self.samples.done[self.rows.row(-1)]
        for stack, part in zip(self.stacks, buffer_leaves(samples.observation), strict=True):
            if stack is not None:
                stack.check(part, starts, self.rows.written)

    def _write_observation(self, rows: slice | np.ndarray, observation: Any) -> None:
        for stack, part, stored in zip(self.stacks, buffer_leaves(observation), buffer_leaves(self.samples.observation), strict=True):
            n = part.shape[0] * self.B
            if stack is None:
                stored[rows] = part
            elif isinstance(rows, slice) and part.flags.c_contiguous and part.dtype == stored.dtype:
                kernels.store_newest_frames(_as_bytes(part, n, stack.n_frames), _as_bytes(stored[rows], n))
            else:
                stored[rows] = part[:, :, -1]

    def load_chunk(self, chunk: dict[str, Any], number: int, n: int) -> None:
        super().load_chunk(chunk, number, n)
        for stack in self.stacks:
            if stack is not None:
                stack.last = None  # The next append does not follow it.

    # Reading --------------------------------------------------------------------------------------------------------
    def _frames(self, stack: Stack, memory: np.ndarray) -> tuple[np.ndarray, np.ndarray, int, int, int]:
        """Return the first arguments of the kernels that rebuild a part: frames [T*B,bytes], done [T*B], T, B, C."""
        n = self.size
        return _as_bytes(memory[:n], n), self.memory.done[:n], self.T, self.B, stack.n_frames

    def observation_memory(self, *leading_dims: int, new: New = np.empty) -> Any:
        def of_part(stack: Stack | None, memory: np.ndarray) -> np.ndarray:
            return rows_like(memory, *leading_dims, *([] if stack is None else [stack.n_frames]), new=new)

        return self._by_part(of_part, self.memory.observation)

    def observations(self, T_idxs: np.ndarray, B_idxs: np.ndarray, T: int | None = None) -> Any:
        n = len(T_idxs)
        if T is not None:
            out = self.observation_memory(T, n)
            rows = self.rows.wrap(T_idxs + np.arange(T)[:, None])
            self.gather(rows * self.B + B_idxs, T_idxs, B_idxs, None, out)
            return out
        out = self.observation_memory(n)
        for stack, memory, part in zip(self.stacks, buffer_leaves(self.memory.observation), buffer_leaves(out), strict=True):
            if stack is None:
                part[:] = memory[T_idxs * self.B + B_idxs]
            else:
                kernels.gather_frames(*self._frames(stack, memory), T_idxs, B_idxs, _as_bytes(part, n, stack.n_frames), 0, n)
        return out

    def gather(self, rows: np.ndarray, T_idxs: np.ndarray, B_idxs: np.ndarray, n_steps: np.ndarray | None, out: Any) -> None:
        n = len(T_idxs)
        for stack, memory, part in zip(self.stacks, buffer_leaves(self.memory.observation), buffer_leaves(out), strict=True):
            if stack is None:
                take_rows([(memory, rows, part)])
            elif n_steps is None:
                frames = _as_bytes(part, len(part), n, stack.n_frames)
                kernels.gather_frames_of_sequences(*self._frames(stack, memory), T_idxs, B_idxs, frames, 0, n)
            else:
                frames = _as_bytes(part, 2 * n, stack.n_frames)
                kernels.gather_frames_of_transitions(*self._frames(stack, memory), T_idxs, n_steps, B_idxs, frames[:n], frames[n:], 0, n)


class FramesFromBefore:
    """Reads the frames [T,B,H,W] in memory as if the ``n_frames - 1`` last rows came first, too, so that a stack is a slice of rows.

    ``frames[t : t + n_frames, b]`` is the observation of row t of memory in column b, as long as its episode had begun by then. What is
    read is a copy.

    Attributes:
        shape: [T+n_frames-1,B,H,W].
        dtype: that of the frames.
    """

    def __init__(self, frames: np.ndarray, n_frames: int) -> None:
        self._frames, self._n_before, self.dtype = frames, n_frames - 1, frames.dtype
        self.shape = (len(frames) + self._n_before, *frames.shape[1:])

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: Any) -> np.ndarray:
        rows, *others = key if isinstance(key, tuple) else (key,)
        if not isinstance(rows, slice):
            return self._frames[(np.arange(len(self))[rows] - self._n_before, *others)]  # Negative rows are the last ones.
        first, end, step = rows.indices(len(self))
        if step != 1:
            return self._frames[np.arange(first, end, step) - self._n_before][(slice(None), *others)]
        start, stop = first - self._n_before, max(first, end) - self._n_before
        if start >= 0:
            return self._frames[start:stop][(slice(None), *others)].copy()
        spans = slice(start, min(stop, 0) or None), slice(max(stop, 0))  # Of the last rows, and of the first.
        return np.concatenate([self._frames[span][(slice(None), *others)] for span in spans])


class FrameBufferMixin(BufferMixin):
    """Stores every frame once. Put it in front of an n-step buffer.

    Observations are stacks of frames [C,H,W], or structures with such images, see `FrameStorage`. ``samples.observation`` holds the frames
    [T,B,H,W]. The next ``C - 2`` rows after the cursor cannot be replayed either, because some of their frames are overwritten.

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
    def samples_frames(self) -> FramesFromBefore:
        """Frames [T+C-1,B,H,W], the newest of row t of memory in row ``t + C - 1``, for subclasses that read them.

        Raises:
            ValueError: observations are structures, whose frames are in ``samples.observation`` alone.
        """
        if not isinstance(self.samples.observation, np.ndarray):
            raise ValueError("samples_frames is for observations that are arrays: read samples.observation.")
        return FramesFromBefore(self.samples.observation, self.n_frames)


def _as_bytes(frames: np.ndarray, *leading_dims: int) -> np.ndarray:
    """Return a view of frames as bytes uint8 [...,n] with other leading dimensions."""
    return frames.reshape(*leading_dims, -1).view(np.uint8)
