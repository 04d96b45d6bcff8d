"""How much of what a vector of environments leaves possible the serial sampler reaches, and what others reach with the same environments.

    python tests/benchmarks/bench_vector.py [--rounds 7] [--only cartpole "pong, ale"] [--train 5]

Random actions. For each vector, three contenders in turn, round by round:

* bare: the vector's own ``reset`` and ``step`` in a loop, which keeps nothing;
* sampler: `SerialSampler` with this vector, which fills the batch and finishes a TrajInfo for each episode;
* singles: `CpuSampler` with the same number of single environments, on as many workers as there are processors.

Besides, with CartPole, ``gymnasium.vector.AsyncVectorEnv``, and, if they are installed, Stable-Baselines3's ``SubprocVecEnv`` and the
``Multiprocessing`` of ``pufferlib``. Prints medians of steps per second, and the median of the ratios of sampler and bare. EnvPool's rows
are left out if EnvPool is not installed.

`--train n`: PPO on CartPole from start to solved (mean return 475) with n seeds: seconds and steps, with the vector of
``examples/vector_env.py``, and with as many single environments of Gymnasium and the same settings.
"""

from __future__ import annotations

import argparse
import importlib.util
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
from agents_for_tests import RandomAgent
from common import median, ratio, rounds
from vector_env import CartPoles, build

from rlpyt.envs.gym import make as gym_make
from rlpyt.envs.vector import VectorEnvs, make_ale, make_envpool
from rlpyt.samplers.parallel.cpu.sampler import CpuSampler
from rlpyt.samplers.serial.sampler import SerialSampler
from rlpyt.utils.buffer import buffer_from_example
from rlpyt.utils.logging.context import logger_context


class Row(NamedTuple):
    """A vector to measure: its maker and arguments, sizes of the batch, the goal, and single environments for comparison."""

    name: str
    make: Callable
    kwargs: dict
    T: int
    B: int
    goal: float
    single: tuple | None = None


CARTPOLE = (gym_make, dict(id="CartPole-v1"))
TABLE = [
    Row("CartPole, numba", CartPoles, {}, 128, 1024, 0.80, CARTPOLE),
    Row(
        "CartPole, Gymnasium",
        gymnasium.make_vec,
        dict(id="CartPole-v1", vectorization_mode="vector_entry_point"),
        128,
        1024,
        0.80,
        CARTPOLE,
    ),
    Row("Pong, ale-py", make_ale, dict(game="pong"), 32, 16, 0.95),
    Row("Pong, EnvPool", make_envpool, dict(task_id="Pong-v5"), 32, 16, 0.95),
    Row("HalfCheetah, EnvPool", make_envpool, dict(task_id="HalfCheetah-v4"), 64, 16, 0.95, (gym_make, dict(id="HalfCheetah-v5"))),
]


class RandomOfSpace(RandomAgent):
    """A RandomAgent also for continuous actions in [-1, 1]."""

    def step(self, observation: Any, prev_action: Any, prev_reward: Any) -> Any:
        step = super().step(observation, prev_action, prev_reward)
        if hasattr(self.env_spaces.action, "n"):
            return step
        return step._replace(action=prev_action.clone().uniform_(-1, 1))


def bare_loop(row: Row) -> Callable[[], float]:
    """Return a function that runs the vector's own loop for T steps, and returns steps per second."""
    vector = VectorEnvs(row.make)(num_envs=row.B, **row.kwargs)
    space = vector.action_space
    actions = [buffer_from_example(space.null_value(), (row.B,), share_memory=False) for _ in range(row.T)]
    for action in actions:
        for b in range(row.B):
            action[b] = space.sample()
    vector.seed(range(row.B))
    if hasattr(vector, "env"):
        env = vector.env
        env.reset()
        step = env.step
    else:
        out = buffer_from_example(vector.observation_space.null_value(), (row.B,), share_memory=False)
        vector.reset_into(out)
        step = partial(_step_into, vector, out)

    def run() -> float:
        start = time.perf_counter()
        for action in actions:
            step(action)
        return row.T * row.B / (time.perf_counter() - start)

    run.vector = vector  # type: ignore[attr-defined]  # It must live as long as its step.
    return run


def _step_into(vector: Any, out: Any, action: Any) -> None:
    vector.step_into(action, out)


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


def library(step: Callable, action: Any, n: int, n_steps: int = 200) -> Callable[[], float]:
    """Return a function that runs a vector of another library, and returns steps per second."""

    def run() -> float:
        start = time.perf_counter()
        for _ in range(n_steps):
            step(action)
        return n * n_steps / (time.perf_counter() - start)

    return run


def others(close: list, n: int = 16) -> dict[str, Callable[[], float]]:
    """Return what other libraries do with CartPole in processes."""
    contenders = {}
    vector = gymnasium.vector.AsyncVectorEnv([partial(gymnasium.make, "CartPole-v1")] * n)
    vector.reset(seed=0)
    close.append(vector.close)
    contenders["AsyncVectorEnv"] = library(vector.step, np.ones(n, np.int64), n)
    if importlib.util.find_spec("stable_baselines3"):
        from stable_baselines3.common.vec_env import SubprocVecEnv

        subproc = SubprocVecEnv([partial(gymnasium.make, "CartPole-v1")] * n)
        subproc.reset()
        close.append(subproc.close)
        contenders["SubprocVecEnv"] = library(subproc.step, np.ones(n, np.int64), n)
    if importlib.util.find_spec("pufferlib"):
        import pufferlib.emulation
        import pufferlib.vector

        def creator(buf: Any = None, **kwargs: Any) -> Any:
            return pufferlib.emulation.GymnasiumPufferEnv(env_creator=partial(gymnasium.make, "CartPole-v1"), buf=buf, **kwargs)

        puffer = pufferlib.vector.make(creator, backend=pufferlib.vector.Multiprocessing, num_envs=n, num_workers=2)
        puffer.reset()
        close.append(puffer.close)
        contenders["pufferlib"] = library(puffer.step, np.ones(n, np.int64), n)
    return contenders


def measure(row: Row, n_rounds: int) -> None:
    """Print one row of the table."""
    close: list = []
    contenders = dict(bare=bare_loop(row), sampler=sampling(SerialSampler, VectorEnvs(row.make), row.kwargs, row.T, row.B, close))
    if row.single is not None:
        contenders["singles"] = sampling(CpuSampler, *row.single, row.T, min(row.B, 32), close)
    if row.name == "CartPole, Gymnasium":
        contenders.update(others(close))
    try:
        results = rounds(contenders, n_rounds)
    finally:
        for function in close:
            function()
    speeds = ", ".join(f"{name} {median(values):,.0f}" for name, values in results.items())
    print(f"{row.name:22s} {ratio(results['sampler'], results['bare']):.2f} of bare (goal {row.goal})   steps/s: {speeds}", flush=True)


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
    parser.add_argument("--train", type=int, default=0, metavar="SEEDS", help="train with this number of seeds instead")
    args = parser.parse_args()
    if args.train:
        train(args.train)
        return
    for row in TABLE:
        if row.make is make_envpool and not importlib.util.find_spec("envpool"):
            print(f"{row.name:22s} left out: EnvPool is not installed.")
        elif any(text.lower() in row.name.lower() for text in args.only):
            measure(row, args.rounds)


if __name__ == "__main__":
    main()
