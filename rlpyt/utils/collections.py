"""Structures of arrays that index like one array.

A *namedarraytuple* is a namedtuple whose ``[]`` reads and writes apply to every field. One expression slices, fills or passes on a whole
structure of ``[T,B]`` arrays::

    samples[:, 3]                      # column 3 of every array inside
    buffer[t] = AgentStep(action, agent_info)

Types made here pickle under fork, spawn and forkserver, wherever they were made: by reference if the defining module holds them
under their name, otherwise by their recipe (type name and fields).
"""

from __future__ import annotations

import copyreg
import functools
import importlib
import pickle
import sys
from collections import namedtuple
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from typing import Any

RESERVED_NAMES = ("get", "items")


# ---------------------------------------------------------------------------------------------------------------------
# Fields with defaults
# ---------------------------------------------------------------------------------------------------------------------
class Fields(tuple):
    """Names of fields, in order, with the default values of some of them.

    `Fields` equal the plain tuple of the names. If a program extends a type, ``X._fields + ("mine",)``, the defaults stay with their
    fields. A type made of this sum needs values only for the fields without a default, so the program need not know the others.

    Args:
        names: names of all fields.
        defaults: values by name.

    Attributes:
        defaults: as above.
    """

    defaults: dict[str, Any]

    def __new__(cls, names: Iterable[str], defaults: Mapping[str, Any] | Iterable = ()) -> Fields:
        self = super().__new__(cls, names)
        self.defaults = dict(defaults)
        return self

    def __add__(self, other: tuple) -> Fields:
        if not isinstance(other, tuple):
            return NotImplemented
        return Fields(tuple.__add__(self, other), {**self.defaults, **_defaults_of(other)})

    def __radd__(self, other: tuple) -> Fields:
        if not isinstance(other, tuple):
            return NotImplemented
        return Fields(tuple.__add__(other, self), self.defaults)


def _defaults_of(fields: Any) -> dict[str, Any]:
    return fields.defaults if isinstance(fields, Fields) else {}


