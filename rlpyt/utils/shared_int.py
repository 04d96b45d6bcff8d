"""An integer attribute that processes share."""

from __future__ import annotations

from multiprocessing import context
from typing import Any

import numpy as np

from rlpyt.utils.buffer import np_mp_array


class SharedInt:
    """Attribute that is an int in shared memory: processes started after it was first assigned see every later assignment.

    Deep and unpickled copies of the object have an int of their own, which the processes started with the copy share.

    class Agent:
        min_itr_learn = SharedInt()
    """

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, obj: Any, owner: type | None = None) -> Any:
        if obj is None:
            return self
        if self._name not in vars(obj):
            raise AttributeError(f"{type(obj).__name__} has no {self._name} yet: assign it first.")
        return int(vars(obj)[self._name].array[0])

    def __set__(self, obj: Any, value: int) -> None:
        if self._name not in vars(obj):
            vars(obj)[self._name] = _Memory.of(value)
        vars(obj)[self._name].array[0] = value


class _Memory:
    """An array [1] in shared memory. A process that is being started gets the same memory, and any other copy gets its own."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    @classmethod
    def of(cls, value: int) -> _Memory:
        """Return new memory that holds `value`."""
        memory = cls(np_mp_array(1, "int64"))
        memory.array[0] = value
        return memory

    def __copy__(self) -> _Memory:
        return self  # A shallow copy of the object shares it.

    def __reduce__(self) -> Any:
        return (_Memory.of, (int(self.array[0]),)) if context.get_spawning_popen() is None else (_Memory, (self.array,))
