"""Returns, advantages and validity of time-major batches: pure functions of arrays.

All functions take torch tensors or numpy arrays with leading dimension ``[T]`` and any trailing dimensions,
usually ``[T,B]``, and return the same kind. No gradient flows through any of them. The recursions run
backwards over the rows of one array, in numpy for memory on the CPU; tensors on a GPU are computed there, one
kernel per row.

In all of them an episode ends where `done` is True. Where the end is a truncation (`timeout`, which implies
`done`) the sum of rewards still stops, but the value of what would have followed takes its place; where it is
a termination nothing does.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import Any

import numpy as np
import torch

Array = Any  # A torch tensor or a numpy array.


def _for_numpy_too(function: Callable) -> Callable:
    """Let a function of torch tensors take numpy arrays, over the same memory, and then return numpy arrays."""
    names = list(signature(function).parameters)

    @wraps(function)
    def numpy_or_torch(*args, **kwargs):
        arguments = dict(zip(names, args, strict=False), **kwargs)
        if isinstance(arguments.get(names[0]), torch.Tensor):
            return function(**arguments)
        tensors = {k: torch.from_numpy(v) if isinstance(v, np.ndarray) else v for k, v in arguments.items()}
        out = function(**tensors)
        return tuple(x.numpy() for x in out) if isinstance(out, tuple) else out.numpy()

    return numpy_or_torch


def _backward_sum(x: torch.Tensor, decay: torch.Tensor, last: torch.Tensor | float) -> torch.Tensor:
    """Overwrite ``x[t]`` with ``y[t] = x[t] + decay[t] * y[t+1]``, where ``y[T] = last``; the one recursion of this file."""
    if x.device.type == "cpu":  # A row operation of numpy costs a third of one of torch.
        rows, decays = x.numpy(), decay.numpy()
        y = np.asarray(last, rows.dtype)
        carried = np.empty(rows.shape[1:], rows.dtype)
        for t in range(len(rows) - 1, -1, -1):
            np.multiply(decays[t], y, out=carried)
            y = rows[t, ...]
            y += carried
        return x
    y = last
    for row, factor in zip(reversed(x.unbind()), reversed(decay.unbind()), strict=True):
        y = row.add_(factor * y)
    return x


def _floating(x: Array, like: torch.Tensor) -> torch.Tensor:
    """Return `x` as a tensor without gradient, in a floating dtype (its own if it has one, else float32)."""
    x = torch.as_tensor(x, device=like.device).detach()
    return x if x.is_floating_point() else x.to(torch.float32)


def _bootstrap_row(bootstrap_value: Array, reward: torch.Tensor) -> torch.Tensor:
    """Return the bootstrap value as one row, ``[B]``, whether given as ``[1,B]``, ``[B]`` or a number."""
    value = _floating(bootstrap_value, like=reward).to(reward.dtype)
    if value.dim() == reward.dim() and len(value) == 1:
        value = value[0]
    return value.expand(reward.shape[1:])


def _deliver(result: torch.Tensor, destination: torch.Tensor | None) -> torch.Tensor:
    return result if destination is None else destination.copy_(result)


@_for_numpy_too
def discount_return(
    reward: Array, done: Array, bootstrap_value: Array, discount: float, return_dest: Array | None = None
) -> Array:
    """Discounted sum of rewards until the episode's end, bootstrapped at the end of the batch.

    ``G_t = r_t + γ (1 - d_t) G_{t+1}``, ``G_T = bootstrap_value``.

    Args:
        reward: [T,...].
        done: [T,...], bool (or 0 and 1).
        bootstrap_value: [1,...] or [...], the value of what follows the last row; ignored where that row is
            done.
        discount: γ.
        return_dest: [T,...], written to and returned, if given.

    Returns:
        Returns [T,...].
    """
    return discount_return_tl(reward, done, bootstrap_value, discount, None, None, return_dest)


@_for_numpy_too
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
        advantage_dest: [T,...], written to and returned, if given.
        reward, done, bootstrap_value, discount, return_dest: as in `discount_return`.

    Returns:
        Advantages A and returns A + V, both [T,...].
    """
    return generalized_advantage_estimation_tl(
        reward, value, done, bootstrap_value, discount, gae_lambda, None, advantage_dest, return_dest
    )


