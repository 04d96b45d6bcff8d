"""A table of results, made of runs, and what it says in Markdown.

A table is two files: results.json has a row for each configuration, with what people wrote about it and how its runs were made; curves.csv
beside it has all points of all curves. The score of a run is its last mean return. Runs that ended before all their steps are listed, but
are no part of a statistic. A run that took all its steps counts, also if the last rows of its log have no return, and is marked then.
"""

from __future__ import annotations

import csv
import dataclasses
import itertools
import json
import math
import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rlpyt.experiments import configs
from rlpyt.utils.aggregate import (
    Interval,
    interquartile_mean_of_all,
    performance_profile,
    probability_of_improvement,
    stratified_bootstrap,
)
from rlpyt.utils.launching.status import run_status
from rlpyt.utils.logging.logger import stub_to_json
from rlpyt.utils.logging.runs import (
    RECORD,
    RETURN_COLUMNS,
    STEPS_COLUMN,
    TIME_COLUMN,
    directory_labels,
    find_column,
    find_runs,
    flat,
    has_column,
    read_columns,
    read_params,
    recorded_settings,
    replay_lost_at,
    resumptions,
    variant_dir,
)
from rlpyt.utils.misc import atomic_write
from rlpyt.utils.text import printable, setting_text

FORMAT = 1
FEW = 3  # Rows with fewer runs are marked, and have no interval.
ENOUGH = 5  # Rows with fewer runs are not compared.
THRESHOLDS = (0.5, 0.75, 0.9, 0.95, 0.99)  # of the performance profile, in normalized scores
Scales = Mapping[str, tuple[float, float]]  # returns of each task that count as scores 0 and 1
OURS = "rlpyt"
CURVES = "curves.csv"
_CLASS, _ENV = "class of ", "env."
_UNSEEDED = -1  # the seed of a run without one, until it gets a number
_UNKNOWN = -1  # environment steps that an older record does not have
_COLUMNS = ("row", "seed", "environment steps", "mean return")
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


@dataclasses.dataclass
class Run:
    """A run, as far as it got.

    Attributes:
        steps, returns: environment steps and mean returns, a point for each row of its log that has a return.
        seconds: its duration, None if unknown.
        made: with which commit and versions, by name; empty if they were not recorded.
        end: environment steps in the last row of its log, if that has no return; None if it has one.
        solved: it stopped because its mean return reached `stop_return` of its runner.
        replay_lost_at: environment steps after which it was resumed with an empty replay buffer; -1 where their number is unknown.
    """

    seed: int
    steps: list[int]
    returns: list[float]
    seconds: float | None = None
    made: dict[str, str] = dataclasses.field(default_factory=dict)
    end: int | None = None
    solved: bool = False
    replay_lost_at: list[int] = dataclasses.field(default_factory=list)

    @property
    def taken(self) -> int:
        """Environment steps that it took, as far as its log tells."""
        return max([self.end or 0, *self.steps[-1:]])


