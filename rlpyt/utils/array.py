"""Helpers for numpy arrays; the same names for torch tensors are in `rlpyt.utils.tensor`."""

import math
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

ALIGNMENT = 64  # Bytes: a cache line. Addresses of the memory that torch allocates are multiples of it, those of numpy's are not.


def aligned_size(n_bytes: int) -> int:
    """Return `n_bytes`, rounded up to a multiple of `ALIGNMENT`."""
    return -(-n_bytes // ALIGNMENT) * ALIGNMENT


def aligned_zeros(shape: tuple[int, ...], dtype: DTypeLike) -> np.ndarray:
    """Do what `numpy.zeros` does, in memory that begins at a multiple of `ALIGNMENT`."""
    n_bytes = math.prod(shape) * np.dtype(dtype).itemsize
    memory = np.zeros(n_bytes + ALIGNMENT, np.uint8)  # Like any zeros of numpy, these take no memory before they are written to.
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + n_bytes].view(dtype).reshape(shape)


def aligned(array: np.ndarray) -> np.ndarray:
    """Return `array`, or a copy if its memory does not begin at a multiple of `ALIGNMENT`.

    The last bits of torch's products can depend on where the memory of their inputs begins.
    """
    if array.ctypes.data % ALIGNMENT == 0 or array.dtype.hasobject:
        return array
    copied = aligned_zeros(array.shape, array.dtype)
    np.copyto(copied, array)
    return copied


def select_at_indexes(indexes: np.ndarray, array: np.ndarray) -> np.ndarray:
    """Return one entry per leading position, e.g. the value of the taken action from the values of all actions.

    Args:
        indexes: integers [*lead].
        array: [*lead, n, *rest].

    Returns:
        A new array [*lead, *rest].
    """
    indexes = np.asarray(indexes)
    check_same_lead(indexes.shape, array.shape)
    n_lead = indexes.ndim
    flat = array.reshape((indexes.size,) + array.shape[n_lead:])  # [prod(lead), n, *rest]
    selected = flat[np.arange(indexes.size), indexes.reshape(-1)]
    return selected.reshape(indexes.shape + array.shape[n_lead + 1 :])


def to_onehot(indexes: np.ndarray, dim: int, dtype: DTypeLike | None = None) -> np.ndarray:
    """Return the one-hot encoding [*lead, dim] of integers [*lead] from 0 to dim - 1, of `dtype` (default: as indexes)."""
    indexes = np.asarray(indexes)
    if indexes.size and (indexes.min() < 0 or indexes.max() >= dim):
        raise IndexError(f"indexes are {indexes.min()}..{indexes.max()}: size {dim} needs 0..{dim - 1}.")
    onehot = np.zeros(indexes.shape + (dim,), dtype=indexes.dtype if dtype is None else dtype)
    np.put_along_axis(onehot, indexes[..., np.newaxis].astype(np.int64), 1, axis=-1)
    return onehot


def from_onehot(onehot: np.ndarray, dtype: DTypeLike | None = None) -> np.ndarray:
    """Return the positions [*lead] of the largest values on the last axis of an array [*lead, dim], int64 or of `dtype`."""
    return np.asarray(np.argmax(onehot, axis=-1), dtype=dtype)


def valid_mean(array: np.ndarray, valid: np.ndarray | None = None, axis: int | tuple[int, ...] | None = None) -> Any:
    """Return the mean of `array` weighted by the mask `valid` (broadcast to array), over `axis` or over everything.

    This is ``sum(array * valid) / sum(valid)``, where elements of weight 0 may be infinite: NaN where nothing is valid, and the plain mean
    if `valid` is None.
    """
    if valid is None:
        return array.mean(axis=axis)
    weights = np.broadcast_to(valid, array.shape)
    array = np.where(weights == 0, np.zeros((), array.dtype), array)
    with np.errstate(invalid="ignore"):  # 0 / 0 is the documented NaN
        return (array * weights).sum(axis=axis) / weights.sum(axis=axis)


def infer_leading_dims(array: np.ndarray, dim: int) -> tuple[int, int, tuple[int, ...], bool, bool]:
    """Find out whether data of `dim` dimensions comes with leading dimensions [], [B] or [T,B].

    Returns (T, B, data shape, has_T, has_B); T and B are 1 if that dimension is missing.
    """
    n_lead = array.ndim - dim
    if not 0 <= n_lead <= 2:
        raise ValueError(
            f"An array of shape {array.shape} cannot hold data of {dim} dimensions with leading "
            f"[], [B] or [T,B]: give it {dim} to {dim + 2} dimensions."
        )
    T, B = (1, 1, *array.shape[:n_lead])[-2:]
    return T, B, array.shape[n_lead:], n_lead == 2, n_lead >= 1


def check_same_lead(lead: tuple[int, ...], shape: tuple[int, ...]) -> None:
    """Raise ValueError unless `shape` begins with the shape `lead` of indexes, and has at least one more dimension."""
    if tuple(shape[: len(lead)]) != tuple(lead) or len(shape) <= len(lead):
        raise ValueError(
            f"indexes of shape {tuple(lead)} cannot select from shape {tuple(shape)}: "
            "it must begin with the shape of the indexes and have one more dimension."
        )
