"""Prioritized replay of transitions."""

from __future__ import annotations

from typing import Any

from rlpyt.replays.async_ import AsyncReplayBufferMixin
from rlpyt.replays.draws import Draw
from rlpyt.replays.n_step import BufferMixin
from rlpyt.replays.non_sequence.n_step import NStepReturnBuffer, SamplesFromReplay
from rlpyt.replays.prioritized import PrioritizedDraws, weighted
from rlpyt.replays.sum_tree import AsyncSumTree, SumTree
from rlpyt.utils.buffer import numpify_buffer
from rlpyt.utils.settings import RATE, STEPS, check_values, checked

EPS = 1e-6  # Added to priorities of transitions before they are inverted.

# A transition, and
#   is_weights  float32, importance-sampling weight, at most 1
#   ids         int64, id of the sample for `update_batch_priorities`
SamplesFromReplayPri = weighted(SamplesFromReplay)


class PrioritizedReplay(BufferMixin):
    """Replays samples in proportion to ``priority ** alpha``. Put it in front of an n-step buffer.

    The same starts can be replayed as without priorities; the tree turns them on and off.

    Args:
        alpha: exponent of all priorities: default, input and updated ones.
        beta: exponent of the importance-sampling weights; 1 corrects for the probabilities completely.
        default_priority: priority of new samples.
        unique: draw without replacement.
        input_priorities: appended samples have a field `priorities`: [n,B], [B] or a scalar, one for each start among them. If only some
            rows are starts, [n,B] may have one for each row; those of the other rows are ignored. An append may also get a pair with the
            fields `samples` and `priorities`.
        input_priority_shift: number of starts by which input priorities belong to earlier samples.
        kwargs: arguments of the buffer.

    Attributes:
        priority_tree: one priority per start, to the power of alpha. It records the ids of the latest `sample_batch`.
        weights_eps: added to priorities before they are inverted to importance-sampling weights.

    Raises:
        ValueError: alpha, beta or default_priority is negative.
    """

    weights_eps = EPS
    draws: PrioritizedDraws

    @checked(alpha=RATE, beta=RATE, default_priority=RATE, input_priority_shift=STEPS)
    def __init__(
        self,
        alpha: float = 0.6,
        beta: float = 0.4,
        default_priority: float = 1,
        unique: bool = False,
        input_priorities: bool = False,
        input_priority_shift: int = 0,
        **kwargs: Any,
    ) -> None:
        self.alpha, self.beta, self.default_priority, self.unique = alpha, beta, default_priority, unique
        self.input_priorities, self.input_priority_shift = input_priorities, input_priority_shift
        super().__init__(**kwargs)

    def init_priority_tree(self) -> None:
        """Make `priority_tree`, with one leaf per possible start of a sample."""
        off_backward, off_forward = self.start_zones()
        TreeCls = AsyncSumTree if self.async_ else SumTree
        self.priority_tree = TreeCls(
            T=self.starts.T,
            B=self.B,
            off_backward=off_backward,
            off_forward=off_forward,
            default_value=self.default_priority**self.alpha,
            enable_input_priorities=self.input_priorities,
            input_priority_shift=self.input_priority_shift,
            enable_blanks=bool(len(self.storage.valid)),
            rows=self.starts,
        )

    def _make_draws(self) -> PrioritizedDraws:
        self.init_priority_tree()
        return PrioritizedDraws(self.priority_tree, self.starts, self.storage, self.alpha, self.beta, self.weights_eps, self.unique)

    def _step_bytes(self, example: Any) -> float:
        return super()._step_bytes(example) + (10 + 8 * self.input_priorities) / self.start_interval

    def set_beta(self, beta: float) -> None:
        """Set the exponent of the importance-sampling weights, for example by a schedule; raise ValueError if it is negative."""
        check_values(type(self).__name__, dict(beta=beta), dict(beta=RATE))
        self.beta = self.draws.beta = beta

    def sample_batch(self, batch_B: int) -> Any:  # type: ignore[override]
        """Return a batch of `batch_B` samples; see `extract_batch`. It has two additional fields, the last ones:

        * is_weights [n], float32: ``(1 / (p + weights_eps)) ** beta``, with p the priority to the power of alpha, divided by the largest
          of these numbers in the batch;
        * ids [n], int64: ids of the samples for `update_batch_priorities`.
        """
        batch, draw = self.draw_and_gather(batch_B)
        self.priority_tree.drawn_ids = draw.ids  # For the documented `update_batch_priorities(priorities)`.
        return batch

    def _draw(self, batch_B: int) -> Draw:
        return self.draws.draw(batch_B)

    def update_batch_priorities(self, priorities: Any, ids: Any = None) -> None:
        """Set new priorities [n] of samples. Samples that were overwritten after they were drawn are ignored.

        Args:
            priorities: priorities before they are raised to the power of alpha.
            ids: [n], ids of the samples; by default those of the latest `sample_batch` in this process.

        Raises:
            ValueError: nothing has been sampled, the numbers of priorities and samples differ, or a priority is negative or NaN.
        """
        powers = self.draws.powers(priorities)
        with self.lock:
            if ids is None:
                self.priority_tree.update_batch_priorities(powers)
            else:
                self.priority_tree.update(numpify_buffer(ids), powers)


class PrioritizedReplayBuffer(PrioritizedReplay, NStepReturnBuffer):
    """Transitions; full observations; prioritized."""


class AsyncPrioritizedReplayBuffer(AsyncReplayBufferMixin, PrioritizedReplayBuffer):
    """Transitions; full observations; prioritized; shared by processes."""
