"""Objects as data: the constructor call that made an object as JSON, and an equal object made from it.

A *recipe* is plain JSON. A value that JSON cannot express is a dictionary with one key that begins with ``$``:

========== ==========================================================================================
tag        stands for
========== ==========================================================================================
$name      a class or function that can be imported, "module:qualified.name"
$script    a class or function of the script that was run, "qualified.name"
$part      another object that the reader of the recipe supplies, by its name
$make      an object: ``{"class": ..., "arguments": {...}, "positional": [...]}``
$partial   a `functools.partial`: ``{"function": ..., "arguments": {...}, "positional": [...]}``
$tuple     a tuple; ``$set`` a set; ``$dict`` a dictionary with other keys than texts, as pairs
$array     a small array, ``{"dtype": ..., "values": ...}``; ``$tensor`` a small tensor
$dtype     a numpy dtype; ``$torch`` a torch dtype; ``$device`` a device of torch; ``$range`` a range; ``$path`` a file path
$unknown   something that cannot be written as data; the text says what it was
========== ==========================================================================================

The reader of a recipe decides what its names stand for: `make` asks its `find` for each name, and imports nothing itself.
"""

from __future__ import annotations

import copyreg
import dataclasses
import enum
import functools
import inspect
import os
import pathlib
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rlpyt.utils.left_out import check_overrides
from rlpyt.utils.misc import file_of, module_of, name_of
from rlpyt.utils.quick_args import arguments_of
from rlpyt.utils.settings import check_names, complete_signature

TAGS = (
    *("$name", "$script", "$part", "$make", "$partial", "$tuple", "$set", "$dict", "$array", "$tensor", "$dtype", "$torch", "$device"),
    *("$range", "$path", "$unknown"),
)
LARGEST_ARRAY = 1000  # elements of an array that a recipe holds


class Recorded:
    """Remembers the arguments that each object is made with, so that `describe` can write them down.

    Subclasses may have a constructor with other arguments, which need not call those of its bases. An unknown argument raises a TypeError
    with the nearest name. Pickles and copies leave the arguments out: only the process that made an object describes it, and arguments
    need not be picklable.
    """

    _made_with: tuple[tuple, dict] | None = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        complete_signature(cls)

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        check_names(cls.__init__, cls, kwargs)
        check_overrides(cls)
        self = super().__new__(cls)
        self._made_with = _as_given(args), _as_given(kwargs)
        return self

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_made_with"}

    def __reduce_ex__(self, protocol: Any) -> Any:
        reduced = super().__reduce_ex__(protocol)
        if isinstance(reduced, str) or reduced[0] is not copyreg.__newobj__:  # type: ignore[attr-defined]
            return reduced
        return (_new_without_arguments, *reduced[1:])


def _as_given(value: Any) -> Any:
    """Copy dictionaries, lists, tuples and sets, because the caller may change them later; their elements are not copied."""
    if type(value) is dict:
        return {key: _as_given(item) for key, item in value.items()}
    return type(value)(_as_given(item) for item in value) if type(value) in (list, tuple, set) else value


def _new_without_arguments(cls: type, *args: Any) -> Any:
    """Make an object for unpickling, which calls no constructor and has no arguments to remember."""
    made = cls.__new__(cls, *args)
    vars(made).pop("_made_with")  # A module of torch is not ready to have attributes deleted.
    return made


class Script(NamedTuple):
    """The file that a process was started with.

    Attributes:
        file: absolute path; None in an interactive session.
        module: its name if it was started by ``python -m``, otherwise None.
    """

    file: str | None
    module: str | None = None


def running_script() -> Script:
    """Return the script of this process."""
    main = sys.modules["__main__"]
    file, spec = file_of(main), vars(main).get("__spec__")
    return Script(None if file is None else os.path.abspath(file), None if spec is None else spec.name)


# --- Writing ----------------------------------------------------------------------------------------------------------
def describe(value: Any, script: Script, parts: Mapping[str, Any] | None = None, where: str = "") -> tuple[Any, dict[str, str]]:
    """Return a value as a recipe, and the parts of it that cannot be written as data.

    Args:
        value: anything.
        script: classes and functions of this file become ``$script``.
        parts: objects that become ``$part``, by name.
        where: name of the value in the second result.

    Returns:
        The recipe; and a dictionary with the place of each ``$unknown`` in it, such as "sampler.EnvCls", and what was there.
    """
    writer = _Writer(script, {id(part): name for name, part in (parts or {}).items()})
    return writer.write(value, where), writer.unknown


