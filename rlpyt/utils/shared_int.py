"""An integer attribute that processes share."""

from __future__ import annotations

from typing import Any

from rlpyt.utils.buffer import np_mp_array


class SharedInt:
    """Attribute that is an int in shared memory: processes started after it was first assigned see every later assignment.

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
        if self._name not in vars(obj):
            vars(obj)[self._name] = np_mp_array(1, "int64")
        vars(obj)[self._name][0] = value
