"""Transitions that say where an episode was truncated."""

from __future__ import annotations

from typing import Any

from rlpyt.replays.async_ import AsyncReplayBufferMixin
from rlpyt.replays.non_sequence.frame import NStepFrameBuffer
from rlpyt.replays.non_sequence.n_step import NStepReturnBuffer, SamplesFromReplay, Transitions
from rlpyt.replays.non_sequence.prioritized import PrioritizedReplay
from rlpyt.replays.non_sequence.uniform import UniformReplay
from rlpyt.utils.collections import namedarraytuple

# A transition, and
#   timeout    the episode was truncated with the step
#   timeout_n  the episode was truncated within the n steps
SamplesFromReplayTL = namedarraytuple("SamplesFromReplayTL", SamplesFromReplay._fields + ("timeout", "timeout_n"))


class NStepTimeLimitBuffer(NStepReturnBuffer):
    """Buffer of transitions whose batches, `SamplesFromReplayTL`, have `timeout` and `timeout_n` as well.

    Samples need not bring the observations that ended truncated episodes. Where such an observation is missing, nothing can be
    bootstrapped, so that `bootstrap_discount` is 0: leave samples with `timeout_n` out of the loss then.

    Raises:
        ValueError: the example has no field `timeout`.
    """

    requires_final_observations = False

    def _make_layout(self, example: Any) -> Transitions:
        if not len(self.storage.timeout):
            raise ValueError(
                f"{type(self).__name__} needs samples with a field 'timeout', and the example has none: add it, or use a buffer "
                "without 'Tl' in its name."
            )
        return Transitions(self.storage, self.returns, self.ends, self._batches, SamplesFromReplayTL)


class TlUniformReplayBuffer(UniformReplay, NStepTimeLimitBuffer):
    """Transitions; full observations; time limits; uniform."""


class TlPrioritizedReplayBuffer(PrioritizedReplay, NStepTimeLimitBuffer):
    """Transitions; full observations; time limits; prioritized."""


class TlUniformReplayFrameBuffer(UniformReplay, NStepTimeLimitBuffer, NStepFrameBuffer):
    """Transitions; frames stored once; time limits; uniform."""


class AsyncTlUniformReplayBuffer(AsyncReplayBufferMixin, TlUniformReplayBuffer):
    """Transitions; full observations; time limits; uniform; shared by processes."""


class AsyncTlPrioritizedReplayBuffer(AsyncReplayBufferMixin, TlPrioritizedReplayBuffer):
    """Transitions; full observations; time limits; prioritized; shared by processes."""


class AsyncTlUniformReplayFrameBuffer(AsyncReplayBufferMixin, TlUniformReplayFrameBuffer):
    """Transitions; frames stored once; time limits; uniform; shared by processes."""
