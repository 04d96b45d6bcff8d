"""How much of what environments and network leave possible the samplers reach.

    python tests/benchmarks/bench_samplers.py [--rounds 9]

Pong, B=16, T=32, 2 workers, and CartPole, B=32; prints medians of ratios measured in one run, in turn.

* limit of sampling with random actions: as many bare ``env.step`` loops as there are workers, all at once (and, for comparison, one
  alone times the number of workers);
* limit with the network: 2 / (t_env + t_forward), with the time of one environment step in one of the bare loops, and of the network's
  share in one environment step at half the batch, on one thread.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

import numpy as np
import torch
from agents_for_tests import RandomAgent
from common import BareLoops, median, ratio, rounds, seconds

from rlpyt.agents.pg.atari import AtariFfAgent
from rlpyt.envs.atari.atari_env import AtariEnv
from rlpyt.envs.gym import make as gym_make
from rlpyt.samplers.parallel.cpu.sampler import CpuSampler

N_WORKERS = 2


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
    import gymnasium

    env = gymnasium.make("CartPole-v1", disable_env_checker=True)
    env.reset(seed=i)
    actions = np.random.default_rng(i).integers(2, size=1000)

    def loop(n_steps):
        for t in range(n_steps):
            _, _, terminated, truncated, _ = env.step(actions[t % 1000])
            if terminated or truncated:
                env.reset()

    return loop


def make_sampler(EnvCls, env_kwargs, agent, B, T=32):
    sampler = CpuSampler(EnvCls=EnvCls, env_kwargs=env_kwargs, batch_T=T, batch_B=B)
    affinity = dict(workers_cpus=list(range(N_WORKERS)), set_affinity=False)
    sampler.initialize(agent, affinity=affinity, seed=0, bootstrap_value=True, traj_info_kwargs=dict(discount=0.99))
    for itr in range(3):
        sampler.obtain_samples(itr)
    return sampler


def sampling_speed(sampler, n_batches):
    def measure():
        start = time.perf_counter()
        for itr in range(n_batches):
            sampler.obtain_samples(itr)
        return n_batches * sampler.batch_size / (time.perf_counter() - start)

    return measure


def main(n_rounds: int = 9) -> None:
    bare_atari, bare_cartpole = BareLoops(atari_loop, N_WORKERS), BareLoops(cartpole_loop, N_WORKERS)
    torch.set_num_threads(1)
    agent = AtariFfAgent()
    pong_random = make_sampler(AtariEnv, dict(game="pong"), RandomAgent(), B=16)
    pong_network = make_sampler(AtariEnv, dict(game="pong"), agent, B=16)
    cartpole = make_sampler(gym_make, dict(id="CartPole-v1"), RandomAgent(), B=32)
    cartpole_long = make_sampler(gym_make, dict(id="CartPole-v1"), RandomAgent(), B=32, T=128)
    observation = torch.from_numpy(pong_network.samples_np.env.observation[0, :8].copy())

    def t_forward():
        with torch.no_grad():
            return seconds(lambda: agent.model(observation, None, None), 100) / 8

    results = rounds(
        {
            "bare": lambda: bare_atari.steps_per_second(2500),
            "bare_alone": lambda: bare_atari.steps_per_second(2500, 1),
            "random": sampling_speed(pong_random, 10),
            "forward": t_forward,
            "network": sampling_speed(pong_network, 8),
            "cartpole_bare": lambda: bare_cartpole.steps_per_second(40_000),
            "cartpole_bare_alone": lambda: bare_cartpole.steps_per_second(40_000, 1),
            "cartpole": sampling_speed(cartpole, 60),
            "cartpole_long": sampling_speed(cartpole_long, 15),
        },
        n_rounds,
    )
    for sampler in (pong_random, pong_network, cartpole, cartpole_long):
        sampler.shutdown()

    def limit(bare_per_process):
        return [N_WORKERS / (1 / bare + forward) for bare, forward in zip(bare_per_process, results["forward"])]

    each = [x / N_WORKERS for x in results["bare"]]
    both_alone = [N_WORKERS * x for x in results["bare_alone"]]
    cartpole_alone = [N_WORKERS * x for x in results["cartpole_bare_alone"]]
    print(f"Pong, bare loops: {median(results['bare']):.0f} steps/s in {N_WORKERS} at once, {median(both_alone):.0f} = {N_WORKERS} x one alone;")
    print(f"network {1e6 * median(results['forward']):.0f} us per environment step at batch 8, one thread")
    print(f"{'':44}{'steps/s':>9}{'of limit':>10}{'(limit from one loop alone)':>30}")
    for name, speeds, limits, limits_alone, goal in (
        ("Pong, random actions, B=16, T=32", results["random"], results["bare"], both_alone, 0.95),
        ("Pong, AtariFf on the CPU, B=16, T=32", results["network"], limit(each), limit(results["bare_alone"]), 0.90),
        ("CartPole, random actions, B=32, T=32", results["cartpole"], results["cartpole_bare"], cartpole_alone, 0.50),
        ("CartPole, random actions, B=32, T=128", results["cartpole_long"], results["cartpole_bare"], cartpole_alone, 0.50),
    ):
        print(f"{name:44}{median(speeds):9.0f}{ratio(speeds, limits):10.3f}{ratio(speeds, limits_alone):20.3f}    (goal {goal})")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    main(parser.parse_args().rounds)
