"""Inner loops that numpy has no function for, compiled by numba: functions of arrays that write their results to given arrays.

Importing this module takes about half a second; import it by `rlpyt.utils.lazy.LazyModule`, so that only processes that use a kernel pay.
Compiled code is cached in `__pycache__` (or in ``NUMBA_CACHE_DIR``). No kernel starts threads, and all release the GIL.
"""

from __future__ import annotations

from collections.abc import Callable

import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils


def kernel(function: Callable) -> Callable:
    """Compile a function at its first call, to run without the GIL, and cache the machine code for other processes if possible."""
    try:
        return numba.njit(cache=True, nogil=True, boundscheck=False)(function)
    except RuntimeError:  # No folder for the cache is writable.
        return numba.njit(nogil=True, boundscheck=False)(function)


@numba.extending.intrinsic
def _prefetch(typing_context, source, start):
    """Prefetch the cache line of element `start` of a one-dimensional array, before it is read."""

    def build(context, builder, signature, args):
        source, start = args
        pointer = builder.gep(context.make_array(signature.args[0])(context, builder, source).data, [start])
        i32 = ir.IntType(32)
        function_type = ir.FunctionType(ir.VoidType(), [pointer.type, i32, i32, i32])
        prefetch = builder.module.declare_intrinsic("llvm.prefetch", [pointer.type], function_type)
        builder.call(prefetch, [pointer, i32(0), i32(3), i32(1)])  # For reading; into all caches; data.
        return context.get_dummy_value()

    return numba.types.void(source, numba.types.int64), build


# ---------------------------------------------------------------------------------------------------------------------
# Digests
# ---------------------------------------------------------------------------------------------------------------------
_u = np.uint64
_ODD, _ODD_2 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)  # Random bits that end with 1.


@kernel
def _mixed(lane, word):
    """Return a lane after a word. No two words, nor two lanes, give the same."""
    lane = (lane ^ word) * _ODD
    return lane ^ (lane >> np.uint64(29))


@kernel
def hash_bytes(data, before):
    """Return a hash, uint64, of bytes [n] at a multiple of 8 that follow those with the hash `before`.

    Words go to four lanes in turn, whose products the processor computes at the same time.
    """
    n = data.size // 8
    words = data[: n * 8].view(np.uint64)
    a, b, c, d = before, before ^ _ODD, before ^ _ODD_2, before ^ _ODD ^ _ODD_2
    n_in_turn = n - n % 4
    for i in range(0, n_in_turn, 4):
        a, b = _mixed(a, words[_u(i)]), _mixed(b, words[_u(i + 1)])
        c, d = _mixed(c, words[_u(i + 2)]), _mixed(d, words[_u(i + 3)])
    for i in range(n_in_turn, n):
        a = _mixed(a, words[_u(i)])
    for i in range(n * 8, data.size):
        b = _mixed(b, np.uint64(data[i]))
    return _mixed(_mixed(_mixed(_mixed(a, b) * _ODD_2, c) * _ODD_2, d) * _ODD_2, np.uint64(data.size))


# ---------------------------------------------------------------------------------------------------------------------
# Sum tree
# ---------------------------------------------------------------------------------------------------------------------
# A sum tree is one array: the leaves, the sums of every 8 leaves, the sums of every 8 of these sums, and so on up to the total. Zeros in
# FRONT of each level pad its length to a multiple of 8: eight numbers are a cache line. `levels` [L] holds the start of each level behind
# its padding; nodes are counted from there. Indexes are cast to unsigned, because numba checks signed ones for negative values at each
# access.
@kernel
def _sum_2(tree, i):
    return tree[_u(i)] + tree[_u(i + 1)]


@kernel
def _sum_4(tree, i):
    return _sum_2(tree, i) + _sum_2(tree, i + 2)


@kernel
def _sum_8(tree, i):
    return _sum_4(tree, i) + _sum_4(tree, i + 4)


@kernel
def tree_sum_range(tree, levels, begin, end):
    """Recompute the sums over leaves `begin` to `end` (exclusive), each node once."""
    for level in range(1, len(levels)):
        padding, children, nodes = levels[level - 1] & 7, levels[level - 1] & -8, levels[level]
        begin, end = (begin + padding) >> 3, (end + padding + 7) >> 3
        for k in range(begin, end):
            tree[_u(nodes + k)] = _sum_8(tree, children + 8 * k)


