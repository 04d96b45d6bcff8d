"""A RayBatchSampler in every runner."""

import os
import subprocess
import sys
import textwrap

import pytest
import torch
from tiers import full, processes, ray

from rlpyt.agents.pg.mlp import MlpFfAgent
from rlpyt.algos.pg.ppo import PPO
from rlpyt.envs.gym import make
from rlpyt.runners.minibatch_rl import MinibatchRl, MinibatchRlEval
from rlpyt.samplers.parallel.cpu.sampler import CpuSampler
from rlpyt.samplers.ray.batch_sampler import RayBatchSampler
from rlpyt.utils.logging.context import logger_context

pytestmark = [ray, full, processes, pytest.mark.timeout(280)]


class Killed(Exception):
    pass


class Stopping(MinibatchRlEval):
    """Is killed in the middle of an iteration."""

    def run_iteration(self, itr):
        if itr == 5:
            raise Killed
        super().run_iteration(itr)


def train(log_dir, SamplerCls=RayBatchSampler, RunnerCls=MinibatchRl, resume_from=None, **kwargs):
    runner = RunnerCls(
        algo=PPO(epochs=2, minibatches=2),
        agent=MlpFfAgent(model_kwargs=dict(hidden_sizes=[16])),
        sampler=SamplerCls(make, dict(id="CartPole-v1"), batch_T=16, batch_B=4, eval_n_envs=2, eval_max_steps=300, **kwargs),
        n_steps=8 * 64,
        log_interval_steps=2 * 64,
        affinity=dict(workers_cpus=[0, 1], set_affinity=False, master_torch_threads=1),
        seed=3,
        resume_from=resume_from,
    )
    with logger_context(str(log_dir), 0, "test"):
        runner.train()
    return runner.agent.state_dict(), runner.algo.optim_state_dict()


def test_training_is_that_with_a_cpu_sampler_bit_for_bit(tmp_path, ray_address):
    expected = train(tmp_path / "cpu", CpuSampler, MinibatchRlEval)
    torch.testing.assert_close(train(tmp_path / "ray", RunnerCls=MinibatchRlEval, address=ray_address), expected, rtol=0, atol=0)


def test_a_resumed_run_with_batches_in_flight_is_the_uninterrupted_one(tmp_path, ray_address):
    ray = dict(address=ray_address, in_flight=1, RunnerCls=MinibatchRlEval)
    expected = train(tmp_path / "whole", **ray)
    with pytest.raises(Killed):
        train(tmp_path / "parts", **dict(ray, RunnerCls=Stopping))
    resumed = train(tmp_path / "parts", resume_from=tmp_path / "parts" / "run_0", **ray)
    torch.testing.assert_close(resumed, expected, rtol=0, atol=0)


ASYNC = """
import sys
from rlpyt.agents.dqn.mlp_dqn_agent import MlpDqnAgent
from rlpyt.algos.dqn.dqn import DQN
from rlpyt.envs.gym import make
from rlpyt.runners.async_rl import AsyncRl
from rlpyt.samplers.async_.ray_sampler import AsyncRayBatchSampler
from rlpyt.utils.logging.context import logger_context

if __name__ == "__main__":
    runner = AsyncRl(
        algo=DQN(min_steps_learn=40, replay_size=500, batch_size=16),
        agent=MlpDqnAgent(),
        sampler=AsyncRayBatchSampler(make, dict(id="CartPole-v1"), batch_T=5, batch_B=4, n_actors=2),
        n_steps=400,
        log_interval_steps=200,
        seed=5,
        affinity=dict(optimizer=[dict(torch_threads=1, set_affinity=False)], sampler=dict(set_affinity=False)),
    )
    with logger_context(sys.argv[1], 0, "test"):
        runner.train()
"""

SYNC = """
import sys
from rlpyt.agents.pg.mlp import MlpFfAgent
from rlpyt.algos.pg.a2c import A2C
from rlpyt.envs.gym import make
from rlpyt.runners.sync_rl import SyncRl
from rlpyt.samplers.ray.batch_sampler import RayBatchSampler
from rlpyt.utils.logging.context import logger_context

if __name__ == "__main__":
    runner = SyncRl(
        algo=A2C(),
        agent=MlpFfAgent(),
        sampler=RayBatchSampler(make, dict(id="CartPole-v1"), batch_T=5, batch_B=4),
        n_steps=400,
        log_interval_steps=200,
        seed=5,
        affinity=[dict(master_torch_threads=1, set_affinity=False)] * 2,
    )
    with logger_context(sys.argv[1], 0, "test"):
        runner.train()
"""


@pytest.mark.parametrize("script", [ASYNC, SYNC], ids=["asynchronous", "two ranks"])
def test_runners_of_several_processes_sample_on_a_cluster(script, tmp_path, ray_address):
    environment = dict(os.environ, RAY_ADDRESS=ray_address, PYTHONPATH=os.pathsep.join(sys.path))
    command = [sys.executable, "-c", textwrap.dedent(script), str(tmp_path)]
    out = subprocess.run(command, capture_output=True, text=True, timeout=250, env=environment)
    assert out.returncode == 0 and "Training complete" in out.stdout, out.stderr[-3000:]


LOST = """
import sys
import numpy as np
from envs import FailingEnv
from rlpyt.agents.dqn.mlp_dqn_agent import MlpDqnAgent
from rlpyt.algos.dqn.dqn import DQN
from rlpyt.runners.async_rl import AsyncRl
from rlpyt.samplers.async_.ray_sampler import AsyncRayBatchSampler
from rlpyt.utils.logging.context import logger_context

if __name__ == "__main__":
    env = dict(episode_length=1000, fail_at=33, how="sigkill", once=sys.argv[1] + "/failed")
    algo = DQN(min_steps_learn=40, replay_size=800, batch_size=16)
    runner = AsyncRl(
        algo=algo,
        agent=MlpDqnAgent(),
        sampler=AsyncRayBatchSampler(FailingEnv, env, batch_T=5, batch_B=4, n_actors=2, max_decorrelation_steps=0),
        n_steps=400,
        log_interval_steps=200,
        seed=5,
        affinity=dict(optimizer=[dict(torch_threads=1, set_affinity=False)], sampler=dict(set_affinity=False)),
    )
    with logger_context(sys.argv[1], 0, "test"):
        runner.train()
    kept = algo.replay_buffer.samples
    begins = np.argwhere(np.asarray(kept.observation)[:100, :, 2] == 0).tolist()
    ends = np.argwhere(np.asarray(kept.done)[:100]).tolist()
    print("begins and ends", begins, ends)
    assert begins in ([[0, 0], [0, 1], [0, 2], [0, 3], [30, b], [30, b + 1]] for b in (0, 2))
    assert ends == [[29, b] for _, b in begins[4:]]
"""


def test_replay_knows_where_an_actor_was_replaced_in_an_asynchronous_run(tmp_path, ray_address):
    test_runners_of_several_processes_sample_on_a_cluster(LOST, tmp_path, ray_address)
