"""Reading the files of runs. This module writes nothing, and imports quickly."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Any

from rlpyt.utils.misc import did_you_mean
from rlpyt.utils.recipes import readable

RETURN_COLUMNS = ("GameScoreAverage", "ReturnAverage", "AverageReturn")  # for Atari: the score, not the sum of clipped rewards
STEPS_COLUMN = "CumSteps"  # env steps
TIME_COLUMN = "CumTime"  # seconds
STEPS_COLUMNS = (STEPS_COLUMN, "TotalEnvSteps")  # the same count, of runners and of Trainer
PROGRESS = "progress.csv"
PUT_ASIDE = "put_aside"  # In a search: directories of trials that its journal does not know.
NO_RUNS = ("wandb", PUT_ASIDE)  # Directories in which no runs are looked for. (Weights & Biases writes a debug.log, too.)
RECORD = "rlpyt"  # Key of params.json under which a runner writes how the run was made; see `rlpyt.runners.record`.


def find_runs(paths: Iterable[Any]) -> list[Path]:
    """Return all directories with a progress.csv among these paths and their subdirectories, each once, run_2 before run_10.

    Args:
        paths: directories, or progress.csv files.

    Raises:
        FileNotFoundError: a path does not exist, or contains no such directory.
    """
    found: dict[Path, Path] = {}
    for path in map(Path, paths):
        if path.is_file() and path.name == PROGRESS:
            path = path.parent
        if path.is_file():
            raise FileNotFoundError(f"{path} is a file: give a directory of runs.")
        if not path.is_dir():
            raise FileNotFoundError(f"There is no directory {path}.")
        below = [directory for directory, _, names in walk(path) if PROGRESS in names]
        if not below:
            raise FileNotFoundError(f"There is no run in {path}: no directory with a {PROGRESS}.")
        found.update((directory.resolve(), directory) for directory in sorted(below, key=natural))
    return list(found.values())


def walk(path: Path) -> Iterator[tuple[Path, list[str], set[str]]]:
    """Yield a directory and its subdirectories in which runs are looked for, each with the names of its subdirectories and of its files.

    Symbolic links are followed, after all else. A directory comes only once, so that links in a circle do no harm. The caller may remove
    names of subdirectories: these are left out.
    """
    seen: set[str] = set()
    waiting = deque([os.fspath(path)])
    while waiting:
        for directory, subdirectories, names in os.walk(waiting.popleft()):
            place = os.path.realpath(directory)
            if place in seen:
                subdirectories.clear()
                continue
            seen.add(place)
            subdirectories[:] = sorted((name for name in subdirectories if name not in NO_RUNS), key=lambda name: natural(Path(name)))
            yield Path(directory), subdirectories, set(names)
            links = (os.path.join(directory, name) for name in subdirectories)
            waiting.extend(link for link in links if os.path.islink(link))  # os.walk does not follow them.


def natural(path: Path) -> list:
    """Return a sort key by the parts of a path, with numbers in them by value: run_2 before run_10."""
    return [[(int(text), "") if text.isdecimal() else (-1, text) for text in re.split(r"(\d+)", part)] for part in path.parts]


def variant_dir(run_dir: Path) -> Path:
    """Return the directory of a run without run_<ID>: runs that differ only by their ID share it."""
    run_dir = Path(run_dir).resolve()
    return run_dir.parent if re.fullmatch(r"run_.+", run_dir.name) else run_dir


def directory_labels(directories: Iterable[Path]) -> dict[Path, str]:
    """Return what tells each directory from the others: its path below the directory that contains all of them."""
    directories = list(directories)
    common = Path(os.path.commonpath(directories)) if directories else Path()
    labels = {path: str(path.relative_to(common)) for path in directories if path != common}
    if common in directories:
        name = os.path.basename(os.path.abspath(common))
        labels[common] = f"{name}/" if name in labels.values() else name
    return labels


def read_params(params_file: Any) -> dict[str, Any]:
    """Return the contents of a run's params.json.

    Raises:
        FileNotFoundError: it does not exist.
        ValueError: it is damaged.
    """
    path = Path(params_file)
    if not path.is_file():
        raise FileNotFoundError(f"There is no {path}, which tells the settings of a run.")
    return _read_dict(path)


def read_settings(run_dir: Any) -> dict[str, Any]:
    """Return the settings of a run by dotted names, such as "algo.learning_rate", from params.json and the variant of a sweep.

    The variant is variant_config.json in the run's directory or its parent.
    """
    run_dir, settings = Path(run_dir), {}
    for path in (run_dir / "params.json", run_dir.parent / "variant_config.json", run_dir / "variant_config.json"):
        if path.is_file():
            contents = _read_dict(path)
            settings.update(recorded_settings(contents.pop(RECORD, None)))
            settings.update(flat(contents))
    return settings


def recorded_settings(record: Any, with_defaults: bool = True) -> dict[str, Any]:
    """Return the settings in the record of a run by dotted names such as "algo.learning_rate" and "env.id".

    Args:
        record: what a runner wrote; anything else returns {}.
        with_defaults: include settings that were not given and have their defaults.
    """
    if not isinstance(record, Mapping):
        return {}
    nested = {name: record[name] for name in ("seed", "accelerate") if name in record}
    for part in ("runner", "algo", "agent", "sampler"):
        call = record.get(part)
        if isinstance(call, Mapping):
            given = {name: value for name, value in call.get("arguments", {}).items() if value != {"$part": name}}
            defaults = call.get("defaults", {}) if with_defaults else {}
            nested[part] = {"class": readable(call.get("class")), **readable({**defaults, **given})}
    env, optim, model = (
        nested.get(part, {}).get(name) for part, name in (("sampler", "env_kwargs"), ("algo", "optim_kwargs"), ("agent", "model_kwargs"))
    )
    return flat({**nested, "env": env or {}, "optim": optim or {}, "model": model or {}})


def resumptions(record: Any) -> list[dict[str, Any]]:
    """Return what the record of a run tells of each time that it was resumed; [] if it never was."""
    resumed = record.get("resumed") if isinstance(record, Mapping) else None
    return [each for each in resumed if isinstance(each, dict)] if isinstance(resumed, list) else []


def replay_lost_at(record: Any) -> list[int | None]:
    """Return after how many environment steps a run was resumed with an empty replay buffer; None where the number is unknown.

    Args:
        record: what a runner wrote. A run without a replay buffer, or that saves it, returns [].
    """
    settings = recorded_settings(record)
    has_replay = "algo.replay_size" in settings and "runner.dataset" not in settings  # A data set is read again.
    if not has_replay or settings.get("runner.save_replay") is not False:
        return []
    steps = [each.get("steps") for each in resumptions(record)]
    return [n if type(n) is int else None for n in steps]


def planned_before(params: Mapping[str, Any]) -> list[int]:
    """Return for how many environment steps a run was planned before it was resumed for another number, in the order of time.

    Args:
        params: contents of params.json.
    """
    record = params.get(RECORD)
    planned = [each.get("planned") for each in resumptions(record)]
    if planned and planned[0] is None:  # Earlier versions did not record it. The settings of a configuration stay as they were.
        runner = params.get("runner")
        planned[0] = runner.get("n_steps") if isinstance(runner, Mapping) else None
    now = record.get("n_steps") if isinstance(record, Mapping) else None
    numbers = [int(n) for n in planned if isinstance(n, (int, float)) and n and math.isfinite(n)]
    return [n for n in dict.fromkeys(numbers) if n != now]


def _read_dict(path: Path) -> dict[str, Any]:
    try:
        contents = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged: {error}") from None
    if not isinstance(contents, dict):
        raise ValueError(f"{path} is damaged: it holds no dictionary.")
    return contents


def flat(nested: Mapping, prefix: str = "") -> dict[str, Any]:
    """Return the values of nested dictionaries by dotted names, each begun by `prefix`."""
    values = {}
    for name, value in nested.items():
        values.update(flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) and value else {f"{prefix}{name}": value})
    return values


def read_columns(progress_file: Any) -> dict[str, list[float]]:
    """Return the columns of a progress.csv, or of that in the directory of a run, as floats, with NaN for text that is no number.

    A last line without its end is left out: a run may be writing it, and of a number the first digits may be there.

    Raises:
        ValueError: the file is not CSV.
    """
    if os.path.isdir(progress_file):
        progress_file = os.path.join(progress_file, PROGRESS)
    with open(progress_file, newline="", encoding="utf-8", errors="backslashreplace") as file:
        try:
            header, *rows = list(csv.reader(io.StringIO(file.read().rpartition("\n")[0], newline=""))) or [[]]
        except csv.Error as error:
            raise ValueError(f"{progress_file} is damaged: {error}.") from None
    columns = zip_longest(*rows, fillvalue="nan") if rows else [()] * len(header)
    return {name: [_as_float(text) for text in column] for name, column in zip(header, columns, strict=False)}


def _as_float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def find_column(columns: Iterable[str], *names: str) -> str:
    """Return the first column that one of `names` matches, in their order.

    "CumSteps" also matches the columns "Diagnostics/CumSteps" and "TotalEnvSteps", and "CumTime" matches "Diagnostics/CumTime (s)".
    "ReturnAverage" and "Return/Average" match each other.

    Raises:
        ValueError: no column matches; the message proposes similar columns, or lists all.
    """
    for name in (same for each in names for same in (STEPS_COLUMNS if each == STEPS_COLUMN else (each,))):
        for column in columns:
            last = column.rpartition("/")[2]
            if name in (column, last, last.partition(" (")[0]) or name.replace("/", "") == column.replace("/", ""):
                return column
    columns = list(columns)
    # A quantity that was logged with statistics has separate columns for its average, median and so on.
    statistics = [column for column in columns if column.replace("/", "") == f"{names[0]}Average"]
    hint = f"choose among {', '.join(columns) or '(it is empty)'}."
    if len(names) == 1:
        hint = did_you_mean(names[0], statistics or columns, otherwise=hint)
    raise ValueError(f"progress.csv has no column {' or '.join(dict.fromkeys(names))}: {hint[0].lower()}{hint[1:]}")


def value(row: Mapping[str, float], *names: str) -> float | None:
    """Return the value of the first of these columns that a row has, by the rules of `find_column`; None if it has none."""
    return row[find_column(row, *names)] if has_column(row, *names) else None


def has_column(columns: Iterable[str], *names: str) -> bool:
    """Return whether any of `names` matches a column, by the rules of `find_column`."""
    try:
        find_column(columns, *names)
    except ValueError:
        return False
    return True