@kernel
def tree_sum_leaves(tree, levels, leaves):
    """Recompute the sums over `leaves` [n] int64; overwrites this array."""
    n = len(leaves)
    for level in range(1, len(levels)):
        padding, children, nodes = levels[level - 1] & 7, levels[level - 1] & -8, levels[level]
        n_children = (nodes & -8) - children - padding
        if n_children <= 16 * n:  # From this level up, recomputing all nodes is less work than following each leaf.
            tree_sum_range(tree, levels[level - 1 :], 0, n_children)
            return
        for i in range(n):
            k = (leaves[i] + padding) >> 3
            leaves[i] = k
            tree[_u(nodes + k)] = _sum_8(tree, children + 8 * k)


@kernel
def tree_update(tree, levels, ids, priorities, first, end, size, largest):
    """Set the leaves of the `ids` [n] int64 in [first, end) to `priorities` [n]; the first of equal ids counts.

    The leaf of an id is id % size, and end - first <= size. Returns -1, or the index of a priority outside [0, largest]; then nothing is
    written.
    """
    n, n_leaves = len(ids), 0
    for i in range(n):
        if not 0 <= priorities[i] <= largest:
            return i
    leaves = np.empty(n, np.int64)
    lap = first // size * size
    for i in range(n - 1, -1, -1):
        if first <= ids[i] < end:
            leaf = ids[i] - lap
            leaf -= size if leaf >= size else 0
            tree[_u(levels[0] + leaf)] = priorities[i]
            leaves[n_leaves] = leaf
            n_leaves += 1
    tree_sum_leaves(tree, levels, leaves[:n_leaves])
    return -1


@kernel
def _find_leaf(tree, levels, value):
    """Return the leaf that `value`, from 0 to the total, falls into: despite rounding a positive leaf, if any is positive."""
    leaf = 0
    for level in range(len(levels) - 2, -1, -1):
        k = (levels[level] & -8) + 8 * leaf
        left = _sum_4(tree, k)
        if left == 0 or value >= left and _sum_4(tree, k + 4) > 0:
            k, value = k + 4, value - left
        left = _sum_2(tree, k)
        if left == 0 or value >= left and _sum_2(tree, k + 2) > 0:
            k, value = k + 2, value - left
        left = tree[_u(k)]
        if left == 0 or value >= left and tree[_u(k + 1)] > 0:
            k, value = k + 1, value - left
        leaf = k - levels[level]
    return leaf


@kernel
def tree_find(tree, levels, u, leaves):
    """Write into `leaves` [n] int64 the leaves that random numbers `u` [n] from 0 to 1 fall into: positive leaves, if any is positive."""
    total = tree[levels[-1]]
    values = u * total
    leaves[:] = 0
    # All values go down one level before any goes down the next, so that the next nodes are in the cache by then. The loop has no
    # branches, because half of their predictions would be wrong. No value is negative, so none goes left into a sum of 0, and none reaches
    # the padding in front of a level, which has no children.
    for level in range(len(levels) - 2, -1, -1):
        nodes, children, below = levels[level], levels[level] & -8, levels[max(level - 1, 0)] & -8
        for i in range(len(leaves)):
            k, value = children + 8 * leaves[i], values[i]
            left = _sum_4(tree, k)
            right = value >= left
            value -= left if right else 0.0
            k += np.int64(right) << 2
            left = _sum_2(tree, k)
            right = value >= left
            value -= left if right else 0.0
            k += np.int64(right) << 1
            left = tree[_u(k)]
            right = value >= left
            values[i] = value - (left if right else 0.0)
            leaves[i] = k + np.int64(right) - nodes
            if level > 0:
                _prefetch(tree, below + 8 * leaves[i])
    # Rounding may take a value past the last positive leaf below a node, where all further leaves are zeros.
    for i in range(len(leaves)):
        if tree[_u(levels[0] + leaves[i])] == 0:
            leaves[i] = _find_leaf(tree, levels, u[i] * total)


