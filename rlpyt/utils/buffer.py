"""Allocate structures of arrays, in private or shared memory, and apply functions to all their leaves.

Shared memory has no name: every array maps a `memfd` (or an unlinked temporary file, on systems without `memfd`). So nothing can leak into
the file system, whichever process dies. Under fork, workers inherit the mapping. Under spawn and forkserver, an array or a slice given to a
process as an argument at its start arrives there as the same memory.
"""

from __future__ import annotations

import math
import mmap
import os
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from copy import copy
from multiprocessing import context, reduction
from pathlib import Path
from typing import Any

import numpy as np

from rlpyt.utils.array import aligned_zeros
from rlpyt.utils.collections import (
    NamedArrayTupleSchema_like,
    NamedTuple,
    NamedTupleSchema,
    fields_of,
    namedarraytuple_like,
    remade,
)
from rlpyt.utils.structures import as_numpy, is_tensor, named_leaves
from rlpyt.utils.structures import leaves_of as buffer_leaves

# Smaller allocations are not worth asking the system how much memory is free.
_CHECKED_BYTES = 64 * 1024**2


# ---------------------------------------------------------------------------------------------------------------------
# Shared memory
# ---------------------------------------------------------------------------------------------------------------------
class SharedMap(mmap.mmap):
    """A shared, anonymous mapping of zeros that can be passed to a process at its start.

    Args:
        n_bytes: size.
        fd: an open descriptor of existing memory to map; new memory if None. The mapping owns it.
    """

    fd: int = -1
    n_bytes: int

    def __new__(cls, n_bytes: int, fd: int | None = None) -> SharedMap:
        if fd is None:
            fd = new_memory_fd(n_bytes)
        try:
            self = super().__new__(cls, fd, n_bytes)
        except BaseException:
            os.close(fd)
            raise
        self.fd, self.n_bytes = fd, n_bytes
        _live_maps.add(self)
        return self

    def __del__(self) -> None:
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    def __reduce__(self) -> tuple:
        context.assert_spawning(self)
        return _attach, (self.n_bytes, reduction.DupFd(self.fd))

    @property
    def address(self) -> int:
        """Address of the first byte in this process."""
        return np.frombuffer(self, np.uint8, 1).ctypes.data


_live_maps: weakref.WeakSet[SharedMap] = weakref.WeakSet()


def shared_map_at(address: int) -> SharedMap | None:
    """Return the shared memory that holds the byte at `address` of this process, or None."""
    return next((shared for shared in list(_live_maps) if 0 <= address - shared.address < shared.n_bytes), None)


def _attach(n_bytes: int, duplicate: Any) -> SharedMap:
    return SharedMap(n_bytes, duplicate.detach())


def new_memory_fd(n_bytes: int) -> int:
    """Return an open descriptor of `n_bytes` of new, nameless memory, filled with zeros, that processes can share."""
    try:
        fd = os.memfd_create("rlpyt", os.MFD_CLOEXEC)
    except AttributeError:  # Only Linux has it.
        with tempfile.TemporaryFile() as file:  # Unlinked at birth.
            fd = os.dup(file.fileno())
    try:
        os.ftruncate(fd, n_bytes)
    except BaseException:
        os.close(fd)
        raise
    return fd


def available_bytes() -> int:
    """Return the bytes of memory this process may still use: free memory of the machine, or of its control group if that is less."""
    import psutil

    available = psutil.virtual_memory().available
    try:
        group = Path("/sys/fs/cgroup")
        limit, used = (int((group / name).read_text()) for name in ("memory.max", "memory.current"))
        files = dict(line.split() for line in (group / "memory.stat").read_text().splitlines()).get("inactive_file", 0)
        available = min(available, limit - used + int(files))  # The kernel frees cached file pages when memory is needed.
    except (OSError, ValueError):  # No control group, or one without a limit ("max").
        pass
    return available


