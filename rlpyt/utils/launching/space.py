"""Search spaces: variants in which some values are ranges.

    space = dict(algo=dict(learning_rate=log_uniform(1e-5, 1e-2), epochs=integer(1, 20)), sampler=dict(batch_T=choice(32, 64, 128)))

On the command line a range is written in the same way: ``--set "algo.learning_rate=log_uniform(1e-5,1e-2)"``.
"""

from __future__ import annotations

import ast
import copy
import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from rlpyt.utils.misc import did_you_mean
from rlpyt.utils.settings import Number, checked

DIGITS = 4  # significant digits of the values that are drawn, so that people can read them; more in a narrow range
_CALL = re.compile(r"\s*([A-Za-z_]\w*)\s*\((.*)\)\s*", re.DOTALL)
FINITE = Number(finite=True)
ABOVE_ZERO = Number(0, above=True, finite=True)
WHOLE = Number(whole=True)


@dataclass(frozen=True)
class Range:
    """The possible values of a setting: numbers from `low` to `high`, both included.

    Attributes:
        kind: name of the function that makes such a range, a key of RANGES.
        low, high: bounds.
    """

    kind: str
    low: float
    high: float

    def at(self, position: float) -> float | int:
        """Return the value at a position between 0 (`low`) and 1 (`high`), with few digits; the inverse of `position`."""
        if self.kind == "integer":
            return int(min(self.low + math.floor(position * (self.high - self.low + 1)), self.high))
        low, high = self._scaled(self.low), self._scaled(self.high)
        value = low + position * (high - low)
        value = math.exp(value) if self.kind == "log_uniform" else value
        return self.tidied(value)

    def tidied(self, value: float) -> float | int:
        """Return a value with few digits, inside the range."""
        if self.kind == "integer":
            return int(value)
        scale = min(abs(value), 10 * (self.high - self.low))  # A narrow range needs more digits: it has at least about 100 values.
        if 0 < scale < math.inf:
            value = round(value, DIGITS - 1 - math.floor(math.log10(scale)))
        return min(max(value, self.low), self.high)

    def position(self, value: float) -> float:
        """Return where a value lies between 0 (`low`) and 1 (`high`)."""
        low, high = self._scaled(self.low), self._scaled(self.high)
        return (self._scaled(value) - low) / (high - low) if high > low else 0.5

    def corners(self) -> list:
        """Return both ends, and between them a number that is not whole, if there is one: a setting may take whole numbers only."""
        inside = (self.at(position) for position in (0.37, 0.41, 0.45))
        return [self.low, *[value for value in inside if value != int(value)][:1], self.high]

    @property
    def n_values(self) -> float:
        """Number of possible values; infinite unless they are whole numbers."""
        return self.high - self.low + 1 if self.kind == "integer" else math.inf

    @property
    def has_whole_ends(self) -> bool:
        """Whether both bounds are whole numbers."""
        return self.low == int(self.low) and self.high == int(self.high)

    def _scaled(self, value: float) -> float:
        return math.log(value) if self.kind == "log_uniform" else value

    def __str__(self) -> str:
        return f"{self.kind}({self.low!r}, {self.high!r})"


@dataclass(frozen=True)
class Choice:
    """The possible values of a setting: one of `values`, all equally likely and in no order."""

    values: tuple

    @property
    def n_values(self) -> int:
        """Number of possible values."""
        return len(self.values)

    def at(self, position: float) -> Any:
        """Return the value at a position between 0 and 1."""
        return self.values[min(int(position * len(self.values)), len(self.values) - 1)]

    def position(self, value: Any) -> float:
        """Return where a value lies between 0 (the first one) and 1 (the last one)."""
        return self.index(value) / max(len(self.values) - 1, 1)

    def index(self, value: Any) -> int:
        """Return the number of a value; lists and tuples count as equal, True and 1 do not."""
        return [json_text(each) for each in self.values].index(json_text(value))

    def corners(self) -> list:
        """Return all values."""
        return list(self.values)

    def __str__(self) -> str:
        return f"choice({', '.join(map(repr, self.values))})"


AnyRange = Range | Choice


@checked(low=FINITE, high=FINITE)
def uniform(low: float, high: float) -> Range:
    """Numbers from `low` to `high`, equally likely."""
    return _range("uniform", low, high)


