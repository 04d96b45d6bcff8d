"""Prioritized experience replay (Schaul et al. 2016, arXiv:1511.05952), of transitions and of sequences."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import torch

from rlpyt.replays.draws import Draw, DrawnReplay
from rlpyt.replays.sum_tree import AsyncSumTree, SumTree
from rlpyt.utils.buffer import numpify_buffer
from rlpyt.utils.collections import namedarraytuple
from rlpyt.utils.lazy import LazyModule
from rlpyt.utils.settings import RATE, STEPS, check_values, checked

kernels = LazyModule("rlpyt.utils.kernels")

EPS = 1e-6  # Added to priorities of transitions before they are inverted.


class Prioritization(DrawnReplay):
    """Replays samples in proportion to ``priority ** alpha``.

    What can be replayed is what could be without priorities, too: the tree turns on and off the same starts.

    Args:
        alpha: exponent of all priorities, whether by default, with the samples, or by update.
        beta: exponent of the importance-sampling weights, 1 to correct for the probabilities completely.
        default_priority: of new samples.
        unique: draw without replacement.
        input_priorities: samples bring their `priorities`: [n,B], [B] or a scalar, one for each start among them. Where only some rows
            are starts, [n,B] may have one for each row; those of the other rows are not used.
        input_priority_shift: the start which they belong to is so many starts before that.
        kwargs: arguments of the buffer.

    Attributes:
        priority_tree: one priority per start, to the power of alpha; it knows which samples were drawn last.
        weights_eps: added to priorities before they are inverted to importance-sampling weights.

    Raises:
        ValueError: alpha, beta or default_priority is negative.
    """

    weights_eps = EPS

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
        self.init_priority_tree()

    def init_priority_tree(self) -> None:
        """Make `priority_tree`, one leaf per start at which what is replayed may begin."""
        off_backward, off_forward = self.start_zones()
        TreeCls = AsyncSumTree if self.async_ else SumTree
        self.priority_tree = TreeCls(
            T=self.T // self.start_interval,
            B=self.B,
            off_backward=off_backward,
            off_forward=off_forward,
            default_value=self.default_priority**self.alpha,
            enable_input_priorities=self.input_priorities,
            input_priority_shift=self.input_priority_shift,
            enable_blanks=getattr(self._rows, "valid", None) is not None,
            rows=self.ring.every(self.start_interval),
        )

    def _further_bytes(self, example: Any) -> int:
        n_leaves = self.size // self.start_interval
        return super()._further_bytes(example) + n_leaves * (10 + 8 * self.input_priorities)

    def set_beta(self, beta: float) -> None:
        """Set the exponent of the importance-sampling weights, which may follow a schedule; ValueError if it is negative."""
        check_values(type(self).__name__, dict(beta=beta), dict(beta=RATE))
        self.beta = beta

    def append_samples(self, samples: Any) -> tuple[int, slice | np.ndarray]:
        """Append samples with, if there are `input_priorities`, a field `priorities`.

        They may also come in two fields, `samples` and `priorities`. Returns what the buffer does.
        """
        if "samples" in getattr(samples, "_fields", ()):
            samples, priorities = samples.samples, samples.priorities
            if "priorities" in samples._fields:
                samples = samples._replace(priorities=priorities)
            else:
                samples = _with_priorities(type(samples))(*samples, priorities)
        return super().append_samples(samples)

    def _check_samples(self, samples: Any, n: int) -> None:
        super()._check_samples(samples, n)
        priorities = getattr(samples, "priorities", None)
        if priorities is not None:
            self.priority_tree.checked_input(self._n_starts(n), self._powers_at_starts(priorities, n))

    def _powers(self, priorities: Any) -> np.ndarray:
        """Return priorities as they are stored: float64, to the power of alpha. Raises ValueError if one is negative or NaN."""
        if isinstance(priorities, torch.Tensor):
            kept = priorities.dtype in (torch.float32, torch.float64)
            priorities = priorities.detach().to("cpu", priorities.dtype if kept else torch.float64).numpy()
        priorities = np.ascontiguousarray(priorities)
        if priorities.dtype not in (np.float32, np.float64):
            priorities = priorities.astype(np.float64)
        powers = np.empty(priorities.shape)
        bad = kernels.powers(priorities.reshape(-1), float(self.alpha), powers.reshape(-1))
        if bad >= 0:
            raise ValueError(f"A priority is {priorities.flat[bad]}, and must not be negative: has training diverged?")
        return powers

    def _powers_at_starts(self, priorities: Any, n: int) -> np.ndarray:
        """Return the powers of the priorities that belong to starts, of those given for the next `n` rows."""
        powers = self._powers(priorities)
        if powers.ndim == 2 and len(powers) == n != self._n_starts(n):
            return powers[-self.ring.written % self.start_interval :: self.start_interval]
        return powers

    def _repair(self) -> None:
        super()._repair()
        self.priority_tree.repair()

    def _claim(self, n: int) -> None:
        self.priority_tree.claim(self._n_starts(n))
        super()._claim(n)

    def _publish(self, n: int, samples: Any) -> None:
        n_starts, first = self._n_starts(n), -self.ring.written % self.start_interval
        valid = self._valid_starts(first, n_starts)
        priorities = getattr(samples, "priorities", None)
        powers = None if priorities is None else self._powers_at_starts(priorities, n)
        self.priority_tree.advance(n_starts, powers, valid)
        super()._publish(n, samples)

    def _valid_starts(self, first: int, n: int) -> np.ndarray | None:
        """Return which of `n` starts are no blank rows, [n,B]; the first one lies `first` rows from the cursor."""
        valid = getattr(self.samples, "valid", None)
        if valid is None:
            return None
        starts = self.ring.wrap(self.ring.t + first + np.arange(n) * self.start_interval)
        return valid[starts].astype(bool)

    def _n_starts(self, n: int) -> int:
        """Return at how many of the next `n` rows something may start."""
        written, interval = self.ring.written, self.start_interval
        return -(-(written + n) // interval) + -written // interval

    def _draw(self, batch_B: int) -> Draw:
        ids, T_idxs, B_idxs, priorities = self.priority_tree.draw(batch_B, unique=self.unique)
        is_weights = np.empty(batch_B, np.float32)
        kernels.importance_weights(priorities, self.beta, self.weights_eps, is_weights)
        return Draw((T_idxs * self.start_interval, B_idxs), 0, ids, is_weights)

    def sample_batch(self, *size: int) -> Any:
        """Return a random batch; see `gather_batch`."""
        batch, draw = self.draw_and_gather(*size)
        self.priority_tree.drawn_ids = draw.ids  # For the documented `update_batch_priorities(priorities)`.
        return batch

    def gather_batch(self, draw: Draw) -> Any:
        """Return the batch that was drawn, with `is_weights` and `ids` as its last fields.

        * is_weights [n], float32: ``(1 / (p + weights_eps)) ** beta``, p the priority to the power of alpha, divided by the largest
          in the batch;
        * ids [n], int64: what these samples are called in `update_batch_priorities`.
        """
        batch = super().gather_batch(draw)
        make = weighted(type(batch))._make
        return make((*batch, torch.from_numpy(draw.is_weights), torch.from_numpy(draw.ids)))

    def update_batch_priorities(self, priorities: Any, ids: Any = None) -> None:
        """Set new priorities [n] of samples; those that have been overwritten since they were drawn are left out.

        Args:
            priorities: to be raised to the power of alpha here.
            ids: [n], the samples; by default those of the latest `sample_batch` of this process.

        Raises:
            ValueError: nothing has been sampled, there are not as many priorities as samples, or one is negative or NaN.
        """
        priorities = self._powers(priorities)
        with self.lock:
            if ids is None:
                self.priority_tree.update_batch_priorities(priorities)
            else:
                self.priority_tree.update(numpify_buffer(ids), priorities)

    def state_dict(self, since: int = 0) -> dict[str, Any]:
        """Extend that of the buffer by the priorities of everything in it."""
        state = super().state_dict(since)
        with self.lock:
            return {**state, "alpha": float(self.alpha), "priority_tree": self.priority_tree.state_dict()}

    def _check_state(self, state_dict: dict[str, Any]) -> None:
        super()._check_state(state_dict)
        if "priority_tree" not in state_dict:
            raise ValueError("The saved replay buffer has no priorities, and this one needs them.")
        if state_dict["alpha"] != self.alpha:
            raise ValueError(
                f"The saved replay buffer has alpha={state_dict['alpha']}, and this one alpha={self.alpha}: make it with the same settings."
            )
        self.priority_tree.check_state(state_dict["priority_tree"])

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore what `state_dict` returned; errors as of that of the buffer."""
        super().load_state_dict(state_dict)
        self.priority_tree.load_state_dict(state_dict["priority_tree"])


@cache
def _with_priorities(SamplesCls: type) -> type:
    return namedarraytuple(SamplesCls.__name__, SamplesCls._fields + ("priorities",))


@cache
def weighted(BatchCls: type) -> type:
    """Return the type of a prioritized batch: the fields of `BatchCls`, `is_weights` and `ids`."""
    return namedarraytuple(f"{BatchCls.__name__}Pri", BatchCls._fields + ("is_weights", "ids"), defaults=(None,))
