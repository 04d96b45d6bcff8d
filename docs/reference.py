"""What the API reference shows of classes: which members, which bases, and which arguments."""

from __future__ import annotations

import inspect
from typing import Any

from rlpyt.utils.quick_args import arguments_of

# Modules whose named tuples are shown; others are filled and read by their module only.
RECORDS = ("rlpyt.agents.base", "rlpyt.envs.base", "rlpyt.models.lstm", "rlpyt.types")


def is_record(obj):
    """Whether an object is a type of named tuples without a docstring of its own."""
    return isinstance(obj, type) and issubclass(obj, tuple) and (obj.__doc__ or "").startswith(f"{obj.__name__}(")


def skip_member(app, what, name, obj, skip, options):
    """Leave out what every named tuple has, named tuples that only the module itself fills and reads, and other names for Any."""
    is_field = type(obj).__name__ == "_tuplegetter"
    is_method = name in ("get", "items") and getattr(obj, "__qualname__", "").startswith("_NamedArrayTupleMethods")
    is_inner = what == "module" and is_record(obj) and obj.__module__ not in RECORDS
    return True if is_field or is_method or is_inner or obj is Any else None


def shorten_record(app, what, name, obj, options, lines):
    """Leave out the first words of a named tuple's docstring, which repeat its signature."""
    if is_record(obj):
        lines[:] = [line.partition("): ")[2].capitalize() for line in lines[:1]]


def name_bases(app, name, obj, options, bases):
    """Call the base of a named array tuple what it is: the real one has the same name as the class."""
    if any(getattr(base, "__name__", None) == obj.__name__ and issubclass(base, tuple) for base in bases):
        bases[:] = [":doc:`named array tuple </api/namedarraytuple>`"]


class Name:
    """What stands for a default value that is no number or text."""

    def __init__(self, name):
        self.name = name

    def __repr__(self):
        return self.name


def shown_default(default):
    """Return a default value as the reference shows it: classes by their names, and objects that only mark what was not given by dots."""
    if default is inspect.Parameter.empty:
        return default
    return Name("...") if type(default) is object else Name(default.__name__) if callable(default) else default


def constructor(cls):
    """Return the signature of a class, with the arguments that its constructor passes on to those of its bases."""
    shown = [
        parameter.replace(kind=inspect.Parameter.POSITIONAL_OR_KEYWORD, default=shown_default(parameter.default))
        for parameter in arguments_of(cls).values()
        if parameter.kind is not parameter.VAR_KEYWORD
    ]
    return inspect.Signature(sorted(shown, key=lambda parameter: parameter.default is not parameter.empty))
