"""Copies between the CPU and an accelerator in one piece: launching many small copies takes longer than moving their bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import torch

from rlpyt.utils import accelerator
from rlpyt.utils.array import aligned_size
from rlpyt.utils.buffer import buffer_func, buffer_leaves

_LARGE = 2**16  # bytes: from this size on, a copy within CPU memory takes longer than launching a copy to the device.
_MAX_LAYOUTS = 16  # structures whose memory is kept, the most recent ones.


class Slab:
    """Page-locked memory for the arrays of one structure, which an accelerator copies in one piece.

    Keep a reference to the slab: without one, `of` no longer finds it by its tensors.

    Args:
        n_bytes: for all arrays; a `Ruler` counts them.
    """

    _by_address: WeakValueDictionary[int, Slab] = WeakValueDictionary()

    def __init__(self, n_bytes: int) -> None:
        self.memory = torch.empty(aligned_size(max(n_bytes, 1)), dtype=torch.uint8, pin_memory=True)
        self._used = 0
        Slab._by_address[self.memory.data_ptr()] = self

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Slab | None:
        """Return the slab that holds a tensor made by `tensor` or `tensors`; None if no slab does, or the slab is gone."""
        return cls._by_address.get(tensor.untyped_storage().data_ptr()) if tensor.device.type == "cpu" else None

    def tensor(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """Return the next piece of this memory as an uninitialized tensor."""
        start, n = self._used, int(np.prod(shape)) * dtype.itemsize
        self._used = aligned_size(start + n)
        return self.memory[start : start + n].view(dtype).view(tuple(shape))

    def empty(self, shape: Sequence[int], dtype: Any) -> np.ndarray:
        """Return the next piece of this memory as an array, like `numpy.empty`."""
        return self.tensor(shape, _torch_dtype(np.dtype(dtype))).numpy()

    def tensors(self, structure: Any) -> Any:
        """Return a structure of tensors in which those over arrays of this slab are views of `memory`, so that `of` finds them."""
        first, end = self.memory.data_ptr(), self.memory.data_ptr() + len(self.memory)

        def view(leaf: torch.Tensor) -> torch.Tensor:
            if not first <= leaf.data_ptr() < end:
                return leaf
            return self.memory.view(leaf.dtype).as_strided(leaf.size(), leaf.stride(), (leaf.data_ptr() - first) // leaf.itemsize)

        return buffer_func(structure, view)


class Ruler:
    """Measures how large a `Slab` must be: let the code that allocates the arrays call `empty`."""

    def __init__(self) -> None:
        self.n_bytes = 0

    def empty(self, shape: Sequence[int], dtype: Any) -> np.ndarray:
        """Count the bytes of an array, and return it in ordinary memory."""
        array = np.empty(shape, dtype)
        self.n_bytes += aligned_size(array.nbytes)
        return array


class PackedCopies:
    """Copies structures of tensors to one device.

    Args:
        device: the destination; for the CPU nothing is copied.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._layouts: dict[tuple, list[_Staged]] = {}

    @classmethod
    def to(cls, device: torch.device, present: PackedCopies | None) -> PackedCopies:
        """Return an object that copies to a device: `present` if it does, otherwise a new one."""
        return present if present is not None and present.device == device else cls(device)

    def to_device(self, structure: Any) -> Any:
        """Return a structure of tensors on the device; this process does not wait for the copy.

        Tensors in a `Slab`, and large ones in page-locked memory, are copied from where they are: do not change them before the device has
        copied them. Other tensors are first copied into one slab, and may be changed at once.
        """
        if self.device.type == "cpu":
            return structure
        non_blocking = accelerator.has_page_locking(self.device)
        staged = [leaf for leaf in buffer_leaves(structure) if _is_pageable(leaf)] if non_blocking else []
        moved = dict(zip(map(id, staged), self._staged(staged)))
        slabs: dict[Slab, torch.Tensor] = {}

        def move(leaf: torch.Tensor) -> torch.Tensor:
            if id(leaf) in moved:
                return moved[id(leaf)]
            slab = Slab.of(leaf)
            if slab is None:
                return leaf.to(self.device, non_blocking=non_blocking)
            if slab not in slabs:
                slabs[slab] = slab.memory.to(self.device, non_blocking=True)
            return _same_part(slabs[slab], leaf)

        return buffer_func(structure, move)

    def _staged(self, leaves: list[torch.Tensor]) -> list[torch.Tensor]:
        if not leaves:
            return []
        key = tuple((tuple(leaf.shape), leaf.dtype) for leaf in leaves)
        slots = self._layouts.pop(key, None) or [_Staged(leaves), _Staged(leaves)]
        self._layouts[key] = slots[::-1]
        if len(self._layouts) > _MAX_LAYOUTS:
            del self._layouts[next(iter(self._layouts))]
        return slots[0].to(self.device, leaves)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_layouts": {}}  # Page-locked memory belongs to one process.


class _Staged:
    """A reusable slab for tensors of given shapes and dtypes."""

    def __init__(self, leaves: list[torch.Tensor]) -> None:
        self._slab = Slab(sum(aligned_size(leaf.nbytes) for leaf in leaves))
        self._places = [self._slab.tensor(leaf.shape, leaf.dtype) for leaf in leaves]
        self._copied: Any = None

    def to(self, device: torch.device, leaves: list[torch.Tensor]) -> list[torch.Tensor]:
        if self._copied is not None:
            self._copied.synchronize()  # Rarely waits: the last copy from this slab was two calls ago.
        for place, leaf in zip(self._places, leaves):
            place.copy_(leaf)
        arrived = self._slab.memory.to(device, non_blocking=True)
        self._copied = accelerator.recorded_event(device)
        return [_same_part(arrived, place) for place in self._places]


def to_cpu(structure: Any) -> Any:
    """Return a structure of tensors on the CPU: those on a device are copied in one piece, and this process waits for the copy."""
    leaves = buffer_leaves(structure)
    away = [leaf for leaf in leaves if leaf.device.type != "cpu"]
    if len(away) < 2:
        return buffer_func(structure, lambda leaf: leaf.cpu())
    largest_first = sorted(away, key=lambda leaf: -leaf.itemsize)  # Then each begins at a multiple of its item size.
    pieces = torch.cat([_bytes(leaf) for leaf in largest_first]).cpu().split([leaf.nbytes for leaf in largest_first])
    arrived = {id(leaf): piece.view(leaf.dtype).view(leaf.shape) for leaf, piece in zip(largest_first, pieces)}
    return buffer_func(structure, lambda leaf: arrived.get(id(leaf), leaf))


def _is_pageable(tensor: torch.Tensor) -> bool:
    """Return whether to copy a tensor into a slab first: if it is on the CPU, in no slab, and not both large and page-locked."""
    return tensor.device.type == "cpu" and Slab.of(tensor) is None and not (tensor.nbytes >= _LARGE and tensor.is_pinned())


def _same_part(memory: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    """Return the part of `memory`, a copy of a slab, that corresponds to `tensor` in the slab."""
    return memory.view(tensor.dtype).as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor as bytes uint8 [n]; a copy if it is not contiguous."""
    flat = tensor.reshape(-1).contiguous()
    return flat.as_strided(flat.shape, (1,)).view(torch.uint8)  # The stride of a single number is arbitrary, and `view` needs 1.


def _torch_dtype(dtype: np.dtype) -> torch.dtype:
    return torch.from_numpy(np.empty(0, dtype)).dtype
