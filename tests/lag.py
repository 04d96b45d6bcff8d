"""Who learns from old policies? Trains with batches that a policy sampled some updates ago, in one process, and writes a table.

    python tests/lag.py --seeds 5 --processes 2

The parameters of the agent that acts in iteration i are those after update i - lag. So everything is the same from run to run. Compared are
A2C and PPO, which take no notice of the lag (`policy_lag` stays 0), and Impala and Appo with the same settings, which are told of it. The
tasks are CartPole, and `Corridor`, whose best policy is random.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
from collections import deque, namedtuple
from functools import partial

import numpy as np
import torch

from rlpyt.agents.pg.mlp import MlpFfAgent
from rlpyt.algos.pg.a2c import A2C
from rlpyt.algos.pg.appo import Appo
from rlpyt.algos.pg.impala import Impala
from rlpyt.algos.pg.ppo import PPO
from rlpyt.envs.base import Env, EnvStep
from rlpyt.envs.gym import make
from rlpyt.samplers.serial.sampler import SerialSampler
from rlpyt.spaces.float_box import FloatBox
from rlpyt.spaces.int_box import IntBox

LAGS = (0, 1, 4, 16)  # updates


class Corridor(Env):
    """Three places that look the same, then the goal; in the second place left and right are exchanged. Every step costs 1.

    (Sutton & Barto 2018, example 13.1.) The best policy goes right with probability 0.59, and needs 11.6 steps. Who always goes right, or
    always left, never arrives: an episode ends after 100 steps. So a policy must not be pushed on to where it was right to go earlier.
    """

    horizon = 100

    def __init__(self):
        self._observation_space, self._action_space = FloatBox(0, 1, (1,)), IntBox(0, 2)
        self._place = self._t = 0

    def reset(self):
        self._place = self._t = 0
        return np.ones(1, np.float32)

    def step(self, action):
        forwards = (int(action) == 1) != (self._place == 1)
        self._place = self._place + 1 if forwards else max(self._place - 1, 0)
        self._t += 1
        arrived, late = self._place == 3, self._t == self.horizon
        return EnvStep(np.ones(1, np.float32), -1.0, arrived or late, CorridorInfo(late and not arrived))


CorridorInfo = namedtuple("CorridorInfo", ["timeout"])


CARTPOLE = dict(EnvCls=make, env_kwargs=dict(id="CartPole-v1"))
TASKS = {
    "corridor": (dict(EnvCls=Corridor, env_kwargs={}), 30_000),
    "cartpole": (CARTPOLE, 60_000),
}
# By task: settings of A2C and Impala, settings of PPO and Appo, and the size of batches of each.
SETTINGS = {
    "corridor": (dict(learning_rate=0.001), dict(learning_rate=0.001, epochs=4, minibatches=1)),
    "cartpole": (
        dict(learning_rate=2e-3, gae_lambda=0.95, entropy_loss_coeff=0.001, linear_lr_schedule=True),
        dict(
            discount=0.98, learning_rate=1e-3, value_loss_coeff=0.5, entropy_loss_coeff=0.0, clip_grad_norm=0.5, gae_lambda=0.8,
            minibatches=1, epochs=20, ratio_clip=0.2, normalize_advantage=True,
        ),
    ),
}  # fmt: skip
SIZES = {"corridor": ((16, 8), (32, 8)), "cartpole": ((8, 8), (32, 8))}
ALGOS = {"A2C": (A2C, 0), "Impala": (Impala, 0), "PPO": (PPO, 1), "Appo": (Appo, 1)}


def learn(task, algo, lag, seed, n_steps=None, last=100, **changes):
    """Train with changes of the algorithm's settings; return the mean return of the `last` trajectories."""
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    AlgoCls, family = ALGOS[algo]
    T, B = SIZES[task][family]
    environment, steps = TASKS[task]
    sampler = SerialSampler(**environment, batch_T=T, batch_B=B, max_decorrelation_steps=0)
    agent, trainer = MlpFfAgent(), AlgoCls(**{**SETTINGS[task][family], **changes})
    sampler.initialize(agent, seed=seed, bootstrap_value=True, traj_info_kwargs=dict(discount=0.99))
    n_itr = (n_steps or steps) // (T * B)
    trainer.initialize(agent, n_itr, sampler.batch_spec, sampler.mid_batch_reset)
    versions, returns = deque(maxlen=lag + 1), deque(maxlen=last)
    for itr in range(n_itr):
        versions.append({name: x.clone() for name, x in agent.state_dict().items()})
        agent.load_state_dict(versions[0])
        agent.sample_mode(itr)
        samples, infos = sampler.obtain_samples(itr)
        returns.extend(info.Return for info in infos)
        agent.load_state_dict(versions[-1])
        agent.train_mode(itr)
        if trainer.corrects_lag:
            trainer.policy_lag = len(versions) - 1
        trainer.optimize_agent(itr, samples)
    sampler.shutdown()
    return float(np.mean(returns))


def _learn(case, **changes):
    return case, learn(*case, **changes)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=TASKS)
    parser.add_argument("--algos", nargs="+", default=list(ALGOS), choices=ALGOS)
    parser.add_argument("--lags", nargs="+", type=int, default=LAGS)
    parser.add_argument("--learning_rate", type=float, help="in place of that of the settings")
    args = parser.parse_args()
    cases = list(itertools.product(args.tasks, args.algos, args.lags, range(args.seeds)))
    changes = {} if args.learning_rate is None else dict(learning_rate=args.learning_rate)
    found = {}
    with multiprocessing.get_context("spawn").Pool(args.processes) as pool:
        for case, result in pool.imap_unordered(partial(_learn, **changes), cases):
            found[case] = result
            print(*case, f"{result:.1f}", flush=True)
    print("| task | algorithm |", " | ".join(f"lag {lag}" for lag in args.lags), "|")
    print("|---|---|" + "---|" * len(args.lags))
    for task, algo in itertools.product(args.tasks, args.algos):
        cells = []
        for lag in args.lags:
            results = [found[task, algo, lag, seed] for seed in range(args.seeds)]
            cells.append(f"{np.mean(results):.1f} ({min(results):.1f} to {max(results):.1f})")
        print(f"| {task} | {algo} |", " | ".join(cells), "|")


if __name__ == "__main__":
    main()
