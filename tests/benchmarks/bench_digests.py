"""What digests cost: the part of a run that they take, and runs with them against runs without, in turn.

    python tests/benchmarks/bench_digests.py --rounds 5

All is the processor time of the one thread that samples and trains, in which waiting for other programs does not count.
"""

from __future__ import annotations

import argparse
import io
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from typing import Any

from rlpyt.experiments.build import build
from rlpyt.experiments.train import configuration
from rlpyt.runners.digests import Digests
from rlpyt.utils.logging.context import logger_context

RUNS = {  # Configuration, sampler, settings. For Pong, the intervals between rows are shorter than the configuration's.
    "CartPole PPO": ("cartpole", "ppo", "serial", ["runner.n_steps=10000"]),
    "CartPole A2C": ("cartpole", "a2c", "serial", ["runner.n_steps=20000"]),
    "CartPole DQN": ("cartpole", "dqn", "serial", ["runner.n_steps=5000", "algo.min_steps_learn=500"]),
    "Pendulum SAC": ("pendulum", "sac", "serial", ["runner.n_steps=2500", "algo.min_steps_learn=300"]),
    "Pendulum TD3": ("pendulum", "td3", "serial", ["runner.n_steps=2500", "algo.min_steps_learn=300"]),
    "Pong PPO": ("atari_ff_ppo", "pong_2M", "serial", ["runner.n_steps=2048", "runner.log_interval_steps=2048"]),
    "Pong A2C": ("atari_ff_a2c", "0", "serial", ["runner.n_steps=2000", "runner.log_interval_steps=2000", "env.game=pong"]),
}


def timed(method: Callable, spent: list[float]) -> Callable:
    """Return the method; each call appends the seconds of processor time that it takes."""

    def call(*args: Any) -> Any:
        start = time.thread_time()
        try:
            return method(*args)
        finally:
            spent.append(time.thread_time() - start)

    return call


def seconds(module: str, key: str, sampler: str, settings: list[str], digest: bool) -> tuple[float, float]:
    """Train; return the seconds of processor time that it took, and those that digests took in it."""
    settings = [*settings, "sampler.eval_n_envs=0", f"runner.digest={digest}", "runner.verbose=0"]
    config, paths = configuration(module, key, sampler, settings)
    runner = build(config, paths, dict(master_torch_threads=1, set_affinity=False), seed=0)
    spent: list[float] = []
    began: list[float] = []
    initialize = runner.initialize_logging
    runner.initialize_logging = lambda: (began.append(time.thread_time()), initialize())  # type: ignore[method-assign]
    take, record = Digests.take, Digests.record
    Digests.take, Digests.record = timed(take, spent), timed(record, spent)  # type: ignore[method-assign]
    try:
        with tempfile.TemporaryDirectory() as directory, redirect_stdout(io.StringIO()):
            with logger_context(directory, 0, "digest", snapshot_mode="none"):
                runner.train()
    finally:
        Digests.take, Digests.record = take, record  # type: ignore[method-assign]
    return time.thread_time() - began[0], sum(spent)


def main() -> None:
    """Print a line for each run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="+", default=list(RUNS), metavar="NAME", help="runs whose names contain one of these")
    args = parser.parse_args()
    for name, run in RUNS.items():
        if not any(each in name for each in args.only):
            continue
        seconds(*run, digest=True)  # Loads the compiled kernel.
        parts, ratios = [], []
        for i in range(args.rounds):
            results = {digest: seconds(*run, digest=digest) for digest in ((True, False) if i % 2 else (False, True))}
            with_them, spent = results[True]
            parts.append(100 * spent / with_them)
            ratios.append(100 * (with_them / results[False][0] - 1))
        print(
            f"{name}: {statistics.median(parts):.2f} % of the time ({min(parts):.2f} to {max(parts):.2f}); "
            f"in turn with runs without: {statistics.median(ratios):+.1f} % ({min(ratios):+.1f} to {max(ratios):+.1f})",
            flush=True,
        )


if __name__ == "__main__":
    main()
