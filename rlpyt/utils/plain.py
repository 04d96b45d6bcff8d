"""Objects as plain data for checkpoints, and back, without loss.

`torch.load(..., weights_only=True)` reads Python's numbers, strings, bytes (if there are any) and containers. Numpy's arrays, scalars and
generators are written as tagged tuples of these. So each comes back with its own type, and workers without an agent need no torch.

Reading plain data never runs code from the file: kinds and generators are looked up in tables, and anything else raises a ValueError that
says where it is.
"""

from __future__ import annotations

import json
import math
import random
import re
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.array_utils import byte_bounds

NATURAL = "a whole number from 0 on"  # A form, see `check_form`.
DEEPEST = 100  # levels of nested containers
_PLAIN = (bool, int, float, str, bytes, type(None))
_CONTAINERS = (list, dict, OrderedDict, set, frozenset, deque)
_BIT_GENERATORS = {
    cls.__name__: cls for cls in (np.random.PCG64, np.random.PCG64DXSM, np.random.MT19937, np.random.Philox, np.random.SFC64)
}
# What changes, so that it matters whether two of these are one object.
_SHARED = (np.ndarray, list, dict, OrderedDict, set, deque, np.random.Generator, np.random.RandomState, random.Random)
_HARDEST = 10_000  # solutions to try, to find out whether two arrays share memory
_LARGEST_ROOT = 2**24  # bytes of an array that is saved only because parts of it are
_NO_BYTES = ""  # What stands for b"" in plain data. `torch.load` refuses b"", because pickle writes it as a call of `bytes`.
_DTYPE = re.compile(r"[<>|]([biufc][0-9]{1,2}|[SU][0-9]{1,9})")
_MOST_DIMENSIONS = 32  # of arrays, in all versions of numpy
_HIGHEST_CHARACTER = 0x10FFFF
_MT19937_WORDS = 624
_HIGHEST_NUMBER = 2**128 - 1
# The highest values of other numbers in the states of generators. Numpy checks none, and uses some of them as indexes into memory.
_HIGHEST = dict(pos=_MT19937_WORDS, buffer_pos=4, has_uint32=1, has_gauss=1, uinteger=2**32 - 1)


class NotPlain(TypeError):
    """An object cannot be written as plain data; the message says where it is."""


def to_plain(value: Any, name: str = "value", keep: tuple[type, ...] = ()) -> Any:
    """Return plain data that `from_plain` turns back into an equal object.

    An object that is in two places becomes two objects; with `Writer` it stays one. Takes numbers, strings, bytes and None; numpy's arrays,
    scalars and random generators; `random.Random`; and dicts, lists, tuples, deques and sets of these, nested up to `DEEPEST` levels.

    Args:
        value: the object.
        name: name of the object in messages.
        keep: further types that the file format can hold, such as tensors: their objects stay as they are.

    Raises:
        NotPlain: the object contains something else.
    """
    return _written(value, name, keep, 0)


class Writer:
    """Writes objects as plain data, as `to_plain` does. What they share, they still share after a `Reader` has read them in this order.

    They may share containers, generators, arrays and the memory of arrays, also with parts of each other.

    Args:
        values: all objects that will be written.
    """

    def __init__(self, values: Iterable[Any]) -> None:
        self._numbers: dict[int, int] = {}  # of the objects that may be shared, by their ids, in the order in which they are met
        self._unfinished: set[int] = set()
        self._kept = list(values)  # so that no id is used again
        self._views = _views_among({id(array): array for array in arrays_in(self._kept)})

    def write(self, value: Any, name: str) -> Any:
        """Return the plain data of one of the objects; NotPlain as in `to_plain`, or if what it shares cannot be written."""
        return _written(value, name, (), 0, self)

    def shared(self, value: Any, name: str, depth: int) -> tuple | None:
        """Return plain data that refers to an object written before, or to the memory of another one; None if there is none."""
        if id(value) in self._numbers:
            if id(value) in self._unfinished:
                raise NotPlain(f"{name} contains itself.")
            return ("same", self._numbers[id(value)])
        self._numbers[id(value)] = len(self._numbers)
        self._unfinished.add(id(value))
        view = self._views.get(id(value)) if isinstance(value, np.ndarray) else None
        if view is None:
            return None
        if view.of is None:
            raise NotPlain(f"{name} shares memory with another array, but is no part of it.")
        of = _written(view.of, f"the memory of {name}", (), depth + 1, self)
        self.finish(value)
        return ("view", [of, view.offset, list(value.shape), list(value.strides)])

    def finish(self, value: Any) -> None:
        """Note that an object has been written."""
        self._unfinished.discard(id(value))


