"""Computes the first rows of a run again, and says where two runs part. Both compare the digests that runs have recorded."""

from __future__ import annotations

import csv
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import torch

from rlpyt.experiments.opening import OpenedRun
from rlpyt.experiments.results.runs import NOT_OF_BITS
from rlpyt.runners.digests import WORKERS
from rlpyt.utils.choices import are_answers
from rlpyt.utils.digests import FILE, KINDS, DigestRow, Parting, in_common, is_cut, parting, read_rows, together
from rlpyt.utils.logging import logger
from rlpyt.utils.logging.context import logger_context
from rlpyt.utils.logging.runs import RECORD, read_params, recorded_settings, replay_lost_at, resumptions
from rlpyt.utils.misc import torch_threads
from rlpyt.utils.plain import shown
from rlpyt.utils.text import plural

_MOST_THREADS = 1024


class Facts(NamedTuple):
    """What the results of a run may depend on, as far as it is recorded.

    Attributes:
        conditions: versions, processor, GPU, numbers of threads, planned steps, choices between equal computations, the commit of the
            code that ran, and whether the run was resumed without its replay buffer.
        settings: settings of its parts by dotted names, the seed among them.
    """

    conditions: dict[str, Any]
    settings: dict[str, Any]


class Comparison(NamedTuple):
    """The result of a comparison.

    Attributes:
        pairs: the rows that were compared.
        parting: where they part; None if they do not.
        conditions, settings: by name, what differs between the runs, as a pair: where they part, or in any row if they do not.
    """

    pairs: list[tuple[DigestRow, DigestRow]]
    parting: Parting | None
    conditions: dict[str, tuple[Any, Any]]
    settings: dict[str, tuple[Any, Any]]


def compare(a: Any, b: Any) -> Comparison:
    """Compare the runs in two directories.

    Raises:
        FileNotFoundError: one of them has no digests.
        ValueError: a file is damaged, or they have no row after the same number of environment steps; or the only one is that before
            training, in which they do not part.
    """
    rows = [rows_of(run_dir) for run_dir in (a, b)]
    pairs = in_common(*rows)
    if not pairs:
        each = [f"{run_dir} has rows after {', '.join(f'{row.steps:,}' for row in found[:3])}, ..." for run_dir, found in zip((a, b), rows)]
        raise ValueError(
            f"The runs have no row after the same number of environment steps: {'; '.join(each)}. "
            "Train both with the same log_interval_steps."
        )
    found = _compared(pairs, record_of(a), record_of(b))
    if found.parting is None and all(row.steps == 0 for row, _ in pairs):
        raise ValueError("The runs have only the row before training in common, and in it they are the same. Train both further.")
    return found


def _compared(pairs: list[tuple[DigestRow, DigestRow]], *records: Mapping[str, Any]) -> Comparison:
    found = parting(pairs)
    result = Comparison(pairs, found, {}, {})
    for rows in [(found.a, found.b)] if found else pairs:  # Runs may have been resumed under other conditions, and still be equal.
        conditions, settings = zip(*(facts_of(record, row) for record, row in zip(records, rows)))
        if not all(WORKERS in each for each in conditions):  # Earlier versions did not record it.
            conditions = tuple({name: value for name, value in each.items() if name != WORKERS} for each in conditions)
        result.conditions.update(_different(*conditions))
        result.settings.update(_different(*settings))
    return result


