"""Torch tensors in the shared memory of `rlpyt.utils.buffer`.

torch itself puts shared tensors into files in `/dev/shm`, which has only 64 MB in a container by default. Nameless memory needs no room
there. Importing this module also teaches multiprocessing how to send a tensor to a spawned process:

=====================================================  ==========================================================================
memory of the tensor                                   in the new process
=====================================================  ==========================================================================
a shared array of `rlpyt.utils.buffer`                 the same memory
shared, by `share_tensors` or by torch                 the same memory
private, and `WorkerPool` starts the process           a copy, as in a forked process
private, and other code starts the process             the same memory: torch moves it to `/dev/shm` in both processes
=====================================================  ==========================================================================
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from itertools import chain
from multiprocessing import context, reduction

import numpy as np
import torch
import torch.multiprocessing.reductions as torch_reductions
from torch.nn.parameter import is_lazy

from rlpyt.utils.buffer import SharedMap, check_memory, new_memory_fd, private_tensors_are_copied, shared_map_at


def share_tensors(tensors: Iterable[torch.Tensor], aliases: Iterable[torch.Tensor] = ()) -> None:
    """Move CPU tensors into shared memory in place: they remain the same objects for the rest of the program.

    Tensors with common memory, such as views, still have common memory afterwards. Tensors that are shared already stay where they are.

    Args:
        tensors: parameters or buffers of models.
        aliases: tensors that are moved, too, if they have memory in common with one of `tensors`, and otherwise stay private.

    Raises:
        MemoryError: not enough memory is available; no tensor has been moved.
    """
    tensors, aliases = ([tensor for tensor in given if _is_in_memory(tensor)] for given in (tensors, aliases))
    private = {storage._cdata: storage for storage in (tensor.untyped_storage() for tensor in tensors) if _is_private(storage)}
    check_memory(sum(storage.nbytes() for storage in private.values()), "A model in shared memory", "Make the network smaller")
    shared = {key: _shared_copy(storage) for key, storage in private.items()}
    for tensor in {id(tensor): tensor for tensor in chain(tensors, aliases)}.values():
        storage = shared.get(tensor.untyped_storage()._cdata)
        if storage is not None:
            tensor.data = _view_of(storage, tensor)


def _is_in_memory(tensor: torch.Tensor) -> bool:
    return not is_lazy(tensor) and tensor.device.type == "cpu" and tensor.layout is torch.strided


def _is_private(storage: torch.UntypedStorage) -> bool:
    return storage.nbytes() > 0 and not storage.is_shared()


def _shared_copy(storage: torch.UntypedStorage) -> torch.UntypedStorage:
    """Return a torch storage in shared memory with the same content: its `is_shared()` is True, and any start method passes it on."""
    fd = new_memory_fd(storage.nbytes())
    try:
        shared = torch.UntypedStorage._new_shared_fd_cpu(fd, storage.nbytes())  # type: ignore[attr-defined]  # Keeps a duplicate of the descriptor.
    finally:
        os.close(fd)
    return shared.copy_(storage)


def _view_of(storage: torch.UntypedStorage, tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor over `storage` with the dtype, offset, shape and strides of `tensor`."""
    view = torch.empty(0, dtype=tensor.dtype)
    return view.set_(storage, tensor.storage_offset(), tensor.size(), tensor.stride())


# ---------------------------------------------------------------------------------------------------------------------
# Sending to spawned processes
# ---------------------------------------------------------------------------------------------------------------------
def _reduce_storage(storage: torch.UntypedStorage) -> tuple:
    """Pickle the memory of tensors for another process; see the table above."""
    if context.get_spawning_popen() is not None and storage.device.type == "cpu" and _is_private(storage):
        shared = shared_map_at(storage.data_ptr())
        if shared is not None:
            return _storage_in_map, (shared, storage.data_ptr() - shared.address, storage.nbytes())
        if private_tensors_are_copied.get():
            return _storage_with, (torch.empty(0, dtype=torch.uint8).set_(storage).numpy(),)
    return torch_reductions.reduce_storage(storage)


def _storage_in_map(shared: SharedMap, offset: int, n_bytes: int) -> torch.UntypedStorage:
    return torch.frombuffer(shared, dtype=torch.uint8, count=n_bytes, offset=offset).untyped_storage()


def _storage_with(content: np.ndarray) -> torch.UntypedStorage:
    return torch.tensor(content).untyped_storage()


reduction.ForkingPickler.register(torch.UntypedStorage, _reduce_storage)
