"""The log of a run: text lines, tables of diagnostics, snapshots, TensorBoard.

A module, so that any part of a program logs by importing it:

    logger.log("Starting")                               # 'time | prefixes Starting' to stdout and debug.log
    logger.record_tabular("Diagnostics/CumSteps", 1000)  # one value of the next row
    logger.record_tabular_misc_stat("Return", returns)   # five values: ReturnAverage, ReturnStd, ...
    logger.dump_tabular()                                # the row to progress.csv, stdout and TensorBoard
    logger.save_itr_params(itr, params)                  # params.pkl and/or itr_N.pkl
    logger.set_verbose(2)                                # show all lines and columns; files have them anyway

`rlpyt.utils.logging.context.logger_context` opens the files of a run. All state is in one object per run, so
settings of one run do not reach the next. No file stays open between calls. A full disk costs log lines and
snapshots, with a warning, but never ends the training run.
"""

import json
import os
import warnings
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from os import PathLike
from typing import Any

import numpy as np

from rlpyt.utils.extras import import_error
from rlpyt.utils.logging import console
from rlpyt.utils.logging.runs import STEPS_COLUMNS
from rlpyt.utils.logging.store import ByIteration, SnapshotStore
from rlpyt.utils.logging.tabular import STATS, CsvTable, TerminalTablePrinter, format_tabular
from rlpyt.utils.logging.writers import CompletedWriter, writes_for_wandb
from rlpyt.utils.misc import remove_stale_temporaries, write_json
from rlpyt.utils.settings import COUNT, Number, check_values
from rlpyt.utils.text import encodable, printable

SNAPSHOT_MODES = ByIteration.MODES
TF_STEPS = ("itr", "env_steps")
VERBOSE = Number(0, 2, whole=True)  # see `set_verbose`
_LARGEST_ARRAY_IN_JSON = 100  # elements; weights in a configuration are not for reading


@dataclass
class _State:
    """Everything the logger knows. Only the functions of this module read or write it."""

    in_run: bool = False  # the outputs belong to a logger_context
    disabled: bool = False
    tabular_disabled: bool = False
    log_tabular_only: bool = False
    verbose: int = 1
    disable_prefix: bool = False
    keeps_warnings: bool = False  # whether `keeping_warnings` is active
    iteration: int = 0
    prefixes: list[str] = field(default_factory=list)
    tabular_prefixes: list[str] = field(default_factory=list)
    row: dict[str, object] = field(default_factory=dict)  # recorded since the last dump
    details: set[str] = field(default_factory=set)  # columns of `row` that the short table leaves out
    text_outputs: list[str] = field(default_factory=list)  # absolute paths
    tabular_outputs: dict[str, CsvTable] = field(default_factory=dict)  # by absolute path
    held_outputs: dict[str, CsvTable] = field(default_factory=dict)
    earlier_rows: dict[str, int] = field(default_factory=dict)  # of tables that were added before this run
    warned: dict[str, str] = field(default_factory=dict)  # reported problems that last, e.g. path -> error
    keep: ByIteration = field(default_factory=ByIteration)  # which snapshots are kept
    snapshot_dir: str | None = None
    tf_summary_dir: str | None = None
    tf_summary_writer: Any = None
    tf_step: str = "itr"
    tf_columns: tuple[str, ...] = STEPS_COLUMNS
    env_steps: float | None = None  # the last value of a column in `tf_columns`
    table_printer: TerminalTablePrinter = field(default_factory=TerminalTablePrinter)

    def for_new_run(self) -> "_State":
        """Return the state of a new run: with the settings and manually added outputs, without anything of an enclosing run."""
        state = _State(
            in_run=True,
            disabled=self.disabled,
            tabular_disabled=self.tabular_disabled,
            log_tabular_only=self.log_tabular_only,
            verbose=self.verbose,
            disable_prefix=self.disable_prefix,
            keeps_warnings=self.keeps_warnings,
            prefixes=list(self.prefixes),
            tabular_prefixes=list(self.tabular_prefixes),
            keep=ByIteration(gap=self.keep.gap),
            tf_step=self.tf_step,
            tf_columns=self.tf_columns,
        )
        if not self.in_run:
            state.text_outputs = list(self.text_outputs)
            state.tabular_outputs = dict(self.tabular_outputs)
            state.held_outputs = dict(self.held_outputs)
            state.earlier_rows = {path: table.n_rows for path, table in {**self.held_outputs, **self.tabular_outputs}.items()}
            state.tf_summary_dir, state.tf_summary_writer = self.tf_summary_dir, self.tf_summary_writer
        return state


