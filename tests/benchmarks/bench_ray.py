"""How fast sampling on a Ray cluster is, compared with worker processes.

    python tests/benchmarks/bench_ray.py [--rounds 9]

Pong, AtariFf network, B=16, T=64, 2 workers or actors, one machine; env steps per second, and medians of ratios measured in one run, in
turn. With batches in flight, actors are already sampling when a batch is asked for; here nothing is done between batches, so that this
shows only what it saves besides: waiting for the other actor, and for copies.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

import rlpyt  # noqa: F401  (before torch, whose threads would spin otherwise)

# isort: split
import torch
from common import median, ratio, ratios, rounds, tell

from rlpyt.agents.pg.atari import AtariFfAgent
from rlpyt.envs.atari.atari_env import AtariEnv
from rlpyt.samplers.parallel.cpu.sampler import CpuSampler
from rlpyt.samplers.ray.batch_sampler import RayBatchSampler

N_WORKERS, B, T, N_BATCHES = 2, 16, 64, 4
GOAL = 0.80


def start(SamplerCls, **kwargs):
    """Return a running sampler."""
    sampler = SamplerCls(EnvCls=AtariEnv, env_kwargs=dict(game="pong"), batch_T=T, batch_B=B, **kwargs)
    affinity = dict(workers_cpus=list(range(N_WORKERS)), set_affinity=False)
    sampler.initialize(AtariFfAgent(), affinity=affinity, seed=0, bootstrap_value=True, traj_info_kwargs=dict(discount=0.99))
    return sampler


class Contender:
    """Measures a sampler's env steps per second; a round ends when what is in flight is there, so that in it as many batches are collected
    as are obtained."""

    def __init__(self, sampler) -> None:
        self.sampler, self.itr = sampler, 0
        self()

    def __call__(self) -> float:
        start = time.perf_counter()
        for _ in range(N_BATCHES):
            self.sampler.obtain_samples(self.itr)
            self.itr += 1
        for call in getattr(self.sampler, "_pending", ()):
            self.sampler._pool.receive(call)
        return N_BATCHES * self.sampler.batch_size / (time.perf_counter() - start)


def main(n_rounds: int = 9) -> None:
    torch.set_num_threads(1)
    makers = {
        "worker processes": lambda: start(CpuSampler),
        "Ray": lambda: start(RayBatchSampler, actor_options=dict(num_cpus=0.5)),
        "Ray, in_flight=1": lambda: start(RayBatchSampler, actor_options=dict(num_cpus=0.5), in_flight=1),
    }
    contenders = {name: Contender(make()) for name, make in makers.items()}  # Workers first, while this process has no other threads.
    try:
        results = rounds(contenders, n_rounds)
    finally:
        for contender in contenders.values():
            contender.sampler.shutdown()
    for name, speeds in results.items():
        own = ratio(speeds, results["worker processes"])
        print(f"{name:20} {median(speeds):7.0f} steps/s   {own:.3f} of worker processes   (goal {GOAL:.2f})")
        if name != "worker processes":
            tell(name, **{"of worker processes": ratios(speeds, results["worker processes"])})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    main(parser.parse_args().rounds)