@checked(low=ABOVE_ZERO, high=ABOVE_ZERO)
def log_uniform(low: float, high: float) -> Range:
    """Numbers from `low` to `high`, both above 0, whose logarithms are equally likely: for learning rates and other scales."""
    return _range("log_uniform", low, high)


@checked(low=WHOLE, high=WHOLE)
def integer(low: int, high: int) -> Range:
    """Whole numbers from `low` to `high`, equally likely."""
    return _range("integer", low, high)


def choice(*values: Any) -> Choice:
    """One of these values, which JSON can hold: numbers, texts, True, False, None, lists, dictionaries.

    Raises:
        ValueError: there are fewer than two values, or one of them twice, or a number is not finite.
        TypeError: JSON cannot hold a value.
    """
    plain = [_plain(value) for value in values]
    if len(values) < 2:
        raise ValueError(f"choice() has {len(values)} values: give at least two, as in choice(32, 64).")
    if len(set(map(json_text, plain))) < len(plain):
        raise ValueError(f"choice({', '.join(map(repr, values))}) has a value twice: leave one out.")
    return Choice(tuple(plain))


def _range(kind: str, low: float, high: float) -> Range:
    if not low < high:
        raise ValueError(f"{kind}() is empty: low={low!r} must be smaller than high={high!r}.")
    number = int if kind == "integer" else float
    return Range(kind, number(low), number(high))


def _plain(value: Any) -> Any:
    """Return a value as JSON reads it again."""
    try:
        text = json.dumps(value.item() if isinstance(value, np.generic) else value)
    except (TypeError, ValueError):
        raise TypeError(f"choice() takes numbers, texts, lists and dictionaries, not {value!r}, of type {type(value).__name__}.") from None
    return json.loads(text, parse_constant=_refuse)


def _refuse(number: str) -> None:
    raise ValueError(
        f"choice() takes finite numbers, not {number}, which the files of a search cannot hold: choose a large number instead."
    )


def json_text(value: Any) -> str:
    """Return a text that two values share only if JSON reads them as the same."""
    return json.dumps(_plain(value), sort_keys=True)


RANGES = dict(uniform=uniform, log_uniform=log_uniform, integer=integer, choice=choice)


# --- As text ----------------------------------------------------------------------------------------------------------
def looks_like_range(text: str) -> bool:
    """Whether a text has the form of a call, such as "uniform(0, 1)", or begins like a range."""
    name, bracket, _ = text.partition("(")
    return _CALL.fullmatch(text) is not None or (bool(bracket) and name.strip() in RANGES)


def read_range(text: str) -> AnyRange:
    """Return the range that a text such as "log_uniform(1e-5, 1e-2)" describes. In ``choice``, words need no quotes.

    Raises:
        ValueError: there is no such range, or its arguments are wrong; the message says what to write.
    """
    call = _CALL.fullmatch(text)
    if call is None:
        raise ValueError(f"{text!r} is no range. Write one as in log_uniform(1e-5, 1e-2). {did_you_mean('', RANGES)}")
    name = call[1]
    if name not in RANGES:
        raise ValueError(f"There is no range {name!r}. {did_you_mean(name, RANGES)}")
    arguments = [_value(node, text) for node in _arguments(text)]
    try:
        return RANGES[name](*arguments)
    except TypeError as error:
        if name == "choice":
            raise ValueError(str(error)) from None
        raise ValueError(f"{text}: {name} takes two numbers, the lowest and the highest value, as in {name}(1, 10).") from None


def _arguments(text: str) -> list[ast.expr]:
    try:
        call = ast.parse(text.strip(), mode="eval").body
    except SyntaxError:
        call = None
    if not isinstance(call, ast.Call) or call.keywords:
        raise ValueError(f"{text} cannot be read. Write the values with commas between them, as in uniform(0.9, 0.999) or choice(32, 64).")
    return call.args


def _value(node: ast.expr, text: str) -> Any:
    if isinstance(node, ast.Name):
        return dict(true=True, false=False, none=None).get(node.id.lower(), node.id)
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError):  # TypeError for what cannot be a key of a dictionary.
        raise ValueError(f"{text}: {ast.unparse(node)} is neither a number nor a word. Put other texts into quotes.") from None


# --- Spaces -----------------------------------------------------------------------------------------------------------
Path = tuple[str, ...]  # the keys that lead to a setting