def verify(run_dir: Any, n_rows: int | None = 3, trust: bool = False, script: str | None = None) -> Comparison:
    """Compute the first rows of a run again, in a temporary directory, and compare their digests.

    The run is made again as its params.json says, and takes its choices between equal computations from there.

    Args:
        run_dir: directory of the run.
        n_rows: number of rows; None for all, of which one must be after the first training.
        trust, script: see `rlpyt.experiments.opening.OpenedRun`.

    Raises:
        FileNotFoundError: the run has no digests, or no params.json.
        ValueError: a file is damaged, the run has fewer rows, or cannot be made again; or what is computed is not written, or lacks rows.
    """
    rows = rows_of(run_dir)
    if n_rows is not None and n_rows > len(rows):
        raise ValueError(f"{run_dir} has {len(rows)} rows with digests, so the first {n_rows} cannot be compared.")
    if n_rows is None and all(row.steps == 0 for row in rows):
        raise ValueError(f"{run_dir} has digests only of the row before training. Train it further, or verify this row alone: --rows 1.")
    rows = rows[:n_rows]
    runner, record = _again(Path(run_dir), rows[-1], trust, script)
    params = {key: value for key, value in read_params(Path(run_dir) / "params.json").items() if key not in ("name", "run_ID", RECORD)}
    with tempfile.TemporaryDirectory(prefix="rlpyt_verify_") as directory, logger.verbosity(0):
        with logger_context(directory, 0, "verify", params, snapshot_mode="none", override_prefix=True) as again_dir:
            with torch_threads(_threads(rows[-1])):
                runner.train()
            reasons = logger.why_not_written(again_dir)  # Of the last write: a row that is refused comes with the next one.
        if reasons:
            raise ValueError(f"The run, computed again, could not be written, so it cannot be compared: {reasons}.")
        again = rows_of(again_dir)
        _check_missing(run_dir, rows, again, runner.log_interval_itrs * runner.itr_batch_size, bool(record.get("resumed")))
        pairs, steps = in_common(rows, again), {row.steps for row in rows}
        others = [row.steps for row in again if row.steps <= rows[-1].steps and row.steps not in steps]
        if others or not pairs or any(not a.digests.keys() & b.digests.keys() for a, b in pairs):
            example = f", such as after {others[0]:,} environment steps" if others else ""
            raise ValueError(f"The run, computed again, has rows or digests that {run_dir} lacks{example}: it cannot be verified.")
        return _compared(pairs, record, record_of(again_dir))._replace(settings={})


def _check_missing(run_dir: Any, rows: Sequence[DigestRow], again: Sequence[DigestRow], interval: int, is_resumed: bool) -> None:
    """Raise ValueError if the run, computed again, lacks rows that no interruption explains, or has none to compare but that of step 0.

    Args:
        run_dir: directory of the original run, for the messages.
        rows: rows of the original run.
        again: rows of the run, computed again.
        interval: environment steps between the rows of `again`.
        is_resumed: whether the original run was resumed, perhaps with another interval.
    """
    found = {row.steps for row in again}
    if again[-1].steps < rows[-1].steps:
        ended = f"ended after {again[-1].steps:,} environment steps"
        raise ValueError(f"The run, computed again, {ended}, before {rows[-1]} of {run_dir}: it cannot be verified.")
    missing = [row for row in rows if row.steps not in found]
    unexplained = [row for row in missing if row.steps % interval == 0 and not is_resumed]
    if unexplained:
        raise ValueError(f"The run, computed again, lacks {unexplained[0]} of {run_dir}: it cannot be verified.")
    if missing and all(row.steps == 0 for row in rows if row.steps in found):
        raise ValueError(
            f"Of these rows of {run_dir}, only that before training can be computed again: no other one ends an interval of {interval:,} "
            "environment steps. If the run was interrupted, resume it, and then verify more rows."
        )


def _threads(row: DigestRow) -> int:
    """Return with how many torch threads a row was computed; the present number if that is not known."""
    n = row.on.get("torch threads")
    return n if type(n) is int and 0 < n <= _MOST_THREADS else torch.get_num_threads()


def _again(run_dir: Path, last: DigestRow, trust: bool, script: str | None) -> tuple[Any, dict[str, Any]]:
    """Return the runner of a run, not started, that stops with row `last`, and the record of the run."""
    opened = OpenedRun(run_dir, None, trust, script)
    if opened.trainer_args is not None:
        raise ValueError(f"{run_dir} was trained by a Trainer. Only runs of runners can be computed again.")
    runner, record = opened.runner(), record_of(run_dir)
    seed, choices = record.get("seed"), record.get("choices", {})
    if type(seed) is not int or not are_answers(choices):
        raise ValueError(f"{opened.params_file} is damaged: its seed is {shown(seed)}, and its choices are {shown(choices)}.")
    runner.seed = runner.seed_given = seed
    runner.calibrate, runner.digest = dict(choices), True
    runner.n_steps, runner.stop_return = last.n_steps, None
    runner.resume_from, runner.save_replay, runner.verbose = None, False, 0

    def stop(runner: Any, row: Any) -> None:
        if runner.diagnostics.cum_steps >= last.steps:
            runner.stop_reason = "All rows to compare are there."

    runner.hooks = [*runner.hooks, stop]
    return runner, record


