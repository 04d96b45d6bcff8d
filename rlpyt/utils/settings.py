"""Settings: the possible values of constructor and function arguments, declared beside the function and checked before each call.

    @checked(batch_T=COUNT, worker_timeout=POSITIVE, env_kwargs=ArgumentsFor("EnvCls"))
    def __init__(self, EnvCls: Callable, env_kwargs: dict, batch_T: int, worker_timeout: float | None = None, shuffle: bool = False): ...

An argument without a declaration is checked by its annotation, if `BY_ANNOTATION` has it. None is possible if the annotation allows it.
Defaults are not checked.
"""

from __future__ import annotations

import functools
import inspect
import math
import numbers
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from rlpyt.utils.misc import attributes, did_you_mean, has_all, is_of_rlpyt, name_of
from rlpyt.utils.names_elsewhere import NAMES_ELSEWHERE as NAMES_ELSEWHERE  # The documented path.
from rlpyt.utils.names_elsewhere import which_setting
from rlpyt.utils.quick_args import arguments_along, arguments_of, own_arguments, written_arguments
from rlpyt.utils.structures import shape_of
from rlpyt.utils.text import plural

_LARGEST_WHOLE = 2**63 - 1  # The largest element, and the largest length, of an array.
_COLLECTED = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


# --- Kinds of values --------------------------------------------------------------------------------------------------
class Number(NamedTuple):
    """The numbers a setting may take.

    Attributes:
        low: lower bound, included unless `above` is True.
        high: upper bound, included.
        whole: only whole numbers that arrays can hold, ``1e6`` among them.
        above: the lower bound is excluded.
        optional: None is allowed, too.
        finite: infinity is not allowed, even without bounds.
    """

    low: float = -math.inf
    high: float = math.inf
    above: bool = False
    whole: bool = False
    optional: bool = False
    finite: bool = False

    def allows(self, value: Any) -> bool:
        """Return whether a value is possible: a Python or numpy number, or an array or tensor without dimensions."""
        if value is None:
            return self.optional
        value = _item(value)
        if isinstance(value, bool) or not isinstance(value, numbers.Real) or value != value:
            return False
        number: Any = value
        if (self.whole or self.finite) and abs(value) == math.inf:
            return False
        if self.whole and (number != math.floor(number) or abs(number) > _LARGEST_WHOLE):
            return False
        return _has_float(number) and (self.low < number if self.above else self.low <= number) and number <= self.high

    def stored(self, value: Any) -> Any:
        """Return the form in which an allowed value is stored: whole numbers as int."""
        return int(value) if self.whole and value is not None else value

    def __str__(self) -> str:
        kind = "a whole number" if self.whole else "a finite number" if self.finite else "a number"
        bounds = [f"{'above' if self.above else 'at least'} {self.low:g}"] if self.low > -math.inf else []
        bounds += [f"at most {self.high:g}"] if self.high < math.inf else []
        return " ".join([kind, " and ".join(bounds)]).strip() + (", or None" if self.optional else "")


def _item(value: Any) -> Any:
    """Return the number in an array or tensor without dimensions; return anything else unchanged."""
    return value.item() if shape_of(value) == () and hasattr(value, "item") else value


def _has_float(value: numbers.Real) -> bool:
    """Return whether a number is small enough for a float."""
    try:
        float(value)
    except OverflowError:
        return False
    return True


class Kind(NamedTuple):
    """Values that are not numbers.

    Attributes:
        words: name of the kind, for "it must be ...".
        test: returns whether a value is of this kind.
        optional: None is allowed, too.
        hint: returns a further sentence about a value of another kind, or "".
    """

    words: str
    test: Callable[[Any], bool]
    optional: bool = False
    hint: Callable[[Any], str] = lambda value: ""

    def allows(self, value: Any) -> bool:
        """Return whether a value is possible."""
        return self.optional if value is None else self.test(value)

    def stored(self, value: Any) -> Any:
        """Return the value."""
        return value

    def __str__(self) -> str:
        return self.words + (", or None" if self.optional else "")


