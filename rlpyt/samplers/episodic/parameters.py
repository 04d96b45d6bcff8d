"""A policy's parameters in shared memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from rlpyt.agents.exchange import ParameterExchange


class SharedParameters:
    """Parameters on their way to workers, in memory that is shared with all of them: copied once, however many there are.

    Args:
        example: parameters as all that will be sent: nested dictionaries, lists and tuples of tensors and arrays.

    Raises:
        TypeError: something else is in them.
    """

    def __init__(self, example: Any) -> None:
        self._kind = _kind(example)
        self._form = _map(_Leaf, example)
        self._exchange = ParameterExchange(_tensors(example))

    def fits(self, parameters: Any) -> bool:
        """Return whether these parameters can be sent: whether they have the form of the example."""
        try:
            return _kind(parameters) == self._kind
        except TypeError:
            return False

    def send(self, parameters: Any) -> int:
        """Let all workers have them; return their version, to be told to the workers."""
        return self._exchange.send(_tensors(parameters))

    def receive(self, version: int) -> Any:
        """In a worker: return the parameters of this version.

        Raises:
            RuntimeError: others are there.
        """
        tensors = _map(_Leaf.empty, self._form)
        received = self._exchange.receive(_leaves(tensors))
        if received != version:
            raise RuntimeError(f"Parameters of version {version} were to be used, but those of version {received} are there.")
        leaves = iter(_leaves(self._form))
        return _map(lambda x: x.numpy() if next(leaves).is_array else x, tensors)


class _Leaf:
    """What a tensor or array is like."""

    def __init__(self, x: Any) -> None:
        self.is_array, self.shape, self.dtype = isinstance(x, np.ndarray), tuple(x.shape), torch.as_tensor(x).dtype

    def empty(self) -> torch.Tensor:
        return torch.empty(self.shape, dtype=self.dtype)


def _tensors(parameters: Any) -> list[torch.Tensor]:
    return [torch.as_tensor(x).detach() for x in _leaves(parameters)]


def _map(func: Callable, tree: Any) -> Any:
    if isinstance(tree, Mapping):
        return {key: _map(func, part) for key, part in tree.items()}
    if isinstance(tree, (list, tuple)):
        return type(tree)(_map(func, part) for part in tree)
    return func(tree)


def _leaves(tree: Any) -> list:
    leaves: list = []
    _map(leaves.append, tree)
    return leaves


def _kind(tree: Any) -> Any:
    """Return keys, dtypes and shapes; raise TypeError for what is neither a tensor nor an array of numbers."""
    if isinstance(tree, Mapping):
        return {key: _kind(part) for key, part in tree.items()}
    if type(tree) in (list, tuple):
        return type(tree), [_kind(part) for part in tree]
    if isinstance(tree, torch.Tensor) or (isinstance(tree, np.ndarray) and tree.dtype.kind in "biuf"):
        return type(tree) is np.ndarray, str(tree.dtype), tuple(tree.shape)
    raise TypeError(f"{type(tree).__name__} is neither a tensor nor an array of numbers.")
