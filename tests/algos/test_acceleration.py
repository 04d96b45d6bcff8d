"""Faster arithmetic gives the same results, within its tolerance."""

import shutil

import numpy as np
import pytest
import torch
from experience import SPACES, random_samples
from tiers import full, gpu, processes

from rlpyt.agents.dqn.mlp_catdqn_agent import MlpCatDqnAgent
from rlpyt.agents.dqn.mlp_dqn_agent import MlpDqnAgent
from rlpyt.agents.pg.mlp import MlpFfAgent
from rlpyt.agents.qpg.sac_agent import SacAgent
from rlpyt.agents.qpg.td3_agent import Td3Agent
from rlpyt.algos import base
from rlpyt.algos.dqn.cat_dqn import CategoricalDQN
from rlpyt.algos.dqn.dqn import DQN
from rlpyt.algos.pg.a2c import A2C
from rlpyt.algos.pg.ppo import PPO
from rlpyt.algos.qpg.sac import SAC
from rlpyt.algos.qpg.td3 import TD3
from rlpyt.algos.replay import SamplesToBuffer
from rlpyt.envs.base import EnvSpaces
from rlpyt.samplers.collections import BatchSpec
from rlpyt.spaces.float_box import FloatBox

T, B = 8, 6
CONTINUOUS = EnvSpaces(FloatBox(-1, 1, (4,)), FloatBox(-1, 1, (2,)))
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


def continuous_examples():
    observation, action = (space.null_value() for space in CONTINUOUS)
    return dict(observation=observation, action=action, reward=np.float32(0), done=np.bool_(False))


GRAPHED = {
    "dqn": lambda: (DQN(min_steps_learn=T * B, batch_size=16, replay_size=500, prioritized_replay=True), MlpDqnAgent()),
    "catdqn": lambda: (CategoricalDQN(min_steps_learn=T * B, batch_size=16, replay_size=500), MlpCatDqnAgent()),
    "sac": lambda: (SAC(min_steps_learn=T * B, batch_size=16, replay_size=500, replay_ratio=4), SacAgent()),
    "td3": lambda: (TD3(min_steps_learn=T * B, batch_size=16, replay_size=500, replay_ratio=4), Td3Agent()),
}


def _like(example, generator):
    """A random value like an example."""
    if example.dtype.kind == "f":
        return generator.uniform(-1, 1, example.shape).astype(example.dtype)
    return generator.integers(0, 2, example.shape).astype(example.dtype)


def trained_with_graphs(name, cuda_graphs, device=None, n_itr=5):
    """What was logged and the parameters after some iterations of several updates each."""
    algo, agent = GRAPHED[name]()
    spaces, examples = (CONTINUOUS, continuous_examples()) if name in ("sac", "td3") else (SPACES, EXAMPLES)
    algo.accelerate(cuda_graphs=cuda_graphs)
    torch.manual_seed(0)
    np.random.seed(0)
    agent.initialize(spaces)
    agent.to_device(device)
    algo.initialize(agent, 10, BatchSpec(T, B), mid_batch_reset=True, examples=examples)
    agent.train_mode(0)
    logged = []
    for itr in range(n_itr):
        generator = np.random.default_rng(itr)
        batch = {name: np.stack([np.stack([_like(x, generator) for _ in range(B)]) for _ in range(T)]) for name, x in examples.items()}
        algo.replay_buffer.append_samples(SamplesToBuffer(**batch, timeout=np.zeros((T, B), bool)))
        logged.append([torch.tensor(field) for field in algo.optimize_agent(itr)])
    return logged, [p.detach().cpu().flatten() for model in agent.named_models().values() for p in model.parameters()]


@gpu
@pytest.mark.parametrize("name", GRAPHED)
def test_training_with_cuda_graphs_is_training_without(name):
    (logged, parameters), (graphed_logged, graphed_parameters) = (trained_with_graphs(name, graphs, 0) for graphs in (False, True))
    torch.testing.assert_close(graphed_logged, logged, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(graphed_parameters, parameters, rtol=1e-3, atol=1e-4)


def test_cuda_graphs_are_refused_or_left_out_where_there_are_none(capsys):
    with pytest.raises(ValueError, match="RlAlgorithm does not train with CUDA graphs"):
        base.RlAlgorithm().accelerate(cuda_graphs=True)
    with pytest.raises(ValueError, match="PPO: bf16='false' is not possible; it must be True or False"):
        PPO().accelerate(bf16="false")
    if not torch.cuda.is_available():
        trained_with_graphs("dqn", True, n_itr=1)
        assert "The device (cpu) has no CUDA graphs: training without." in capsys.readouterr().out


def test_a_device_without_the_instructions_trains_in_float32(monkeypatch):
    monkeypatch.setattr(base, "has_bf16", lambda device: False)
    algo = A2C().accelerate(bf16=True)
    trained(algo, MlpFfAgent(), n_itr=1)
    assert not algo.bf16


@processes
@full
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler.")
@pytest.mark.timeout(300)
def test_compiled_models_train_like_others():
    losses, parameters = trained(A2C(), MlpFfAgent(), n_itr=2)
    algo = A2C().accelerate(compile_models=True)
    compiled_losses, compiled_parameters = trained(algo, MlpFfAgent(), n_itr=2)
    torch.testing.assert_close(compiled_losses, losses, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(compiled_parameters, parameters, rtol=1e-4, atol=1e-5)
    assert algo.agent.model._compiled_call_impl is not None
