"""A thousand iterations with evaluation and snapshots: nothing grows."""

import psutil
import pytest
from tiers import full, processes

from rlpyt.agents.dqn.mlp_dqn_agent import MlpDqnAgent
from rlpyt.algos.dqn.dqn import DQN
from rlpyt.envs.gym import make
from rlpyt.runners.async_rl import AsyncRlEval
from rlpyt.runners.minibatch_rl import MinibatchRlEval
from rlpyt.runners.sync_rl import SyncRlEval
from rlpyt.samplers.async_.cpu_sampler import AsyncCpuSampler
from rlpyt.samplers.parallel.cpu.sampler import CpuSampler
from rlpyt.samplers.serial.sampler import SerialSampler
from rlpyt.utils.logging.context import logger_context

pytestmark = [full, processes, pytest.mark.timeout(280)]
ONE = dict(master_torch_threads=1, workers_cpus=[0], set_affinity=False)
RUNNERS = {
    "serial": (MinibatchRlEval, SerialSampler, ONE),
    "cpu": (MinibatchRlEval, CpuSampler, ONE),
    "two ranks": (SyncRlEval, SerialSampler, [ONE, ONE]),
    "async": (AsyncRlEval, AsyncCpuSampler, ONE),
}
N_ITR, INTERVAL, T, B = 1000, 50, 2, 4


@pytest.mark.parametrize("name", RUNNERS)
def test_neither_memory_nor_descriptors_grow(name, tmp_path):
    RunnerCls, SamplerCls, affinity = RUNNERS[name]
    used = []

    class Watched(RunnerCls):
        def log_diagnostics(self, *args, **kwargs):
            super().log_diagnostics(*args, **kwargs)
            if self.rank == 0:
                family = [psutil.Process(), *psutil.Process().children(recursive=True)]
                used.append((sum(p.memory_info().rss for p in family), sum(p.num_fds() for p in family)))

    world_size = len(affinity) if isinstance(affinity, list) else 1
    runner = Watched(
        algo=DQN(batch_size=16, replay_ratio=2, min_steps_learn=100, replay_size=800, eps_steps=400, prioritized_replay=True),
        agent=MlpDqnAgent(),
        sampler=SamplerCls(
            make, dict(id="CartPole-v1"), batch_T=T, batch_B=B, max_decorrelation_steps=10, eval_n_envs=1, eval_max_steps=100
        ),
        n_steps=N_ITR * T * B * world_size,
        log_interval_steps=INTERVAL * T * B * world_size,
        affinity=affinity,
        seed=1,
        save_replay=True,
    )
    with logger_context(str(tmp_path), 0, "test", snapshot_mode="last"):
        runner.train()
    assert len(used) == N_ITR // INTERVAL + 1
    (bytes_before, fds_before), (bytes_after, fds_after) = (
        [max(column) for column in zip(*used[part])] for part in (slice(7, 14), slice(14, None))
    )
    assert bytes_after <= 1.02 * bytes_before and fds_after <= fds_before
    assert len(list((tmp_path / "run_0" / "replay").iterdir())) <= 5