@dataclasses.dataclass
class Row:
    """Runs that differ by their seed only.

    Attributes:
        name: a configuration such as "cartpole:ppo", with its changes if any; or the name of a user's runs.
        n_steps: environment steps that were planned.
        command: which repeats a run, without its seed.
        goal: mean return that counts as learned.
        reference: what others have published.
        directory: of runs of a train script, the directory that contains them: other directories are other rows.
        variant: of such runs, what tells them from others with the same algorithm, task and steps; see `Table.tell_apart`.
    """

    name: str
    task: str
    algorithm: str
    n_steps: int
    command: str
    library: str = OURS
    goal: float | None = None
    reference: str = ""
    directory: str = ""
    variant: str = ""
    runs: list[Run] = dataclasses.field(default_factory=list)

    @property
    def key(self) -> str:
        """The name in files."""
        return self.name if self.library == OURS else f"{self.library} {self.name}"

    @property
    def place(self) -> tuple[str, str, str]:
        """What two rows have in common whose runs belong together."""
        return self.library, self.name.removesuffix(f" in {self.directory}"), self.directory

    @property
    def label(self) -> str:
        """The algorithm and variant, with the library if it is not rlpyt."""
        return self.kind if self.library == OURS else f"{self.kind}, {self.library}"

    @property
    def kind(self) -> str:
        """The algorithm and variant."""
        return f"{self.algorithm}, {self.variant}" if self.variant else self.algorithm

    def is_complete(self, run: Run) -> bool:
        """Whether a run took all its steps, or was solved before, and has a return."""
        return bool(run.returns) and (run.solved or run.taken >= self.n_steps)

    def put(self, run: Run) -> bool:
        """Add a run, in the place of an earlier one with the same seed that got no further; return whether it counts now.

        A run without any return replaces none that has some.
        """

        def progress(run: Run) -> tuple[bool, bool, int]:
            return self.is_complete(run), bool(run.returns), run.taken

        by_seed = self.by_seed
        counts = run.seed not in by_seed or progress(by_seed[run.seed]) <= progress(run)
        if counts:
            by_seed[run.seed] = run
        self.runs = [by_seed[seed] for seed in sorted(by_seed)]
        return counts

    @property
    def by_seed(self) -> dict[int, Run]:
        """Its runs by their seeds."""
        return {run.seed: run for run in self.runs}

    @property
    def complete(self) -> list[Run]:
        """Its complete runs."""
        return [run for run in self.runs if self.is_complete(run)]

    @property
    def scores(self) -> np.ndarray:
        """Last mean return of each complete run, [n_runs]."""
        return np.array([run.returns[-1] for run in self.complete])

    @property
    def block(self) -> tuple:
        """A label that is the same for rows of a library with the same task and seeds.

        Their runs of a seed are evaluated in episodes with the same seeds. So they are lucky or unlucky together.
        """
        return self.library, self.task, *(run.seed for run in self.complete)


@dataclasses.dataclass
class Table:
    """Rows by their key, and the returns of each task that count as scores 0 and 1.

    Attributes:
        left_out: a sentence for each run that was read and does not count.
    """

    rows: dict[str, Row] = dataclasses.field(default_factory=dict)
    scales: dict[str, tuple[float, float]] = dataclasses.field(default_factory=dict)
    left_out: list[str] = dataclasses.field(default_factory=list)

    def rows_of(self, library: str | None = None) -> list[Row]:
        """Return the rows of a library; None for all others than rlpyt."""
        return [row for row in self.rows.values() if (row.library == library if library else row.library != OURS)]

    def row_for(self, new: Row) -> Row:
        """Return the row to which the runs of `new` belong. If there is none, make one, without runs.

        Scripts may give the same name to runs with other settings. So a row of another directory gets the directory into its name.
        """
        row = next((row for row in self.rows.values() if row.place == new.place), None) or self._without_directory(new)
        if row is None:
            row = dataclasses.replace(new, runs=[])
            if row.key in self.rows:
                row.name = f"{row.name} in {row.directory}"
            self.rows[row.key] = row
        return row

    def _without_directory(self, new: Row) -> Row | None:
        """Return the row of `new` in a table of an earlier version, which did not have directories; None without one."""
        names = (new.name, f"{new.name} in {new.directory}") if new.directory else ()
        for row in self.rows.values():
            if row.directory or row.library != new.library or row.name not in names:
                continue
            known, curves = ([(run.steps, [f"{y:.6g}" for y in run.returns]) for run in each.runs] for each in (row, new))
            if any(curve in known for curve in curves):
                row.directory = new.directory
                return row
        return None

    def tell_apart(self) -> None:
        """Find the `variant` of each row of a train script: its directory below the one that contains all that are alike otherwise."""
        alike: dict[tuple, list[Row]] = {}
        for row in self.rows.values():
            if row.directory:
                alike.setdefault((row.library, row.task, row.algorithm, row.n_steps), []).append(row)
        for rows in alike.values():
            labels = directory_labels({Path(row.directory) for row in rows})
            found = Counter(labels[Path(row.directory)] for row in rows)
            for row in rows:
                label = labels[Path(row.directory)]
                row.variant = "" if len(rows) == 1 else label if found[label] == 1 else f"{label}, {row.place[1]}"

    def add(self, other: Table) -> None:
        """Add the runs of another table, as `Row.put` does; what people wrote about a row stays."""
        for new in other.rows.values():
            row = self.row_for(new)
            row.n_steps = new.n_steps
            for run in new.runs:
                if not row.put(run):
                    self.left_out.append(f"The run of {row.name} with seed {run.seed} is left out: that of the table got further.")
        self.tell_apart()


