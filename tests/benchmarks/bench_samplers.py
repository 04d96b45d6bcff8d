"""How much of what environments and network leave possible the samplers reach.

    python tests/benchmarks/bench_samplers.py [--rounds 9]

Pong, B=16, T=32, 2 workers, and CartPole, B=32; prints medians of ratios measured in one run, in turn.

* limit of sampling with random actions: as many bare ``env.step`` loops as there are workers, all at once (and, for comparison, one
  alone times the number of workers);
* limit with the network: 2 / (t_env + t_forward), with the time of one environment step in one of the bare loops, and the network's
  share in one environment step at half the batch, on one thread. The network is timed twice: called again and again, its weights in the
  processor's caches, and called as in sampling, each time after eight environments have stepped.
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

    envs = [AtariEnv(game="pong") for _ in range(8)]
    frames = [np.zeros(env.observation_space.shape, np.uint8) for env in envs]
    for env, frame in zip(envs, frames):
        env.reset_into(frame)

    def forward():
        with torch.no_grad():
            agent.model(observation, None, None)

    def t_forward():
        return seconds(forward, 100) / 8

    def t_forward_between_steps(n=60):
        total = 0.0
        for i in range(n):
            for env, frame in zip(envs, frames):
                if env.step_into(i % 6, frame)[2].traj_done:
                    env.reset_into(frame)
            total += seconds(forward, 1)
        return total / n / 8

    results = rounds(
        {
            "bare": lambda: bare_atari.steps_per_second(2500),
            "bare_alone": lambda: bare_atari.steps_per_second(2500, 1),
            "random": sampling_speed(pong_random, 10),
            "forward": t_forward,
            "forward_between": t_forward_between_steps,
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

    def limit(forward):
        return [N_WORKERS / (N_WORKERS / bare + t) for bare, t in zip(results["bare"], results[forward])]

    print(f"{N_WORKERS} bare Pong loops at once: {median(results['bare']):.0f} steps/s; one alone: {median(results['bare_alone']):.0f}")
    print(
        f"network per environment step, batch 8, one thread: {1e6 * median(results['forward']):.0f} us again and again, "
        f"{1e6 * median(results['forward_between']):.0f} us between environment steps"
    )
    table = [
        ("Pong, random actions, B=16, T=32", "random", results["bare"], 0.95),
        ("... of twice one bare loop alone", "random", [N_WORKERS * x for x in results["bare_alone"]], 0.95),
        ("Pong, AtariFf on the CPU, B=16, T=32", "network", limit("forward"), 0.90),
        ("... of the limit between environment steps", "network", limit("forward_between"), None),
        ("CartPole, random actions, B=32, T=32", "cartpole", results["cartpole_bare"], 0.50),
        ("... T=128", "cartpole_long", results["cartpole_bare"], 0.50),
        ("... T=128, of twice one bare loop alone", "cartpole_long", [N_WORKERS * x for x in results["cartpole_bare_alone"]], 0.50),
    ]
    print(f"{'':46}{'steps/s':>9}{'of limit':>10}{'goal':>7}")
    for name, key, limits, goal in table:
        print(f"{name:46}{median(results[key]):9.0f}{ratio(results[key], limits):10.3f}{goal or '':>7}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    main(parser.parse_args().rounds)
