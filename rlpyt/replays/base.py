"""The interface of replay buffers, as algorithms use them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rlpyt.utils.collections import field_of
from rlpyt.utils.completed import Completed
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
    batch_T: int | None = None  # Length of the sequences in a batch; None for transitions.

    def append_samples(self, samples: Any) -> tuple[int, slice | np.ndarray]:
        """Add new samples ``[T,B]``, over the oldest ones if the buffer is full.

        Returns:
            The number T of rows written, and the index of these rows: a slice, or an array [T] if they wrap around.
        """
        raise NotImplementedError

    def sample_batch(self, batch_B: int, batch_T: int | None = None) -> Any:
        """Return a random batch for training: `batch_B` samples, or sequences of `batch_T` steps."""
        raise NotImplementedError


class CompletedReplay(Completed):
    """Any replay buffer, also one of another package, or None, with the optional attributes that algorithms and runners read.

    Attributes:
        samples: memory of steps, a namedtuple; None if the buffer does not show it.
        append_batch: method that takes all optional fields of samples; None if only `append_samples` takes them.
        min_rows: number of rows before a sample is valid.
    """

    samples: Any = None
    append_batch: Callable[[Any], Any] | None = None
    min_rows: int = 1

    def reuse_batches(self, n: int, pin: bool = False) -> None:
        """Write batches into the memory of earlier ones. The default returns batches in new memory."""

    def end_episodes(self, columns: Sequence[int]) -> None:
        """Mark the newest step of these environments as truncated. The default does nothing."""


def unknown_fields(buffer: Any) -> tuple[str, ...]:
    """Return the optional fields that `append_samples` of another package's buffer cannot take.

    These are all of `BESIDE_STEPS`, and those of `OPTIONAL_STEPS` that its memory, the attribute `samples`, lacks.
    """
    memory = CompletedReplay(buffer).samples
    return (*BESIDE_STEPS, *(name for name in OPTIONAL_STEPS if memory is not None and field_of(memory, name) is None))


def without(samples: Any, names: tuple[str, ...]) -> Any:
    """Return `samples`, or a pair of priorities and samples, with None for the named fields."""
    if "samples" in samples._fields:
        return samples._replace(samples=without(samples.samples, names))
    return samples._replace(**{name: None for name in names if name in samples._fields})
