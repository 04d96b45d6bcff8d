"""Images in structures of observations, such as those with a mask of actions, are stored frame by frame, and read back as they were."""

from collections import namedtuple

import numpy as np
import pytest
import torch

from rlpyt.algos.dqn.dqn import DQN
from rlpyt.algos.dqn.r2d1 import R2D1
from rlpyt.algos.qpg.ensemble_sac import DiscreteSAC
from rlpyt.algos.replay import SamplesToBuffer, is_frame_stack
from rlpyt.replays.async_ import AsyncReplayBufferMixin
from rlpyt.replays.non_sequence.frame import AsyncUniformReplayFrameBuffer, PrioritizedReplayFrameBuffer, UniformReplayFrameBuffer
from rlpyt.replays.non_sequence.prioritized import PrioritizedReplayBuffer
from rlpyt.replays.non_sequence.uniform import UniformReplayBuffer
from rlpyt.replays.sequence.frame import UniformSequenceReplayFrameBuffer
from rlpyt.replays.sequence.uniform import UniformSequenceReplayBuffer
from rlpyt.spaces.masked import MaskedObservation
from rlpyt.utils.buffer import buffer_func, buffer_leaves, torchify_buffer

B, H, W = 3, 5, 4
Inner = namedtuple("Inner", ["left", "speed"])
Outer = namedtuple("Outer", ["inner", "right", "position"])
KINDS = {  # Structures, by stacks of (C) frames and other parts.
    "mask": lambda stack, whole: MaskedObservation(stack(4), whole(6, np.int8)),
    "nested": lambda stack, whole: Outer(Inner(stack(3), whole(2, np.float32)), stack(2), whole(3, np.float64)),
}
BUFFERS = {
    "transitions": (UniformReplayFrameBuffer, UniformReplayBuffer),
    "prioritized": (PrioritizedReplayFrameBuffer, PrioritizedReplayBuffer),
    "sequences": (UniformSequenceReplayFrameBuffer, UniformSequenceReplayBuffer),
}


class Play:
    """Episodes of 1 to 7 steps, a third of them truncated, whose observations consist of random frames and numbers."""

    def __init__(self, kind, seed=0):
        self.kind, self.rng = kind, np.random.default_rng(seed)
        self.done = np.ones(B, bool)
        self.observation = self._structure(lambda c: np.zeros((B, c, H, W), np.uint8))
        self.observation = self.following(self.done)

    def _structure(self, stack):
        return KINDS[self.kind](stack, lambda n, dtype: self.rng.integers(0, 2, (B, n)).astype(dtype))

    def following(self, started):
        """The next observations [B,...], of episodes that start where `started`."""
        old = iter(buffer_leaves(self.observation))

        def move(part):
            before = next(old)
            if part.ndim < 4:
                return part
            before = np.where(started[:, None, None, None], 0, before)
            return np.concatenate([before[:, 1:], self.rng.integers(1, 256, (B, 1, H, W), np.uint8)], axis=1)

        return buffer_func(self._structure(lambda c: np.zeros((B, c, H, W), np.uint8)), move)

    def batch(self, T):
        rows, ends = [], []
        for _ in range(T):
            now, self.done = self.observation, self.rng.random(B) < 0.3
            timeout = self.done & (self.rng.random(B) < 0.4)
            last = self.following(np.zeros(B, bool))
            ends.append((timeout, last))
            rows.append((now, self.rng.integers(0, 6, B), self.rng.standard_normal(B).astype(np.float32), self.done, timeout))
            firsts = iter(buffer_leaves(self.following(self.done)))
            self.observation = buffer_func(
                last, lambda x, firsts=firsts: np.where(self.done.reshape(B, *[1] * (x.ndim - 1)), next(firsts), x)
            )
        stacked = [self._stack([row[i] for row in rows]) for i in range(5)]
        n = max(1, max(sum(timeout[b] for timeout, _ in ends) for b in range(B)))
        final = buffer_func(ends[0][1], lambda x: np.zeros((n, *x.shape), x.dtype))
        for b in range(B):
            for k, last in enumerate(last for timeout, last in ends if timeout[b]):
                for out, part in zip(buffer_leaves(final), buffer_leaves(last)):
                    out[k, b] = part[b]
        return SamplesToBuffer(*stacked, final_observation=final)

    @staticmethod
    def _stack(values):
        if not isinstance(values[0], tuple):
            return np.stack(values)
        columns = [iter(buffer_leaves(value)) for value in values]
        return buffer_func(values[0], lambda _: np.stack([next(column) for column in columns]))


def example_of(samples):
    def one(value):
        return buffer_func(value, lambda x: x[0, 0])

    fields = ("observation", "action", "reward", "done", "timeout")
    return SamplesToBuffer(**{name: one(getattr(samples, name)) for name in fields})


def make(Cls, example, size=60):
    settings = dict(rnn_state_interval=0, batch_T=5) if "Sequence" in Cls.__name__ else {}
    return Cls(example=example, size=size, B=B, discount=0.9, n_step_return=2, **settings)


def without_ends(samples, Cls):
    return samples._replace(final_observation=None) if "Sequence" in Cls.__name__ else samples


def assert_equal(ours, theirs):
    for a, b in zip(buffer_leaves(ours), buffer_leaves(theirs), strict=True):
        assert a.dtype == b.dtype and torch.equal(torch.as_tensor(a), torch.as_tensor(b))


def compare(ours, theirs):
    starts = valid_starts(ours)  # Frames need more rows after the cursor.
    batches = [buffer.extract_batch(*starts, *([5] if "Sequence" in type(buffer).__name__ else [])) for buffer in (ours, theirs)]
    assert len(starts[0]) and isinstance(batches[0], tuple)
    assert_equal(*batches)