_state = _State()


@contextmanager
def new_run() -> Iterator[None]:
    """Context with a new log, which has the current settings; afterwards, the previous log is restored."""
    global _state
    outer, _state = _state, _state.for_new_run()
    try:
        yield
    finally:
        for path in _state.tabular_outputs:
            try_to_write(path, _state.tabular_outputs[path].write_pending)
        _state = outer


# Attributes of this module that are read from the state of the current run. Names with an underscore are variables of the original
# rlpyt, for programs that read them; to change them, call push_prefix, set_iteration, push_tabular_prefix.
_OF_PRESENT_RUN = {
    "table_printer": lambda: _state.table_printer,
    "_prefixes": lambda: list(_state.prefixes),
    "_prefix_str": lambda: "".join(_state.prefixes),
    "_iteration": lambda: _state.iteration,
    "_tabular_prefixes": lambda: list(_state.tabular_prefixes),
    "_tabular_prefix_str": lambda: "".join(_state.tabular_prefixes),
}


def __getattr__(name: str) -> Any:
    if name in _OF_PRESENT_RUN:
        return _OF_PRESENT_RUN[name]()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


# --- Switches ---------------------------------------------------------------------------------------------------------
def disable() -> None:
    """Neither print nor write text lines until `enable`."""
    _state.disabled = True


def enable() -> None:
    _state.disabled = False


def disable_tabular() -> None:
    """Neither show nor write tables until `enable_tabular`."""
    _state.tabular_disabled = True


def enable_tabular() -> None:
    _state.tabular_disabled = False


def set_log_tabular_only(log_tabular_only: bool) -> None:
    """True: show only one compact table on stdout, kept up to date. Files still get everything."""
    _state.log_tabular_only = log_tabular_only


def get_log_tabular_only() -> bool:
    return _state.log_tabular_only


def set_verbose(verbose: int) -> None:
    """Choose how much is shown on stdout.

    0: warnings, the progress of the run, and why it ends; 1 (the default): also events and short tables; 2: all lines and all columns.
    Text files always get all lines, and at least the short tables; CSV files, TensorBoard and Weights & Biases always get all columns.
    """
    check_values("set_verbose()", dict(verbose=verbose), dict(verbose=VERBOSE))
    _state.verbose = int(verbose)


def get_verbose() -> int:
    return _state.verbose


@contextmanager
def verbosity(verbose: int | None) -> Iterator[None]:
    """`set_verbose` for the block; None changes nothing."""
    state = _state
    before = state.verbose
    if verbose is not None:
        set_verbose(verbose)
    try:
        yield
    finally:
        state.verbose = before


def shows(level: int) -> bool:
    """Return whether stdout gets lines of this level; see `log`."""
    return level <= _state.verbose and not _state.disabled and not _state.log_tabular_only


def keeps_nothing() -> bool:
    """Return whether neither the log nor snapshots go to files."""
    return not (_state.text_outputs or _state.tabular_outputs or _state.snapshot_dir)


def set_disable_prefix(disable_prefix: bool) -> None:
    """True: text lines are written without the pushed prefixes."""
    _state.disable_prefix = disable_prefix


def get_disable_prefix() -> bool:
    return _state.disable_prefix


def set_iteration(iteration: int) -> None:
    """Set the step of TensorBoard's points (see `set_tf_step`)."""
    _state.iteration = iteration


def log_settings() -> dict[str, Any]:
    """Return how this log is kept, as arguments of `rlpyt.utils.logging.context.logger_context`."""
    return dict(
        snapshot_mode=_state.keep.mode,
        snapshot_gap=_state.keep.gap,
        use_summary_writer=_state.tf_summary_dir is not None,
        tf_step=_state.tf_step,
        use_wandb=writes_for_wandb(_state.tf_summary_writer),
    )


