import copy

import numpy as np
import pytest
import torch
from experience import N_ACTIONS, OBSERVATION_SIZE, SPACES, PickTheLargest, start
from hypothesis import given, settings
from hypothesis import strategies as st
from tiers import full, learning

from rlpyt.agents.base import AgentInputs
from rlpyt.agents.dqn.mlp_catdqn_agent import MlpCatDqnAgent
from rlpyt.agents.dqn.mlp_dqn_agent import MlpDqnAgent
from rlpyt.algos.dqn.cat_dqn import EPS, CategoricalDQN, project
from rlpyt.algos.dqn.dqn import DQN
from rlpyt.models.dqn.noisy import NoisyLinear, set_noise
from rlpyt.replays.non_sequence.n_step import SamplesFromReplay
from rlpyt.replays.non_sequence.prioritized import PrioritizedReplayBuffer, SamplesFromReplayPri
from rlpyt.samplers.collections import BatchSpec

EXAMPLES = dict(observation=np.zeros(OBSERVATION_SIZE), action=np.int64(0), reward=np.float64(0), done=np.bool_(False), env_info=None)
P, V_MIN, V_MAX = 7, -2.0, 3.0
T, B = 4, 2


def make(model_kwargs=None, n_atoms=P, **settings):
    settings = dict(dict(V_min=V_MIN, V_max=V_MAX, replay_size=200, min_steps_learn=16, batch_size=8), **settings)
    agent = MlpCatDqnAgent(n_atoms=n_atoms, model_kwargs=model_kwargs)
    algo = start(CategoricalDQN(**settings), agent, T, B, examples=EXAMPLES)
    for p in agent.model.parameters():  # Away from the target network, so that it matters which one chooses.
        p.data += 0.3 * torch.randn_like(p)
    return algo, agent


def replayed(n=20, seed=0, prioritized=False, discounts=True):
    g = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, dtype=torch.float64, generator=g)

    inputs = [AgentInputs(normal(n, OBSERVATION_SIZE), torch.zeros(n, dtype=torch.long), torch.zeros(n)) for _ in range(2)]
    done_n = torch.rand(n, generator=g) < 0.3
    discount = (0.9 ** torch.randint(1, 4, (n,), generator=g) * ~done_n).double() if discounts else None
    action = torch.randint(N_ACTIONS, (n,), generator=g)
    samples = SamplesFromReplay(inputs[0], action, 2 * normal(n), done_n, done_n, inputs[1], discount)
    if not prioritized:
        return samples
    return SamplesFromReplayPri(*samples, torch.rand(n, generator=g), torch.arange(n))


def reference_projection(p, return_, discount, v_min, v_max):
    """The definition in words, one atom at a time, in plain numbers."""
    n_atoms = len(p)
    spacing = (v_max - v_min) / (n_atoms - 1)
    atoms = [v_min + i * spacing for i in range(n_atoms)]
    m = [0.0] * n_atoms
    for probability, z in zip(p, atoms, strict=True):
        value = min(max(return_ + discount * z, v_min), v_max)
        for i, atom in enumerate(atoms):
            m[i] += probability * max(0.0, 1 - abs(value - atom) / spacing)
    return m


def reference_loss(model, target_model, samples, double, discount):
    z = torch.linspace(V_MIN, V_MAX, P, dtype=torch.float64)
    total, kls = 0.0, []
    for i in range(len(samples.action)):
        p = model(samples.agent_inputs.observation[i], None, None)[samples.action[i]]
        with torch.no_grad():
            next_p = target_model(samples.target_inputs.observation[i], None, None)
            chooser = model(samples.target_inputs.observation[i], None, None) if double else next_p
            means = [sum(float(z[j] * chooser[a, j]) for j in range(P)) for a in range(N_ACTIONS)]
            next_p = next_p[int(np.argmax(means))]
        m = reference_projection(next_p.tolist(), float(samples.return_[i]), float(discount[i]), V_MIN, V_MAX)
        weight = float(samples.is_weights[i]) if hasattr(samples, "is_weights") else 1.0
        total = total - weight * sum(m[j] * torch.log(p[j]) for j in range(P))
        m = [min(max(m_j, EPS), 1.0) for m_j in m]
        kls.append(sum(m[j] * np.log(m[j] / max(p[j].item(), EPS)) for j in range(P)))
    return total / len(samples.action), kls