def check_memory(n_bytes: int, purpose: str, remedy: str = "Make it smaller (fewer time steps, environments, or replayed steps)") -> None:
    """Raise MemoryError if `n_bytes` for `purpose` do not fit into memory; call it before allocating."""
    if n_bytes < _CHECKED_BYTES:
        return
    available = available_bytes()
    if n_bytes > available:
        raise MemoryError(
            f"{purpose} needs {n_bytes / 1e9:.2f} GB of memory ({n_bytes} bytes), and {available / 1e9:.2f} GB ({available} bytes) are "
            f"available. {remedy}, or free some memory."
        )


def np_mp_array(shape: int | tuple[int, ...], dtype: Any) -> np.ndarray:
    """Allocate a numpy array of zeros on OS shared memory, which all processes started with it share, by any start method."""
    shape = (shape,) if isinstance(shape, (int, np.integer)) else tuple(shape)
    dtype = np.dtype(dtype)
    n_bytes = math.prod(shape) * dtype.itemsize
    check_memory(n_bytes, f"A shared array of shape {shape} and dtype {dtype}")
    return np.ndarray(shape, dtype, buffer=SharedMap(max(n_bytes, 1)))


class np_mp_array_spawn(np.ndarray):
    """An array class on shared memory; `np_mp_array` returns plain arrays that do the same and index faster."""

    _shmem: SharedMap | None = None

    def __new__(
        cls, shape: Any, dtype: Any = None, buffer: Any = None, offset: int | None = 0, strides: Any = None, order: Any = None
    ) -> np_mp_array_spawn:
        if buffer is None:
            buffer = np_mp_array(shape, dtype if dtype is not None else float).base
        self = super().__new__(cls, shape, dtype, buffer, offset or 0, strides, order)
        self._shmem = buffer if isinstance(buffer, SharedMap) else None
        return self

    def __array_finalize__(self, obj: Any) -> None:
        self._shmem = obj._shmem if isinstance(obj, np_mp_array_spawn) else None

    def __reduce__(self) -> Any:
        return _reduce_array(self)


def _shared_map_of(array: np.ndarray) -> SharedMap | None:
    """Return the shared memory under `array`, or None."""
    base = array.base
    while isinstance(base, np.ndarray):
        base = base.base
    return base if isinstance(base, SharedMap) else None


def _view_of_map(cls: type, shape: tuple, dtype: np.dtype, shared: SharedMap, offset: int, strides: tuple) -> np.ndarray:
    return cls(shape, dtype, buffer=shared, offset=offset, strides=strides)


def _reduce_array(array: np.ndarray) -> Any:
    """Pickle an array for another process: by handle if it is in shared memory and the process is being started, else by value."""
    shared = _shared_map_of(array)
    if shared is None or context.get_spawning_popen() is None:
        return np.ndarray.__reduce__(array)
    return _view_of_map, (type(array), array.shape, array.dtype, shared, array.ctypes.data - shared.address, array.strides)


# Registered only with multiprocessing's pickler; arrays in private memory are still pickled by value.
reduction.ForkingPickler.register(np.ndarray, _reduce_array)

# Whether a starting process gets copies of tensors in private memory; see `rlpyt.utils.shared_tensors`.
private_tensors_are_copied: ContextVar[bool] = ContextVar("private_tensors_are_copied", default=False)


@contextmanager
def copying_private_tensors() -> Iterator[None]:
    """Give processes started in this context copies of tensors in private memory, as under fork.

    Under spawn, torch would otherwise move these tensors to `/dev/shm`, and both processes would write to the same memory.
    """
    token = private_tensors_are_copied.set(True)
    try:
        yield
    finally:
        private_tensors_are_copied.reset(token)


# ---------------------------------------------------------------------------------------------------------------------
# Structures of arrays; see `rlpyt.utils.structures`
# ---------------------------------------------------------------------------------------------------------------------
def buffer_func(buffer_: Any, func: Callable, *args: Any, **kwargs: Any) -> Any:
    """Return the structure of ``func(leaf, *args, **kwargs)`` over all leaves of `buffer_`; None stays None.

    The structure may nest tuples, namedtuples, namedarraytuples, and instances of the schema types.
    """
    if buffer_ is None:
        return None
    if isinstance(buffer_, tuple):
        parts = [buffer_func(part, func, *args, **kwargs) for part in tuple(buffer_)]
        return buffer_._make(parts) if hasattr(buffer_, "_make") else tuple(parts)  # As in `remade`, without a call.
    return func(buffer_, *args, **kwargs)


