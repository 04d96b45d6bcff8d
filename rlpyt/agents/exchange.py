"""The exchange of parameters between the process that trains and those that sample."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from rlpyt.utils.buffer import np_mp_array, torchify_buffer
from rlpyt.utils.synchronize import ProcessLock


class ParameterExchange:
    """The latest parameters of a model, in shared memory: one process sends them, any number receive them, and nobody waits.

    Versions are written into two slots in turn, flat. A receiver reads again if new parameters overtook it::

        sender     [announced = v]   slot[v % 2] = parameters          [published = v]
        receiver   [v = published]   parameters = slot[v % 2]   again, unless [announced < v + 2]

    Locks (``[]``) are held only around a single number. If the sender is killed halfway, the previous version stays valid.

    Args:
        tensors: the parameters, of any dtypes and on any device. They are sent immediately, as version 0.
    """

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        self._dtypes = sorted({tensor.dtype for tensor in tensors}, key=str)
        self._numbers = np_mp_array(2, "int64")  # announced, published
        self._lock = ProcessLock()
        sizes = [sum(tensor.numel() for tensor in self._of(dtype, tensors)) for dtype in self._dtypes]
        self._slots_np = [  # [slot][dtype], as bytes: numpy has no bfloat16.
            [np_mp_array(size * dtype.itemsize, "uint8") for size, dtype in zip(sizes, self._dtypes)] for _ in range(2)
        ]
        self._numbers[:] = -1
        self.send(tensors)

    @property
    def version(self) -> int:
        """Version of the newest parameters: 0 for those given to the constructor, then 1, 2, ..."""
        return int(self._numbers[1])

    def send(self, tensors: Sequence[torch.Tensor]) -> int:
        """Publish parameters, of the same shapes and dtypes as those given to the constructor; return their version."""
        version = self.version + 1
        with self._lock:
            self._numbers[0] = version
        for slot, dtype in zip(self._slots(version), self._dtypes):
            parts = [tensor.detach().reshape(-1) for tensor in self._of(dtype, tensors)]
            if parts[0].device.type == "cpu":
                torch.cat(parts, out=slot)
            else:
                slot.copy_(torch.cat(parts))  # One copy from the GPU, which blocks until it is done.
        with self._lock:
            self._numbers[1] = version
        return version

    def receive(self, tensors: Sequence[torch.Tensor]) -> int:
        """Copy the newest parameters into `tensors`; return their version."""
        while True:
            with self._lock:
                version = int(self._numbers[1])
            for slot, dtype in zip(self._slots(version), self._dtypes):
                mine = self._of(dtype, tensors)
                parts = slot.to(mine[0].device).split([tensor.numel() for tensor in mine])
                with torch.no_grad():
                    torch._foreach_copy_(mine, [part.view_as(tensor) for part, tensor in zip(parts, mine)])
            with self._lock:
                if self._numbers[0] < version + 2:
                    return version

    def _slots(self, version: int) -> list[torch.Tensor]:
        return [torchify_buffer(array).view(dtype) for array, dtype in zip(self._slots_np[version % 2], self._dtypes)]

    def _of(self, dtype: torch.dtype, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        return [tensor for tensor in tensors if tensor.dtype == dtype]


class SharedParameters:
    """Sends parameters of any structure to workers through shared memory, with one copy for any number of workers.

    Args:
        example: parameters in the form of all later ones: nested dictionaries, lists and tuples of tensors and arrays.

    Raises:
        TypeError: `example` contains anything else.
    """

    def __init__(self, example: Any) -> None:
        self._form = _map(_form_of, example)
        self._exchange = ParameterExchange(_tensors(example))

    def fits(self, parameters: Any) -> bool:
        """Return whether these parameters have the form of the example and can be sent."""
        try:
            return _map(_form_of, parameters) == self._form
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

        def allocate(form: _Form) -> torch.Tensor | np.ndarray:
            tensors.append(torch.empty(form.shape, dtype=form.dtype))
            return tensors[-1].numpy() if form.is_array else tensors[-1]

        parameters = _map(allocate, self._form)
        received = self._exchange.receive(tensors)
        if received != version:
            raise RuntimeError(f"Expected parameters of version {version}, but the shared memory holds version {received}.")
        return parameters


class _Form(NamedTuple):
    """The form of a tensor or array."""

    is_array: bool
    dtype: torch.dtype
    shape: tuple[int, ...]


def _form_of(x: Any) -> _Form:
    """Return the form of `x`; raise TypeError if it is neither a tensor nor an array of numbers."""
    if not isinstance(x, torch.Tensor) and not (isinstance(x, np.ndarray) and x.dtype.kind in "biuf"):
        raise TypeError(f"{type(x).__name__} is neither a tensor nor an array of numbers.")
    return _Form(type(x) is np.ndarray, torch.as_tensor(x).dtype, tuple(x.shape))


def _tensors(parameters: Any) -> list[torch.Tensor]:
    tensors: list[torch.Tensor] = []
    _map(lambda x: tensors.append(torch.as_tensor(x).detach()), parameters)
    return tensors


def _map(func: Callable, tree: Any) -> Any:
    if isinstance(tree, Mapping):
        return {key: _map(func, part) for key, part in tree.items()}
    return type(tree)(_map(func, part) for part in tree) if type(tree) in (list, tuple) else func(tree)
