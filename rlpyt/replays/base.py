"""What a replay buffer is to an algorithm."""

from __future__ import annotations

from typing import Any


class BaseReplayBuffer:
    """Keeps the latest samples and hands out random batches of them.

    Attributes:
        async_: whether several processes use the buffer; its memory is then shared between them.
    """

    async_ = False

    def append_samples(self, samples: Any) -> None:
        """Add new samples ``[T,B]``, over the oldest ones if the buffer is full."""
        raise NotImplementedError

    def sample_batch(self, batch_B: int, batch_T: int | None = None) -> Any:
        """Return a random batch for training: `batch_B` samples, or sequences of `batch_T` steps."""
        raise NotImplementedError
