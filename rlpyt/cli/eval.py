"""Play episodes with the agent of a snapshot, and print statistics of their returns.

The agent is in evaluation mode, in the run's evaluation environments. Only episodes that come to an end
count. The exit code is 1 if some do not: --max_steps cut them, or Ctrl-C stopped them.
Classes of the run come from rlpyt, torch, gymnasium and files below the current directory; see --trust.

example:
  rlpyt eval data/local/20260101/120000/cartpole_ppo/run_0 --episodes 100 --out returns.csv
"""

from __future__ import annotations

import argparse
import csv
import json
from pathlib import Path

from rlpyt.cli import playing
from rlpyt.utils.text import printable, show

STATISTICS = ("mean", "std", "min", "median", "max")
MOST_ENVS = 16


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    playing.add_arguments(parser, n_episodes=20)
    parser.add_argument("--n_envs", type=playing.at_least_1, help=f"environments played at a time; default: up to {MOST_ENVS}")
    parser.add_argument("--out", help="also write a file: .csv with a row per episode, or .json with episodes and statistics")


def run(args: argparse.Namespace) -> int:
    """Play, print a table, and write it if `--out` is given; return 1 if not all episodes ended, else 0."""
    if args.out is not None and Path(args.out).suffix not in (".csv", ".json"):
        raise ValueError(f"--out {args.out} must end with .csv or .json.")
    opened = playing.open_run(args)
    n_envs = min(args.n_envs or MOST_ENVS, args.episodes)
    env_kwargs = playing.env_settings(args.env, opened.sampler.eval_EnvCls)
    played = playing.play(opened, args.episodes, n_envs, args.seed, args.cuda_idx, args.max_steps, env_kwargs)
    episodes = [{name: value for name, value in info.items() if not name.startswith("_")} for info in played.traj_infos]
    statistics = statistics_of(episodes)
    steps = opened.snapshot.get("cum_steps", 0)
    show(f"{printable(opened.file)}, after {steps:,} environment steps of training")
    show(format_statistics(statistics, len(episodes)))
    if args.out is not None:
        write(Path(args.out), dict(snapshot=str(opened.file), cum_steps=steps, seed=args.seed, statistics=statistics, episodes=episodes))
    why_fewer = played.why_fewer()
    if why_fewer is not None:
        show(why_fewer)
    return int(why_fewer is not None)


def statistics_of(episodes: list[dict]) -> dict[str, dict[str, float]]:
    """Return STATISTICS of each field, by name, over the episodes with this field; `std` is of the population (divided by n)."""
    import numpy as np

    statistics = {}
    first = ("Return", "GameScore", "Length")
    names = dict.fromkeys(name for episode in episodes for name in episode)  # Not all episodes have the fields of tasks.
    for name in sorted(names, key=lambda name: first.index(name) if name in first else len(first)):
        values = [float(episode[name]) for episode in episodes if name in episode]
        statistics[name] = {statistic: float(getattr(np, statistic)(values)) for statistic in STATISTICS}
    return statistics


def format_statistics(statistics: dict[str, dict[str, float]], n: int) -> str:
    """Return a table of statistics of `n` episodes."""
    from rlpyt.utils.logging.tabular import format_value
    from rlpyt.utils.text import table

    header = [f"{n} episode{'s' * (n != 1)}", *STATISTICS]
    rows = [[name, *map(format_value, values.values())] for name, values in statistics.items()]
    return table([header, *rows], right=range(1, len(header)))


def write(path: Path, result: dict) -> None:
    """Write a result into a file, in the format of its extension."""
    from rlpyt.utils.misc import atomic_write

    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path, "w", newline="", encoding="utf-8") as file:
        if path.suffix == ".json":
            json.dump(result, file, indent=2, default=float)
            file.write("\n")
        else:
            names = list(dict.fromkeys(name for episode in result["episodes"] for name in episode))
            writer = csv.DictWriter(file, names or ["Return", "Length"], lineterminator="\n")
            writer.writeheader()
            writer.writerows(result["episodes"])
    show(f"Written: {printable(path)}")