class ArgumentsFor(NamedTuple):
    """A dictionary of keyword arguments for a function or class that is called later; its signature has their names.

    Attributes:
        of: name of the argument that holds the function or class.
        otherwise: name of the argument that replaces `of` if that is None.
        given: arguments that the function or class gets from elsewhere, each with the setting that determines it.
        by: methods that call the function or class. If a user's class overrides one of them, the names are not checked.
        several: lists of dictionaries, and of functions or classes, are possible; they are paired in turn.
        optional: None is allowed, too.
    """

    of: str
    otherwise: str = ""
    given: Mapping[str, str] = {}
    by: tuple[str, ...] = ()
    several: bool = False
    optional: bool = False

    def allows(self, value: Any) -> bool:
        """Return whether a value is possible, apart from its keys."""
        dictionaries = value if self.several and isinstance(value, (list, tuple)) else [value]
        return self.optional if value is None else all(isinstance(each, Mapping) for each in dictionaries)

    def stored(self, value: Any) -> Any:
        """Return the value."""
        return value

    def __str__(self) -> str:
        return f"a dictionary of arguments of {self.of}" + (", or None" if self.optional else "")

    def check_keys(self, who: str, name: str, value: Any, settings: Mapping[str, Any], owner: Any) -> None:
        """Raise ValueError if a dictionary has a key that the function or class has no argument for."""
        of = self.of if settings.get(self.of) is not None else self.otherwise
        makes = settings.get(of)
        makes = list(makes) if isinstance(makes, (list, tuple)) else [makes]
        if value is None or not makes or not is_of_rlpyt(*(getattr(type(owner), method) for method in self.by if hasattr(owner, method))):
            return
        dictionaries = list(value) if isinstance(value, (list, tuple)) else [value]
        for i in range(max(len(makes), len(dictionaries)) if dictionaries else 0):
            make, kwargs = makes[i % len(makes)], dictionaries[i % len(dictionaries)]
            known = names_taken(make) if callable(make) else None
            if known is None:
                continue
            for key in kwargs:
                if key in self.given:
                    raise ValueError(f"{who}: {name} has {key!r}, which {self.given[key]} determines: leave it out.")
                if key not in known:
                    hint = which_setting(key, [each for each in known if each not in self.given], anywhere=False)
                    raise ValueError(f"{who}: {name} has {key!r}, which is no argument of {name_of(make)}, its {of}. {hint}")


def names_taken(make: Callable) -> list[str] | None:
    """Return the names of all keyword arguments of a function or class; None if it may take further ones."""
    try:
        arguments = written_arguments(make)  # A user's wrapper may take arguments that the wrapped function does not.
    except (TypeError, ValueError):  # Some built-in functions have no signature.
        return None
    if _has_kwargs(arguments.values()):
        if not (inspect.isclass(make) and _hands_on(make.__mro__)):
            return None
        arguments = arguments_of(make)
    return [name for name, p in arguments.items() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]


def _hands_on(classes: Iterable[type]) -> bool:
    """Return whether constructors of these classes pass their **kwargs on, up to one without: only `checked` constructors do."""
    for base in classes:
        init = vars(base).get("__init__")
        if inspect.isfunction(init):
            if not _has_kwargs(own_arguments(init)):
                return True
            if not _is_checked(init):
                return False
    return False


def _has_kwargs(parameters: Iterable[inspect.Parameter]) -> bool:
    return any(p.kind is p.VAR_KEYWORD for p in parameters)


def one_of(*values: Any) -> Kind:
    """Return the kind of exactly these values."""
    return Kind(" or ".join(map(repr, values)), lambda value: any(type(value) is type(each) and value == each for each in values))


