"""What every space can do."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlpyt.utils.buffer import buffer_func


class Space:
    """Common definitions for observations and actions: which values are possible, one at random, and one for "nothing"."""

    _rng: np.random.Generator | None = None

    def sample(self) -> Any:
        """Return one element, drawn uniformly wherever the space is bounded.

        Drawn from numpy's global random state until `seed` is called, and from then on from the space's own generator.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define sample().")

    def null_value(self) -> Any:
        """Return the value that stands for the absence of an element, e.g. the previous action at an episode's start."""
        raise NotImplementedError(f"{type(self).__name__} does not define null_value().")

    def contains(self, x: Any) -> bool:
        """Say whether `x` is an element of this space."""
        raise NotImplementedError(f"{type(self).__name__} does not define contains().")

    def clip(self, value: Any) -> Any:
        """Return a copy of one element, or of many ``[*lead,...]``, in which what is beyond the bounds of the space is on them.

        Spaces of real numbers have bounds in this sense. What a policy draws for the others is in them; of that it is a plain copy.
        """
        return buffer_func(value, lambda x: np.array(x)[()])

    def seed(self, seed: int | None = None) -> None:
        """Let `sample` draw from an own generator started with `seed`; None returns to numpy's global random state."""
        self._rng = None if seed is None else np.random.default_rng(seed)
