"""Arrays (of numpy or torch) in nested tuples and dictionaries. A single array is the simplest structure.

Tuples may be plain, namedtuples, namedarraytuples, or instances of the schema types. Batches and replay buffers hold these, and some of
their fields are None. Episodes hold *trees*: nested dictionaries only, in which a tuple is a leaf.
"""

from __future__ import annotations

import copy
import keyword
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from rlpyt.utils.collections import RESERVED_NAMES, fields_of, namedarraytuple

_IMMUTABLE = (str, bytes, int, float, complex, np.generic)

Tree = Any  # dict[str, Tree] | np.ndarray | torch.Tensor


def is_tensor(x: Any) -> bool:
    """Return whether `x` is a torch tensor, without importing torch."""
    torch = sys.modules.get("torch")  # Until torch is imported, there are no tensors.
    return torch is not None and isinstance(x, torch.Tensor)


def dtype_of(x: Any) -> Any:
    """Return the dtype of an array or tensor of any kind; None for Python's own numbers and other objects."""
    return getattr(x, "dtype", None)


def shape_of(x: Any) -> Any:
    """Return the shape of an array or tensor of any kind; None for Python's own numbers and other objects."""
    return getattr(x, "shape", None)


# ---------------------------------------------------------------------------------------------------------------------
# Structures
# ---------------------------------------------------------------------------------------------------------------------
def map_structure(func: Callable, structure: Any, *others: Any) -> Any:
    """Return the structure of ``func(leaf, *leaves of the others at the same place)``; None stays None."""
    if isinstance(structure, tuple):
        parts = [map_structure(func, *both) for both in zip(tuple(structure), *map(tuple, others))]
        return structure._make(parts) if hasattr(structure, "_make") else tuple(parts)  # As in `remade`, without a call.
    if isinstance(structure, dict):
        return {key: map_structure(func, part, *(other[key] for other in others)) for key, part in structure.items()}
    return None if structure is None else func(structure, *others)


def copied(structure: Any) -> Any:
    """Return a copy of a structure of arrays, numbers and other objects, for a record of what it is now.

    Its owner may change the original in place. An object that Python cannot copy stays itself.
    """
    return map_structure(_copied_leaf, structure)


def _copied_leaf(leaf: Any) -> Any:
    if isinstance(leaf, np.ndarray) and not leaf.dtype.hasobject:
        return leaf.copy()
    if isinstance(leaf, _IMMUTABLE):
        return leaf
    if isinstance(leaf, Mapping):
        return {key: copied(part) for key, part in leaf.items()}
    try:
        return copy.deepcopy(leaf)
    except Exception:  # Such as locks and windows.
        return leaf


def leaves_of(structure: Any) -> list:
    """Return the leaves of nested tuples, except None, as a flat list, depth first."""
    found: list = []
    _append_leaves(structure, found)
    return found


def _append_leaves(structure: Any, found: list) -> None:
    if isinstance(structure, tuple):
        for part in tuple(structure):
            _append_leaves(part, found)
    elif structure is not None:
        found.append(structure)


def named_leaves(structure: Any, name: str) -> list[tuple[str, Any]]:
    """Return the leaves of nested tuples, except None, with their paths, such as "name.field" or "name.0", depth first."""
    if isinstance(structure, tuple):
        parts = zip(fields_of(structure) or range(len(structure)), tuple(structure))
        return [leaf for field, part in parts for leaf in named_leaves(part, f"{name}.{field}")]
    return [] if structure is None else [(name, structure)]


def field_names(keys: Iterable[Any], taken: Iterable[str] = ()) -> list[str]:
    """Return a valid and unique field name of a namedtuple for each key: the key itself if possible.

    Otherwise, characters that identifiers cannot have become underscores, and leading underscores are removed. ``key_`` is put before a
    digit, and an underscore after a reserved word. If two keys would get the same name, the later one gets a number.
    """
    keys = [str(key) for key in keys]
    reserved = {*taken, *RESERVED_NAMES, "index", "count"}
    used = set(reserved)
    kept = {key for key in keys if key not in used and _is_field_name(key)}
    names = []
    for key in keys:
        name = key
        if key not in kept:
            name = re.sub(r"\W", "_", key).lstrip("_") or "key"
            name = f"key_{name}" if name[0].isdigit() else name
            name = f"{name}_" if keyword.iskeyword(name) or name in reserved else name
            base, number = name, 2
            while name in used or name in kept:
                name, number = f"{base}_{number}", number + 1
        used.add(name)
        names.append(name)
    return names


