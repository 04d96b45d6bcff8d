"""The base class of spaces."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rlpyt.utils.buffer import buffer_func
from rlpyt.utils.completed import Completed


class Space:
    """The set of values of observations or actions: tests and draws elements, and has a null value for "nothing"."""

    _rng: np.random.Generator | None = None

    def sample(self) -> Any:
        """Return one element, drawn uniformly where the space is bounded.

        The random numbers are from numpy's global state, or after `seed` from the space's generator.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define sample().")

    def null_value(self) -> Any:
        """Return the value that means "no element", e.g. as the previous action at the start of an episode."""
        raise NotImplementedError(f"{type(self).__name__} does not define null_value().")

    def contains(self, x: Any) -> bool:
        """Say whether `x` is an element of this space."""
        raise NotImplementedError(f"{type(self).__name__} does not define contains().")

    def clip(self, value: Any) -> Any:
        """Return a copy of one element, or of many ``[*lead,...]``, with values limited to the bounds of the space.

        Only spaces of real numbers limit values. Others return a plain copy, since policies draw only their elements.
        """
        return plain_copy(value)

    def rescaling(self, everywhere: bool = False) -> Callable[[Any], Any]:
        """Return a function that copies a policy's action, rescaled to the units of this space.

        Its argument is one element, or many ``[*lead,...]``. Only spaces of real numbers rescale, see `rlpyt.spaces.rescaling`; others
        return a plain copy.

        Args:
            everywhere: also rescale boxes whose components all have the same bounds -a and a.
        """
        return plain_copy

    def seed(self, seed: int | None = None) -> None:
        """Let `sample` draw from a new generator with this seed; None returns to numpy's global random state."""
        self._rng = None if seed is None else np.random.default_rng(seed)


class CompletedSpace(Completed):
    """A space of rlpyt, Gymnasium or classic gym, or of a user, with all attributes by which spaces differ.

    Attributes:
        shape, dtype: form of an element; None for some structures.
        n: number of values of a discrete element, or of its bits; None for others.
        nvec: numbers of values of each part of a discrete element; None for others.
        start: first value of a discrete element of gymnasium.
        low, high: bounds of the elements; None without bounds.
        bounds: those of an `IntBox`, of which the upper one is excluded; None for others.
        spaces, names: parts of a structure and, for rlpyt's, the names of the parts; None for others.
        space: Gymnasium's space inside a wrapper; None for others.
        null_value: method that returns the null value; None if the space is not one of rlpyt's.
        clip: method that limits values to the bounds; None if the space cannot do that.
        rescaling: method that returns a function from [-1,1] to the bounds; None if the space cannot do that.
    """

    shape: Any = ()
    dtype: Any = None
    n: int | None = None
    nvec: np.ndarray | None = None
    start: Any = 0
    low: Any = None
    high: Any = None
    bounds: tuple[int, int] | None = None
    spaces: Any = None
    names: Sequence[str] | None = None
    space: Any = None
    null_value: Callable[[], Any] | None = None
    clip: Callable[[Any], Any] | None = None
    rescaling: Callable[..., Callable[[Any], Any]] | None = None


def plain_copy(value: Any) -> Any:
    """Return a copy of a structure of arrays or numbers."""
    return buffer_func(value, lambda x: np.array(x)[()])
