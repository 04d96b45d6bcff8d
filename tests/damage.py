"""Structured damage to what is read from files, and what reading them does besides: importable as ``damage`` in test modules."""

import contextlib
import copy
import json
import os
import sys
from collections import OrderedDict

import torch

DEEP = ("list", [])
for _ in range(3000):
    DEEP = ("list", [DEEP])
IN_ITSELF = []
IN_ITSELF.append(IN_ITSELF)
WRONG = [
    *(None, True, -1, 0, 1, 7, 2**31, 2**62, 10**30, -(10**30), 0.5, float("nan"), float("inf"), [], (), {}, [1], (1,), {"x": 1}),
    *("", "test", "O", "PCG64", "step", "__class__", "../x", "a\0b", "\x1b[2J", b"", b"\xff" * 8, DEEP, IN_ITSELF),
    *(("dict", [1]), ("nokind", [1]), ("list", None), ("array",), ("tuple", [("list", [("set", [("dict", [])])])])),
    *(("generator", '{"bit_generator": "test"}'), ("generator", '{"bit_generator": "seed"}'), ("generator", "[" * 100_000)),
    *(("random", "[3, [1, 2], null]"), ("array", ["O", [1], b"\0" * 8]), ("array", ["<f4", [2**40, 2**40], b""])),
    *(torch.zeros(3), torch.zeros(1).expand(2**40), torch.tensor(float("nan")), torch.zeros(2, dtype=torch.bool)),
    torch.empty(5, device="meta"),
]


def damaged(value, rng):
    """Return a deep copy of nested dictionaries, lists and tuples with one thing in it changed: replaced, left out, doubled, renamed."""
    path = _place(value, rng)
    node = _at(value, path)
    kinds = [lambda: rng.choice(WRONG), lambda: _copy(_at(value, _place(value, rng)))]
    if isinstance(node, (list, tuple)) and node:
        i = rng.randrange(len(node))
        kinds += [
            lambda: type(node)([*node[:i], *node[i + 1 :]]),
            lambda: type(node)([*node[: i + 1], *map(_copy, node[i:])]),
            lambda: (list if isinstance(node, tuple) else tuple)(node),
        ]
    if isinstance(node, dict) and node:
        key = rng.choice(list(node))
        without = {k: v for k, v in node.items() if k != key}
        kinds += [lambda: without, lambda: {**without, rng.choice(["test", "step", 3, f"{key}_"]): node[key]}]
    if isinstance(node, bool):
        kinds += [lambda: not node]
    elif isinstance(node, (int, float)):
        kinds += [lambda: -node, lambda: node + 1, lambda: node * 10**6, lambda: str(node)]
    if isinstance(node, (str, bytes)) and node:
        i = rng.randrange(len(node))
        kinds += [lambda: node[:i], lambda: node + node, lambda: node[:i] + node[:1] + node[i + 1 :]]
    if isinstance(node, str) and node[:1] in ("{", "["):
        kinds += 3 * [lambda: _damaged_json(node, rng)]
    if isinstance(node, torch.Tensor):
        kinds += [lambda: node[None], lambda: node.double(), lambda: node.reshape(-1)[:1], lambda: node.tolist()]
    return _with(value, path, rng.choice(kinds)())


def _damaged_json(text, rng):
    try:
        return json.dumps(damaged(json.loads(text), rng), default=str, skipkeys=True)
    except (ValueError, RecursionError):  # It was none, or is none any more.
        return "[" + text


def _place(value, rng):
    """Where something in it is, keys from the outside inwards: near the top as often as deep inside, where most of it is."""
    path = []
    while isinstance(value, (dict, list, tuple)) and value and rng.random() < 0.85:
        path.append(rng.choice(list(value)) if isinstance(value, dict) else rng.randrange(len(value)))
        value = value[path[-1]]
    return tuple(path)


def _at(value, path):
    for key in path:
        value = value[key]
    return value


def _copy(value):
    return value if value is DEEP or value is IN_ITSELF else copy.deepcopy(value)


def _with(value, path, new):
    if not path:
        return new
    if isinstance(value, dict):
        return type(value)((key, _with(item, path[1:], new) if key == path[0] else _copy(item)) for key, item in value.items())
    return type(value)([_with(item, path[1:], new) if i == path[0] else _copy(item) for i, item in enumerate(value)])


def comparable(value):
    """Return something that is equal for equal contents: NaNs are equal, numbers of different types are not, JSON is what it says."""
    if isinstance(value, (dict, OrderedDict)):
        return {key: comparable(item) for key, item in value.items()}
    if isinstance(value, tuple) and len(value) == 2 and value[0] == "set" and isinstance(value[1], list):
        return "set", sorted(repr(comparable(item)) for item in value[1])
    if isinstance(value, (list, tuple)):
        return type(value).__name__, [comparable(item) for item in value]
    if isinstance(value, torch.Tensor):
        numbers = repr(value.tolist()) if value.device.type == "cpu" and value.numel() < 10**6 else value.device.type
        return str(value.dtype), tuple(value.shape), numbers
    if isinstance(value, str) and value[:1] in ("{", "["):
        with contextlib.suppress(ValueError, RecursionError):
            return json.dumps(json.loads(value), sort_keys=True)
    return repr(value)


# --- What a program does ----------------------------------------------------------------------------------------------
_EVENTS = ("exec", "compile", "os.system", "os.exec", "os.fork", "os.posix_spawn", "subprocess.Popen", "socket.connect", "ctypes.dlopen")
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_seen: list | None = None


@contextlib.contextmanager
def watched():
    """Yield a list, to which is appended whatever code is imported, compiled or executed, and files that are opened for writing."""
    global _seen
    if not _hooked:
        sys.addaudithook(_note)  # It cannot be taken away again.
        _hooked.append(True)
    before, _seen = _seen, []
    try:
        yield _seen
    finally:
        _seen = before


def of_torch(events):
    """Whether there was nothing, or torch has imported a part of itself, as it does when that is first needed."""
    return not events or events[0][0] == "import" and events[0][1].startswith("torch.")


_hooked: list = []


def _note(event, args):
    if _seen is None:
        return
    if event in _EVENTS or (event == "open" and isinstance(args[2], int) and args[2] & _WRITING):
        _seen.append((event, str(args)[:200]))
    if event == "import" and args[0] not in sys.modules:
        _seen.append((event, args[0]))
