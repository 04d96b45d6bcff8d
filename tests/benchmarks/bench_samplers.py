"""How much of what environments and network leave possible the samplers reach.

    python tests/benchmarks/bench_samplers.py [--rounds 9] [--only alternating "gpu random"]

Pong, B=16, T=32, 2 workers (the alternating samplers have 2 in each group), CartPole, B=32, and environments whose steps differ, B=16,
T=64, 8 workers: 0.5 ms, but one step in 40 takes 20 ms. Prints medians of ratios measured in one
run, in turn. `--only` leaves out the rows whose name contains none of the given texts, and whatever is only measured for those.

* limit of sampling with random actions: as many bare ``env.step`` loops as there are workers, all at once (and, for comparison, one
  alone times the number of workers);
* limit with the network, computed as torch does by default: 2 / (t_env + t_forward), with the time of one environment step in one of
  the bare loops, and the network's share in one environment step at half the batch, on one thread. The network is timed twice: called
  again and again, its weights in the processor's caches, and, for comparison, called as in sampling, each time after eight environments
  have stepped. In samplers agents act as a run on this machine has chosen (`rlpyt.utils.choices`).
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import NamedTuple

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

import rlpyt  # noqa: F401  (before torch, whose threads would spin otherwise)

# isort: split
import gymnasium
import numpy as np
import torch
from agents_for_tests import RandomAgent
from common import BareLoops, median, ratio, ratios, rounds, seconds, tell

from rlpyt.agents.pg.atari import AtariFfAgent
from rlpyt.agents.pg.mlp import MlpFfAgent
from rlpyt.envs.atari.atari_env import AtariEnv
from rlpyt.envs.gym import make as gym_make
from rlpyt.runners.calibration import calibrate
from rlpyt.samplers.parallel.cpu.sampler import CpuSampler
from rlpyt.samplers.parallel.gpu.alternating_sampler import AlternatingSampler, NoOverlapAlternatingSampler
from rlpyt.samplers.parallel.gpu.sampler import GpuSampler
from rlpyt.utils.choices import adopt, current, once_models_exist

N_WORKERS = 2
N_UNEVEN = 8  # workers


class Row(NamedTuple):
    """A line of the table: what is measured, of which limit it should reach what part, and another limit for comparison."""

    name: str
    limit: str
    goal: float
    other_limit: str


TABLE = [
    Row("Pong, cpu random", "bare Pong", 0.95, "one bare Pong"),
    Row("Pong, gpu random", "bare Pong", 0.85, "one bare Pong"),
    Row("Pong, cpu network", "network", 0.90, "network between steps"),
    Row("Pong, cpu network, bf16", "network", 1.0, "network between steps"),
    Row("Pong, gpu network", "network", 0.65, "network between steps"),
    Row("Pong, alternating network", "network", 0.80, "network between steps"),
    Row("Pong, no-overlap alternating network", "network", 0.65, "network between steps"),
    Row("CartPole, cpu random", "bare CartPole", 0.50, "one bare CartPole"),
    Row("CartPole, cpu random, T=128", "bare CartPole", 0.50, "one bare CartPole"),
    Row("uneven, cpu network", "bare uneven", 0.60, "one bare uneven"),
    Row("uneven, gpu network", "bare uneven", 0.20, "one bare uneven"),
    Row("uneven, gpu network, serve_fraction=0.25", "bare uneven", 0.50, "one bare uneven"),
    Row("uneven, alternating network", "bare uneven", 0.20, "one bare uneven"),
]


def atari_loop(i):
    envs = [AtariEnv(game="pong") for _ in range(8)]
    for j, env in enumerate(envs):
        env.seed(100 * i + j)
        env.reset()
    actions = np.random.default_rng(i).integers(envs[0].action_space.n, size=1000)

    def loop(n_steps):
        for t in range(n_steps):
            env = envs[t % 8]
            if env.step(actions[t % 1000]).env_info.traj_done:
                env.reset()

    return loop


def cartpole_loop(i):
    env = gymnasium.make("CartPole-v1", disable_env_checker=True)
    env.reset(seed=i)
    actions = np.random.default_rng(i).integers(2, size=1000)

    def loop(n_steps):
        for t in range(n_steps):
            _, _, terminated, truncated, _ = env.step(actions[t % 1000])
            if terminated or truncated:
                env.reset()

    return loop


class UnevenEnv(gymnasium.Wrapper):
    """CartPole in which one step in 40 takes long. Waiting stands for work: there are more workers than processors."""

    def __init__(self):
        super().__init__(gymnasium.make("CartPole-v1", disable_env_checker=True))
        self.random = np.random.default_rng(os.getpid())

    def step(self, action):
        time.sleep(0.02 if self.random.random() < 1 / 40 else 0.0005)
        return self.env.step(action)


def uneven_loop(i):
    env = UnevenEnv()
    env.reset()

    def loop(n_steps):
        for _ in range(n_steps):
            _, _, terminated, truncated, _ = env.step(0)
            if terminated or truncated:
                env.reset()

    return loop


def start_sampler(SamplerCls, EnvCls, env_kwargs: dict, agent, B: int, T: int = 32, n_workers: int = N_WORKERS, **settings):
    """Return a running sampler, whose agent acts as a run on this machine has chosen."""
    sampler = SamplerCls(EnvCls=EnvCls, env_kwargs=env_kwargs, batch_T=T, batch_B=B, **settings)
    affinity = dict(workers_cpus=list(range(n_workers)), set_affinity=False)
    before = current()

    def choose(agent):
        adopt({**before, **calibrate(agent, [], *sampler.acting(affinity), affinity)})

    with once_models_exist(choose):
        sampler.initialize(agent, affinity=affinity, seed=0, bootstrap_value=True, traj_info_kwargs=dict(discount=0.99))
    if agent.acting_bf16:
        adopt(before)  # Choices with bfloat16 are for its workers, which have them by now.
    return sampler


def sampling_speed(sampler, n_batches: int) -> Callable[[], float]:
    """Return what measures a sampler's env steps per second in `n_batches`."""
    for itr in range(3):
        sampler.obtain_samples(itr)

    def measure():
        start = time.perf_counter()
        for itr in range(n_batches):
            sampler.obtain_samples(itr)
        return n_batches * sampler.batch_size / (time.perf_counter() - start)

    return measure


