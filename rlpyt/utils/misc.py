"""Small functions that need no separate module."""

import difflib
import errno
import functools
import inspect
import json
import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from types import ModuleType
from typing import IO, Any

import numpy as np


def did_you_mean(name: object, names: Iterable, otherwise: str | None = None) -> str:
    """Return the sentence that ends the error about an unknown `name`: which of `names` are similar.

    Args:
        otherwise: the sentence if none is similar; by default, it lists all names.
    """
    name, names = str(name), [str(each) for each in names]
    near = difflib.get_close_matches(name, names)
    near.sort(key=lambda other: sorted(other) != sorted(name))  # Swapped letters are the likeliest mistake.
    if near:
        return f"Did you mean {' or '.join(map(repr, dict.fromkeys(near)))}?"
    return otherwise or f"There are: {', '.join(names) or 'none'}."


def iterate_mb_idxs(data_length: int, minibatch_size: int, shuffle: bool = False) -> Iterator[slice | np.ndarray]:
    """Cut range(data_length) into minibatches: slices in order, or index arrays [minibatch_size] if shuffled.

    The remainder, fewer than minibatch_size indexes, is dropped (a different one each time, if shuffled). Shuffling
    uses numpy's global generator.
    """
    if not 1 <= minibatch_size <= data_length:
        raise ValueError(
            f"minibatch_size={minibatch_size} must be at least 1 and at most the {data_length} "
            "samples there are: use fewer minibatches or larger batches."
        )
    starts = range(0, data_length - minibatch_size + 1, minibatch_size)
    slices = (slice(start, start + minibatch_size) for start in starts)
    if not shuffle:
        return slices
    idxs = np.random.permutation(data_length)
    return (idxs[each] for each in slices)


def split_evenly(n: int, parts: int) -> list[range]:
    """Split ``range(n)`` into `parts` consecutive ranges whose lengths differ by at most one, longer ones first."""
    small, longer = divmod(n, parts)
    starts = [i * small + min(i, longer) for i in range(parts + 1)]
    return [range(a, b) for a, b in zip(starts, starts[1:])]


LONGEST_FILE_NAME = 255  # bytes


def is_file_name(name: str) -> bool:
    """Return whether a text can be the name of a file or directory, without leading to another directory."""
    try:
        encoded = os.fsencode(name)
    except UnicodeEncodeError:
        return False
    leads_elsewhere = name in (os.curdir, os.pardir) or any(each and each in name for each in (os.sep, os.altsep))
    return 0 < len(encoded) <= LONGEST_FILE_NAME and b"\0" not in encoded and not leads_elsewhere


def takes_keyword(function: Callable, name: str) -> bool:
    """Return whether a callable of any kind has a parameter of this name that can be given by keyword; ``**kwargs`` do not count.

    False for callables without a signature, such as some built-in ones.
    """
    try:
        parameter = inspect.signature(function).parameters.get(name)
    except (TypeError, ValueError):
        return False
    return parameter is not None and parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)


def may_take_keyword(function: Callable, name: str) -> bool:
    """Return whether a callable has a parameter of this name, or ``**kwargs``, which it may pass on to one that has."""
    parameters = inspect.signature(function).parameters.values()
    return any(p.name == name or p.kind is p.VAR_KEYWORD for p in parameters)


def has_all(thing: Any, *names: str) -> bool:
    """Return whether an object has all attributes of an interface, and may therefore be used as one."""
    return all(hasattr(thing, name) for name in names)


def name_of(made: Any) -> str:
    """Return the qualified name of a function, of the one inside a `functools.partial`, of a class, or of another object's class."""
    while isinstance(made, functools.partial):
        made = made.func
    return getattr(made, "__qualname__", type(made).__qualname__)


def module_of(definition: Any) -> str:
    """Return the name of the module that defines a class, function, method, or the class of another object; "" if unknown."""
    return getattr(definition, "__module__", None) or ""


