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
#   before          the part of Return that is of earlier batches: it is added last, as `_BatchTracker` does
_COUNTS = ("b", "start", "t", "is_continued", "Length", "NonzeroRewards")
SUMS = np.dtype([*((name, np.int64) for name in _COUNTS), ("before", np.float64), ("Return", np.float64)], align=True)


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
    n = 0
    for b in range(B):
        sums = running[b]
        sums.b, sums.start, sums.t, sums.is_continued = b, 0, T - 1, True
        sums.before, sums.Return = sums.Return, 0.0
    for t in range(T):
        for b in range(B):
            sums = running[b]
            if valid is not None and not valid[t, b]:
                sums.start = t + 1  # The episode begins after a blank row.
                continue
            sums.Length += 1
            sums.Return += reward[t, b]
            sums.NonzeroRewards += reward[t, b] != 0
            if done[t, b]:
                end = ended[n]
                end.b, end.start, end.t, end.is_continued = b, sums.start, t, sums.is_continued
                end.Length, end.NonzeroRewards, end.Return = sums.Length, sums.NonzeroRewards, sums.before + sums.Return
                sums.start, sums.is_continued = t + 1, False
                sums.Length, sums.NonzeroRewards, sums.before, sums.Return = 0, 0, 0.0, 0.0
                n += 1
    for b in range(B):
        running[b].Return += running[b].before
    return n
