import math

import pytest
import torch
from algos.qpg.test_qpg_algos import EXAMPLES, SPACES, A, check, mean, mlp, q_of, replayed, rows, v_of
from experience import in_float64

from rlpyt.agents.qpg.iql_agent import IqlAgent
from rlpyt.agents.qpg.sac_agent import SacAgent
from rlpyt.algos.offline.iql import IQL
from rlpyt.algos.qpg.sac import SAC
from rlpyt.envs.base import EnvSpaces
from rlpyt.models.qpg.mlp import BoundedPiMlpModel, PiMlpModel
from rlpyt.samplers.collections import BatchSpec
from rlpyt.spaces.float_box import FloatBox

SIZES = dict(hidden_sizes=[6, 5])


def make(spaces=SPACES, **settings):
    torch.manual_seed(0)
    agent = IqlAgent(model_kwargs=SIZES, q_model_kwargs=SIZES, v_model_kwargs=SIZES)
    agent.initialize(spaces)
    in_float64(agent)
    algo = IQL(replay_size=200, min_steps_learn=16, batch_size=8, replay_ratio=8, **settings)
    algo.initialize(agent, 10, BatchSpec(4, 2), True, EXAMPLES)
    agent.train_mode(0)
    with torch.no_grad():
        for target in agent.target_names.values():
            for parameter in getattr(agent, target).parameters():
                parameter.add_(0.3 * torch.randn_like(parameter))
    return algo, agent


def output_of_v(agent):
    return [m for m in agent.v_model.mlp.model if isinstance(m, torch.nn.Linear)][-1]


@pytest.mark.parametrize("TL", [False, True], ids=["all valid", "unknown final observations"])
@pytest.mark.parametrize("expectile, temperature, max_weight", [(0.7, 3.0, 5.0), (0.9, 1.0, 2.0), (0.5, 0.0, 100.0)])
def test_losses_and_their_gradients_are_the_formulas(expectile, temperature, max_weight, TL):
    algo, agent = make(expectile=expectile, temperature=temperature, max_weight=max_weight)
    output_of_v(agent).bias.data -= 1.5  # So that advantages have both signs.
    samples = replayed(TL=TL)
    valid = ~(samples.timeout_n & samples.done_n) if TL else torch.ones(12, dtype=torch.bool)
    assert 4 < valid.sum() < 12 or not TL
    q_terms, v_terms, pi_terms, advantages = [], [], [], []
    for is_valid, (o, a, r, factor, o2) in zip(valid, rows(samples)):
        if not is_valid:
            continue
        with torch.no_grad():
            target_q = min(q_of(agent.target_q1_model, o, a), q_of(agent.target_q2_model, o, a))
            y = r + factor * v_of(agent.v_model, o2)
        q_terms.append(0.5 * (y - q_of(agent.q1_model, o, a)) ** 2 + 0.5 * (y - q_of(agent.q2_model, o, a)) ** 2)
        advantage = target_q - v_of(agent.v_model, o)
        advantages.append(advantage.item())
        v_terms.append(abs(expectile - float(advantage < 0)) * 0.5 * advantage**2)
        out = mlp(agent.model, o)
        mean_, log_std = torch.tanh(out[:A]), out[A:].clamp(-5, 2)
        log_pi = sum(-0.5 * ((x - m) / s.exp()) ** 2 - s - 0.5 * math.log(2 * math.pi) for x, m, s in zip(a, mean_, log_std))
        pi_terms.append(-min(math.exp(temperature * advantage.item()), max_weight) * log_pi)
    assert min(advantages) < 0 < max(advantages)
    if temperature:
        weights = [math.exp(temperature * x) for x in advantages]
        assert any(1 < weight < max_weight for weight in weights) and max(weights) > max_weight, "some weights are clipped, others large"
    losses, values = algo.loss(samples)
    check(losses, [mean(q_terms), mean(v_terms), mean(pi_terms)], (agent.q_parameters(), agent.v_parameters(), agent.pi_parameters()))
    assert all(value.shape == (12,) and not value.requires_grad for value in values)