# --- Text -------------------------------------------------------------------------------------------------------------
def log(s: object, with_prefix: bool = True, with_timestamp: bool = True, color: str | None = None, level: int = 1) -> None:
    """Print the line 'timestamp | prefixes s' and append it to the text outputs.

    Args:
        color: color of the line on a terminal, a key of `console.color2num`.
        level: lowest `set_verbose` at which the line is printed; text outputs get every line.
    """
    if _state.disabled:
        return
    line = str(s)
    if with_prefix and not _state.disable_prefix:
        line = "".join(_state.prefixes) + line
    if with_timestamp:
        line = f"{datetime.now().isoformat(sep=' ', timespec='milliseconds')} | {line}"
    if shows(level):
        shown = console.colorize(line, color) if color is not None and console.is_terminal() else line
        try_to_write("stdout", lambda: console.log(shown))
    write_text(line)


def show(s: object) -> None:
    """Print a line as it is, without writing it to the text outputs: for lines that are useful only on the screen."""
    if shows(1):
        try_to_write("stdout", lambda: console.log(s))


def warn(s: object) -> None:
    """Log a line that should not be overlooked."""
    log(f"WARNING: {s}", color="yellow", level=0)


def _warn_once(trouble: str, s: object) -> None:
    if trouble not in _state.warned:
        _state.warned[trouble] = str(s)  # before the warning, which may run into the same trouble
        warn(s)


def write_text(text: str) -> None:
    """Append `text` to the text outputs, without printing it."""
    for path in _state.text_outputs:
        try_to_write(path, lambda path=path: _append_line(path, text))


@contextmanager
def keeping_warnings() -> Iterator[None]:
    """Within this context, `write_text` the warnings of Python that are shown, which are shown as before.

    Warnings that `warnings.catch_warnings` records are not shown. Within itself, the context changes nothing: the warnings of the inner
    run are written to its log.
    """
    if _state.keeps_warnings:
        yield
        return
    before, is_open = warnings.showwarning, True

    def show_and_keep(message: Any, category: Any, filename: Any, lineno: Any, file: Any = None, line: Any = None) -> None:
        before(message, category, filename, lineno, file, line)
        if is_open and file is None:  # Afterwards, another function that took its place may still call it.
            write_text(warnings.formatwarning(message, category, filename, lineno, line).rstrip("\n"))

    state = _state
    state.keeps_warnings = True
    setattr(warnings, "showwarning", show_and_keep)  # For mypy, a function is not a variable.  # noqa: B010
    try:
        yield
    finally:
        is_open = state.keeps_warnings = False
        if warnings.showwarning is show_and_keep:
            setattr(warnings, "showwarning", before)  # noqa: B010


def _append_line(path: str, text: str) -> None:
    with open(path, "a", encoding="utf-8", errors="backslashreplace") as file:
        file.write(f"{text}\n")


def add_text_output(file_name: str | os.PathLike) -> None:
    """Append text lines to this file, too; the file and its directory are made if necessary."""
    path = os.path.abspath(file_name)
    console.mkdir_p(os.path.dirname(path))
    open(path, "a").close()  # fails now rather than at the first line
    if path not in _state.text_outputs:
        _state.text_outputs.append(path)


def remove_text_output(file_name: str | os.PathLike) -> None:
    """Stop appending text lines to this file."""
    path = os.path.abspath(file_name)
    if path not in _state.text_outputs:
        raise ValueError(f"{path} is not a text output: there are {_state.text_outputs}.")
    _state.text_outputs.remove(path)


def push_prefix(prefix: str) -> None:
    """Put `prefix` (bring your own space) before all text lines, after the existing prefixes."""
    _state.prefixes.append(prefix)


def pop_prefix() -> None:
    """Remove the latest prefix."""
    _pop(_state.prefixes, "push_prefix")


@contextmanager
def prefix(key: str) -> Iterator[None]:
    """push_prefix(key) for the block."""
    state = _state  # pop from the same log, even if another run has begun meanwhile
    state.prefixes.append(key)
    try:
        yield
    finally:
        state.prefixes.pop()