def has(words: str, *names: str) -> Kind:
    """Return the kind of objects with all of these methods; a class is not possible."""

    def hint(value: Any) -> str:
        if not isinstance(value, type) or not has_all(value, *names):
            return ""
        needs = any(p.default is p.empty and p.kind not in _COLLECTED for p in arguments_of(value).values())
        return f"Make an object of it: {value.__name__}({'...' if needs else ''})."

    return Kind(words, lambda value: not isinstance(value, type) and has_all(value, *names), hint=hint)


def or_array(number: Number) -> Kind:
    """Return the kind of a number, or an array, tensor or list of such numbers."""

    def test(value: Any) -> bool:
        if number.allows(value):
            return True
        values = value.tolist() if hasattr(value, "tolist") else value
        return isinstance(values, (list, tuple)) and bool(values) and all(map(test, values))

    return Kind(f"{number}, or an array of such numbers", test)


def list_of(words: str, test: Callable[[Any], bool]) -> Kind:
    """Return the kind of lists and other sequences whose elements pass a test."""
    return Kind(f"a list of {words}", lambda xs: isinstance(xs, Sequence) and not isinstance(xs, (str, bytes)) and all(map(test, xs)))


def _are_sizes(value: Any) -> bool:
    values = value.tolist() if hasattr(value, "tolist") else value
    return is_integer(values, lowest=1) or _SIZES.test(values)


def is_integer(value: Any, lowest: float = -math.inf) -> bool:
    """Return whether a value is an integer of at least `lowest`: of Python or numpy, or in an array without dimensions. A bool is not."""
    value = _item(value)
    return isinstance(value, numbers.Integral) and not isinstance(value, bool) and int(value) >= lowest


def _is_flag(value: Any) -> bool:
    value = _item(value)
    return isinstance(value, (bool, int, float)) and value in (0, 1)


FRACTION = Number(0, 1)
NON_NEGATIVE = Number(0)
POSITIVE = Number(0, above=True)
RATE = Number(0, finite=True)
COUNT = Number(1, whole=True)
STEPS = Number(0, whole=True)
FLAG = Kind("True or False", _is_flag)
SEED = Kind("a whole number at least 0", lambda value: is_integer(value, lowest=0))
START_METHOD = one_of("fork", "spawn", "forkserver")
ANYTHING = Kind("anything", lambda value: True, optional=True)  # The function checks the argument itself.
TEXT = Kind("a text", lambda value: isinstance(value, str))
PATH = Kind("a path", lambda value: isinstance(value, (str, os.PathLike)))
CALLABLE = Kind("a class or function", callable)
DICTIONARY = Kind("a dictionary", lambda value: isinstance(value, Mapping))
ARRAY = Kind("an array", lambda value: isinstance(value, np.ndarray))
_SIZES = list_of("whole numbers at least 1", lambda x: is_integer(x, lowest=1))
SIZES = Kind(f"a whole number at least 1, or {_SIZES}", _are_sizes)

_OF_SIZES = "Sequence[int] | int"  # The annotation of widths of layers.
BY_ANNOTATION = {
    "bool": FLAG,
    "int": Number(whole=True),
    "float": Number(),
    "float | int": Number(),
    "str": TEXT,
    "PathLike | str": PATH,
    "dict": DICTIONARY,
    "Mapping": DICTIONARY,
    "Callable": CALLABLE,
    "type": CALLABLE,
    "ndarray": ARRAY,
}


