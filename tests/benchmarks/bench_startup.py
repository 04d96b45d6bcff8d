"""How long sixteen workers take to be ready, and how much memory each has to itself.

    python tests/benchmarks/bench_startup.py [--rounds 7] [--spawn_rounds 3]

Pong, B=16, one environment per worker, AtariFf. Each measurement is a process of its own, in turn, that has imported everything before the
clock starts. Ready means that `initialize` has returned: agent and batch are made, and every worker has reset its environment and
decorrelated it by up to 100 steps, as by default. Private memory (USS) is what would be free if a worker ended; it is taken after two
batches, and is the median over the workers.
"""

# Spawned workers import this script to find what they run. Nothing here may import torch before a function asks for it: a worker of the GPU
# sampler needs no torch, and would be measured with it. A script of one's own does well to import agents in a function for the same reason.
from __future__ import annotations

import argparse
import json
import multiprocessing
import subprocess
import sys
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent)]

N_WORKERS = 16
GOAL_SECONDS = dict(fork=3.0, spawn=12.0)
GOAL_MEGABYTES = 80.0  # of a worker of the GPU sampler


def measure(sampler_name: str, start_method: str) -> dict[str, float]:
    """Return the seconds until the workers are ready, and the megabytes that one has to itself."""
    import psutil

    from rlpyt.agents.pg.atari import AtariFfAgent
    from rlpyt.envs.atari.atari_env import AtariEnv
    from rlpyt.samplers.parallel.cpu.sampler import CpuSampler
    from rlpyt.samplers.parallel.gpu.sampler import GpuSampler

    SamplerCls = dict(cpu=CpuSampler, gpu=GpuSampler)[sampler_name]
    sampler = SamplerCls(EnvCls=AtariEnv, env_kwargs=dict(game="pong"), batch_T=5, batch_B=N_WORKERS, start_method=start_method)
    affinity = dict(workers_cpus=list(range(N_WORKERS)), set_affinity=False)
    start = time.perf_counter()
    sampler.initialize(AtariFfAgent(), affinity=affinity, seed=0, bootstrap_value=True)
    ready = time.perf_counter()
    for itr in range(2):
        sampler.obtain_samples(itr)
    workers = [psutil.Process(worker.pid) for worker in multiprocessing.active_children()]
    private = sorted(worker.memory_full_info().uss / 1e6 for worker in workers)
    sampler.shutdown()
    return dict(seconds=ready - start, megabytes=private[len(private) // 2])


def main(n_rounds: int, n_spawn_rounds: int) -> None:
    from common import median, rounds, tell

    def run(*args: str) -> dict[str, float]:
        out = subprocess.run([sys.executable, __file__, "--measure", *args], capture_output=True, text=True)
        if out.returncode:
            raise RuntimeError(out.stderr)
        return json.loads(out.stdout.splitlines()[-1])

    print(f"{N_WORKERS} workers{'':20}seconds  (range)         goal   private MB each   goal")
    for start_method, n in (("fork", n_rounds), ("spawn", n_spawn_rounds)):
        results = rounds({name: lambda name=name, how=start_method: run(name, how) for name in ("cpu", "gpu")}, n)
        for name, measured in results.items():
            times, private = ([round_[key] for round_ in measured] for key in ("seconds", "megabytes"))
            goal = f"{GOAL_MEGABYTES:.0f}" if name == "gpu" else ""
            print(
                f"{name} sampler, {start_method:6}{f'({n} rounds)':>13}{median(times):9.2f}  ({min(times):5.2f} to {max(times):5.2f})"
                f"{GOAL_SECONDS[start_method]:5.0f}{median(private):15.1f}{goal:>10}",
                flush=True,
            )
            tell(f"{name} sampler, {N_WORKERS} workers, {start_method}", seconds=times, **{"private MB of a worker": private})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7, help="with fork")
    parser.add_argument("--spawn_rounds", type=int, default=3, help="with spawn, which is slow")
    parser.add_argument("--measure", nargs=2, metavar=("SAMPLER", "START_METHOD"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        print(json.dumps(measure(*args.measure)))
    else:
        main(args.rounds, args.spawn_rounds)
