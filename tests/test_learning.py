"""The algorithms learn: configurations of CartPole, small enough for every run of the tests, with fixed seeds.

For other seeds, with what is reached after how many steps::

    python tests/test_learning.py ppo_lstm 0 1 2
"""

import sys

import pytest
import torch
from tiers import full, learning

from rlpyt.experiments import train
from rlpyt.experiments.configs import classes_of, load, variant

pytestmark = [learning, full, pytest.mark.timeout(600)]

WINDOW = 20  # episodes

# Configuration, settings changed in it, mean return of the last WINDOW training episodes, environment steps by which it must be reached.
TASKS = {
    "ppo": ("cartpole", "ppo", dict(), 300, 70_000),
    "a2c": ("cartpole", "a2c", dict(), 300, 160_000),
    "dqn": ("cartpole", "dqn", dict(), 300, 60_000),
    "dqn_prioritized": ("cartpole", "dqn", dict(algo=dict(prioritized_replay=True, pri_beta_steps=20_000)), 300, 60_000),
    "catdqn": ("cartpole", "catdqn", dict(), 250, 100_000),
    "ppo_lstm": ("cartpole_without_velocities", "ppo_lstm", dict(), 250, 150_000),
    "r2d1": ("cartpole_without_velocities", "r2d1", dict(), 250, 200_000),
}


def learn(name, seed):
    """Train until the task is solved, or to the end of the steps; returns the runner."""
    module, key, changes, solved, n_steps = TASKS[name]
    module = load(module)
    config = variant(module.configs[key], **changes)
    settings = dict(n_steps=n_steps, log_interval_steps=2_000, log_traj_window=WINDOW, stop_return=solved)
    config = variant(config, runner=settings, sampler=dict(eval_n_envs=0))
    n_threads = torch.get_num_threads()
    affinity = dict(workers_cpus=[0, 1], set_affinity=False, master_torch_threads=1)
    runner = train.build(config, classes_of(module, key), affinity, seed)
    try:
        runner.train()
    finally:
        torch.set_num_threads(n_threads)
    return runner


def reached(runner):
    """Mean return of the last WINDOW episodes."""
    assert len(runner._traj_infos) == WINDOW
    return sum(info["Return"] for info in runner._traj_infos) / WINDOW


@pytest.mark.parametrize("name", TASKS)
def test_cartpole_is_learned(name):
    assert reached(learn(name, seed=1)) >= TASKS[name][3]


if __name__ == "__main__":
    for seed in map(int, sys.argv[2:]):
        runner = learn(sys.argv[1], seed)
        print(f"{sys.argv[1]}, seed {seed}: {reached(runner):.0f} after {runner.diagnostics.cum_steps:,} steps", file=sys.stderr)