class Reader:
    """Reads what a `Writer` wrote, in the same order."""

    def __init__(self) -> None:
        self._made: list[Any] = []

    def read(self, plain: Any, name: str) -> Any:
        """Return an object; ValueError as in `from_plain`."""
        return _read(plain, name, 0, self._made)


def arrays_apart(values: Iterable[Any]) -> set[int]:
    """Return the ids of the arrays, among objects and in their containers, that are there once and share memory with no other one."""
    counts: Counter = Counter()
    arrays: dict[int, np.ndarray] = {}
    for array in arrays_in(values):
        counts[id(array)] += 1
        arrays[id(array)] = array
    views = _views_in(arrays, is_exact=True)
    sharing = {*views, *(id(view.of) for view in views.values())}
    if any(view.of is None for view in views.values()):
        sharing = {*arrays}
    return {key for key, count in counts.items() if count == 1} - sharing


class _View(NamedTuple):
    """An array that is a part of another one, without gaps and of the same dtype, from a byte on; `of` is None if that cannot be told."""

    of: np.ndarray | None
    offset: int = 0


def arrays_in(values: Iterable[Any]) -> Iterator[np.ndarray]:
    """Yield the arrays among objects and in their containers."""
    stack, seen = [list(values)], set()
    while stack:
        for value in stack.pop():
            if isinstance(value, np.ndarray):
                yield value
            elif isinstance(value, (*_CONTAINERS, tuple)) and id(value) not in seen:
                seen.add(id(value))
                stack.append(list(value.values()) if isinstance(value, dict) else list(value))


def _views_among(arrays: Mapping[int, np.ndarray]) -> dict[int, _View]:
    """Return, by their ids, the arrays that share memory with earlier ones; those at lower addresses and larger ones are earlier.

    Each is a view of an earlier one that contains it. If there is none, both are views of the array that they are parts of.
    """
    views = _views_in(arrays, is_exact=False)
    roots = (_root_of(arrays[key]) for key, view in views.items() if view.of is None)
    all_arrays = {**arrays, **{id(root): root for root in roots if root.nbytes <= _LARGEST_ROOT}}
    return views if all(view.of is not None for view in views.values()) else _views_in(all_arrays, is_exact=True)


def _views_in(arrays: Mapping[int, np.ndarray], is_exact: bool) -> dict[int, _View]:
    """Return the views among arrays, `of` None where no array contains them.

    Unless `is_exact`, parts of one array whose addresses overlap count as sharing memory, also if they have no element in common.
    """
    bounds = {key: byte_bounds(array) for key, array in arrays.items() if array.size}
    views: dict[int, _View] = {}
    before: list[int] = []  # arrays whose memory ends behind the start of the next one
    for key in sorted(bounds, key=lambda key: (bounds[key][0], -bounds[key][1], not arrays[key].flags.c_contiguous)):
        array, (low, high) = arrays[key], bounds[key]
        before = [other for other in before if bounds[other][1] > low]
        address = array.__array_interface__["data"][0]
        for other in before:
            of, offset = arrays[other], address - bounds[other][0]
            if of.flags.c_contiguous and high <= bounds[other][1] and of.dtype == array.dtype:
                if not any(step % array.itemsize for step in (offset, *array.strides)):
                    views[key] = _View(of, offset)
                    break
        else:
            root = _root_of(array)
            if any((not is_exact and _root_of(arrays[other]) is root) or _share_memory(arrays[other], array) for other in before):
                views[key] = _View(None)
        before.append(key)
    return views


