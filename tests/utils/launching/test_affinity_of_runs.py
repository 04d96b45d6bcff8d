"""Affinities from codes, made by hand, and automatic ones, in runners and samplers."""

import multiprocessing
import os

import pytest
import torch
from tiers import processes

from rlpyt.agents.dqn.mlp_dqn_agent import MlpDqnAgent
from rlpyt.agents.pg.mlp import MlpFfAgent
from rlpyt.algos.dqn.dqn import DQN
from rlpyt.algos.pg.a2c import A2C
from rlpyt.envs.gym import make
from rlpyt.runners.async_rl import AsyncRl
from rlpyt.runners.minibatch_rl import MinibatchRl
from rlpyt.runners.sync_rl import SyncRl
from rlpyt.samplers.async_.cpu_sampler import AsyncCpuSampler
from rlpyt.samplers.parallel.cpu.sampler import CpuSampler
from rlpyt.samplers.parallel.gpu.alternating_sampler import AlternatingSampler
from rlpyt.samplers.serial.sampler import SerialSampler
from rlpyt.utils import accelerator
from rlpyt.utils.launching import affinity as affinity_module
from rlpyt.utils.launching.affinity import make_affinity
from rlpyt.utils.launching.machine import Core, Machine
from rlpyt.utils.logging.context import logger_context

pytestmark = pytest.mark.timeout(120)
EIGHT = Machine(tuple(Core((i, i + 8)) for i in range(8)), (0, 0))


def a_sampler(SamplerCls, batch_B=4):
    return SamplerCls(make, dict(id="CartPole-v1"), batch_T=4, batch_B=batch_B)


def a_runner(affinity, RunnerCls=MinibatchRl, SamplerCls=SerialSampler, batch_B=4):
    learns_from_replay = RunnerCls is AsyncRl
    return RunnerCls(
        algo=DQN() if learns_from_replay else A2C(),
        agent=MlpDqnAgent() if learns_from_replay else MlpFfAgent(),
        sampler=a_sampler(SamplerCls, batch_B),
        n_steps=64,
        seed=3,
        affinity=affinity,
        log_interval_steps=32,
    )


@pytest.fixture
def on_eight_cores(monkeypatch):
    monkeypatch.setattr(affinity_module, "read_machine", lambda **kwargs: EIGHT)
    monkeypatch.setattr(accelerator, "count", lambda: EIGHT.n_gpu)


@pytest.mark.parametrize(
    "SamplerCls, batch_B, n", [(CpuSampler, 20, 8), (CpuSampler, 3, 3), (AlternatingSampler, 6, 3), (SerialSampler, 1, 1)]
)
def test_auto_has_a_worker_per_core_but_no_more_than_environments(SamplerCls, batch_B, n, on_eight_cores):
    affinity = a_runner("auto", SamplerCls=SamplerCls, batch_B=batch_B).affinity
    assert len(affinity["workers_cpus"]) == n and affinity["cuda_idx"] == 0 and affinity["set_affinity"] is False


def test_auto_starts_one_rank_per_gpu(on_eight_cores, monkeypatch):
    runner = a_runner("auto", SyncRl)
    assert [each["cuda_idx"] for each in runner.affinities] == [0, 1] and runner.world_size == 2
    for name, value in dict(RANK="3", WORLD_SIZE="4", LOCAL_RANK="1", LOCAL_WORLD_SIZE="2").items():
        monkeypatch.setenv(name, value)
    runner = a_runner("auto", SyncRl)
    assert runner.affinity["cuda_idx"] == 1 and (runner.rank, runner.world_size) == (3, 4)


def test_auto_lets_another_gpu_sample(on_eight_cores):
    runner = a_runner("auto", AsyncRl, AsyncCpuSampler)
    assert [each["cuda_idx"] for each in runner.optimizer_affinities] == [0]
    assert [(each["cuda_idx"], len(each["workers_cpus"])) for each in runner.sampler_affinities] == [(1, 4)]


@pytest.mark.parametrize("RunnerCls, SamplerCls", [(MinibatchRl, SerialSampler), (SyncRl, SerialSampler), (AsyncRl, AsyncCpuSampler)])
def test_another_text_is_refused_in_a_sentence(RunnerCls, SamplerCls):
    with pytest.raises(ValueError, match='must be "auto" or a dictionary; affinity_from_code'):
        a_runner("0slt_4cpu", RunnerCls, SamplerCls)


@processes
@pytest.mark.parametrize("RunnerCls, SamplerCls", [(MinibatchRl, CpuSampler), (SyncRl, CpuSampler), (AsyncRl, AsyncCpuSampler)])
def test_auto_trains_on_this_machine(RunnerCls, SamplerCls, tmp_path):
    (torch.ones(512, 512) @ torch.ones(512, 512)).exp().sum()  # On several threads, after which forked processes must use one only.
    runner = a_runner("auto", RunnerCls, SamplerCls)
    with logger_context(str(tmp_path), 0, "test"):
        runner.train()
    assert (tmp_path / "run_0" / "progress.csv").read_text().count("\n") > 1
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize("affinity", [dict(cuda_idx=None, workers_cpus=[0, 1, 2], set_affinity=False), dict(workers_cpus=[[0], [0]]), {}])
def test_plain_dictionaries_are_left_as_they_are(affinity):
    assert a_runner(affinity).affinity is affinity


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system does not bind processes")
@pytest.mark.parametrize("set_affinity", [True, False])
def test_workers_run_where_the_code_says(set_affinity):
    n = len(os.sched_getaffinity(0))
    affinity = make_affinity(n_cpu_core=1, set_affinity=set_affinity)
    sampler = a_sampler(CpuSampler)
    try:
        sampler.initialize(MlpFfAgent(), affinity=affinity, seed=1)
        bound = [os.sched_getaffinity(process.pid) for process in multiprocessing.active_children()]
    finally:
        sampler.shutdown()
    assert bound == ([set(affinity.workers_cpus[0])] if set_affinity else [os.sched_getaffinity(0)])
    assert len(os.sched_getaffinity(0)) == n and multiprocessing.active_children() == []