class Forward:
    """The network's share in an environment step, in seconds: for `rows` environments, by default half the batch, on one thread.

    The network computes as torch does by default, whatever is chosen for acting.
    """

    def __init__(self, rows: int = 8):
        self.envs = [AtariEnv(game="pong") for _ in range(rows)]
        self.agent = AtariFfAgent()
        self.agent.initialize(self.envs[0].spaces, share_memory=True)
        frames = np.zeros((rows, *self.envs[0].observation_space.shape), np.uint8)
        self.frames, self.observation = list(frames), torch.from_numpy(frames)
        for i, (env, frame) in enumerate(zip(self.envs, self.frames)):
            env.seed(i)
            env.reset_into(frame)

    def call(self) -> None:
        with torch.no_grad():
            self.agent.model(self.observation, None, None)

    @staticmethod
    @contextmanager
    def by_default() -> Iterator[None]:
        """Compute by default within this context."""
        before = current()
        adopt({})
        try:
            yield
        finally:
            adopt(before)

    def again_and_again(self) -> float:
        with self.by_default():
            return seconds(self.call, 100) / len(self.envs)

    def between_steps(self, n: int = 60) -> float:
        total = 0.0
        for i in range(n):
            for env, frame in zip(self.envs, self.frames):
                if env.step_into(i % 6, frame)[2].traj_done:
                    env.reset_into(frame)
            with self.by_default():
                total += seconds(self.call, 1)
        return total / n / len(self.envs)