def _root_of(array: np.ndarray) -> np.ndarray:
    """Return the array that an array is a part of, or itself."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def _share_memory(a: np.ndarray, b: np.ndarray) -> bool:
    try:
        return np.shares_memory(a, b, max_work=_HARDEST)  # type: ignore[arg-type]  # Any number is possible.
    except np.exceptions.TooHardError:
        return True


def _written(value: Any, name: str, keep: tuple[type, ...], depth: int, writer: Writer | None = None) -> Any:
    if writer is None or not isinstance(value, _SHARED):
        return _content(value, name, keep, depth, writer)
    shared = writer.shared(value, name, depth)
    if shared is None:
        shared = _content(value, name, keep, depth, writer)
        writer.finish(value)
    return shared


def _content(value: Any, name: str, keep: tuple[type, ...], depth: int, writer: Writer | None) -> Any:
    if type(value) is bytes and not value:
        return ("bytes", _NO_BYTES)
    if type(value) in _PLAIN or isinstance(value, keep):
        return value
    if isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind in "biufcSU":
        memory = value.tobytes() or _NO_BYTES
        return ("array" if isinstance(value, np.ndarray) else "scalar", [value.dtype.str, list(value.shape), memory])
    if isinstance(value, np.random.Generator) and type(value.bit_generator).__name__ in _BIT_GENERATORS:
        return ("generator", generator_state(value))
    if isinstance(value, np.random.RandomState):
        return ("random_state", _written(value.get_state(), name, (), depth))
    if isinstance(value, random.Random):
        return ("random", json.dumps(value.getstate()))
    if depth == DEEPEST:
        raise NotPlain(f"{name} is more than {DEEPEST} containers deep.")
    if type(value) in (list, tuple, deque, set):
        items = [_written(item, f"{name}[{i}]", keep, depth + 1, writer) for i, item in enumerate(value)]
        return (type(value).__name__, items, value.maxlen) if isinstance(value, deque) else (type(value).__name__, items)
    if type(value) in (dict, OrderedDict):
        items = [
            (_written(key, f"a key of {name}", (), depth + 1), _written(item, f"{name}[{key!r}]", keep, depth + 1, writer))
            for key, item in value.items()
        ]
        return ("dict" if type(value) is dict else "ordered_dict", items)
    raise NotPlain(f"{name} is a {type(value).__module__}.{type(value).__qualname__}.")


def from_plain(plain: Any, name: str = "value") -> Any:
    """Invert `to_plain`.

    Args:
        plain: what `to_plain` returned, or untrusted data that claims to be.
        name: name of the data in messages.

    Raises:
        ValueError: it has another form; the message says where.
    """
    return _read(plain, name, 0)


def _read(plain: Any, name: str, depth: int, made: list | None = None) -> Any:
    """Read plain data. `made` are the objects that a `Reader` has made so far, those that may be shared, and None for unfinished ones."""
    if type(plain) is not tuple:
        if type(plain) in _CONTAINERS:
            raise ValueError(f"{name} is {shown(plain)}, and not its plain data, a tuple.")
        return plain
    kind, *content = plain or (None,)
    reader = _READERS.get(kind) if type(kind) is str else None
    if reader is None or len(content) != 1 + (kind == "deque"):
        raise ValueError(f"{name} is {shown(kind)} with {len(content)} parts, and not plain data: that is one of {', '.join(_READERS)}.")
    if depth > DEEPEST:
        raise ValueError(f"{name} is more than {DEEPEST} containers deep.")
    try:
        if made is None or kind not in _SHARED_KINDS:
            return reader(*content, name, depth, made)
        number = len(made)
        made.append(None)
        made[number] = reader(*content, name, depth, made)
        return made[number]
    except (TypeError, KeyError, OverflowError, RecursionError) as error:  # From checks that are left to numpy and json.
        raise ValueError(f"{name} is no {kind}: {error}") from error


def _read_bytes(content: Any, name: str, depth: int, made: list | None) -> bytes:
    if type(content) is not str or content != _NO_BYTES:
        raise ValueError(f"{name} is {shown(content)}, and not the text that stands for no bytes.")
    return b""


# --- Arrays -----------------------------------------------------------------------------------------------------------
def _read_array(content: Any, name: str, depth: int, made: list | None) -> np.ndarray:
    check_form(content, list, name)
    if len(content) != 3:
        raise ValueError(f"{name} has {len(content)} parts, and not the dtype, shape and bytes of an array.")
    text, shape, data = content
    data = b"" if type(data) is str and data == _NO_BYTES else data
    check_form(shape, [NATURAL], f"the shape of {name}")
    check_form(data, bytes, f"the memory of {name}")
    if not (isinstance(text, str) and _DTYPE.fullmatch(text) and np.dtype(text).str == text):
        raise ValueError(f"{name} has dtype {shown(text)}, which is not a dtype of numbers, bytes or characters.")
    dtype = np.dtype(text)
    if len(shape) > _MOST_DIMENSIONS or len(data) != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"{name} has {len(data)} bytes, which do not make up shape {shown(tuple(shape))} of {text}.")
    if dtype.kind == "b" and data.translate(None, b"\0\1"):
        raise ValueError(f"{name} has bytes that are neither True nor False.")
    if dtype.kind == "U" and data and np.frombuffer(data, f"{text[0]}u4").max() > _HIGHEST_CHARACTER:
        raise ValueError(f"{name} has characters that do not exist.")
    return np.ndarray(shape, dtype, data).copy()


def _read_scalar(content: Any, name: str, depth: int, made: list | None) -> Any:
    array = _read_array(content, name, depth, None)
    if array.shape != ():
        raise ValueError(f"{name} has shape {array.shape}, and not that of a single number.")
    return array[()]


# --- What is shared ---------------------------------------------------------------------------------------------------
def _read_same(number: Any, name: str, depth: int, made: list | None) -> Any:
    check_number(number, len(made or ()) - 1, f"the number of {name}")
    assert made is not None
    if made[number] is None:
        raise ValueError(f"{name} contains itself.")
    return made[number]


def _read_view(content: Any, name: str, depth: int, made: list | None) -> np.ndarray:
    check_form(content, list, name)
    if len(content) != 4:
        raise ValueError(f"{name} has {len(content)} parts, and not the memory, offset, shape and strides of an array.")
    of, offset, shape, strides = content
    of = _read(of, f"the memory of {name}", depth + 1, made)
    check_form(of, np.ndarray, f"the memory of {name}")
    check_form(shape, [NATURAL], f"the shape of {name}")
    check_form(strides, [int], f"the strides of {name}")
    check_number(offset, 2**62, f"the offset of {name}")
    spans = [step * (size - 1) for size, step in zip(shape, strides)]  # in Python's integers, because numpy's may overflow
    low, high = (offset + sum(end(span, 0) for span in spans) for end in (min, max))
    is_inside = 0 <= low and high + of.itemsize <= of.nbytes and of.flags.c_contiguous
    is_regular = len(shape) == len(strides) <= _MOST_DIMENSIONS and not any(step % of.itemsize for step in (offset, *strides))
    if not is_inside or not is_regular or 0 in shape:
        raise ValueError(f"{name} has offset {offset} and strides {strides}, which make up no array of shape {shape} in its memory.")
    return np.ndarray(shape, of.dtype, of, offset, strides)


# --- Random numbers ---------------------------------------------------------------------------------------------------
def generator_state(generator: np.random.Generator) -> str:
    """Return the state of a generator as a text, for `set_generator_state`."""
    return json.dumps(_with_lists(generator.bit_generator.state))


def set_generator_state(generator: np.random.Generator, text: Any, name: str = "rng") -> None:
    """Restore a state that `generator_state` returned for a generator of the same kind; ValueError for anything else."""
    try:
        state = _with_arrays(_json(text, name), generator.bit_generator.state, name)
        generator.bit_generator.state = state
    except (TypeError, KeyError, OverflowError) as error:
        raise ValueError(f"{name} is no state of a generator: {error}") from error


def set_legacy_state(generator: Any, state: Any, name: str) -> None:
    """Restore a state that ``get_state()`` of a RandomState, or of the module `numpy.random`, returned; ValueError for anything else."""
    if isinstance(state, tuple) and len(state) == 5:
        kind, key, pos, has_gauss, gauss = state
        state = dict(bit_generator=kind, state=dict(key=key, pos=pos), has_gauss=has_gauss, gauss=gauss)
    try:
        generator.set_state(_with_arrays(state, generator.get_state(legacy=False), name))
    except (TypeError, KeyError, OverflowError) as error:
        raise ValueError(f"{name} is no state of a generator: {error}") from error


def set_python_state(generator: Any, state: Any, name: str) -> None:
    """Restore a state that ``getstate()`` of a `random.Random`, or of the module `random`, returned; ValueError for anything else."""
    is_form = isinstance(state, (list, tuple)) and len(state) == 3 and state[0] == 3 and isinstance(state[1], (list, tuple))
    if not (is_form and len(state[1]) == _MT19937_WORDS + 1 and isinstance(state[2], (float, type(None)))):
        raise ValueError(f"{name} is {shown(state)}, and not the state of Python's random numbers.")
    for i, number in enumerate(state[1]):
        check_number(number, 2**32 - 1 if i < _MT19937_WORDS else _MT19937_WORDS, f"{name}[1][{i}]")
    generator.setstate((3, tuple(state[1]), state[2]))


def _read_generator(text: Any, name: str, depth: int, made: list | None) -> np.random.Generator:
    state = _json(text, name)
    check_form(state, dict(bit_generator=str), name)
    if state["bit_generator"] not in _BIT_GENERATORS:
        kind = shown(state["bit_generator"])
        raise ValueError(f"{name} is of the bit generator {kind}, which is none of {', '.join(_BIT_GENERATORS)}.")
    generator = np.random.Generator(_BIT_GENERATORS[state["bit_generator"]](0))
    set_generator_state(generator, text, name)
    return generator


def _read_random_state(content: Any, name: str, depth: int, made: list | None) -> np.random.RandomState:
    generator = np.random.RandomState(0)
    set_legacy_state(generator, _read(content, name, depth + 1), name)
    return generator


def _read_random(text: Any, name: str, depth: int, made: list | None) -> random.Random:
    generator = random.Random(0)
    set_python_state(generator, _json(text, name), name)
    return generator


def _with_lists(state: Any) -> Any:
    """Return a bit generator's state with arrays as lists, for JSON."""
    if isinstance(state, Mapping):
        return {key: _with_lists(value) for key, value in state.items()}
    return {"array": state.tolist(), "dtype": state.dtype.str} if isinstance(state, np.ndarray) else state