# --- Tables -----------------------------------------------------------------------------------------------------------
def record_tabular(key: str, val: Any, *args: object, detail: bool = False, **kwargs: object) -> None:
    """Set one value of the next row, under the tabular prefixes + key; a later value replaces an earlier one.

    Args:
        val: a number (of Python, numpy or torch), a string, or None for "not available".
        detail: whether the short table leaves the value out; `set_verbose(2)` shows the full table instead.
        args, kwargs: ignored.
    """
    key = "".join(_state.tabular_prefixes) + key
    _state.row[key] = _plain(key, val)
    (_state.details.add if detail else _state.details.discard)(key)


def record_tabular_misc_stat(key: str, values: Any, placement: str = "back", detail: bool = False) -> None:
    """Record average, standard deviation, median, minimum and maximum of `values`; all NaN if it is empty.

    Columns are called ReturnAverage, ... (or AverageReturn, ... with placement="front"). While a TensorBoard writer is set, they are called
    Return/Average, ... (Average/Return, ...), which TensorBoard shows as one group.

    Args:
        values: a number, an array, or a list of numbers or arrays (each entry counts).
        detail: as in `record_tabular`.
    """
    if placement not in ("back", "front"):
        raise ValueError(f"placement={placement!r} must be 'back' or 'front'.")
    slash = "/" if _state.tf_summary_writer is not None else ""
    for stat, value in zip(STATS, _statistics(values), strict=True):
        record_tabular(f"{key}{slash}{stat}" if placement == "back" else f"{stat}{slash}{key}", value, detail=detail)


def _statistics(values: Any) -> tuple[float, ...]:
    if isinstance(values, (list, tuple)):
        values = [value for value in values if value is not None]
        if not all(type(value) is float for value in values):
            values = np.concatenate([np.ravel(value) for value in values])
    values = np.asarray(() if values is None else values, dtype=np.float64)
    if values.size == 0:
        return (float("nan"),) * len(STATS)
    with np.errstate(all="ignore"):  # the standard deviation of infinite values is NaN
        return tuple(float(stat(values)) for stat in (np.mean, np.std, np.median, np.min, np.max))


def _plain(key: str, value: Any) -> object:
    if hasattr(value, "item"):  # numpy and torch
        if np.prod(value.shape) != 1:
            raise ValueError(
                f"{key} has shape {tuple(value.shape)}: record_tabular takes one value, and "
                "record_tabular_misc_stat the statistics of many."
            )
        return value.item()
    return float("nan") if value is None else value


def dump_tabular(with_prefix: bool = False, with_timestamp: bool = False, color: str | None = None) -> dict[str, Any]:
    """End the row: append it to the tabular outputs, log it as a table, send its numbers to TensorBoard; return it.

    The arguments are passed on to `log` for every line of the table. The table has the details only if `set_verbose` is 2.
    """
    row, _state.row = _state.row, {}
    details, _state.details = _state.details, set()
    if not row or _state.tabular_disabled:
        return row
    for path, table in list(_state.tabular_outputs.items()):
        try_to_write(path, lambda table=table: table.write(row))
    shown = {key: value for key, value in row.items() if _state.verbose >= 2 or key not in details}
    for line in format_tabular(shown) if shown else ():
        log(line, with_prefix, with_timestamp, color)
    if _state.log_tabular_only and not _state.disabled:
        try_to_write("stdout", lambda: _state.table_printer.print_tabular(row))
    _write_tf_summary(row)
    return row


def add_tabular_output(file_name: str | os.PathLike) -> None:
    """Also write rows to this CSV file. An existing file is kept under another name (see `move_aside`).

    A file on hold (see `hold_tabular_output`) is continued.
    """
    path = os.path.abspath(file_name)
    if path in _state.tabular_outputs:
        return
    if path in _state.held_outputs:
        _state.tabular_outputs[path] = _state.held_outputs.pop(path)
        return
    move_aside([path])
    _state.tabular_outputs[path] = CsvTable(path)


def remove_tabular_output(file_name: str | os.PathLike) -> None:
    """Stop writing rows to this file, for good."""
    table = _tabular_output(file_name)
    try_to_write(table.path, table.write_pending)
    del _state.tabular_outputs[table.path]


