"""Snapshot files which load without running code."""

import io
import os
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress

import numpy as np
import torch

from rlpyt.utils.misc import atomic_link, atomic_write

LOADABLE_SCALARS = (bool, int, float, complex, str, bytes, torch.Size, torch.dtype, torch.device)


def serialize(params) -> bytes:
    """The bytes of a file which `torch.load(file, weights_only=True)` reads, with or without a GPU."""
    file = io.BytesIO()  # memory first, so that a full disk shows as an OSError of the one write that follows
    torch.save(loadable(params), file)
    return file.getvalue()


def write(path: str, data: bytes) -> None:
    """Write a snapshot file, all of it or nothing. What a new `params.pkl` takes the place of stays as `params_previous.pkl`."""
    with atomic_write(path) as file:
        file.write(data)
        file.flush()
        if path.endswith("params.pkl") and os.path.exists(path):  # Should the disk spoil the new one, there is still this.
            previous = f"{path.removesuffix('.pkl')}_previous.pkl"
            with suppress(OSError):  # a file system without hard links
                atomic_link(path, previous)


def loadable(value, name: str = "params"):
    """Convert `value` to what loads without running code: tensors, Python's numbers, strings and containers.

    numpy scalars become numbers, arrays tensors, and subclasses of dict dicts. Tensors go to the CPU, and
    those which show a part of a larger memory take only their own part along. Anything else is a TypeError
    which names its place.
    """
    if isinstance(value, torch.Tensor):
        return _compact(value)
    if isinstance(value, Mapping):
        return _loadable_dict(value, name)
    if type(value) in (list, tuple, set):
        return type(value)(loadable(item, f"{name}[{i}]") for i, item in enumerate(value))
    if isinstance(value, np.ndarray):
        return _tensor_from_array(value, name)
    return _loadable_scalar(value, name)


def _compact(tensor: torch.Tensor) -> torch.Tensor:
    is_strided = tensor.layout is torch.strided  # a sparse tensor has no storage of its own
    if is_strided and tensor.untyped_storage().nbytes() > tensor.numel() * tensor.element_size():
        tensor = tensor.detach().clone()
    return tensor.cpu()


def _loadable_dict(value: Mapping, name: str) -> dict:
    items = {_loadable_key(key, name): loadable(item, f"{name}[{key!r}]") for key, item in value.items()}
    if not isinstance(value, OrderedDict):
        return items
    ordered = OrderedDict(items)
    if hasattr(value, "_metadata"):
        setattr(ordered, "_metadata", value._metadata)  # The versions of the modules in a state_dict.  # noqa: B010
    return ordered


def _loadable_key(key, name: str):
    if type(key) is tuple:
        return tuple(_loadable_key(part, name) for part in key)
    return _loadable_scalar(key, f"{name}, as a key {key!r},")


def _loadable_scalar(value, name: str):
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or type(value) in LOADABLE_SCALARS:
        return value
    raise _refusal(type(value), name)


def _tensor_from_array(array: np.ndarray, name: str) -> torch.Tensor:
    try:
        native = np.array(array, dtype=array.dtype.newbyteorder("="))  # torch knows no other byte order
        return torch.from_numpy(native)
    except TypeError:
        raise _refusal(type(array), name, f" of dtype {array.dtype}") from None


def _refusal(cls: type, name: str, detail: str = "") -> TypeError:
    return TypeError(
        f"{name} is a {cls.__module__}.{cls.__qualname__}{detail}, which a snapshot cannot hold, because "
        "loading it would run code: store tensors, arrays, numbers, strings, and dicts, lists and tuples of "
        "them (a namedtuple as its _asdict())."
    )
