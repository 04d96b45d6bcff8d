"""Reading runs into a table of results: which runs make a row, and what the row is called."""

from __future__ import annotations

import dataclasses
import itertools
import math
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rlpyt.experiments import configs
from rlpyt.experiments.results.table import OURS, Row, Run, Table
from rlpyt.utils.launching.status import RunStatus, experiment_status, run_status
from rlpyt.utils.logging.logger import stub_to_json
from rlpyt.utils.logging.runs import (
    PROGRESS,
    RECORD,
    RETURN_COLUMNS,
    STEPS_COLUMN,
    TIME_COLUMN,
    find_column,
    find_runs,
    flat,
    has_column,
    planned_before,
    read_columns,
    read_params,
    recorded_settings,
    replay_lost_at,
    resumptions,
    variant_dir,
)
from rlpyt.utils.text import plural, setting_text

_CLASS, _ENV = "class of ", "env."
_UNSEEDED = -1  # the seed of a run without one, until it gets a number
# What makes a row: two runs of a configuration belong to it if they differ only by their seeds, by these settings, and by which synchronous
# sampler collects. These say where and how fast something is computed, or what is recorded; results stay the same, but for rounding and
# the order of random numbers. Everything else counts: all other settings, bfloat16, and the classes in `_CLASSES`. So do AsyncRl, in which
# the time that sampling takes decides what is learned from, and SyncRl, which learns from a batch for each process.
NOT_OF_BITS = ("runner.calibrate", "runner.digest", "runner.save_replay", "runner.verbose")  # Not even rounding depends on these.
NOT_OF_RESULTS = (
    *NOT_OF_BITS,
    *("affinity", "runner.affinity", "accelerate.compile_models", "accelerate.cuda_graphs"),
    *("sampler.keep_terminal_observations", "sampler.n_actors", "sampler.start_method", "sampler.worker_timeout"),
)
_CLASSES = {  # Names of classes in the record of a run, and of the same in a configuration.
    "agent.class": ("agent", "alternating_agent"),
    "algo.class": ("algo",),
    "algo.OptimCls": ("optim",),
    "algo.ReplayBufferCls": ("replay_buffer",),
    "sampler.CollectorCls": ("collector",),
    "sampler.EnvCls": ("env",),
    "sampler.TrajInfoCls": ("traj_info",),
}


def read_runs(dirs: Iterable[Any], labels: Table | None = None) -> Table:
    """Return the table of all runs in directories.

    Runs of a configuration of `rlpyt.experiments.configs`, with the same changes, make a row. Other runs do if their directories differ by
    run_<ID> only. If several such rows have the same algorithm on a task, their directories tell them apart. Of two runs with the same seed
    in a row, the one that got further counts. Runs without a seed get free numbers. Runs that ended before the first row of their log are
    in their row, too, without a return; if their files do not tell which row that is, `Table.left_out` names them. It also names runs and
    rows that cannot be read, and says why. The others count.

    Args:
        dirs: directories of runs or experiments.
        labels: a table whose rows name the tasks and algorithms of configurations, and whose scales are taken; other rows are named by
            environment and class of the algorithm.

    Raises:
        FileNotFoundError: the directories contain no runs.
        ValueError: no run can be read.
    """
    labels = labels or Table()
    table = Table(scales=dict(labels.scales))
    found: list[tuple[Row, Run, Path]] = []
    without_rows = _without_rows(dirs)
    damaged: list[str] = []
    for run_dir in [*find_runs(dirs), *without_rows]:
        path = run_dir / "params.json"
        try:
            params = read_params(path) if path.is_file() else {}
            if run_dir in without_rows:
                table.left_out.append(without_rows[run_dir])
                if not ("configuration" in params or RECORD in params):
                    continue
            row, is_configuration = _row_of(params, labels)
            row = row if is_configuration else dataclasses.replace(row, directory=str(variant_dir(run_dir)))
            run, missing = _read_run(run_dir, params, row.n_steps)
        except (OSError, TypeError, AttributeError, ValueError) as error:
            damaged.append(f"{run_dir} is no run whose results can be read: {error}")
            continue
        found.append((table.row_for(row), run, run_dir))
        if missing:
            table.left_out.append(missing)
    if damaged and not found:
        raise ValueError(damaged[0] + (f" Neither can those of {plural(len(damaged) - 1, 'other run')}." if len(damaged) > 1 else ""))
    table.left_out += damaged
    counting: dict[tuple[str, int], Path] = {}  # Directories of runs, by row and seed.
    for row, run, run_dir in sorted(found, key=lambda each: each[1].seed == _UNSEEDED):
        if run.seed == _UNSEEDED:
            run.seed = next(number for number in itertools.count() if (row.key, number) not in counting)
        other = counting.get((row.key, run.seed))
        if row.put(run):
            counting[row.key, run.seed] = run_dir
        if other is not None:
            kept = counting[row.key, run.seed]
            left = other if kept == run_dir else run_dir
            table.left_out.append(
                f"{left} is left out: {kept}, with the same settings and the same seed, {run.seed}, got as far or further."
            )
    table.tell_apart()
    return table


