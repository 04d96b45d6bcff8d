"""Name the first row, and the first tensor in it, in which two runs part.

Both must have been trained with --digest (digest=True of the runner). Rows after the same number of
environment steps are compared. Nothing is computed again. Digests that one of them lacks, such as those of
samples if an earlier part of it was trained without --digest, are named as not compared.

Samples count from the start of a run. In a row of several iterations, a difference may have begun anywhere
in it: the shorter log_interval_steps, the nearer the place.

The exit code is 0 if all rows in common are the same, and 1 if one differs.

example:
  rlpyt bisect data/local/before/run_0 data/local/after/run_0
"""

from __future__ import annotations

import argparse
from pathlib import Path

from rlpyt.cli.verify import conditions, kinds_of, lines_of, show_differences
from rlpyt.utils.text import plural, show


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("a", metavar="DIR", help="directory of a run, run_<ID>")
    parser.add_argument("b", metavar="DIR", help="directory of another one")


def run(args: argparse.Namespace) -> int:
    """Print where they part."""
    from rlpyt.experiments.verify import compare, gaps, n_missing, rows_of

    dirs = Path(args.a), Path(args.b)
    found, rows = compare(*dirs), [rows_of(each) for each in dirs]
    for which, run_dir, of_run in zip(("first", "second"), dirs, rows):
        for gap in gaps(run_dir, of_run):
            show(f"Not compared, of the {which} run: {gap}")
    others = [n_missing(of_run, found.pairs) for of_run in rows]
    if any(others):
        show(f"Not compared: {plural(others[0], 'row')} of the first run and {others[1]} of the second, which the other one lacks.")
    compared, not_compared = kinds_of(found)
    for line in not_compared:
        show(line)
    if found.parting is None:
        what = f"{plural(len(found.pairs), 'row')}, up to {found.pairs[-1][0].steps:,} environment steps"
        show(f"The same: {what}, bit for bit ({compared}).")
        show_differences(found, "in the first", "in the second")
        return 0
    for line in [*lines_of(found.parting), *conditions(found, "in the first", "in the second")]:
        show(line)
    return 1