# --- Checking ---------------------------------------------------------------------------------------------------------
def checked(*tables: Mapping[str, Any], without: Sequence[str] = (), **declared: Number | Kind | ArgumentsFor) -> Callable:
    """Decorate a function, method or constructor: check its arguments before each call, and convert whole numbers (``1e6``) to int.

    A constructor with ``**settings`` passes them to its base class, and names only settings that are new or have another default. It calls
    `save__init__args` before the base's constructor, so that its own values are kept::

        @checked(epochs=COUNT)
        def __init__(self, *, learning_rate: float = 1e-4, epochs: int = 4, **settings: Any) -> None:
            save__init__args(locals())
            super().__init__(**settings)

    The signature of the class has all arguments, in the order of `rlpyt.utils.quick_args.arguments_of`, and they may be given by position.
    A setting with another default keeps the kind that the base class declares. All this needs a base class that calls
    `complete_signature` for its subclasses, such as `rlpyt.utils.recipes.Recorded`.

    If a subclass has already assigned the function or class of an `ArgumentsFor` to an attribute, the keyword arguments are checked
    against this one.

    Args:
        tables: kinds of settings that several functions share, by name; this function need not have all of them.
        without: settings of the base class that this class does not have.
        declared: kinds of arguments, by name; other arguments are checked by their annotations.

    Raises:
        TypeError: in the call, if an argument is missing or unknown; the message has the nearest name.
        ValueError: in the call, if a value is not possible; the message has its name, the value and what is possible. Or if a dictionary
            has an unknown key (see `ArgumentsFor`); the message has the nearest key.
    """

    def decorate(function: Callable) -> Callable:
        parameters = inspect.signature(function).parameters
        assert declared.keys() <= parameters.keys(), declared.keys() - parameters.keys()
        known = {name: kind for table in (*tables, declared) for name, kind in table.items()}
        kinds = {name: kind for name, p in parameters.items() if (kind := _kind(p, known.get(name))) is not None}
        if _has_kwargs(parameters.values()):
            # The receiver of arguments that are passed on decides whether None is possible.
            kinds = {**{name: kind._replace(optional=True) for name, kind in known.items()}, **kinds}
        places = {p.name: i for i, p in enumerate(parameters.values()) if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)}
        defaults = {name: p.default for name, p in parameters.items() if p.default is not p.empty}
        required = [name for name, p in parameters.items() if p.default is p.empty and p.kind not in _COLLECTED]
        is_method = next(iter(parameters), None) == "self"
        passes_on = _has_kwargs(parameters.values()) and not any(p.kind is p.VAR_POSITIONAL for p in parameters.values())

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            owner = args[0] if is_method and args else None
            check_names(function, owner, kwargs)
            if passes_on and len(args) > len(places):
                args, kwargs = _by_name(call, args, kwargs, len(places), type(owner).__name__)
            given = {**{name: args[i] for name, i in places.items() if i < len(args)}, **kwargs}
            who = _who(function, None) if owner is None else type(owner).__name__
            missing = [name for name in required if name not in given]
            if missing:
                raise TypeError(f"{who} needs {' and '.join(missing)}.")
            stored = check_values(who, given, kinds, owner, defaults)
            args = tuple(stored.pop(name, args[i]) for name, i in places.items() if i < len(args)) + args[len(places) :]
            return function(*args, **{**kwargs, **stored})

        vars(call).update(kinds=kinds, declared=known.keys(), without=tuple(without))
        return call

    return decorate


def _by_name(constructor: Callable, args: tuple, kwargs: dict[str, Any], n: int, who: str) -> tuple[tuple, dict[str, Any]]:
    """Return the arguments of a constructor, with those given by position, after the first `n`, turned into keyword arguments."""
    parameters = inspect.signature(constructor).parameters.values()
    names = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    named = dict(zip(names[n:], args[n:]))
    if len(named) < len(args) - n:
        others = ", ".join(f"{p.name}=" for p in parameters if p.kind is p.KEYWORD_ONLY)
        by_position = f"only {plural(len(names) - 1, 'argument')} ({', '.join(names[1:])})" if names[1:] else "no arguments"
        raise TypeError(f"{who} takes {by_position} by position." + (f" Give the others by name: {others}." if others else ""))
    if named.keys() & kwargs.keys():
        inspect.signature(constructor).bind(*args, **kwargs)  # Raises an error that says what is wrong.
    return args[:n], {**named, **kwargs}


