"""Returns and advantages of a batch [128,64] of float32 in memory of the CPU, against row-by-row operations of numpy and torch.

python tests/benchmarks/bench_returns.py
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
import torch
from common import median, ratio, ratios, rounds, seconds, tell

from rlpyt.returns import (
    discount_return,
    discount_return_n_step,
    discount_return_tl,
    generalized_advantage_estimation,
    generalized_advantage_estimation_tl,
)

T, B = 128, 64
DISCOUNT, LAMBDA = 0.99, 0.95
GOAL = 50  # Microseconds.


# ---------------------------------------------------------------------------------------------------------------------
# Row by row
# ---------------------------------------------------------------------------------------------------------------------
def backward_sum_by_rows(x, decay, last):
    """Overwrite ``x[t]`` with ``y[t] = x[t] + decay[t] * y[t+1]``, where ``y[T] = last``."""
    rows, decays = x.numpy(), decay.numpy()
    y = np.asarray(last, rows.dtype)
    carried = np.empty(rows.shape[1:], rows.dtype)
    for t in range(len(rows) - 1, -1, -1):
        np.multiply(decays[t], y, out=carried)
        y = rows[t, ...]
        y += carried
    return x


def discount_return_by_rows(reward, done, bootstrap_value, timeout=None, timeout_value=None):
    return_ = reward.clone()
    if timeout is not None:
        return_ += DISCOUNT * torch.where(timeout, timeout_value, 0)
    return backward_sum_by_rows(return_, DISCOUNT * (1 - done.float()), bootstrap_value[0])


def gae_by_rows(reward, value, done, bootstrap_value, timeout=None, timeout_value=None):
    alive = 1 - done.float()
    next_value = torch.cat([value[1:], bootstrap_value]) * alive
    if timeout is not None:
        next_value = torch.where(timeout, timeout_value, next_value)
    advantage = backward_sum_by_rows(reward + DISCOUNT * next_value - value, DISCOUNT * LAMBDA * alive, 0.0)
    return advantage, advantage + value


def n_step_by_rows(reward, done, n):
    rows = T - n + 1
    return_, done_n = torch.zeros(rows, B), torch.zeros(rows, B, dtype=torch.bool)
    for k in reversed(range(n)):
        d = done[k : k + rows]
        return_ *= DISCOUNT * (~d).float()
        return_ += reward[k : k + rows]
        done_n |= d
    return return_, done_n


def main(n_rounds: int = 11, n_calls: int = 200) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    reward, value, final = torch.randn(3, T, B)
    done = torch.rand(T, B) < 0.05
    timeout = done & (torch.rand(T, B) < 0.5)
    last = torch.randn(1, B)
    pairs = {
        "discount_return": (
            lambda: discount_return(reward, done, last, DISCOUNT),
            lambda: discount_return_by_rows(reward, done, last),
        ),
        "discount_return_tl": (
            lambda: discount_return_tl(reward, done, last, DISCOUNT, timeout, value, timeout_value=final),
            lambda: discount_return_by_rows(reward, done, last, timeout, final),
        ),
        "generalized_advantage_estimation": (
            lambda: generalized_advantage_estimation(reward, value, done, last, DISCOUNT, LAMBDA),
            lambda: gae_by_rows(reward, value, done, last),
        ),
        "generalized_advantage_estimation_tl": (
            lambda: generalized_advantage_estimation_tl(reward, value, done, last, DISCOUNT, LAMBDA, timeout, timeout_value=final),
            lambda: gae_by_rows(reward, value, done, last, timeout, final),
        ),
    }
    for n in (1, 3, 10):
        pairs[f"discount_return_n_step, n={n}"] = (
            lambda n=n: discount_return_n_step(reward, done, n, DISCOUNT),
            lambda n=n: n_step_by_rows(reward, done, n),
        )
    for name, (ours, by_rows) in pairs.items():
        torch.testing.assert_close(ours(), by_rows())
        results = rounds({"ours": lambda f=ours: seconds(f, n_calls), "by rows": lambda f=by_rows: seconds(f, n_calls)}, n_rounds)
        us, rows_us = (1e6 * median(results[who]) for who in ("ours", "by rows"))
        print(
            f"{name} [{T},{B}]: {us:.1f} us (goal {GOAL}), row by row {rows_us:.1f} us, "
            f"{ratio(results['by rows'], results['ours']):.1f} times faster"
        )
        tell(name, **{"times as fast as row by row": ratios(results["by rows"], results["ours"])})


if __name__ == "__main__":
    main()