def _with_arrays(state: Any, like: Any, name: str, highest: int = _HIGHEST_NUMBER) -> Any:
    """Invert `_with_lists`; ValueError unless the result has the form of the state `like`."""
    if isinstance(like, np.ndarray):
        if isinstance(state, Mapping):
            check_form(state, dict(array=list, dtype=str), name)
            for i, number in enumerate(state["array"]):
                check_number(number, np.iinfo(like.dtype).max, f"{name}[{i}]")
            state = np.array(state["array"], like.dtype) if state["dtype"] == like.dtype.str else state
        if not isinstance(state, np.ndarray) or (state.dtype, state.shape) != (like.dtype, like.shape):
            raise ValueError(f"{name} is {shown(state)}, and not an array of {like.dtype} {list(like.shape)}.")
        return state
    if isinstance(like, Mapping):
        if not isinstance(state, Mapping) or state.keys() != like.keys():
            raise ValueError(f"{name} is {shown(state)}, and not a dictionary of {', '.join(like)}.")
        return {key: _with_arrays(state[key], value, f"{name}[{key!r}]", _HIGHEST.get(key, highest)) for key, value in like.items()}
    if isinstance(like, int):
        check_number(state, highest, name)
    elif type(state) is not type(like) or (isinstance(like, str) and state != like):
        raise ValueError(f"{name} is {shown(state)}, and not {'such as ' if isinstance(like, float) else ''}{like!r}.")
    return state


