"""Transitions that tell whether an episode was truncated."""

from __future__ import annotations

from typing import Any

from rlpyt.replays.async_ import AsyncReplayBufferMixin
from rlpyt.replays.non_sequence.frame import NStepFrameBuffer
from rlpyt.replays.non_sequence.n_step import NStepReturnBuffer, SamplesFromReplay, Transitions
from rlpyt.replays.non_sequence.prioritized import PrioritizedReplay
from rlpyt.replays.non_sequence.uniform import UniformReplay
from rlpyt.utils.collections import namedarraytuple

# A transition, and
#   timeout    the step truncated the episode
#   timeout_n  the episode was truncated within the n steps
SamplesFromReplayTL = namedarraytuple("SamplesFromReplayTL", SamplesFromReplay._fields + ("timeout", "timeout_n"))


class NStepTimeLimitBuffer(NStepReturnBuffer):
    """Buffer of transitions whose batches, `SamplesFromReplayTL`, also have `timeout` and `timeout_n`.

    Appended samples need not have final observations of truncated episodes. Without its final observation, a truncated episode cannot be
    bootstrapped, and `bootstrap_discount` is 0. Leave such samples, with `timeout_n`, out of the loss.

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
