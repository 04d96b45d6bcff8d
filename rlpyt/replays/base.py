"""The interface of replay buffers, as algorithms use them."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlpyt.utils.settings import has

# Optional fields of the samples that an algorithm stores. The first are [T,B]; the others have other leading dimensions, and need a buffer
# with a method `append_batch`.
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
            The number T of rows written, and the index of these rows: a slice, or an array [T] if they wrap around.
        """
        raise NotImplementedError

    def sample_batch(self, batch_B: int, batch_T: int | None = None) -> Any:
        """Return a random batch for training: `batch_B` samples, or sequences of `batch_T` steps."""
        raise NotImplementedError


def unknown_fields(buffer: Any) -> tuple[str, ...]:
    """Return the optional fields that `append_samples` of another package's buffer cannot take.

    These are all of `BESIDE_STEPS`, and those of `OPTIONAL_STEPS` that its memory, the attribute `samples`, lacks.
    """
    memory = getattr(buffer, "samples", None)
    return (*BESIDE_STEPS, *(name for name in OPTIONAL_STEPS if memory is not None and getattr(memory, name, None) is None))


def without(samples: Any, names: tuple[str, ...]) -> Any:
    """Return `samples`, or a pair of priorities and samples, with None for the named fields."""
    if "samples" in samples._fields:
        return samples._replace(samples=without(samples.samples, names))
    return samples._replace(**{name: None for name in names if name in samples._fields})