# --- Files ------------------------------------------------------------------------------------------------------------
def read_table(path: Any) -> Table:
    """Return a table from its results.json, and the curves.csv beside it.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: the file is no table, or the table of another version.
    """
    path = Path(path)
    try:
        contents = json.loads(path.read_text(encoding="utf-8"))
        if contents.get("format") != FORMAT:
            raise ValueError(f"its format is {contents.get('format')!r}, not {FORMAT}")
        points = _read_points(path.with_name(CURVES))
        table = Table(scales={task: (low, high) for task, (low, high) in contents["scales"].items()})
        for described in contents["rows"]:
            runs = described.pop("runs")
            row = Row(**described)
            for run in runs:
                made = contents["origins"][run.pop("origin")]
                steps, returns = points.pop((row.key, run["seed"]), ([], []))
                row.runs.append(Run(steps=steps, returns=returns, made=made, **run))
            if row.key in table.rows or len(row.by_seed) < len(row.runs):
                raise ValueError(f"it has the row {row.key!r}, or one of its seeds, twice")
            table.rows[row.key] = row
        for key, seed in points:  # Written again without them, the table would lose them.
            raise ValueError(f"it has no row {key!r} with seed {seed}, but {CURVES} beside it does: a renamed row is renamed in both")
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise ValueError(f"{path} is no table of results: {error}.") from None
    return table


def _read_points(path: Path) -> dict[tuple[str, int], tuple[list[int], list[float]]]:
    points: dict[tuple[str, int], tuple[list[int], list[float]]] = {}
    with open(path, newline="", encoding="utf-8") as file:
        for key, seed, steps, return_ in list(csv.reader(file))[1:]:
            xs, ys = points.setdefault((key, int(seed)), ([], []))
            xs.append(int(steps))
            ys.append(float(return_))
    return points


def write_table(table: Table, path: Any) -> None:
    """Write a table's results.json, and the curves.csv beside it."""
    path, rows = Path(path), []
    origins: list[dict[str, str]] = []
    for row in table.rows.values():
        described = {field.name: getattr(row, field.name) for field in dataclasses.fields(Row) if field.name != "runs"}
        described = {name: value for name, value in described.items() if value or name not in ("directory", "variant")}
        runs: list[dict[str, Any]] = [dict(seed=run.seed, seconds=run.seconds, origin=_index(origins, run.made)) for run in row.runs]
        for entry, run in zip(runs, row.runs, strict=True):
            if run.end is not None:
                entry["end"] = run.end
            if run.solved:
                entry["solved"] = True
            if run.replay_lost_at:
                entry["replay_lost_at"] = run.replay_lost_at
        rows.append(dict(described, runs=runs))
    curves_path = path.with_name(CURVES)
    with atomic_write(path, "w", encoding="utf-8") as file, atomic_write(curves_path, "w", encoding="utf-8", newline="") as curves_file:
        json.dump(dict(format=FORMAT, scales=table.scales, origins=origins, rows=rows), file, indent=1, ensure_ascii=False)
        file.write("\n")
        file.flush()  # A full disk says so before either file is replaced.
        writer = csv.writer(curves_file, lineterminator="\n")
        writer.writerow(_COLUMNS)
        for row in table.rows.values():
            for run in row.runs:
                writer.writerows((row.key, run.seed, x, f"{y:.6g}") for x, y in zip(run.steps, run.returns, strict=True))


