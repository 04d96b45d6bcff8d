"""The algorithms learn: configurations of CartPole, small enough for every run of the tests, with fixed seeds.

For other seeds, with what is reached after how many steps::

    python tests/test_learning.py ppo_lstm 0 1 2
"""

import sys
from functools import partial
from pathlib import Path

import pytest
import torch
from tiers import full, learning

from rlpyt.experiments.configs import classes_of, load, variant
from rlpyt.runners.minibatch_rl import MinibatchRl

sys.path[:0] = [str(Path(__file__).parents[1] / "examples")]
import train  # noqa: E402

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


class Solved(Exception):
    """Ends a run."""


class UntilSolved(MinibatchRl):
    """Trains until the mean return of the last episodes, looked at every `log_interval_steps`, reaches `solved`."""

    def __init__(self, solved, **kwargs):
        super().__init__(log_traj_window=WINDOW, **kwargs)
        self.solved, self.best, self.steps = solved, float("-inf"), 0

    def log_diagnostics(self, itr, prefix="Diagnostics/"):
        returns = [info["Return"] for info in self._traj_infos]
        if len(returns) == self.log_traj_window:
            self.best = max(self.best, sum(returns) / len(returns))
        self.steps = (itr + 1) * self.itr_batch_size
        super().log_diagnostics(itr, prefix)
        if self.best >= self.solved:
            raise Solved


def learn(name, seed):
    """Run until solved, or to the end of the steps; returns the runner."""
    module, key, changes, solved, n_steps = TASKS[name]
    module = load(module)
    config = variant(module.configs[key], **changes)
    config = variant(config, runner=dict(n_steps=n_steps, log_interval_steps=2_000), sampler=dict(eval_n_envs=0))
    n_threads = torch.get_num_threads()
    affinity = dict(workers_cpus=[0, 1], set_affinity=False, master_torch_threads=1)
    runner = train.build(config, classes_of(module, key), affinity, seed, RunnerCls=partial(UntilSolved, solved=solved))
    try:
        runner.train()
    except Solved:
        pass
    finally:
        torch.set_num_threads(n_threads)
    return runner


@pytest.mark.parametrize("name", TASKS)
def test_cartpole_is_learned(name):
    assert learn(name, seed=1).best >= TASKS[name][3]


if __name__ == "__main__":
    for seed in map(int, sys.argv[2:]):
        runner = learn(sys.argv[1], seed)
        print(f"{sys.argv[1]}, seed {seed}: {runner.best:.0f} after {runner.steps:,} steps", file=sys.stderr)
