"""A policy's parameters in shared memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from rlpyt.agents.exchange import ParameterExchange


class SharedParameters:
    """Sends parameters to workers through shared memory, with one copy for any number of workers.

    Args:
        example: parameters in the form of all later ones: nested dictionaries, lists and tuples of tensors and arrays.

    Raises:
        TypeError: `example` contains anything else.
    """

    def __init__(self, example: Any) -> None:
        self._form = _map(_Leaf.of, example)
        self._exchange = ParameterExchange(_tensors(example))

    def fits(self, parameters: Any) -> bool:
        """Return whether these parameters have the form of the example and can be sent."""
        try:
            return _map(_Leaf.of, parameters) == self._form
        except TypeError:
            return False

    def send(self, parameters: Any) -> int:
        """Write parameters; return their version, which the caller sends to the workers."""
        return self._exchange.send(_tensors(parameters))

    def receive(self, version: int) -> Any:
        """In a worker: return the parameters of this version.

        Raises:
            RuntimeError: the memory holds another version.
        """
        tensors: list[torch.Tensor] = []
        parameters = _map(lambda leaf: leaf.allocate(tensors), self._form)
        received = self._exchange.receive(tensors)
        if received != version:
            raise RuntimeError(f"Expected parameters of version {version}, but the shared memory holds version {received}.")
        return parameters


@dataclass(frozen=True)
class _Leaf:
    """The form of a tensor or array."""

    is_array: bool
    dtype: torch.dtype
    shape: tuple[int, ...]

    @classmethod
    def of(cls, x: Any) -> _Leaf:
        """Return the form of `x`; raise TypeError if it is neither a tensor nor an array of numbers."""
        if not isinstance(x, torch.Tensor) and not (isinstance(x, np.ndarray) and x.dtype.kind in "biuf"):
            raise TypeError(f"{type(x).__name__} is neither a tensor nor an array of numbers.")
        return cls(type(x) is np.ndarray, torch.as_tensor(x).dtype, tuple(x.shape))

    def allocate(self, tensors: list[torch.Tensor]) -> torch.Tensor | np.ndarray:
        """Allocate a tensor and append it to `tensors`; return it, or an array that shares its memory."""
        tensors.append(torch.empty(self.shape, dtype=self.dtype))
        return tensors[-1].numpy() if self.is_array else tensors[-1]


def _tensors(parameters: Any) -> list[torch.Tensor]:
    tensors: list[torch.Tensor] = []
    _map(lambda x: tensors.append(torch.as_tensor(x).detach()), parameters)
    return tensors


def _map(func: Callable, tree: Any) -> Any:
    if isinstance(tree, Mapping):
        return {key: _map(func, part) for key, part in tree.items()}
    return type(tree)(_map(func, part) for part in tree) if type(tree) in (list, tuple) else func(tree)
