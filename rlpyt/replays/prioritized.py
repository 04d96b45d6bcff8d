"""Prioritized experience replay (Schaul et al. 2016, arXiv:1511.05952), of transitions and of sequences."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import torch

from rlpyt.replays.draws import Draw, Draws
from rlpyt.replays.ring import Rows
from rlpyt.replays.storage import Storage
from rlpyt.replays.sum_tree import SumTree
from rlpyt.utils.collections import field_of, fields_of, namedarraytuple
from rlpyt.utils.lazy import LazyModule

kernels = LazyModule("rlpyt.utils.kernels")


class PrioritizedDraws(Draws):
    """Draws starts in proportion to ``priority ** alpha``, by a tree in which only starts that can be replayed are turned on.

    Args:
        tree: has one leaf per start, its priority to the power of alpha.
        rows: the rows of the starts.
        storage: storage of the steps; tells which steps are blank.
        alpha: exponent of all priorities.
        beta: exponent of the importance-sampling weights; may be assigned later.
        weights_eps: added to priorities before they are inverted to importance-sampling weights.
        unique: draw without replacement.
    """

    def __init__(
        self, tree: SumTree, rows: Rows, storage: Storage, alpha: float, beta: float, weights_eps: float, unique: bool = False
    ) -> None:
        self.tree, self.rows, self.storage = tree, rows, storage
        self.alpha, self.beta, self.weights_eps, self.unique = alpha, beta, weights_eps, unique

    def draw(self, n: int) -> Draw:
        """Draw `n` starts.

        Raises:
            ValueError: nothing can be drawn yet.
        """
        ids, T_idxs, B_idxs, priorities = self.tree.draw(n, unique=self.unique)
        is_weights = np.empty(n, np.float32)
        kernels.importance_weights(priorities, self.beta, self.weights_eps, is_weights)
        return Draw((T_idxs * self.rows.interval, B_idxs), 0, ids, is_weights)

    def powers(self, priorities: Any) -> np.ndarray:
        """Return priorities in stored form: float64, to the power of alpha.

        Raises:
            ValueError: a priority is negative or NaN.
        """
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

    # Appending ------------------------------------------------------------------------------------------------------
    def check(self, samples: Any, n: int) -> None:
        priorities = self._input(samples, n)
        if priorities is not None:
            self.tree.checked_input(self.rows.among(n), priorities)

    def _input(self, samples: Any, n: int) -> np.ndarray | None:
        """Return the powers of the samples' priorities for the starts among the next `n` rows; None without priorities."""
        priorities = field_of(samples, "priorities")
        if priorities is None:
            return None
        powers, interval = self.powers(priorities), self.rows.interval
        if powers.ndim == 2 and len(powers) == n != self.rows.among(n):
            return powers[-self.rows.ring.written % interval :: interval]
        return powers

    def claim(self, n: int) -> None:
        self.tree.claim(self.rows.among(n))

    def publish(self, n: int, samples: Any) -> None:
        n_starts = self.rows.among(n)
        starts = self.rows.wrap(self.rows.written + np.arange(n_starts)) * self.rows.interval
        self.tree.advance(n_starts, self._input(samples, n), self.storage.valid_at(starts))

    def repair(self) -> None:
        self.tree.repair()

    def detach(self) -> None:
        self.tree.detach()

    # Checkpoints ----------------------------------------------------------------------------------------------------
    def state(self) -> dict[str, Any]:
        return {"alpha": float(self.alpha), "priority_tree": self.tree.state_dict()}

    def check_state(self, state: dict[str, Any]) -> None:
        if "priority_tree" not in state:
            raise ValueError("The saved replay buffer has no priorities, and this one needs them.")
        if state["alpha"] != self.alpha:
            raise ValueError(
                f"The saved replay buffer has alpha={state['alpha']}, and this one alpha={self.alpha}: make it with the same settings."
            )
        self.tree.check_state(state["priority_tree"])

    def load_state(self, state: dict[str, Any]) -> None:
        self.tree.load_state_dict(state["priority_tree"])


def with_priorities(samples: Any) -> Any:
    """Return samples [n,B] as one structure. They may be given as two fields, `samples` and `priorities`."""
    if "samples" not in (fields_of(samples) or ()):
        return samples
    samples, priorities = samples.samples, samples.priorities
    if "priorities" in samples._fields:
        return samples._replace(priorities=priorities)
    return _with_priorities(samples.__class__)(*samples, priorities)


@cache
def _with_priorities(SamplesCls: Any) -> type:
    return namedarraytuple(SamplesCls.__name__, SamplesCls._fields + ("priorities",))


@cache
def weighted(BatchCls: Any) -> Any:
    """Return the type of a prioritized batch: the fields of `BatchCls`, `is_weights` and `ids`."""
    return namedarraytuple(f"{BatchCls.__name__}Pri", BatchCls._fields + ("is_weights", "ids"), defaults=(None,))