def _placed(typename: str, fields: Fields, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
    """Return the arguments of a constructor such that every field without a default gets a value.

    Arguments belong to the fields in order. If this leaves a required field without a value, but there are exactly as many arguments as
    required fields, the arguments belong to these: the calling code does not know the fields with a default.

    Raises:
        TypeError: a required field gets no value.
    """
    needed = [name for name in fields if name not in fields.defaults]
    given = fields[: len(args)]
    missing = [name for name in needed if name not in given and name not in kwargs]
    if not missing:
        return args, kwargs
    needed = [name for name in needed if name not in kwargs]
    if len(args) != len(needed):
        raise TypeError(f"{typename} is missing a value for {', '.join(map(repr, missing))}.")
    return (), {**dict(zip(needed, args)), **kwargs}


class _Gap(Enum):
    """Placeholder in the default values of a recipe for a field without a default."""

    REQUIRED = "REQUIRED"


def _last_defaults(fields: tuple[str, ...], defaults: Mapping[str, Any]) -> tuple | None:
    """Return the default values of the last fields, from the first one with a default on; None if no field has one."""
    first = next((i for i, name in enumerate(fields) if name in defaults), None)
    return None if first is None else tuple(defaults.get(name, _Gap.REQUIRED) for name in fields[first:])


def _namedtuple(typename: str, fields: tuple[str, ...], defaults: tuple | None, module: str | None = None) -> type:
    """Make a namedtuple type in which fields without a default may follow fields with one."""
    make: Any = namedtuple
    cls = make(typename, fields, defaults=defaults, module=module)
    if not any(value is _Gap.REQUIRED for value in cls._field_defaults.values()):
        return cls
    cls._field_defaults = {name: value for name, value in cls._field_defaults.items() if value is not _Gap.REQUIRED}
    known, new = Fields(fields, cls._field_defaults), cls.__new__

    def __new__(_cls: type, *args: Any, **kwargs: Any) -> Any:
        args, kwargs = _placed(typename, known, args, kwargs)
        return new(_cls, *args, **kwargs)

    cls.__new__ = staticmethod(__new__)
    return cls


# ---------------------------------------------------------------------------------------------------------------------
# Types that pickle wherever they were made
# ---------------------------------------------------------------------------------------------------------------------
class _RecipeType(type):
    """Metaclass of tuple types that can be rebuilt from ``(kind, typename, fields, defaults)``.

    The defaults are those of the last fields, as in `collections.namedtuple`, with `_Gap.REQUIRED` for a field without one.
    """

    _fields: tuple[str, ...]
    _recipe: tuple


class _NamedArrayTupleType(_RecipeType):
    """Metaclass of all namedarraytuple types, by which `is_namedarraytuple_class` knows them."""


def _find_global(module: str, qualname: str) -> Any:
    try:
        found = sys.modules.get(module) or importlib.import_module(module)
        for name in qualname.split("."):
            found = getattr(found, name)
        return found
    except Exception:  # Any failure of an import means that the type is not reachable by name.
        return None


def _restore_type(module: str, qualname: str, recipe: tuple) -> type:
    """Unpickle a type: the one its module holds, or else one made from the recipe."""
    cls = _find_global(module, qualname)
    return cls if isinstance(cls, _RecipeType) and cls._fields == recipe[2] else _type_from_recipe(*recipe)


def _reduce_type(cls: _RecipeType) -> str | tuple:
    if "_recipe" not in cls.__dict__:  # A subclass that adds methods: only its module knows those.
        return cls.__qualname__
    return _restore_type, (cls.__module__, cls.__qualname__, cls._recipe)


copyreg.pickle(_RecipeType, _reduce_type)
copyreg.pickle(_NamedArrayTupleType, _reduce_type)


def _type_from_recipe(kind: str, typename: str, fields: tuple[str, ...], defaults: tuple | None) -> type:
    return _type_of(kind, typename, fields, None if defaults is None else pickle.dumps(defaults))


@functools.cache
def _type_of(kind: str, typename: str, fields: tuple[str, ...], pickled: bytes | None) -> type:
    # Pickled defaults can be compared: a list has no hash, arrays are compared by element, and 0 is equal to False.
    defaults = None if pickled is None else pickle.loads(pickled)
    if kind == "namedtuple":
        cls = _RecipeType(typename, (_namedtuple(typename, fields, defaults),), {"__slots__": ()})
        cls._recipe = (kind, typename, fields, defaults)
        return cls
    return _make_nat_class(typename, fields, defaults)


def dynamic_namedtuple(typename: str, field_names: str | Iterable[str]) -> type:
    """Return a namedtuple type for structures only known at run time (e.g. the keys of an info dictionary).

    The same name and fields give the same type, and both the type and its instances pickle without being a module's global.
    """
    return _type_from_recipe("namedtuple", typename, _split_fields(field_names), None)


def tuple_itemgetter(i: int) -> Callable[[tuple], Any]:
    """Return a function that gets item `i` by the indexing of plain tuples, even if a subclass overrides indexing."""
    return lambda obj: tuple.__getitem__(obj, i)


# ---------------------------------------------------------------------------------------------------------------------
# namedarraytuple
# ---------------------------------------------------------------------------------------------------------------------
def _split_fields(field_names: str | Iterable[str]) -> tuple[str, ...]:
    if isinstance(field_names, str):
        field_names = field_names.replace(",", " ").split()
    return tuple(str(name) for name in field_names)


def _indexing_methods(n_fields: int) -> dict[str, Any]:
    """Compile ``__getitem__`` and ``__setitem__`` for `n_fields` fields.

    Indexing is the framework's inner loop; with the loop over the fields unrolled it costs little more than the array operations.
    """
    mine = [f"s{i}" for i in range(n_fields)]
    theirs = [f"v{i}" for i in range(n_fields)]
    unpack_mine = f"{', '.join(mine)}, = self" if mine else "pass"
    unpack_theirs = f"{', '.join(theirs)}, = value" if theirs else "pass"
    read = "".join(f"None if {s} is None else {s}[loc], " for s in mine)
    write = [
        line
        for s, v in zip(mine, theirs)
        for line in (f"if {v} is not None: {s}[loc] = {v}", f"elif {s} is not None: write_none({s}, loc)")
    ] or ["pass"]
    broadcast = [f"if {s} is not None: {s}[loc] = value" for s in mine] or ["pass"]
    source = "\n".join(
        [
            "def __getitem__(self, loc):",
            '    """Return a new instance holding the selected index or slice of each field."""',
            "    try:",
            f"        {unpack_mine}",
            f"        return tuple_new(type(self), ({read}))",
            "    except Exception as error:",
            "        explain_read(self, loc, error)",
            "        raise",
            "",
            "def __setitem__(self, loc, value):",
            '    """Write `value` at `loc`: field by field if it has the same fields, otherwise the whole of it into each field."""',
            "    try:",
            f"        {unpack_mine}",
            "        if isinstance(value, tuple) and getattr(value, '_fields', None) == self._fields:",
            f"            {unpack_theirs}",
            *(f"            {line}" for line in write),
            "        else:",
            *(f"            {line}" for line in broadcast),
            "    except Exception as error:",
            "        explain_write(self, loc, value, error)",
            "        raise",
        ]
    )
    namespace = {"tuple_new": tuple.__new__, "write_none": _write_none, "explain_read": _explain_read, "explain_write": _explain_write}
    exec(source, namespace)
    return {name: namespace[name] for name in ("__getitem__", "__setitem__")}


def _write_none(field: Any, loc: Any) -> None:
    """Write None into an array of objects; raise TypeError for any other field. An array of floats would take None for NaN."""
    try:
        takes_none = field.dtype == object
    except AttributeError:  # It is no array.
        takes_none = False
    if not takes_none:
        raise TypeError("the value is None, but the field is not")
    field[loc] = None


def _explain_read(nat: Any, loc: Any, error: Exception) -> None:
    """Raise `error` again with a message that names the class and the field that could not be read."""
    for name, field in zip(nat._fields, tuple(nat)):
        try:
            None if field is None else field[loc]
        except Exception as e:
            raise _described(e, f"Reading [{loc!r}] of field '{name}' of {_typename(nat)} failed: {e}") from error


def _explain_write(nat: Any, loc: Any, value: Any, error: Exception) -> None:
    """Raise `error` again with a message that names the class and the field that could not be written."""
    same = isinstance(value, tuple) and fields_of(value) == nat._fields
    for i, (name, field) in enumerate(zip(nat._fields, tuple(nat))):
        part = tuple.__getitem__(value, i) if same else (None if field is None else value)
        if field is None and part is None:
            continue
        try:
            if same and part is None:
                _write_none(field, loc)
            else:
                field[loc] = part
        except Exception as e:
            raise _described(e, f"Writing at [{loc!r}] of field '{name}' of {_typename(nat)} failed: {e}") from error


def _described(error: Exception, message: str) -> Exception:
    try:
        return type(error)(message)
    except Exception:  # An exception class with its own signature.
        return ValueError(message)


def _typename(nat: Any) -> str:
    return nat._typename if isinstance(nat, NamedTuple) else type(nat).__name__


class _NamedArrayTupleMethods:
    """The methods of a namedarraytuple other than indexing."""

    __slots__ = ()
    _fields: tuple[str, ...]

    def __contains__(self, key: Any) -> bool:
        """Return whether a *field* is called `key` (like a dictionary, unlike a tuple)."""
        return key in self._fields

    def get(self: Any, index: int | slice) -> Any:
        """Return a field by position: the indexing of a regular tuple."""
        return tuple.__getitem__(self, index)

    def items(self: Any) -> Iterator[tuple[str, Any]]:
        """Iterate over ``(field name, value)`` pairs."""
        return zip(self._fields, self)


def _make_nat_class(
    typename: str, fields: tuple[str, ...], defaults: tuple | None, nt_cls: Any = None, nat_name: str | None = None
) -> type:
    reserved = [name for name in fields if name in RESERVED_NAMES]
    if reserved:
        raise ValueError(f"Field names {reserved} are methods of a namedarraytuple; choose other names.")
    nt_cls = nt_cls or _namedtuple(typename, fields, defaults)
    methods = {name: getattr(_NamedArrayTupleMethods, name) for name in ("__contains__", "get", "items")}
    namespace = {"__slots__": (), "_recipe": ("namedarraytuple", typename, fields, defaults)}
    if defaults:
        namespace["_fields"] = Fields(fields, nt_cls._field_defaults)
    cls = _NamedArrayTupleType(nat_name or typename, (nt_cls,), {**namespace, **methods, **_indexing_methods(len(fields))})
    cls.__doc__ = f"{typename}({', '.join(fields)}): a namedarraytuple; [] reads and writes every field."
    return cls


def namedarraytuple(
    typename: str,
    field_names: str | Iterable[str],
    return_namedtuple_cls: bool = False,
    classname_suffix: bool = False,
    defaults: tuple | None = None,
) -> Any:
    """Return a new subclass of a namedtuple whose indexing applies to all fields.

    Reading ``x[loc]`` returns the same type with every field indexed (None stays None). Writing ``x[loc] = value`` assigns field by
    field if `value` is a tuple with the same field names, otherwise the whole of `value` into every field; fields that are None on
    both sides are skipped. Iteration, unpacking and ``len`` stay those of a tuple; ``in`` looks for a field name; ``get(i)`` is plain tuple
    indexing.

    Args:
        typename: name of the type.
        field_names: list of names, or one string separated by spaces or commas. ``get`` and ``items`` are reserved. Names from
            the `_fields` of a namedarraytuple, ``X._fields + ("mine",)``, keep their defaults.
        return_namedtuple_cls: also return the plain namedtuple type, as ``(namedarraytuple, namedtuple)``.
        classname_suffix: append ``_nat`` and ``_nt`` to the type names.
        defaults: default values of the last fields, as in `collections.namedtuple`.
    """
    fields = _split_fields(field_names)
    defaults = _last_defaults(fields, {**_defaults_of(field_names), **_by_name(fields, tuple(defaults or ()))})
    nt_name, nat_name = (f"{typename}_nt", f"{typename}_nat") if classname_suffix else (typename, typename)
    module = sys._getframe(1).f_globals.get("__name__", "__main__")
    nt_cls = _namedtuple(nt_name, fields, defaults, module)
    nat_cls = _make_nat_class(typename, fields, defaults, nt_cls, nat_name)
    nat_cls.__module__ = module
    return (nat_cls, nt_cls) if return_namedtuple_cls else nat_cls


def _by_name(fields: tuple[str, ...], defaults: tuple) -> dict[str, Any]:
    """Return the default values of the last fields by name."""
    if len(defaults) > len(fields):
        raise TypeError(f"{len(defaults)} default values are more than the {len(fields)} fields {list(fields)}.")
    return dict(zip(fields[len(fields) - len(defaults) :], defaults))


DocExampleNat = namedarraytuple("DocExampleNat", ["field_1", "field_2"])


def fields_of(value: Any) -> tuple[str, ...] | None:
    """Return the field names of a namedtuple of any kind, or of its class; None for other values."""
    return getattr(value, "_fields", None)


def field_of(value: Any, name: str, default: Any = None) -> Any:
    """Return a field of a namedtuple of any kind, or `default` if its type lacks the field; `value` may be None, without fields."""
    return getattr(value, name, default)


def remade(structure: Any, parts: Iterable) -> Any:
    """Return `parts` as a tuple: as a namedtuple of the type of `structure`, if that is a namedtuple of any kind."""
    return structure._make(parts) if hasattr(structure, "_make") else tuple(parts)


def is_namedtuple_class(obj: Any) -> bool:
    """Return whether `obj` is a namedtuple type, and not a namedarraytuple type."""
    return isinstance(obj, type) and issubclass(obj, tuple) and fields_of(obj) is not None and not is_namedarraytuple_class(obj)


def is_namedarraytuple_class(obj: Any) -> bool:
    """Return whether `obj` is a namedarraytuple type."""
    return isinstance(obj, _NamedArrayTupleType)


def is_namedtuple(obj: Any) -> bool:
    """Return whether `obj` is an instance of a namedtuple, and not of a namedarraytuple."""
    return is_namedtuple_class(type(obj))


def is_namedarraytuple(obj: Any) -> bool:
    """Return whether `obj` is an instance of a namedarraytuple."""
    return is_namedarraytuple_class(type(obj))


def namedarraytuple_like(namedtuple_or_class: Any, classname_suffix: bool = False) -> Any:
    """Return the namedarraytuple type with the name and fields of a namedtuple or namedarraytuple (instance or class).

    For a namedarraytuple this is its own type, for instances of the schema classes a `NamedArrayTupleSchema`.
    """
    ntc = namedtuple_or_class
    if isinstance(ntc, NamedArrayTupleSchema):
        return ntc
    if isinstance(ntc, (NamedTupleSchema, NamedTuple)):
        return NamedArrayTupleSchema_like(ntc)
    cls: Any = ntc if isinstance(ntc, type) else type(ntc)
    if is_namedarraytuple_class(cls):
        return cls
    if not is_namedtuple_class(cls):
        raise TypeError(f"Expected a namedtuple or namedarraytuple, or one of their classes, got {ntc!r}.")
    name = f"{cls.__name__}_nat" if classname_suffix else cls.__name__
    return _type_from_recipe("namedarraytuple", name, cls._fields, None)


# ---------------------------------------------------------------------------------------------------------------------
# Namedtuples without a class per type
# ---------------------------------------------------------------------------------------------------------------------
class NamedTupleSchema:
    """A namedtuple "type" that is an object: callable like a type, and picklable without being a module's global.

    Args:
        typename: name shown by ``repr``.
        fields: names as a list or in one string, separated by spaces or by commas but not both; valid identifiers that do not
            start with an underscore, are not repeated, and are not ``index`` or ``count``.
    """

    _typename: str
    _fields: Fields

    def __init__(self, typename: str, fields: str | Iterable[str]) -> None:
        if not isinstance(typename, str):
            raise TypeError(f"The type name must be a string, got {type(typename).__name__}.")
        if isinstance(fields, str):
            if "," in fields and " " in fields.replace(", ", ",").strip():
                raise ValueError(f"Separate field names by spaces or by commas, not both: {fields!r}.")
            fields = fields.replace(",", " ").split()
        fields = Fields(fields, _defaults_of(fields))
        for name in fields:
            if not isinstance(name, str) or not name.isidentifier():
                raise ValueError(f"Field names must be valid identifiers, got {name!r}.")
            if name.startswith("_") or name in ("index", "count"):
                raise ValueError(f"Field name {name!r} starts with an underscore or is a method of tuples; choose another.")
        if len(set(fields)) != len(fields):
            raise ValueError(f"Field names must not repeat, got {list(fields)}.")
        self.__dict__.update(_typename=typename, _fields=fields)

    def __call__(self, *args: Any, **kwargs: Any) -> NamedTuple:
        if len(args) > len(self._fields):
            raise TypeError(f"{self._typename} takes {len(self._fields)} values, got {len(args)}.")
        args, kwargs = _placed(self._typename, self._fields, args, kwargs)
        defaults = self._fields.defaults
        values = [*args, *(kwargs.pop(name) if name in kwargs else defaults[name] for name in self._fields[len(args) :])]
        if kwargs:
            raise TypeError(f"{self._typename} got unexpected or repeated fields {sorted(kwargs)}.")
        return self._make(values)

    def _make(self, iterable: Iterable) -> NamedTuple:
        """Return an instance whose fields are the items of `iterable`."""
        return NamedTuple(self._typename, self._fields, iterable)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{type(self).__name__} cannot be changed after it was made (tried to set {name!r}).")

    def __eq__(self, other: Any) -> bool:
        return type(self) is type(other) and self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        return hash((type(self), self._typename, self._fields))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._typename!r}, {list(self._fields)!r})"


