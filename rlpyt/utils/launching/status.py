"""The state of every run of an experiment, from the files in its directory.

    <exp_dir>/experiment.json              what was asked for: written when the sweep is launched
             /experiments_tree.txt         the same as a picture
             /num_launched.txt
             /<log_dir>/variant_config.json
             /<log_dir>/run_<ID>/          what the run logs, and
                                /stdout.log, stderr.log
                                /RUNNING.json, or FINISHED.json, FAILED.json, INTERRUPTED.json: one of them

The launcher writes these, and `experiment_status` reads them at any time, also while it runs or after it was killed. Runs that no launcher
started have no such file: of them, the log tells as much as it can.
"""

from __future__ import annotations

import csv
import json
import math
import os
import re
import socket
import sys
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import psutil

from rlpyt.utils.logging.runs import RETURN_COLUMNS, STEPS_COLUMN, find_column, has_column
from rlpyt.utils.misc import atomic_write

EXPERIMENT = "experiment.json"
STATES = ("pending", "running", "finished", "failed", "interrupted")
_MARKED = STATES[1:]
_TAIL = 64 * 1024  # bytes at the end of a file that are read for its last lines


@dataclass(frozen=True)
class RunStatus:
    """One run of an experiment.

    Attributes:
        name: its directory, relative to that of the experiment.
        run_dir: its directory.
        state: one of STATES. "pending" has not begun; "interrupted" was stopped from outside before its end.
        exit_code: of its process, as a shell gives it: 128 + n if signal n killed it; None if it has not ended, or is not known.
        steps: environment steps in the last row of its log, or None.
        n_steps: environment steps that it is to have in the end, or None if it does not say.
        return_: average return (for Atari, game score) in the last row of its log that has one, or None.
        seconds: how long it has run, in its last attempt, or None.
        age: seconds since the last row of its log, or None.
        error: last line of what it said when it failed, or None.
    """

    name: str
    run_dir: Path
    state: str
    exit_code: int | None = None
    steps: int | None = None
    n_steps: int | None = None
    return_: float | None = None
    seconds: float | None = None
    age: float | None = None
    error: str | None = None


# --- The state of a run ------------------------------------------------------------------------------------------------
def mark(run_dir: str | os.PathLike, state: str, **facts: Any) -> None:
    """Write that a run is in `state`, with some facts (what JSON can hold), in place of what was written so before."""
    with atomic_write(_mark_file(run_dir, state), "w", encoding="utf-8") as file:
        json.dump(facts, file, indent=2)
        file.write("\n")
    for other in _MARKED:
        if other != state:
            _mark_file(run_dir, other).unlink(missing_ok=True)


def read_mark(run_dir: str | os.PathLike) -> tuple[str, dict]:
    """Return the state that is written in the directory of a run, with its facts; "pending", if there is none.

    A run is "interrupted" if it is marked as running, but its process does not exist any more.
    """
    files = {}
    for state in _MARKED:
        with suppress(FileNotFoundError):
            files[_mark_file(run_dir, state).stat().st_mtime_ns] = state
    for _, state in sorted(files.items(), reverse=True):  # A crash between the two steps of `mark` leaves two: the newest counts.
        with suppress(FileNotFoundError):  # It may have been replaced just now.
            facts = _read_json(_mark_file(run_dir, state))
            return ("interrupted" if state == "running" and not is_alive(facts) else state), facts
    return "pending", {}


def identity(pid: int) -> dict:
    """Facts by which `is_alive` recognises a process: its number alone may come back."""
    return dict(host=socket.gethostname(), pid=pid, process_start=psutil.Process(pid).create_time())


def is_alive(facts: Mapping) -> bool:
    """Whether the process of that `identity` exists, as far as can be seen: on another host, it is believed to."""
    if facts.get("host", socket.gethostname()) != socket.gethostname():
        return True
    try:
        process = psutil.Process(facts["pid"])
        return abs(process.create_time() - facts["process_start"]) < 1.0 and process.status() != psutil.STATUS_ZOMBIE
    except (psutil.Error, KeyError, TypeError, ValueError):
        return False


def _mark_file(run_dir: str | os.PathLike, state: str) -> Path:
    return Path(run_dir, f"{state.upper()}.json")


