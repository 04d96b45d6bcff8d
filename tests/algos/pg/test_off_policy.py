"""Impala and Appo: A2C and PPO where the current policy acted, and V-trace where an older one did."""

import copy

import numpy as np
import pytest
import torch
from experience import GruAgent, random_samples, start
from lag import learn
from tiers import full, learning

from rlpyt.agents.pg.mlp import MlpFfAgent
from rlpyt.algos.pg.a2c import A2C
from rlpyt.algos.pg.appo import Appo
from rlpyt.algos.pg.impala import Impala
from rlpyt.algos.pg.ppo import PPO
from rlpyt.envs.gym import make
from rlpyt.returns import v_trace, valid_from_done
from rlpyt.runners.minibatch_rl import MinibatchRl
from rlpyt.samplers.serial.sampler import SerialSampler

T, B = 8, 6
AGENTS = [MlpFfAgent, GruAgent]
PAIRS = [(A2C, Impala), (PPO, Appo)]


def batch_of(agent, seed=0):
    """A batch that the agent sampled, and the state with which it began."""
    state = torch.rand(B, 1, 5, generator=torch.Generator().manual_seed(seed)).double()
    if not agent.recurrent:
        return random_samples(agent, T, B, seed), state
    observation = random_samples(agent, T, B, seed, agent_info=()).env.observation
    return random_samples(agent, T, B, seed, agent_info=agent.info(observation, state)), state


def move(agent):
    """Let the policy differ from the one that acted."""
    torch.manual_seed(1)
    for p in agent.parameters():
        p.data += 0.3 * torch.randn_like(p)


def current(agent, samples, state):
    """Probabilities and values of the current parameters [T,B]."""
    inputs = (state.transpose(0, 1).contiguous(),) if agent.recurrent else (None, None)
    return [x.detach() for x in agent.model(samples.env.observation, *inputs)[:2]]


def expected_targets(agent, samples, state, gae_lambda, mid_batch_reset, discount=0.99, rho_clip=1.0, c_clip=1.0, weighted=True):
    """Advantages, targets, mask, and ratios, with the formula of ratios written out."""
    prob, _ = current(agent, samples, state)
    old_prob, action = samples.agent.agent_info.dist_info.prob, samples.agent.action
    ratio = torch.tensor([[prob[t, b, action[t, b]] / old_prob[t, b, action[t, b]] for b in range(B)] for t in range(T)])
    env = samples.env
    advantage, return_ = v_trace(
        env.reward, samples.agent.agent_info.value, env.done, samples.agent.bootstrap_value, ratio, discount, gae_lambda, rho_clip, c_clip,
        env.timeout, samples.agent.timeout_value, weight_advantages=weighted,
    )  # fmt: skip
    valid = valid_from_done(env.done).double() if agent.recurrent or not mid_batch_reset else torch.ones(T, B).double()
    return advantage, return_, valid, ratio


@pytest.mark.parametrize("gae_lambda", [1, 0.9])
@pytest.mark.parametrize("AgentCls", AGENTS)
@pytest.mark.parametrize("On, Off", PAIRS)
def test_where_the_current_policy_acted_they_are_a2c_and_ppo_bit_for_bit(On, Off, AgentCls, gae_lambda):
    parameters = []
    for AlgoCls in (On, Off):
        agent = AgentCls()
        algo = start(AlgoCls(gae_lambda=gae_lambda, normalize_advantage=True), agent, T, B)
        for itr in range(3):
            torch.manual_seed(itr)
            algo.optimize_agent(itr, batch_of(agent, itr)[0])
        parameters.append(list(agent.parameters()))
    assert all(torch.equal(p, q) for p, q in zip(*parameters))


@pytest.mark.parametrize("mid_batch_reset", [True, False])
@pytest.mark.parametrize("AgentCls", AGENTS)
def test_the_loss_of_impala_is_that_of_a2c_with_targets_of_v_trace(AgentCls, mid_batch_reset):
    agent = AgentCls()
    algo = start(Impala(gae_lambda=0.9, rho_clip=1.2, c_clip=0.8), agent, T, B, mid_batch_reset=mid_batch_reset)
    samples, state = batch_of(agent)
    move(agent)
    advantage, return_, valid, ratio = expected_targets(agent, samples, state, 0.9, mid_batch_reset, rho_clip=1.2, c_clip=0.8)
    assert (ratio > 1.2).any() and (ratio < 0.8).any()
    prob, value = current(agent, samples, state)
    n, policy, values, entropy = 0, 0.0, 0.0, 0.0
    for t, b in valid.nonzero().tolist():
        policy -= torch.log(prob[t, b, samples.agent.action[t, b]]) * advantage[t, b]
        values += (value[t, b] - return_[t, b]) ** 2 / 2
        entropy -= (prob[t, b] * torch.log(prob[t, b])).sum()
        n += 1
    algo.policy_lag = 1
    opt_info = algo.optimize_agent(0, samples)
    assert opt_info.piLoss == pytest.approx(float(policy / n), abs=1e-6) and opt_info.valueLoss == pytest.approx(float(values / n))
    assert opt_info.loss == pytest.approx(float((policy + 0.5 * values - 0.01 * entropy) / n), abs=1e-6)
    chosen = valid.bool()
    recorded = samples.agent.agent_info.value
    explained = 1 - np.var((return_ - recorded)[chosen].numpy()) / np.var(return_[chosen].numpy())
    assert opt_info.explainedVariance == pytest.approx(explained)


