"""What a replay buffer is to an algorithm."""

from __future__ import annotations

from typing import Any

import numpy as np

# Fields of what an algorithm stores of a batch, besides those that every buffer stores: some are [T,B], the others have leading
# dimensions of their own. See `append_batch`.
OPTIONAL_STEPS = ("timeout", "valid")
BESIDE_STEPS = ("final_observation", "observation_after")


class BaseReplayBuffer:
    """Keeps the latest samples and hands out random batches of them.

    Attributes:
        async_: whether several processes use the buffer; its memory is then shared between them.
    """

    async_ = False

    def append_samples(self, samples: Any) -> tuple[int, slice | np.ndarray]:
        """Add new samples ``[T,B]``, over the oldest ones if the buffer is full.

        Returns:
            The number T of rows written, and the index of these rows: a slice, or an array [T] where they wrap around.
        """
        raise NotImplementedError

    def sample_batch(self, batch_B: int, batch_T: int | None = None) -> Any:
        """Return a random batch for training: `batch_B` samples, or sequences of `batch_T` steps."""
        raise NotImplementedError


def append_batch(buffer: Any, samples: Any) -> None:
    """Append what an algorithm stores of a batch to a replay buffer of any kind.

    A buffer that knows the fields of `BESIDE_STEPS` has a method `append_batch`, which takes all fields. Any other buffer gets the steps
    alone.
    """
    if hasattr(buffer, "append_batch"):
        buffer.append_batch(samples)
    else:
        buffer.append_samples(only_steps(samples, getattr(buffer, "samples", None)))


def only_steps(samples: Any, memory: Any) -> Any:
    """Return `samples` with None for the fields that are no steps [T,B,...], and for the optional steps that `memory` has no room for.

    Args:
        samples: of an algorithm; or a pair with priorities, whose field `samples` they are.
        memory: structure of arrays in which the buffer stores steps; None if it has none.
    """
    if "samples" in samples._fields:
        return samples._replace(samples=only_steps(samples.samples, memory))
    dropped = [name for name in OPTIONAL_STEPS if memory is not None and getattr(memory, name, None) is None]
    return samples._replace(**{name: None for name in (*dropped, *BESIDE_STEPS) if name in samples._fields})
