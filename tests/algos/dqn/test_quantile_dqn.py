import math

import numpy as np
import pytest
import torch
from experience import N_ACTIONS, OBSERVATION_SIZE, SPACES, PickTheLargest, start
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiers import full, learning

from rlpyt.agents.base import AgentInputs
from rlpyt.agents.dqn.mlp_catdqn_agent import MlpCatDqnAgent
from rlpyt.agents.dqn.mlp_dqn_agent import MlpDqnAgent
from rlpyt.agents.dqn.mlp_quantile_agents import MlpIqnAgent, MlpQrDqnAgent
from rlpyt.algos.dqn.cat_dqn import CategoricalDQN
from rlpyt.algos.dqn.dqn import DQN
from rlpyt.algos.dqn.quantile_dqn import QuantileDQN
from rlpyt.replays.non_sequence.n_step import SamplesFromReplay
from rlpyt.replays.non_sequence.prioritized import SamplesFromReplayPri
from rlpyt.samplers.collections import BatchSpec
from rlpyt.utils import tensor
from rlpyt.utils.tensor import quantile_huber

EXAMPLES = dict(observation=np.zeros(OBSERVATION_SIZE), action=np.int64(0), reward=np.float64(0), done=np.bool_(False), env_info=None)
T, B, N, M, K = 4, 2, 5, 4, 3
AGENTS = {
    "qr": lambda **kwargs: MlpQrDqnAgent(n_quantiles=N, **kwargs),
    "iqn": lambda **kwargs: MlpIqnAgent(n_quantiles=N, n_target_quantiles=M, n_acting_quantiles=K, **kwargs),
}


def make(kind, model_kwargs=None, **settings):
    torch.manual_seed(0)
    settings = dict(dict(replay_size=200, min_steps_learn=16, batch_size=8), **settings)
    agent = AGENTS[kind](model_kwargs=model_kwargs)
    algo = start(QuantileDQN(**settings), agent, T, B, examples=EXAMPLES)
    for p in agent.model.parameters():  # Away from the target network, so that it matters which one chooses.
        p.data += 0.3 * torch.randn_like(p)
    return algo, agent


def replayed(n=20, seed=0, prioritized=False):
    g = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, dtype=torch.float64, generator=g)

    inputs = [AgentInputs(normal(n, OBSERVATION_SIZE), torch.zeros(n, dtype=torch.long), torch.zeros(n)) for _ in range(2)]
    done_n = torch.rand(n, generator=g) < 0.3
    discount = (0.9 ** torch.randint(1, 4, (n,), generator=g) * ~done_n).double()
    action = torch.randint(N_ACTIONS, (n,), generator=g)
    samples = SamplesFromReplay(inputs[0], action, 2 * normal(n), done_n, done_n, inputs[1], discount)
    return SamplesFromReplayPri(*samples, torch.rand(n, generator=g), torch.arange(n)) if prioritized else samples


def huber_in_words(delta, kappa):
    return 0.5 * delta**2 if abs(delta) <= kappa else kappa * (abs(delta) - 0.5 * kappa)


def log_softmax_in_words(qs, temperature):
    highest = max(qs)
    total = sum(np.exp((q - highest) / temperature) for q in qs)
    return [(q - highest) / temperature - np.log(total) for q in qs]


def reference_loss(algo, agent, samples, fractions, target_fractions):
    """The formulas of the papers, one pair of quantiles at a time, in plain numbers but for what needs a gradient."""
    kappa, tau = algo.delta_clip, algo.munchausen_temperature
    total, priorities = 0.0, []
    for i in range(len(samples.action)):
        now, later = samples.agent_inputs[i : i + 1], samples.target_inputs[i : i + 1]
        own = fractions if fractions.dim() == 1 else fractions[i : i + 1]
        others = target_fractions if target_fractions.dim() == 1 else target_fractions[i : i + 1]
        theta = agent(*now, own)[0, samples.action[i]]
        with torch.no_grad():
            next_z = agent.target(*later, others)[0].tolist()  # [A][M]
            chooser = agent(*later)[0].tolist() if algo.double_dqn else next_z
            qs_now = [np.mean(z) for z in agent.target(*now)[0].tolist()]
        next_qs = [np.mean(z) for z in chooser]
        y = [samples.return_[i].item()] * len(next_z[0])
        discount = samples.bootstrap_discount[i].item()
        if algo.munchausen:
            bonus = max(tau * log_softmax_in_words(qs_now, tau)[samples.action[i]], algo.munchausen_min)
            log_pi = log_softmax_in_words(next_qs, tau)
            for j in range(len(y)):
                y[j] += algo.munchausen_alpha * bonus
                y[j] += discount * sum(np.exp(log_pi[a]) * (next_z[a][j] - tau * log_pi[a]) for a in range(N_ACTIONS))
        else:
            y = [y[j] + discount * z for j, z in enumerate(next_z[int(np.argmax(next_qs))])]
        loss = 0.0
        for k, fraction in enumerate(own.flatten().tolist()):
            for y_j in y:
                delta = y_j - theta[k]
                loss = loss + abs(fraction - (delta.item() < 0)) * huber_in_words(delta, kappa) / kappa / len(y)
        priorities.append(loss.item() / len(theta))
        total = total + loss * (samples.is_weights[i].item() if algo.prioritized_replay else 1)
    return total / len(samples.action), priorities


