"""Uniform replay of transitions."""

from rlpyt.replays.async_ import AsyncReplayBufferMixin
from rlpyt.replays.draws import Draws, UniformDraws
from rlpyt.replays.non_sequence.n_step import NStepReturnBuffer


class UniformReplay:
    """Replays all valid steps with the same probability. Put it in front of an n-step buffer."""

    DrawsCls: type[Draws] = UniformDraws


class UniformReplayBuffer(UniformReplay, NStepReturnBuffer):
    """Transitions; full observations; uniform."""


class AsyncUniformReplayBuffer(AsyncReplayBufferMixin, UniformReplayBuffer):
    """Transitions; full observations; uniform; shared by processes."""