class Space:
    """A variant with ranges.

    Args:
        nested: dictionary of sections, each a dictionary of settings, at any depth; values that are no ranges are the same in all trials.

    Attributes:
        ranges: the ranges by the keys that lead to them, in order.
        constants: the rest of the variant.

    Raises:
        ValueError: there is no range in it.
        TypeError: a key that leads to a range is no text.
    """

    def __init__(self, nested: Mapping[str, Any]) -> None:
        self.ranges: dict[Path, AnyRange] = dict(_ranges(nested, ()))
        self.constants = _without_ranges(nested)
        if not self.ranges:
            raise ValueError(
                "The search space has no range: give at least one setting a range, as in algo.learning_rate=log_uniform(1e-5, 1e-2)."
            )
        for key in (key for path in self.ranges for key in path):
            if not isinstance(key, str):
                raise TypeError(f"The key {key!r} in the search space must be a text: sections and settings have names.")

    @property
    def names(self) -> list[str]:
        """Dotted names of the settings that have ranges."""
        return [".".join(path) for path in self.ranges]

    def variant(self, values: Mapping[Path, Any]) -> dict:
        """Return the variant with these values in place of the ranges."""
        variant = copy.deepcopy(self.constants)
        for path, value in values.items():
            section = variant
            for key in path[:-1]:
                section = section.setdefault(key, {})
            section[path[-1]] = copy.deepcopy(value)
        return variant

    def values(self, listed: list) -> dict[Path, Any]:
        """Return values by their keys, from a list in the order of `ranges`."""
        return dict(zip(self.ranges, listed))

    def is_used_up(self, tried: list[list]) -> bool:
        """Whether there is no other list of values than those that were tried."""
        counts = [range_.n_values for range_ in self.ranges.values()]
        return math.inf not in counts and len({json_text(values) for values in tried}) >= math.prod(counts)

    def some(self, most: int) -> Iterator[list]:
        """Yield different lists of values: all that there are, or more than `most`, evenly spread over each range."""
        counts = [int(min(range_.n_values, most + 1)) for range_ in self.ranges.values()]
        grid = ([range_.at((i + 0.5) / n) for i in range(n)] for n, range_ in zip(counts, self.ranges.values()))
        return map(list, product(*grid))

    def corners(self) -> Iterator[tuple[Path, list[dict[Path, Any]]]]:
        """Yield what to try to find out whether all values are possible: a setting, at a corner of its range, in two combinations.

        In the first one all other settings are at their lowest, in the second one at their highest; those of a choice are its first and its
        last.
        """
        lowest, highest = ({path: range_.corners()[i] for path, range_ in self.ranges.items()} for i in (0, -1))
        for path, range_ in self.ranges.items():
            for value in range_.corners():
                yield path, [{**others, path: value} for others in (lowest, highest)]

    def as_saved(self) -> dict:
        """Return the space as JSON can hold it; `Space.read` is the inverse."""
        return dict(ranges=[[list(path), str(range_)] for path, range_ in self.ranges.items()], constants=self.constants)

    @classmethod
    def read(cls, saved: Mapping[str, Any]) -> Space:
        """Return the space that `as_saved` returned."""
        space = cls.__new__(cls)
        space.ranges = {tuple(path): read_range(text) for path, text in saved["ranges"]}
        space.constants = dict(saved["constants"])
        return space


def _ranges(nested: Mapping, where: Path) -> Iterator[tuple[Path, AnyRange]]:
    for key, value in nested.items():
        if isinstance(value, (Range, Choice)):
            yield (*where, key), value
        elif isinstance(value, Mapping):
            yield from _ranges(value, (*where, key))


def _without_ranges(nested: Mapping) -> dict:
    rest = {}
    for key, value in nested.items():
        if isinstance(value, Mapping) and value:
            value = _without_ranges(value)
            if not value:  # All that it had were ranges.
                continue
        if not isinstance(value, (Range, Choice)):
            rest[key] = value
    return rest


def without_empty(nested: Any) -> Any:
    """Return nested dictionaries without those that are empty, or contain only such."""
    if not isinstance(nested, Mapping):
        return nested
    rest = {key: without_empty(value) for key, value in nested.items()}
    return {key: value for key, value in rest.items() if value != {}}