@_for_numpy_too
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
    """Like `discount_return`, but the end of an episode by time limit is bootstrapped.

    Where `timeout`, ``G_t = r_t + γ V(final observation)`` if that value is given as `timeout_value`. Otherwise the only
    estimate there is takes the place of the return, ``G_t = V_t``, and the step itself teaches nothing: leave it out
    of the loss.

    Args:
        timeout: [T,...], bool: the episode was truncated with this step (`done` is True as well); None means nowhere.
        value: [T,...], V(s_t); used only where `timeout` without `timeout_value`.
        timeout_value: [T,...], value of the observation that ended the episode; used only where `timeout`.
        reward, done, bootstrap_value, discount, return_dest: as in `discount_return`.

    Returns:
        Returns [T,...].
    """
    return_ = _floating(reward, like=reward).clone()
    if timeout is not None:
        timeout = timeout.bool()
        if timeout_value is not None:
            return_ += discount * torch.where(timeout, timeout_value.detach(), 0)
        else:
            return_ = torch.where(timeout, value.detach().to(return_.dtype), return_)
    decay = discount * (1 - done.to(return_.dtype))
    return _deliver(_backward_sum(return_, decay, _bootstrap_row(bootstrap_value, return_)), return_dest)


@_for_numpy_too
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
    """Like `generalized_advantage_estimation`, but the end of an episode by time limit is bootstrapped.

    Where `timeout`, ``δ_t = r_t + γ V(final observation) - V_t`` if that value is given as `timeout_value`. Otherwise
    ``δ_t = 0``, so that the return is V_t and the step itself teaches nothing: leave it out
    of the loss.

    Args:
        timeout: [T,...], bool: the episode was truncated with this step (`done` is True as well); None means nowhere.
        timeout_value: [T,...], value of the observation that ended the episode; used only where `timeout`.
        reward, value, done, bootstrap_value, discount, gae_lambda, advantage_dest, return_dest: as in
            `generalized_advantage_estimation`.

    Returns:
        Advantages A and returns A + V, both [T,...].
    """
    reward = _floating(reward, like=reward)
    value = _floating(value, like=reward).to(reward.dtype)
    alive = 1 - done.to(reward.dtype)
    next_value = torch.cat([value[1:], _bootstrap_row(bootstrap_value, reward)[None]]) * alive
    if timeout is not None and timeout_value is not None:
        next_value = torch.where(timeout.bool(), timeout_value.detach().to(reward.dtype), next_value)
    delta = reward + discount * next_value - value
    if timeout is not None and timeout_value is None:
        delta = torch.where(timeout.bool(), 0, delta)
    advantage = _backward_sum(delta, discount * gae_lambda * alive, 0.0)
    return _deliver(advantage, advantage_dest), _deliver(advantage + value, return_dest)


@_for_numpy_too
def discount_return_n_step(
    reward: Array,
    done: Array,
    n_step: int,
    discount: float,
    return_dest: Array | None = None,
    done_n_dest: Array | None = None,
    do_truncated: bool = False,
) -> tuple[Array, Array]:
    """Discounted sum of the next n rewards of the episode, without bootstrapping.

    ``R_t = Σ_{k<n} γ^k r_{t+k} Π_{j<k} (1 - d_{t+j})``; ``done_n_t`` says whether any of ``d_t .. d_{t+n-1}`` is True.

    Args:
        n_step: n.
        do_truncated: if True, also return the last n-1 rows, whose sums stop at the end of the given rewards.
        return_dest, done_n_dest: written to and returned, if given.
        reward, done, discount: as in `discount_return`.

    Returns:
        Returns and done_n (of done's dtype), both [T,...] if `do_truncated`, else [T-n+1,...].

    Raises:
        ValueError: n_step < 1, or fewer than n_step rows and not `do_truncated`.
    """
    T = len(reward)
    if n_step < 1 or (n_step > T and not do_truncated):
        raise ValueError(f"n_step={n_step} must be at least 1 and, unless do_truncated, at most the {T} rows of reward.")
    rows = T if do_truncated else T - n_step + 1
    r = _floating(reward, like=reward)
    return_ = torch.zeros((rows, *r.shape[1:]), dtype=r.dtype, device=r.device)
    done_n = torch.zeros((rows, *done.shape[1:]), dtype=torch.bool, device=done.device)
    for k in reversed(range(min(n_step, T))):
        d = done[k : k + rows].bool()  # [rows-k or rows,...]
        m = len(d)  # Shorter than `rows` where the window reaches beyond the end.
        return_[:m] *= discount * (~d).to(r.dtype)
        return_[:m] += r[k : k + rows]
        done_n[:m] |= d
    return _deliver(return_, return_dest), _deliver(done_n.to(done.dtype), done_n_dest)


@_for_numpy_too
def valid_from_done(done: Array) -> Array:
    """Return a float32 mask [T,...]: 1 up to and including the first `done` along the leading dimension, 0 after it."""
    done = done.to(torch.float32)
    ended_before = torch.zeros_like(done)
    ended_before[1:] = torch.cumsum(done[:-1], dim=0).clamp_(max=1)
    return 1 - ended_before
