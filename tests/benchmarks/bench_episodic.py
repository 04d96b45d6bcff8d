"""How fast episodic samplers are, compared with the samplers of batches on the same environments with the same agent.

    python tests/benchmarks/bench_episodic.py [--rounds 7] [--batches 8] [--only "local, network"] [--cpu-time]

Pong, 16 environments, AtariFf agent or random actions; LocalSampler against SerialSampler with T=64, MultiprocessingSampler with 2 workers
against CpuSampler with 2 workers and T=64. Prints medians of ratios measured in one run, in turn. Three kinds of workers:

* VecWorker whose episodes are cut after 256 steps, all at the same time, so that none waits for another;
* VecWorker that plays games to their ends: every one that was begun, while environments that have played their part stand still;
* FragmentWorker with 64 steps per call, which returns the same steps as the samplers of batches.

Every call asks for 1024 steps, a batch of the other kind, and gets the episodes that were begun for them whole: steps are those of the
batches returned, and nothing that was played is missing from them. `--batches` is how many times 1024 steps one measurement takes at
least. On a machine that has other things to do, `--cpu-time` counts the processors' seconds, of all processes together, in place of those
of the clock: then what waits for something else costs nothing.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

import rlpyt  # noqa: F401  (before torch, whose threads would spin otherwise)

# isort: split
import psutil
import torch
from agents_for_tests import RandomAgent
from common import median, ratio, ratios, rounds, tell

from rlpyt.agents.pg.atari import AtariFfAgent
from rlpyt.envs.atari.atari_env import AtariEnv
from rlpyt.samplers.episodic import FragmentWorker, LocalSampler, MultiprocessingSampler, VecWorker
from rlpyt.samplers.parallel.cpu.sampler import CpuSampler
from rlpyt.samplers.serial.sampler import SerialSampler

B, T, N_WORKERS = 16, 64, 2
AGENTS = {"network": AtariFfAgent, "random": RandomAgent}
WORKERS = {
    "VecWorker, 256 steps": (VecWorker, 256, {}),
    "VecWorker, games": (VecWorker, math.inf, {}),
    "FragmentWorker": (FragmentWorker, math.inf, dict(timesteps_per_call=T)),
}


class Row(NamedTuple):
    """A line of the table: what is measured, compared with what, and the ratio to reach."""

    name: str
    other: str
    goal: float


TABLE = [
    Row(f"{kind}, {agent}, {worker}", f"{other}, {agent}", 0.85)
    for kind, other in (("local", "serial"), ("multiprocessing", "cpu"))
    for agent in AGENTS
    for worker in WORKERS
]


def cpu_seconds() -> float:
    """Return the processors' seconds that this process and those it has started have taken so far."""
    times = [process.cpu_times() for process in (psutil.Process(), *psutil.Process().children())]
    return sum(time.user + time.system for time in times)


def batches(SamplerCls: type, agent: str, n_batches: int, seconds: Callable[[], float]) -> Callable[[], float]:
    sampler = SamplerCls(EnvCls=AtariEnv, env_kwargs=dict(game="pong"), batch_T=T, batch_B=B)
    sampler.initialize(AGENTS[agent](), affinity=dict(workers_cpus=list(range(N_WORKERS)), set_affinity=False), seed=0)
    sampler.obtain_samples(0)

    def measure():
        start = seconds()
        for itr in range(n_batches):
            sampler.obtain_samples(itr)
        return n_batches * T * B / (seconds() - start)

    return measure


def episodes(
    SamplerCls: type, n_workers: int, agent: str, worker: str, n_batches: int, seconds: Callable[[], float]
) -> Callable[[], float]:
    worker_class, max_episode_length, worker_args = WORKERS[worker]
    sampler = SamplerCls(
        AGENTS[agent](),
        partial(AtariEnv, game="pong"),
        max_episode_length=max_episode_length,
        seed=0,
        n_workers=n_workers,
        worker_class=worker_class,
        worker_args=dict(n_envs=B // n_workers, **worker_args),
    )
    sampler.obtain_samples(0, 1, None)

    def measure():
        start, n_steps = seconds(), 0
        while n_steps < n_batches * T * B:
            n_steps += len(sampler.obtain_samples(0, T * B, None))
        return n_steps / (seconds() - start)

    return measure


def contender(name: str, n_batches: int, seconds: Callable[[], float]) -> Callable[[], float]:
    kind, agent, *worker = name.split(", ", 2)
    if not worker:
        return batches(dict(serial=SerialSampler, cpu=CpuSampler)[kind], agent, n_batches, seconds)
    SamplerCls, n_workers = dict(local=(LocalSampler, 1), multiprocessing=(MultiprocessingSampler, N_WORKERS))[kind]
    return episodes(SamplerCls, n_workers, agent, worker[0], n_batches, seconds)


def main(n_rounds: int = 7, n_batches: int = 8, only: list[str] | None = None, cpu_time: bool = False) -> None:
    table = [row for row in TABLE if not only or any(text in row.name for text in only)]
    if not table:
        raise SystemExit(f"--only {only} fits none of: {'; '.join(row.name for row in TABLE)}.")
    torch.set_num_threads(1)
    names = dict.fromkeys(name for row in table for name in (row.other, row.name))
    results = rounds({name: contender(name, n_batches, cpu_seconds if cpu_time else time.perf_counter) for name in names}, n_rounds)
    for name in dict.fromkeys(row.other for row in table):
        print(f"{name}: {median(results[name]):.0f} steps/s")
    print(f"{'':46}{'steps/s':>9}{'ratio':>8}{'goal':>7}")
    for row in table:
        own = results[row.name]
        print(f"{row.name:46}{median(own):9.0f}{ratio(own, results[row.other]):8.3f}{row.goal:7.2f}   of {row.other}")
        tell(row.name, **{f"of {row.other}": ratios(own, results[row.other])})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--batches", type=int, default=8)
    parser.add_argument("--cpu-time", action="store_true")
    parser.add_argument("--only", nargs="+", metavar="TEXT", help="rows whose names contain one of these")
    args = parser.parse_args()
    main(args.rounds, args.batches, args.only, args.cpu_time)
