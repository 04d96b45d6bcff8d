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


# The rows of arrays with sums of episodes. Behind those of SUMS come the fields of `env_info_sums`.
COUNTS = ("Length", "NonzeroRewards")
SUMS = ("Return", "DiscountedReturn", "_cur_discount")


@kernel
def sum_up(
    reward: Any,
    done: Any,
    over: Any,
    valid: Any,
    summed: Any,
    discount: Any,
    waits: Any,
    new: Any,
    counts: Any,
    sums: Any,
    ends: Any,
    ended_counts: Any,
    ended_sums: Any,
) -> Any:
    """Add the rows of a batch to the sums of the episodes to which they belong, step by step as `TrajInfo.step` does.

    Args:
        reward: float32 [T,B].
        done: bool [T,B].
        over: bool [T,B], where an episode ends.
        valid: bool [T,B], or [0,0] if no row is blank.
        summed: float64 [K,T,B], the entries of env_info that are summed up.
        discount: of rewards, a float.
        waits: whether an environment is idle after `done` until the end of the batch.
        new: float64 [C+S+K], counts and sums with which an episode begins.
        counts: int64 [C,B], COUNTS of the running episodes.
        sums: float64 [S+K,B], SUMS of the running episodes, and the sums of `summed`.
        ends: int64 [2,>=T*B], memory for the rows and columns in which episodes end, in the order of time.
        ended_counts, ended_sums: [C,>=T*B] and [S+K,>=T*B], memory for their counts and sums.

    Returns:
        Number of the episodes that ended.
    """
    T, B = reward.shape
    K, C, S = len(summed), len(counts), len(sums)
    length, n_nonzero, total, discounted, factor = counts[0], counts[1], sums[0], sums[1], sums[2]
    has_blanks, is_idle, is_out = len(valid) > 0, np.zeros(B, np.bool_), np.zeros(B, np.bool_)
    n = 0
    for t in range(T):
        if has_blanks or waits:
            for b in range(B):
                is_out[b] = is_idle[b] or (has_blanks and not valid[t, b])
        if not has_blanks and not waits:
            for b in range(B):  # Without branches, so that the processor does several at once.
                length[b] += 1
                n_nonzero[b] += reward[t, b] != 0
                total[b] += reward[t, b]
                discounted[b] += factor[b] * reward[t, b]
                factor[b] *= discount
        else:
            for b in range(B):
                if not is_out[b]:
                    length[b] += 1
                    n_nonzero[b] += reward[t, b] != 0
                    total[b] += reward[t, b]
                    discounted[b] += factor[b] * reward[t, b]
                    factor[b] *= discount
        for k in range(K):
            for b in range(B):
                if not is_out[b]:
                    sums[S - K + k, b] += summed[k, t, b]
        for b in range(B):
            if over[t, b] and not is_out[b]:
                ends[0, n], ends[1, n] = t, b
                for i in range(C):
                    ended_counts[i, n], counts[i, b] = counts[i, b], np.int64(new[i])
                for i in range(S):
                    ended_sums[i, n], sums[i, b] = sums[i, b], new[C + i]
                n += 1
        if waits:
            is_idle |= done[t]
    return n
