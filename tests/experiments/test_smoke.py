"""Runners of tiny runs."""

from functools import partial

import pytest

from rlpyt.agents.dqn.mlp_dqn_agent import MlpDqnAgent
from rlpyt.agents.pg.mlp import MlpFfAgent
from rlpyt.algos.dqn.dqn import DQN
from rlpyt.algos.pg.ppo import PPO
from rlpyt.envs.gym import make
from rlpyt.experiments.smoke import SMOKE, tiny
from rlpyt.runners.minibatch_rl import MinibatchRl, MinibatchRlEval
from rlpyt.samplers.serial.sampler import SerialSampler

CARTPOLE = dict(EnvCls=make, env_kwargs=dict(id="CartPole-v1"))


def test_no_setting_is_larger_than_in_smoke_and_all_others_are_the_same():
    agent = MlpDqnAgent()
    algo = DQN(learning_rate=0.0125, replay_size=1_000_000, min_steps_learn=50)
    sampler = SerialSampler(**CARTPOLE, batch_T=2, batch_B=32, eval_n_envs=10, eval_max_steps=1000)
    runner = MinibatchRlEval(algo, agent, sampler, n_steps=1e6, seed=3, affinity=dict(master_torch_threads=1))
    small = tiny(runner)
    assert type(small) is MinibatchRlEval and small.agent is agent and (small.seed, small.affinity) == (3, dict(master_torch_threads=1))
    assert (small.n_steps, small.log_interval_steps) == (256, 128)
    assert (small.algo.learning_rate, small.algo.replay_size, small.algo.min_steps_learn) == (0.0125, 2048, 50)
    assert (small.sampler.batch_spec.T, small.sampler.batch_spec.B) == (2, 4)
    assert (small.sampler.eval_n_envs, small.sampler.eval_max_steps) == (2, 60)
    assert runner.n_steps == 1e6 and algo.replay_size == 1_000_000 and sampler.batch_spec.B == 32, "these are as they were"


def test_acceleration_stays():
    algo, sampler = PPO().accelerate(compile_models=True), SerialSampler(**CARTPOLE, batch_T=2, batch_B=2)
    runner = MinibatchRl(algo=algo, agent=MlpFfAgent(), sampler=sampler, n_steps=100)
    assert tiny(runner).algo.compile_models is True


@pytest.mark.parametrize("n_steps", [100, 10_000])
def test_a_column_for_each_environment_stays(n_steps):
    envs = [partial(make, id=name) for name in ("CartPole-v1", "CartPole-v0") * 4]
    sampler = SerialSampler(EnvCls=envs, env_kwargs={}, batch_T=64, batch_B=8, eval_n_envs=8, eval_max_steps=1000)
    small = tiny(MinibatchRlEval(PPO(), MlpFfAgent(), sampler, n_steps=n_steps))
    assert (small.sampler.batch_spec.T, small.sampler.batch_spec.B, small.sampler.eval_n_envs) == (SMOKE["sampler"]["batch_T"], 8, 8)
    assert small.n_steps == min(n_steps, 256)