def describe_call(made: Any, script: Script, parts: Mapping[str, Any] | None = None, where: str = "") -> tuple[dict, dict[str, str]]:
    """Like `describe`, but return how an object was made: ``{"class": ..., "arguments": {...}}``, the contents of a ``$make``."""
    writer = _Writer(script, {id(part): name for name, part in (parts or {}).items() if part is not made})
    return writer.call(made, where), writer.unknown


class _Writer:
    def __init__(self, script: Script, parts: dict[int, str]) -> None:
        self.script, self.parts = script, parts
        self.unknown: dict[str, str] = {}

    def write(self, value: Any, where: str) -> Any:
        if id(value) in self.parts:
            return {"$part": self.parts[id(value)]}
        if value is None or type(value) in (bool, int, float, str):
            return value
        if isinstance(value, enum.Enum):
            if type(value).__members__.get(value.name) is not value:
                return self.cannot(value, where)
            return {tag: name if tag == "$unknown" else f"{name}.{value.name}" for tag, name in self.name(type(value), where).items()}
        if isinstance(value, np.generic):
            return value.item() if value.dtype.kind in "biufU" else self.cannot(value, where)
        if isinstance(value, Mapping):
            return self.mapping(value, where)
        if isinstance(value, tuple) and hasattr(value, "_asdict"):
            return {"$make": dict({"class": self.name(type(value), where)}, arguments=self.each(value._asdict(), where))}
        for kinds, tag in (((list,), None), ((tuple,), "$tuple"), ((set, frozenset), "$set")):
            if isinstance(value, kinds):
                items = [self.write(item, f"{where}[{i}]") for i, item in enumerate(value)]
                return items if tag is None else {tag: items}
        if isinstance(value, type) or inspect.isroutine(value):
            return self.name(value, where)
        return self.object(value, where)

    def mapping(self, value: Mapping, where: str) -> dict:
        if all(isinstance(key, str) and not key.startswith("$") for key in value):
            return self.each(value, where)
        return {"$dict": [[self.write(key, f"{where} (key)"), self.write(item, f"{where}[{key!r}]")] for key, item in value.items()]}

    def each(self, values: Mapping[str, Any], where: str) -> dict:
        return {name: self.write(item, f"{where}.{name}".lstrip(".")) for name, item in values.items()}

    def object(self, value: Any, where: str) -> Any:
        library = type(value).__module__.partition(".")[0]
        if isinstance(value, functools.partial):
            call = dict(arguments=self.each(value.keywords, where), positional=self.items(value.args, where))
            return {"$partial": dict(call, function=self.write(value.func, f"{where} (function)"))}
        if isinstance(value, Recorded):
            return {"$make": self.call(value, where)}
        if dataclasses.is_dataclass(value):
            given = {field.name: getattr(value, field.name) for field in dataclasses.fields(value) if field.init}
            try:
                inspect.signature(type(value)).bind(**given)
            except TypeError:  # Its constructor takes something else than its fields.
                return self.cannot(value, where)
            return {"$make": dict({"class": self.name(type(value), where)}, arguments=self.each(given, where))}
        if isinstance(value, pathlib.PurePath):
            return {"$path": str(value)}
        if isinstance(value, np.dtype):
            return {"$dtype": value.str} if value.kind in "biufU" else self.cannot(value, where)
        if isinstance(value, range):
            return {"$range": [value.start, value.stop, value.step]}
        if isinstance(value, np.ndarray) and value.size <= LARGEST_ARRAY and value.dtype.kind in "biufU":
            return {"$array": dict(dtype=value.dtype.str, shape=list(value.shape), values=value.ravel().tolist())}
        if library == "torch" and type(value).__name__ == "dtype":
            return {"$torch": str(value).removeprefix("torch.")}
        if library == "torch" and type(value).__name__ == "device":
            return {"$device": str(value)}
        if library == "torch" and type(value).__name__ == "Tensor" and value.numel() <= LARGEST_ARRAY and not value.is_complex():
            values = value.detach().cpu().reshape(-1).tolist()
            return {"$tensor": dict(dtype=str(value.dtype).removeprefix("torch."), shape=list(value.shape), values=values)}
        return self.cannot(value, where)

    def items(self, values: tuple, where: str) -> list:
        return [self.write(value, f"{where}[{i}]") for i, value in enumerate(values)]

    def call(self, made: Any, where: str) -> dict:
        """Return how an object was made: its class and the given arguments, without state dictionaries, which are in snapshots."""
        positional, given = _given(made)
        arguments = {name: value for name, value in given.items() if not name.endswith("state_dict")}
        call = {"class": self.name(type(made), where), "arguments": self.each(arguments, where)}
        return {**call, "positional": self.items(positional, where)} if positional else call

    def name(self, value: Any, where: str) -> dict:
        """Return the import path of a class or function."""
        path = _path_of(value)
        module, _, qualname = path.partition(":")
        if "<lambda>" in qualname:
            return self.cannot(value, where, "a lambda")
        if "<locals>" in qualname:
            return self.cannot(value, where, f"{qualname}, which is defined inside a function")
        if not _is_found(value, module, qualname):
            return self.cannot(value, where)
        file = file_of(sys.modules[module])
        if module == "__main__" and (file is None or self.script.file is None):
            return self.cannot(value, where, f"{qualname}, which is defined in an interactive session")
        is_in_script = module == "__main__" or (file is not None and os.path.abspath(file) == self.script.file)
        return {"$script": qualname} if is_in_script else {"$name": path}

    def cannot(self, value: Any, where: str, what: str | None = None) -> dict:
        if what is None:
            what = f"an object of {type(value).__module__}.{type(value).__qualname__}"
        self.unknown[where] = what
        return {"$unknown": what}


