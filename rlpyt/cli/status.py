"""Show the state of all runs in a directory: runs of experiments, of wrap_experiment, and single runs.

For every run: whether it is pending, running, finished, failed or interrupted, the number of environment
steps taken and planned, and the last mean return.

example:
  rlpyt status data/local/sweep
"""

from __future__ import annotations

import argparse
import dataclasses
import json

from rlpyt.utils.text import show


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("dir", metavar="DIR", nargs="?", default=".", help="directory with runs, at any depth; default: the current one")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")


def run(args: argparse.Namespace) -> int:
    """Print a table."""
    from rlpyt.utils.launching.status import experiment_status, format_status

    runs = experiment_status(args.dir)
    if args.json:
        print(json.dumps([dataclasses.asdict(run) for run in runs], indent=2, default=str))
    else:
        show(format_status(runs))
    return 0