def _without_rows(dirs: Iterable[Any]) -> dict[Path, str]:
    """Return a sentence about each run in directories that has begun, and has no log of rows, by its directory."""
    runs = [run for path in map(Path, dirs) if path.is_dir() for run in experiment_status(path)]
    return {run.run_dir: _no_row(run) for run in runs if run.state != "pending" and not (run.run_dir / PROGRESS).exists()}


def _no_row(run: RunStatus) -> str:
    return f"{run.run_dir} has no row in its log ({run.state}{f': {run.error}'.rstrip('.') if run.error else ''})."


def _read_run(run_dir: Path, params: Mapping[str, Any], n_steps: int) -> tuple[Run, str]:
    """Read a run for which so many environment steps were planned; 0 if they are unknown.

    Returns:
        The run, and a sentence about rows that its log lacks or that cannot be read; "" without any.

    Raises:
        ValueError: its files are damaged.
    """
    record, progress = params.get(RECORD) or {}, run_dir / PROGRESS
    columns = read_columns(progress) if progress.is_file() else {}
    if columns and not has_column(columns, STEPS_COLUMN):
        raise ValueError(f"{progress} has no column {STEPS_COLUMN}. It is damaged, or no log of rlpyt.")
    at, missing = columns[find_column(columns, STEPS_COLUMN)] if columns else [], ""
    n_unreadable = sum(not math.isfinite(steps) for steps in at)
    if n_unreadable:
        missing = f"{progress} is damaged: {plural(n_unreadable, 'row')} without a number of environment steps left out."
    elif not at and progress.is_file():
        status = run_status(run_dir)
        missing = "" if status.state in ("pending", "running", "paused") else _no_row(status)  # These are still to write rows.
    seed = record.get("seed", params.get("seed"))
    run = Run(
        seed=_UNSEEDED if seed is None else int(seed),
        steps=[],
        returns=[],
        made=_made(record),
        replay_lost_at=replay_lost_at(record),
        planned_before=planned_before(params),
    )
    if at:
        returns = columns[find_column(columns, *RETURN_COLUMNS)] if has_column(columns, *RETURN_COLUMNS) else [math.nan] * len(at)
        for steps, return_ in zip(at, returns, strict=True):
            if not math.isfinite(steps):
                continue
            has_return = math.isfinite(return_)
            run.end = None if has_return else int(steps)
            if has_return:
                run.steps.append(int(steps))
                run.returns.append(return_)
        stop_return = record.get("stop_return")
        is_there = isinstance(stop_return, (int, float)) and run.end is None and run.returns[-1:] >= [stop_return]
        run.solved = (is_there or not n_steps) and run_status(run_dir).state == "finished"
    if has_column(columns, TIME_COLUMN):
        seconds = columns[find_column(columns, TIME_COLUMN)]
        run.seconds = round(seconds[-1], 1) if seconds and math.isfinite(seconds[-1]) else None
    return run, missing


def _made(record: Mapping[str, Any]) -> dict[str, str]:
    """Commit and versions in the record of a run, and others with which it was resumed."""
    made = _versions(record)
    others: dict[str, dict[str, None]] = {}
    for resumed in resumptions(record):
        for name, version in _versions(resumed).items():
            if version != made.get(name):
                others.setdefault(name, {})[version] = None  # In the order of time.
    return {**made, **{f"resumed with {name}": " and ".join(versions) for name, versions in others.items()}}


def _versions(record: Mapping[str, Any]) -> dict[str, str]:
    commit = str(record.get("githash") or "")
    dirty = "-dirty" if commit.endswith("-dirty") else ""
    made = {"commit": commit.removesuffix(dirty)[:7] + dirty, "Python": record.get("python"), **(record.get("packages") or {})}
    return {name: str(version) for name, version in made.items() if version and name != OURS}


