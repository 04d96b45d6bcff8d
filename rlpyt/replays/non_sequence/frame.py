"""Transitions with image observations, stored as unique frames."""

from __future__ import annotations

from rlpyt.replays.async_ import AsyncReplayBufferMixin
from rlpyt.replays.frame import FrameBufferMixin
from rlpyt.replays.non_sequence.n_step import NStepReturnBuffer
from rlpyt.replays.non_sequence.prioritized import PrioritizedReplay
from rlpyt.replays.non_sequence.uniform import UniformReplay


class NStepFrameBuffer(FrameBufferMixin, NStepReturnBuffer):
    """Transitions; frames stored once."""


class UniformReplayFrameBuffer(UniformReplay, NStepFrameBuffer):
    """Transitions; frames stored once; uniform."""


class PrioritizedReplayFrameBuffer(PrioritizedReplay, NStepFrameBuffer):
    """Transitions; frames stored once; prioritized."""


class AsyncUniformReplayFrameBuffer(AsyncReplayBufferMixin, UniformReplayFrameBuffer):
    """Transitions; frames stored once; uniform; shared by processes."""


class AsyncPrioritizedReplayFrameBuffer(AsyncReplayBufferMixin, PrioritizedReplayFrameBuffer):
    """Transitions; frames stored once; prioritized; shared by processes."""