def make_contenders(names: list[str]) -> dict[str, Callable[[], float]]:
    """Start what is needed to measure `names`; bare loops first, while this process has no threads."""
    bare = {}
    if any("Pong" in name or name.startswith("network") for name in names):
        bare["Pong"] = BareLoops(atari_loop, N_WORKERS)
    if any("CartPole" in name for name in names):
        bare["CartPole"] = BareLoops(cartpole_loop, N_WORKERS)
    if any("uneven" in name for name in names):
        bare["uneven"] = BareLoops(uneven_loop, N_UNEVEN)
    forward = cache(Forward)

    def pong(n_batches, SamplerCls, agent):
        return sampling_speed(start_sampler(SamplerCls, AtariEnv, dict(game="pong"), agent, B=16), n_batches)

    def cartpole(n_batches, T):
        return sampling_speed(start_sampler(CpuSampler, gym_make, dict(id="CartPole-v1"), RandomAgent(), B=32, T=T), n_batches)

    def uneven(SamplerCls, **settings):
        settings = dict(B=16, T=64, n_workers=N_UNEVEN, **settings)
        return sampling_speed(start_sampler(SamplerCls, UnevenEnv, {}, MlpFfAgent(), **settings), 3)

    makers = {
        "bare uneven": lambda: lambda: bare["uneven"].steps_per_second(500),
        "one bare uneven": lambda: lambda: bare["uneven"].steps_per_second(500, 1),
        "uneven, cpu network": lambda: uneven(CpuSampler),
        "uneven, gpu network": lambda: uneven(GpuSampler),
        "uneven, gpu network, serve_fraction=0.25": lambda: uneven(GpuSampler, serve_fraction=0.25),
        "uneven, alternating network": lambda: uneven(AlternatingSampler),
        "bare Pong": lambda: lambda: bare["Pong"].steps_per_second(2500),
        "one bare Pong": lambda: lambda: bare["Pong"].steps_per_second(2500, 1),
        "bare CartPole": lambda: lambda: bare["CartPole"].steps_per_second(40_000),
        "one bare CartPole": lambda: lambda: bare["CartPole"].steps_per_second(40_000, 1),
        "network": lambda: forward().again_and_again,
        "network between steps": lambda: forward().between_steps,
        "Pong, cpu random": lambda: pong(10, CpuSampler, RandomAgent()),
        "Pong, gpu random": lambda: pong(10, GpuSampler, RandomAgent()),
        "Pong, cpu network": lambda: pong(8, CpuSampler, AtariFfAgent()),
        "Pong, cpu network, bf16": lambda: pong(8, CpuSampler, AtariFfAgent(acting_bf16=True)),
        "Pong, gpu network": lambda: pong(8, GpuSampler, AtariFfAgent()),
        "Pong, alternating network": lambda: pong(8, AlternatingSampler, AtariFfAgent()),
        "Pong, no-overlap alternating network": lambda: pong(8, NoOverlapAlternatingSampler, AtariFfAgent()),
        "CartPole, cpu random": lambda: cartpole(60, T=32),
        "CartPole, cpu random, T=128": lambda: cartpole(15, T=128),
    }
    return {name: makers[name]() for name in names}


def main(n_rounds: int = 9, only: list[str] | None = None) -> None:
    table = [row for row in TABLE if not only or any(text in row.name for text in only)]
    if not table:
        raise SystemExit(f"--only {only} fits none of: {'; '.join(row.name for row in TABLE)}.")
    torch.set_num_threads(1)  # The action servers choose for themselves.
    names = dict.fromkeys(name for row in table for name in (row.limit, row.other_limit, row.name))
    if "network" in names:  # One of the limits.
        names = {"bare Pong": None, **names}
    results = rounds(make_contenders(list(names)), n_rounds)

    def limit(name: str) -> list[float]:
        """Return the env steps per second that are possible at most, round by round."""
        if name.startswith("network"):
            return [N_WORKERS / (N_WORKERS / bare + t) for bare, t in zip(results["bare Pong"], results[name])]
        n_workers = N_UNEVEN if "uneven" in name else N_WORKERS
        return [x * (n_workers if name.startswith("one") else 1) for x in results[name]]

    for name in names:
        if "bare" in name:
            print(f"{name}: {median(results[name]):.0f} steps/s")
        elif name.startswith("network"):
            print(f"{name}, per environment step, batch 8, one thread: {1e6 * median(results[name]):.0f} us")
    print(f"{'':42}{'steps/s':>9}{'of limit':>10}{'goal':>7}   of the other limit")
    for row in table:
        own = results[row.name]
        print(
            f"{row.name:42}{median(own):9.0f}{ratio(own, limit(row.limit)):10.3f}{row.goal:7.2f}"
            f"   {ratio(own, limit(row.other_limit)):.3f} ({row.other_limit})"
        )
        tell(row.name, steps=own, of_limit=ratios(own, limit(row.limit)), of_other_limit=ratios(own, limit(row.other_limit)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", nargs="+", metavar="TEXT", help="rows whose names contain one of these")
    args = parser.parse_args()
    main(args.rounds, args.only)