def _row_of(params: Mapping[str, Any], labels: Table) -> tuple[Row, bool]:
    """The row of a run without its runs, and whether it is a configuration."""
    record, settings = params.get(RECORD) or {}, recorded_settings(params.get(RECORD))
    library = str(params.get("library", OURS))
    n_steps = record.get("n_steps") or params.get("runner", {}).get("n_steps") or 0
    env = {name.partition(".")[2]: value for name, value in settings.items() if name.startswith("env.")} or params.get("env") or {}
    task = env if isinstance(env, str) else _task(env, settings.get("sampler.EnvCls"))  # A script may have recorded a text.
    algorithm = str(settings.get("algo.class", params.get("algorithm", "unknown"))).rpartition(".")[2]
    command = shlex.join(map(str, record.get("command", [])))
    name, changed = str(params.get("name", "runs")), changes_of(params)
    row = Row(name, task, algorithm, int(n_steps), str(params.get("command", command)), library)
    if changed is None:
        return row, False
    configuration = params["configuration"]
    row.name = " ".join([configuration, *changed])
    known = labels.rows.get(row.key)
    if known is not None:
        return dataclasses.replace(known, n_steps=row.n_steps, runs=[]), True
    ours, base = labels.rows.get(row.name), labels.rows.get(configuration)
    if ours is not None:  # The same in rlpyt; this one is of another library.
        row.task, row.algorithm, row.goal = ours.task, ours.algorithm, ours.goal
    else:
        of_algorithm = [change for change in changed if not change.startswith(_ENV)]  # The task says the others.
        if base is not None and of_algorithm == changed:
            row.task = base.task
            if row.n_steps == base.n_steps:  # A goal is one for so many steps.
                row.goal = base.goal
        row.algorithm = ", ".join([row.algorithm if base is None else base.algorithm, *of_algorithm])
    if library == OURS and not any(change.startswith(_CLASS) for change in changed):
        row.command = " ".join(["rlpyt train", *configuration.split(":"), *(["--set", *map(shlex.quote, changed)] if changed else [])])
    return row, True


def _task(env: Mapping[str, Any], env_class: Any) -> str:
    """The environment as its arguments name it; if they have no name for it, as its class or function does."""
    others = dict(env)
    names = [str(others.pop(name)) for name in ("id", "game") if name in others]
    if not names and isinstance(env_class, str):
        names = [env_class.rpartition(".")[2]]
    return ", ".join([*names, *(f"{name}={value}" for name, value in others.items())]) or "unknown"


def changes_of(params: Mapping[str, Any]) -> list[str] | None:
    """Return the settings of a run that differ from its configuration and affect results; None if it has no configuration.

    Settings are written as for ``rlpyt train --set``, classes as "class of algo=MyPPO".

    Args:
        params: contents of params.json.
    """
    try:
        module, key = str(params["configuration"]).split(":")
        config_module = configs.load(module)
        config = config_module.configs[key]
    except (KeyError, ValueError, AttributeError):
        return None
    sections = [section for section in configs.SECTIONS if section in params]
    given = flat(stub_to_json({section: config.get(section, {}) for section in sections}))
    taken = flat({section: params[section] for section in sections})
    n_steps = (params.get(RECORD) or {}).get("n_steps")
    if n_steps and n_steps != taken.get("runner.n_steps", n_steps):  # It was resumed for another number of steps.
        taken["runner.n_steps"] = n_steps
    differing = [name for name in taken if (name not in given or given[name] != taken[name]) and counts(name)]
    return [f"{name}={setting_text(taken[name])}" for name in differing] + _classes_changed(params, configs.classes_of(config_module, key))


def counts(setting: str) -> bool:
    """Whether a setting, such as "runner.digest", may change results by more than rounding and the order of random numbers."""
    return not f"{setting}.".startswith(tuple(f"{name}." for name in NOT_OF_RESULTS))


def _classes_changed(params: Mapping[str, Any], paths: Mapping[str, str]) -> list[str]:
    """Return the classes of a run that differ from those of its configuration, at these import paths; [] if it has recorded none."""
    taken = recorded_settings(params.get(RECORD), with_defaults=False)
    changed = []
    for name, parts in _CLASSES.items():
        cls = _class_name(taken.get(name))
        if cls and cls not in [_class_name(paths.get(part)) for part in parts]:
            changed.append(f"{_CLASS}{parts[0]}={cls}")
    runner = _class_name(taken.get("runner.class")).removesuffix("Eval")
    if runner and runner != ("AsyncRl" if _class_name(paths["sampler"]).startswith("Async") else "MinibatchRl"):
        changed.append(f"{_CLASS}runner={runner}")
    return changed


def _class_name(path: Any) -> str:
    """Last part of an import path; "" for anything else, such as a class with arguments."""
    return path.rpartition(".")[2] if isinstance(path, str) else ""
