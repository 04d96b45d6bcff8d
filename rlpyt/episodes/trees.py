"""Nested dictionaries of arrays (numpy's or torch's): the form of what episodes hold. A single array is the simplest one."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from rlpyt.spaces.gym_wrapper import field_names
from rlpyt.utils.collections import namedarraytuple

Tree = Any  # dict[str, Tree] | np.ndarray | torch.Tensor


def is_tensor(x: Any) -> bool:
    """Return whether `x` is a torch tensor, without importing torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


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

    def cat_leaves(*arrays):
        if len(arrays) == 1:
            return arrays[0]
        return sys.modules["torch"].cat(arrays) if is_tensor(arrays[0]) else np.concatenate(arrays)

    return tree_map(cat_leaves, *parts)


def stack(trees: list, space: Any = None, name: str = "value") -> Tree:
    """Stack trees of one structure along a new first dimension: nested dictionaries of numpy arrays.

    In values of a `space` that has parts, tuples are structures, and become dictionaries. Anywhere else they are arrays.

    Raises:
        ValueError: they do not have the same keys and shapes; says which, in what it calls `name`.
    """
    if hasattr(space, "spaces"):
        trees = list(map(as_dictionaries, trees))
    return _stack(trees, name)


def _stack(trees: list, name: str) -> Tree:
    first = trees[0]
    if isinstance(first, dict):
        for tree in trees:
            if not isinstance(tree, dict) or tree.keys() != first.keys():
                got = list(tree) if isinstance(tree, dict) else type(tree).__name__
                raise ValueError(f"{name}: expected the keys {list(first)} at every step, got {got}.")
        return {key: _stack([tree[key] for tree in trees], f"{name}[{key!r}]") for key in first}
    arrays = [as_array(name, tree) for tree in trees]
    other = next((array.shape for array in arrays if array.shape != arrays[0].shape), None)
    if other is not None:
        raise ValueError(f"{name}: expected shape {arrays[0].shape} at every step, got {other}.")
    return np.stack(arrays)


def as_array(name: str, value: Any) -> np.ndarray:
    """Return a value as an array; ValueError with its name if its parts differ in length."""
    try:
        return np.asarray(value)
    except ValueError as error:
        raise ValueError(f"{name}: {value!r} is no array: {error}") from None


def as_numpy(x: Any) -> np.ndarray:
    """Return an array or tensor as a numpy array, over the same memory if it is on the CPU."""
    return x.detach().cpu().numpy() if is_tensor(x) else x


def as_torch(x: Any, device: Any = None) -> Any:
    """Return an array as a tensor, over the same memory if it stays on the CPU; arrays of strings or objects stay what they are."""
    import torch

    if isinstance(x, np.ndarray):
        if x.dtype.kind not in "biufc":
            return x
        x = torch.from_numpy(x if x.flags.writeable else x.copy())
    return x if device is None else x.to(device)


def numeric(tree: Tree) -> Tree:
    """Leave out entries that are not numbers, such as names, of which there are no tensors."""
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
    names = getattr(buffer_, "_fields", None) or [f"item_{i}" for i in range(len(parts))]
    return {name: from_structure(part) for name, part in zip(names, parts) if part is not None}


def map_structure(func: Callable, tree: Any, *others: Any) -> Any:
    """Return the structure of ``func(leaf, ...)`` over the leaves of nested dictionaries and (named) tuples; None stays None."""
    if isinstance(tree, dict):
        return {key: map_structure(func, part, *(other[key] for other in others)) for key, part in tree.items()}
    if isinstance(tree, tuple):
        parts = [map_structure(func, *both) for both in zip(tuple(tree), *map(tuple, others))]
        return tree._make(parts) if hasattr(tree, "_make") else tuple(parts)
    return None if tree is None else func(tree, *others)


def as_dictionaries(tree: Any) -> Tree:
    """Turn tuples of all kinds and dictionaries, one inside the other in any order, into nested dictionaries."""
    if isinstance(tree, tuple):
        tree = from_structure(tree)
    return {key: as_dictionaries(part) for key, part in tree.items()} if isinstance(tree, dict) else tree


def to_structure(tree: Tree, name: str) -> Any:
    """Turn dictionaries into namedarraytuples, of a type called `name`; None for an empty dictionary.

    Keys which are no field names are changed (``a.b`` to ``a_b``).
    """
    if not isinstance(tree, dict):
        return tree
    parts = {field: to_structure(value, f"{name}_{field}") for field, value in zip(field_names(tree), tree.values())}
    parts = {field: value for field, value in parts.items() if value is not None}
    return namedarraytuple(name, list(parts))(*parts.values()) if parts else None
