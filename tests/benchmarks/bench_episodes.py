"""What it costs to make whole episodes of a sampler's batches, in parts of what copying the same bytes costs.

    python tests/benchmarks/bench_episodes.py [--rounds 9]

A batch [128,64] of Atari size, observations of [4,104,80] bytes, 273 MB; one process, one thread. Prints medians of ratios measured in
one run, in turn. Copying is one `numpy.copy` of each field, into new memory as the episodes are; goal: 0.5.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import namedtuple
from itertools import cycle
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

import rlpyt  # noqa: F401  (before torch, whose threads would spin otherwise)

# isort: split
import numpy as np
from common import median, ratio, ratios, rounds, tell

from rlpyt.episodes import EpisodeAssembler, EpisodeBatch
from rlpyt.samplers.collections import AgentSamples, EnvSamples, Samples
from rlpyt.utils.buffer import buffer_from_example, buffer_leaves
from rlpyt.utils.collections import namedarraytuple

T, B, SHAPE = 128, 64, (4, 104, 80)
EnvInfo = namedtuple("EnvInfo", ["game_score", "traj_done", "timeout"])
AgentInfo = namedarraytuple("AgentInfo", ["dist_info", "value"])
DistInfo = namedarraytuple("DistInfo", ["prob"])


def make_observations() -> tuple[np.ndarray, np.ndarray]:
    """Return the memory of observations [T+1,B], and of those that ended episodes [T,B]."""
    frames = np.random.default_rng(0).integers(256, size=SHAPE, dtype=np.uint8)
    observation, ends = (buffer_from_example(frames, (rows, B), share_memory=True) for rows in (T + 1, T))
    observation[...] = frames
    return observation, ends


def make_batch(observation: np.ndarray, ends: np.ndarray, mean_length: float, seed: int = 0) -> Samples:
    """Return a batch whose episodes have this mean length (env steps); one in four is truncated."""
    rng = np.random.default_rng(seed)
    done = rng.random((T, B)) < 1 / mean_length
    timeout = done & (rng.random((T, B)) < 0.25)
    action, reward = rng.integers(6, size=(T + 1, B)), rng.normal(size=(T + 1, B)).astype(np.float32)
    info = buffer_from_example(EnvInfo(np.float32(0), False, False), (T, B))
    info.traj_done[...], info.timeout[...] = done, timeout
    agent_info = AgentInfo(DistInfo(rng.random((T, B, 6), np.float32)), rng.random((T, B), np.float32))
    return Samples(
        AgentSamples(action[1:], action[:-1], agent_info),
        EnvSamples(observation[:-1], reward[1:], reward[:-1], done, info, timeout, observation[1:]),
        final_observation=ends,
        terminal_observation=ends,
    )


def timed(func) -> float:
    start = time.perf_counter()
    func()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=9)
    args = parser.parse_args()
    memory = make_observations()
    batch, short = (make_batch(*memory, mean_length=length) for length in (200, 20))
    stream, short_stream = (cycle([make_batch(*memory, length, seed) for seed in range(16)]) for length in (200, 20))
    env, agent = batch.env, batch.agent
    copied = [env.observation, agent.action, env.reward, *buffer_leaves(env.env_info), *buffer_leaves(agent.agent_info)]
    assembler, short_assembler = (EpisodeAssembler(None, B, first=True) for _ in range(2))
    contenders = {
        "copying": lambda: timed(lambda: [x.copy() for x in copied]),
        "from_samples": lambda: timed(lambda: EpisodeBatch.from_samples(batch)),
        "from_samples, whole episodes of 20 steps": lambda: timed(lambda: EpisodeBatch.from_samples(short, partial="drop")),
        "EpisodeAssembler, episodes of 200 steps": lambda: timed(lambda: assembler.push(next(stream))),
        "EpisodeAssembler, episodes of 20 steps": lambda: timed(lambda: short_assembler.push(next(short_stream))),
    }
    for contender in contenders.values():
        contender()
    results = rounds(contenders, args.rounds)
    n_bytes = sum(x.nbytes for x in copied)
    print(f"copying: {n_bytes / median(results['copying']) / 1e9:.2f} GB/s")
    for name in list(contenders)[1:]:
        values = sorted(x / y for x, y in zip(results["copying"], results[name]))
        print(f"{name}: {ratio(results['copying'], results[name]):.2f} of copying ({values[0]:.2f} to {values[-1]:.2f})")
        tell(name, **{"of copying": ratios(results["copying"], results[name])})


if __name__ == "__main__":
    main()
