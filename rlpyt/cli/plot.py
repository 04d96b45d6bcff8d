"""Draw learning curves of any number of runs.

Directories of runs or of whole experiments are searched for progress.csv. A group of runs (by default,
directories that differ only by run_<ID>) becomes one curve: the mean or interquartile mean, with a
bootstrap confidence band over runs. (With fewer than about five runs, such bands are too narrow.)
Of a search (rlpyt tune): scores at the rungs, the best so far, importance of settings, and the
settings of all trials; with --key, or another option of learning curves, those of its runs.

example:
  rlpyt plot data/local/sweep --group-by learning_rate batch_B --iqm --out learning_rates
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from rlpyt.cli import Gather
from rlpyt.utils.text import printable, show

# Options of learning curves that are not given. (As arguments they are None, to tell what is given.)
OF_CURVES = dict(columns=[], x="CumSteps", group_by=["directory"], iqm=False, confidence=0.95, n_resamples=2000)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("dirs", metavar="RUN_DIR", nargs="+", help="directory of a run, or of an experiment")
    parser.add_argument(
        "--key",
        metavar="COLUMN",
        nargs="+",
        action=Gather,
        dest="columns",
        help="columns of the log, a panel for each; default: the return",
    )
    parser.add_argument("--keys", action="store_true", help="list the columns of the log instead of drawing")
    parser.add_argument("--x", metavar="COLUMN", help="horizontal axis; default: CumSteps, environment steps")
    parser.add_argument(
        "--group-by",
        "--group_by",
        metavar="SETTING",
        nargs="+",
        action=Gather,
        help='common to the runs of a group: settings, e.g. learning_rate or algo.learning_rate; or "directory" (default); '
        'or "run" for ungrouped runs',
    )
    parser.add_argument("--iqm", action="store_true", default=None, help="interquartile mean instead of the mean")
    parser.add_argument("--confidence", type=float, help="level of the bands; default: 0.95")
    parser.add_argument("--n_resamples", type=int, help="bootstrap resamples for the bands; default: 2000")
    parser.add_argument("--title", help="title of the picture; default: the common part of the runs' names")
    parser.add_argument(
        "--out", help="file .png, .svg or .pdf; without an extension, a PNG and an SVG; default: learning_curves, or search"
    )


def run(args: argparse.Namespace) -> int:
    """Draw, or list columns."""
    from rlpyt.utils.launching.search_dir import is_search
    from rlpyt.utils.logging.runs import find_runs, read_columns
    from rlpyt.utils.plotting import plot_learning_curves

    given = {name: getattr(args, name) for name in OF_CURVES if getattr(args, name) is not None}
    if args.keys:
        tables = [read_columns(run_dir / "progress.csv") for run_dir in find_runs(args.dirs)]
        show("\n".join(map(printable, dict.fromkeys(column for table in tables for column in table))))
        return 0
    if len(args.dirs) == 1 and is_search(args.dirs[0]) and not given:
        from rlpyt.utils.launching.search_picture import plot_search

        for path in plot_search(args.dirs[0], args.out or "search", args.title):
            show(printable(Path(path)))
        return 0
    options: dict[str, Any] = {**OF_CURVES, **given}
    paths = plot_learning_curves(
        args.dirs,
        keys=options["columns"],
        statistic="IQM" if options["iqm"] else "mean",
        path=args.out or "learning_curves",
        title=args.title,
        note=show,
        **{name: options[name] for name in ("x", "group_by", "n_resamples", "confidence")},
    )
    for path in paths:
        show(printable(Path(path)))
    return 0