@kernel
def tree_find_unique(tree, levels, u, leaves):
    """Draw leaves without replacement in proportion to their priorities, by random numbers `u` [2n]; write them into `leaves` [n] int64.

    Returns how many were found, less than n only if no other leaf is positive.
    """
    n, n_found, begin = len(leaves), 0, levels[0]
    priorities = np.empty(n)
    # Draws with replacement become draws without replacement by dropping repeated ones.
    tree_find(tree, levels, u[:n], leaves)
    for i in range(n):
        leaf = leaves[i]
        if tree[_u(begin + leaf)] > 0:
            leaves[n_found], priorities[n_found] = leaf, tree[_u(begin + leaf)]
            tree[_u(begin + leaf)] = 0
            n_found += 1
    complete = n_found == n
    if not complete:
        tree_sum_leaves(tree, levels, leaves[:n_found].copy())
        while n_found < n and tree[levels[-1]] > 0:
            leaf = _find_leaf(tree, levels, u[n + n_found] * tree[levels[-1]])
            leaves[n_found], priorities[n_found] = leaf, tree[_u(begin + leaf)]
            tree[_u(begin + leaf)] = 0
            tree_sum_range(tree, levels, leaf, leaf + 1)
            n_found += 1
    for i in range(n_found):
        tree[_u(begin + leaves[i])] = priorities[i]
    if not complete:
        tree_sum_leaves(tree, levels, leaves[:n_found].copy())
    return n_found


@kernel
def tree_draw(tree, levels, B, size, first, unique, u, ids, T_idxs, B_idxs, priorities):
    """Draw leaves by random numbers `u` ([n], or [2n] if unique), and write their ids, indexes and priorities, each [n].

    Ids count from `first`, id % size is the leaf, and leaf = T_idx * B + B_idx. Returns how many were found: n, or less if no other
    leaf is positive.
    """
    n = len(ids)
    if unique:
        n_found = tree_find_unique(tree, levels, u, ids)
    else:
        n_found = n if tree[levels[-1]] > 0 else 0
        tree_find(tree, levels, u, ids)
    if n_found < n:
        return n_found
    lap = first // size * size
    for i in range(n):
        leaf = ids[i]
        priorities[i] = tree[_u(levels[0] + leaf)]
        T_idxs[i] = _u(leaf) // _u(B)
        B_idxs[i] = leaf - T_idxs[i] * B
        ids[i] = lap + leaf + (size if lap + leaf < first else 0)
    return n


# ---------------------------------------------------------------------------------------------------------------------
# Returns
# ---------------------------------------------------------------------------------------------------------------------
# Arrays are [T,N] and contiguous; numbers share one floating dtype, flags are bool. The outer loops are over rows, so that the compiler
# vectorizes the inner ones.


@kernel
def discount_return(reward, done, bootstrap, discount, timeout, value, timeout_value, return_):
    """Write the returns of `rlpyt.returns.discount_return_tl`; `bootstrap` is [N].

    One of `value` and `timeout_value` is None; without timeouts, `timeout` and both of them are.
    """
    T, N = reward.shape
    following = bootstrap.copy()  # G_{t+1}
    for t in range(T - 1, -1, -1):
        for j in range(N):
            y = reward[t, j] + (reward.dtype.type(0) if done[t, j] else discount * following[j])
            if timeout_value is not None:
                y += discount * timeout_value[t, j] if timeout[t, j] else reward.dtype.type(0)
            if value is not None:
                y = value[t, j] if timeout[t, j] else y
            return_[t, j] = following[j] = y


@kernel
def _td_error(reward, value, next_value, done, discount, timeout, timeout_value, t, j):
    """Return ``r + γ V(next) - V`` of a step: of a truncated one with the value of its final observation, or 0 if that is unknown."""
    zero = reward.dtype.type(0)
    v = zero if done[t, j] else next_value[j]
    if timeout_value is not None:
        v = timeout_value[t, j] if timeout[t, j] else v
    delta = reward[t, j] + discount * v - value[t, j]
    if timeout is not None and timeout_value is None:
        delta = zero if timeout[t, j] else delta
    return delta


@kernel
def generalized_advantage_estimation(reward, value, done, bootstrap, discount, gae_lambda, timeout, timeout_value, advantage, return_):
    """Write what `rlpyt.returns.generalized_advantage_estimation_tl` returns; `bootstrap` is [N], `timeout` and its value may be None."""
    T, N = reward.shape
    zero = reward.dtype.type(0)
    following = np.zeros_like(bootstrap)  # A_{t+1}
    next_value = bootstrap
    for t in range(T - 1, -1, -1):
        for j in range(N):
            y = _td_error(reward, value, next_value, done, discount, timeout, timeout_value, t, j)
            y += zero if done[t, j] else discount * gae_lambda * following[j]
            advantage[t, j] = following[j] = y
            return_[t, j] = y + value[t, j]
        next_value = value[t]


