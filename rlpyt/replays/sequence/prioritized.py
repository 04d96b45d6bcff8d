"""Prioritized replay of sequences."""

from __future__ import annotations

from rlpyt.replays.async_ import AsyncReplayBufferMixin
from rlpyt.replays.draws import Draw
from rlpyt.replays.non_sequence.prioritized import PrioritizedReplay
from rlpyt.replays.prioritized import PrioritizedDraws, weighted
from rlpyt.replays.sequence.n_step import SamplesFromReplay, SequenceNStepReturnBuffer

# Sequences, and
#   is_weights  [B], float32, importance-sampling weight, at most 1
#   ids         [B], int64, id of the sequence for `update_batch_priorities`
SamplesFromReplayPri = weighted(SamplesFromReplay)


class PrioritizedSequenceReplay(PrioritizedReplay):
    """Replays sequences of `batch_T` steps in proportion to ``priority ** alpha``. Put it in front of a sequence buffer.

    Each start has a priority, so there is one priority per `rnn_state_interval` steps. The constructor needs `batch_T`.

    Raises:
        ValueError: `batch_T` is missing.
    """

    weights_eps = 0.0
    batch_T: int | None

    def _length(self, batch_T: int | None) -> int:
        if self.batch_T is None or batch_T not in (None, self.batch_T):
            raise ValueError(f"batch_T={batch_T} cannot be drawn by priority, since the buffer was made for batch_T={self.batch_T}.")
        return self.batch_T

    def _make_draws(self) -> PrioritizedDraws:
        if self.batch_T is None:
            raise ValueError("Prioritized replay of sequences needs batch_T, since their length determines where they can start.")
        return super()._make_draws()

    def _draw(self, batch_B: int, batch_T: int | None = None) -> Draw:
        batch_T = self._length(batch_T)
        draw = super()._draw(batch_B)
        return draw._replace(where=(*draw.where, batch_T))


class PrioritizedSequenceReplayBuffer(PrioritizedSequenceReplay, SequenceNStepReturnBuffer):  # type: ignore[misc]
    """Sequences; full observations; prioritized."""


class AsyncPrioritizedSequenceReplayBuffer(AsyncReplayBufferMixin, PrioritizedSequenceReplayBuffer):
    """Sequences; full observations; prioritized; shared by processes."""