def arguments_given(made: Any) -> dict[str, Any]:
    """Return the named arguments that an object was made with."""
    return _given(made)[1]


def made_again(made: Any, **changes: Any) -> Any:
    """Return a new object of the same class, made with the same arguments except `changes`."""
    positional, given = _given(made)
    return type(made)(*positional, **{**given, **changes})


def _given(made: Any) -> tuple[tuple, dict[str, Any]]:
    """Return the arguments that an object was made with: those that can only be given by position, and the others by name.

    If the object does not remember them, its attributes with the names of arguments are returned.
    """
    if vars(made).get("_made_with") is None:
        return (), {name: vars(made)[name] for name in _named(type(made)) if name in vars(made)}
    args, kwargs = made._made_with
    args, kwargs = _by_name(type(made).__mro__, args, kwargs)
    signature = inspect.signature(type(made).__init__)
    bound = signature.bind(made, *args, **kwargs)
    collected = {p.name: p.kind for p in signature.parameters.values() if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}
    _, *own = signature.parameters.values()  # without self
    if any(p.kind in (p.POSITIONAL_ONLY, p.VAR_POSITIONAL) and bound.arguments.get(p.name) is not None for p in own) and args:
        return args, dict(kwargs)
    _, *given = bound.arguments.items()  # without self
    named = {name: value for name, value in given if name not in collected}
    return (), {**named, **{key: value for name, value in given if name in collected for key, value in value.items()}}


