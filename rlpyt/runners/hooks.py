"""Functions that a runner calls after each row of its log. They may stop the run.

def report(runner, row):
    print(row["Diagnostics/CumSteps"], row["ReturnAverage"])

runner = MinibatchRl(..., hooks=[report])
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from rlpyt.utils.logging import logger
from rlpyt.utils.misc import accepts, name_of
from rlpyt.utils.text import said


class Hook(Protocol):
    """A function that a runner calls after each row of the log.

    The process that writes the log (rank 0 of `SyncRl`) calls it between two iterations, after writing the row and before saving the
    snapshot of that row. So the snapshot contains the changes that the hook makes, including random states.

    Args:
        runner: has `agent`, `algo`, `sampler`, `diagnostics` and `stop_return`.
        row: the values of the row by column name in progress.csv.

    Returns:
        True (of Python or numpy) ends the run in good order: all hooks are called, the snapshot is saved, and the run counts as finished.
        After any other value, the run continues.

    Raises:
        Exception: any exception. The snapshot of the row is saved, the log names the hook, and the run ends with the exception. This
            includes sys.exit(); to end the run in good order, return True.
    """

    def __call__(self, runner: Any, row: dict[str, float]) -> Any: ...


def checked_hooks(hooks: Sequence[Hook] | None) -> list[Hook]:
    """Return the hooks as a list; raise ValueError if one is not callable as ``hook(runner, row)``."""
    if not isinstance(hooks, (list, tuple, type(None))):
        raise ValueError(f"hooks={hooks!r} must be a list of functions that are called as hook(runner, row), or None.")
    for i, hook in enumerate(hooks or ()):
        if not callable(hook) or not accepts(hook, 2):
            raise ValueError(f"hooks[{i}]={hook!r} must be callable as hook(runner, row).")
    return list(hooks or ())


def call_hooks(hooks: Sequence[Hook], runner: Any, row: dict[str, float]) -> str | None:
    """Call all hooks in order; return the name of the first one that stops the run, or None."""
    stopping = [name_of(hook) for hook in hooks if _stops(hook, runner, row)]
    return stopping[0] if stopping else None


def _stops(hook: Hook, runner: Any, row: dict[str, float]) -> bool:
    try:
        answer = hook(runner, row)
    except (Exception, SystemExit) as error:
        logger.log(f"ERROR: the run ends, because the hook {name_of(hook)} raised {type(error).__name__}: {said(error)}", level=0)
        raise
    return isinstance(answer, (bool, np.bool_)) and bool(answer)