def valid_starts(buffer):
    back, forward = buffer.start_zones()
    numbers = np.arange(max(buffer.ring.claimed - buffer.T + forward, forward), buffer.ring.written - back)
    T_idxs, B_idxs = np.meshgrid(numbers % buffer.T, np.arange(B), indexing="ij")
    return T_idxs.ravel(), B_idxs.ravel()


@pytest.mark.parametrize("name", BUFFERS)
@pytest.mark.parametrize("kind", KINDS)
def test_batches_are_those_of_whole_storage_bit_for_bit(kind, name):
    play = Play(kind)
    batch = play.batch(4)
    example = example_of(batch)
    buffers = [make(Cls, example) for Cls in BUFFERS[name]]
    for i in range(14):  # 56 rows; the memory has 20.
        for buffer in buffers:
            buffer.append_samples(torchify_buffer(without_ends(batch, type(buffer))))
        if i > 2:
            compare(*buffers)
        batch = play.batch(4)
    frames, whole = (sum(leaf.nbytes for leaf in buffer_leaves(buffer.samples.observation)) for buffer in buffers)
    assert frames < 0.6 * whole
    restored = make(BUFFERS[name][0], example)
    restored.load_state_dict(buffers[0].state_dict())
    compare(restored, buffers[1])
    restored.append_samples(torchify_buffer(without_ends(batch, type(restored))))


def test_processes_share_them():
    batch = Play("mask").batch(4)
    buffer = make(AsyncUniformReplayFrameBuffer, example_of(batch))
    assert isinstance(buffer, AsyncReplayBufferMixin) and buffer.samples.observation.observation.shape == (20, B, H, W)
    buffer.append_samples(torchify_buffer(batch))
    assert np.array_equal(buffer.samples.observation.action_mask[:4], batch.observation.action_mask)


@pytest.mark.parametrize("kind, part", [("mask", "observation"), ("nested", "right")])
def test_images_that_are_no_frames_are_refused(kind, part):
    batch = Play(kind).batch(6)
    buffer = make(UniformReplayFrameBuffer, example_of(batch))
    wrong = batch.observation._replace(
        **{part: np.random.default_rng(1).integers(1, 256, getattr(batch.observation, part).shape, np.uint8)}
    )
    with pytest.raises(ValueError, match="are not stacks of the"):
        buffer.append_samples(torchify_buffer(batch._replace(observation=wrong)))
    Pair = namedtuple("Pair", ["a", "b"])
    example = example_of(batch)._replace(observation=Pair(np.zeros(3, np.float32), np.zeros((2, 3), np.uint8)))
    with pytest.raises(ValueError, match=r"the example has shape \(3,\), \(2, 3\): use a buffer without 'Frame'"):
        make(UniformReplayFrameBuffer, example)


def appended(images, done, chunk):
    """A buffer with observations of images [n,C,H,W] and an array, appended by `chunk` rows."""
    n = len(images)
    observation = MaskedObservation(images[:, None], np.ones((n, 1, 2), np.int8))
    nothing = np.zeros((n, 1))
    samples = SamplesToBuffer(observation, nothing.astype(int), nothing.astype(np.float32), done[:, None], nothing.astype(bool))
    buffer = UniformReplayFrameBuffer(example=example_of(samples), size=2 * n, B=1, discount=0.9, n_step_return=1)
    for start in range(0, n, chunk):
        buffer.append_samples(buffer_func(samples, lambda x, start=start: x[start : start + chunk] if x is not None else None))
    return buffer


@pytest.mark.parametrize("chunk", [1, 4, 12])
def test_an_image_of_different_channels_that_never_changes_is_refused(chunk):
    """Its older channels would be replayed as copies of the last one."""
    image = np.random.default_rng(0).integers(1, 256, (3, H, W), np.uint8)
    with pytest.raises(ValueError, match="not stacks of the 3 latest frames, oldest first: one is not the one before it moved on"):
        appended(np.stack([image] * 12), np.zeros(12, bool), chunk)


@pytest.mark.parametrize("chunk", [1, 4, 12])
@pytest.mark.parametrize("is_black", [False, True])
def test_frames_that_repeat_are_a_stack(chunk, is_black):
    """A paused game, in two episodes with a blank row between: the stack changes until it is full of copies of one frame."""
    frame = np.zeros((H, W), np.uint8) if is_black else np.random.default_rng(0).integers(1, 256, (H, W), np.uint8)
    episode = [np.stack([frame * (i + t >= 2) for i in range(3)]) for t in range(6)]  # [0,0,f], [0,f,f], then [f,f,f].
    images = np.stack([*episode, np.zeros((3, H, W), np.uint8), *episode])
    done = np.isin(np.arange(13), (5, 6))
    buffer = appended(images, done, chunk)
    rows = np.array([2, 3, 4, 7, 8, 9, 10])
    replayed = buffer.extract_batch(rows, np.zeros(len(rows), int)).agent_inputs.observation.observation
    assert np.array_equal(replayed, images[rows])


def test_algorithms_choose_frames_under_masks_and_whole_images_in_other_structures():
    masked, nested = (example_of(Play(kind).batch(1)) for kind in KINDS)
    assert is_frame_stack(masked.observation) and not is_frame_stack(nested.observation)
    for algo in (DQN(), R2D1(prioritized_replay=False), DiscreteSAC()):
        names = [algo.default_replay_buffer_cls(example).__name__ for example in (masked, nested)]
        assert "Frame" in names[0] and "Frame" not in names[1]
