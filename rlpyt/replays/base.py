"""What a replay buffer is to an algorithm."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlpyt.utils.settings import has

# Optional fields of what an algorithm stores of a batch. Some are [T,B], the others have other leading dimensions. A buffer that takes
# the latter has a method `append_batch`.
OPTIONAL_STEPS = ("timeout", "valid")
BESIDE_STEPS = ("final_observation", "observation_after")


EXAMPLE = has("an example of what is stored, a namedarraytuple", "_replace", "observation", "action", "reward", "done")


class BaseReplayBuffer:
    """Keeps the latest samples and returns random batches of them.

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


def unknown_fields(buffer: Any) -> tuple[str, ...]:
    """Return those of the fields above that the `append_samples` of a buffer of another package cannot take.

    They are the ones that are no steps [T,B,...], and the optional steps for which it has no memory, which it calls `samples`.
    """
    memory = getattr(buffer, "samples", None)
    return (*BESIDE_STEPS, *(name for name in OPTIONAL_STEPS if memory is not None and getattr(memory, name, None) is None))


def without(samples: Any, names: tuple[str, ...]) -> Any:
    """Return `samples`, or a pair of priorities and samples, with None for the fields of these names."""
    if "samples" in samples._fields:
        return samples._replace(samples=without(samples.samples, names))
    return samples._replace(**{name: None for name in names if name in samples._fields})