CASES = [  # double, prioritized, munchausen, dueling, κ
    (False, False, False, False, 1.0),
    (True, False, False, True, 0.3),
    (True, True, False, False, 2.0),
    (False, True, True, True, 1.0),
    (True, False, True, False, 0.3),
]


@pytest.mark.parametrize("kind", AGENTS)
@pytest.mark.parametrize("double, prioritized, munchausen, dueling, kappa", CASES)
def test_the_loss_and_its_gradient_are_the_formula(kind, double, prioritized, munchausen, dueling, kappa):
    settings = dict(double_dqn=double, prioritized_replay=prioritized, munchausen=munchausen, delta_clip=kappa)
    of_munchausen = dict(munchausen_temperature=0.2, munchausen_min=-0.5) if munchausen else {}
    algo, agent = make(kind, dict(dueling=dueling), **of_munchausen, **settings)
    samples = replayed(prioritized=prioritized)
    n = len(samples.action)
    torch.manual_seed(3)
    loss, priorities = algo.loss(samples)
    torch.manual_seed(3)
    expected, expected_priorities = reference_loss(algo, agent, samples, agent.fractions(n), agent.target_fractions(n))
    assert loss.item() == pytest.approx(expected.item(), rel=1e-9)
    np.testing.assert_allclose(priorities, expected_priorities, rtol=1e-9)
    assert not priorities.requires_grad
    grads = torch.autograd.grad(loss, list(agent.parameters()))
    for g, e in zip(grads, torch.autograd.grad(expected, list(agent.parameters())), strict=True):
        torch.testing.assert_close(g, e, rtol=1e-9, atol=1e-9)


def pair_by_pair(quantiles, fractions, y, kappa):
    """`quantile_huber` of rows [n,N], [n,N], [n,M]: equations 9 and 10 of Dabney et al."""
    losses = []
    for theta_row, tau_row, y_row in zip(quantiles, fractions, y):
        loss = 0.0
        for theta, tau in zip(theta_row, tau_row):
            for each in y_row:
                delta = each - theta
                huber = 0.5 * delta**2 if abs(delta) <= kappa else kappa * (abs(delta) - 0.5 * kappa)
                loss = loss + abs(tau - float(delta < 0)) * huber / kappa / len(y_row)
        losses.append(loss)
    return torch.stack(losses)


@pytest.fixture(params=["pairs", "sorted"])
def way(request, monkeypatch):
    """Each way in which losses are computed: for few pairs and other devices, and for many pairs on a CPU."""
    is_sorted = request.param == "sorted"
    monkeypatch.setattr(tensor, "MANY_PAIRS", 0 if is_sorted else math.inf)
    monkeypatch.delattr(tensor, "_over_pairs" if is_sorted else "_OverSorted")  # The other way is not taken.


FAR = [(0.0, 0.01), (0.0, 30.0), (-700.0, 1.0), (1e6, 1.0)]  # Center and unit of all values.


