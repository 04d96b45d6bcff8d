"""Inner loops over the environments of a process, compiled by numba. As `rlpyt.utils.kernels`, import this module by `LazyModule`."""

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


# The rows of arrays with counts and sums of episodes. Behind SUMS come other fields of `env_info_sums`.
COUNTS = ("Length", "NonzeroRewards")
SUMS = ("Return", "DiscountedReturn", "_cur_discount")


@kernel
def sum_up(
    reward: Any,
    done: Any,
    over: Any,
    valid: Any,
    summed: Any,
    into: Any,
    discount: Any,
    waits: Any,
    counts: Any,
    sums: Any,
    ends: Any,
    ended_counts: Any,
    ended_sums: Any,
) -> Any:
    """Add the rows of a batch to the counts and sums of the episodes to which they belong, in the order of time.

    Args:
        reward: float32 [T,B].
        done: bool [T,B].
        over: bool [T,B], where an episode ends.
        valid: bool [T,B], False where a row is blank; [0,0] if none is. (None would be compiled once more.)
        summed: float64 [K,T,B], the entries of env_info that are summed up.
        into: int64 [K], the rows of `sums` to which these are added.
        discount: of rewards, a float.
        waits: whether an environment is idle after `done` until the end of the batch.
        counts: int64 [C,B], COUNTS of the running episodes.
        sums: float64 [S,B], SUMS of the running episodes, and other fields.
        ends: int64 [2,>=T*B], memory for the rows and columns in which episodes end, in the order of time.
        ended_counts, ended_sums: [C,>=T*B] and [S,>=T*B], memory for their counts and sums.

    Returns:
        Number of the episodes that ended.
    """
    T, B = reward.shape
    length, n_nonzero, total, discounted, factor = counts[0], counts[1], sums[0], sums[1], sums[2]
    is_idle, is_skipped = np.zeros(B, np.bool_), np.zeros(B, np.bool_)
    n = 0
    for t in range(T):
        if len(valid) > 0 or waits:
            for b in range(B):
                is_skipped[b] = is_idle[b] or (len(valid) > 0 and not valid[t, b])
        for b in range(B):  # Without branches, so that the processor does several at once.
            r = 0.0 if is_skipped[b] else np.float64(reward[t, b])
            length[b] += not is_skipped[b]
            n_nonzero[b] += r != 0
            total[b] += r
            discounted[b] += factor[b] * r
            factor[b] *= 1.0 if is_skipped[b] else discount
        for k in range(len(summed)):
            for b in range(B):
                sums[into[k], b] += 0.0 if is_skipped[b] else summed[k, t, b]
        for b in range(B):
            if over[t, b] and not is_skipped[b]:
                ends[0, n], ends[1, n] = t, b
                for i in range(len(counts)):
                    ended_counts[i, n], counts[i, b] = counts[i, b], 0
                for i in range(len(sums)):
                    ended_sums[i, n], sums[i, b] = sums[i, b], 0.0
                factor[b] = 1.0
                n += 1
        if waits:
            for b in range(B):
                is_idle[b] = is_idle[b] or done[t, b]
    return n
