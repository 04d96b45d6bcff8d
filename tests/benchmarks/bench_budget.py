"""Where the time of a time step goes, in microseconds that add up: Pong, B=16, T=32, two workers, AtariFf on the CPU, one torch thread.

    python tests/benchmarks/bench_budget.py [--rounds 7]

The table shares out the time of two processors: what all processes spend on a part, divided by two. Parts are timed where they happen, by
wrapping the methods named in `PARTS`. Two of them are split by what they take elsewhere: environments by bare loops of steps, two at once,
and the network by calling it again and again. The rest is waiting: for the slower worker, for a wake-up, for the next batch. Medians over
rounds in turn.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

import rlpyt  # noqa: F401  (before torch, whose threads would spin otherwise)

# isort: split
import numpy as np
import torch
from bench_samplers import N_WORKERS, Forward, atari_loop, start_sampler
from common import BareLoops, median

from rlpyt.agents.pg.atari import AtariFfAgent
from rlpyt.envs.atari.atari_env import AtariEnv
from rlpyt.models.pg.atari_ff_model import AtariFfModel
from rlpyt.samplers import actors, collectors, stepping
from rlpyt.samplers.parallel.cpu.sampler import CpuSampler
from rlpyt.samplers.parallel.gpu.alternating_sampler import AlternatingSampler
from rlpyt.samplers.parallel.gpu.sampler import GpuSampler
from rlpyt.utils.buffer import np_mp_array

B, T = 16, 32
N_PROCESSORS = 2
PARTS = {
    "environments": (stepping.EnvCalls, "step"),
    "network": (AtariFfModel, "forward"),
    "agent": (actors.LocalActor, "act"),  # with the network
    "outcomes": (actors.BatchActor, "request"),
}
SAMPLERS = {"CpuSampler": CpuSampler, "GpuSampler": GpuSampler, "AlternatingSampler": AlternatingSampler}


class Watch:
    """Seconds spent in each of PARTS, summed over all processes, which share the memory."""

    def __init__(self):
        self.seconds = np_mp_array((len(PARTS), 5), np.float64)  # [part, process]
        self.process = 0  # That of the master. Workers set theirs.
        for k, (cls, name) in enumerate(PARTS.values()):
            setattr(cls, name, self._timed(getattr(cls, name), k))
        start = collectors.TrainingCollector.__init__

        def init(collector, rank, *args, **kwargs):
            self.process = 1 + rank
            start(collector, rank, *args, **kwargs)

        collectors.TrainingCollector.__init__ = init

    def _timed(self, method, k):
        def timed(*args, **kwargs):
            begin = time.perf_counter()
            try:
                return method(*args, **kwargs)
            finally:
                self.seconds[k, self.process] += time.perf_counter() - begin

        return timed

    def measure(self, sampler, n_batches: int) -> dict[str, float]:
        """Return microseconds per time step: of the clock as "whole", and of each part in all processes, divided among the processors."""
        self.seconds[...] = 0
        begin = time.perf_counter()
        for itr in range(n_batches):
            sampler.obtain_samples(itr)
        per_step = 1e6 / (n_batches * T)
        whole = (time.perf_counter() - begin) * per_step
        return {"whole": whole, **dict(zip(PARTS, self.seconds.sum(axis=1) * per_step / N_PROCESSORS))}


def budget(parts: dict[str, float], bare_envs: float, bare_network: float, is_lockstep: bool) -> dict[str, float]:
    """Return the lines of the table for one sampler, from what `Watch.measure` returned.

    Args:
        bare_envs, bare_network: what these parts would be elsewhere.
        is_lockstep: one processor is idle while the agent acts.
    """
    acting = parts["agent"] + parts["outcomes"]
    lines = {
        "environments, bare": bare_envs,
        "environments, what sampling adds": parts["environments"] - bare_envs,
        "network, called again and again": bare_network,
        "network, what sampling adds": parts["network"] - bare_network,
        "the agent around the network": acting - parts["network"],
        "one processor idle while the agent acts": acting if is_lockstep else 0.0,
    }
    return {**lines, "waiting, waking, starting batches": parts["whole"] - sum(lines.values()), "one time step": parts["whole"]}


def main(n_rounds: int) -> None:
    torch.set_num_threads(1)
    bare = BareLoops(atari_loop, N_WORKERS)
    watch = Watch()
    samplers = {name: start_sampler(Cls, AtariEnv, dict(game="pong"), AtariFfAgent(), B) for name, Cls in SAMPLERS.items()}
    forward = {rows: Forward(rows) for rows in (B // 2, B)}
    results: dict[str, list] = {name: [] for name in samplers}
    for sampler in samplers.values():
        watch.measure(sampler, 3)
    for _ in range(n_rounds):
        t_env = 1e6 * N_WORKERS / bare.steps_per_second(2500)
        for name, sampler in samplers.items():
            rows = B if name == "GpuSampler" else B // 2
            bare_network = 1e6 * B * forward[rows].again_and_again() / N_PROCESSORS
            parts = watch.measure(sampler, 8)
            results[name].append(budget(parts, B * t_env / N_PROCESSORS, bare_network, is_lockstep=name == "GpuSampler"))
    print(f"{'microseconds per time step of 16 environments':48}" + "".join(f"{name:>20}" for name in samplers))
    for line in results["CpuSampler"][0]:
        print(f"{line:48}" + "".join(f"{median([each[line] for each in results[name]]):20.0f}" for name in samplers))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    main(parser.parse_args().rounds)
