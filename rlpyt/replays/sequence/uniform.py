"""Uniform replay of sequences."""

from rlpyt.replays.async_ import AsyncReplayBufferMixin
from rlpyt.replays.non_sequence.uniform import UniformReplay
from rlpyt.replays.sequence.n_step import SequenceNStepReturnBuffer


class UniformSequenceReplay(UniformReplay):
    """Replays sequences, with the same probability for all valid starts. Put it in front of a sequence buffer."""


class UniformSequenceReplayBuffer(UniformSequenceReplay, SequenceNStepReturnBuffer):
    """Sequences; full observations; uniform."""


class AsyncUniformSequenceReplayBuffer(AsyncReplayBufferMixin, UniformSequenceReplayBuffer):
    """Sequences; full observations; uniform; shared by processes."""
