"""The state of every run of an experiment, from the files in its directory.

    <exp_dir>/experiment.json              arguments of the launch, written before the runs start
             /experiments_tree.txt         the directories of all runs as a tree
             /num_launched.txt
             /<log_dir>/variant_config.json
             /<log_dir>/run_<ID>/          the files that the run writes, and
                                /stdout.log, stderr.log
                                /RUNNING.json, or FINISHED.json, PAUSED.json, FAILED.json, INTERRUPTED.json: one of them

The launcher writes these files, and touches RUNNING.json each second. `experiment_status` reads them at any time, even while the launcher
runs or after it was killed. Runs without a launcher have no such mark: their state is inferred from the log.

A run has finished if its process ended with exit code 0, and the last line of its debug.log says that training or the log is complete.
For a script that keeps no debug.log in its directory, only the exit code counts.
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
import re
import signal
import socket
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, TextIO

import psutil

from rlpyt.utils.logging.context import COMPLETE, EXITS_BY_SIGNAL, RUN_COMPLETE
from rlpyt.utils.logging.logger import try_to_write
from rlpyt.utils.logging.runs import RECORD, RETURN_COLUMNS, STEPS_COLUMN, TIME_COLUMN, value, walk
from rlpyt.utils.misc import atomic_write
from rlpyt.utils.text import format_seconds, plural, printable, show, table, traceback_of

EXPERIMENT = "experiment.json"
SNAPSHOT_MISSING = "The last snapshot could not be saved"  # How the error of a run begins whose training is not lost, once there is room.
STATES = ("pending", "running", "paused", "finished", "failed", "interrupted")
_MARKED = STATES[1:]
REFRESH = 1.0  # seconds between two touches of the mark of a running run
_STALE = 60.0  # seconds without a touch after which a run on another host counts as interrupted
_MOST_RUNS = 100_000  # per variant
_TAIL = 64 * 1024  # bytes at the end of a file that are read for its last lines
_MAX_LINES, _MAX_LINE = 200, 1000  # lines kept of a run's output, and characters of each line
_TRACEBACK = "Traceback (most recent call last)"
_EXCEPTION = re.compile(r"[A-Za-z_][\w.<>]*(:( .*)?)?$")  # "ValueError: what went wrong", or a name alone
_PLACE = re.compile(r"This was (in|when) ")  # How notes begin that `rlpyt.samplers.workers.describe_failure` gets.


@dataclass(frozen=True)
class RunStatus:
    """One run of an experiment.

    Attributes:
        name: its directory, relative to that of the experiment.
        run_dir: its directory.
        state: one of STATES. "pending" has not begun; "paused" is a run of a search that has reached its
            rung; "interrupted" was stopped from outside before its end.
        exit_code: exit code of its process in a shell's form, 128 + n if signal n killed it; None if it is still running, or unknown.
        steps: environment steps in the last row of its log, or None.
        n_steps: environment steps planned for the whole run, or None if unknown.
        return_: average return (for Atari, game score) in the last row of its log, or None.
        seconds: duration by its log, which continues in a resumed run, or of its last attempt, if longer; or None.
        age: seconds since the last row of its log, or None.
        error: the error of a failed run, in one line, or None.
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
    """Mark a run as in `state`, with facts in types of JSON; replaces its earlier mark."""
    with atomic_write(_mark_file(run_dir, state), "w", encoding="utf-8") as file:
        json.dump(facts, file, indent=2)
        file.write("\n")
    for other in _MARKED:
        if other != state:
            _mark_file(run_dir, other).unlink(missing_ok=True)


def read_mark(run_dir: str | os.PathLike) -> tuple[str, dict]:
    """Return the state and facts in the mark of a run; "pending" without a mark.

    A run marked as running is "interrupted" if its process has ended. On another host, it is if its mark has not been touched for a
    minute.
    """
    files = {}
    for state in _MARKED:
        with suppress(FileNotFoundError):
            files[_mark_file(run_dir, state).stat().st_mtime_ns] = state
    for touched, state in sorted(files.items(), reverse=True):  # A crash inside `mark` may leave two marks: the newest counts.
        with suppress(FileNotFoundError):  # The mark may have been replaced just now.
            facts = _read_json(_mark_file(run_dir, state))
            is_over = state == "running" and not is_alive(facts, time.time() - touched / 1e9)
            return ("interrupted" if is_over else state), facts
    return "pending", {}


def touch(run_dir: str | os.PathLike) -> None:
    """Touch the mark of a running run, to tell other hosts that it is still running."""
    with suppress(OSError):
        os.utime(_mark_file(run_dir, "running"))


