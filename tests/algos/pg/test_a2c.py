import copy

import numpy as np
import pytest
import torch
from experience import SPACES, GruAgent, PickTheLargest, random_samples, start
from tiers import full, learning

from rlpyt.agents.pg.mlp import MlpFfAgent
from rlpyt.algos.pg.a2c import A2C
from rlpyt.algos.pg.base import OptInfo
from rlpyt.samplers.collections import BatchSpec

T, B = 8, 5


def reference_loss(prob, value, action, advantage, return_, valid, value_coeff, entropy_coeff):
    """The formula, one step at a time."""
    total, entropy, n = 0.0, 0.0, 0.0
    for t in range(T):
        for b in range(B):
            if valid is not None and not valid[t, b]:
                continue
            h = -sum(p * torch.log(p) for p in prob[t, b])
            total += -torch.log(prob[t, b, action[t, b]]) * advantage[t, b]
            total += value_coeff * 0.5 * (value[t, b] - return_[t, b]) ** 2 - entropy_coeff * h
            entropy, n = entropy + h, n + 1
    return total / n, entropy / n


@pytest.mark.parametrize("mid_batch_reset", [True, False])
def test_the_loss_is_the_formula(mid_batch_reset):
    agent = MlpFfAgent()
    algo = start(A2C(gae_lambda=0.9), agent, T, B, mid_batch_reset=mid_batch_reset)
    samples = random_samples(agent, T, B)
    loss, entropy, perplexity = algo.loss(samples)
    return_, advantage, valid = algo.process_returns(samples)
    prob, value = agent.model(samples.env.observation, None, None)
    expected, expected_entropy = reference_loss(prob, value, samples.agent.action, advantage, return_, valid, 0.5, 0.01)
    assert loss.item() == pytest.approx(expected.item(), abs=1e-6)  # Logs of probabilities + 1e-8.
    assert entropy.item() == pytest.approx(expected_entropy.item(), abs=1e-6)  # Logs of probabilities + 1e-8.
    assert perplexity.item() >= np.exp(entropy.item())  # Jensen: a mean of exponentials.


def test_one_iteration_is_one_step_along_the_clipped_gradient():
    agent = MlpFfAgent()
    algo = start(A2C(OptimCls=torch.optim.SGD, learning_rate=0.5, clip_grad_norm=0.01), agent, T, B)
    samples = random_samples(agent, T, B)
    before = copy.deepcopy(agent.model)
    grads = torch.autograd.grad(algo.loss(samples)[0], list(agent.parameters()))
    norm = torch.sqrt(sum((g**2).sum() for g in grads))
    opt_info = algo.optimize_agent(0, samples)
    for new, old, grad in zip(agent.parameters(), before.parameters(), grads):
        torch.testing.assert_close(new, old - 0.5 * grad * 0.01 / norm, rtol=1e-4, atol=1e-12)
    assert isinstance(opt_info, OptInfo) and opt_info._fields == algo.opt_info_fields
    assert opt_info.gradNorm == pytest.approx(norm.item()) and all(isinstance(number, float) for number in opt_info)
    assert algo.update_counter == 1


def test_a_recurrent_agent_starts_from_the_recorded_state():
    agent = GruAgent()
    algo = start(A2C(), agent, T, B)
    state = torch.rand(B, 1, 5).double()
    info = agent.info(torch.rand(T, B, 4).double(), state)
    samples = random_samples(agent, T, B, agent_info=info)
    loss = algo.loss(samples)[0]
    return_, advantage, valid = algo.process_returns(samples)
    prob, value, _ = agent.model(samples.env.observation, state.transpose(0, 1).contiguous())
    expected, _ = reference_loss(prob, value, samples.agent.action, advantage, return_, valid, 0.5, 0.01)
    assert loss.item() == pytest.approx(expected.item(), abs=1e-6)  # Logs of probabilities + 1e-8.
    algo.optimize_agent(0, samples)


def test_observation_statistics_are_updated_after_the_gradient_step():
    agent = MlpFfAgent()
    algo = start(A2C(), agent, T, B)
    samples, calls = random_samples(agent, T, B), []
    before = copy.deepcopy(list(agent.parameters()))

    def update_obs_rms(observation):
        calls.append(observation)
        assert any(not torch.equal(p, q) for p, q in zip(before, agent.parameters()))

    agent.update_obs_rms = update_obs_rms
    algo.optimize_agent(0, samples)
    assert calls == [samples.env.observation]


def test_an_initial_optimizer_state_is_loaded():
    agent = MlpFfAgent()
    algo = start(A2C(), agent, T, B)
    algo.optimize_agent(0, random_samples(agent, T, B))
    state = copy.deepcopy(algo.optim_state_dict())
    other = start(A2C(initial_optim_state_dict=state), MlpFfAgent(), T, B)
    assert other.optim_state_dict()["state"][0]["step"] == 1
    torch.testing.assert_close(other.optim_state_dict()["state"], state["state"])


@learning
@full
def test_it_learns_a_game():
    torch.manual_seed(1)
    agent, game = MlpFfAgent(), PickTheLargest(B=16, seed=1)
    agent.initialize(SPACES)
    algo = A2C(discount=0.5, learning_rate=0.01)
    algo.initialize(agent, 150, BatchSpec(8, 16), mid_batch_reset=True)
    rewards = []
    for itr in range(150):
        samples = game.sample(agent, itr, T=8, bootstrap_value=True)
        rewards.append(samples.env.reward.mean().item())
        agent.train_mode(itr)
        algo.optimize_agent(itr, samples)
    assert rewards[0] < 0.5
    assert np.mean(rewards[-20:]) > 0.8


def test_two_schedules_of_the_learning_rate_are_refused():
    with pytest.raises(ValueError, match="are two schedules of the learning rate: leave linear_lr_schedule out"):
        A2C(linear_lr_schedule=True, lr_schedule="constant")
    A2C(lr_schedule="linear"), A2C(linear_lr_schedule=True)
