"""Pages of results in Markdown, and the curves of their picture."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np

from rlpyt.experiments.results.table import OURS, Row, Table
from rlpyt.utils.aggregate import (
    Interval,
    interquartile_mean_of_all,
    performance_profile,
    probability_of_improvement,
    stratified_bootstrap,
)
from rlpyt.utils.text import printable

FEW = 3  # Rows with fewer runs are marked, and have no interval.
ENOUGH = 5  # Rows with fewer runs are not compared.
THRESHOLDS = (0.5, 0.75, 0.9, 0.95, 0.99)  # of the performance profile, in normalized scores
Scales = Mapping[str, tuple[float, float]]  # returns of each task that count as scores 0 and 1


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


def written(table: Table, other: Table | None = None, names: tuple[str, str] = ("here", "there"), shows_other: bool = True) -> str:
    """Return a table, and its comparison with another one called `names[1]`, as a page in Markdown that explains its words.

    Args:
        table: the table.
        other: what it is compared with; None for no comparison.
        names: the names of both.
        shows_other: whether the page has the rows of the other table, too.
    """
    shown = [(names[0], table)]
    if other is not None and shows_other:
        shown.append((names[1], other))
    has_both = len(shown) > 1
    scales = {**(other.scales if other is not None else {}), **table.scales}
    parts, title = ["# Results"], f"## {names[0]} compared with {names[1]}"
    for name, each in shown:
        if has_both:
            parts.append(f"## {name}")
        parts += [results(each), origins(each)]
    if has_both:
        parts.append(title)
    parts += [_words([each for _, each in shown]), f"{'###' if has_both else '##'} All rows together"]
    groups = [(name, list(each.rows.values())) for name, each in shown] if has_both else _by_library(table)
    parts += [*_normalization([row for _, rows in groups for row in rows], scales), _profiles(groups, scales)]
    if other is not None:
        compared = comparison(list(table.rows.values()), list(other.rows.values()), scales, names)
        parts += ["### Pairs of rows" if has_both else title, compared]
        if compared.startswith("|"):
            parts.append(_pairs_explained(names, has_all="| all " in compared))
    return "\n\n".join(parts) + "\n"


def _pairs_explained(names: tuple[str, str], has_all: bool) -> str:
    """Explain the table of `comparison`; `has_all`: it has a line of all pairs."""
    sentences = [
        "A row is compared with rows of the same task and steps: with those of its algorithm, and if there are none, with all.",
        f"The probability is that of a run of {names[0]} to have a higher return than one of {names[1]}; equal returns count half.",
        "In the line of all pairs together, no row counts twice." if has_all else "",
    ]
    return " ".join(filter(None, sentences))


def _words(tables: Sequence[Table]) -> str:
    """Explain the words of `results` that occur, in Markdown."""
    rows = [row for table in tables for row in table.rows.values()]
    runs = [run for row in rows for run in row.runs]
    words = {
        "IQM": "the interquartile mean of the last mean returns of complete runs, the mean without the lowest and the highest quarter. "
        f"Its 95 % interval is a bootstrap over runs; one of fewer than {ENOUGH} is too narrow.",
        "Few": f"a row of fewer than {FEW} complete runs: an example, not a result.",
        "Incomplete": "a run that stopped early or is still running. It is listed with what it reached, and is no part of a statistic.",
        "Goal": "the mean return that counts as learned in that row, after its steps.",
        "Published": "results of other authors, or what is known of the task.",
        "Seconds": "those of the fastest complete run.",
        "Older": "runs of which commit and versions were not recorded.",
    }
    occurs = {
        "IQM": any(row.complete for row in rows),
        "Few": any(len(row.complete) < FEW for row in rows),
        "Incomplete": any(not row.is_complete(run) for row in rows for run in row.runs),
        "Goal": any(row.goal is not None for row in rows),
        "Published": any(row.reference for row in rows),
        "Seconds": any(run.seconds is not None for row in rows for run in row.complete),
        "Older": any(not run.made for run in runs),
    }
    lines = [f"* **{word}**: {meaning}" for word, meaning in words.items() if occurs[word]]
    return "\n".join(["What the words mean:", "", *lines]) if lines else "There are no rows."


def _normalization(rows: Sequence[Row], scales: Scales) -> list[str]:
    """Explain what `_profiles` says of these rows; [] if none of them counts there."""
    tasks = dict.fromkeys(row.task for row in rows if _has_scale(row, scales))
    if not tasks:
        return []
    returns = ", ".join(f"{scales[task][0]:,.6g} and {scales[task][1]:,.6g} on {printable(task)}" for task in tasks)
    return [
        f"Scores are normalized, so that tasks can be averaged: 0 and 1 are returns of {returns}. The performance profile is the "
        f"fraction of runs whose score is above a threshold, such as > {THRESHOLDS[0]:g}, averaged over the rows with at least {ENOUGH} "
        "complete runs. Its 95 % intervals are from a bootstrap over runs."
    ]


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
            f"{row.label}, {_planned(row)}",
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
    """The number of complete runs, what is special about some of them, and the fate of the others."""
    n = len(row.scores)
    parts = [f"{n} (few)" if n < FEW else str(n)]
    for run in row.runs:
        if run.returns:
            last = f"{_number(run.returns[-1])} at {_steps(run.steps[-1])}"
        else:
            last = f"no return up to {_steps(run.taken)}" if run.taken else "nothing yet"
        if row.is_complete(run) and run.end is not None:
            parts.append(f"seed {run.seed} ended without a return: {last}")
        elif not run.returns and run.taken >= max(row.n_steps, 1):
            parts.append(f"seed {run.seed} has no return at all")
        elif row.is_complete(run) and run.taken < row.n_steps:
            parts.append(f"seed {run.seed} solved: {last}")
        elif not row.is_complete(run):
            parts.append(f"seed {run.seed} incomplete: {last}")
        if run.replay_lost_at:
            lost = " and ".join("an unknown step" if steps is None else _steps(steps) for steps in run.replay_lost_at)
            parts.append(f"seed {run.seed} resumed at {lost} without its replay buffer")
        if run.planned_before:
            parts.append(f"seed {run.seed} planned for {' and '.join(map(_steps, run.planned_before))} before it was resumed")
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
            if run.made and run.made not in values:
                values.append(run.made)
    return values


def _letter(i: int) -> str:
    """a, b, ..., z, a1, b1, ..."""
    return "abcdefghijklmnopqrstuvwxyz"[i % 26] + (str(i // 26) if i >= 26 else "")


def profile(table: Table) -> str:
    """Return the performance profile of each library, in Markdown: which part of the runs scores more than a threshold."""
    return _profiles(_by_library(table), table.scales)


def _by_library(table: Table) -> list[tuple[str, list[Row]]]:
    return [(library, table.rows_of(library)) for library in dict.fromkeys(row.library for row in table.rows.values())]


def _profiles(groups: Sequence[tuple[str, Sequence[Row]]], scales: Scales) -> str:
    """Return the performance profile of each group of rows, by its name, and the tasks that have no scale."""
    head = ["", "rows", *(f"> {threshold:g}" for threshold in THRESHOLDS)]
    body = []
    for name, group in groups:
        rows = [row for row in group if _has_scale(row, scales)]
        if rows:
            body.append([name, str(len(rows)), *_profile(rows, scales)])
    parts = ["\n".join([_line(head), "|---" * len(head) + "|", *map(_line, body)])] if body else []
    if not body:
        parts.append(f"No row has {ENOUGH} complete runs and a scale.")
    unscaled = dict.fromkeys(row.task for _, rows in groups for row in rows if len(row.scores) >= ENOUGH and row.task not in scales)
    if unscaled:
        options = " ".join(f"--scale {shlex.quote(printable(task))} LOW HIGH" for task in unscaled)
        parts.append(
            f"Rows without a scale are left out. Give the return of each task that counts as a score of 0, such as that of random actions, "
            f"and the one that counts as 1: `{options}`."
        )
    return "\n\n".join(parts)


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

    If some pairs of a row have the same algorithm, the row has no other pairs. Pairs of one algorithm come first. Rows with fewer than
    ENOUGH complete runs are left out. In the statistics of all pairs together, no row counts twice, see `_once`, and rows of the same
    `Row.block` are resampled together.

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
    for x, y in sorted(pairs, key=lambda pair: pair[0].kind != pair[1].kind):  # First the pairs of one algorithm.
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
    fitting = [other for other in others if row.n_steps and (other.task, other.n_steps) == (row.task, row.n_steps)]
    same = [other for other in fitting if other.kind == row.kind]
    yield from ((row, other) for other in same or fitting)


def _once(pairs: Sequence[tuple[Row, Row]]) -> list[tuple[Row, Row]]:
    """Leave out pairs that share a row with another pair, so that no row counts twice.

    If a row has pairs with the same algorithm, its other pairs do not matter.
    """

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
    labels = {key: (row.label, f"{row.label}, {_planned(row)}") for key, row in table.rows.items()}
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


def _planned(row: Row) -> str:
    """The environment steps of a row."""
    return _steps(row.n_steps) if row.n_steps else "unknown steps"


def _steps(n: int) -> str:
    """100000 -> 100k, 2000000 -> 2M, 102144 -> 102k."""
    return f"{n / 1e6:g}M" if n >= 1e6 and n % 1e5 == 0 else f"{n / 1e3:.0f}k" if n >= 1e3 else str(n)