def _index(values: list, value: Any) -> int:
    """The index of a value in a list, to which it is appended if it is missing."""
    if value not in values:
        values.append(value)
    return values.index(value)


# --- Runs -------------------------------------------------------------------------------------------------------------
def read_runs(dirs: Iterable[Any], labels: Table | None = None) -> Table:
    """Return the table of all runs in directories.

    Runs of a configuration of `rlpyt.experiments.configs`, with the same changes, make a row. Other runs do if their directories differ by
    run_<ID> only. If several such rows have the same algorithm on a task, their directories tell them apart. Of two runs with the same seed
    in a row, the one that got further counts. Runs without a seed get free numbers.

    Args:
        dirs: directories of runs or experiments.
        labels: a table whose rows name the tasks and algorithms of configurations, and whose scales are taken; other rows are named by
            environment and class of the algorithm.

    Raises:
        FileNotFoundError: the directories contain no runs.
        ValueError: files of a run are damaged.
    """
    labels = labels or Table()
    table = Table(scales=dict(labels.scales))
    found: list[tuple[Row, Run, Path]] = []
    for run_dir in find_runs(dirs):
        path = run_dir / "params.json"
        params = read_params(path) if path.is_file() else {}
        try:
            row, is_configuration = _row_of(params, labels)
            row = table.row_for(row if is_configuration else dataclasses.replace(row, directory=str(variant_dir(run_dir))))
            found.append((row, _read_run(run_dir, params), run_dir))
        except (TypeError, AttributeError, ValueError) as error:
            raise ValueError(f"{run_dir} is no run whose results can be read: {error}") from None
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


def _read_run(run_dir: Path, params: Mapping[str, Any]) -> Run:
    """Read a run."""
    record, columns = params.get(RECORD) or {}, read_columns(run_dir / "progress.csv")
    seed = record.get("seed", params.get("seed"))
    run = Run(seed=_UNSEEDED if seed is None else int(seed), steps=[], returns=[], made=_made(record))
    run.replay_lost_at = [_UNKNOWN if steps is None else steps for steps in replay_lost_at(record)]
    if has_column(columns, STEPS_COLUMN) and has_column(columns, *RETURN_COLUMNS):
        points = zip(columns[find_column(columns, STEPS_COLUMN)], columns[find_column(columns, *RETURN_COLUMNS)], strict=True)
        for steps, return_ in points:
            if not math.isfinite(steps):
                continue
            has_return = math.isfinite(return_)
            run.end = None if has_return else int(steps)
            if has_return:
                run.steps.append(int(steps))
                run.returns.append(return_)
        stop_return = record.get("stop_return")
        is_there = isinstance(stop_return, (int, float)) and run.end is None and run.returns[-1:] >= [stop_return]
        run.solved = is_there and run_status(run_dir).state == "finished"
    if has_column(columns, TIME_COLUMN):
        seconds = columns[find_column(columns, TIME_COLUMN)]
        run.seconds = round(seconds[-1], 1) if seconds and math.isfinite(seconds[-1]) else None
    return run


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
    task = _task({name.partition(".")[2]: value for name, value in settings.items() if name.startswith("env.")} or params.get("env") or {})
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
            row.task, row.goal = base.task, base.goal
        row.algorithm = ", ".join([row.algorithm if base is None else base.algorithm, *of_algorithm])
    if library == OURS and not any(change.startswith(_CLASS) for change in changed):
        row.command = " ".join(["rlpyt train", *configuration.split(":"), *(["--set", *map(shlex.quote, changed)] if changed else [])])
    return row, True


def _task(env: Mapping[str, Any]) -> str:
    """The environment as its arguments name it."""
    others = dict(env)
    names = [str(others.pop(name)) for name in ("id", "game") if name in others]
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
    n_steps = (params.get(RECORD) or {}).get("n_steps") or 0
    if n_steps > taken.get("runner.n_steps", math.inf):  # It was resumed for more steps than it began with.
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


