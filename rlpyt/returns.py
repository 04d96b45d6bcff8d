"""Returns, advantages and validity of time-major batches: pure functions of arrays.

All functions take torch tensors or numpy arrays with leading dimension ``[T]`` and any trailing dimensions, usually ``[T,B]``, and return
the same kind. No gradient flows through them. The recursions run backwards over the rows: on the CPU in one kernel, on a GPU by torch
operations, row by row.

An episode, and the sum of its rewards, ends where `done` is True. A truncation (`timeout`, which implies `done`) bootstraps from the
value of the episode's final observation; a termination does not.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from rlpyt.utils.lazy import LazyModule

kernels = LazyModule("rlpyt.utils.kernels")

Array = Any  # A torch tensor or a numpy array.


def discount_return(reward: Array, done: Array, bootstrap_value: Array, discount: float, return_dest: Array | None = None) -> Array:
    """Return the discounted sum of rewards until the episode's end, bootstrapped at the end of the batch.

    ``G_t = r_t + γ (1 - d_t) G_{t+1}``, ``G_T = bootstrap_value``.

    Args:
        reward: [T,...].
        done: [T,...], bool (or 0 and 1).
        bootstrap_value: [1,...] or [...], the value of the observation after the last row; ignored where the last row is done.
        discount: γ.
        return_dest: [T,...], if given, receives the result and is returned.

    Returns:
        Returns [T,...].
    """
    return discount_return_tl(reward, done, bootstrap_value, discount, None, None, return_dest)


def generalized_advantage_estimation(
    reward: Array,
    value: Array,
    done: Array,
    bootstrap_value: Array,
    discount: float,
    gae_lambda: float,
    advantage_dest: Array | None = None,
    return_dest: Array | None = None,
) -> tuple[Array, Array]:
    """Generalized advantage estimation (Schulman et al. 2016, arXiv:1506.02438).

    ``δ_t = r_t + γ (1 - d_t) V_{t+1} - V_t`` and ``A_t = δ_t + γ λ (1 - d_t) A_{t+1}``, with ``V_T = bootstrap_value`` and
    ``A_T = 0``.

    Args:
        value: [T,...], V(s_t).
        gae_lambda: λ.
        advantage_dest: [T,...], if given, receives the advantages and is returned.
        reward, done, bootstrap_value, discount, return_dest: as in `discount_return`.

    Returns:
        Advantages A and returns A + V, both [T,...].
    """
    return generalized_advantage_estimation_tl(
        reward, value, done, bootstrap_value, discount, gae_lambda, None, advantage_dest, return_dest
    )


def discount_return_tl(
    reward: Array,
    done: Array,
    bootstrap_value: Array,
    discount: float,
    timeout: Array | None,
    value: Array | None,
    return_dest: Array | None = None,
    timeout_value: Array | None = None,
) -> Array:
    """Like `discount_return`, but truncated episodes bootstrap.

    Where `timeout` is True, ``G_t = r_t + γ V(final observation)`` if `timeout_value` gives that value. Otherwise ``G_t = V_t``: leave
    such a step out of the loss, because its return equals the estimate.

    Args:
        timeout: [T,...], bool, True where the step truncated the episode (`done` is also True); None means nowhere.
        value: [T,...], V(s_t); used only where `timeout` is True, if `timeout_value` is None.
        timeout_value: [T,...], value of the final observation of the episode; used only where `timeout` is True.
        reward, done, bootstrap_value, discount, return_dest: as in `discount_return`.

    Returns:
        Returns [T,...].

    Raises:
        ValueError: shapes differ, or `timeout` comes without either value.
    """
    _check_shapes(reward, done=done, timeout=timeout, value=value, timeout_value=timeout_value)
    if timeout is not None and value is None and timeout_value is None:
        raise ValueError("Returns of truncated episodes (timeout) need timeout_value or value: give one of them.")
    return_: Array
    if not _in_cpu_memory(reward):
        return_ = _discount_return_by_torch(reward, done, bootstrap_value, discount, timeout, value, timeout_value)
        return _deliver(return_, reward, return_dest)
    if timeout is None or timeout_value is not None:
        value = None
    if timeout is None:
        timeout_value = None
    dtype = _float_dtype(reward)
    r = _rows(reward, dtype)
    return_ = np.empty_like(r)
    kernels.discount_return(
        r,
        _rows(done, bool),
        _row(bootstrap_value, reward, dtype),
        dtype.type(discount),
        _rows_if_any(timeout, bool),
        _rows_if_any(value, dtype),
        _rows_if_any(timeout_value, dtype),
        return_,
    )
    return _deliver(return_, reward, return_dest)


def generalized_advantage_estimation_tl(
    reward: Array,
    value: Array,
    done: Array,
    bootstrap_value: Array,
    discount: float,
    gae_lambda: float,
    timeout: Array | None,
    advantage_dest: Array | None = None,
    return_dest: Array | None = None,
    timeout_value: Array | None = None,
) -> tuple[Array, Array]:
    """Like `generalized_advantage_estimation`, but truncated episodes bootstrap.

    Where `timeout` is True, ``δ_t = r_t + γ V(final observation) - V_t`` if `timeout_value` gives that value. Otherwise ``δ_t = 0``: leave
    such a step out of the loss, because its return V_t equals the estimate.

    Args:
        timeout: [T,...], bool, True where the step truncated the episode (`done` is also True); None means nowhere.
        timeout_value: [T,...], value of the final observation of the episode; used only where `timeout` is True.
        reward, value, done, bootstrap_value, discount, gae_lambda, advantage_dest, return_dest: as in
            `generalized_advantage_estimation`.

    Returns:
        Advantages A and returns A + V, both [T,...].
    """
    _check_shapes(reward, value=value, done=done, timeout=timeout, timeout_value=timeout_value)
    arrays, numbers, of_truncated = (reward, value, done, bootstrap_value), (discount, gae_lambda), (timeout, timeout_value)
    results: tuple[Array, Array]
    if not _in_cpu_memory(reward):
        results = _generalized_advantage_estimation_by_torch(*arrays, *numbers, *of_truncated)
    else:
        results = _by_kernel(kernels.generalized_advantage_estimation, arrays, (), numbers, of_truncated)
    advantage, return_ = results
    return _deliver(advantage, reward, advantage_dest), _deliver(return_, reward, return_dest)


def discount_return_n_step(
    reward: Array,
    done: Array,
    n_step: int,
    discount: float,
    return_dest: Array | None = None,
    done_n_dest: Array | None = None,
    do_truncated: bool = False,
) -> tuple[Array, Array]:
    """Return the discounted sum of the next n rewards of the episode, without bootstrapping.

    ``R_t = Σ_{k<n} γ^k r_{t+k} Π_{j<k} (1 - d_{t+j})``; ``done_n_t`` tells whether any of ``d_t .. d_{t+n-1}`` is True.

    Args:
        n_step: n.
        do_truncated: if True, also return the last n-1 rows, whose sums stop at the end of the given rewards.
        return_dest, done_n_dest: if given, receive the results and are returned.
        reward, done, discount: as in `discount_return`.

    Returns:
        Returns and done_n (of done's dtype), both [T,...] if `do_truncated`, else [T-n+1,...].

    Raises:
        ValueError: n_step < 1, or fewer than n_step rows and not `do_truncated`; or shapes differ.
    """
    _check_shapes(reward, done=done)
    T = len(reward)
    if n_step < 1 or (n_step > T and not do_truncated):
        raise ValueError(f"n_step={n_step} must be at least 1 and, unless do_truncated, at most the {T} rows of reward.")
    rows = T if do_truncated else T - n_step + 1
    return_: Array
    done_n: Array
    if not _in_cpu_memory(reward):
        return_, done_n = _discount_return_n_step_by_torch(reward, done, n_step, discount, rows)
        return _deliver(return_, reward, return_dest), _deliver(done_n, done, done_n_dest)
    dtype = _float_dtype(reward)
    r = _rows(reward, dtype)
    return_, done_n = np.empty((rows, r.shape[1]), dtype), np.empty((rows, r.shape[1]), bool)
    kernels.discount_return_n_step(r, _rows(done, bool), n_step, dtype.type(discount), return_, done_n)
    return _deliver(return_, reward, return_dest), _deliver(done_n, done, done_n_dest)


def v_trace(
    reward: Array,
    value: Array,
    done: Array,
    bootstrap_value: Array,
    ratio: Array,
    discount: float,
    lambda_: float = 1.0,
    rho_clip: float = 1.0,
    c_clip: float = 1.0,
    timeout: Array | None = None,
    timeout_value: Array | None = None,
    advantage_dest: Array | None = None,
    return_dest: Array | None = None,
) -> tuple[Array, Array]:
    """V-trace targets and advantages for steps of another policy (Espeholt et al. 2018, arXiv:1802.01561, equations 1 and 4).

    With the likelihood ratio ``π(a_t|s_t) / μ(a_t|s_t)`` of the policy that learns to the one that acted, ``ρ_t = min(ρ̄, ratio_t)`` and
    ``c_t = min(c̄, ratio_t)``::

        δ_t = r_t + γ (1 - d_t) V_{t+1} - V_t
        x_t = ρ_t δ_t + γ λ c_t (1 - d_t) x_{t+1},   v_t = V_t + x_t
        A_t = δ_t + γ λ (1 - d_t) x_{t+1}

    with ``V_T = bootstrap_value`` and ``x_T = 0``. For λ = 1 the advantage is that of the paper, ``r_t + γ v_{t+1} - V_t``. Its weight ρ_t
    in the policy gradient is left to the loss: one like PPO's multiplies by the ratio itself. Where all ratios are 1, advantages and
    targets are those of `generalized_advantage_estimation_tl`, bit for bit.

    Truncated episodes bootstrap: where `timeout` is True, ``δ_t = r_t + γ V(final observation) - V_t`` if `timeout_value` gives that value.
    Otherwise ``δ_t = 0``: leave such a step out of the loss, because its target V_t equals the estimate.

    Args:
        value: [T,...], V(s_t).
        ratio: [T,...], likelihood ratios of the actions.
        lambda_: λ; less than 1 trusts the values more (Espeholt et al. 2018, remark 2).
        rho_clip: ρ̄, which decides to whose values the targets lead: to those of the policy if it is infinite, to those of the acting
            policy as it approaches 0.
        c_clip: c̄, which decides how far later steps change a target, and so its variance.
        timeout, timeout_value, reward, done, bootstrap_value, discount, advantage_dest, return_dest: as in
            `generalized_advantage_estimation_tl`.

    Returns:
        Advantages A and targets v of the values, both [T,...].

    Raises:
        ValueError: shapes differ.
    """
    _check_shapes(reward, value=value, done=done, ratio=ratio, timeout=timeout, timeout_value=timeout_value)
    arrays, numbers, of_truncated = (reward, value, done, bootstrap_value), (discount, lambda_, rho_clip, c_clip), (timeout, timeout_value)
    results: tuple[Array, Array]
    if not _in_cpu_memory(reward):
        results = _v_trace_by_torch(*arrays, ratio, *numbers, *of_truncated)
    else:
        results = _by_kernel(kernels.v_trace, arrays, (ratio,), numbers, of_truncated)
    advantage, return_ = results
    return _deliver(advantage, reward, advantage_dest), _deliver(return_, reward, return_dest)


def explained_variance(value: Array, return_: Array, valid: Array | None = None) -> float | torch.Tensor:
    """Return ``1 - Var(G - V) / Var(G)`` of values V and returns G [T,...]: 1 for perfect values, 0 for values as good as a constant.

    Args:
        valid: [T,...], mask of the entries to count (1 or 0); None for all.

    Returns:
        The fraction; 0 if all returns are equal. For tensors on a GPU it is a tensor there without dimensions, otherwise a number.

    Raises:
        ValueError: shapes differ.
    """
    _check_shapes(return_, value=value, valid=valid)
    if not _in_cpu_memory(return_):
        value, return_ = _floating(value, like=return_), _floating(return_, like=return_)
        of_error, of_return = _variance(return_ - value, valid), _variance(return_, valid)
        return torch.where(of_return > 0, 1 - of_error / of_return, 0)
    dtype = _float_dtype(return_)
    return kernels.explained_variance(_rows(value, dtype), _rows(return_, dtype), _rows_if_any(valid, bool))


def valid_from_done(done: Array) -> Array:
    """Return a float32 mask [T,...]: 1 up to and including the first `done` along the leading dimension, 0 after it."""
    flags = torch.as_tensor(done).to(torch.float32)
    ended_before = torch.zeros_like(flags)
    ended_before[1:] = torch.cumsum(flags[:-1], dim=0).clamp_(max=1)
    valid = 1 - ended_before
    return valid if isinstance(done, torch.Tensor) else valid.numpy()


def valid_steps(done: Array, valid: Array | None, until_done: bool) -> Array | None:
    """Return a float32 mask [T,...] of the steps to learn from; None if these are all.

    Args:
        done: [T,...].
        valid: [T,...], False where a row is blank, because a vector of environments reset itself; None if no row is.
        until_done: only steps up to the first `done` of each column count, see `valid_from_done`.
    """
    mask = valid_from_done(done) if until_done else None
    if valid is None:
        return mask
    flags = valid.to(torch.float32) if isinstance(valid, torch.Tensor) else valid.astype(np.float32)
    return flags if mask is None else mask * flags


def _check_shapes(reward: Array, **others: Array | None) -> None:
    """Raise ValueError if the shape of an array differs from that of `reward`; the kernels do not check bounds."""
    for name, array in others.items():
        if array is not None and tuple(array.shape) != tuple(reward.shape):
            raise ValueError(f"{name} has shape {tuple(array.shape)}, and must have that of reward, {tuple(reward.shape)}.")


# ---------------------------------------------------------------------------------------------------------------------
# Memory of the CPU
# ---------------------------------------------------------------------------------------------------------------------
def _in_cpu_memory(x: Array) -> bool:
    return not isinstance(x, torch.Tensor) or x.is_cpu


def _float_dtype(x: Array) -> np.dtype:
    """Return the dtype in which to compute returns of rewards `x`."""
    return np.dtype(np.float64 if x.dtype in (torch.float64, np.float64) else np.float32)


def _numpy(x: Array, dtype: Any) -> np.ndarray:
    """Return `x` as a contiguous numpy array of `dtype`; over the same memory if possible."""
    if isinstance(x, torch.Tensor):
        x = (x.float() if x.dtype is torch.bfloat16 else x).numpy(force=True)  # numpy has no bfloat16.
    return np.asarray(x, dtype, order="C")


def _rows(x: Array, dtype: Any) -> np.ndarray:
    """Return `x` [T,...] as an array [T,N]."""
    x = _numpy(x, dtype)
    return x.reshape(len(x), math.prod(x.shape[1:]))


def _rows_if_any(x: Array | None, dtype: Any) -> np.ndarray | None:
    return None if x is None else _rows(x, dtype)


def _row(bootstrap_value: Array, like: Array, dtype: Any) -> np.ndarray:
    """Return the bootstrap value, given as [1,...], [...] or a number, as an array [N] with one entry per column of `like`."""
    value = _numpy(bootstrap_value, dtype)
    if value.ndim == like.ndim and len(value) == 1:
        value = value[0]
    if value.shape != like.shape[1:]:
        value = np.broadcast_to(value, like.shape[1:])
    return value.reshape(-1)


def _by_kernel(
    kernel: Callable, arrays: tuple, further: tuple[Array, ...], numbers: tuple[float, ...], of_truncated: tuple[Array | None, Array | None]
) -> tuple[np.ndarray, np.ndarray]:
    """Compute advantages and returns, both [T,N], by a kernel that takes all arrays as [T,N] of one dtype, and writes both.

    Args:
        kernel: of `rlpyt.utils.kernels`.
        arrays: reward, value, done and bootstrap_value, as in `generalized_advantage_estimation`.
        further: arrays [T,...].
        numbers: discount, and others.
        of_truncated: timeout and timeout_value, as in `generalized_advantage_estimation_tl`.
    """
    reward, value, done, bootstrap_value = arrays
    timeout, timeout_value = of_truncated
    dtype = _float_dtype(reward)
    r = _rows(reward, dtype)
    advantage, return_ = np.empty_like(r), np.empty_like(r)
    kernel(
        r,
        _rows(value, dtype),
        _rows(done, bool),
        _row(bootstrap_value, reward, dtype),
        *[_rows(x, dtype) for x in further],
        *map(dtype.type, numbers),
        _rows_if_any(timeout, bool),
        None if timeout is None else _rows_if_any(timeout_value, dtype),
        advantage,
        return_,
    )
    return advantage, return_


def _deliver(result: Array, like: Array, destination: Array | None) -> Array:
    """Return a result [T,N] or [T,...] in `destination` if given, otherwise as the same kind of array as `like` [T',...].

    Its dtype is that of `like`, or a floating-point type if `like` holds integers.
    """
    if isinstance(like, torch.Tensor):
        if isinstance(result, np.ndarray):
            result = torch.from_numpy(result)
        convert = like.is_floating_point() or result.dtype is torch.bool
        result = result.to(like.dtype) if convert else result
    elif like.dtype.kind == "f" or result.dtype == bool:
        result = result.astype(like.dtype, copy=False)
    result = result.reshape(result.shape[:1] + like.shape[1:])
    if destination is None:
        return result
    destination[...] = result
    return destination


# ---------------------------------------------------------------------------------------------------------------------
# Memory of a GPU
# ---------------------------------------------------------------------------------------------------------------------
def _floating(x: Array, like: torch.Tensor) -> torch.Tensor:
    """Return `x` as a tensor without gradient, in the dtype in which to compute returns."""
    return torch.as_tensor(x, device=like.device).detach().to(torch.float64 if like.dtype is torch.float64 else torch.float32)


def _bootstrap_row(bootstrap_value: Array, reward: torch.Tensor, done: torch.Tensor) -> torch.Tensor:
    """Return the bootstrap value, given as ``[1,B]``, ``[B]`` or a number, as one row ``[B]``; 0 where the last row is done."""
    value = _floating(bootstrap_value, like=reward)
    if value.dim() == reward.dim() and len(value) == 1:
        value = value[0]
    return torch.where(done[-1].bool(), 0, value.expand(reward.shape[1:]))


def _backward_sum(x: torch.Tensor, decay: torch.Tensor, last: torch.Tensor | float) -> torch.Tensor:
    """Overwrite ``x[t]`` with ``y[t] = x[t] + decay[t] * y[t+1]``, where ``y[T] = last``."""
    y = last
    for row, factor in zip(reversed(x.unbind()), reversed(decay.unbind()), strict=True):
        y = row.add_(factor * y)
    return x


def _discount_return_by_torch(
    reward: Any, done: Any, bootstrap_value: Any, discount: float, timeout: Any, value: Any, timeout_value: Any
) -> torch.Tensor:
    """Compute `discount_return_tl` of tensors on a GPU."""
    return_ = _floating(reward, like=reward).clone()
    if timeout is not None:
        timeout = timeout.bool()
        if timeout_value is not None:
            return_ += discount * torch.where(timeout, _floating(timeout_value, like=reward), 0)
        else:
            return_ = torch.where(timeout, _floating(value, like=reward), return_)
    decay = discount * (~done.bool()).to(return_.dtype)
    return _backward_sum(return_, decay, _bootstrap_row(bootstrap_value, return_, done))


def _td_errors(
    reward: Any, value: Any, done: Any, bootstrap_value: Any, discount: float, timeout: Any, timeout_value: Any
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return δ, V and 1 - d [T,...] of `generalized_advantage_estimation_tl`, for tensors on a GPU."""
    reward = _floating(reward, like=reward)
    value = _floating(value, like=reward)
    alive = (~done.bool()).to(reward.dtype)
    next_value = torch.cat([value[1:], _bootstrap_row(bootstrap_value, reward, done)[None]]) * alive
    if timeout is not None and timeout_value is not None:
        next_value = torch.where(timeout.bool(), _floating(timeout_value, like=reward), next_value)
    delta = reward + discount * next_value - value
    if timeout is not None and timeout_value is None:
        delta = torch.where(timeout.bool(), 0, delta)
    return delta, value, alive


def _generalized_advantage_estimation_by_torch(
    reward: Any, value: Any, done: Any, bootstrap_value: Any, discount: float, gae_lambda: float, timeout: Any, timeout_value: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute `generalized_advantage_estimation_tl` of tensors on a GPU."""
    delta, value, alive = _td_errors(reward, value, done, bootstrap_value, discount, timeout, timeout_value)
    advantage = _backward_sum(delta, discount * gae_lambda * alive, 0.0)
    return advantage, advantage + value


def _v_trace_by_torch(
    reward: torch.Tensor,
    value: Any,
    done: torch.Tensor,
    bootstrap_value: Any,
    ratio: Any,
    discount: float,
    lambda_: float,
    rho_clip: float,
    c_clip: float,
    timeout: torch.Tensor | None,
    timeout_value: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute `v_trace` of tensors on a GPU."""
    delta, value, alive = _td_errors(reward, value, done, bootstrap_value, discount, timeout, timeout_value)
    ratio = _floating(ratio, like=reward)
    decay = discount * lambda_ * alive
    correction = _backward_sum(ratio.clamp(max=rho_clip) * delta, decay * ratio.clamp(max=c_clip), 0.0)
    following = torch.cat([correction[1:], torch.zeros_like(correction[:1])])
    return delta + decay * following, correction + value


def _variance(x: torch.Tensor, valid: torch.Tensor | None) -> torch.Tensor:
    """Return the variance of the valid entries of `x`, as a tensor without dimensions."""
    if valid is None:
        return x.var(correction=0)
    weight = valid.to(x.dtype) / valid.sum().clamp(min=1)
    return ((x - (x * weight).sum()).square() * weight).sum()


def _discount_return_n_step_by_torch(
    reward: torch.Tensor, done: torch.Tensor, n_step: int, discount: float, rows: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute the first `rows` rows of `discount_return_n_step` of tensors on a GPU."""
    r = _floating(reward, like=reward)
    return_ = torch.zeros((rows, *r.shape[1:]), dtype=r.dtype, device=r.device)
    done_n = torch.zeros((rows, *done.shape[1:]), dtype=torch.bool, device=done.device)
    for k in reversed(range(min(n_step, len(r)))):
        d = done[k : k + rows].bool()  # [rows-k or rows,...]
        m = len(d)  # Shorter than `rows` where the window reaches beyond the end.
        return_[:m] *= discount * (~d).to(r.dtype)
        return_[:m] += r[k : k + rows]
        done_n[:m] |= d
    return return_, done_n
