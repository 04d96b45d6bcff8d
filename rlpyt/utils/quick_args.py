"""Constructor arguments: they become attributes of the same name, and which there are."""

import inspect
from collections.abc import Callable


def save__init__args(
    values: dict,
    underscore: bool = False,
    overwrite: bool = False,
    subclass_only: bool = False,
) -> None:
    """Assign the arguments of `__init__` to attributes; call `save__init__args(locals())` inside `__init__`.

    Saves what is found in `values` and named in the signature of any `__init__` of the object's classes, but
    does not touch an attribute which the object already has: called before `super().__init__()`, a subclass's
    value wins over its base's. Collected arguments (*args, **kwargs) belong to whomever they are passed on
    to, and are not saved.

    values: `locals()`, including `self`.
    underscore: name the attributes with a leading underscore.
    overwrite: replace the attributes which the object already has.
    subclass_only: save only the arguments in the signature of the class whose `__init__` is running.
    """
    self = values["self"]
    # The locals of an __init__ which uses super() know their class; else the object's own is the best guess.
    classes = (values.get("__class__", type(self)),) if subclass_only else type(self).__mro__
    for name in {name for cls in classes for name in _init_argument_names(cls)} & values.keys():
        attribute = f"_{name}" if underscore else name
        if overwrite or attribute not in vars(self):
            setattr(self, attribute, values[name])


def _init_argument_names(cls: type) -> list[str]:
    if not inspect.isfunction(cls.__init__):  # inherited from a class written in C: no arguments to know of
        return []
    collected = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    parameters = list(inspect.signature(cls.__init__).parameters.values())[1:]  # without self
    return [parameter.name for parameter in parameters if parameter.kind not in collected]


def arguments_of(make: Callable) -> dict[str, inspect.Parameter]:
    """Return the arguments of a function, or of a class with those of its base classes, as far as constructors hand **kwargs on, by name.

    Where it cannot be known which names **kwargs may hold, it is one of these arguments itself.
    """
    if not inspect.isclass(make):
        return dict(inspect.signature(make).parameters)
    arguments: dict[str, inspect.Parameter] = {}
    for cls in make.__mro__:
        if inspect.isfunction(vars(cls).get("__init__")):
            arguments = {name: p for name, p in arguments.items() if p.kind is not p.VAR_KEYWORD}
            _, *own = inspect.signature(cls.__init__).parameters.values()  # without self
            arguments = {**{p.name: p for p in own if p.kind is not p.VAR_POSITIONAL}, **arguments}
            if not any(p.kind is p.VAR_KEYWORD for p in own):
                break
    return arguments


def takes(make: Callable, name: str) -> bool:
    """Whether a function, or a class, may be called with a keyword argument of that name, as far as can be known."""
    arguments = arguments_of(make)
    return name in arguments or any(p.kind is p.VAR_KEYWORD for p in arguments.values())