def _read_json(path: Path) -> dict:
    """The dictionary in a file; an empty one if it holds something else."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


def run_status(run_dir: str | os.PathLike, exp_dir: str | os.PathLike | None = None) -> RunStatus:
    """Return the state of one run; its name is relative to `exp_dir`, default the directory above."""
    run_dir = Path(run_dir)
    state, facts = read_mark(run_dir)
    if state == "pending":
        state = _state_by_log(run_dir)
    row, age = last_row(run_dir)
    seconds = facts.get("seconds")
    if state == "running" and "started" in facts:
        seconds = max(time.time() - facts["started"], 0.0)
    steps = value(row, STEPS_COLUMN)
    return RunStatus(
        name=os.path.relpath(run_dir, exp_dir or run_dir.parent),
        run_dir=run_dir,
        state=state,
        exit_code=facts.get("exit_code"),
        steps=None if steps is None else int(steps),
        n_steps=_planned_steps(run_dir),
        return_=value(row, *RETURN_COLUMNS),
        seconds=seconds,
        age=age,
        error=facts.get("error") or (_last_word(run_dir) if state == "failed" else None),
    )


def value(row: Mapping[str, float], *names: str) -> float | None:
    """Return the first of some columns that a row has, see `find_column`; None if it has none."""
    return row[find_column(row, *names)] if has_column(row, *names) else None


def last_row(run_dir: str | os.PathLike) -> tuple[dict[str, float], float | None]:
    """Return the finite numbers in the last complete row of progress.csv by column, and how many seconds ago it was written.

    An empty dictionary and None, if there is no row.
    """
    path = Path(run_dir, "progress.csv")
    try:
        with open(path, "rb") as file:
            header = file.readline().decode("utf-8", "replace")
            start = file.tell()
            size = file.seek(0, os.SEEK_END)
            file.seek(max(start, size - _TAIL))
            lines = file.read().decode("utf-8", "replace").split("\n")[:-1]  # What follows the last line's end is not complete.
            age = max(time.time() - os.fstat(file.fileno()).st_mtime, 0.0)
    except OSError:
        return {}, None
    if not lines:
        return {}, None
    names, values = next(csv.reader([header]), []), next(csv.reader([lines[-1]]), [])
    row = {}
    for name, text in zip(names, values):
        with suppress(ValueError):
            row[name] = float(text)
    return {name: value for name, value in row.items() if math.isfinite(value)}, age


def last_lines(path: str | os.PathLike, n: int, start: int = 0) -> list[str]:
    """Return the last `n` lines of a text file after its first `start` bytes, as far as they are in its last 64 KiB; [] without a file."""
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(start, size - _TAIL))
            return file.read().decode("utf-8", "replace").splitlines()[-n:]
    except OSError:
        return []


def _planned_steps(run_dir: Path) -> int | None:
    with suppress(OSError, KeyError, TypeError, ValueError):
        return int(_read_json(run_dir / "params.json")["runner"]["n_steps"])
    return None


def _state_by_log(run_dir: Path) -> str:
    """The state of a run that has no mark."""
    if not (run_dir / "debug.log").exists() and not (run_dir / "progress.csv").exists():
        return "pending"
    if _is_locked(run_dir):
        return "running"
    if says_complete(run_dir):
        return "finished"
    tail = last_lines(run_dir / "debug.log", 100)
    return "failed" if any(line.startswith("Traceback (most recent call last)") for line in tail) else "interrupted"


def _last_word(run_dir: Path) -> str | None:
    """The last line of the log, which after a traceback is the error."""
    lines = [line for line in last_lines(run_dir / "debug.log", 100) if line.strip()]
    return lines[-1] if lines else None


def says_complete(run_dir: str | os.PathLike) -> bool:
    """Whether the last line of a run's log is the runner's last one."""
    return any(line.endswith("Training complete.") for line in last_lines(Path(run_dir, "debug.log"), 1))


def _is_locked(run_dir: Path) -> bool:
    """Whether `logger_context` of some process holds the directory, as far as the system tells; nothing is locked to find out."""
    try:
        locks = Path("/proc/locks").read_text()
        status = os.stat(run_dir)
    except OSError:
        return False
    directory = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    return re.search(rf"FLOCK .* {directory} ", locks) is not None


# --- The state of an experiment ----------------------------------------------------------------------------------------
def experiment_status(exp_dir: str | os.PathLike) -> list[RunStatus]:
    """Return the state of every run in a directory and below: those that experiments there are to have, and all others.

    Raises:
        FileNotFoundError: there is no such directory.
    """
    exp_dir = Path(exp_dir)
    if not exp_dir.is_dir():
        raise FileNotFoundError(f"{exp_dir} is not a directory: give that of an experiment, or one with several.")
    if exp_dir.name.startswith("run_") and _is_run(exp_dir):
        return [run_status(exp_dir)]
    run_dirs: dict[Path, None] = {}
    for place, directories, files in os.walk(exp_dir):
        if EXPERIMENT in files:
            run_dirs.update(dict.fromkeys(planned_run_dirs(place)))
        found = [name for name in sorted(directories) if name.startswith("run_") and _is_run(Path(place, name))]
        run_dirs.update((Path(place, name), None) for name in found)
        directories[:] = sorted(set(directories) - set(found))
    return [run_status(run_dir, exp_dir) for run_dir in run_dirs]


def planned_run_dirs(exp_dir: str | os.PathLike) -> list[Path]:
    """Return the directories of the runs that the experiment in `exp_dir` is to have, in the order they are launched."""
    asked = _read_json(Path(exp_dir, EXPERIMENT))
    n_runs, log_dirs = asked.get("runs_per_setting", 0), asked.get("log_dirs", [])
    return [Path(exp_dir, log_dir, f"run_{run_ID}") for run_ID in range(n_runs) for log_dir in log_dirs]


def _is_run(directory: Path) -> bool:
    names = {"progress.csv", "params.json", "debug.log", *(f"{state.upper()}.json" for state in _MARKED)}
    return any((directory / name).exists() for name in names)


def print_status(exp_dir: str | os.PathLike, file: TextIO | None = None) -> list[RunStatus]:
    """Print a table of all runs in a directory and below, with a line that counts them; return their states."""
    runs = experiment_status(exp_dir)
    print(format_status(runs), file=file or sys.stdout)
    return runs


def format_status(runs: Iterable[RunStatus]) -> str:
    """Return a table of runs, a summary, and what those that failed said."""
    runs = list(runs)
    if not runs:
        return "There are no runs."
    header = ("run", "status", "exit code", "steps", "return", "time", "last row", "log")
    rows = [
        (
            run.name,
            run.state,
            "" if run.exit_code is None else str(run.exit_code),
            format_progress(run),
            "" if run.return_ is None else f"{run.return_:.4g}",
            format_seconds(run.seconds),
            "" if run.age is None or run.state != "running" else f"{format_seconds(run.age)} ago",
            str(run.run_dir),
        )
        for run in runs
    ]
    shown = [i for i in range(len(header)) if any(row[i] for row in rows)]
    widths = {i: max(len(row[i]) for row in (header, *rows)) for i in shown}
    right = {2, 3, 4, 5, 6}
    table = [
        "  ".join(row[i].rjust(widths[i]) if i in right else row[i].ljust(widths[i]) for i in shown).rstrip() for row in (header, *rows)
    ]
    table.insert(1, "  ".join("-" * widths[i] for i in shown))
    lines = [*table, "", f"{count_states(runs)}."]
    lines += [f"{run.name}: {run.error}" for run in runs if run.state == "failed" and run.error]
    return "\n".join(lines)


def count_states(runs: Iterable[RunStatus]) -> str:
    """"8 runs: 5 finished, 2 running, 1 pending"."""
    states = [run.state for run in runs]
    counts = ", ".join(f"{states.count(state)} {state}" for state in STATES if state in states)
    return f"{len(states)} run{'s' * (len(states) != 1)}: {counts or 'none'}"


def format_progress(run: RunStatus, unit: str = "") -> str:
    """"20,000 steps (40%)": environment steps with their unit, and their part of those planned, if there is more to come."""
    if run.steps is None:
        return ""
    part = f" ({100 * run.steps // run.n_steps}%)" if run.n_steps and run.state != "finished" else ""
    return f"{run.steps:,}{unit}{part}"


def format_seconds(seconds: float | None) -> str:
    """A duration in the two units that fit it; "" for None."""
    if seconds is None:
        return ""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, hours, days = seconds / 60, seconds / 3600, seconds / 86400
    if minutes < 60:
        return f"{int(minutes)} min {int(seconds % 60)} s"
    return f"{int(hours)} h {int(minutes % 60)} min" if days < 1 else f"{int(days)} d {int(hours % 24)} h"