def _json(text: Any, name: str) -> Any:
    check_form(text, str, name)
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{name} is not readable as JSON: {error}") from error


# --- Containers -------------------------------------------------------------------------------------------------------
def _read_items(content: Any, name: str, depth: int, made: list | None) -> list:
    check_form(content, list, name)
    return [_read(item, f"{name}[{i}]", depth + 1, made) for i, item in enumerate(content)]


def _read_set(content: Any, name: str, depth: int, made: list | None) -> set:
    items = _read_items(content, name, depth, made)
    if len(set(items)) < len(items):
        raise ValueError(f"{name} is a set that has something twice.")
    return set(items)


def _read_deque(content: Any, maxlen: Any, name: str, depth: int, made: list | None) -> deque:
    items = _read_items(content, name, depth, made)
    if maxlen is not None:
        check_number(maxlen, 2**62, f"the length of {name}")
        if len(items) > maxlen:
            raise ValueError(f"{name} has {len(items)} items, and may have {maxlen}.")
    return deque(items, maxlen)


def _read_dict(content: Any, name: str, depth: int, made: list | None) -> dict:
    check_form(content, [tuple], name)
    contents = {}
    for i, pair in enumerate(content):
        if len(pair) != 2:
            raise ValueError(f"Item {i} of {name} has {len(pair)} parts, and not a key and a value.")
        key = _read(pair[0], f"key {i} of {name}", depth + 1)
        to_plain(key)  # Raises for types that `keep` allows, such as tensors: they cannot be keys.
        if key in contents:
            raise ValueError(f"{name} has the key {shown(key)} twice.")
        contents[key] = _read(pair[1], f"{name}[{shown(key)}]", depth + 1, made)
    return contents


