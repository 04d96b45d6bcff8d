"""A structure of spaces."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, overload

import numpy as np

from rlpyt.spaces.base import Space


class Composite(Space):
    """A combination of spaces, which may be composites themselves.

    Args:
        spaces: instantiated sub-spaces, in the order of the fields.
        NamedTupleCls: namedtuple class that organizes the sub-spaces and their values. To pickle, it should be defined in
            a module under its own name, or be made by `rlpyt.utils.collections.dynamic_namedtuple`.
    """

    def __init__(self, spaces: Sequence[Space], NamedTupleCls: Any) -> None:
        self._spaces: tuple[Any, ...] = tuple(spaces)  # They have a shape and a dtype.
        self._NamedTupleCls = NamedTupleCls
        if len(self._spaces) != len(NamedTupleCls._fields):
            raise ValueError(
                f"{len(self._spaces)} spaces do not match the {len(NamedTupleCls._fields)} fields "
                f"{list(NamedTupleCls._fields)}: give one space for each field, in order."
            )

    def _structure(self, values: Iterable) -> Any:
        return self._NamedTupleCls(*values)

    def sample(self) -> Any:
        """Return one namedtuple composed of samples from all sub-spaces."""
        return self._structure(space.sample() for space in self._spaces)

    def null_value(self) -> Any:
        """Return a namedtuple composed of the null values of all sub-spaces."""
        return self._structure(space.null_value() for space in self._spaces)

    def contains(self, x: Any) -> bool:
        """Say whether `x` is a tuple of the same length whose parts belong to the sub-spaces."""
        same = isinstance(x, tuple) and len(x) == len(self._spaces)
        return same and all(space.contains(part) for space, part in zip(self._spaces, tuple(x)))

    def clip(self, value: Any) -> Any:
        """Return a namedtuple like `value`, ``[*lead,...]``, with each part clipped by its sub-space."""
        return value._make(space.clip(part) for space, part in zip(self._spaces, tuple(value)))

    def rescaling(self, everywhere: bool = False) -> Callable[[Any], Any]:
        """Return a function of namedtuples, ``[*lead,...]``, which rescales each part as its sub-space does."""
        of_parts = [space.rescaling(everywhere) for space in self._spaces]
        return lambda value: value._make(rescale(part) for rescale, part in zip(of_parts, tuple(value)))

    def seed(self, seed: int | None = None) -> None:
        """Seed every sub-space with a different number derived from `seed`."""
        for space, sub_seed in zip(self._spaces, child_seeds(seed, len(self._spaces))):
            space.seed(sub_seed)

    @property
    def shape(self) -> Any:
        """Namedtuple of the shapes of every sub-space."""
        return self._structure(space.shape for space in self._spaces)

    @property
    def dtype(self) -> Any:
        """Namedtuple of the dtypes of every sub-space."""
        return self._structure(space.dtype for space in self._spaces)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the sub-spaces."""
        return tuple(self._NamedTupleCls._fields)

    @property
    def spaces(self) -> list[Space]:
        """The bare sub-spaces, in order; a new list."""
        return list(self._spaces)

    def __repr__(self) -> str:
        return f"Composite({', '.join(f'{name}: {space!r}' for name, space in zip(self.names, self.spaces))})"


@overload
def child_seeds(seed: int, n: int) -> list[int]: ...


@overload
def child_seeds(seed: None, n: int) -> list[None]: ...


def child_seeds(seed: int | None, n: int) -> Sequence[int | None]:
    """Return `n` independent seeds derived from `seed`; all None if `seed` is None."""
    return [None] * n if seed is None else [int(s) for s in np.random.SeedSequence(seed).generate_state(n)]
