"""Compute the first rows of a run again, and compare them with it bit for bit.

The run must have been trained with --digest (digest=True of the runner). It is made again as its params.json
says, in a temporary directory, and takes its choices between equal computations from there. Compared are the
digests of parameters, optimizers, samples and random numbers. Other columns of the log are not compared: a
return in progress.csv that somebody has changed is not noticed.

The exit code is 0 if the digests of all rows are the same, and 1 if one differs. Then the command names the
first tensor that does. In both cases it names what is different here: versions, processor, threads, workers,
choices. Digests that the run lacks, such as those of samples if an earlier part of it was trained without
--digest, are named as not compared.
Code of the run comes from rlpyt, torch, gymnasium and files below the current directory; see --trust.

examples:
  rlpyt verify data/local/20260101/120000/cartpole_ppo/run_0
  rlpyt verify data/local/20260101/120000/cartpole_ppo/run_0 --rows all
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlpyt.cli import playing
from rlpyt.utils.text import plural, printable, show

if TYPE_CHECKING:
    from rlpyt.experiments.verify import Comparison
    from rlpyt.utils.digests import Parting

ALL = "all"
DEFAULT = 3  # rows
_MOST_NAMED = 4
_LONGEST = 200  # characters of a value; a setting may be a whole data set


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("run_dir", metavar="DIR", help="directory of the run, run_<ID>")
    parser.add_argument("--rows", metavar="N", type=_rows, help=f"number of rows to compute again, or {ALL}; default: up to {DEFAULT}")
    playing.add_opening_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Train again, and print what was found."""
    from rlpyt.experiments.verify import gaps, n_missing, rows_of, verify

    run_dir = Path(args.run_dir)
    rows = rows_of(run_dir)
    every = args.rows == ALL or (args.rows is None and len(rows) <= DEFAULT)
    n_rows = len(rows) if every else args.rows or DEFAULT
    found = verify(run_dir, None if every else n_rows, args.trust, args.script)
    if n_rows == len(rows):
        for gap in gaps(run_dir, rows):
            show(f"Not compared: {gap}")
    missing = n_missing(rows[:n_rows], found.pairs)
    if missing:
        show(f"Not compared: {plural(missing, 'row')} that the run has only because it was interrupted, or resumed with other intervals.")
    compared, not_compared = kinds_of(found)
    for line in not_compared:
        show(line)
    if found.parting is None:
        what = f"{plural(len(found.pairs), 'row')} of {printable(run_dir)}, up to {found.pairs[-1][0].steps:,} environment steps"
        show(f"Verified: {what}, bit for bit ({compared}).")
        show_differences(found, "then", "now")
        return 0
    show(f"Not verified: {printable(run_dir)} and what was computed now part.")
    for line in [*lines_of(found.parting), *conditions(found, "then", "now")]:
        show(line)
    return 1


def _rows(text: str) -> int | str:
    """Read a positive integer, or ALL."""
    return ALL if text == ALL else playing.at_least_1(text)


def kinds_of(found: Comparison) -> tuple[str, list[str]]:
    """Return the kinds of digests that were compared in every row, up to the first that differs, and a line about the others, if any.

    Raises:
        ValueError: no kind was compared in any row.
    """
    from rlpyt.utils.digests import n_compared

    pairs = found.pairs[: found.parting.n_same + 1] if found.parting else found.pairs
    n = n_compared(pairs)
    if not any(n.values()):
        raise ValueError("The runs have no kind of digest in common, so nothing can be compared.")
    everywhere = [kind.lower() for kind in n if n[kind] == len(pairs)]
    missing = [f"{kind.lower()} in {len(pairs) - n[kind]} of {plural(len(pairs), 'row')}" for kind in n if n[kind] < len(pairs)]
    lines = [f"Not compared: {', '.join(missing)}, of which not both have their digests."] if missing else []
    return ", ".join(everywhere) or "no kind in all of them", lines


def lines_of(parting: Parting) -> list[str]:
    """Return lines about the first difference between two runs."""
    from rlpyt.utils.digests import KINDS

    kind, name = parting.first
    before = (
        f"{plural(parting.n_same, 'row')} before it {'is' if parting.n_same == 1 else 'are'} the same"
        if parting.n_same
        else "no row before it"
    )
    lines = [f"First row that differs: {parting.a}; {before}.", f"First tensor in it: {kind.lower()}, {printable(name)}."]
    for each in KINDS:
        names = parting.names.get(each)
        if names is None:
            what = "not compared"
        elif names:
            what = f"{len(names)} of {parting.n[each]} differ: {_some(names)}"
        else:
            what = "the same" if parting.n[each] else "none yet"
        lines.append(f"  {each.lower()}: {what}")
    return lines


def _some(names: list[str]) -> str:
    more = f", and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return printable(", ".join(names[:_MOST_NAMED])) + more


def conditions(found: Comparison, a: str, b: str) -> list[str]:
    """Return lines with the differences in the conditions of two runs, called `a` and `b`."""
    different = {**found.settings, **found.conditions}
    if not different:
        return [
            "Settings, versions, processor, threads, workers and choices are the same. What else may be different: the code, packages of "
            "the environment, or an environment or a GPU that does not repeat itself."
        ]
    return ["Different:", *(f"  {printable(name)}: {_value(x)} {a}, {_value(y)} {b}" for name, (x, y) in different.items())]


def show_differences(found: Comparison, a: str, b: str) -> None:
    """Show what was different in the conditions of two equal runs, if anything was. Equal results then say more."""
    if found.settings or found.conditions:
        for line in conditions(found, a, b):
            show(line)


def _value(value: Any) -> str:
    text = "nothing" if value is None else printable(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}... ({len(text):,} characters)"