@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@given(
    st.integers(2, 60),
    st.floats(-30, 30),
    st.sampled_from([0.0, 0.3, 0.99, 1.0]),
    st.floats(-20, 5),
    st.floats(0.1, 30),
    st.integers(0, 1000),
)
def test_the_projection_is_its_definition(n_atoms, return_, discount, v_min, width, seed):
    p = np.random.default_rng(seed).dirichlet(np.full(n_atoms, 0.5))
    return_tensor, discount_tensor = (torch.tensor([x], dtype=torch.float64) for x in (return_, discount))
    got = project(torch.from_numpy(p)[None], return_tensor, discount_tensor, v_min, v_min + width)
    expected = reference_projection(p.tolist(), return_, discount, v_min, v_min + width)
    np.testing.assert_allclose(got[0], expected, atol=1e-9)
    assert got.sum().item() == pytest.approx(1)


@pytest.mark.parametrize("return_, expected", [(-5.0, {0: 1.0}), (-1.0, {1: 1.0}), (0.25, {2: 0.75, 3: 0.25}), (9.0, {4: 1.0})])
def test_a_termination_is_certain_of_its_return(return_, expected):
    p = torch.softmax(torch.randn(1, 5), -1)
    m = project(p, torch.tensor([return_]), torch.zeros(1), -2.0, 2.0)[0]
    torch.testing.assert_close(m, torch.tensor([expected.get(i, 0.0) for i in range(5)]), atol=1e-6, rtol=0)


def test_a_distribution_within_the_range_keeps_its_mean():
    p, z = torch.softmax(torch.randn(9, 51, dtype=torch.float64), -1), torch.linspace(-10, 10, 51, dtype=torch.float64)
    return_, discount = torch.linspace(-1, 1, 9, dtype=torch.float64), torch.full((9,), 0.9, dtype=torch.float64)
    torch.testing.assert_close(project(p, return_, discount, -10, 10) @ z, return_ + discount * (p @ z))


@pytest.mark.parametrize("prioritized", [False, True])
@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("dueling", [False, True])
def test_the_loss_and_its_gradient_are_the_formula(dueling, double, prioritized):
    algo, agent = make(dict(dueling=dueling), double_dqn=double, prioritized_replay=prioritized)
    samples = replayed(prioritized=prioritized)
    loss, kl = algo.loss(samples)
    expected, expected_kl = reference_loss(agent.model, agent.target_model, samples, double, samples.bootstrap_discount)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-9)
    np.testing.assert_allclose(kl, expected_kl, atol=1e-12)
    assert not kl.requires_grad
    grads = torch.autograd.grad(loss, list(agent.parameters()))
    for g, e in zip(grads, torch.autograd.grad(expected, list(agent.parameters())), strict=True):
        torch.testing.assert_close(g, e, rtol=1e-9, atol=1e-9)


def test_a_buffer_that_gives_documented_fields_only_bootstraps_over_n_steps():
    algo, agent = make(n_step_return=3, discount=0.9)
    samples = replayed(discounts=False)
    expected, _ = reference_loss(agent.model, agent.target_model, samples, False, 0.9**3 * (1 - samples.done_n.double()))
    assert algo.loss(samples)[0].item() == pytest.approx(expected.item(), rel=1e-6)  # The factor is float32 then.


@pytest.mark.parametrize("certainty", [9.0, 20.0, 80.0])
def test_a_prediction_that_is_certain_and_wrong_has_its_full_gradient_and_a_limited_priority(certainty):
    algo, agent = make()
    logits = torch.zeros(1, N_ACTIONS, P, requires_grad=True)
    sure = torch.zeros(1, N_ACTIONS, P)
    sure[..., 0] = certainty  # Of the smallest return; exp(-certainty) is the probability of any other.
    agent.__class__ = type("Fixed", (MlpCatDqnAgent,), {"__call__": lambda self, *inputs: torch.softmax(logits + sure, -1)})
    agent.target = lambda *inputs: torch.softmax(sure, -1)
    samples = replayed(1)._replace(return_=torch.tensor([9.0]), bootstrap_discount=torch.zeros(1), action=torch.tensor([1]))
    loss, kl = algo.loss(samples)
    (grad,) = torch.autograd.grad(loss, logits)
    expected_grad = torch.zeros(1, N_ACTIONS, P)
    expected_grad[0, 1] = torch.softmax(sure[0, 1], -1)  # p - m, where m is certain of the largest return
    expected_grad[0, 1, -1] -= 1
    torch.testing.assert_close(grad, expected_grad)
    assert loss.item() == pytest.approx(certainty, abs=1e-3)
    assert kl.item() == pytest.approx(min(certainty, -np.log(EPS)), abs=1e-3)


