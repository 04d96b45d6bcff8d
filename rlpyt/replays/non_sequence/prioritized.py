"""Prioritized replay of transitions."""

from __future__ import annotations

from typing import Any

from rlpyt.replays.async_ import AsyncReplayBufferMixin
from rlpyt.replays.non_sequence.n_step import NStepReturnBuffer, SamplesFromReplay
from rlpyt.replays.prioritized import EPS, Prioritization, weighted

__all__ = ["EPS", "SamplesFromReplayPri", "PrioritizedReplay", "PrioritizedReplayBuffer", "AsyncPrioritizedReplayBuffer"]

# A transition, and
#   is_weights  float32, importance-sampling weight, at most 1
#   ids         int64, what the sample is called in `update_batch_priorities`
SamplesFromReplayPri = weighted(SamplesFromReplay)


class PrioritizedReplay(Prioritization):
    """Replays single steps in proportion to ``priority ** alpha``; to put in front of an n-step buffer."""

    def sample_batch(self, batch_B: int) -> Any:
        """Return a batch of `batch_B` samples; see `extract_batch` and `gather_batch`."""
        return super().sample_batch(batch_B)


class PrioritizedReplayBuffer(PrioritizedReplay, NStepReturnBuffer):
    """Transitions; full observations; prioritized."""


class AsyncPrioritizedReplayBuffer(AsyncReplayBufferMixin, PrioritizedReplayBuffer):
    """Transitions; full observations; prioritized; shared by processes."""
