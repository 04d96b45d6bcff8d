"""The algorithms learn: CartPole, small enough for every run of the tests, with fixed seeds."""

import pytest
import torch

from rlpyt.agents.dqn.mlp_dqn_agent import MlpDqnAgent
from rlpyt.agents.pg.mlp import MlpFfAgent
from rlpyt.algos.dqn.dqn import DQN
from rlpyt.algos.pg.a2c import A2C
from rlpyt.algos.pg.ppo import PPO
from rlpyt.envs.gym import make as gym_make
from rlpyt.runners.minibatch_rl import MinibatchRl
from rlpyt.samplers.parallel.cpu.sampler import CpuSampler
from rlpyt.samplers.serial.sampler import SerialSampler

SOLVED = 300  # mean return of the last episodes

SETTINGS = {
    "ppo": dict(
        algo=lambda: PPO(learning_rate=1e-3, gae_lambda=0.95, epochs=10, ratio_clip=0.2, normalize_advantage=True, value_loss_coeff=0.5),
        agent=MlpFfAgent,
        sampler=lambda: CpuSampler(gym_make, dict(id="CartPole-v1"), batch_T=128, batch_B=8),
        n_steps=70_000,
    ),
    "a2c": dict(
        algo=lambda: A2C(learning_rate=2e-3, gae_lambda=0.95, entropy_loss_coeff=0.001),
        agent=MlpFfAgent,
        sampler=lambda: SerialSampler(gym_make, dict(id="CartPole-v1"), batch_T=16, batch_B=16),
        n_steps=160_000,
    ),
    "dqn": dict(
        algo=lambda: DQN(
            learning_rate=5e-4,
            batch_size=64,
            min_steps_learn=1000,
            replay_size=50_000,
            replay_ratio=16,
            target_update_interval=100,
            n_step_return=5,
            double_dqn=True,
            eps_steps=5000,
        ),
        agent=lambda: MlpDqnAgent(eps_final=0.02),
        sampler=lambda: SerialSampler(gym_make, dict(id="CartPole-v1"), batch_T=4, batch_B=4),
        n_steps=40_000,
    ),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_cartpole_is_learned(name):
    settings = SETTINGS[name]

    class Measured(MinibatchRl):
        best = 0.0

        def log_diagnostics(self, itr, prefix="Diagnostics/"):
            returns = [info["Return"] for info in self._traj_infos]
            if len(returns) == self.log_traj_window:
                self.best = max(self.best, sum(returns) / len(returns))
            super().log_diagnostics(itr, prefix)

    n_threads = torch.get_num_threads()
    try:
        runner = Measured(
            algo=settings["algo"](),
            agent=settings["agent"](),
            sampler=settings["sampler"](),
            n_steps=settings["n_steps"],
            seed=1,
            affinity=dict(workers_cpus=[0, 1], set_affinity=False, master_torch_threads=1),
            log_interval_steps=2_000,
            log_traj_window=20,
        )
        runner.train()
    finally:
        torch.set_num_threads(n_threads)
    assert runner.best >= SOLVED
