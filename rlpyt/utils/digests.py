"""Digests: numbers of 64 bits by which equal bits are recognized, of single arrays and of everything in a structure.

They are made to find accidents, such as another rounding, and not to resist somebody who forges data. Another bit always gives another
digest of an array; of arrays that differ in more, one in 2**32 goes unnoticed.

A row of digests is a line of JSON in `FILE`, beside the table of the log::

    {"row": 3, "itr": 11, "steps": 96, "n_steps": 500, "digests": {"Samples": {"env.reward": "00000000af3...", ...}, ...}}

The first line of each process that writes the file also has ``on``: what the bits may depend on, except the code.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rlpyt.utils.lazy import LazyModule
from rlpyt.utils.plain import NATURAL, check_form
from rlpyt.utils.structures import is_tensor

kernels: Any = LazyModule("rlpyt.utils.kernels")

FILE = "digests.jsonl"
KINDS = ("Samples", "Parameters", "Optimizer", "Random")  # In the order in which a difference spreads through an iteration.
_LONG = 4096  # bytes; from here on the kernel is faster than `zlib.crc32`, whose calls cost less.
_NUMBERS = (bool, int, float, str, bytes, type(None))
_FORM = dict(row=NATURAL, itr=int, steps=NATURAL, n_steps=int, digests=dict)


# --- Digests ----------------------------------------------------------------------------------------------------------
def digest_bytes(data: np.ndarray, before: int = 0) -> int:
    """Return the digest of bytes [n], uint8 and contiguous, that follow those with the digest `before`."""
    if is_short(data):
        return zlib.crc32(data.data, before & 0xFFFFFFFF)
    if data.ctypes.data % 8:
        data = data.copy()  # The kernel reads words of 8 bytes.
    return int(kernels.hash_bytes(data, np.uint64(before)))


def is_short(data: np.ndarray) -> bool:
    """Return whether bytes [n] are so few that `digest_pieces` digests them, with others, as `digest_bytes` would one after the other."""
    return len(data) < _LONG


def digest_pieces(pieces: bytearray, before: int = 0) -> int:
    """Return the digest of short pieces of bytes, put together, that follow those with the digest `before`."""
    return zlib.crc32(pieces, before & 0xFFFFFFFF)


def as_bytes(array: Any) -> np.ndarray:
    """Return the bytes [n] of an array or tensor on any device: a view of its memory, if that is contiguous and on the CPU."""
    if is_tensor(array):
        import torch

        array = array.detach().cpu()
        is_unknown_to_numpy = array.dtype.is_floating_point and array.dtype.itemsize < 4 and array.dtype != torch.float16
        array = (array.contiguous().reshape(-1).view(torch.uint8) if is_unknown_to_numpy else array).numpy()
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def form_digest(array: Any) -> int:
    """Return the digest of an array's dtype and shape."""
    return zlib.crc32(f"{str(array.dtype).removeprefix('torch.')}{tuple(array.shape)}".encode())


def digest(value: Any) -> int:
    """Return the digest of an array or tensor: its dtype, shape and bytes. Of anything else, of how it is written."""
    if is_tensor(value) or isinstance(value, (np.ndarray, np.generic)):
        return digest_bytes(as_bytes(value), form_digest(value))
    return zlib.crc32(repr(value).encode())


def digests(tree: Any, path: str = "") -> dict[str, int]:
    """Return the digest of each leaf of nested dictionaries, lists and tuples by its path, see `leaves`."""
    return {path: digest(value) for path, value in leaves(tree, path)}