@settings(max_examples=60, deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 3), st.integers(1, 4), st.integers(1, 6), st.integers(1, 7), st.booleans(), st.sampled_from([0.05, 1, 20]), st.data())
def test_the_loss_and_its_gradient_are_those_of_pairs(way, B, n, N, M, is_shared, kappa, data):
    """Also with ties, in any order, far from 0, and for several rows of quantiles with the same targets."""
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    center, unit = data.draw(st.sampled_from(FAR))
    offset = data.draw(st.sampled_from([0.0, 1e-3]))  # Without one, quantiles tie with targets.
    theta = torch.from_numpy(center + unit * rng.integers(-3, 4, (B, n, N)) / 2 + offset).requires_grad_()
    tau = torch.from_numpy(rng.random((B, n, N)))
    y = torch.from_numpy(center + unit * rng.integers(-3, 4, (B, M, 1 if is_shared else n)) / 2).mT  # Not contiguous.
    losses = quantile_huber(theta, tau, y, kappa)
    assert losses.shape == (B, n)
    if B == 0:
        return
    expected = pair_by_pair(theta.flatten(0, 1), tau.flatten(0, 1), y.expand(B, n, M).flatten(0, 1), kappa)
    torch.testing.assert_close(losses.flatten(), expected, rtol=1e-9, atol=1e-9)
    weights = torch.from_numpy(rng.normal(size=(B, n)))
    (grad,) = torch.autograd.grad((weights * losses).sum(), theta)
    (expected_grad,) = torch.autograd.grad((weights.flatten() * expected).sum(), theta)
    torch.testing.assert_close(grad, expected_grad, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("shapes", ["N M", "N 1M", "1N BM", "B1N BnM", "BnN M", "BnN 1nM", "BnN 11M"])
def test_leading_dimensions_are_broadcast(way, shapes):
    sizes = {"B": 2, "n": 3, "N": 4, "M": 5, "1": 1}
    rng = np.random.default_rng(0)
    theta, y = (torch.from_numpy(rng.normal(size=[sizes[name] for name in shape])) for shape in shapes.split())
    tau = torch.from_numpy(rng.random(4))
    lead = torch.broadcast_shapes(theta.shape[:-1], y.shape[:-1])
    rows = [each.expand(*lead, -1).reshape(-1, each.shape[-1]) for each in (theta, tau, y)]
    torch.testing.assert_close(quantile_huber(theta, tau, y, 1.0), pair_by_pair(*rows, 1.0).view(lead))
    theta.requires_grad_()
    (grad,) = torch.autograd.grad(quantile_huber(theta, tau, y, 1.0).sum(), theta)
    (expected,) = torch.autograd.grad(pair_by_pair(theta.expand(*lead, -1).reshape(-1, 4), *rows[1:], 1.0).sum(), theta)
    torch.testing.assert_close(grad, expected)


def test_losses_have_the_most_exact_dtype_of_all(way):
    theta, tau, y = (torch.rand(2, 3, dtype=dtype) for dtype in (torch.bfloat16, torch.float32, torch.bfloat16))
    for each in ((theta, tau, y), (theta.float(), tau, y.double())):
        losses = quantile_huber(*each, 1.0)
        assert losses.dtype == torch.promote_types(each[1].dtype, each[2].dtype)
        torch.testing.assert_close(losses.double(), pair_by_pair(*(x.double() for x in each), 1.0), rtol=0.02, atol=0)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", ["quantile", "target"])
def test_the_loss_is_not_finite_if_a_value_is_not(way, bad, where):
    theta, y = torch.zeros(2, 3), torch.zeros(2, 4)
    (theta if where == "quantile" else y)[1, 1] = bad
    losses = quantile_huber(theta.requires_grad_(), torch.full((3,), 0.5), y, 1.0)
    (grad,) = torch.autograd.grad(losses.sum(), theta)
    assert losses[0] == 0 and not torch.isfinite(losses[1]) and torch.equal(grad[0], torch.zeros(3))
    assert not np.isnan(bad) or grad[1, 1].isnan()


def test_a_target_far_away_does_not_blur_the_others(way):
    theta = torch.tensor([[0.5, 1.5]], dtype=torch.float64, requires_grad=True)
    y = torch.tensor([[-1e16, 0, 1, 2, 3]], dtype=torch.float64)
    (grad,) = torch.autograd.grad(quantile_huber(theta, torch.tensor([0.5]), y, 1.0).sum(), theta)
    torch.testing.assert_close(grad, torch.tensor([[-0.1, 0.1]], dtype=torch.float64))


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(st.floats(0.01, 0.99), st.floats(-1, 4), st.floats(0.05, 3))
def test_the_loss_and_its_gradient_are_integrals_over_the_distribution_of_the_target(fraction, theta, kappa):
    """Many quantiles of an exponential distribution, against integrals with its density."""
    y = -torch.log1p(-(torch.arange(20_000, dtype=torch.float64) + 0.5) / 20_000)
    quantile = torch.tensor([[theta]], dtype=torch.float64, requires_grad=True)
    loss = quantile_huber(quantile, torch.tensor([fraction], dtype=torch.float64), y[None], kappa)
    (grad,) = torch.autograd.grad(loss.sum(), quantile)

    y = (np.arange(200_000) + 0.5) * 1e-4  # up to 20
    delta, weight = y - theta, np.where(y < theta, 1 - fraction, fraction)
    huber = np.where(np.abs(delta) <= kappa, 0.5 * delta**2, kappa * (np.abs(delta) - 0.5 * kappa))
    assert loss.item() == pytest.approx(np.sum(weight * huber / kappa * np.exp(-y)) * 1e-4, rel=1e-3)
    assert grad.item() == pytest.approx(-np.sum(weight * np.clip(delta, -kappa, kappa) / kappa * np.exp(-y)) * 1e-4, abs=1e-3)


@pytest.mark.parametrize("fraction", [0.1, 0.5, 0.9])
def test_descending_the_loss_ends_at_the_quantile(fraction):
    y = torch.from_numpy(np.random.default_rng(0).exponential(size=(1, 2001)))
    theta = torch.zeros(1, 1, dtype=torch.float64, requires_grad=True)
    for _ in range(300):
        (grad,) = torch.autograd.grad(quantile_huber(theta, torch.tensor([fraction]), y, kappa=0.01).sum(), theta)
        theta = (theta - 0.5 * grad).detach().requires_grad_()
    assert theta.item() == pytest.approx(float(np.quantile(y, fraction)), abs=0.03)


def test_fractions_are_fixed_or_drawn_for_each_sample():
    _, qr = make("qr")
    assert qr.fractions(7).tolist() == pytest.approx([0.1, 0.3, 0.5, 0.7, 0.9])
    _, iqn = make("iqn")
    a, b, target = iqn.fractions(7), iqn.fractions(7), iqn.target_fractions(7)
    assert a.shape == (7, N) and target.shape == (7, M) and not torch.equal(a, b) and len(set(a.flatten().tolist())) == 7 * N


@pytest.mark.parametrize("settings", [dict(delta_clip=None), dict(delta_clip=0), dict(munchausen_temperature=0), dict(munchausen_min=1)])
def test_impossible_settings_are_refused(settings):
    (name,) = settings
    with pytest.raises(ValueError, match=f"QuantileDQN: {name}=.* is not possible"):
        QuantileDQN(**settings)


def test_agents_for_another_kind_of_q_learning_are_refused():
    for algo, agent in [(QuantileDQN(), MlpDqnAgent()), (QuantileDQN(), MlpCatDqnAgent()), (DQN(), MlpIqnAgent())]:
        with pytest.raises(ValueError, match=f"^{type(algo).__name__} needs an agent.*; {type(agent).__name__} does not"):
            start(algo, agent, T, B, examples=EXAMPLES)
    with pytest.raises(ValueError, match="^CategoricalDQN needs an agent.*; MlpQrDqnAgent does not"):
        start(CategoricalDQN(), MlpQrDqnAgent(), T, B, examples=EXAMPLES)


ALL_PARTS = dict(double_dqn=True, prioritized_replay=True, n_step_return=2, pri_beta_steps=2000)


@learning
@full
@pytest.mark.parametrize(
    "kind, settings",
    [(MlpQrDqnAgent, dict()), (MlpQrDqnAgent, ALL_PARTS), (MlpIqnAgent, dict(munchausen=True)), (MlpIqnAgent, ALL_PARTS)],
    ids=["qr-plain", "qr-all_parts", "iqn-munchausen", "iqn-all_parts"],
)
def test_it_learns_a_game(kind, settings):
    torch.manual_seed(1)
    np.random.seed(1)
    parts = dict(dueling=True, noisy=True) if settings is ALL_PARTS else {}
    agent, game = kind(n_quantiles=11, eps_final=0.02, model_kwargs=dict(hidden_sizes=[64, 64], **parts)), PickTheLargest(B=8, seed=1)
    agent.initialize(SPACES)
    algo = QuantileDQN(
        discount=0.5, learning_rate=0.002, batch_size=64, min_steps_learn=256, replay_size=5000, eps_steps=1500, target_update_interval=50,
        **settings,
    )  # fmt: skip
    algo.initialize(agent, 120, BatchSpec(16, 8), True, game.examples())
    rewards = []
    for itr in range(60):
        samples = game.sample(agent, itr, T=16)
        rewards.append(samples.env.reward.mean().item())
        agent.train_mode(itr)
        algo.optimize_agent(itr, samples)
    assert np.mean(rewards[:2]) < 0.5
    assert np.mean(rewards[-10:]) > 0.8
