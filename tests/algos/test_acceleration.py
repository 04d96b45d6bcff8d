"""Faster arithmetic gives the same results, within its tolerance."""

import shutil

import numpy as np
import pytest
import torch
from experience import SPACES, random_samples

from rlpyt.agents.dqn.mlp_dqn_agent import MlpDqnAgent
from rlpyt.agents.pg.mlp import MlpFfAgent
from rlpyt.algos import base
from rlpyt.algos.dqn.dqn import DQN
from rlpyt.algos.pg.a2c import A2C
from rlpyt.algos.pg.ppo import PPO
from rlpyt.samplers.collections import BatchSpec

T, B = 8, 6
EXAMPLES = dict(observation=np.zeros(4, np.float32), action=np.int64(0), reward=np.float32(0), done=np.bool_(False))
needs_bf16 = pytest.mark.skipif(not base.has_bf16(torch.device("cpu")), reason="This processor has no instructions for bfloat16.")


def trained(algo, agent, n_itr=3):
    """Losses of a few iterations, and the parameters after them."""
    torch.manual_seed(0)
    np.random.seed(0)
    agent.initialize(SPACES)
    algo.initialize(agent, 10, BatchSpec(T, B), mid_batch_reset=True, examples=EXAMPLES)
    agent.train_mode(0)
    losses = []
    for itr in range(n_itr):
        samples = random_samples(agent, T, B, seed=itr)
        losses += list(np.atleast_1d(algo.optimize_agent(itr, samples).loss))
    return torch.tensor(losses), torch.cat([p.detach().flatten() for p in agent.parameters()])


def dqn():
    return DQN(min_steps_learn=T * B, batch_size=16, replay_size=500, prioritized_replay=True)


@needs_bf16
@pytest.mark.parametrize("make_algo,AgentCls", [(A2C, MlpFfAgent), (PPO, MlpFfAgent), (dqn, MlpDqnAgent)])
def test_training_in_bf16_is_training_in_float32_within_its_tolerance(make_algo, AgentCls):
    results = {}
    for bf16 in (False, True):
        with pytest.MonkeyPatch.context() as patch:
            outputs = []
            forward = base.RlAlgorithm.autocast
            patch.setattr(base.RlAlgorithm, "autocast", lambda self: outputs.append(self.bf16) or forward(self))  # noqa: B023
            results[bf16] = trained(make_algo().accelerate(bf16=bf16), AgentCls())
            assert set(outputs) == {bf16}
    (losses, parameters), (bf16_losses, bf16_parameters) = results[False], results[True]
    assert not torch.equal(parameters, bf16_parameters)
    assert parameters.dtype == bf16_parameters.dtype == torch.float32
    torch.testing.assert_close(bf16_losses, losses, rtol=0.05, atol=0.02)
    torch.testing.assert_close(bf16_parameters, parameters, rtol=0.02, atol=0.01)


@needs_bf16
def test_outputs_of_models_stay_in_float32():
    agent = MlpFfAgent()
    agent.initialize(SPACES)
    agent.train_mode(0)
    observation = torch.randn(5, 4)
    with torch.autocast("cpu", torch.bfloat16):
        dist_info, value = agent(observation, torch.zeros(5, dtype=torch.long), torch.zeros(5))
        hidden = agent.model.value.model[0](observation) if hasattr(agent.model.value, "model") else None
    assert dist_info.prob.dtype == value.dtype == torch.float32
    assert dist_info.prob.sum(-1).detach().numpy() == pytest.approx(1, abs=1e-6)
    assert hidden is None or hidden.dtype == torch.bfloat16


def test_a_device_without_the_instructions_trains_in_float32(monkeypatch):
    monkeypatch.setattr(base, "has_bf16", lambda device: False)
    algo = A2C().accelerate(bf16=True)
    trained(algo, MlpFfAgent(), n_itr=1)
    assert not algo.bf16


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler.")
@pytest.mark.timeout(300)
def test_compiled_models_train_like_others():
    losses, parameters = trained(A2C(), MlpFfAgent(), n_itr=2)
    algo = A2C().accelerate(compile_models=True)
    compiled_losses, compiled_parameters = trained(algo, MlpFfAgent(), n_itr=2)
    torch.testing.assert_close(compiled_losses, losses, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(compiled_parameters, parameters, rtol=1e-4, atol=1e-5)
    assert algo.agent.model._compiled_call_impl is not None