# --- Markdown ---------------------------------------------------------------------------------------------------------
def filled(page: str, table: Table) -> str:
    """Return a page with new text between ``<!-- table NAME -->`` and ``<!-- end of table -->``.

    Raises:
        ValueError: the page has no such place, or one with an unknown name.
    """

    def fill(match: re.Match) -> str:
        if match[1] not in SECTIONS:
            raise ValueError(f"The page has a table {match[1]!r}, which is none of {', '.join(SECTIONS)}.")
        return f"<!-- table {match[1]} -->\n{SECTIONS[match[1]](table)}\n<!-- end of table -->"

    page, n = re.subn(r"<!-- table (\w+) -->\n.*?<!-- end of table -->", fill, page, flags=re.DOTALL)
    if n == 0:
        raise ValueError("The page has no place for a table: write <!-- table results --> and <!-- end of table --> on two lines.")
    return page


def written(table: Table, other: Table | None = None, names: tuple[str, str] = ("here", "there")) -> str:
    """Return a table, and its comparison with another one called `names[1]`, as a page in Markdown."""
    parts = ["# Results", results(table), origins(table)]
    if other is not None:
        rows, others = list(table.rows.values()), list(other.rows.values())
        parts += [f"## {names[0]} compared with {names[1]}", comparison(rows, others, table.scales, names)]
    return "\n\n".join(parts) + "\n"


def results(table: Table) -> str:
    """Return the rows of a table in Markdown."""
    head = ["task", "algorithm, steps", "command", "seeds", "IQM (95 %)", "lowest to highest", "goal", "published", "seconds", "made"]
    made = _origins(table)
    lines, task = [_line(head), "|---" * len(head) + "|"], None
    tasks = list(dict.fromkeys(row.task for row in table.rows.values()))
    for row in sorted(table.rows.values(), key=lambda row: tasks.index(row.task)):
        seconds = [run.seconds for run in row.complete if run.seconds is not None]
        letters = [_letter(i) for i in sorted({made.index(run.made) for run in row.runs if run.made})]
        older = ["older"] if any(not run.made for run in row.runs) else []
        cells = [
            row.task if row.task != task else "",
            f"{row.label}, {_steps(row.n_steps)}",
            f"`{row.command}`",
            _seeds(row),
            _score(row),
            _range(row.scores),
            "" if row.goal is None else f"{row.goal:,.6g}",
            row.reference,
            f"{min(seconds):,.0f}" if seconds else "",
            ", ".join(letters + older),
        ]
        lines.append(_line(cells))
        task = row.task
    return "\n".join(lines)


def _seeds(row: Row) -> str:
    """The number of complete runs, which of them lost their replay buffer or have no return at their end, and the fate of the others."""
    n = len(row.scores)
    parts = [f"{n} (few)" if n < FEW else str(n)]
    for run in row.runs:
        last = f"{_number(run.returns[-1])} at {_steps(run.steps[-1])}" if run.returns else "nothing yet"
        if row.is_complete(run) and run.end is not None:
            parts.append(f"seed {run.seed} ended without a return: {last}")
        elif not run.returns and run.taken >= row.n_steps > 0:
            parts.append(f"seed {run.seed} has no return at all")
        elif row.is_complete(run) and run.taken < row.n_steps:
            parts.append(f"seed {run.seed} solved: {last}")
        elif not row.is_complete(run):
            parts.append(f"seed {run.seed} incomplete: {last}")
        if run.replay_lost_at:
            lost = " and ".join("an unknown step" if steps == _UNKNOWN else _steps(steps) for steps in run.replay_lost_at)
            parts.append(f"seed {run.seed} resumed at {lost} without its replay buffer")
    return "; ".join(parts)


def _score(row: Row) -> str:
    """Interquartile mean of a row, with its interval."""
    if not len(row.scores):
        return ""
    interval = stratified_bootstrap([row.scores], interquartile_mean_of_all)
    return _with_interval(interval, _number) if len(row.scores) >= FEW else _number(float(interval.center))


