"""Objects that users bring, completed by defaults for the optional attributes of their interface."""

from __future__ import annotations

from types import FunctionType
from typing import Any


class _Optional:
    """An optional attribute: that of the object, or else its default."""

    def __init__(self, name: str, default: Any) -> None:
        self.name, self.default = name, default

    def __get__(self, completed: Completed | None, owner: type) -> Any:
        if completed is None:
            return self.default
        is_method = isinstance(self.default, FunctionType)
        return getattr(completed.of, self.name, self.default.__get__(completed) if is_method else self.default)


class Completed:
    """An object that a user may have made, with defaults for the optional attributes that it lacks.

    A subclass declares the optional attributes of an interface once, each with its default and its meaning; a default may be a method::

        class CompletedAlgorithm(Completed):
            discount: float = 1.0

            def stop(self) -> None:
                "Stop. The default does nothing."

    Then ``CompletedAlgorithm(algo).discount`` is ``algo.discount``, or 1.0 if `algo` has no such attribute. Each access reads the object's
    attribute again. Other code need not ask which attributes the object has. Reading an undeclared attribute raises AttributeError.

    Args:
        of: the object. None has no attributes, so that all defaults hold.
    """

    def __init__(self, of: Any) -> None:
        self.of = of

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name, default in list(vars(cls).items()):
            if not name.startswith("__"):
                setattr(cls, name, _Optional(name, default))