_READERS: dict[str, Callable] = dict(
    bytes=_read_bytes,
    same=_read_same,
    view=_read_view,
    array=_read_array,
    scalar=_read_scalar,
    generator=_read_generator,
    random_state=_read_random_state,
    random=_read_random,
    list=_read_items,
    tuple=lambda *args: tuple(_read_items(*args)),
    set=_read_set,
    deque=_read_deque,
    dict=_read_dict,
    ordered_dict=lambda *args: OrderedDict(_read_dict(*args)),
)
_SHARED_KINDS = _READERS.keys() - {"bytes", "same", "scalar", "tuple"}


# --- Forms ------------------------------------------------------------------------------------------------------------
def check_form(value: Any, form: Any, name: str) -> None:
    """Raise ValueError unless a value has a form; the message says where it differs.

    Args:
        value: untrusted data.
        form: a type, or a tuple of types; NATURAL; a dictionary with the form of each required entry of a dictionary; or a list with one
            form, for each item of a list.
        name: name of the value in messages.
    """
    if form is NATURAL:
        check_number(value, 2**62, name)
        return
    types = (type(form),) if isinstance(form, (dict, list)) else form if isinstance(form, tuple) else (form,)
    is_number = int in types and isinstance(value, np.integer)
    if not (isinstance(value, types) or is_number) or (isinstance(value, bool) and not {bool, object} & {*types}):
        raise ValueError(f"{name} is {shown(value)}, and not {' or '.join(each.__name__ for each in types)}.")
    for key, each in form.items() if isinstance(form, dict) else ():
        if key not in value:
            raise ValueError(f"{name} has no {key!r}.")
        check_form(value[key], each, f"{name}[{key!r}]")
    for i, item in enumerate(value) if isinstance(form, list) else ():
        check_form(item, form[0], f"{name}[{i}]")


def check_number(value: Any, highest: int, name: str) -> None:
    """Raise ValueError unless a value is an integer from 0 to `highest`."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not 0 <= value <= highest:
        raise ValueError(f"{name} is {shown(value)}, and not a whole number from 0 to {highest}.")


def shown(value: Any) -> str:
    """Return a short text of a value of any size, for messages."""
    if isinstance(value, (str, bytes)):
        return repr(value[:40]) + ("..." if len(value) > 40 else "")
    if isinstance(value, int) and value.bit_length() > 128:
        return f"an integer of {value.bit_length()} bits"
    return repr(value) if type(value) in _PLAIN else f"a {type(value).__name__}"
