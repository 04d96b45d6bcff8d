"""Show the state of all runs in a directory at a glance.

Of every run: whether it is finished, running, interrupted (by Ctrl-C or SIGTERM, with a snapshot), failed
(by FAILED.json, or an error at the end of debug.log) or stopped (none of these: killed, perhaps), how many
environment steps it has taken of how many, its last mean return, and how old the last row of its log is.

example:
  rlpyt status data/local/sweep
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

STATES = ("running", "finished", "interrupted", "stopped", "failed")
_TAIL = 65_536  # bytes of a log that are looked at


class RunStatus(NamedTuple):
    """What the files of a run tell.

    Attributes:
        path: directory of the run.
        state: one of STATES.
        steps: environment steps logged; None if there is no row yet.
        n_steps: environment steps the run is to have; None if its params.json does not say.
        last_return: mean return, or game score, of the last row that has one.
        age: seconds since the last row was written, or since the run began; None if it left no log.
        error: last line of what went wrong; empty if nothing.
    """

    path: Path
    state: str
    steps: int | None
    n_steps: int | None
    last_return: float | None
    age: float | None
    error: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("dir", metavar="DIR", nargs="?", default=".", help="directory with runs, at any depth; default: the current one")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")


def run(args: argparse.Namespace) -> int:
    """Print a table."""
    from rlpyt.utils.logging.runs import find_runs

    statuses = [read_status(run_dir) for run_dir in find_runs([args.dir])]
    if args.json:
        print(json.dumps([{**status._asdict(), "path": str(status.path)} for status in statuses], indent=2))
    else:
        print(format_statuses(statuses))
    return 0


def format_statuses(statuses: list[RunStatus]) -> str:
    """Return a table of runs, the errors of those that failed, and how many there are of each state."""
    from rlpyt.cli.text import duration, table
    from rlpyt.utils.logging.tabular import format_value

    def shown(value: float | None, text: Any = format_value) -> str:
        return "-" if value is None else text(value)

    rows = [["run", "state", "steps", "of", "return", "last row"]]
    for status in statuses:
        age = shown(status.age, lambda seconds: f"{duration(seconds)} ago")
        rows.append([str(status.path), status.state, shown(status.steps), shown(status.n_steps), shown(status.last_return), age])
    errors = [f"{status.path}: {status.error}" for status in statuses if status.error]
    counts = Counter(status.state for status in statuses)
    total = ", ".join(f"{counts[state]} {state}" for state in STATES if counts[state])
    lines = [table(rows, left=2), *errors, f"{len(statuses)} run{'s' * (len(statuses) != 1)}: {total}"]
    return "\n".join(lines)


def read_status(run_dir: Path) -> RunStatus:
    """Return what the files of a run tell. Nothing is changed, and damaged files tell nothing."""
    from rlpyt.utils.logging.runs import RETURN_COLUMNS, STEPS_COLUMN, read_columns, read_settings

    table = run_dir / "progress.csv"
    columns = read_columns(table) if table.is_file() else {}
    steps = _last(columns, STEPS_COLUMN)
    returns = [_last(columns, name) for name in RETURN_COLUMNS]
    try:
        settings = read_settings(run_dir)
    except ValueError:
        settings = {}
    n_steps = settings.get("runner.n_steps", settings.get("n_steps"))
    written = next((file.stat().st_mtime for file in (table, run_dir / "debug.log") if file.is_file()), None)
    state, error = _state(run_dir)
    return RunStatus(
        path=run_dir,
        state=state,
        steps=None if steps is None else int(steps),
        n_steps=int(n_steps) if isinstance(n_steps, (int, float)) else None,
        last_return=next((value for value in returns if value is not None), None),
        age=None if written is None else max(time.time() - written, 0.0),
        error=error,
    )


def _last(columns: dict[str, list[float]], name: str) -> float | None:
    from rlpyt.utils.logging.runs import find_column, has_column

    values = columns[find_column(columns, name)] if has_column(columns, name) else []
    return next((value for value in reversed(values) if math.isfinite(value)), None)


def _state(run_dir: Path) -> tuple[str, str]:
    """The state of a run, and the last line of what went wrong."""
    if is_written_to(run_dir):
        return "running", ""
    failure = run_dir / "FAILED.json"
    if failure.is_file():
        return "failed", _last_line_of(failure)
    log = _tail(run_dir / "debug.log")
    ends = {  # where in the log each is found last
        "finished": log.rfind("Training complete."),
        "interrupted": log.rfind("Stopped after iteration"),
        "failed": log.rfind("\nTraceback (most recent call last)"),
    }
    state, place = max(ends.items(), key=lambda item: item[1])
    if place < 0:
        return "stopped", ""
    return state, log.rstrip().rpartition("\n")[2] if state == "failed" else ""


def _last_line_of(failure: Path) -> str:
    """The last line of the traceback, or whatever text there is, in a FAILED.json."""
    text = failure.read_text(encoding="utf-8", errors="replace")
    try:
        contents = json.loads(text)
    except ValueError:
        contents = text
    if isinstance(contents, dict):
        contents = next((contents[key] for key in ("error", "traceback", "message") if contents.get(key)), "")
    if isinstance(contents, list):
        contents = "\n".join(map(str, contents))
    return str(contents).rstrip().rpartition("\n")[2]


def _tail(path: Path) -> str:
    if not path.is_file():
        return ""
    with open(path, "rb") as file:
        file.seek(max(path.stat().st_size - _TAIL, 0))
        return "\n" + file.read().decode(errors="replace")


def is_written_to(run_dir: Path) -> bool:
    """Whether a process holds the lock of a run's directory, as far as the system tells; nothing is locked to find out."""
    try:
        locks = Path("/proc/locks").read_text()
        status = os.stat(run_dir)
    except OSError:
        return False
    identity = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    return re.search(rf"FLOCK .* {re.escape(identity)} ", locks) is not None