def hold_tabular_output(file_name: str | os.PathLike) -> None:
    """Stop writing rows to this file until `add_tabular_output` continues it."""
    table = _tabular_output(file_name)
    _state.held_outputs[table.path] = _state.tabular_outputs.pop(table.path)


def n_rows() -> int:
    """Return the number of rows in the tables of this run, without rows that could not be written."""
    return max((table.n_rows - _state.earlier_rows.get(path, 0) for path, table in _state.tabular_outputs.items()), default=0)


def continue_rows(path: str | os.PathLike, n: int) -> None:
    """Begin the still empty tables of this run with the first `n` rows of the CSV file of the run that it continues.

    Tables that a user added earlier have rows of other runs, which stay.
    """
    if n and not os.path.exists(path):
        warn(f"{path} is missing: the table of this run begins with the resumed part.")
        return
    for table in _state.tabular_outputs.values():
        if table.n_rows:
            continue
        is_written = try_to_write(table.path, lambda table=table: table.continue_from(path, n))
        if is_written and table.n_rows < n:
            warn(f"{path} has only {table.n_rows} of the {n} rows that were written before the snapshot: the others are lost.")


def _tabular_output(file_name: str | os.PathLike) -> CsvTable:
    path = os.path.abspath(file_name)
    if path not in _state.tabular_outputs:
        raise ValueError(f"{path} is not a tabular output: there are {list(_state.tabular_outputs)}.")
    return _state.tabular_outputs[path]


def move_aside(paths: Iterable[str | os.PathLike]) -> None:
    """Rename the existing ones of these files, `progress.csv` to `progress.1.csv`, with the first number that is free for all."""
    paths = [path for path in paths if os.path.exists(path)]
    if not paths:
        return
    number = 1
    while any(os.path.exists(_numbered(path, number)) for path in paths):
        number += 1
    for path in paths:
        os.rename(path, _numbered(path, number))
    names = ", ".join(os.path.basename(_numbered(path, number)) for path in paths)
    log(f"Kept the earlier files in {printable(os.path.dirname(paths[0]))} as {names}")


def _numbered(path: str | os.PathLike, number: int) -> str:
    stem, extension = os.path.splitext(path)
    return f"{stem}.{number}{extension}"


def push_tabular_prefix(key: str) -> None:
    """Put `key` (bring your own slash) before the names of all columns recorded from now on."""
    _state.tabular_prefixes.append(key)


def pop_tabular_prefix() -> None:
    """Remove the latest tabular prefix."""
    _pop(_state.tabular_prefixes, "push_tabular_prefix")


@contextmanager
def tabular_prefix(key: str) -> Iterator[None]:
    """push_tabular_prefix(key) for the block."""
    state = _state
    state.tabular_prefixes.append(key)
    try:
        yield
    finally:
        state.tabular_prefixes.pop()


def _pop(stack: list[str], push: str) -> None:
    if not stack:
        raise IndexError(f"There is no prefix left to pop: every pop needs a {push} before it.")
    stack.pop()


# --- TensorBoard ------------------------------------------------------------------------------------------------------
def set_tf_summary_dir(dir_name: str | os.PathLike | None) -> None:
    """Set the directory of TensorBoard's files; `set_tf_summary_writer` sets the writer."""
    _state.tf_summary_dir = None if dir_name is None else os.path.abspath(dir_name)


def get_tf_summary_dir() -> str | None:
    return _state.tf_summary_dir


def set_tf_summary_writer(writer_name: Any) -> None:
    """Send the numbers of every row to this writer: a SummaryWriter, another object with its add_scalar, or None."""
    _state.tf_summary_writer = writer_name


def get_tf_summary_writer() -> Any:
    return _state.tf_summary_writer