def _range(scores: np.ndarray) -> str:
    if not len(scores):
        return ""
    low, high = _number(scores.min()), _number(scores.max())
    return low if low == high else f"{low} to {high}"


def origins(table: Table) -> str:
    """Return the versions of packages with which the runs were made, by the letters of `results`, in Markdown."""
    lines = []
    for i, made in enumerate(_origins(table)):
        lines.append(f"* **{_letter(i)}**: {', '.join(f'{name} {version}' for name, version in made.items())}.")
    return "\n".join(lines) or "No run recorded with what it was made."


def _origins(table: Table) -> list[dict[str, str]]:
    values: list[dict[str, str]] = []
    for row in table.rows.values():
        for run in row.runs:
            if run.made:
                _index(values, run.made)
    return values


def _letter(i: int) -> str:
    """a, b, ..., z, a1, b1, ..."""
    return "abcdefghijklmnopqrstuvwxyz"[i % 26] + (str(i // 26) if i >= 26 else "")


def profile(table: Table) -> str:
    """Return the performance profile of each library, in Markdown: which part of the runs scores more than a threshold."""
    head = ["", "rows", *(f"> {threshold:g}" for threshold in THRESHOLDS)]
    body = []
    for library in dict.fromkeys(row.library for row in table.rows.values()):
        rows = [row for row in table.rows_of(library) if _has_scale(row, table.scales)]
        if rows:
            body.append([library, str(len(rows)), *_profile(rows, table.scales)])
    if not body:
        return f"No row has {ENOUGH} complete runs and a scale."
    return "\n".join([_line(head), "|---" * len(head) + "|", *map(_line, body)])


def _profile(rows: Sequence[Row], scales: Scales) -> list[str]:
    interval = _of_all(rows, scales, lambda draws: performance_profile(draws, THRESHOLDS))
    return [_with_interval(Interval(*each), _fraction) for each in zip(*interval, strict=True)]


def _of_all(rows: Sequence[Row], scales: Scales, statistic: Callable[[Sequence[np.ndarray]], np.ndarray]) -> Interval:
    """A statistic of the normalized scores of several rows. Rows of the same `Row.block` are resampled together."""
    return stratified_bootstrap([_normalized(row, scales) for row in rows], statistic, blocks=[row.block for row in rows])


def against(table: Table) -> str:
    """Return how rows of rlpyt compare with those of other libraries, in Markdown."""
    others = table.rows_of(None)
    if not others:
        return "There are no runs of another library."
    return comparison(table.rows_of(OURS), others, table.scales, (OURS, others[0].library))


def comparison(rows: Sequence[Row], others: Sequence[Row], scales: Scales, names: tuple[str, str]) -> str:
    """Return a table in Markdown of the pairs of rows with the same task and steps, and for all tasks together.

    If some pairs of a row have the same algorithm, the row has no other pairs. Rows with fewer than ENOUGH complete runs are left out. In
    the statistics of all pairs together, no row counts twice, see `_once`, and rows of the same `Row.block` are resampled together.

    Args:
        rows, others: the rows to compare.
        scales: the returns of each task that count as scores 0 and 1.
        names: the names of both groups of rows.
    """
    pairs = [pair for row in rows for pair in _pairs(row, others) if min(len(each.scores) for each in pair) >= ENOUGH]
    if not pairs:
        return f"No pair of rows has the same task and steps, and at least {ENOUGH} complete runs each."
    head = ["task", "steps", names[0], names[1], f"IQM, {names[0]}", f"IQM, {names[1]}", f"{names[0]} is better, probability"]
    body = []
    for x, y in pairs:
        probability = stratified_bootstrap([x.scores, y.scores], probability_of_improvement, blocks=[x.block, y.block])
        body.append([x.task, _steps(x.n_steps), x.label, y.label, _score(x), _score(y), _with_interval(probability, _fraction)])
    scaled = [pair for pair in _once(pairs) if all(_has_scale(row, scales) for row in pair)]
    if len(scaled) > 1:
        means = [_with_interval(_of_all(each, scales, interquartile_mean_of_all), _fraction) for each in zip(*scaled, strict=True)]
        probability = _of_all([row for pair in scaled for row in pair], scales, probability_of_improvement)
        body.append([f"all {len(scaled)}, normalized", "", "", "", *means, _with_interval(probability, _fraction)])
    lines = [_line(head), "|---" * len(head) + "|", *map(_line, body)]
    if scaled:
        lines += ["", _line(["runs that score", *(f"> {threshold:g}" for threshold in THRESHOLDS)]), "|---" * (len(THRESHOLDS) + 1) + "|"]
        lines += [_line([name, *_profile(each, scales)]) for name, each in zip(names, zip(*scaled, strict=True), strict=True)]
    return "\n".join(lines)


def _pairs(row: Row, others: Iterable[Row]) -> Iterator[tuple[Row, Row]]:
    fitting = [other for other in others if (other.task, other.n_steps) == (row.task, row.n_steps)]
    same = [other for other in fitting if other.kind == row.kind]
    yield from ((row, other) for other in same or fitting)


def _once(pairs: Sequence[tuple[Row, Row]]) -> list[tuple[Row, Row]]:
    """Return the pairs both of whose rows have no other pair. For a row with pairs of the same algorithm, only these are considered."""

    def is_only(pair: tuple[Row, Row], side: int) -> bool:
        of_row = [each for each in pairs if each[side] is pair[side]]
        same = [(x, y) for x, y in of_row if x.kind == y.kind]
        return (same or of_row) == [pair]

    return [pair for pair in pairs if is_only(pair, 0) and is_only(pair, 1)]


def _has_scale(row: Row, scales: Scales) -> bool:
    """Whether a row has runs enough and a scale, so that it counts in statistics of all rows."""
    return row.task in scales and len(row.scores) >= ENOUGH


def _normalized(row: Row, scales: Scales) -> np.ndarray:
    """Scores of a row, 0 and 1 at the returns in `scales`."""
    low, high = scales[row.task]
    return (row.scores - low) / (high - low)


def curves(table: Table) -> dict[str, dict[str, list[tuple[list[int], list[float]]]]]:
    """Return the curves (steps, returns) of all runs by task, and by what tells the rows of a task apart.

    That is the algorithm; where several rows have it, also the planned steps; where several have both, also the configuration.
    """
    panels: dict[str, dict[str, list[tuple[list[int], list[float]]]]] = {}
    labels = {key: (row.label, f"{row.label}, {_steps(row.n_steps)}") for key, row in table.rows.items()}
    n_rows = Counter((row.task, label) for key, row in table.rows.items() for label in labels[key])
    for key, row in table.rows.items():
        found = [(run.steps, run.returns) for run in row.runs if run.steps]
        short, longer = labels[key]
        label = next((label for label in (short, longer) if n_rows[row.task, label] == 1), f"{longer}, {row.name}")
        if found:
            panels.setdefault(row.task, {})[label] = found
    return panels


SECTIONS: dict[str, Callable[[Table], str]] = dict(results=results, origins=origins, profile=profile, against=against)


def _line(cells: Sequence[str]) -> str:
    return "|" + "|".join(f" {printable(cell).replace('|', '&#124;')} " if cell else " " for cell in cells) + "|"


def _with_interval(interval: Interval, form: Callable[[float], str]) -> str:
    center, low, high = (form(float(value)) for value in interval)
    return f"{center} ({low})" if low == high else f"{center} ({low} to {high})"


def _number(value: float) -> str:
    if 0 < abs(value) < 0.995:
        return f"{value:#.3g}"
    return f"{value:,.0f}" if abs(value) >= 99.95 else f"{value:.1f}"


def _fraction(value: float) -> str:
    return f"{value:.2f}"


def _steps(n: int) -> str:
    """100000 -> 100k, 2000000 -> 2M, 102144 -> 102k."""
    return f"{n / 1e6:g}M" if n >= 1e6 and n % 1e5 == 0 else f"{n / 1e3:.0f}k" if n >= 1e3 else str(n)
