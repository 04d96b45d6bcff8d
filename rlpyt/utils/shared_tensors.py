"""Tensors of torch in the shared memory of `rlpyt.utils.buffer`.

torch itself puts what processes share into files in `/dev/shm`, of which a container has 64 MB unless it was given more. Memory without a
name needs no room there. Importing this module also teaches multiprocessing how a tensor reaches a process that is spawned:

=====================================================  ==========================================================================
memory of the tensor                                   in the new process
=====================================================  ==========================================================================
a shared array of `rlpyt.utils.buffer`                 the same memory
shared, by `share_tensors` or by torch                 the same memory
private, and the process is started by `WorkerPool`    a copy, as in a forked process
private, and the process is started by anybody else    the same memory: torch moves it to `/dev/shm` in both processes
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
    """Move tensors on the CPU into shared memory, in place: to the rest of the program they remain the same objects.

    Tensors that are the same memory, or views of it, are so afterwards. What is shared already stays where it is.

    Args:
        tensors: parameters or buffers of models.
        aliases: tensors that follow wherever they are the same memory as one of `tensors`, and otherwise stay private.

    Raises:
        MemoryError: there is not enough memory; nothing has been moved.
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
    """Return shared memory with the same content, as torch knows it: `is_shared()` says so, and any start method hands it on."""
    fd = new_memory_fd(storage.nbytes())
    try:
        shared = torch.UntypedStorage._new_shared_fd_cpu(fd, storage.nbytes())  # type: ignore[attr-defined]  # Keeps a duplicate of the descriptor.
    finally:
        os.close(fd)
    return shared.copy_(storage)


def _view_of(storage: torch.UntypedStorage, tensor: torch.Tensor) -> torch.Tensor:
    """Return what `tensor` is of its storage, of another one."""
    view = torch.empty(0, dtype=tensor.dtype)
    return view.set_(storage, tensor.storage_offset(), tensor.size(), tensor.stride())


# ---------------------------------------------------------------------------------------------------------------------
# To processes that are spawned
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
