"""Inner loops over the environments of a vector, compiled by numba. As `rlpyt.utils.kernels`, import this module by `LazyModule`."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlpyt.utils.kernels import kernel


@kernel
def take_step(
    reward: Any,
    terminated: Any,
    truncated: Any,
    blank: Any,
    row_reward: Any,
    done: Any,
    timeout: Any,
    info_timeout: Any,
    valid: Any,
    ended: Any,
) -> Any:
    """Write a step of n environments into a row of the batch, arrays [n].

    Args:
        reward, terminated, truncated: [n], what the vector returned.
        blank: bool [n], environments that were reset instead; they are False afterwards. None if there cannot be any.
        row_reward, done, timeout, info_timeout, valid: [n], the row: `info_timeout` is that of env_info. `valid` is None if `blank` is.
        ended: int64 [n], memory.

    Returns:
        How many episodes ended, whose environments are the first entries of `ended`; and how many of them by a timeout.
    """
    B = len(reward)
    for b in range(B):  # Without branches, so that the processor does several at once.
        row_reward[b] = reward[b]
        done[b] = terminated[b] | truncated[b]
        timeout[b] = info_timeout[b] = truncated[b] > terminated[b]
    if blank is not None:
        for b in range(B):
            valid[b] = not blank[b]
            if blank[b]:
                row_reward[b], done[b], timeout[b], info_timeout[b] = 0, False, False, False
    n_ended = n_timeouts = 0
    for b in range(B):
        if done[b]:
            ended[n_ended] = b
            n_ended += 1
            n_timeouts += timeout[b]
    if blank is not None:
        for b in range(B):
            done[b] |= blank[b]
            blank[b] = False
    return n_ended, n_timeouts


@kernel
def null_after_done(action: Any, reward: Any, done: Any, prev_action: Any, prev_reward: Any, null_action: Any, ended: Any) -> Any:
    """Write what an agent sees after a step of n environments: `action` and `reward` [n], but after an episode's end `null_action` and 0.

    Returns:
        How many environments are done, which are the first entries of `ended`, int64 [n].
    """
    n_ended = 0
    for b in range(len(reward)):
        prev_action[b] = action[b]
        prev_reward[b] = reward[b]
    for b in range(len(reward)):
        if done[b]:
            prev_action[b], prev_reward[b] = null_action, 0
            ended[n_ended] = b
            n_ended += 1
    return n_ended


# What is summed up of an episode.
#   b               its column
#   start, t        its first and its last row in this batch
#   is_continued    whether it began before this batch, so that the sums include rows of earlier ones
_COUNTS = ("b", "start", "t", "is_continued", "Length", "NonzeroRewards")
SUMS = np.dtype([*((name, np.int64) for name in _COUNTS), ("Return", np.float64)], align=True)


@kernel
def sum_up(reward: Any, done: Any, valid: Any, running: Any, ended: Any) -> Any:
    """Add the rows of a batch to the sums of the episodes to which they belong.

    Args:
        reward: float32 [T,B].
        done: bool [T,B].
        valid: bool [T,B], or None if no row is blank.
        running: SUMS [B], of the episodes that run before the batch; afterwards, of those that run behind it.
        ended: SUMS [>=T*B], memory for those of the episodes that end in the batch, in the order of time.

    Returns:
        Number of the episodes that ended.
    """
    T, B = reward.shape
    before, sums = running["Return"].copy(), np.zeros(B)  # What is of earlier batches is added last, as `_BatchTracker` does.
    n_nonzero = running["NonzeroRewards"].copy()
    length, start = running["Length"].copy(), np.zeros(B, np.int64)  # Steps before row `start`, and that row.
    n = 0
    for b in range(B):
        running[b].is_continued = True
    for t in range(T):
        if valid is None:
            for b in range(B):  # Without branches, so that the processor does several at once.
                sums[b] += reward[t, b]
                n_nonzero[b] += reward[t, b] != 0
        else:
            for b in range(B):
                if valid[t, b]:
                    sums[b] += reward[t, b]
                    n_nonzero[b] += reward[t, b] != 0
                else:  # The episode begins after a blank row.
                    length[b], start[b] = length[b] + t - start[b], t + 1
        for b in range(B):
            if done[t, b] and (valid is None or valid[t, b]):
                end = ended[n]
                end.b, end.start, end.t, end.is_continued = b, start[b], t, running[b].is_continued
                end.Length, end.NonzeroRewards, end.Return = length[b] + t + 1 - start[b], n_nonzero[b], before[b] + sums[b]
                running[b].is_continued = False
                length[b], start[b], n_nonzero[b], before[b], sums[b] = 0, t + 1, 0, 0.0, 0.0
                n += 1
    for b in range(B):
        end = running[b]
        end.b, end.start, end.t = b, start[b], T - 1
        end.Length, end.NonzeroRewards, end.Return = length[b] + T - start[b], n_nonzero[b], before[b] + sums[b]
    return n
