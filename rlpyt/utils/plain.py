"""Objects as plain data, and back: what a checkpoint can hold, with nothing lost on the way.

`torch.load(..., weights_only=True)` reads Python's numbers, strings, bytes and containers. Numpy's arrays, scalars and generators are
written as tagged tuples of those, so that each comes back with its own type, and workers without an agent need no torch for it.
"""

from __future__ import annotations

import json
import random
from collections import OrderedDict, deque
from collections.abc import Mapping
from typing import Any

import numpy as np

_PLAIN = (bool, int, float, str, bytes, type(None))


class NotPlain(TypeError):
    """An object cannot be written as plain data; the message says where it is."""


def to_plain(value: Any, name: str = "value", keep: tuple[type, ...] = ()) -> Any:
    """Return plain data that `from_plain` turns back into an equal object.

    Takes numbers, strings, bytes and None; numpy's arrays, scalars and random generators; `random.Random`; and dicts, lists, tuples,
    deques and sets of these.

    Args:
        value: the object.
        name: what messages call it.
        keep: further types which what writes the plain data can hold, such as tensors: they stay as they are.

    Raises:
        NotPlain: something else is inside.
    """
    if type(value) in _PLAIN or isinstance(value, keep):
        return value
    if isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind in "biufcSU":
        return ("array" if isinstance(value, np.ndarray) else "scalar", [value.dtype.str, list(value.shape), value.tobytes()])
    if isinstance(value, np.random.Generator):
        return ("generator", json.dumps(_with_lists(value.bit_generator.state)))
    if isinstance(value, np.random.RandomState):
        return ("random_state", to_plain(value.get_state()))
    if isinstance(value, random.Random):
        return ("random", json.dumps(value.getstate()))
    if type(value) in (list, tuple, deque, set):
        items = [to_plain(item, f"{name}[{i}]", keep) for i, item in enumerate(value)]
        return (type(value).__name__, items, value.maxlen) if isinstance(value, deque) else (type(value).__name__, items)
    if type(value) in (dict, OrderedDict):
        items = [(to_plain(key, f"a key of {name}"), to_plain(item, f"{name}[{key!r}]", keep)) for key, item in value.items()]
        return ("dict" if type(value) is dict else "ordered_dict", items)
    raise NotPlain(f"{name} is a {type(value).__module__}.{type(value).__qualname__}.")


def from_plain(plain: Any) -> Any:
    """Invert `to_plain`."""
    if type(plain) is not tuple:
        return plain
    kind, content, *more = plain
    if kind in ("array", "scalar"):
        dtype, shape, data = content
        array = np.frombuffer(data, dtype).reshape(shape)
        return array.copy() if kind == "array" else array[()]
    if kind == "generator":
        state = json.loads(content)
        generator = np.random.Generator(getattr(np.random, state["bit_generator"])())
        generator.bit_generator.state = _with_arrays(state)
        return generator
    if kind == "random_state":
        generator = np.random.RandomState()
        generator.set_state(from_plain(content))
        return generator
    if kind == "random":
        generator = random.Random()
        version, numbers, gauss = json.loads(content)
        generator.setstate((version, tuple(numbers), gauss))
        return generator
    if kind in ("dict", "ordered_dict"):
        return (dict if kind == "dict" else OrderedDict)((from_plain(key), from_plain(item)) for key, item in content)
    items = [from_plain(item) for item in content]
    return dict(list=list, tuple=tuple, set=set)[kind](items) if kind != "deque" else deque(items, *more)


def _with_lists(state: Any) -> Any:
    """A bit generator's state for JSON."""
    if isinstance(state, Mapping):
        return {key: _with_lists(value) for key, value in state.items()}
    return {"array": state.tolist(), "dtype": state.dtype.str} if isinstance(state, np.ndarray) else state


def _with_arrays(state: Any) -> Any:
    """Invert `_with_lists`."""
    if not isinstance(state, dict):
        return state
    if set(state) == {"array", "dtype"}:
        return np.array(state["array"], state["dtype"])
    return {key: _with_arrays(value) for key, value in state.items()}
