"""Updates on an accelerator: milliseconds per update, operation by operation and as graphs, against the CPU.

    python tests/benchmarks/bench_accelerator.py [--rounds 7] [--configs pendulum:sac cartpole:ppo] [--cuda_idx 0]

Configurations of `rlpyt.experiments.configs` with their own networks and batches, the serial sampler and few environments. Measured is
`optimize_agent`: batches from replay and their copies included, sampling not. The first iterations, in which memory is allocated and
graphs are recorded, do not count. Contenders run in turn, in one process; ratios are medians over rounds. Says so, and ends, where there
is no accelerator; `--cuda_idx -1` measures the CPU alone.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import os
import sys
import tempfile
import time
from pathlib import Path

import rlpyt  # noqa: F401  (before torch, whose threads would spin otherwise)

# isort: split
sys.path.insert(0, str(Path(__file__).parent))

from common import median, ratio, rounds

from rlpyt.experiments.build import build
from rlpyt.experiments.train import configuration
from rlpyt.utils import accelerator
from rlpyt.utils.logging.context import logger_context

CONFIGS = ("pendulum:sac", "pendulum:td3", "cartpole:ppo", "atari_dqn:dqn", "atari_ff_ppo:0")
OF_ALGO = dict(pendulum=dict(min_steps_learn=300), atari_dqn=dict(min_steps_learn=2000, replay_size=20_000))  # Updates begin early.
LEFT_OUT = 6  # iterations with updates, of each run


def milliseconds_per_update(name: str, cuda_idx: int | None, graphs: bool, n_iterations: int = 40) -> float:
    """Train for some iterations; return the time of an update."""
    module, _, key = name.partition(":")
    changes = dict(accelerate=dict(cuda_graphs=graphs), algo=OF_ALGO.get(module, {}))
    settings, classes = configuration(module, key, "serial", sections=changes)
    affinity = dict(settings.pop("affinity", {}), cuda_idx=cuda_idx, set_affinity=False)  # Small networks have one thread.
    runner = build(settings, classes, affinity, seed=0)
    algo, optimize_agent, times = runner.algo, runner.algo.optimize_agent, []

    @functools.wraps(optimize_agent)
    def timed(*args, **kwargs):
        before, start = algo.update_counter, time.perf_counter()
        result = optimize_agent(*args, **kwargs)  # It reads its diagnostics at the end, and so waits for the device.
        if algo.update_counter > before:
            times.append((time.perf_counter() - start) / (algo.update_counter - before))
        if len(times) == LEFT_OUT + n_iterations:
            raise StopIteration
        return result

    algo.optimize_agent = timed
    with (
        tempfile.TemporaryDirectory() as directory,
        logger_context(directory, 0, "bench", log_params={}, snapshot_mode="none"),
        open(os.devnull, "w") as nowhere,
        contextlib.redirect_stdout(nowhere),
        contextlib.suppress(StopIteration),
    ):
        runner.train()
    return 1000 * median(times[LEFT_OUT:])


def main(configs: list[str], n_rounds: int, cuda_idx: int) -> None:
    for config in configs:
        contenders = {"CPU": lambda config=config: milliseconds_per_update(config, None, False)}
        if cuda_idx >= 0:
            contenders["device"] = lambda config=config: milliseconds_per_update(config, cuda_idx, False)
            contenders["device, graphs"] = lambda config=config: milliseconds_per_update(config, cuda_idx, True)
        results = rounds(contenders, n_rounds)
        parts = [f"{name} {median(values):.2f} ms ({ratio(results['CPU'], values):.2f} x)" for name, values in results.items()]
        print(f"{config}: an update takes, on the {', on the '.join(parts)}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--configs", nargs="+", default=CONFIGS)
    parser.add_argument("--cuda_idx", type=int, default=0)
    args = parser.parse_args()
    if args.cuda_idx >= accelerator.count():
        print(f"Nothing measured: torch sees {accelerator.count()} accelerators here.")
    else:
        main(args.configs, args.rounds, args.cuda_idx)