@contextmanager
def marked(run_dir: str | os.PathLike) -> Iterator[None]:
    """Update the mark of a run, if it has one, while this process resumes the run without a launcher."""
    if read_mark(run_dir)[0] == "pending":
        yield
        return
    started, is_over = time.time(), threading.Event()

    def write(state: str, **facts: Any) -> None:
        facts.update(started=started, seconds=round(time.time() - started, 3))
        try_to_write(str(run_dir), lambda: mark(run_dir, state, **facts))

    def keep_touching() -> None:
        while not is_over.wait(REFRESH):
            touch(run_dir)

    toucher = threading.Thread(target=keep_touching, daemon=True)
    write("running", **identity(os.getpid()))
    toucher.start()
    end: tuple[str, dict[str, Any]] = ("interrupted", dict(exit_code=None))
    try:
        yield
        end = ("finished", dict(exit_code=0))
    except KeyboardInterrupt:
        end = ("interrupted", dict(exit_code=128 + signal.SIGINT))
        raise
    except BaseException as error:
        if isinstance(error, SystemExit) and error.code in EXITS_BY_SIGNAL:
            end = ("interrupted", dict(exit_code=error.code))
            raise
        lines = traceback_of(error).splitlines()
        end = ("failed", dict(exit_code=1, error=error_in(lines), traceback=both_ends(lines)))
        raise
    finally:
        is_over.set()
        toucher.join()
        write(end[0], **end[1])


def identity(pid: int) -> dict:
    """Facts by which `is_alive` recognises a process: the system may reuse its number."""
    return dict(host=socket.gethostname(), pid=pid, process_start=psutil.Process(pid).create_time())


def is_alive(facts: Mapping, untouched: float = 0.0) -> bool:
    """Whether the process with this `identity` exists; on another host, whether its mark has been touched within a minute.

    Args:
        facts: facts of the mark, with the identity.
        untouched: seconds since the mark was touched.
    """
    if facts.get("host", socket.gethostname()) != socket.gethostname():
        return untouched < _STALE
    try:
        process = psutil.Process(facts["pid"])
        return abs(process.create_time() - facts["process_start"]) < 1.0 and process.status() != psutil.STATUS_ZOMBIE
    except (psutil.Error, KeyError, TypeError, ValueError):
        return False


def _mark_file(run_dir: str | os.PathLike, state: str) -> Path:
    return Path(run_dir, f"{state.upper()}.json")


