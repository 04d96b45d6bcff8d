"""How much of what the processors can do a sampler reaches whose agent is on a GPU.

    python tests/benchmarks/bench_gpu_server.py [--rounds 7] [--workers 15]

Pong, B=128, T=32, AtariFf on the GPU, alternating and in one group. The limit is what bare ``env.step`` loops reach, one on each allowed
processor, at once; for comparison also one alone times the number of processors. The server needs a processor as well: `--workers` (in
each group; one per processor by default) shows whether to leave it one. Says so, and ends, where there is no GPU.
"""

from __future__ import annotations

import argparse

import rlpyt  # noqa: F401  (before torch, whose threads would spin otherwise)

# isort: split
import torch
from bench_samplers import atari_loop, sampling_speed, start_sampler
from common import BareLoops, median, ratio, rounds

from rlpyt.agents.pg.atari import AtariFfAgent
from rlpyt.envs.atari.atari_env import AtariEnv
from rlpyt.samplers.parallel.gpu.alternating_sampler import AlternatingSampler
from rlpyt.samplers.parallel.gpu.sampler import GpuSampler
from rlpyt.utils.processors import allowed_cpus

SAMPLERS = {"alternating": AlternatingSampler, "one group": GpuSampler}
GOALS = {"alternating": 0.85}  # of the bare loops


def main(n_rounds: int = 7, n_workers: int | None = None, B: int = 128, cuda_idx: int | None = 0) -> None:
    n_cpus = len(allowed_cpus())
    n_workers = n_workers or n_cpus
    torch.set_num_threads(1)
    bare = BareLoops(atari_loop, n_cpus)  # All processes start before anything is on the GPU.
    pong = AtariEnv, dict(game="pong")
    samplers = {name: start_sampler(Cls, *pong, AtariFfAgent(), B, n_workers=n_workers) for name, Cls in SAMPLERS.items()}
    for sampler in samplers.values():
        sampler.agent.to_device(cuda_idx)
    contenders = {"bare": lambda: bare.steps_per_second(2500), "one bare": lambda: bare.steps_per_second(2500, 1)}
    results = rounds({**contenders, **{name: sampling_speed(sampler, 8) for name, sampler in samplers.items()}}, n_rounds)
    for sampler in samplers.values():
        sampler.shutdown()
    all_at_once, alone = results["bare"], [n_cpus * x for x in results["one bare"]]
    print(f"{n_cpus} processors, {n_workers} workers in each group, B={B}, agent on {samplers['alternating'].agent.device}")
    print(f"bare Pong loops: all at once {median(all_at_once):.0f} steps/s, one alone {median(results['one bare']):.0f}")
    print(f"{'':12}{'steps/s':>9}{'of limit':>10}{'goal':>7}   of {n_cpus} times one alone")
    for name in SAMPLERS:
        own = results[name]
        print(f"{name:12}{median(own):9.0f}{ratio(own, all_at_once):10.3f}{GOALS.get(name, ''):>7}   {ratio(own, alone):.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--workers", type=int, help="in each group")
    args = parser.parse_args()
    if torch.cuda.is_available():
        main(args.rounds, args.workers)
    else:
        print("Nothing measured: there is no GPU here that torch can use (torch.cuda.is_available() is False).")
