"""The algorithms learn: CartPole, small enough for every run of the tests, with fixed seeds.

For other seeds, with what is reached after how many steps::

    python tests/test_learning.py ppo_lstm 0 1 2
"""

import sys

import pytest
import torch
from envs import make_cartpole_without_velocities

from rlpyt.agents.dqn.mlp_catdqn_agent import MlpCatDqnAgent
from rlpyt.agents.dqn.mlp_dqn_agent import MlpDqnAgent
from rlpyt.agents.dqn.mlp_r2d1_agent import MlpR2d1Agent
from rlpyt.agents.pg.mlp import MlpFfAgent, MlpLstmAgent
from rlpyt.algos.dqn.cat_dqn import CategoricalDQN
from rlpyt.algos.dqn.dqn import DQN
from rlpyt.algos.dqn.r2d1 import R2D1
from rlpyt.algos.pg.a2c import A2C
from rlpyt.algos.pg.ppo import PPO
from rlpyt.envs.gym import make as gym_make
from rlpyt.runners.minibatch_rl import MinibatchRl
from rlpyt.samplers.parallel.cpu.sampler import CpuSampler
from rlpyt.samplers.serial.sampler import SerialSampler

WINDOW = 20  # episodes


def dqn(AlgoCls=DQN, AgentCls=MlpDqnAgent, n_steps=40_000, solved=300, **settings):
    """Variants of DQN, which differ in nothing else."""
    return dict(
        algo=lambda: AlgoCls(
            learning_rate=5e-4,
            batch_size=64,
            min_steps_learn=1000,
            replay_size=50_000,
            replay_ratio=16,
            target_update_interval=100,
            n_step_return=5,
            double_dqn=True,
            eps_steps=5000,
            **settings,
        ),
        agent=lambda: AgentCls(eps_final=0.02),
        sampler=lambda: SerialSampler(gym_make, dict(id="CartPole-v1"), batch_T=4, batch_B=4),
        n_steps=n_steps,
        solved=solved,
    )


# solved: mean return of the last WINDOW episodes; n_steps: environment steps by which it must be reached
SETTINGS = {
    "ppo": dict(
        algo=lambda: PPO(learning_rate=1e-3, gae_lambda=0.95, epochs=10, ratio_clip=0.2, normalize_advantage=True, value_loss_coeff=0.5),
        agent=MlpFfAgent,
        sampler=lambda: CpuSampler(gym_make, dict(id="CartPole-v1"), batch_T=128, batch_B=8),
        n_steps=70_000,
        solved=300,
    ),
    "ppo_lstm": dict(
        algo=lambda: PPO(
            learning_rate=5e-3,
            gae_lambda=0.9,
            epochs=10,
            minibatches=8,
            ratio_clip=0.2,
            normalize_advantage=True,
            value_loss_coeff=0.01,  # Policy and value share all but the last layer: large errors of the value must not drown the policy.
            entropy_loss_coeff=0.001,
        ),
        agent=MlpLstmAgent,
        sampler=lambda: SerialSampler(make_cartpole_without_velocities, dict(), batch_T=32, batch_B=32),
        n_steps=150_000,
        solved=450,
    ),
    "a2c": dict(
        algo=lambda: A2C(learning_rate=2e-3, gae_lambda=0.95, entropy_loss_coeff=0.001),
        agent=MlpFfAgent,
        sampler=lambda: SerialSampler(gym_make, dict(id="CartPole-v1"), batch_T=16, batch_B=16),
        n_steps=160_000,
        solved=300,
    ),
    "dqn": dqn(),
    "dqn_prioritized": dqn(prioritized_replay=True, pri_beta_steps=20_000),
    "catdqn": dqn(CategoricalDQN, MlpCatDqnAgent, n_steps=100_000, solved=450, V_min=0, V_max=100),
    "r2d1": dict(
        algo=lambda: R2D1(
            discount=0.99,
            batch_T=16,
            warmup_T=4,
            batch_B=32,
            store_rnn_state_interval=4,
            min_steps_learn=2000,
            replay_size=200_000,
            replay_ratio=40,
            target_update_interval=100,
            n_step_return=10,
            learning_rate=2e-3,
            eps_steps=10_000,
            clip_grad_norm=10,
        ),
        agent=lambda: MlpR2d1Agent(eps_final=0.1, eps_final_min=0.001),
        sampler=lambda: SerialSampler(make_cartpole_without_velocities, dict(), batch_T=4, batch_B=16),
        n_steps=200_000,
        solved=400,
    ),
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
    settings = dict(SETTINGS[name])
    n_threads = torch.get_num_threads()
    runner = UntilSolved(
        **{part: settings.pop(part)() for part in ("algo", "agent", "sampler")},
        **settings,
        seed=seed,
        affinity=dict(workers_cpus=[0, 1], set_affinity=False, master_torch_threads=1),
        log_interval_steps=2_000,
    )
    try:
        runner.train()
    except Solved:
        pass
    finally:
        torch.set_num_threads(n_threads)
    return runner


@pytest.mark.parametrize("name", SETTINGS)
def test_cartpole_is_learned(name):
    assert learn(name, seed=1).best >= SETTINGS[name]["solved"]


if __name__ == "__main__":
    for seed in map(int, sys.argv[2:]):
        runner = learn(sys.argv[1], seed)
        print(f"{sys.argv[1]}, seed {seed}: {runner.best:.0f} after {runner.steps:,} steps", file=sys.stderr)