def file_of(module: Any) -> str | None:
    """Return the file of a module; None for one without a file, such as the main module of an interactive session."""
    return getattr(module, "__file__", None)


def accepts(function: Callable, n: int) -> bool:
    """Return whether a callable takes n positional arguments; True if its signature is not known, as of some built-in functions."""
    with suppress(ValueError):
        try:
            inspect.signature(function).bind(*[None] * n)
        except TypeError:
            return False
    return True


def n_required(function: Callable) -> int:
    """Return how many positional arguments a callable requires: 2 or more for ``*args``, and 1 if its signature is not known."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # Some built-in functions have no signature.
        return 1
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return 2
    return sum(p.default is p.empty for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD))


def is_of_rlpyt(*definitions: Any) -> bool:
    """Return whether all of these classes, functions and methods are defined in this package, and none by a user."""
    package = __package__.partition(".")[0]
    return all(module_of(definition).partition(".")[0] == package for definition in definitions)


_SHARES_KEYS_SLOWLY = (3, 11) <= sys.version_info < (3, 13)


def attributes(thing: Any) -> dict[str, Any]:
    """Return ``thing.__dict__``, or an empty dictionary without one; reading its attributes stays as fast as before.

    Python 3.11 and 3.12 keep an object's attributes in a fast array until some code reads its ``__dict__``. This read makes a dictionary
    that shares its keys with other objects, and from then on reading an attribute takes twice as long. A dictionary that shares nothing
    makes it fast again.
    """
    shared = getattr(thing, "__dict__", None)
    if type(shared) is not dict:
        return shared if isinstance(shared, dict) else {}
    if _SHARES_KEYS_SLOWLY and sys.getrefcount(shared) == 3:  # References of the object, this function, and the call: no others.
        with suppress(TypeError, AttributeError):  # Some types written in C refuse.
            # A single call into C, so that no other thread sets an attribute meanwhile.
            deque(map(object.__setattr__, [thing], ["__dict__"], map(dict, [shared])), maxlen=0)
    return thing.__dict__


def zeros(shape: int | tuple[int, ...], dtype: Any) -> Any:
    """Return zeros: a tensor for a torch dtype or a Python type such as float, an array for a numpy dtype."""
    return _library(dtype).zeros(shape, dtype=dtype)


def empty(shape: int | tuple[int, ...], dtype: Any) -> Any:
    """Return uninitialised memory, as a tensor or an array like `zeros`."""
    return _library(dtype).empty(shape, dtype=dtype)


def _library(dtype: Any) -> ModuleType:
    of_python = any(dtype is each for each in (None, bool, int, float, complex))  # Not `==`: numpy's dtypes equal some of these.
    if not of_python and not type(dtype).__module__.startswith("torch"):
        return np
    import torch  # here, because environment workers use this module without torch

    return torch


def extract_sequences(array_or_tensor: Any, T_idxs: Any, B_idxs: Any, T: int) -> Any:
    """Gather windows of T steps from (T_idxs[i], B_idxs[i]) on, out of [T_all,B_all,...], as a new [T,n,...].

    Time wraps at both ends: a window may start before step 0 (negative index) or run past the last step.
    """
    T_all = array_or_tensor.shape[0]
    if isinstance(array_or_tensor, np.ndarray):
        T_idxs, B_idxs = np.asarray(T_idxs), np.asarray(B_idxs)
        steps: Any = np.arange(T)
    else:
        import torch

        device = array_or_tensor.device
        T_idxs, B_idxs = torch.as_tensor(T_idxs, device=device), torch.as_tensor(B_idxs, device=device)
        steps = torch.arange(T, device=device)
    return array_or_tensor[(T_idxs[None, :] + steps[:, None]) % T_all, B_idxs[None, :]]


@contextmanager
def torch_threads(n: int) -> Iterator[None]:
    """Let torch use `n` threads on the CPU within the block."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(n)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def atomic_write(path: str | os.PathLike, mode: str = "wb", **open_kwargs: Any) -> Iterator[IO]:
    """Open a temporary file beside `path`, which replaces `path` at the end of the block.

    A reader of `path`, at any time and after any crash, finds the whole old content or the whole new one. If the block
    or the disk raises, the temporary file is removed and the old file stays. `remove_stale_temporaries` removes the
    temporary files of killed processes.
    """
    directory, temporary = os.path.dirname(os.path.abspath(path)), _temporary(path)
    try:
        with open(temporary, mode, **open_kwargs) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException as error:
        with suppress(OSError):
            os.remove(temporary)
        if isinstance(error, OSError) and error.filename == temporary and error.filename2 is None:
            error.filename = os.fspath(path)  # The name that the caller knows.
        raise
    _fsync_directory(directory)


