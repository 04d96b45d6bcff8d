"""Sampling in two steps: draw which stored samples to replay, then gather them."""

from __future__ import annotations

from functools import cache
from inspect import signature
from typing import Any, NamedTuple

import numpy as np

# After this many batches in a row that were overwritten while they were read, writers wait for the next one.
_N_TRIES = 3


class Draw(NamedTuple):
    """What was drawn for one batch.

    Attributes:
        where: arguments of `extract_batch`: T_idxs [n], B_idxs [n], and for sequences their length T.
        oldest: number of the oldest row at which a sample starts; 0 in buffers of one process.
        ids: [n], int64, of the samples, under which their priorities are updated; None if there are none.
        is_weights: [n], float32, importance-sampling weights; None if there are none.
    """

    where: tuple
    oldest: int = 0
    ids: np.ndarray | None = None
    is_weights: np.ndarray | None = None


class DrawnReplay:
    """Replays what `_draw` chooses; to put in front of an n-step buffer, like all that derive from it."""

    def sample_batch(self, *size: int) -> Any:
        """Return a random batch; arguments as of `draw_batch`.

        Raises:
            ValueError: nothing is valid yet.
        """
        return self.draw_and_gather(*size)[0]

    def draw_and_gather(self, *size: int) -> tuple[Any, Draw]:
        """Return a random batch, nothing of which was overwritten while it was read, and its draw."""
        for _ in range(_N_TRIES):
            draw = self.draw_batch(*size)
            batch = self.gather_batch(draw)
            if self.draw_is_intact(draw):
                return batch, draw
        with self.writer_lock:
            draw = self.draw_batch(*size)
            return self.gather_batch(draw), draw

    def draw_batch(self, *size: int) -> Draw:
        """Choose the samples of a batch.

        Args:
            *size: batch_B, the number of samples; and batch_T, the length of sequences, unless the buffer knows it.
        """
        with self.lock:
            draw = self._draw(*size)
            return draw._replace(oldest=int(self.ring.numbers(draw.where[0]).min())) if self.async_ else draw

    def _draw(self, *size: int) -> Draw:
        raise NotImplementedError

    def gather_batch(self, draw: Draw) -> Any:
        """Return the batch that was drawn, read from memory as it is now; changes nothing of the buffer."""
        return self.extract_batch(*draw.where)

    def draw_is_intact(self, draw: Draw) -> bool:
        """Whether everything that was drawn is still in memory, and no other process has begun to overwrite it."""
        if not self.async_:
            return True
        with self.lock:
            return draw.oldest >= self.ring.window(0, self.off_forward)[0]


@cache
def takes_ids(ReplayCls: type) -> bool:
    """Whether `update_batch_priorities` of buffers of a class takes `ids`; the documented one takes priorities alone."""
    own = [vars(cls)["update_batch_priorities"] for cls in ReplayCls.__mro__ if "update_batch_priorities" in vars(cls)]
    return all("ids" in signature(function).parameters for function in own)


def is_ours(buffer: Any, name: str, after: type | None = None) -> bool:
    """Whether no class of a buffer defines a method of that name but those of this package.

    Args:
        after: look only at the classes that come after this one, those where its `super()` looks.
    """
    classes = type(buffer).__mro__
    if after is not None:
        classes = classes[classes.index(after) + 1 :]
    return all(cls.__module__.startswith("rlpyt.replays.") for cls in classes if name in vars(cls))