def _read_json(path: Path) -> dict:
    """Return the dictionary in a file; an empty one if it contains something else."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _number(facts: Mapping, name: str) -> float | None:
    """Return a finite number in the mark of a run; None if it is missing or damaged."""
    number = facts.get(name)
    if not isinstance(number, (int, float)) or isinstance(number, bool) or not math.isfinite(number):
        return None
    return float(number)


def run_status(run_dir: str | os.PathLike, exp_dir: str | os.PathLike | None = None) -> RunStatus:
    """Return the state of one run; its name is relative to `exp_dir`, default the parent directory.

    A run whose directory is locked by a process is running, even if its mark says otherwise.
    """
    run_dir = Path(run_dir)
    state, facts = read_mark(run_dir)
    if state != "running" and _is_locked(run_dir):
        state, facts = "running", {}
    elif state == "pending":
        state = _state_by_log(run_dir)
    row, age = last_row(run_dir)
    seconds, started = _number(facts, "seconds"), _number(facts, "started")
    if state == "running" and started is not None:
        seconds = max(time.time() - started, 0.0)
    seconds = max((each for each in (seconds, value(row, TIME_COLUMN)) if each is not None), default=None)
    steps = value(row, STEPS_COLUMN)
    return RunStatus(
        name=os.path.relpath(run_dir, exp_dir or os.path.dirname(os.path.abspath(run_dir))),
        run_dir=run_dir,
        state=state,
        exit_code=facts.get("exit_code"),
        steps=None if steps is None else int(steps),
        n_steps=_planned_steps(run_dir),
        return_=value(row, *RETURN_COLUMNS),
        seconds=seconds,
        age=age,
        error=facts.get("error") or (error_in(last_lines(run_dir / "debug.log", 100)) if state == "failed" else None),
    )


def last_row(run_dir: str | os.PathLike) -> tuple[dict[str, float], float | None]:
    """Return the finite numbers in the last complete row of progress.csv by column, and the seconds since it was written.

    Without a row, return an empty dictionary and None.
    """
    path = Path(run_dir, "progress.csv")
    try:
        with open(path, "rb") as file:
            header = file.readline().decode("utf-8", "replace")
            start = file.tell()
            size = file.seek(0, os.SEEK_END)
            file.seek(max(start, size - _TAIL))
            lines = file.read().decode("utf-8", "replace").split("\n")[:-1]  # Text after the last newline is incomplete.
            age = max(time.time() - os.fstat(file.fileno()).st_mtime, 0.0)
    except OSError:
        return {}, None
    if not lines:
        return {}, None
    try:
        names, values = next(csv.reader([header]), []), next(csv.reader([lines[-1]]), [])
    except csv.Error:  # Not a CSV file.
        return {}, None
    row = {}
    for name, text in zip(names, values):
        with suppress(ValueError):
            row[name] = float(text)
    return {name: value for name, value in row.items() if math.isfinite(value)}, age


def last_lines(path: str | os.PathLike, n: int, start: int = 0) -> list[str]:
    """Return the last `n` lines within the last 64 KiB of a text file, without its first `start` bytes; [] without a file."""
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(start, size - _TAIL))
            return file.read().decode("utf-8", "replace").splitlines()[-n:]
    except OSError:
        return []


def _planned_steps(run_dir: Path) -> int | None:
    with suppress(OSError, LookupError, TypeError, ValueError, OverflowError):
        params = _read_json(run_dir / "params.json")
        return int(params[RECORD]["n_steps"] if RECORD in params else params["runner"]["n_steps"])
    return None


def _state_by_log(run_dir: Path) -> str:
    """The state of a run without a mark, inferred from its log."""
    if not (run_dir / "debug.log").exists() and not (run_dir / "progress.csv").exists():
        return "pending"
    if says_complete(run_dir):
        return "finished"
    tail = last_lines(run_dir / "debug.log", 100)
    has_failed = any(line.startswith(_TRACEBACK) for line in tail) and not (error_in(tail) or "").startswith("KeyboardInterrupt")
    return "failed" if has_failed else "interrupted"


# --- The output of a run -----------------------------------------------------------------------------------------------
def error_in(lines: Iterable[str]) -> str | None:
    """Return the exception of the last traceback, in its first line that is not indented; without one, the last line; or None.

    If one of its further lines says where it was raised, such as "This was in environment 2, ...", that follows.
    The lines of a traceback may have a prefix like "[rank0]: ". Tracebacks of exceptions that Python ignores do not count.
    """
    lines = [line.rstrip() for line in lines if line.strip()]
    error, prefix, of_error = None, None, None  # of_error: the prefix of the error's further lines, until its place is found.
    for before, line in zip(["", *lines], lines):
        if _TRACEBACK in line:
            prefix, of_error = None if before.startswith("Exception ignored") else line.partition(_TRACEBACK)[0], None
        elif prefix is not None and _EXCEPTION.match(line.removeprefix(prefix)):
            error, prefix, of_error = line.removeprefix(prefix), None, prefix
        elif of_error is not None and _PLACE.match(line.removeprefix(of_error)):
            error, of_error = f"{error} {line.removeprefix(of_error)}", None
    return error or (lines[-1].strip() if lines else None)


def from_first_traceback(path: str | os.PathLike, start: int = 0) -> list[str]:
    """Return `both_ends` of a text file from its first traceback on; without a traceback, its last lines; [] without a file.

    start: number of bytes at the beginning of the file to skip.
    """
    try:
        with open(path, "rb") as file:
            file.seek(start)
            lines = (line.rstrip("\n")[:_MAX_LINE] for line in io.TextIOWrapper(file, "utf-8", "replace"))
            before: deque[str] = deque(maxlen=_MAX_LINES // 2)
            for line in lines:
                if _TRACEBACK in line:
                    return both_ends(chain([line], lines))
                before.append(line)
            return list(before)
    except OSError:
        return []


def both_ends(lines: Iterable[str]) -> list[str]:
    """Return all lines if they are few, else the first and the last ones, and between them a line that says how many are left out."""
    lines, half = iter(lines), _MAX_LINES // 2
    last: deque[str] = deque(maxlen=half)
    first, left_out = list(islice(lines, half)), 0
    for line in lines:
        left_out += len(last) == half
        last.append(line)
    return [*first, *([f"... {plural(left_out, 'line')} left out ..."] if left_out else []), *last]


def says_complete(run_dir: str | os.PathLike) -> bool:
    """Whether the last line of a run's log says that training or the log is complete."""
    return any(line.endswith((COMPLETE, RUN_COMPLETE)) for line in last_lines(Path(run_dir, "debug.log"), 1))


def _is_locked(run_dir: Path) -> bool:
    """Whether the `logger_context` of a process locks the directory, if the system tells; the check itself locks nothing."""
    try:
        locks = Path("/proc/locks").read_text()
        status = os.stat(run_dir)
    except OSError:
        return False
    directory = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    return re.search(rf"FLOCK .* {directory} ", locks) is not None