def is_same(a: Any, b: Any) -> bool:
    """Return whether plain data are equal. Unlike with ``==``, NaN is the same as NaN."""
    return bool(a == b) or repr(a) == repr(b)


def write_json(path: str | os.PathLike, content: Any, indent: int = 2) -> None:
    """Write plain data to a JSON file by `atomic_write`."""
    with atomic_write(path, "w", encoding="utf-8") as file:
        json.dump(content, file, indent=indent)
        file.write("\n")


def append_whole(path: str | os.PathLike, data: bytes) -> None:
    """Append bytes to a file with a single system call. If the disk refuses some of them, none stay, and an OSError is raised."""
    with open(path, "ab", buffering=0) as file:
        size = file.seek(0, os.SEEK_END)
        try:
            written = file.write(data)  # unbuffered: a single system call
            if written < len(data):
                raise OSError(f"only {written} of {len(data)} bytes could be written")
        except OSError:
            file.truncate(size)  # nothing torn
            raise


def atomic_link(source: str | os.PathLike, path: str | os.PathLike) -> None:
    """Make `path` another name of the file `source`. At any time, and after any crash, `path` is the old file or `source`.

    Raises:
        OSError: the file system has no hard links.
    """
    temporary = _temporary(path)
    os.link(source, temporary)
    os.replace(temporary, path)
    with suppress(FileNotFoundError):
        os.remove(temporary)  # `os.replace` leaves it if `path` was a name of the same file already.


def _temporary(path: str | os.PathLike) -> str:
    directory, name = os.path.split(os.path.abspath(path))
    return os.path.join(directory, f".{name}.{os.getpid()}{_TEMPORARY_SUFFIX}")


def remove_stale_temporaries(directory: str | os.PathLike) -> None:
    """Remove temporary files that processes killed inside `atomic_write` or `atomic_link` left in `directory` and its subdirectories.

    No process may be writing there.
    """
    root = os.fspath(directory)
    for where in (root, *(entry.path for entry in os.scandir(root) if entry.is_dir(follow_symlinks=False))):
        for name in os.listdir(where):
            if name.startswith(".") and name.endswith(_TEMPORARY_SUFFIX):
                with suppress(OSError):
                    os.remove(os.path.join(where, name))


def _fsync_directory(directory: str) -> None:
    """Make a rename survive a power cut, if the platform can open directories."""
    with suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


_TEMPORARY_SUFFIX = ".atomic_tmp"


@contextmanager
def many_files() -> Iterator[None]:
    """Raise the limit of open files of this process, and of those that it starts, to the highest one that the system allows.

    Each array in shared memory takes two open files. If there are still too many inside this context, the error says what to do. The limit
    stays after the context.
    """
    import resource  # Only Unix has it.

    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # macOS does not take "unlimited".
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    try:
        yield
    except OSError as error:
        if error.errno != errno.EMFILE:
            raise
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        raise OSError(
            errno.EMFILE,
            f"This process may open {limit:,} files, and needs more, mostly for batches in shared memory: raise the limit (ulimit -n), "
            "or let fewer batches be sampled ahead (max_batches_ahead, without replay)",
        ) from error
