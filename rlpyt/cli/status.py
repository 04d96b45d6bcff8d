"""Show the state of all runs in a directory: runs of experiments, of wrap_experiment, and single runs.

For every run: whether it is pending, running, finished, failed or interrupted, the number of environment
steps taken and planned, and the last mean return. For a search (rlpyt tune), also rungs, best
trials and importance of settings.

example:
  rlpyt status data/local/sweep
"""

from __future__ import annotations

import argparse
import dataclasses
import json

from rlpyt.utils.text import printable, show


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("dir", metavar="DIR", nargs="?", default=".", help="directory with runs, at any depth; default: the current one")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")


def run(args: argparse.Namespace) -> int:
    """Print a table."""
    from rlpyt.utils.launching.search_dir import Search, is_search
    from rlpyt.utils.launching.search_status import facts, format_search
    from rlpyt.utils.launching.status import experiment_status, format_status

    runs = experiment_status(args.dir)
    search = Search(args.dir) if is_search(args.dir) else None
    if args.json:
        listed = [dataclasses.asdict(run) for run in runs]
        print(json.dumps(listed if search is None else dict(search=facts(search), runs=listed), indent=2, default=str))
    else:
        show(format_status(runs))
        if search is not None:
            show(printable(f"\n{format_search(search)}", keep="\n"))
    return 0