def _by_name(classes: tuple[type, ...], args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
    """Name the arguments given by position, through constructors of this library that pass ``*args`` on to their bases."""
    for cls in classes:
        init = vars(cls).get("__init__")
        if not inspect.isfunction(init):
            continue
        _, *parameters = inspect.signature(init).parameters.values()  # without self
        if any(p.kind is p.POSITIONAL_ONLY for p in parameters):
            break
        names = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
        if len(args) <= len(names):
            return (), {**dict(zip(names, args)), **kwargs}
        kinds = {p.kind for p in parameters}
        passes_on = {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD} <= kinds and not names
        if not (passes_on and cls.__module__.partition(".")[0] == __name__.partition(".")[0]):
            break
    return args, kwargs


def defaults_of(made: Any) -> dict[str, Any]:
    """Return the arguments that were not given when an object was made, with the values that they have in it, for people to read."""
    positional, given = _given(made)
    names = [name for name in _named(type(made)) if name not in given and not name.endswith("state_dict")][len(positional) :]
    values = {name: vars(made).get(name, _named(type(made))[name].default) for name in names}
    return {name: value for name, value in values.items() if value is not inspect.Parameter.empty}


def _named(cls: type) -> dict[str, inspect.Parameter]:
    """Return the arguments of a constructor that can be given by name."""
    return {name: p for name, p in arguments_of(cls).items() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}


def _path_of(value: Any) -> str:
    """Return module and qualified name. Built-in functions without a module, such as torch.relu, are looked up only in torch."""
    name, module = name_of(value), module_of(value) or None
    if inspect.isbuiltin(value) and not _is_found(value, str(module), name):
        name = value.__name__
        places = ("torch", "torch.nn.functional")
        module = next((place for place in places if _is_found(value, place, name)), module)
    return f"{module}:{name}"


def _is_found(value: Any, module: str, qualname: str) -> bool:
    """Return whether a name leads back to this class or function."""
    try:
        return functools.reduce(getattr, qualname.split("."), sys.modules[module]) == value
    except (KeyError, AttributeError):
        return False


# --- Reading ----------------------------------------------------------------------------------------------------------
def make(recipe: Any, find: Callable[[str, str], Any], parts: Mapping[str, Any] | None = None) -> Any:
    """Return the value that a recipe describes, by calling the constructors.

    Args:
        recipe: from `describe`, or the same from a JSON file.
        find: called with ``$name`` or ``$script`` and a name; returns the class or function, or raises.
        parts: objects for ``$part``, by name.

    Raises:
        ValueError: the recipe holds an ``$unknown``, or is malformed.
    """
    return _Reader(find, parts or {}).read(recipe)


def make_call(call: Any, find: Callable[[str, str], Any], parts: Mapping[str, Any] | None = None, **changes: Any) -> Any:
    """Return the object that the contents of a ``$make`` describe, with `changes` of its arguments; raises what `make` raises."""
    return _Reader(find, parts or {}).call(call, "class", changes)


class _Reader:
    def __init__(self, find: Callable[[str, str], Any], parts: Mapping[str, Any]) -> None:
        self._readers: dict[str, Callable[[Any], Any]] = {
            "$name": lambda path: find("$name", path),
            "$script": lambda qualname: find("$script", qualname),
            "$part": lambda name: parts[name],
            "$make": lambda call: self.call(call, "class", {}),
            "$partial": self._partial,
            "$tuple": lambda items: tuple(self.read(items)),
            "$set": lambda items: set(self.read(items)),
            "$dict": lambda pairs: {self.read(key): self.read(value) for key, value in pairs},
            "$array": lambda contents: np.array(contents["values"], dtype=contents["dtype"]).reshape(contents["shape"]),
            "$tensor": _tensor,
            "$dtype": np.dtype,
            "$torch": _torch_dtype,
            "$device": _device,
            "$range": lambda numbers: range(*numbers),
            "$path": Path,
            "$unknown": _cannot_be_made,
        }

    def read(self, recipe: Any) -> Any:
        if isinstance(recipe, list):
            return [self.read(each) for each in recipe]
        if not isinstance(recipe, Mapping):
            return recipe
        tags = [key for key in recipe if key.startswith("$")]
        if not tags:
            return {key: self.read(value) for key, value in recipe.items()}
        reader = self._readers.get(tags[0])
        if len(recipe) > 1 or reader is None:
            raise ValueError(f"{', '.join(map(repr, recipe))} is not a tag of a recipe.")
        try:
            return reader(recipe[tags[0]])
        except (KeyError, TypeError, IndexError) as error:
            raise ValueError(f"The recipe has a malformed {tags[0]}: {type(error).__name__}: {error}") from error

    def call(self, call: Any, callee: str, changes: Mapping[str, Any]) -> Any:
        if not (isinstance(call, Mapping) and isinstance(call.get("arguments"), Mapping)):
            raise ValueError(f"A recipe must say what to call, and its arguments, but holds {call!r}.")
        if not (isinstance(call.get(callee), Mapping) and set(call[callee]) <= {"$name", "$script", "$partial", "$unknown"}):
            raise ValueError(f"A recipe must name what it calls, but has {call.get(callee)!r}.")
        function = self.read(call[callee])
        kept = {name: value for name, value in call["arguments"].items() if name not in changes}
        return function(*self.read(list(call.get("positional", ()))), **self.read(kept), **changes)

    def _partial(self, call: Mapping) -> Any:
        function, arguments = self.read(call["function"]), self.read(call["arguments"])
        return functools.partial(function, *self.read(call["positional"]), **arguments)


def _tensor(contents: Mapping) -> Any:
    import torch

    return torch.tensor(contents["values"], dtype=_torch_dtype(contents["dtype"])).reshape(contents["shape"])


def _torch_dtype(name: str) -> Any:
    import torch

    found = vars(torch).get(name)
    if not isinstance(found, torch.dtype):
        raise ValueError(f"torch has no dtype {name!r}.")
    return found


def _device(text: str) -> Any:
    import torch

    return torch.device(text)


def _cannot_be_made(what: str) -> Any:
    raise ValueError(f"It cannot be made again: it was {what}.")


# --- For people -------------------------------------------------------------------------------------------------------
def readable(recipe: Any) -> Any:
    """Return a recipe for people and tables of settings: names and tuples without their tags."""
    if isinstance(recipe, list):
        return [readable(each) for each in recipe]
    if not isinstance(recipe, Mapping):
        return recipe
    if len(recipe) != 1 or not next(iter(recipe)).startswith("$"):
        return {key: readable(value) for key, value in recipe.items()}
    (tag, value), *_ = recipe.items()
    if tag in ("$make", "$partial") and isinstance(value, Mapping):
        what = value.get("class", value.get("function"))
        return {"class": readable(what), **readable(value.get("arguments", {}))}
    if tag in ("$array", "$tensor") and isinstance(value, Mapping):
        return value.get("values")
    return value.replace(":", ".") if tag == "$name" and isinstance(value, str) else readable(value)
