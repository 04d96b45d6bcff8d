"""Search for good settings of a configuration, by asynchronous successive halving.

A setting with a range is searched: log_uniform(a,b), uniform(a,b), integer(a,b), choice(a,b,...). Others are
the same for all trials. Each trial trains a short time; the best third resumes and trains on, and so on.
rlpyt resume DIR continues a search that ended early. rlpyt status DIR and rlpyt plot DIR show it.

examples:
  rlpyt tune cartpole ppo --set "algo.learning_rate=log_uniform(1e-4,1e-2)" --trials 30
  rlpyt tune pendulum sac --set "algo.learning_rate=log_uniform(1e-4,3e-3)" "algo.batch_size=choice(64,256)"
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable

from rlpyt.cli import Gather

LAUNCHING = ("log_dir", "affinity_code", "n_trials", "runs_per_trial", "min_steps", "eta", "proposals", "seed")
ETAS = (2, 1000)  # as in `rlpyt.utils.launching.search.run_search`
CONFIGURATION = ("settings", "sampler", "smoke")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("names", metavar="NAME", nargs="+", help="module and key, e.g. cartpole ppo, or cartpole:ppo")
    parser.add_argument(
        "--set",
        metavar="SECTION.NAME=VALUE",
        help="ranges, and settings to change",
        nargs="+",
        action=Gather,
        default=[],
        dest="settings",
    )
    parser.add_argument("--trials", help="number of different settings; default: 30", type=_number(int, 1), default=30, dest="n_trials")
    parser.add_argument(
        "--runs",
        help="runs of each trial, with different seeds; default: 3",
        type=_number(int, 1),
        default=3,
        dest="runs_per_trial",
    )
    parser.add_argument(
        "--min_steps",
        help="environment steps of the first rung; default: n_steps / eta³ or more",
        type=_number(float, 1),
    )
    parser.add_argument("--eta", help="one in so many trials of a rung is promoted; default: 3", type=_number(float, *ETAS), default=3)
    parser.add_argument("--proposals", help="what proposes settings; default: optuna if it is installed", choices=("optuna", "random"))
    parser.add_argument("--seed", help="seed of the proposals; runs have the seeds 0, 1, ...; default: 0", type=_number(int, 0), default=0)
    parser.add_argument("--log_dir", help="directory: an absolute path, or a name below data/local; default: made from module and key")
    parser.add_argument("--affinity_code", help="processors and GPUs, and how many each run gets; default: as rlpyt info proposes")
    parser.add_argument("--sampler", metavar="NAME", help="replaces the configuration's: serial, cpu, gpu, alternating, ...")
    parser.add_argument("--smoke", help="tiny runs, to see whether everything works", action="store_true")


def run(args: argparse.Namespace) -> int:
    """Search."""
    from pathlib import Path

    from rlpyt.cli.launched import train
    from rlpyt.experiments.train import split_key
    from rlpyt.experiments.tune import search_configuration
    from rlpyt.utils.launching.exp_launcher import StillRunning

    is_one_word = len(args.names) == 1 and ":" in args.names[0]
    module, key = split_key(args.names[0]) if is_one_word else args.names if len(args.names) == 2 else ("", "")
    if not module:
        raise ValueError(f"give module and key of one configuration, not {' '.join(args.names)}. (rlpyt train lists them.)")
    try:
        search_configuration(Path(train.__file__), module, key, **{name: getattr(args, name) for name in (*LAUNCHING, *CONFIGURATION)})
    except StillRunning as error:
        raise ValueError(str(error)) from None
    return 0


def _number(kind: Callable[[str], float], low: float, high: float = math.inf) -> Callable[[str], float]:
    """Return a function that reads a finite number of this type, int or float, from `low` to `high`."""

    def read(text: str) -> float:
        try:
            number = kind(text)
        except ValueError:
            number = math.nan
        if not (low <= number <= high and number < math.inf):
            bounds = f"of at least {low}" + (f" and at most {high}" if high < math.inf else "")
            raise argparse.ArgumentTypeError(f"must be {'an integer' if kind is int else 'a number'} {bounds}, not {text!r}.")
        return number

    return read
