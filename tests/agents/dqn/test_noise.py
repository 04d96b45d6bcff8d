"""Agents whose models have noise on their weights: when it is there, and where."""

import copy
import multiprocessing as mp

import numpy as np
import pytest
import torch
from envs import CountingEnv
from ranks import process_group
from tiers import processes, start_methods

from rlpyt.agents.dqn.mlp_catdqn_agent import MlpCatDqnAgent
from rlpyt.agents.dqn.mlp_dqn_agent import MlpDqnAgent
from rlpyt.agents.dqn.mlp_quantile_agents import MlpIqnAgent
from rlpyt.agents.dqn.mlp_r2d1_agent import MlpR2d1Agent
from rlpyt.envs.base import EnvSpaces
from rlpyt.samplers.parallel.cpu.sampler import CpuSampler
from rlpyt.samplers.parallel.gpu.sampler import GpuSampler
from rlpyt.samplers.serial.sampler import SerialSampler
from rlpyt.spaces.float_box import FloatBox
from rlpyt.spaces.int_box import IntBox

SPACES = EnvSpaces(FloatBox(-1, 1, (4,)), IntBox(0, 3))
AGENTS = [MlpDqnAgent, MlpCatDqnAgent, MlpIqnAgent, MlpR2d1Agent]


@pytest.fixture(params=AGENTS)
def agent(request):
    torch.manual_seed(0)
    agent = request.param(model_kwargs=dict(noisy=True, dueling=True), eps_init=0, eps_final=0, eps_eval=0)
    agent.initialize(SPACES)
    return agent


def inputs(*lead):
    return torch.ones(*lead, 4), torch.zeros(lead, dtype=torch.long), torch.zeros(lead)


def q_of_a_step(agent):
    agent.reset()
    return agent.step(*inputs(2)).agent_info.get(0)


def q_of_training(agent, name="__call__"):
    state = (None,) if agent.recurrent else ()
    outputs = getattr(agent, name)(*inputs(2), *state)
    return outputs[0] if agent.recurrent else outputs


def test_noise_is_there_in_sampling_but_not_in_evaluation(agent):
    agent.sample_mode(0)
    assert not torch.equal(q_of_a_step(agent), q_of_a_step(agent))
    agent.eval_mode(1)
    assert torch.equal(q_of_a_step(agent), q_of_a_step(agent))
    agent.sample_mode(1)
    assert not torch.equal(q_of_a_step(agent), q_of_a_step(agent))


def test_in_training_both_networks_have_noise_each_its_own(agent):
    agent.eval_mode(1)
    assert torch.equal(q_of_training(agent), q_of_training(agent, "target"))
    agent.train_mode(1)
    for name in ("__call__", "target"):
        assert not torch.equal(q_of_training(agent, name), q_of_training(agent, name))
    assert not agent.target_model.training


def test_the_state_dict_restores_everything_but_noise(agent):
    other = copy.deepcopy(agent)
    with torch.no_grad():
        for parameter in agent.parameters():
            parameter.add_(0.1)
    agent.update_target()
    other.load_state_dict(agent.state_dict())
    for a in (agent, other):
        a.eval_mode(1)
    assert torch.equal(q_of_a_step(other), q_of_a_step(agent))
    assert torch.equal(q_of_training(other, "target"), q_of_training(agent, "target"))


def test_data_parallel_training_reaches_every_parameter(agent, tmp_path):
    with process_group(tmp_path / "meeting"):
        agent.data_parallel()
        agent.train_mode(0)
        assert not torch.equal(q_of_training(agent), q_of_training(agent))
        q_of_training(agent).square().sum().backward()
        used = [name for name, p in agent.model.named_parameters() if p.grad is None]
        assert not used, used
        agent.eval_mode(1)
        assert torch.equal(q_of_a_step(agent), q_of_a_step(agent))
        agent.model = None


@processes
@pytest.mark.parametrize("SamplerCls", [SerialSampler, CpuSampler, GpuSampler])
def test_samplers_explore_by_noise_and_workers_have_their_own(SamplerCls):
    agent = MlpDqnAgent(model_kwargs=dict(noisy=True), eps_init=0, eps_final=0)
    sampler = SamplerCls(ConstantEnv, dict(), batch_T=6, batch_B=2, max_decorrelation_steps=0)
    affinity = dict(workers_cpus=[0, 1], set_affinity=False)
    sampler.initialize(agent, affinity=affinity, seed=3, bootstrap_value=False, traj_info_kwargs=dict(discount=1.0))
    try:
        samples, _ = sampler.obtain_samples(0)
        q = samples.agent.agent_info.q.clone()  # [T,B,A]; all observations are the same.
    finally:
        sampler.shutdown()
    assert len({tuple(row) for row in q[:, 0].tolist()}) == 6
    assert torch.equal(q[:, 0], q[:, 1]) == (SamplerCls is not CpuSampler)  # One draw for all that act together.


class ConstantEnv(CountingEnv):
    """A CountingEnv that looks the same at every step."""

    def _observation(self):
        return np.ones(4, np.float32)


def _q_of_a_worker(agent, pipe):
    torch.set_num_threads(1)  # As sampler workers do: a forked process has not the threads of its parent.
    torch.manual_seed(1)
    agent.sample_mode(1)
    pipe.send(not torch.equal(q_of_a_step(agent), q_of_a_step(agent)))
    agent.eval_mode(1)
    pipe.send(q_of_a_step(agent).tolist())


@pytest.mark.parametrize("start_method", start_methods("fork", "spawn"))
def test_workers_turn_their_noise_on_and_off_by_themselves(start_method):
    agent = MlpDqnAgent(model_kwargs=dict(noisy=True))
    agent.initialize(SPACES, share_memory=True)
    agent.train_mode(0)
    ctx = mp.get_context(start_method)
    pipe, theirs = ctx.Pipe()
    worker = ctx.Process(target=_q_of_a_worker, args=(agent, theirs), daemon=True)
    worker.start()
    assert pipe.poll(60) and pipe.recv()
    assert pipe.poll(60)
    agent.eval_mode(1)
    torch.testing.assert_close(torch.tensor(pipe.recv()), q_of_a_step(agent))
    worker.join(60)
    assert worker.exitcode == 0
