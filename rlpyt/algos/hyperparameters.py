"""Checks of constructor arguments: a wrong setting fails before anything starts, in a sentence."""

from __future__ import annotations

import math
import numbers
from typing import Any, NamedTuple


class Number(NamedTuple):
    """The numbers a setting may take.

    Attributes:
        low, high: bounds, included unless `above` is True, which excludes `low`.
        whole: only whole numbers (``1e6`` is one).
        optional: None is allowed as well.
        finite: infinity is not allowed, also where there are no bounds.
    """

    low: float = -math.inf
    high: float = math.inf
    above: bool = False
    whole: bool = False
    optional: bool = False
    finite: bool = False

    def allows(self, value: Any) -> bool:
        if value is None:
            return self.optional
        if isinstance(value, bool) or not isinstance(value, numbers.Real) or math.isnan(value):
            return False
        if (self.whole or self.finite) and not math.isfinite(value):
            return False
        if self.whole and value != math.floor(value):
            return False
        return (self.low < value if self.above else self.low <= value) and value <= self.high

    def __str__(self) -> str:
        kind = "a whole number" if self.whole else "a finite number" if self.finite else "a number"
        bounds = [f"{'above' if self.above else 'at least'} {self.low:g}"] if self.low > -math.inf else []
        bounds += [f"at most {self.high:g}"] if self.high < math.inf else []
        return " ".join([kind, " and ".join(bounds)]).strip() + (", or None" if self.optional else "")


FRACTION = Number(0, 1)
NON_NEGATIVE = Number(0)
POSITIVE = Number(0, above=True)
COUNT = Number(1, whole=True)
STEPS = Number(0, whole=True)


def check_hyperparameters(owner: Any, **allowed: Number) -> None:
    """Check attributes of `owner`, by name, against the numbers they may be; make whole numbers (``1e6``) int.

    Raises:
        ValueError: names the class, the setting, its value, and what is allowed.
    """
    for name, number in allowed.items():
        value = getattr(owner, name)
        if not number.allows(value):
            raise _not_possible(owner, name, value, str(number))
        if number.whole and value is not None:
            setattr(owner, name, int(value))


def check_flags(owner: Any, *names: str) -> None:
    """Check that attributes of `owner` are True or False.

    Raises:
        ValueError: names the class, the setting and its value.
    """
    for name in names:
        if getattr(owner, name) not in (True, False):
            raise _not_possible(owner, name, getattr(owner, name), "True or False")


def check_optimizer(owner: Any) -> None:
    """Check `OptimCls`, `optim_kwargs` and `initial_optim_state_dict` of an algorithm.

    Raises:
        ValueError: names the class, the setting, its value, and what is allowed.
    """
    OptimCls, optim_kwargs, state = owner.OptimCls, owner.optim_kwargs, owner.initial_optim_state_dict
    if not callable(OptimCls):
        raise _not_possible(owner, "OptimCls", OptimCls, "a class such as torch.optim.Adam")
    if not (optim_kwargs is None or isinstance(optim_kwargs, dict)):
        raise _not_possible(owner, "optim_kwargs", optim_kwargs, "a dictionary of arguments of OptimCls, or None")
    if not (state is None or isinstance(state, dict)):
        raise _not_possible(owner, "initial_optim_state_dict", state, "what optim_state_dict() returned, or None")


def _not_possible(owner: Any, name: str, value: Any, allowed: str) -> ValueError:
    return ValueError(f"{type(owner).__name__}: {name}={value!r:.100} is not possible; it must be {allowed}.")