def buffer_method(buffer_: Any, method_name: str, *args: Any, **kwargs: Any) -> Any:
    """Return the structure of ``leaf.method_name(*args, **kwargs)`` over all leaves; None stays None."""
    return buffer_func(buffer_, lambda leaf: getattr(leaf, method_name)(*args, **kwargs))


def element(name: str, index: Iterable[int]) -> str:
    """Return the name of an element of an array, such as "name[2, 3]", or `name` if `index` is empty."""
    where = ", ".join(map(str, index))
    return f"{name}[{where}]" if where else name


def float_leaves(buffer_: Any, name: str) -> list[tuple[str, np.ndarray]]:
    """Return the floating point leaves of a structure of numpy arrays, with their paths."""
    return [(path, leaf) for path, leaf in named_leaves(buffer_, name) if leaf.dtype.kind in "fc"]


def first_not_finite(array: np.ndarray) -> tuple[int, ...] | None:
    """Return the index of the first number that is NaN or infinite, or None if all are finite. Costs less than a sum."""
    is_finite = np.isfinite(array)
    return None if is_finite.all() else tuple(np.argwhere(~is_finite)[0].tolist())


class PinnedMemory:
    """Locks the shared memory of a structure's arrays into physical memory while this object lives.

    GPUs then copy from and to it directly. If the system refuses to lock more memory, copies only take longer.

    Args:
        buffer_: structure of numpy arrays.
        device: the torch.device of the GPU.
    """

    addresses: Sequence[int] = ()  # of the locked memory

    def __init__(self, buffer_: Any, device: Any) -> None:
        import torch

        module = torch.get_device_module(device)
        self._cudart = module.cudart()
        self._maps = {id(shared): shared for shared in map(_shared_map_of, buffer_leaves(buffer_)) if shared is not None}
        self.addresses = locked = []
        with module.device(device):
            for shared in self._maps.values():
                address = shared.address
                if int(self._cudart.cudaHostRegister(address, shared.n_bytes, 0)) == 0:
                    locked.append(address)
                else:
                    with suppress(RuntimeError):  # Clear the pending error, which the next operation would raise.
                        torch.zeros(1, device=device)

    def __del__(self) -> None:
        for address in self.addresses:
            self._cudart.cudaHostUnregister(address)


def torchify_buffer(buffer_: Any) -> Any:
    """Return the structure with numpy arrays as torch tensors over the same memory; tensors and None stay as they are."""
    import torch

    def torchify(leaf: Any) -> torch.Tensor:
        if isinstance(leaf, np.ndarray):
            return torch.from_numpy(leaf)
        return leaf if isinstance(leaf, torch.Tensor) else torch.as_tensor(leaf)

    return buffer_func(buffer_, torchify)


def numpify_buffer(buffer_: Any) -> Any:
    """Return the structure with torch tensors as numpy arrays, over the same memory if they are on the CPU."""
    return buffer_func(buffer_, as_numpy)


def cloned(state: Any) -> Any:
    """Return a copy of nested dictionaries, lists, tuples and sets, tensors and arrays included.

    A dictionary keeps its type and attributes, such as the `_metadata` of a state_dict. Another mapping becomes a dictionary.
    """
    if isinstance(state, Mapping):
        clone = copy(state) if isinstance(state, dict) else dict(state)
        for key, value in state.items():
            clone[key] = cloned(value)
        return clone
    if isinstance(state, tuple) and (type(state) is tuple or fields_of(state)):
        return remade(state, map(cloned, state))
    if isinstance(state, list):
        return [cloned(value) for value in state]
    if isinstance(state, (set, np.ndarray)):
        return state.copy()
    return state.detach().clone() if is_tensor(state) else state