# --- The state of an experiment ----------------------------------------------------------------------------------------
def experiment_status(exp_dir: str | os.PathLike) -> list[RunStatus]:
    """Return the state of every run in a directory and its subdirectories: the planned runs of experiments there, and all others.

    Other runs are directories run_<ID>, and directories of any name that `rlpyt.experiments.wrap.wrap_experiment` has made.

    Raises:
        FileNotFoundError: the directory does not exist.
    """
    exp_dir = Path(exp_dir)
    if not exp_dir.is_dir():
        raise FileNotFoundError(f"{exp_dir} is not a directory: give the directory of an experiment, or of several.")
    if _is_run(exp_dir):
        return [run_status(exp_dir)]
    run_dirs: dict[Path, None] = {}
    for place, directories, files in walk(exp_dir):
        if EXPERIMENT in files:
            run_dirs.update(dict.fromkeys(planned_run_dirs(place)))
        if _is_run(place):
            run_dirs[place] = None
            directories.clear()
    return [run_status(run_dir, exp_dir) for run_dir in run_dirs]


def planned_run_dirs(exp_dir: str | os.PathLike) -> list[Path]:
    """Return the directories of the planned runs of the experiment in `exp_dir`, in the order of launching."""
    asked = read_experiment(exp_dir)
    planned = planned_runs(asked.get("runs_per_setting", []))
    return [Path(exp_dir, asked["log_dirs"][i], f"run_{run_ID}") for i, run_ID in planned]


def read_experiment(exp_dir: str | os.PathLike) -> dict:
    """Return the contents of experiment.json in `exp_dir`, with a number of runs for each variant; {} if it is damaged."""
    asked = _read_json(Path(exp_dir, EXPERIMENT))
    log_dirs, n_runs = asked.get("log_dirs"), asked.get("runs_per_setting")
    if not (isinstance(log_dirs, list) and log_dirs and all(isinstance(log_dir, str) for log_dir in log_dirs)):
        return {}
    n_runs = n_runs if isinstance(n_runs, list) else [n_runs] * len(log_dirs)  # A single number is for all variants.
    if len(n_runs) != len(log_dirs) or not all(type(n) is int and 1 <= n <= _MOST_RUNS for n in n_runs):
        return {}
    places = [Path(os.path.normpath(log_dir)) for log_dir in log_dirs]
    if any(place.is_absolute() or os.pardir in place.parts or "\0" in str(place) for place in places):
        return {}  # `run_experiments` refuses such directories.
    return {**asked, "runs_per_setting": n_runs}


def planned_runs(runs_per_setting: Sequence[int]) -> list[tuple[int, int]]:
    """Return the number of the variant and the run_ID of each run, in the order of launching: first run 0 of all variants."""
    return [(i, run_ID) for run_ID in range(max(runs_per_setting, default=0)) for i, n in enumerate(runs_per_setting) if run_ID < n]


def is_wrapped(directory: Path) -> bool:
    """Whether `rlpyt.experiments.wrap.wrap_experiment` has made this directory."""
    return all((directory / name).exists() for name in ("variant.json", "metadata.json"))


def _is_run(directory: Path) -> bool:
    if not os.path.basename(os.path.abspath(directory)).startswith("run_"):
        return is_wrapped(directory)
    names = {"progress.csv", "params.json", "debug.log", *(f"{state.upper()}.json" for state in _MARKED)}
    return any((directory / name).exists() for name in names)


def print_status(exp_dir: str | os.PathLike, file: TextIO | None = None) -> list[RunStatus]:
    """Print a table of all runs in a directory and its subdirectories, with a line that counts them; return their states."""
    runs = experiment_status(exp_dir)
    show(format_status(runs), file)
    return runs


def format_status(runs: Iterable[RunStatus]) -> str:
    """Return a table of runs, a summary, and the errors of failed runs."""
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
    right = [column for column, i in enumerate(shown) if header[i] in ("exit code", "steps", "return", "time", "last row")]
    lines = [table([[row[i] for i in shown] for row in (header, *rows)], right, rule=True), "", f"{count_states(runs)}."]
    errors: dict[str, list[str]] = {}
    for run in runs:
        if run.state == "failed" and run.error:
            errors.setdefault(str(run.error), []).append(run.name)
    lines += [printable(f"{', '.join(names)}: {error}") for error, names in errors.items()]
    return "\n".join(lines)


def count_states(runs: Iterable[RunStatus]) -> str:
    """ "8 runs: 5 finished, 2 running, 1 pending"."""
    states = [run.state for run in runs]
    counts = ", ".join(f"{states.count(state)} {state}" for state in STATES if state in states)
    return f"{plural(len(states), 'run')}: {counts or 'none'}"


def format_progress(run: RunStatus, unit: str = "") -> str:
    """ "20,000 steps (40%)": environment steps with their unit, and unless the run has finished, their fraction of the planned ones."""
    if run.steps is None:
        return ""
    part = f" ({min(100 * run.steps // run.n_steps, 100)}%)" if run.n_steps and run.state != "finished" else ""
    return f"{run.steps:,}{unit}{part}"