def test_the_gradient_of_impala_does_not_flow_through_its_targets():
    agent = MlpFfAgent()
    algo = start(Impala(entropy_loss_coeff=0.0), agent, T, B)
    samples, state = batch_of(agent)
    move(agent)
    advantage, return_, *_ = expected_targets(agent, samples, state, 1.0, True)
    prob, value = agent.model(samples.env.observation, None, None)
    log_pi = torch.log(prob.gather(-1, samples.agent.action[..., None])[..., 0] + 1e-8)
    expected = torch.autograd.grad(-(log_pi * advantage).mean() + 0.25 * (value - return_).square().mean(), list(agent.parameters()))
    algo.policy_lag = 3
    found = torch.autograd.grad(algo.loss(samples)[0], list(agent.parameters()))
    for a, b in zip(found, expected):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("mid_batch_reset", [True, False])
@pytest.mark.parametrize("AgentCls", AGENTS)
def test_appo_clips_around_the_policy_that_acted(AgentCls, mid_batch_reset):
    agent = AgentCls()
    algo = start(Appo(gae_lambda=0.9, epochs=2, minibatches=1, ratio_clip=0.05), agent, T, B, mid_batch_reset=mid_batch_reset)
    samples, state = batch_of(agent)
    move(agent)
    advantage, return_, valid, ratio = expected_targets(agent, samples, state, 0.9, mid_batch_reset, weighted=False)
    calls, loss = [], algo.loss

    def recording_loss(*args):
        calls.append(args)
        return loss(*args)

    algo.loss = recording_loss
    algo.policy_lag = 2
    opt_info = algo.optimize_agent(0, samples)
    ratio = ratio[valid.bool()]
    assert opt_info.approxKl[0] == pytest.approx(float((ratio - 1 - ratio.log()).mean()), rel=1e-3) and len(calls) == 2
    assert opt_info.clipFrac[0] == pytest.approx(float(((ratio - 1).abs() > 0.05).float().mean())) and opt_info.clipFrac[0] > 0
    acted = samples.agent.agent_info.dist_info.prob
    _, action, its_return, its_advantage, its_valid, old_dist_info, *_ = calls[0]
    for found, wanted in ((its_return, return_), (its_advantage, advantage), (old_dist_info.prob[..., 0], acted[..., 0])):
        found = found if its_valid is None else found[its_valid.bool()]
        found, wanted = found.flatten().double().sort().values, wanted[valid.bool()].double().sort().values
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)


def test_appo_without_lag_needs_no_further_forward_pass():
    calls = []
    for lag in (0, 1):
        agent = MlpFfAgent()
        algo = start(Appo(epochs=2, minibatches=2), agent, T, B)
        samples, _ = batch_of(agent)
        forward, count = agent.model.forward, []
        agent.model.forward = lambda *args, f=forward, c=count: (c.append(1), f(*args))[1]
        algo.policy_lag = lag
        algo.optimize_agent(0, samples)
        calls.append(len(count))
    assert calls == [4, 5]


@pytest.mark.parametrize("AlgoCls", [Impala, Appo])
def test_what_waits_for_a_reset_counts_for_nothing_whatever_its_ratio(AlgoCls):
    """Rows behind the end of an episode hold zeros in place of probabilities."""
    found = []
    for garbage in (0.0, 1e-30):
        agent = MlpFfAgent()
        algo = start(AlgoCls(), agent, T, B, mid_batch_reset=False)
        samples, _ = batch_of(agent)
        samples = copy.deepcopy(samples)
        samples.env.done[3:] = True
        samples.agent.agent_info.dist_info.prob[4:] = garbage
        move(agent)
        algo.policy_lag = 1
        torch.manual_seed(0)
        found.append(algo.optimize_agent(0, samples))
    assert found[0] == found[1] and np.isfinite(found[0].loss).all()


def test_a_sampler_that_samples_ahead_tells_how_old_the_policy_is():
    class Ahead(SerialSampler):
        policy_lag = 2

    lags = []
    for SamplerCls in (SerialSampler, Ahead):
        algo = Impala()
        optimize = algo.optimize_agent
        algo.optimize_agent = lambda *args, algo=algo, f=optimize: (lags.append(algo.policy_lag), f(*args))[1]
        sampler = SamplerCls(make, dict(id="CartPole-v1"), batch_T=4, batch_B=2)
        MinibatchRl(algo=algo, agent=MlpFfAgent(), sampler=sampler, n_steps=16, log_interval_steps=8, seed=0).train()
    assert lags == [0, 0, 2, 2]


@learning
@full
def test_impala_learns_from_old_policies_where_a2c_does_not():
    """The best policy is random; one that takes no notice of the lag goes too far, and then never arrives (`tests/lag.py`)."""
    found = {algo: learn("corridor", algo, lag=4, seed=0, learning_rate=0.003) for algo in ("A2C", "Impala")}
    assert found["A2C"] < -50 and found["Impala"] > -20


@learning
@full
def test_appo_learns_from_old_policies():
    """With clips around the policy with which the epochs begin, old batches push on too far together, and this seed stays at 9."""
    assert learn("cartpole", "Appo", lag=4, seed=1) > 250


@pytest.mark.parametrize("AlgoCls", [Impala, Appo])
@pytest.mark.parametrize("name", ["rho_clip", "c_clip"])
def test_a_ratio_of_nothing_is_refused(AlgoCls, name):
    with pytest.raises(ValueError, match=f"{AlgoCls.__name__}: {name}=0 is not possible"):
        AlgoCls(**{name: 0})