@pytest.mark.parametrize("log_std, taken", [(-9.0, -5.0), (0.5, 0.5), (6.0, 2.0)])
def test_the_standard_deviation_stays_in_its_range(log_std, taken):
    _, agent = make()
    output = [m for m in agent.model.modules() if isinstance(m, torch.nn.Linear)][-1]
    with torch.no_grad():
        output.weight[A:], output.bias[A:] = 0, log_std
    samples = replayed()
    log_pi = agent.log_pi(*samples.agent_inputs, samples.action)
    mean_ = torch.tanh(torch.stack([mlp(agent.model, o)[:A] for o, *_ in rows(samples)]))
    z = (samples.action - mean_) / math.exp(taken)
    torch.testing.assert_close(log_pi, (-0.5 * z**2 - taken - 0.5 * math.log(2 * math.pi)).sum(-1))


def test_the_value_that_minimizes_the_loss_is_the_expectile():
    """The expectile V of values Q satisfies: τ sum of (Q - V)+ = (1 - τ) sum of (V - Q)+."""
    tau = 0.9
    algo, agent = make(expectile=tau)
    samples, output = replayed(), output_of_v(agent)
    output.weight.data.zero_()  # V is the same everywhere.
    for _ in range(60):
        (_, v_loss, _), (_, v, advantage) = algo.loss(samples)
        output.bias.data -= torch.autograd.grad(v_loss, output.bias)[0]
    above, below = advantage.clamp(min=0).sum(), (-advantage).clamp(min=0).sum()
    assert (tau * above).item() == pytest.approx(((1 - tau) * below).item(), rel=1e-3)
    assert above > 0.1 and v[0] > (v + advantage).mean()


def test_actions_are_within_bounds_and_in_evaluation_the_mean():
    agent = IqlAgent()
    agent.initialize(EnvSpaces(SPACES.observation, FloatBox(-2, 2, (A,))))
    inputs = 10 * torch.randn(200, 4), torch.zeros(200, A), torch.zeros(200)
    agent.sample_mode(0)
    action, info = agent.step(*inputs)
    assert action.abs().max() <= 2 and info.dist_info.mean.abs().max() <= 2 and not torch.equal(action, info.dist_info.mean)
    agent.eval_mode(1)
    action, info = agent.step(*inputs)
    torch.testing.assert_close(action, info.dist_info.mean)
    assert set(agent.state_dict()) == {"model", "q1_model", "q2_model", "v_model", "target_q1_model", "target_q2_model"}


class BoundedByKwargs(BoundedPiMlpModel):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)


def test_a_policy_that_takes_any_argument_gets_the_bound():
    agent = IqlAgent(ModelCls=BoundedByKwargs, model_kwargs=SIZES)
    agent.initialize(EnvSpaces(SPACES.observation, FloatBox(-2, 2, (A,))))
    assert agent.model._output_max == 2


@pytest.mark.parametrize("settings", [dict(ModelCls=PiMlpModel), dict(model_kwargs=dict(hidden_sizes=[4], output_max=0.5))])
def test_policies_may_have_another_bound_or_none(settings):
    agent = IqlAgent(**settings)
    agent.initialize(SPACES)
    assert getattr(agent.model, "_output_max", None) == settings.get("model_kwargs", {}).get("output_max")


def test_impossible_settings_and_agents_are_refused():
    with pytest.raises(ValueError, match="expectile=0.3 is not possible"):
        IQL(expectile=0.3)
    agent = SacAgent()
    agent.initialize(SPACES)
    with pytest.raises(ValueError, match="^IQL needs an agent with .*log_pi.*IqlAgent"):
        IQL().initialize(agent, 10, BatchSpec(4, 2), True, EXAMPLES)
    agent = IqlAgent()
    agent.initialize(SPACES)
    with pytest.raises(ValueError, match="^SAC needs .*density.*IqlAgent.*clips.*SacAgent"):
        SAC().initialize(agent, 10, BatchSpec(4, 2), True, EXAMPLES)


def test_batch_statistics_of_several_processes_are_refused():
    agent = IqlAgent(ModelCls=PiMlpModel, model_kwargs=dict(SIZES, batch_renorm=True))
    agent.initialize(SPACES)
    with pytest.raises(ValueError, match="^IQL: .*train in one process"):
        IQL().initialize(agent, 10, BatchSpec(4, 2), True, EXAMPLES, world_size=2)