def leaves(tree: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield path, such as "env.reward", and value of everything in nested dictionaries, lists and tuples, but for None.

    A list of numbers and strings alone is a leaf.
    """
    if hasattr(tree, "_fields"):
        parts: Iterable = ((name, getattr(tree, name)) for name in tree._fields)
    elif isinstance(tree, Mapping):
        parts = tree.items()
    elif isinstance(tree, (list, tuple)) and not all(isinstance(each, _NUMBERS) for each in tree):
        parts = enumerate(tree)
    else:
        parts = ()
        if tree is not None:
            yield path, tree
    for name, part in parts:
        yield from leaves(part, f"{path}.{name}" if path else str(name))


def together(parts: Mapping[str, int]) -> str:
    """Return one digest of several: a letter, so that no reader takes it for a number, and 16 hexadecimal digits."""
    text = "\n".join(f"{name} {number:x}" for name, number in parts.items())
    return f"x{hashlib.blake2b(text.encode(), digest_size=8).hexdigest()}"


# --- Rows -------------------------------------------------------------------------------------------------------------
class DigestRow(NamedTuple):
    """The digests of a row of the log.

    Attributes:
        row: its number, from 1.
        itr: the last iteration.
        steps: environment steps so far.
        n_steps: environment steps that the run was to have when the row was written.
        digests: by kind, one of `KINDS`, and by the path of the tensor. A kind that is unknown is missing.
        on: what the bits may depend on, except the code, such as versions.
    """

    row: int
    itr: int
    steps: int
    n_steps: int
    digests: dict[str, dict[str, str]]
    on: dict[str, Any] = {}

    def __str__(self) -> str:
        return f"row {self.row} (iteration {self.itr}, {self.steps:,} environment steps)"


def line_of(row: DigestRow) -> bytes:
    """Return a row as a line of the file."""
    entries = {name: value for name, value in row._asdict().items() if name != "on" or value}
    return json.dumps(entries).encode() + b"\n"


def read_rows(file: Any) -> list[DigestRow]:
    """Return the rows in a file. `on` is that of the process that wrote the row.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is damaged.
    """
    path = Path(file)
    if not path.is_file():
        runs = sorted(str(each.parent) for each in path.parent.glob(f"*/{FILE}"))
        one = f"one run, such as {runs[0]}" if runs else "a run that was trained with --digest, or digest=True"
        raise FileNotFoundError(f"There is no {path}: give the directory of {one}.")
    lines = path.read_bytes().split(b"\n")[:-1]  # What follows the last end of a line is no row, see `is_cut`.
    rows: list[DigestRow] = []
    for i, line in enumerate(lines, 1):
        try:
            entries = json.loads(line)
            check_form(entries, _FORM, f"line {i}")
            check_form(entries["digests"], {kind: dict for kind in entries["digests"]}, "digests")
            fields = {name: entries[name] for name in _FORM}
            on = entries.get("on") or (rows[-1].on if rows else {})
            check_form(on, {}, "on")
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path} is damaged: line {i}: {error}") from None
        rows.append(DigestRow(**fields, on=on))
    return rows


def is_cut(file: Any) -> bool:
    """Return whether the last line of a file has not been written completely."""
    return not Path(file).read_bytes().endswith(b"\n")


# --- Comparison -------------------------------------------------------------------------------------------------------
class Parting(NamedTuple):
    """The first difference between two runs.

    Attributes:
        a, b: the first rows that differ, one of each run, after the same number of environment steps.
        n_same: number of equal rows before them.
        names: names of the arrays that differ, by kind. A kind that one of the rows lacks is missing.
        n: number of arrays of each kind in either run.
    """

    a: DigestRow
    b: DigestRow
    n_same: int
    names: dict[str, list[str]]
    n: dict[str, int]

    @property
    def first(self) -> tuple[str, str]:
        """Kind and name of the first tensor that differs."""
        return next((kind, names[0]) for kind, names in self.names.items() if names)


def in_common(a: Sequence[DigestRow], b: Sequence[DigestRow]) -> list[tuple[DigestRow, DigestRow]]:
    """Return pairs of rows after the same number of environment steps, in order. A run that was interrupted has rows that others lack."""
    of_b = {row.steps: row for row in b}
    return [(row, of_b[row.steps]) for row in a if row.steps in of_b]


def n_compared(pairs: Sequence[tuple[DigestRow, DigestRow]]) -> dict[str, int]:
    """Return for each of `KINDS` in how many pairs both rows have digests of it."""
    return {kind: sum(_both_have(kind, a, b) for a, b in pairs) for kind in KINDS}


def _both_have(kind: str, a: DigestRow, b: DigestRow) -> bool:
    """Return whether two rows have digests of a kind. Before the first step, there are no samples, and these are the same."""
    x, y = a.digests.get(kind), b.digests.get(kind)
    return bool(x and y) or (x == y == {} and a.steps == 0)


def parting(pairs: Sequence[tuple[DigestRow, DigestRow]]) -> Parting | None:
    """Return where two runs part, given their rows in common; None if they do not.

    Kinds that one of them lacks are not compared, see `n_compared`.
    """
    for i, (a, b) in enumerate(pairs):
        names, n = {}, {}
        for kind in KINDS:
            if _both_have(kind, a, b):
                x, y = a.digests[kind], b.digests[kind]
                every = list(dict.fromkeys([*x, *y]))
                names[kind] = [name for name in every if x.get(name) != y.get(name)]
                n[kind] = len(every)
        if any(names.values()):
            return Parting(a, b, i, names, n)
    return None