# --- Facts ------------------------------------------------------------------------------------------------------------
def rows_of(run_dir: Any) -> list[DigestRow]:
    """Return the rows with digests in the directory of a run.

    Raises:
        FileNotFoundError: there are none.
        ValueError: they are damaged, or contradict the log.
    """
    directory = Path(run_dir)
    if not directory.is_dir():
        raise FileNotFoundError(f"There is no directory {directory}: give the directory of a run, run_<ID>.")
    rows = read_rows(directory / FILE)
    if not rows:
        raise FileNotFoundError(f"{directory / FILE} has no row: the run has ended before its first one.")
    logged = _logged(directory)
    for row in rows:
        for kind, column in logged.get(row.steps, {}).items():
            if kind in row.digests and column != _together(row.digests[kind]):
                raise ValueError(f"{directory / FILE} is damaged: in {row}, it contradicts the column Digest{kind} of progress.csv.")
    return rows


def gaps(run_dir: Any, rows: Sequence[DigestRow]) -> list[str]:
    """Return a sentence about the rows of a run's log that are not among its `rows` with digests, and one about a line that is cut."""
    found = {row.steps for row in rows}
    missing = sorted(_logged(run_dir).keys() - found)
    return [
        *[f"{plural(len(missing), 'row')} of the log without digests, the first after {n:,} environment steps." for n in missing[:1]],
        *[f"the last line of {FILE}, which has not been written completely."] * is_cut(Path(run_dir) / FILE),
    ]


def _logged(run_dir: Any) -> dict[int, dict[str, str]]:
    """Return the columns of digests in the log of a run, by environment steps and kind; {} if it cannot be read."""
    file = Path(run_dir) / "progress.csv"
    if not file.is_file():
        return {}
    logged: dict[int, dict[str, str]] = {}
    with suppress(csv.Error), open(file, newline="", encoding="utf-8", errors="backslashreplace") as lines:
        for line in csv.DictReader(lines):
            by_name = {str(name).rpartition("/")[2]: value for name, value in line.items()}
            with suppress(ValueError, OverflowError):  # A run may be writing the last line.
                columns = {kind: by_name.get(f"Digest{kind}") for kind in KINDS}
                logged[int(float(by_name.get("CumSteps") or ""))] = {kind: column for kind, column in columns.items() if column}
    return logged


def _together(parts: Mapping[str, Any]) -> str | None:
    """Return the column of a kind of digests; None if some are no digests."""
    try:
        return together({name: int(number, 16) for name, number in parts.items()})
    except (TypeError, ValueError):
        return None


def record_of(run_dir: Any) -> dict[str, Any]:
    """Return the record in a run's params.json, see `rlpyt.runners.record`; {} without one."""
    file = Path(run_dir) / "params.json"
    record = read_params(file).get(RECORD) if file.exists() else None
    return record if isinstance(record, dict) else {}


def facts_of(record: Mapping[str, Any], row: DigestRow) -> Facts:
    """Return what a row of a run may depend on."""
    choices = record.get("choices")
    choices = {f"choice of {question}": answer for question, answer in choices.items()} if isinstance(choices, Mapping) else {}
    settings = recorded_settings(record)
    lost = _lost_replay(record, row)
    settings = {name: value for name, value in settings.items() if name not in ("runner.n_steps", "runner.seed", *NOT_OF_BITS)}
    return Facts({**row.on, "n_steps": row.n_steps, **choices, **_commit(record, row), **lost}, settings)


def _commit(record: Mapping[str, Any], row: DigestRow) -> dict[str, str]:
    """Return the commit of the process that computed a row, as a condition; {} if it is not known."""
    later = [each for each in resumptions(record) if type(each.get("steps")) is int and each["steps"] < row.steps]
    commit = [record, *later][-1].get("githash")
    return {} if commit is None else dict(commit=commit)


def _lost_replay(record: Mapping[str, Any], row: DigestRow) -> dict[str, str]:
    """Return a condition that says before which row of a run its replay buffer was lost; {} if it never was."""
    before = ["unknown" if n is None else f"{n:,}" for n in replay_lost_at(record) if n is None or n < row.steps]
    when = f"after {' and '.join(before)} environment steps"
    return {"resumed without its replay buffer (save_replay=False)": when} if before else {}


def _different(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    return {name: (a.get(name), b.get(name)) for name in {**a, **b} if a.get(name) != b.get(name)}


def n_missing(rows: Sequence[DigestRow], pairs: Sequence[tuple[DigestRow, DigestRow]]) -> int:
    """Return how many rows have no counterpart among the pairs."""
    return len(rows) - len(pairs)