class NamedTuple(tuple):
    """An instance made by a `NamedTupleSchema`: like a namedtuple, but the object holds type name and fields."""

    def __new__(cls, typename: str, fields: Iterable[str], values: Iterable) -> NamedTuple:
        self = tuple.__new__(cls, values)
        fields = fields if isinstance(fields, tuple) else tuple(fields)
        if len(fields) != len(self):
            raise TypeError(f"{typename} takes {len(fields)} values, got {len(self)}.")
        self.__dict__.update(_typename=typename, _fields=fields)
        return self

    def __getattr__(self, name: str) -> Any:
        try:
            return tuple.__getitem__(self, self.__dict__["_fields"].index(name))
        except (KeyError, ValueError):
            raise AttributeError(f"{self.__dict__.get('_typename', 'NamedTuple')} has no field {name!r}.") from None

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{self._typename} cannot be changed; use _replace({name}=...) to make a changed copy.")

    def _make(self, iterable: Iterable) -> Any:
        """Return an object with the same type name and fields from the items of `iterable`."""
        return type(self)(self._typename, self._fields, iterable)

    def _replace(self, **kwargs: Any) -> NamedTuple:
        """Return a copy with some fields replaced."""
        made = self._make(kwargs.pop(name, value) for name, value in zip(self._fields, self))
        if kwargs:
            raise ValueError(f"{self._typename} has no fields {sorted(kwargs)}.")
        return made

    def _asdict(self) -> dict[str, Any]:
        """Return a dictionary of field names and values, in order."""
        return dict(zip(self._fields, self))

    def __getnewargs__(self) -> tuple:
        return self._typename, self._fields, tuple(self)

    def __getstate__(self) -> None:
        return None  # __getnewargs__ has the whole state.

    def __repr__(self) -> str:
        return f"{self._typename}({', '.join(f'{name}={value!r}' for name, value in zip(self._fields, self))})"