def get_tf_summary_writer_class() -> type:
    """Return torch.utils.tensorboard.SummaryWriter; without it, raise an ImportError that says what to install."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise import_error("use_summary_writer needs", None, error) from error
    return SummaryWriter


def set_tf_step(step: str, columns: Sequence[str] = STEPS_COLUMNS) -> None:
    """Choose the x-axis of TensorBoard: "itr" (see `set_iteration`), or "env_steps", a column of the rows.

    Args:
        columns: possible names of this column, each with any prefix. A row without it is plotted at its last recorded value.
    """
    if step not in TF_STEPS:
        raise ValueError(f"tf_step={step!r} is unknown: choose 'itr' or 'env_steps'.")
    _state.tf_step, _state.tf_columns = step, tuple(columns)


def get_tf_step() -> str:
    return _state.tf_step


def _write_tf_summary(row: Mapping) -> None:
    for key, value in row.items():
        if key in _state.tf_columns or key.rpartition("/")[2] in _state.tf_columns:
            _state.env_steps = value
    if _state.tf_summary_writer is None:
        return
    step: float = _state.iteration
    if _state.tf_step == "env_steps":
        if _state.env_steps is None:
            column = " or ".join(_state.tf_columns)
            _warn_once(
                "tf_columns",
                f"TensorBoard is to count environment steps, but no {column} has been "
                "recorded: TensorBoard does not show rows before the first one.",
            )
            return
        step = _state.env_steps
    try_to_write("TensorBoard's files", lambda: _add_scalars(_state.tf_summary_writer, row, step))


def _add_scalars(writer: Any, row: Mapping, step: float) -> None:
    for key, value in row.items():
        if isinstance(value, (int, float)):
            writer.add_scalar(encodable(key), value, step)
    CompletedWriter(writer).flush()


# --- Snapshots --------------------------------------------------------------------------------------------------------
def set_snapshot_dir(dir_name: PathLike | str | None) -> None:
    """Save the snapshots of a new run in this directory, and remove unfinished files of killed processes there. None: save none."""
    if dir_name is not None:
        dir_name = os.path.abspath(dir_name)
        console.mkdir_p(dir_name)
        remove_stale_temporaries(dir_name)
    _state.snapshot_dir, _state.keep = dir_name, ByIteration(_state.keep.mode, _state.keep.gap)


def get_snapshot_dir() -> str | None:
    return _state.snapshot_dir


def set_snapshot_mode(mode: str) -> None:
    """Choose which snapshots are kept.

    "none"; "last": params.pkl, overwritten; "all": itr_N.pkl; "gap": itr_N.pkl at iteration 0 and after every further
    `set_snapshot_gap` iterations; "last+gap": both; "best": params.pkl, and best.pkl, the one with the highest score.
    """
    _state.keep.mode = check_snapshot_mode(mode)


def check_snapshot_mode(mode: str) -> str:
    if mode not in SNAPSHOT_MODES:
        raise ValueError(f"snapshot_mode={mode!r} is unknown: choose one of {', '.join(SNAPSHOT_MODES)}.")
    return mode


def get_snapshot_mode() -> str:
    return _state.keep.mode


def set_snapshot_gap(gap: int) -> None:
    """Set the number of iterations between the snapshots of the "gap" modes."""
    check_values("set_snapshot_gap()", dict(snapshot_gap=gap), dict(snapshot_gap=COUNT))
    _state.keep.gap = gap


def get_snapshot_gap() -> int:
    return _state.keep.gap


def is_snapshot_due(itr: int, force: bool = False) -> bool:
    """Return whether `save_itr_params` would save anything now."""
    return _store().is_due(itr, force)


def _store() -> SnapshotStore:
    return SnapshotStore(_state.keep, _state.snapshot_dir)


def save_itr_params(
    itr: int, params: Any, force: bool = False, score: float | None = None, only_in_best: Mapping[str, Any] | None = None
) -> bool:
    """Save `params` as the snapshot of iteration itr, in the files of the snapshot mode, if any; return whether all are on the disk.

    Files are complete at any time: a new one replaces the old one when it is safely on the disk. The old `params.pkl` stays as
    params_previous.pkl. If the new one cannot be written, a warning is logged, and the old one stays; the next call tries again.

    Args:
        params: dicts, lists and tuples of tensors, arrays, numbers and strings, so that the file loads without running code,
            ``torch.load(path, weights_only=True)``.
        force: in mode "gap", save now although no snapshot is due, because this is the last chance.
        score: in mode "best", the quality of the agent, higher is better, None or NaN if unknown: best.pkl has the highest score so far.
        only_in_best: entries that best.pkl has in place of those in `params`, where `score` is that of other parameters.

    Raises:
        TypeError: `params` contains something else; the message names the key.
    """
    return _store().save(itr, params, try_to_write, force, score, only_in_best)


def keeps_best() -> bool:
    """Return whether the mode is "best", which keeps best.pkl."""
    return _state.keep.mode == "best"


def best_score(score: float | None = None) -> float:
    """Return the highest score among the saved snapshots of this run, and in mode "best" one that is about to be saved with `score`."""
    keep = _state.keep
    return score if score is not None and keep.is_best(score) else keep.best_score


def continue_snapshots(itr: int, best_score: float) -> None:
    """Go on from the snapshot of iteration `itr`: the next gap ends as it would have, and best.pkl needs a higher score."""
    _state.keep.last_itr, _state.keep.best_score = itr, best_score


def try_to_write(path: str, write: Callable[..., object]) -> bool:
    """Call `write`; after an OSError, log a warning (once until it succeeds). Return whether it succeeded."""
    try:
        write()
    except OSError as error:
        _warn_once(path, f"{path} could not be written, training continues without it: {error}")
        _state.warned[path] = str(error)
        return False
    _state.warned.pop(path, None)
    return True


def why_not_written(directory: str | os.PathLike) -> str:
    """Return the paths in a directory whose last write failed, each with the reason."""
    return "; ".join(f"{path}: {reason}" for path, reason in _state.warned.items() if path.startswith(os.fspath(directory)))


# --- Parameters -------------------------------------------------------------------------------------------------------
def stub_to_json(stub_sth: Any) -> Any:
    """Return any object as JSON for people to read.

    Numbers stay numbers, and containers are converted element by element (arrays only if they are small). Classes and
    functions become their names, other objects the names of their types.
    """
    value = stub_sth
    if value is None or isinstance(value, (bool, str)) and not isinstance(value, Enum):
        return value
    if hasattr(value, "tolist") and not isinstance(value, type):  # arrays, tensors and their scalars
        if np.prod(value.shape) > _LARGEST_ARRAY_IN_JSON:
            return f"{_type_name(type(value))} of shape {tuple(value.shape)}"
        return stub_to_json(value.tolist())
    if isinstance(value, (int, float)) and not isinstance(value, Enum):
        return value
    if isinstance(value, Mapping):
        return {key if isinstance(key, str) else str(key): stub_to_json(item) for key, item in value.items()}
    if hasattr(value, "_asdict") and not isinstance(value, type):  # namedtuples
        return stub_to_json(value._asdict())
    if isinstance(value, (list, tuple, set, frozenset, range)):
        return [stub_to_json(item) for item in value]
    if isinstance(value, (os.PathLike, Enum)):
        return str(value)
    return _type_name(value if hasattr(value, "__qualname__") else type(value))


def _type_name(cls: Any) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


class MyEncoder(json.JSONEncoder):
    """For json.dump(..., cls=MyEncoder): `stub_to_json` converts objects that JSON cannot hold."""

    def default(self, o: Any) -> Any:
        return stub_to_json(o)


def log_parameters_lite(log_file: str | os.PathLike, args: Mapping | Namespace) -> None:
    """Write `args`, a mapping or an argparse.Namespace, to a JSON file (see `stub_to_json`)."""
    log_variant(log_file, vars(args) if isinstance(args, Namespace) else args)


def log_parameters(log_file: str | os.PathLike, args: Mapping | Namespace, classes: Mapping[str, type]) -> None:
    """Write `args` like `log_parameters_lite`, and the names of the `classes` under their keys."""
    log_variant(log_file, {**(vars(args) if isinstance(args, Namespace) else args), **classes})


def log_variant(log_file: str | os.PathLike, variant_data: object) -> None:
    """Write the configuration of a run to a JSON file (see `stub_to_json`)."""
    path = os.path.abspath(log_file)
    console.mkdir_p(os.path.dirname(path))
    write_json(path, stub_to_json(variant_data))