def test_a_perfect_prediction_has_the_smallest_priority_there_is():
    algo, agent = make()
    p = torch.softmax(torch.randn(6, N_ACTIONS, P), -1)
    agent.__class__ = type("Fixed", (MlpCatDqnAgent,), {"__call__": lambda self, *inputs: p})
    agent.target = lambda *inputs: p
    action = ((p @ torch.linspace(V_MIN, V_MAX, P)).argmax(-1)).long()
    samples = replayed(6)._replace(action=action, return_=torch.zeros(6), bootstrap_discount=torch.ones(6))
    kl = algo.loss(samples)[1]
    torch.testing.assert_close(kl, torch.full((6,), EPS))


def game_batch(agent, game, itr):
    return game.sample(agent, itr, T=T)


RAINBOW = dict(double_dqn=True, prioritized_replay=True, n_step_return=3, pri_beta_steps=100)


@full
def test_all_of_rainbow_trains_together_and_prioritizes_by_divergence():
    torch.manual_seed(0)
    np.random.seed(0)
    agent, game = MlpCatDqnAgent(n_atoms=P, model_kwargs=dict(dueling=True, noisy=True)), PickTheLargest(B=B)
    agent.initialize(SPACES)
    algo = CategoricalDQN(V_min=0, V_max=2, min_steps_learn=16, batch_size=8, replay_size=200, discount=0.5, **RAINBOW)
    algo.initialize(agent, 100, BatchSpec(T, B), True, game.examples())
    assert type(algo.replay_buffer) is PrioritizedReplayBuffer
    before, told = copy.deepcopy(agent.state_dict()), []
    update = algo.update

    def update_and_tell(batch):
        result = update(batch)
        told.append((batch.ids, result[1]))
        return result

    algo.update = update_and_tell
    for itr in range(8):
        samples = game_batch(agent, game, itr)
        agent.train_mode(itr)
        info = algo.optimize_agent(itr, samples)
    assert info._fields == ("loss", "gradNorm", "tdAbsErr") and all(np.isfinite(info.loss))
    ids, kl = told[-1]
    tree = algo.replay_buffer.priority_tree
    for i, priority in zip(ids.tolist(), (kl.double() ** 0.6).tolist(), strict=True):
        assert tree.priorities[i // B % tree.T, i % B] == pytest.approx(priority, rel=1e-5)
    after = agent.state_dict()["model"]
    assert all(not torch.equal(value, after[name]) for name, value in before["model"].items())


def test_networks_have_noise_of_their_own_in_the_loss():
    algo, agent = make(dict(noisy=True))
    samples = replayed()
    assert algo.loss(samples)[0] != algo.loss(samples)[0]
    set_noise(agent.target_model, False)
    assert algo.loss(samples)[0] != algo.loss(samples)[0]
    set_noise(agent.model, False)
    assert algo.loss(samples)[0] == algo.loss(samples)[0]
    agent.train_mode(1)
    assert all(m.is_noisy for model in (agent.model, agent.target_model) for m in model.modules() if isinstance(m, NoisyLinear))


def test_the_agent_is_told_what_its_atoms_stand_for():
    algo, agent = make(n_atoms=11)
    assert (agent.V_min, agent.V_max) == (V_MIN, V_MAX)
    torch.testing.assert_close(agent.distribution.z, torch.linspace(V_MIN, V_MAX, 11))
    agent.give_V_min_max(0, 1)
    algo.async_initialize(agent, 10, BatchSpec(T, B), True, EXAMPLES)
    assert agent.V_max == V_MAX


def test_agents_for_another_kind_of_q_learning_are_refused():
    with pytest.raises(ValueError, match="CategoricalDQN needs an agent.*MlpCatDqnAgent.*; MlpDqnAgent does not"):
        start(CategoricalDQN(), MlpDqnAgent(), T, B, examples=EXAMPLES)
    with pytest.raises(ValueError, match="^DQN needs an agent.*MlpDqnAgent.*; MlpCatDqnAgent does not"):
        start(DQN(), MlpCatDqnAgent(), T, B, examples=EXAMPLES)


@pytest.mark.parametrize("settings", [dict(V_min=1, V_max=1), dict(V_min=2, V_max=-2), dict(V_max="10"), dict(batch_size=0)])
def test_impossible_settings_are_refused(settings):
    with pytest.raises(ValueError, match="V_max|batch_size"):
        CategoricalDQN(**settings)


@learning
@full
def test_it_learns_a_game():
    torch.manual_seed(1)
    np.random.seed(1)
    agent, game = MlpCatDqnAgent(n_atoms=21, eps_final=0.02), PickTheLargest(B=8, seed=1)
    agent.initialize(SPACES)
    algo = CategoricalDQN(
        V_min=0, V_max=2, discount=0.5, learning_rate=0.002, batch_size=64, min_steps_learn=256, replay_size=5000, eps_steps=1500,
        target_update_interval=50, n_step_return=2, double_dqn=True,
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