class NamedArrayTupleSchema(NamedTupleSchema):
    """A `NamedTupleSchema` whose instances index all their fields, like a namedarraytuple."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        reserved = [name for name in self._fields if name in RESERVED_NAMES]
        if reserved:
            raise ValueError(f"Field names {reserved} are methods of a namedarraytuple; choose other names.")

    def _make(self, iterable: Iterable) -> NamedArrayTuple:
        """Return an instance whose fields are the items of `iterable`."""
        return NamedArrayTuple(self._typename, self._fields, iterable)


class NamedArrayTuple(NamedTuple):
    """An instance made by a `NamedArrayTupleSchema`, with the indexing of a `namedarraytuple`."""

    def __getitem__(self, loc: Any) -> NamedArrayTuple:
        """Return a new instance holding the selected index or slice of each field."""
        try:
            return self._make(None if field is None else field[loc] for field in self)
        except Exception as error:
            _explain_read(self, loc, error)
            raise

    def __setitem__(self, loc: Any, value: Any) -> None:
        """Write `value` at `loc`: field by field if it has the same fields, otherwise the whole of it into each field."""
        same = isinstance(value, tuple) and fields_of(value) == self._fields
        try:
            for field, part in zip(self, value if same else (None if field is None else value for field in self)):
                if part is not None:
                    field[loc] = part
                elif same and field is not None:
                    _write_none(field, loc)
        except Exception as error:
            _explain_write(self, loc, value, error)
            raise

    __contains__ = _NamedArrayTupleMethods.__contains__
    get = _NamedArrayTupleMethods.get
    items = _NamedArrayTupleMethods.items


def NamedArrayTupleSchema_like(example: Any) -> NamedArrayTupleSchema:
    """Return a `NamedArrayTupleSchema` with the name and fields of `example`: a class or instance of a namedtuple or
    namedarraytuple, or an instance of one of the schema classes."""
    if isinstance(example, NamedArrayTupleSchema):
        return example
    if isinstance(example, (NamedTupleSchema, NamedTuple)):
        return NamedArrayTupleSchema(example._typename, example._fields)
    cls: Any = example if isinstance(example, type) else type(example)
    if is_namedtuple_class(cls) or is_namedarraytuple_class(cls):
        return NamedArrayTupleSchema(cls.__name__, cls._fields)
    raise TypeError(f"Expected a namedtuple, a namedarraytuple, a schema, or an instance of one, got {example!r}.")


# ---------------------------------------------------------------------------------------------------------------------
# AttrDict
# ---------------------------------------------------------------------------------------------------------------------
class AttrDict(dict):
    """A dictionary whose keys are also attributes: ``x["key"]`` and ``x.key`` are the same."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.__dict__ = self

    def copy(self) -> AttrDict:
        """Return a copy that is deep along unbroken chains of AttrDicts and shallow elsewhere (arrays are not copied)."""
        copied = type(self).__new__(type(self))
        AttrDict.__init__(copied, {key: value.copy() if isinstance(value, AttrDict) else value for key, value in self.items()})
        return copied

    def __reduce__(self) -> tuple:
        return _restore_attrdict, (type(self), dict(self))


def _restore_attrdict(cls: type[AttrDict], content: dict) -> AttrDict:
    restored = cls.__new__(cls)
    AttrDict.__init__(restored, content)
    return restored
