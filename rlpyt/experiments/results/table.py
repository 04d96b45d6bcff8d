"""A table of results: runs in rows, and its files.

A table is two files: results.json has a row for each configuration, with what people wrote about it and how its runs were made; curves.csv
beside it has all points of all curves. The score of a run is its last mean return. Runs that ended before all their steps are listed, but
are no part of a statistic. A run that took all its steps counts, also if the last rows of its log have no return, and is marked then. Runs
that are planned for different numbers of steps are different rows.
"""

from __future__ import annotations

import csv
import dataclasses
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from rlpyt.utils.logging.runs import directory_labels
from rlpyt.utils.misc import atomic_write

FORMAT = 1
OURS = "rlpyt"
CURVES = "curves.csv"
_COLUMNS = ("row", "seed", "environment steps", "mean return")


@dataclasses.dataclass
class Run:
    """A run, as far as it got.

    Attributes:
        steps, returns: environment steps and mean returns, a point for each row of its log that has a return.
        seconds: its duration, None if unknown.
        made: with which commit and versions, by name; empty if they were not recorded.
        end: environment steps in the last row of its log, if that has no return; None if it has one.
        solved: it finished without the steps of its row, because its mean return reached `stop_return` of its runner; or it finished, and
            the row does not know the steps.
        replay_lost_at: environment steps after which it was resumed with an empty replay buffer; None where their number is unknown.
        planned_before: other numbers of environment steps that were planned, until it was resumed for those of its row.
    """

    seed: int
    steps: list[int]
    returns: list[float]
    seconds: float | None = None
    made: dict[str, str] = dataclasses.field(default_factory=dict)
    end: int | None = None
    solved: bool = False
    replay_lost_at: list[int | None] = dataclasses.field(default_factory=list)
    planned_before: list[int] = dataclasses.field(default_factory=list)

    @property
    def taken(self) -> int:
        """Environment steps that it took, as far as its log tells."""
        return max([self.end or 0, *self.steps[-1:]])

    @property
    def shown(self) -> list[str]:
        """Its returns, with the digits that a file keeps."""
        return [f"{value:.6g}" for value in self.returns]

    def __str__(self) -> str:
        return f"{self.taken:,} steps with {f'a return of {self.shown[-1]}' if self.returns else 'no return'}"


@dataclasses.dataclass
class Row:
    """Runs that differ by their seed only.

    Attributes:
        name: a configuration such as "cartpole:ppo", with its changes if any; or the name of a user's runs.
        n_steps: environment steps that were planned; 0 if they are unknown.
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
    def place(self) -> tuple[str, str, str, int]:
        """What two rows have in common whose runs belong together."""
        name = self.name.removesuffix(self._steps).removesuffix(f" in {self.directory}")
        return self.library, name, self.directory, self.n_steps

    @property
    def _steps(self) -> str:
        """What is added to the name of a row if another one has it already."""
        return f", {self.n_steps} steps" if self.n_steps else ", unknown steps"

    @property
    def label(self) -> str:
        """The algorithm and variant, with the library if it is not rlpyt."""
        return self.kind if self.library == OURS else f"{self.kind}, {self.library}"

    @property
    def kind(self) -> str:
        """The algorithm and variant."""
        return f"{self.algorithm}, {self.variant}" if self.variant else self.algorithm

    def is_complete(self, run: Run) -> bool:
        """Whether a run took all its steps, or finished without them, and has a return."""
        return bool(run.returns) and (run.solved or 0 < self.n_steps <= run.taken)

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

        Scripts may give the same name to runs with other settings. So a row of another directory gets the directory into its name, and one
        of another number of steps that number.
        """
        row = next((row for row in self.rows.values() if row.place == new.place), None) or self._without_directory(new)
        if row is None:
            row = dataclasses.replace(new, runs=[])
            if row.key in self.rows and self.rows[row.key].directory != row.directory:
                row.name = f"{row.name} in {row.directory}"
            if row.key in self.rows:
                row.name += row._steps
            self.rows[row.key] = row
        return row

    def _without_directory(self, new: Row) -> Row | None:
        """Return the row of `new` in a table of an earlier version, which did not have directories; None without one."""
        names = (new.name, f"{new.name} in {new.directory}") if new.directory else ()
        for row in self.rows.values():
            if row.directory or (row.library, row.n_steps) != (new.library, new.n_steps) or row.name not in names:
                continue
            known, curves = ([(run.steps, run.shown) for run in each.runs] for each in (row, new))
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
            for run in new.runs:
                before = row.by_seed.get(run.seed)
                if not row.put(run):
                    self.left_out.append(f"The run of {row.name} with seed {run.seed} is left out: that of the table got further.")
                elif before is not None and (before.steps, before.shown) != (run.steps, run.shown):
                    self.left_out.append(
                        f"The run of {row.name} with seed {run.seed} that was in the table, {before}, is replaced by one of {run}."
                    )
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
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing: a table is two files, and this one lies beside the other.")
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
            if run.planned_before:
                entry["planned_before"] = run.planned_before
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
                writer.writerows((row.key, run.seed, x, y) for x, y in zip(run.steps, run.shown, strict=True))


def _index(values: list, value: Any) -> int:
    """The index of a value in a list, to which it is appended if it is missing."""
    if value not in values:
        values.append(value)
    return values.index(value)
