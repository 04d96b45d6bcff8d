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
        return int(vars(obj)[self._name][0])

    def __set__(self, obj: Any, value: int) -> None:
        if not isinstance(vars(obj).get(self._name), _Shared):
            vars(obj)[self._name] = _shared(value)
        vars(obj)[self._name][0] = value


class _Shared(np.ndarray):
    """An array [1] in shared memory. A process that is being started gets the same memory, and any other copy gets its own."""

    def __deepcopy__(self, memo: Any) -> _Shared:
        return _shared(int(self[0]))

    def __reduce__(self) -> Any:
        return (_shared, (int(self[0]),)) if context.get_spawning_popen() is None else (_view, (np.asarray(self),))


def _shared(value: int) -> _Shared:
    shared = _view(np_mp_array(1, "int64"))
    shared[0] = value
    return shared


def _view(array: np.ndarray) -> _Shared:
    return array.view(_Shared)