def complete_signature(cls: type) -> None:
    """Give a class, and its constructor if it is `checked`, a signature that includes all arguments of its bases.

    Settings that the constructor does not declare get the kind that a base declares.
    """
    constructor = inspect.unwrap(_constructor(cls))
    own = list(inspect.signature(constructor).parameters.values())[1:] if inspect.isfunction(constructor) else []
    collected = [p for p in own if p.kind is p.VAR_KEYWORD]
    parameters = _in_order(arguments_of(cls).values()) if collected else own
    if collected and not _hands_on(cls.__mro__):  # The constructor may take further arguments.
        parameters = [p for p in parameters if p.kind is not p.VAR_KEYWORD] + collected
    if "__signature__" not in vars(cls):
        type.__setattr__(cls, "__signature__", inspect.Signature(parameters))
    init: Any = vars(cls).get("__init__")
    if not _is_checked(init):
        return
    written = inspect.signature(init.__wrapped__)
    init.__signature__ = written.replace(parameters=[*list(written.parameters.values())[:1], *parameters])
    inherited = {name: kind for base in reversed(cls.__mro__[1:]) for name, kind in _declared_in(base).items()}
    for name in (written.parameters.keys() & inherited.keys()) - init.declared:
        init.kinds[name] = _kind(written.parameters[name], inherited[name])


def _in_order(arguments: Iterable[inspect.Parameter]) -> list[inspect.Parameter]:
    """Return arguments in an order that a signature allows.

    All are keyword-only from the first keyword-only one, or from the first required one after a default.
    """
    positional, named, has_default = [], [], False
    for p in arguments:
        if p.kind is p.VAR_KEYWORD:
            named.append(p)
        elif named or p.kind is p.KEYWORD_ONLY or (has_default and p.default is p.empty):
            named.append(p.replace(kind=p.KEYWORD_ONLY))
        else:
            positional.append(p)
            has_default = p.default is not p.empty
    return positional + sorted(named, key=lambda p: p.kind)


def _declared_in(cls: type) -> dict[str, Any]:
    """Return the kinds that the constructor of a class declares, without those from annotations."""
    init: Any = vars(cls).get("__init__")
    return {name: kind for name, kind in init.kinds.items() if name in init.declared} if _is_checked(init) else {}


def _is_checked(function: Any) -> bool:
    return inspect.isfunction(function) and "kinds" in vars(function)


def _constructor(cls: type) -> Callable[..., None]:
    """Return `__init__` of a class."""
    init: Callable[..., None] = inspect.getattr_static(cls, "__init__")
    return init


def check_names(function: Callable, owner: Any, kwargs: Collection[str]) -> None:
    """Raise TypeError, with the nearest name, if a name in `kwargs` is no argument of the function.

    Args:
        owner: the method's object, or the constructor's class; None for other functions.
    """
    function = inspect.unwrap(function) if _is_checked(function) else function
    try:
        parameters = written_arguments(function)
    except (TypeError, ValueError):
        return
    if all(name in parameters and name != "self" and parameters[name].kind not in _COLLECTED for name in kwargs):
        return  # Own names are enough: looking at the bases takes longer.
    if _has_kwargs(parameters.values()):
        classes = owner.__mro__ if isinstance(owner, type) else _from_constructor(function, type(owner))
        if not _hands_on(classes):
            return
        parameters = arguments_along(classes)
    unknown = [name for name in kwargs if name not in parameters]
    if not unknown:
        return
    own = [name for name, p in parameters.items() if name != "self" and p.kind not in _COLLECTED]
    if function.__name__ != "__init__" or owner is None:
        raise TypeError(f"{_who(function, owner)} has no argument {unknown[0]!r}. {did_you_mean(unknown[0], own)}")
    cls = owner if isinstance(owner, type) else type(owner)
    known = [name for name, p in arguments_of(cls).items() if p.kind not in _COLLECTED]
    if unknown[0] in known:  # A subclass passes on a setting that its base does not have.
        cls = next((base for base in cls.__mro__ if inspect.unwrap(_constructor(base)) is function), cls)
        known = own
    raise TypeError(f"{cls.__name__} has no setting {unknown[0]!r}. {which_setting(unknown[0], known)}")