@kernel
def v_trace(reward, value, done, bootstrap, ratio, discount, lambda_, rho_clip, c_clip, timeout, timeout_value, advantage, return_):
    """Write what `rlpyt.returns.v_trace` returns; `bootstrap` is [N], `timeout` and its value may be None."""
    T, N = reward.shape
    zero = reward.dtype.type(0)
    following = np.zeros_like(bootstrap)  # x_{t+1}
    next_value = bootstrap
    for t in range(T - 1, -1, -1):
        for j in range(N):
            delta = _td_error(reward, value, next_value, done, discount, timeout, timeout_value, t, j)
            rho, c = min(rho_clip, ratio[t, j]), min(c_clip, ratio[t, j])
            later = zero if done[t, j] else discount * lambda_ * following[j]
            advantage[t, j] = delta + later
            x = rho * delta + c * later
            following[j] = x
            return_[t, j] = x + value[t, j]
        next_value = value[t]


@kernel
def explained_variance(value, return_, valid):
    """Return what `rlpyt.returns.explained_variance` does; arrays are [T,N], `valid` is bool or None."""
    T, N = return_.shape
    if T * N == 0:
        return 0.0
    n, error_sum, error_squares, return_sum, return_squares = 0, 0.0, 0.0, 0.0, 0.0
    first_return = np.float64(return_[0, 0])  # Sums of differences from a number of the same size lose less precision.
    first_error = first_return - value[0, 0]
    for t in range(T):
        for j in range(N):
            if valid is None or valid[t, j]:
                n += 1
                x = return_[t, j] - first_return
                return_sum += x
                return_squares += x * x
                x = np.float64(return_[t, j]) - value[t, j] - first_error
                error_sum += x
                error_squares += x * x
    of_return = return_squares - return_sum * return_sum / n if n else 0.0
    of_error = error_squares - error_sum * error_sum / n if n else 0.0
    return 1 - of_error / of_return if of_return > 0 else 0.0


@kernel
def discount_return_n_step(reward, done, n_step, discount, return_, done_n):
    """Write the first ``len(return_)`` rows of the result of `rlpyt.returns.discount_return_n_step`; reward and done are [T,N]."""
    T, N = reward.shape
    for t in range(len(return_)):
        return_[t], done_n[t] = 0, False
        for k in range(min(t + n_step, T) - 1, t - 1, -1):
            for j in range(N):
                return_[t, j] = reward[k, j] + (reward.dtype.type(0) if done[k, j] else discount * return_[t, j])
                done_n[t, j] |= done[k, j]