def _is_field_name(key: str) -> bool:
    return key.isidentifier() and not key.startswith("_") and not keyword.iskeyword(key)


# ---------------------------------------------------------------------------------------------------------------------
# Trees
# ---------------------------------------------------------------------------------------------------------------------


def tree_map(func: Callable, tree: Tree, *others: Tree) -> Tree:
    """Return the tree of ``func(leaf, *leaves of the others at the same place)``."""
    if isinstance(tree, dict):
        return {key: tree_map(func, value, *(other[key] for other in others)) for key, value in tree.items()}
    return func(tree, *others)


def assign(tree: Tree, rows: Any, values: Tree) -> None:
    """Write a tree of the same structure into these rows of all arrays."""
    if isinstance(tree, dict):
        for key, part in tree.items():
            assign(part, rows, values[key])
    else:
        tree[rows] = values


def leaves(tree: Tree, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield ``(path, leaf)`` of all leaves; paths join the keys by dots."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from leaves(value, f"{path}.{key}" if path else str(key))
    else:
        yield path, tree


def structure(tree: Tree) -> Any:
    """Return the keys of a tree, nested; None for a leaf."""
    return {key: structure(value) for key, value in tree.items()} if isinstance(tree, dict) else None


def cat(parts: list[Tree]) -> Tree:
    """Concatenate trees of one structure along their first dimension."""

    def cat_leaves(*arrays: Any) -> Any:
        if len(arrays) == 1:
            return arrays[0]
        if is_tensor(arrays[0]):
            return sys.modules["torch"].cat(arrays)
        return np.concatenate(arrays, dtype=common_dtype(*(array.dtype for array in arrays)))

    return tree_map(cat_leaves, *parts)


def common_dtype(*dtypes: np.dtype) -> np.dtype:
    """Return a dtype that holds values of all `dtypes` as they are: that of objects if some are text and others are not."""
    kinds = {dtype.kind for dtype in dtypes}
    return np.dtype(object) if len(kinds) > 1 and kinds & {"S", "U"} else np.result_type(*{*dtypes})


def stack(trees: list, space: Any = None, name: str = "value", when: str = "at every step") -> Tree:
    """Stack trees of one structure along a new first dimension: nested dictionaries of numpy arrays.

    If `space` has parts, tuples are structures, and become dictionaries. Otherwise tuples are arrays.

    Raises:
        ValueError: the keys or shapes differ; the message calls the value `name`, and says `when` they must be the same.
    """
    if hasattr(space, "spaces"):
        trees = list(map(as_dictionaries, trees))
    return _stack(trees, name, when)


def _stack(trees: list, name: str, when: str) -> Tree:
    first = trees[0]
    if isinstance(first, dict):
        for tree in trees:
            if not isinstance(tree, dict) or tree.keys() != first.keys():
                got = list(tree) if isinstance(tree, dict) else type(tree).__name__
                raise ValueError(f"{name}: expected the keys {list(first)} {when}, got {got}.")
        return {key: _stack([tree[key] for tree in trees], f"{name}[{key!r}]", when) for key in first}
    arrays = [as_array(name, tree) for tree in trees]
    other = next((array.shape for array in arrays if array.shape != arrays[0].shape), None)
    if other is not None:
        raise ValueError(f"{name}: expected shape {arrays[0].shape} {when}, got {other}.")
    return np.stack(arrays, dtype=common_dtype(*(array.dtype for array in arrays)))


def as_array(name: str, value: Any) -> np.ndarray:
    """Return a value as an array; raise ValueError with its name if its parts differ in length.

    A list or tuple of text and numbers becomes an array of objects.
    """
    try:
        array = np.asarray(value)
        return from_objects(np.asarray(value, object)) if array.dtype.kind in "SU" and isinstance(value, (list, tuple)) else array
    except ValueError as error:
        raise ValueError(f"{name}: {value!r} is no array: {error}") from None


def from_objects(array: np.ndarray) -> np.ndarray:
    """Return an array of objects as one of numbers or text, unless that changes an entry; other arrays are returned as they are.

    Numbers and text together stay objects: numpy would make text of them all.
    """
    if array.dtype != object:
        return array
    entries = array.tolist()
    try:
        plain = np.array(entries)
        if plain.dtype.kind not in "biufcSU":
            return plain
        objects = np.array(entries, object)
    except ValueError:  # Lists of different lengths.
        return array
    is_kept = plain.astype(object) == objects
    if plain.dtype.kind in "fc":
        is_kept |= objects != objects  # NaN, which differs from itself.
    return plain if np.all(is_kept) else objects


def as_numpy(x: Any) -> np.ndarray:
    """Return an array or tensor as a numpy array, over the same memory if it is on the CPU."""
    return x.detach().cpu().numpy() if is_tensor(x) else x


def as_torch(x: Any, device: Any = None) -> Any:
    """Return an array as a tensor, over the same memory if it stays on the CPU; arrays of strings or objects stay arrays."""
    import torch

    if isinstance(x, np.ndarray):
        if x.dtype.kind not in "biufc":
            return x
        x = torch.from_numpy(x if x.flags.writeable else x.copy())
    return x if device is None else x.to(device)


def numeric(tree: Tree) -> Tree:
    """Leave out entries that are not numbers, such as names, because no tensor can hold them."""
    if not isinstance(tree, dict):
        return tree
    parts = {key: numeric(value) for key, value in tree.items() if isinstance(value, dict) or as_numpy(value).dtype.kind in "biufc"}
    return {key: value for key, value in parts.items() if not isinstance(value, dict) or any(True for _ in leaves(value))}


def from_structure(buffer_: Any) -> Tree:
    """Turn namedtuples and namedarraytuples, nested at will, into dictionaries; an empty dictionary for None.

    Plain tuples get the keys ``item_0``, ``item_1``, ...; fields that are None are left out.
    """
    if buffer_ is None:
        return {}
    if not isinstance(buffer_, tuple):
        return buffer_
    parts = tuple(buffer_)
    names = fields_of(buffer_) or [f"item_{i}" for i in range(len(parts))]
    return {name: from_structure(part) for name, part in zip(names, parts) if part is not None}


def as_dictionaries(tree: Any) -> Tree:
    """Turn tuples of all kinds and dictionaries, nested in any order, into nested dictionaries."""
    if isinstance(tree, tuple):
        tree = from_structure(tree)
    return {key: as_dictionaries(part) for key, part in tree.items()} if isinstance(tree, dict) else tree


def info_as_dictionaries(info: Any) -> Tree:
    """Turn an info of nested dictionaries and namedtuples into nested dictionaries; an empty dictionary for None.

    In an info, a plain tuple is an array.
    """
    if info is None:
        return {}
    items = info.items() if isinstance(info, Mapping) else zip(info._fields, tuple(info))
    return {key: info_as_dictionaries(part) if is_info(part) else part for key, part in items}


def is_info(value: Any) -> bool:
    """Return whether a value in an info has named parts."""
    return isinstance(value, Mapping) or fields_of(value) is not None


def to_structure(tree: Tree, name: str) -> Any:
    """Turn dictionaries into namedarraytuples, of a type called `name`; None for an empty dictionary.

    Keys that are not valid field names are changed (``a.b`` to ``a_b``).
    """
    if not isinstance(tree, dict):
        return tree
    parts = {field: to_structure(value, f"{name}_{field}") for field, value in zip(field_names(tree), tree.values())}
    parts = {field: value for field, value in parts.items() if value is not None}
    return namedarraytuple(name, list(parts))(*parts.values()) if parts else None
