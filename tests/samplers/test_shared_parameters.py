"""Parameters that workers act with, and shared memory: nothing is in /dev/shm, of which a container has little."""

import copy

import numpy as np
import pytest
import torch
from agents_for_tests import RnnAgent
from collecting import ANY_KIND, ASYNC_KINDS, make_sampler
from mapped import torch_files, unnamed_memory
from tiers import full, thinned

from rlpyt.agents.dqn.mlp_dqn_agent import MlpDqnAgent
from rlpyt.agents.pg.mlp import MlpFfAgent
from rlpyt.models import linear
from rlpyt.samplers.workers import WorkerPool
from rlpyt.utils.accelerator import has_bf16

pytestmark = [pytest.mark.processes, pytest.mark.timeout(120)]


@pytest.mark.parametrize(
    "kind, AgentCls",
    thinned(
        [("CPU, 2 workers", RnnAgent), ("CPU, spawn", MlpDqnAgent), ("async CPU", MlpDqnAgent), ("async CPU, spawn", RnnAgent)],
        quick=[("CPU, 2 workers", RnnAgent), ("async CPU", MlpDqnAgent)],
    ),
)
def test_parameters_of_agents_in_workers_are_in_memory_without_a_name(kind, AgentCls):
    known, agent, sampler = torch_files(), AgentCls(), make_sampler(kind, T=2, B=2, eval_n_envs=0, eval_max_steps=0)
    try:
        if kind in ASYNC_KINDS:
            sampler.async_initialize(agent, seed=0)
            sampler.agent = copy.copy(agent)  # As in a process of its own.
            sampler.initialize(ANY_KIND[kind].affinity)
            sampler.obtain_samples(0, 0)
        else:
            sampler.initialize(agent, ANY_KIND[kind].affinity, seed=0)
            sampler.obtain_samples(0)
        assert all(parameter.is_shared() for parameter in sampler.agent.model.parameters())
        for pid in ("self", *(process.pid for process in sampler._pool.processes)):
            assert not torch_files(pid) - known and unnamed_memory(pid) > 0
    finally:
        sampler.shutdown()


def _write_reward(pipe, sampler, known):
    sampler.samples_np.env.reward[0] = 5
    pipe.send(("ok", (sampler.samples_pyt.env.reward[0].tolist(), torch_files() - known)))
    pipe.recv()
    pipe.send(("ok", None))


@full
def test_the_batches_of_a_sampler_that_is_spawned_are_those_of_the_process_that_trains():
    known, sampler = torch_files(), make_sampler("async GPU, forkserver", T=2, B=2, eval_n_envs=0, eval_max_steps=0)
    (batch, _), _ = sampler.async_initialize(MlpDqnAgent(), seed=0)
    pool = WorkerPool(_write_reward, [dict(sampler=sampler, known=known)], ["the sampling process"], start_method="spawn")
    try:
        ((seen, files),) = pool.receive()
        assert seen == [5, 5] and not files
        assert batch.env.reward[0].tolist() == [5, 5] and np.all(sampler.samples_np.env.reward[0] == 5)
        assert not torch_files() - known
    finally:
        pool.stop()


class OwnModesAgent(MlpFfAgent):
    """Does not tell the base class of sampling."""

    def sample_mode(self, itr):
        self.model.eval()
        self._mode = "sample"


bf16 = pytest.mark.skipif(not (linear.packs() and has_bf16(torch.device("cpu"))), reason="no bfloat16 here")


@bf16
@pytest.mark.parametrize("AgentCls", [MlpFfAgent, OwnModesAgent])
def test_an_evaluation_in_bfloat16_leaves_nothing_to_a_short_batch_with_new_parameters(AgentCls, monkeypatch):
    monkeypatch.setattr(linear, "MIN_SIZE", 0)
    agent, sampler = AgentCls(acting_bf16=True), make_sampler("CPU, 2 workers", T=linear.MIN_CALLS - 1, B=4, eval_n_envs=4)
    try:
        sampler.initialize(agent, ANY_KIND["CPU, 2 workers"].affinity, seed=0)
        sampler.obtain_samples(0)
        sampler.evaluate_agent(1)
        with torch.no_grad():
            for parameter in agent.parameters():
                parameter.mul_(-1.5)
        samples, _ = sampler.obtain_samples(1)
        value = agent(samples.env.observation, samples.agent.prev_action, samples.env.prev_reward)[1]
        torch.testing.assert_close(samples.agent.agent_info.value, value, rtol=1e-5, atol=1e-5)
    finally:
        sampler.shutdown()


@bf16
@pytest.mark.parametrize("kind", ["serial", "CPU, 2 workers", "GPU, 2 workers", "alternating, 2 workers"])
def test_agents_that_act_in_bfloat16_follow_the_parameters_from_batch_to_batch(kind, monkeypatch):
    monkeypatch.setattr(linear, "MIN_SIZE", 0)  # Pack small layers, too.
    agent, sampler = MlpFfAgent(acting_bf16=True), make_sampler(kind, T=8, B=4, eval_n_envs=0, eval_max_steps=0)
    try:
        sampler.initialize(agent, ANY_KIND[kind].affinity, seed=0)
        for itr in range(3):
            agent.sample_mode(itr)
            samples, _ = sampler.obtain_samples(itr)
            agent.train_mode(itr)
            value, recorded = (
                agent(samples.env.observation, samples.agent.prev_action, samples.env.prev_reward)[1],
                samples.agent.agent_info.value,
            )
            torch.testing.assert_close(recorded, value, rtol=0.02, atol=0.02)
            assert not torch.equal(recorded, value)
            with torch.no_grad():
                for parameter in agent.parameters():
                    parameter.mul_(-1.5)
    finally:
        sampler.shutdown()