def _from_constructor(function: Callable, cls: type) -> tuple[type, ...]:
    """Return the classes of an MRO from the one whose constructor is this function on; none if no class has it."""
    for i, base in enumerate(cls.__mro__):
        init: Any = vars(base).get("__init__")
        if _is_checked(init) and inspect.unwrap(init) is function:
            return cls.__mro__[i:]
    return ()


def check_values(who: str, given: Mapping[str, Any], kinds: Mapping[str, Any], owner: Any = None, defaults: Mapping = {}) -> dict[str, Any]:
    """Check values by name; return those that must be stored in another form.

    Args:
        who: first word of the error.
        given: the values by name; only names in `kinds` are checked.
        kinds: the kind of each value by name.
        owner: object whose arguments they are.
        defaults: values of arguments that were not given.

    Raises:
        ValueError: see `checked`.
    """
    changed = {}
    for name, kind in kinds.items():
        if name not in given:
            continue
        value = given[name]
        if not kind.allows(value):
            hint = kind.hint(value) if isinstance(kind, Kind) else ""
            raise ValueError(" ".join([f"{who}: {name}={shown(value)} is not possible; it must be {kind}.", hint]).rstrip())
        if isinstance(kind, ArgumentsFor):
            kind.check_keys(who, name, value, {**defaults, **given, **attributes(owner)}, owner)
        stored = kind.stored(value)
        if stored is not value:
            changed[name] = stored
    return changed


def declared_by(cls: type) -> dict[str, Any]:
    """Return the kinds of a class's settings that its constructor and its bases' constructors declare."""
    kinds: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        kinds.update(getattr(vars(base).get("__init__"), "kinds", {}))
    return kinds


def check_attributes(owner: Any, kinds: Mapping[str, Any]) -> None:
    """Check the existing attributes of an object by `check_values`, and convert whole numbers to int."""
    given = {name: getattr(owner, name) for name in kinds if hasattr(owner, name)}
    for name, value in check_values(type(owner).__name__, given, kinds, owner).items():
        setattr(owner, name, value)


@contextmanager
def naming(owner: Any, name: str, *errors: type[Exception]) -> Iterator[None]:
    """Context that adds the name of an argument of `owner` to each ValueError, TypeError and error of the given classes."""
    named: tuple[type[Exception], ...] = (ValueError, TypeError, *errors)
    try:
        yield
    except named as error:
        cls = TypeError if isinstance(error, TypeError) else ValueError
        raise cls(f"{type(owner).__name__}: {name} is not possible: {error}") from error


def shown(value: Any) -> str:
    """Return a value as errors show it."""
    return f"{value!r:.100}"


def _kind(parameter: inspect.Parameter, declared: Any) -> Any:
    """Return the kind of an argument, as declared or else by its annotation; None if neither gives one."""
    annotation = parameter.annotation
    if parameter.kind in _COLLECTED or (annotation is parameter.empty and declared is None):
        return None
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    if declared is None and text.removeprefix("collections.abc.").removesuffix(" | None") == _OF_SIZES:
        declared = SIZES
    while "[" in text:
        text, n = re.subn(r"\[[^\[\]]*\]", "", text)
        if not n:
            break
    parts = {part.rpartition(".")[2] for part in text.split(" | ")}
    kind: Any = BY_ANNOTATION.get(" | ".join(sorted(parts - {"None"}))) if declared is None else declared
    return kind._replace(optional=True) if kind is not None and "None" in parts else kind


def _who(function: Callable, owner: Any) -> str:
    if owner is None:
        return f"{function.__name__}()"
    return type(owner).__name__ if function.__name__ == "__init__" else f"{type(owner).__name__}.{function.__name__}()"
