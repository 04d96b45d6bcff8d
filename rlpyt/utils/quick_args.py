"""Constructor arguments: assign them to attributes of the same name, and list those of a class with its bases."""

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping

from rlpyt.utils.misc import is_of_rlpyt


def save__init__args(
    values: dict,
    underscore: bool = False,
    overwrite: bool = False,
    subclass_only: bool = False,
) -> None:
    """Assign the arguments of `__init__` to attributes; call `save__init__args(locals())` inside `__init__`.

    These are the entries of `values` that are arguments of an `__init__` of the object's class or its bases, except attributes that the
    object already has: if called before `super().__init__()`, a subclass's value wins over its base's. Collected arguments (*args,
    **kwargs) are left out, because they belong to the function that they are passed on to.

    Args:
        values: `locals()`, including `self`.
        underscore: name the attributes with a leading underscore.
        overwrite: replace attributes that the object already has.
        subclass_only: assign only the arguments in the signature of the class whose `__init__` is running.
    """
    self = values["self"]
    # The locals of an __init__ that uses super() include its class; otherwise the object's class is the best guess.
    classes = (values.get("__class__", type(self)),) if subclass_only else type(self).__mro__
    for name in {name for cls in classes for name in _init_argument_names(cls)} & values.keys():
        attribute = f"_{name}" if underscore else name
        if overwrite or not _has(self, attribute):
            setattr(self, attribute, values[name])


def _has(self: object, attribute: str) -> bool:
    """Return whether the object itself, not its class, has an attribute; for a property, whether reading it works."""
    is_property = isinstance(inspect.getattr_static(type(self), attribute, None), property)
    return hasattr(self, attribute) if is_property else attribute in vars(self)


def _init_argument_names(cls: type) -> list[str]:
    init = inspect.getattr_static(cls, "__init__")
    if not inspect.isfunction(init):  # inherited from a class written in C, whose arguments are unknown
        return []
    collected = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    parameters = list(inspect.signature(init).parameters.values())[1:]  # without self
    return [parameter.name for parameter in parameters if parameter.kind not in collected]


def arguments_of(make: Callable) -> dict[str, inspect.Parameter]:
    """Return the arguments of a function or class by name; for a class including those of bases to which constructors pass **kwargs.

    Positional arguments of a constructor come before those that it passes on. Its keyword-only arguments keep the order in which they are
    written, and each inherited argument follows the one that precedes it in the base class. If the names that **kwargs may hold are
    unknown, **kwargs is one of these arguments itself.
    """
    return arguments_along(make.__mro__) if inspect.isclass(make) else dict(inspect.signature(make).parameters)


def arguments_along(classes: Iterable[type]) -> dict[str, inspect.Parameter]:
    """Return the arguments that the first constructor of these classes takes or passes on to later ones; see `arguments_of`."""
    constructors = []
    for cls in classes:
        if inspect.isfunction(init := vars(cls).get("__init__")):
            constructors.append(init)
            # Unwrapped, because the signature of a `checked` constructor already includes all arguments of its bases.
            if not any(p.kind is p.VAR_KEYWORD for p in own_arguments(init)):
                break
    arguments = {p.name: p for p in own_arguments(constructors.pop()) if p.kind is not p.VAR_POSITIONAL} if constructors else {}
    for init in reversed(constructors):
        arguments = _with_inherited(init, arguments)
    return arguments


def own_arguments(init: Callable) -> list[inspect.Parameter]:
    """Return the arguments written in a constructor, without self and inherited ones."""
    return list(written_arguments(inspect.unwrap(init)).values())[1:]


def written_arguments(function: Callable) -> Mapping[str, inspect.Parameter]:
    """Return the arguments in the signature of a function by name; of a user's wrapper its own, not those of what it wraps.

    Raises:
        TypeError, ValueError: a built-in function does not tell its arguments.
    """
    if inspect.isfunction(function) and is_of_rlpyt(function):
        return _written_here(function)
    return inspect.signature(function, follow_wrapped=is_of_rlpyt(function)).parameters


@functools.cache  # Each check of a call needs them. Functions of users may change, and may not be kept alive.
def _written_here(function: Callable) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(function).parameters


def _with_inherited(init: Callable, inherited: dict[str, inspect.Parameter]) -> dict[str, inspect.Parameter]:
    """Return the arguments of a constructor with **kwargs, merged with those that it passes on to its base classes."""
    own, is_checked = own_arguments(init), "kinds" in vars(init)
    kinds = {p.kind for p in own}
    first = [p for p in own if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    in_place = {p.name: p for p in own if p.kind is p.KEYWORD_ONLY}
    if is_checked and inspect.Parameter.VAR_POSITIONAL not in kinds:  # `checked` names arguments given by position.
        in_place = {name: p.replace(kind=p.POSITIONAL_OR_KEYWORD) for name, p in in_place.items()}
    elif inspect.Parameter.VAR_POSITIONAL not in kinds:
        inherited = {name: p if p.kind is p.VAR_KEYWORD else p.replace(kind=p.KEYWORD_ONLY) for name, p in inherited.items()}
    left_out = {p.name for p in first} | set(vars(init).get("without", ()))
    order, previous = list(in_place), None
    for name in [name for name in inherited if name not in left_out]:
        if name not in in_place:
            order.insert(0 if previous is None else order.index(previous) + 1, name)
        previous = name
    return {**{p.name: p for p in first}, **{name: in_place.get(name) or inherited[name] for name in order}}


def takes(make: Callable, name: str) -> bool:
    """Return whether a function or class may take a keyword argument of this name; True if **kwargs could hold it."""
    arguments = arguments_of(make)
    return name in arguments or any(p.kind is p.VAR_KEYWORD for p in arguments.values())


def needs(make: Callable, name: str) -> bool:
    """Return whether a function or class must be given an argument of this name, since it has no default."""
    argument = arguments_of(make).get(name)
    return argument is not None and argument.default is argument.empty
