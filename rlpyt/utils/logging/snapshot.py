"""Writing and reading snapshot files, which load without running code. `rlpyt.utils.logging.store` decides which ones are kept."""

from __future__ import annotations

import io
import os
import shutil
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rlpyt.utils.misc import atomic_link, atomic_write
from rlpyt.utils.plain import check_form, shown
from rlpyt.utils.text import notes_of, said, sentence

_SCALARS = (bool, int, float, complex, str, bytes, torch.Size, torch.dtype, torch.device)
_CONTAINERS = {dict, OrderedDict, list, tuple, set}


# --- Writing ----------------------------------------------------------------------------------------------------------
def serialize(params: Any) -> bytes:
    """Return the bytes of a file that `torch.load(file, weights_only=True)` reads, with or without a GPU."""
    file = io.BytesIO()  # in memory, so that a full disk raises an OSError in the single write that follows
    torch.save(loadable(params), file)
    return file.getvalue()


def write(path: str, data: bytes) -> None:
    """Write a snapshot file atomically. A `params.pkl` that is replaced stays as `params_previous.pkl`."""
    with atomic_write(path) as file:
        file.write(data)
        file.flush()
        if path.endswith("params.pkl") and os.path.exists(path):  # A fallback, should the disk damage the new one.
            previous = f"{path.removesuffix('.pkl')}_previous.pkl"
            with suppress(OSError):  # a file system without hard links
                atomic_link(path, previous)


def copy(path: str | os.PathLike, new: str | os.PathLike) -> None:
    """Give a snapshot file a second name, atomically; copy it where that is not possible."""
    try:
        atomic_link(path, new)
    except OSError:  # Another file system, or one without hard links.
        with open(path, "rb") as file, atomic_write(new) as new_file:
            shutil.copyfileobj(file, new_file)


