"""Schedules: how a setting of an algorithm changes during the run, by name or as a function."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from rlpyt.utils.settings import Kind, Number

Schedule = str | Callable[[float], float]

# The factor of the initial value, as a function of the progress: 0 at the first iteration, 1 at the end of the run.
SCHEDULES: dict[str, Callable[[float], float]] = {
    "constant": lambda progress: 1.0,
    "linear": lambda progress: 1 - progress,
    "cosine": lambda progress: (1 + math.cos(math.pi * progress)) / 2,  # Loshchilov & Hutter 2017, arXiv:1608.03983, without restarts.
}
_FACTOR = Number(0, finite=True)


def schedule_kind(*further: str) -> Kind:
    """Return the kind of settings that are schedules: the names above, `further` names, or functions."""
    names = [*SCHEDULES, *further]
    words = ", ".join(map(repr, names)) + " or a function of the progress from 0 to 1"
    return Kind(words, lambda value: value in names if isinstance(value, str) else callable(value), optional=True)


SCHEDULE = schedule_kind()


def factor_at(schedule: Schedule, progress: float, name: str = "schedule") -> float:
    """Return the factor of the initial value at a progress of 0 to 1.

    Args:
        schedule: name of a schedule, or a function of the progress.
        progress: fraction of the run's iterations that are done.
        name: the setting, for the error.

    Raises:
        ValueError: a function returned something else than a finite number of at least 0.
    """
    factor: Any = (SCHEDULES[schedule] if isinstance(schedule, str) else schedule)(progress)
    if not _FACTOR.allows(factor):
        raise ValueError(
            f"{name} returned {factor!r} at the progress {progress:g}; it must return {_FACTOR}, a factor of the initial value."
        )
    return float(factor)
