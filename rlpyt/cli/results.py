"""Make the page of results from a table of runs, or the same page of your runs.

Without an option, docs/learning.md of this clone is made again from docs/learning/results.json. --add first
puts runs into that table: a run takes the place of an earlier one with the same configuration, steps and seed
that got no further, and the command says so. --compare prints such a page of your runs, compared with the
published table, or with another one or other runs, which are on the page, too. Statistics of all rows need
the scale of each task, the returns that count as scores 0 and 1. The table has those of its tasks; --scale
gives others, and without --compare puts them into the table.

Scores are last mean returns. IQM is the interquartile mean over runs, with a 95 % bootstrap interval; one of
fewer than five runs is too narrow. Rows of fewer than three runs are marked as few. Incomplete runs, which
stopped early or are still running, are listed with what they reached, and are no part of a statistic. A run
that took all its steps, but has no return in its last rows, counts with its last return, and is marked. Runs
without any row are named, and listed where params.json tells of which row they are.

examples:
  rlpyt results --add data/local/sweep
  rlpyt results --compare data/local/mine
  rlpyt results --compare data/local/mine data/local/theirs > compared.md
  rlpyt results --compare data/local/mine --scale Acrobot-v1 -500 -80
"""

from __future__ import annotations

import argparse
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from rlpyt.cli import Gather
from rlpyt.utils.text import printable, show


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--add", metavar="DIR", nargs="+", action=Gather, help="put the runs of these directories into the table")
    what.add_argument(
        "--compare", metavar="DIR", nargs="+", action=Gather, help="print the page of these runs, compared with a second directory or table"
    )
    parser.add_argument(
        "--scale",
        metavar=("TASK", "LOW", "HIGH"),
        nargs=3,
        action="append",
        default=[],
        help="the returns of a task that count as scores 0 and 1; once for each task (negative ones as -500, not -5e2)",
    )
    parser.add_argument("--table", metavar="FILE", help="the table; default: docs/learning/results.json of this clone")
    parser.add_argument(
        "--page", metavar="FILE", help="the page with places for tables; default: docs/learning.md of this clone, and none with --table"
    )
    parser.add_argument("--picture", metavar="FILE", help="also draw all curves, a panel for each task: a file .png, .svg or .pdf")


def run(args: argparse.Namespace) -> int:
    """Make the page, or print one."""
    from rlpyt.utils.logging.context import reader, sole_writer
    from rlpyt.utils.plotting import check_picture, plot_panels

    if args.picture:
        check_picture(args.picture)
    table_path = Path(args.table or _in_docs("learning", "results.json"))
    directory = table_path.parent
    if not directory.is_dir() and not args.compare:
        raise FileNotFoundError(f"There is no directory {directory} for the table: make it, or give another file with --table.")
    # Table and curves are two files, which nobody may change between two looks at them.
    writes = args.add or (args.scale and not args.compare)
    lock, others_do = (sole_writer, "uses the table of") if writes else (reader, "is writing to")
    with lock(directory, f"Another process {others_do} {directory}: wait until it has ended.") if directory.is_dir() else nullcontext():
        table = _compare(args, table_path) if args.compare else _make(args, table_path)
    if args.picture:
        from rlpyt.experiments.results.pages import curves

        for path in plot_panels(curves(table), args.picture):
            show(printable(path))
    return 0


def _make(args: argparse.Namespace, table_path: Path) -> Any:
    """Put runs into the table, make its page, and return the table."""
    from rlpyt.experiments.results.pages import filled
    from rlpyt.experiments.results.table import Table, read_table, write_table
    from rlpyt.utils.misc import atomic_write

    # The published page is that of the published table, not that of another one.
    page_path = Path(args.page) if args.page else None if args.table else _in_docs("learning.md")
    is_new = args.add and args.table and not table_path.exists()
    table = Table() if is_new else read_table(_there(table_path, "--table"))
    if page_path is None and not (args.add or args.scale or args.picture):
        raise ValueError("Nothing was asked for: --page FILE makes the page of this table, and --add DIR puts runs into it.")
    if args.add:
        table.add(_read(args.add, table))
        _say_left_out(table)
    table.scales.update(_scales(args.scale, table))
    page = filled(_there(page_path, "--page").read_text(encoding="utf-8"), table) if page_path else ""
    if args.add or args.scale:
        write_table(table, table_path)
    if page_path:
        with atomic_write(page_path, "w", encoding="utf-8") as file:
            file.write(page)
    show(printable(page_path or table_path))
    return table


def _scales(given: list[list[str]], *tables: Any) -> dict[str, tuple[float, float]]:
    """The values of --scale, by task.

    Raises:
        ValueError: no row of the tables has such a task, or the values are no scale.
    """
    import math

    from rlpyt.utils.misc import did_you_mean

    tasks = list(dict.fromkeys(row.task for table in tables for row in table.rows.values()))
    scales = {}
    for task, *numbers in given:
        if task not in tasks:
            hint = did_you_mean(task, tasks, otherwise=f"There are: {', '.join(tasks)}.")
            raise ValueError(f"--scale {task}: no row has this task. {hint}")
        try:
            low, high = map(float, numbers)
        except ValueError:
            low = high = math.nan
        if not (low < high and math.isfinite(high - low)):
            raise ValueError(f"--scale {task} takes two numbers, the lower one first, not {' and '.join(numbers)}.")
        scales[task] = (low, high)
    return scales


def _compare(args: argparse.Namespace, table_path: Path) -> Any:
    """Print the page of runs compared with others, and return their table."""
    from rlpyt.experiments.results.pages import written
    from rlpyt.experiments.results.table import OURS, Table, read_table

    if len(args.compare) > 2:
        raise ValueError(f"--compare takes one directory or two, not {len(args.compare)}.")
    labels = read_table(table_path) if table_path.exists() else None
    mine, *others = args.compare
    table = _read([mine], labels)
    if not others:
        published = read_table(_there(table_path, "--table"))
        other, name = Table({row.key: row for row in published.rows_of(OURS)}), "the published table"
    else:
        (name,) = others
        other = read_table(name) if Path(name).is_file() else _read([name], labels)
    table.scales.update(_scales(args.scale, table, other))
    show(written(table, other, (mine, name), shows_other=bool(others)))
    return table


def _read(dirs: list[str], labels: Any) -> Any:
    """Read the table of runs, and say which runs do not count."""
    from rlpyt.experiments.results.runs import read_runs

    table = read_runs(dirs, labels)
    _say_left_out(table)
    return table


def _say_left_out(table: Any) -> None:
    for sentence in table.left_out:
        show(printable(sentence), sys.stderr)


def _in_docs(*parts: str) -> Path:
    """A path in the documentation of this clone."""
    return Path(__file__).parents[2].joinpath("docs", *parts)


def _there(path: Path, option: str) -> Path:
    if not path.is_file():
        raise FileNotFoundError(f"There is no {path}. It is part of a clone of rlpyt; without one, give another file with {option}.")
    return path