def loadable(value: Any, name: str = "params") -> Any:
    """Convert `value` to types that load without running code: tensors, Python's numbers, strings and containers.

    numpy scalars become numbers, arrays become tensors, and subclasses of dict become dicts. Tensors go to the
    CPU, and views of a larger memory are copied without the rest of it. Anything else raises a TypeError that
    names its place.
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
    is_strided = tensor.layout is torch.strided  # A sparse tensor has no storage.
    if is_strided and tensor.untyped_storage().nbytes() > tensor.numel() * tensor.element_size():
        tensor = tensor.detach().clone()
    return tensor.cpu()


def _loadable_dict(value: Mapping, name: str) -> dict:
    items = {_loadable_key(key, name): loadable(item, f"{name}[{key!r}]") for key, item in value.items()}
    if not isinstance(value, OrderedDict):
        return items
    ordered = OrderedDict(items)
    if "_metadata" in vars(value):
        setattr(ordered, "_metadata", vars(value)["_metadata"])  # The versions of the modules in a state_dict.  # noqa: B010
    return ordered


def _loadable_key(key: Any, name: str) -> Any:
    if type(key) is tuple:
        return tuple(_loadable_key(part, name) for part in key)
    return _loadable_scalar(key, f"{name}, as a key {key!r},")


def _loadable_scalar(value: Any, name: str) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or (type(value) in _SCALARS and value != b""):
        return value
    if type(value) is bytes:
        raise TypeError(f"{name} is b'', which torch.load(weights_only=True) cannot read: store None or an empty string in its place.")
    raise _refusal(type(value), name)


def _tensor_from_array(array: np.ndarray, name: str) -> torch.Tensor:
    try:
        native = np.array(array, dtype=array.dtype.newbyteorder("="))  # torch takes no other byte order
        return torch.from_numpy(native)
    except TypeError:
        raise _refusal(type(array), name, f" of dtype {array.dtype}") from None


def _refusal(cls: type, name: str, detail: str = "") -> TypeError:
    return TypeError(
        f"{name} is a {cls.__module__}.{cls.__qualname__}{detail}, which a snapshot cannot hold, because "
        "loading it would run code: store tensors, arrays, numbers, strings, and dicts, lists and tuples of "
        "them (a namedtuple as its _asdict())."
    )


# --- Reading ----------------------------------------------------------------------------------------------------------
@contextmanager
def reading(file: Any, part: str = "") -> Iterator[None]:
    """Inside this context, every error becomes a ValueError that names the file and the part of it that is being restored.

    Only OSError and MemoryError are raised unchanged.
    """
    try:
        yield
    except (OSError, MemoryError):
        raise
    except Exception as error:  # Agents, algorithms and environments of users may raise anything.
        reason = said(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {said(error)}"
        what = f"{part} of {file} cannot be put back" if part else f"{file} cannot be resumed"
        raise ValueError(" ".join([f"{what}: {reason}", *notes_of(error)])) from error


def read_snapshot(file: Path) -> dict[str, Any]:
    """Return the contents of a snapshot file; ValueError if it is damaged or contains code."""
    check_archive(file)
    try:
        snapshot = torch.load(file, map_location="cpu", weights_only=True)
        _check_contents(snapshot)
        return snapshot
    except Exception as error:  # Damaged files fail in many ways.
        raise _unreadable(file, error) from error


def _check_contents(snapshot: Any) -> None:
    """Raise ValueError, which says where, for contents that `loadable` cannot have written and that are not safe to use.

    These are: an object of another type; a tensor that is larger than its memory; a container that is inside itself or several others, so
    that a walk over all containers might not end.
    """
    check_form(snapshot, dict, "The snapshot")
    seen = {id(snapshot)}
    waiting: list[tuple[tuple, Any]] = [((), snapshot)]
    while waiting:
        path, container = waiting.pop()
        for key, value in container.items() if isinstance(container, dict) else enumerate(container):
            kind = type(value)
            if kind in _CONTAINERS:
                if value and id(value) in seen:
                    raise ValueError(f"{_place(path, key)} is in other places of it, too.")
                seen.add(id(value))
                waiting.append(((path, key), value))
            elif isinstance(value, torch.Tensor):
                _check_tensor(value, partial(_place, path, key))
            elif value is not None and kind not in _SCALARS:
                raise ValueError(f"{_place(path, key)} is {shown(value)}, which is not saved as such.")


def _place(path: tuple, key: Any) -> str:
    """Return the place of an item as text, given the path of its container: () or (path of the outer container, key in that)."""
    return f"{_place(*path) if path else ''}[{shown(key)}]"


def _check_tensor(tensor: torch.Tensor, place: Callable[[], str]) -> None:
    if tensor.device.type != "cpu":
        raise ValueError(f"{place()} is a tensor without memory.")
    if tensor.layout is torch.strided and tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
        raise ValueError(f"{place()} is a tensor of shape {list(tensor.shape)}, and the file holds only a part of it.")
    if tensor.dtype == torch.bool and tensor.numel() and tensor.view(torch.uint8).max() > 1:
        raise ValueError(f"{place()} has bytes that are neither True nor False.")


def check_archive(file: Path) -> None:
    """Raise ValueError if a file is missing, or does not match its checksums, which torch does not check.

    Compressed or overlapping entries are refused, too, so that the contents are no larger than the file.
    """
    try:
        with _opened(file) as archive:
            entries = archive.infolist()
            if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
                raise zipfile.BadZipFile("it is compressed, which snapshots are not")
            if sum(entry.file_size for entry in entries) > os.path.getsize(file):
                raise zipfile.BadZipFile("its entries are larger than the file")
            damaged = archive.testzip()
        if damaged is not None:
            raise zipfile.BadZipFile(f"{damaged} does not match its checksum")
    except FileNotFoundError as error:
        raise ValueError(f"{file} does not exist any more: replay is kept for the last two snapshots.") from error
    except Exception as error:  # Damaged files fail in many ways.
        raise _unreadable(file, error) from error


def _opened(file: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(file)
    except zipfile.BadZipFile:  # Its message is about zip files, of which users need not know.
        raise zipfile.BadZipFile("it is damaged or incomplete, or another kind of file") from None


def _unreadable(file: Path, error: Exception) -> ValueError:
    return ValueError(f"{file} is not a readable snapshot: {sentence(said(error))}")
