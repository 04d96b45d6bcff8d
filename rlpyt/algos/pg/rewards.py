"""Normalization of rewards by the scale of returns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed

from rlpyt.returns import discount_return
from rlpyt.utils.plain import NATURAL, check_form

_CLIP = 10.0
_MIN_VARIANCE = 1e-8


class RewardScale:
    """Divides rewards by the running standard deviation of the discounted return of all environments, and clips them to ±10.

    The return of a step is the sum of the episode's rewards so far, each discounted by its age: ``R_t = r_t + γ (1 - d_{t-1}) R_{t-1}``
    (Engstrom et al. 2020, arXiv:2005.12729). Its mean and variance are those of all steps so far, of all processes that train together,
    merged batch by batch (Chan, Golub & LeVeque 1979). Rewards are not centered: that would change what is best to do.

    Args:
        discount: γ.
        B: number of environments in a batch.
        device: of training; only processes that train together use it, to exchange sums.
    """

    def __init__(self, discount: float, B: int, device: torch.device) -> None:
        self._discount, self._device = discount, device
        self._return = torch.zeros(B, dtype=torch.float64)  # [B], R of the last step; 0 after the end of an episode.
        self._count, self._mean, self._square_deviation = 0, 0.0, 0.0  # of R; the last is a sum over all steps.

    @property
    def std(self) -> float:
        """The number to divide by: 1 before the first batch."""
        return max(self._square_deviation / self._count, _MIN_VARIANCE) ** 0.5 if self._count else 1.0

    def scaled(self, reward: torch.Tensor, done: torch.Tensor, valid: torch.Tensor | None = None) -> torch.Tensor:
        """Add a batch to the statistics, and return its normalized rewards [T,B].

        Args:
            reward, done: [T,B], the batch that follows the previous one.
            valid: [T,B], bool: the steps to count, up to the first `done` of each column; None for all.
        """
        done = done.bool()
        ended_before = torch.cat([torch.zeros_like(done[:1]), done[:-1]])
        # The recursion of returns, run forwards in time.
        newest_first = discount_return(reward.double().flip(0), ended_before.flip(0), self._return, self._discount)
        returns = newest_first.flip(0)
        self._return = torch.where(done[-1], 0.0, returns[-1])
        self._count_in(returns.flatten() if valid is None else returns[valid])
        return (reward / self.std).clamp(-_CLIP, _CLIP)

    def restarted(self, columns: Sequence[int]) -> None:
        """Begin new returns in these columns, since their next rewards do not follow the previous ones."""
        self._return[list(columns)] = 0.0

    def _count_in(self, returns: torch.Tensor) -> None:
        total = self._summed(torch.stack([returns.sum(), returns.new_tensor(len(returns))]))
        n = int(total[1])
        if n == 0:
            return
        mean = float(total[0]) / n
        square_deviation = float(self._summed((returns - mean).square().sum()))
        count, delta = self._count + n, mean - self._mean
        self._square_deviation += square_deviation + delta**2 * self._count * n / count
        self._mean += delta * n / count
        self._count = count

    def _summed(self, x: torch.Tensor) -> torch.Tensor:
        """Return the sum of `x` over all processes that train together."""
        if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
            return x
        x = x.to(self._device)
        torch.distributed.all_reduce(x)
        return x.cpu()

    def state_dict(self) -> dict[str, Any]:
        """Return the statistics, which all processes share, and the returns of this process's episodes in progress."""
        return dict(count=self._count, mean=self._mean, square_deviation=self._square_deviation, returns=self._return.tolist())

    def load_state_dict(self, state: Any) -> None:
        """Restore a state from `state_dict`; ValueError if the state has another form."""
        number = (int, float)
        form = dict(count=NATURAL, mean=number, square_deviation=number, returns=[number])
        check_form(state, form, "algo['reward_scale']")
        self._count, self._mean, self._square_deviation = state["count"], float(state["mean"]), float(state["square_deviation"])
        if len(state["returns"]) == len(self._return):
            self._return = torch.tensor(state["returns"], dtype=torch.float64)