def buffer_to(buffer_: Any, device: Any = None, non_blocking: bool = False) -> Any:
    """Return the structure of torch tensors on `device`.

    Args:
        non_blocking: do not wait for copies from page-locked memory to a GPU.

    Raises:
        TypeError: a leaf is a numpy array.
    """

    def to(leaf: Any) -> Any:
        if not is_tensor(leaf):
            raise TypeError(f"buffer_to moves torch tensors, got {type(leaf).__name__}; apply torchify_buffer first.")
        return leaf.to(device, non_blocking=non_blocking)

    return buffer_func(buffer_, to)


def get_leading_dims(buffer_: Any, n_dim: int = 1) -> tuple[int, ...] | None:
    """Return the first `n_dim` dimensions, which all leaves must share; None without leaves."""
    dims = {tuple(leaf.shape[:n_dim]) for leaf in buffer_leaves(buffer_)}
    if len(dims) > 1:
        raise ValueError(f"The leading {n_dim} dimensions of the fields differ: {sorted(dims)}.")
    found = dims.pop() if dims else None
    if found is not None and len(found) < n_dim:
        raise ValueError(f"Expected at least {n_dim} leading dimensions, found shape {found}.")
    return found


# ---------------------------------------------------------------------------------------------------------------------
# Allocation
# ---------------------------------------------------------------------------------------------------------------------
def build_array(example: Any, leading_dims: int | tuple[int, ...], share_memory: bool = False, name: str = "example") -> np.ndarray:
    """Allocate a numpy array of zeros of shape ``leading_dims + example.shape`` and the dtype of `example`.

    Args:
        example: array, tensor or number.
        leading_dims: dimensions to put in front, e.g. ``(T, B)``.
        share_memory: allocate on OS shared memory.
        name: name of the array in errors.

    Raises:
        TypeError: the example is a string or another object; only numbers can be stored.
    """
    array = np.asarray(numpify_buffer(example))
    if array.dtype.kind not in "biufc":
        raise TypeError(
            f"Cannot allocate memory for '{name}': its example {example!r} has dtype {array.dtype}, and only numbers can be stored. Leave "
            "it out (e.g. of env_info), or turn it into a number."
        )
    leading_dims = leading_dims if isinstance(leading_dims, (tuple, list)) else (leading_dims,)
    shape = tuple(int(n) for n in leading_dims) + array.shape
    if share_memory:
        return np_mp_array(shape, array.dtype)
    check_memory(math.prod(shape) * array.dtype.itemsize, f"'{name}' of shape {shape} and dtype {array.dtype}")
    return aligned_zeros(shape, array.dtype)


def buffer_from_example(
    example: Any, leading_dims: int | tuple[int, ...], share_memory: bool = False, use_NatSchema: bool | None = None, name: str = ""
) -> Any:
    """Allocate memory for many of `example`: a namedarraytuple of its structure, every leaf with `leading_dims` in front.

    Args:
        example: namedtuple, namedarraytuple, array, tensor or number, nested at will, without leading dimensions. None stays None.
        leading_dims: e.g. ``(T, B)``.
        share_memory: allocate on OS shared memory.
        use_NatSchema: make `NamedArrayTuple` instances; None infers it from the type of the example.
        name: name of the structure in errors.
    """
    if example is None:
        return None
    if not isinstance(example, tuple):
        return build_array(example, leading_dims, share_memory, name or "example")
    if use_NatSchema is None:
        use_NatSchema = isinstance(example, (NamedTuple, NamedTupleSchema))
    names = fields_of(example)
    if names is not None:
        make = (NamedArrayTupleSchema_like if use_NatSchema else namedarraytuple_like)(example)._make
    else:
        make, names = tuple, tuple(str(i) for i in range(len(example)))
    return make(
        buffer_from_example(part, leading_dims, share_memory, use_NatSchema, f"{name}.{field}" if name else field)
        for field, part in zip(names, tuple(example))
    )
