"""How much of their fair share samplers and training get beside other programs.

    python tests/benchmarks/bench_load.py [--rounds 7] [--busy 1 4] [--only "cpu sampler" "SAC, 2 threads"]

Other programs are processes that only compute. A run that uses n processors of the N allowed ones has, beside b of them, a fair share of
``N / (N + b)`` if it uses all, and of ``min(1, N / (n + b))`` in general. Printed is its speed beside them, as a part of its speed alone
times that share: medians of ratios, in each round of which a run was measured alone and beside 1 and 4 busy processes.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

import rlpyt  # noqa: F401  (before torch, whose threads would spin otherwise)

# isort: split
sys.path.insert(0, str(Path(__file__).parent))

import torch
from bench_samplers import start_sampler
from common import busy, median, tell

from rlpyt.agents.pg.atari import AtariFfAgent
from rlpyt.agents.pg.mlp import MlpFfAgent
from rlpyt.agents.qpg.sac_agent import SacAgent
from rlpyt.algos.pg.ppo import PPO
from rlpyt.algos.qpg.sac import SAC
from rlpyt.envs.atari.atari_env import AtariEnv
from rlpyt.envs.gym import make as gym_make
from rlpyt.samplers.parallel.cpu.sampler import CpuSampler
from rlpyt.samplers.parallel.gpu.alternating_sampler import AlternatingSampler
from rlpyt.samplers.parallel.gpu.sampler import GpuSampler
from rlpyt.samplers.serial.sampler import SerialSampler
from rlpyt.utils.processors import allowed_cpus

SECONDS = 3.0  # of one measurement


def speed(do: Callable[[], int]) -> float:
    """Return steps per second of what does some steps in each call, and returns how many."""
    n, start = 0, time.perf_counter()
    while time.perf_counter() - start < SECONDS:
        n += do()
    return n / (time.perf_counter() - start)


def sampling(SamplerCls: type) -> Callable[[], int]:
    """Return what collects a batch of Pong, B=16, T=32, with two workers."""
    sampler = start_sampler(SamplerCls, AtariEnv, dict(game="pong"), AtariFfAgent(), B=16)

    def do() -> int:
        sampler.obtain_samples(0)
        return sampler.batch_size

    return do


def training(algo, agent, env_id: str, T: int, B: int, n_threads: int) -> Callable[[], int]:
    """Return what does an iteration of training in this process, with `n_threads` torch threads."""
    sampler = SerialSampler(EnvCls=gym_make, env_kwargs=dict(id=env_id), batch_T=T, batch_B=B, max_decorrelation_steps=0)
    examples = sampler.initialize(agent, seed=0, bootstrap_value=algo.bootstrap_value)
    algo.initialize(agent, 10**6, sampler.batch_spec, sampler.mid_batch_reset, examples)
    itr = iter(range(10**6))

    def do() -> int:
        torch.set_num_threads(n_threads)
        i = next(itr)
        agent.sample_mode(i)
        samples, _ = sampler.obtain_samples(i)
        agent.train_mode(i)
        algo.optimize_agent(i, samples)
        return T * B

    return do


CONTENDERS = {  # name -> (processors that it uses, how to make it)
    "cpu sampler": (2, lambda: sampling(CpuSampler)),
    "one group": (2, lambda: sampling(GpuSampler)),
    "two groups": (2, lambda: sampling(AlternatingSampler)),
    "SAC, 1 thread": (1, lambda: training(SAC(min_steps_learn=64), SacAgent(), "Pendulum-v1", 1, 1, 1)),
    "SAC, 2 threads": (2, lambda: training(SAC(min_steps_learn=64), SacAgent(), "Pendulum-v1", 1, 1, 2)),
    "PPO, 1 thread": (1, lambda: training(PPO(), MlpFfAgent(), "CartPole-v1", 64, 8, 1)),
}


def main(n_rounds: int, numbers: list[int], only: list[str]) -> None:
    N = len(allowed_cpus())
    for name, (n, make) in CONTENDERS.items():
        if only and name not in only:
            continue
        do = make()
        for _ in range(3):
            speed_alone = speed(do)
        parts: dict[int, list[float]] = {b: [] for b in numbers}
        for _ in range(n_rounds):
            alone = speed(do)
            for b in numbers:
                with busy(b):
                    parts[b].append(speed(do) / alone / min(1, N / (n + b)))
        results = [f"{median(values):.2f} ({min(values):.2f} to {max(values):.2f}) beside {b}" for b, values in parts.items()]
        print(f"{name}: {speed_alone:,.0f} steps/s alone; of the fair share {', '.join(results)}", flush=True)
        tell(name, steps=[speed_alone], **{f"beside_{b}": values for b, values in parts.items()})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--busy", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--only", nargs="+", default=[])
    args = parser.parse_args()
    main(args.rounds, args.busy, args.only)