# ---------------------------------------------------------------------------------------------------------------------
# Quantiles
# ---------------------------------------------------------------------------------------------------------------------
@kernel
def quantile_huber(theta, tau, y, kappa, losses, gradient):
    """Write losses and their gradients, see `rlpyt.utils.tensor.quantile_huber`. All arrays are float64.

    Each sum over j is made of four parts of the sorted y_j, in which the Huber loss is linear, quadratic, quadratic and linear. For a part,
    the number of the y_j, their sum, and the sum of their squares are enough.

    Args:
        theta, tau: [n,N].
        y: [m,M]; each of its rows is for n / m consecutive rows of `theta`.
        losses: [n], written.
        gradient: [n,N], written: NaN where the loss is not finite.
    """
    (n, N), (m, M) = theta.shape, y.shape
    sums, squares = np.empty(M + 1), np.empty(M + 1)  # Of the values from the middle up to each one.
    for r in range(m):
        values = np.sort(y[r])
        middle = values[M // 2]
        values -= middle  # Squares of small numbers lose fewer digits.
        sums[M // 2] = squares[M // 2] = 0
        for j in range(M // 2, M):
            sums[j + 1] = sums[j] + values[j]
            squares[j + 1] = squares[j] + values[j] ** 2
        for j in range(M // 2 - 1, -1, -1):
            sums[j] = sums[j + 1] - values[j]
            squares[j] = squares[j + 1] - values[j] ** 2
        for k in range(r * (n // m), (r + 1) * (n // m)):
            loss = 0.0
            for i in range(N):
                x = theta[k, i] - middle
                a, b = np.searchsorted(values, x - kappa), np.searchsorted(values, x)  # The parts are values[:a], values[a:b],
                c = np.searchsorted(values, x + kappa)  # values[b:c] and values[c:].
                far_below, near_below = x * a - (sums[a] - sums[0]), x * (b - a) - (sums[b] - sums[a])  # Sums of x - y_j.
                near_above, far_above = x * (c - b) - (sums[c] - sums[b]), x * (M - c) - (sums[M] - sums[c])
                squares_below = x * (near_below - (sums[b] - sums[a])) + squares[b] - squares[a]  # Sums of (x - y_j)².
                squares_above = x * (near_above - (sums[c] - sums[b])) + squares[c] - squares[b]
                below = kappa * (far_below - 0.5 * kappa * a) + 0.5 * squares_below
                above = kappa * (-far_above - 0.5 * kappa * (M - c)) + 0.5 * squares_above
                loss += (1 - tau[k, i]) * below + tau[k, i] * above
                slope = (1 - tau[k, i]) * (kappa * a + near_below) + tau[k, i] * (near_above - kappa * (M - c))
                gradient[k, i] = slope / (M * kappa)
            if loss < 0:  # By rounding.
                loss = 0.0
            losses[k] = loss / (M * kappa)
            if not np.isfinite(loss):
                gradient[k] = np.nan


# ---------------------------------------------------------------------------------------------------------------------
# Frames
# ---------------------------------------------------------------------------------------------------------------------
# Stored frames are [T*B,F] bytes: row t of environment b is at t * B + b. An observation at row t is C frames from OLDEST to NEWEST: rows
# t-C+1..t of its environment (mod T). Frames of earlier episodes, up to the last `done` before row t, are blank (zeros); `done` is [T*B],
# bool or uint8. All arrays are contiguous. Each kernel gathers samples start..stop-1, so that several threads can share the work.


@numba.extending.intrinsic
def _copy(typing_context, to, to_start, source, source_start, n):
    """Copy n bytes between one-dimensional arrays by memcpy, four times as fast as numba's assignment of slices."""

    def build(context, builder, signature, args):
        to, to_start, source, source_start, n = args
        to_type, _, source_type, _, _ = signature.args
        to = context.make_array(to_type)(context, builder, to).data
        source = context.make_array(source_type)(context, builder, source).data
        cgutils.raw_memcpy(builder, builder.gep(to, [to_start]), builder.gep(source, [source_start]), n, 1)
        return context.get_dummy_value()

    i64 = numba.types.int64
    return numba.types.void(to, i64, source, i64, i64), build


@kernel
def _prefetch_rows(frames, F, T, B, newest, b, n):
    """Prefetch the beginnings of `n` frames of an environment, up to row `newest`: the processor prefetches the rest as it reads them."""
    for age in range(n):
        start = ((newest - age) % T * B + b) * F
        for i in range(start, start + min(F, 2048), 64):
            _prefetch(frames, i)


@kernel
def _put_frame(frames, F, T, B, t, b, blank, to, place):
    """Write the frame of row t, or zeros if blank, as frame number `place` of `to`."""
    if blank:
        to[place * F : (place + 1) * F] = 0
    else:
        _copy(to, place * F, frames, (t % T * B + b) * F, F)


@kernel
def _n_frames_of_episode(done, T, B, C, t, b):
    """Return the number of frames, of the C in the observation at row t, that are not blank."""
    n = 1
    while n < C and not done[(t - n) % T * B + b]:
        n += 1
    return n


@kernel
def gather_frames(frames, done, T, B, C, T_idxs, B_idxs, out, start, stop):
    """Write the observations at rows `T_idxs` of environments `B_idxs`, both [n] int64, to `out` [n,C,F]."""
    F = frames.shape[1]
    frames, out = frames.reshape(-1), out.reshape(-1)
    for i in range(start, stop):
        if i + 1 < stop:
            _prefetch_rows(frames, F, T, B, T_idxs[i + 1], B_idxs[i + 1], C)
        t, b = T_idxs[i], B_idxs[i]
        n_frames = _n_frames_of_episode(done, T, B, C, t, b)
        newest = (i + 1) * C - 1  # The place of the newest frame in `out`.
        for age in range(C):
            _put_frame(frames, F, T, B, t - age, b, age >= n_frames, out, newest - age)


@kernel
def gather_frames_of_transitions(frames, done, T, B, C, T_idxs, n_steps, B_idxs, out, target_out, start, stop):
    """Write the observations at rows `T_idxs` to `out` and those `n_steps` rows later to `target_out`, both [n,C,F].

    `T_idxs`, `n_steps` (at least 0) and `B_idxs` are [n] int64. A frame that both observations contain is read from memory once.
    """
    F = frames.shape[1]
    frames, out, target_out = frames.reshape(-1), out.reshape(-1), target_out.reshape(-1)
    for i in range(start, stop):
        if i + 1 < stop:
            t, n, b = T_idxs[i + 1], n_steps[i + 1], B_idxs[i + 1]
            _prefetch_rows(frames, F, T, B, t + n, b, min(n, C))
            _prefetch_rows(frames, F, T, B, t, b, C)
        t, n, b = T_idxs[i], n_steps[i], B_idxs[i]
        n_frames = _n_frames_of_episode(done, T, B, C, t, b)
        n_target_frames = _n_frames_of_episode(done, T, B, C, t + n, b)
        newest = (i + 1) * C - 1  # The place of the newest frame in either output.
        for age in range(min(n, C)):  # Frames of only the target observation.
            _put_frame(frames, F, T, B, t + n - age, b, age >= n_target_frames, target_out, newest - age)
        for age in range(C):
            _put_frame(frames, F, T, B, t - age, b, age >= n_frames, out, newest - age)
            if age + n < C:
                _put_frame(frames, F, T, B, t - age, b, age + n >= n_target_frames, target_out, newest - age - n)


@kernel
def gather_frames_of_sequences(frames, done, T, B, C, T_idxs, B_idxs, out, start, stop):
    """Write the observations at L rows from `T_idxs` on, of environments `B_idxs`, both [n] int64, to `out` [L,n,C,F].

    Each frame is read from memory once and written to all observations that contain it.
    """
    L, n = out.shape[:2]
    F = frames.shape[1]
    frames, out = frames.reshape(-1), out.reshape(-1)
    for i in range(start, stop):
        first, b = T_idxs[i], B_idxs[i]
        for k in range(1 - C, L):
            _prefetch_rows(frames, F, T, B, first + k + 1, b, 1)
            blank = False
            for l in range(k, min(k + C, L)):  # The observations with this frame, from the one whose newest frame it is.
                if l >= 0:
                    newest = (l * n + i + 1) * C - 1  # The place of the newest frame of observation l in `out`.
                    _put_frame(frames, F, T, B, first + k, b, blank, out, newest - (l - k))
                blank = blank or done[(first + l) % T * B + b]


@kernel
def store_newest_frames(stacks, frames):
    """Write the last frame of each stack, [n,C,F], to `frames` [n,F]; all are bytes."""
    n, C, F = stacks.shape
    stacks, frames = stacks.reshape(-1), frames.reshape(-1)
    for i in range(n):
        newest = ((i + 1) * C - 1) * F
        if i + 1 < n:  # Too far away for the processor's own prefetching.
            for k in range(newest + C * F, newest + (C + 1) * F, 64):
                _prefetch(stacks, k)
        _copy(frames, i * F, stacks, newest, F)


# ---------------------------------------------------------------------------------------------------------------------
# Transitions and sequences
# ---------------------------------------------------------------------------------------------------------------------
@kernel
def all_within(T_idxs, B_idxs, T, B):
    """Return whether both have equal length, all `T_idxs` are in [0, T), and all `B_idxs` in [0, B)."""
    if len(T_idxs) != len(B_idxs):
        return False
    for i in range(len(T_idxs)):
        if not (0 <= T_idxs[i] < T and 0 <= B_idxs[i] < B):
            return False
    return True


@kernel
def transition_rows(T_idxs, B_idxs, T, B, done, timeout, final_slot, discounts, rows, before, n_steps, bootstrap_discount, timeout_n, slot):
    """Find where the parts of transitions over ``N = len(discounts) - 1`` steps are stored.

    A transition ends after N steps, or with the last step of its episode if this was truncated earlier and its final
    observation is known. After a termination any end will do, because the target does not use its value.

    Args:
        T_idxs, B_idxs: [n], first steps.
        T, B: size of the ring; step (t, b) is in memory row ``t * B + b``, and row ``T * B`` holds the null action and reward.
        done: [T*B].
        timeout: [T*B], or [0] if nothing is ever truncated.
        final_slot: [T*B], at least 0 where the final observation is known, or [0].
        discounts: [N+1], discount ** k.
        rows: [2n], written: memory row of each first step, then of each observation at the end (if it is not a final one).
        before: [2n], written: memory rows of the previous action and reward that the agent got with these observations.
        n_steps: [n], written: steps of each transition.
        bootstrap_discount: [n], float32, written: 0 after a termination, else discount ** n_steps.
        timeout_n: [n], bool, written: whether the episode was truncated within these steps.
        slot: [n], written: slot of the final observation that ends the transition, or -1.

    Returns:
        Whether any transition has a slot.
    """
    n, N, null, any_slot = len(T_idxs), len(discounts) - 1, T * B, False
    for i in range(n):
        t, b = T_idxs[i], B_idxs[i]
        here = t * B + b
        previous = here - B if t > 0 else here - B + null
        rows[i] = here
        before[i] = null if done[previous] else previous
        steps, ended, timed_out, found, last = 0, False, False, -1, here
        while steps < N and not ended:
            last = here + steps * B
            if last >= null:
                last -= null
            steps += 1
            if done[last]:
                ended = True
        if ended and len(timeout) > 0 and timeout[last]:
            timed_out = True
            if len(final_slot) > 0:
                found = final_slot[last]
        if found >= 0:
            any_slot = True
            before[n + i] = last
            bootstrap_discount[i] = discounts[steps]
        else:
            steps = N
            last = here + (N - 1) * B
            if last >= null:
                last -= null
            before[n + i] = null if done[last] else last
            bootstrap_discount[i] = 0 if ended else discounts[N]
        target = last + B
        rows[n + i] = target if target < null else target - null
        n_steps[i], timeout_n[i], slot[i] = steps, timed_out, found
    return any_slot


@kernel
def powers(priorities, alpha, out):
    """Write priorities [n] to the power of `alpha` to `out` [n]; return -1, or the index of a negative or NaN priority."""
    for i in range(len(priorities)):
        if not priorities[i] >= 0:
            return i
        out[i] = priorities[i] ** alpha
    return -1


@kernel
def importance_weights(priorities, beta, eps, weights):
    """Write ``(1 / (p + eps)) ** beta``, divided by the largest of these weights, for priorities p [n] to `weights` [n]."""
    smallest = np.inf
    for priority in priorities:
        smallest = min(smallest, priority + eps)
    for i in range(len(priorities)):
        weights[i] = (smallest / (priorities[i] + eps)) ** beta


@kernel
def sequence_rows(T_idxs, B_idxs, T, B, N, done, timeout, valid_row, rows, before, prev, valid):
    """Find where the parts of sequences are stored; N further steps follow each sequence, for the targets of its last steps.

    Args:
        T_idxs, B_idxs: [n], first steps.
        T, B, done, timeout: as in `transition_rows`.
        valid_row: [T*B], whether a row holds a step and is not blank, or [0] if no row is blank.
        rows: [L+N,n], written: memory row of each step.
        before: [L+N,n], written: memory row of the step before.
        prev: [L+N,n], written: memory row of the previous action and reward that the agent got; the null row at the start of episodes.
        valid: [L,n], bool, written: whether the row is not blank, and the episode was not truncated within N steps.
    """
    L, n, null = len(valid), len(T_idxs), T * B
    for j in range(n):
        row = T_idxs[j] * B + B_idxs[j]
        last = row - B if row >= B else row - B + null
        for k in range(L + N):
            rows[k, j], before[k, j] = row, last
            prev[k, j] = null if done[last] else last
            last = row
            row += B
            if row >= null:
                row -= null
        until_end, timed_out = N, False  # Steps from this one to the end of its episode; N if the end is farther.
        for k in range(L + N - 1, -1, -1):
            row = rows[k, j]
            if done[row]:
                until_end, timed_out = 0, len(timeout) > 0 and timeout[row] != 0
            else:
                until_end = min(until_end + 1, N)
            if k < L:
                blank = len(valid_row) > 0 and not valid_row[row]
                valid[k, j] = not blank and not (timed_out and until_end < N)
