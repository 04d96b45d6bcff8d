"""How much of what a vector of environments leaves possible the serial sampler reaches, and what others reach with the same environments.

    python tests/benchmarks/bench_vector.py [--rounds 7] [--sb3_python PYTHON] [--only cartpole "pong, ale"]
    python tests/benchmarks/bench_vector.py --train 5

Random actions. For each vector, contenders in turn, round by round:

* loop: a loop around the vector that does what every loop of a user must. It draws random actions for all environments, by the same call as
  the sampler's agent, calls the vector's ``step``, and keeps the observations of T steps. It keeps no actions, rewards or ends of episodes;
* step: the vector's ``step`` alone, with actions drawn beforehand, which keeps nothing;
* sampler: `SerialSampler` with this vector, which fills the batch and has a TrajInfo for each episode;
* workers: `CpuSampler` with a vector in each of as many workers as there are processors;
* singles: `CpuSampler` with the same environments as single ones (at most 32), on as many workers.

Beside Gymnasium's CartPole, and Pong: ``gymnasium.vector.AsyncVectorEnv``; the ``Multiprocessing`` of ``pufferlib`` if it is installed
(CartPole only); with `--sb3_python`, a Python with Stable-Baselines3, its ``SubprocVecEnv``. They step as many environments as "singles",
with the same actions at every step, and keep nothing. Prints medians of steps per second, and medians of the ratios of sampler and loop,
and of sampler and step. Rows of EnvPool are left out if it is not installed.

`--train n`: PPO on CartPole from start to solved (mean return 475) with n seeds: seconds and steps, with the vector of
``examples/vector_env.py``, and with as many single environments of Gymnasium and the same settings.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1]), str(Path(__file__).parents[2] / "examples")]

import rlpyt  # noqa: F401  (before torch, whose threads would spin otherwise)

# isort: split
import gymnasium
import numpy as np
import torch
from agents_for_tests import RandomAgent
from common import median, ratio, rounds
from sb3_vector import gym_env
from vector_env import CartPoles, build

from rlpyt.agents.base import AgentStep, BaseAgent
from rlpyt.envs.atari.atari_env import AtariEnv
from rlpyt.envs.gym import make as gym_make
from rlpyt.envs.vector import VectorEnvs, make_ale, make_envpool
from rlpyt.samplers.parallel.cpu.sampler import CpuSampler
from rlpyt.samplers.serial.sampler import SerialSampler
from rlpyt.utils.buffer import buffer_from_example
from rlpyt.utils.logging.context import logger_context


class Row(NamedTuple):
    """A vector to measure: its maker and arguments, sizes of the batch, the goal, single environments and a Gymnasium id for comparison."""

    name: str
    make: Callable
    kwargs: dict
    T: int
    B: int
    goal: float
    single: tuple | None = None
    gym_id: str | None = None


CARTPOLE = (gym_make, dict(id="CartPole-v1"))
PONG = (AtariEnv, dict(game="pong"))
TABLE = [
    Row("CartPole, numba", CartPoles, {}, 128, 1024, 0.80),
    Row(
        "CartPole, Gymnasium",
        gymnasium.make_vec,
        dict(id="CartPole-v1", vectorization_mode="vector_entry_point"),
        128,
        1024,
        0.80,
        CARTPOLE,
        "CartPole-v1",
    ),
    Row("CartPole, EnvPool", make_envpool, dict(task_id="CartPole-v1"), 128, 1024, 0.80),
    Row("Pong, ale-py", make_ale, dict(game="pong"), 16, 16, 0.95, PONG, "ALE/Pong-v5"),
    Row("Pong, EnvPool", make_envpool, dict(task_id="Pong-v5"), 16, 16, 0.95),
    Row("Pong, EnvPool async", make_envpool, dict(task_id="Pong-v5", batch_size=8), 16, 16, 0.95),
    Row("HalfCheetah, EnvPool", make_envpool, dict(task_id="HalfCheetah-v4"), 64, 16, 0.95, (gym_make, dict(id="HalfCheetah-v5"))),
]
MOST_SINGLES = 32  # Environments.


class RandomOfSpace(RandomAgent):
    """Takes random actions: discrete ones, or continuous ones in [-1, 1]."""

    def initialize(self, env_spaces: Any, *args: Any, **kwargs: Any) -> None:
        BaseAgent.initialize(self, env_spaces, *args, **kwargs)
        self.draw = drawing(env_spaces.action)

    def step(self, observation: Any, prev_action: Any, prev_reward: Any) -> Any:
        return AgentStep(self.draw(prev_reward.shape), None)


def drawing(space: Any) -> Callable[[tuple], torch.Tensor]:
    """Return a function that draws random actions [...] for leading dimensions [...]."""
    if hasattr(space, "n"):
        return partial(torch.randint, space.n)
    return lambda leading: torch.empty(*leading, *space.shape).uniform_(-1, 1)


def bare(row: Row, close: list) -> dict[str, Callable[[], float]]:
    """Return functions that run a loop around the vector for T steps, and its ``step`` alone, and return steps per second."""
    kwargs = {name: value for name, value in row.kwargs.items() if name != "batch_size"}  # The loop waits for all environments.
    vector = VectorEnvs(row.make)(num_envs=row.B, **kwargs)
    close.append(vector.close)
    draw, actions = drawing(vector.action_space), []
    vector.seed(range(row.B))
    kept = buffer_from_example(vector.observation_space.null_value(), (row.T + 1, row.B), share_memory=False)
    if hasattr(vector, "env"):
        vector.env.reset()

        def step(action: Any, out: Any) -> Any:
            return vector.env.step(action)[0]
    else:
        vector.reset_into(kept[0])

        def step(action: Any, out: Any) -> None:
            vector.step_into(action, out)

    actions = [draw((row.B,)).numpy() for _ in range(row.T)]

    def loop() -> float:
        start = time.perf_counter()
        for t in range(row.T):
            observation = step(draw((row.B,)).numpy(), kept[t + 1])
            if observation is not None:
                kept[t + 1] = observation
        return row.T * row.B / (time.perf_counter() - start)

    def alone() -> float:
        out = kept[0]
        start = time.perf_counter()
        for action in actions:
            step(action, out)
        return row.T * row.B / (time.perf_counter() - start)

    return dict(loop=loop, step=alone)


def sampling(SamplerCls: Any, EnvCls: Any, env_kwargs: dict, T: int, B: int, close: list) -> Callable[[], float]:
    """Return a function that fills one batch, and returns steps per second."""
    sampler = SamplerCls(EnvCls=EnvCls, env_kwargs=env_kwargs, batch_T=T, batch_B=B, max_decorrelation_steps=0)
    sampler.initialize(RandomOfSpace(), seed=0)
    close.append(sampler.shutdown)
    sampler.obtain_samples(0)

    def run() -> float:
        start = time.perf_counter()
        sampler.obtain_samples(0)
        return T * B / (time.perf_counter() - start)

    return run


def library(step: Callable, action: Any, n: int, n_steps: int = 100) -> Callable[[], float]:
    """Return a function that runs a vector of another library, and returns steps per second."""

    def run() -> float:
        start = time.perf_counter()
        for _ in range(n_steps):
            step(action)
        return n * n_steps / (time.perf_counter() - start)

    return run


def others(gym_id: str, n: int, sb3_python: str | None, close: list) -> dict[str, Callable[[], float]]:
    """Return what other libraries do with environments in processes."""
    if gym_id.startswith("ALE/"):
        gymnasium.register_envs(__import__("ale_py"))
    contenders = {}
    vector = gymnasium.vector.AsyncVectorEnv([partial(gym_env, gym_id)] * n)
    vector.reset(seed=0)
    close.append(vector.close)
    contenders["AsyncVectorEnv"] = library(vector.step, np.ones(n, np.int64), n)
    if sb3_python:
        command = [sb3_python, str(Path(__file__).with_name("sb3_vector.py")), gym_id, str(n)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": ""})
        close.append(lambda: process.communicate("\n", timeout=60))

        def ask() -> float:
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write("100\n")
            process.stdin.flush()
            return float(process.stdout.readline())

        ask()
        contenders["SubprocVecEnv"] = ask
    if importlib.util.find_spec("pufferlib") and gym_id == "CartPole-v1":
        import pufferlib.emulation
        import pufferlib.vector

        def creator(buf: Any = None, **kwargs: Any) -> Any:
            return pufferlib.emulation.GymnasiumPufferEnv(env_creator=partial(gymnasium.make, gym_id), buf=buf, **kwargs)

        puffer = pufferlib.vector.make(creator, backend=pufferlib.vector.Multiprocessing, num_envs=n, num_workers=2)
        puffer.reset()
        close.append(puffer.close)
        contenders["pufferlib"] = library(puffer.step, np.ones(n, np.int64), n)
    return contenders


def measure(row: Row, n_rounds: int, sb3_python: str | None) -> None:
    """Print one row of the table."""
    close: list = []
    try:
        contenders = bare(row, close)
        contenders["sampler"] = sampling(SerialSampler, VectorEnvs(row.make), row.kwargs, row.T, row.B, close)
        if "batch_size" not in row.kwargs:
            contenders["workers"] = sampling(CpuSampler, VectorEnvs(row.make), row.kwargs, row.T, row.B, close)
        if row.single is not None:
            contenders["singles"] = sampling(CpuSampler, *row.single, row.T, min(row.B, MOST_SINGLES), close)
        if row.gym_id is not None:
            contenders.update(others(row.gym_id, min(row.B, MOST_SINGLES), sb3_python, close))
        results = rounds(contenders, n_rounds)
    finally:
        for function in close:
            function()
    of_loop, of_step = (ratio(results["sampler"], results[name]) for name in ("loop", "step"))
    speeds = ", ".join(f"{name} {median(values):,.0f}" for name, values in results.items())
    print(f"{row.name:22s} {of_loop:.2f} of loop (goal {row.goal:.2f}), {of_step:.2f} of step   steps/s: {speeds}", flush=True)


def train(n_seeds: int) -> None:
    """Print how long PPO takes to solve CartPole, with the vector and with single environments."""
    for name, EnvCls, env_kwargs in (("vector", None, {}), ("singles", *CARTPOLE)):
        took = []
        for seed in range(n_seeds):
            runner = build(seed=seed)
            if EnvCls is not None:
                runner.sampler = SerialSampler(EnvCls, env_kwargs, batch_T=32, batch_B=64, max_decorrelation_steps=0)
            with tempfile.TemporaryDirectory() as directory, logger_context(directory, 0, name="bench"):
                start = time.perf_counter()
                runner.train()
                took.append((time.perf_counter() - start, (runner.sampler.itr + 1) * 32 * 64))
        seconds, steps = zip(*took)
        print(f"{name}: solved after {', '.join(f'{s:.1f}' for s in seconds)} s ({', '.join(f'{n:,}' for n in steps)} steps)", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", nargs="+", default=[""], help="measure only rows whose name contains one of these texts")
    parser.add_argument("--sb3_python", help="Python with Stable-Baselines3 (for Pong with ale-py, too); default: without it")
    parser.add_argument("--train", type=int, default=0, metavar="SEEDS", help="train with this number of seeds instead")
    args = parser.parse_args()
    if args.train:
        train(args.train)
        return
    for row in TABLE:
        if row.make is make_envpool and not importlib.util.find_spec("envpool"):
            print(f"{row.name:22s} left out: EnvPool is not installed.")
        elif any(text.lower() in row.name.lower() for text in args.only):
            measure(row, args.rounds, args.sb3_python)


if __name__ == "__main__":
    main()
