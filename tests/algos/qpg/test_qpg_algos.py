import copy
import functools
import math
import multiprocessing as mp
import pickle
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from experience import in_float64
from tiers import full, processes, thinned

from rlpyt.agents.base import AgentInputs
from rlpyt.agents.dqn.mlp_dqn_agent import MlpDqnAgent
from rlpyt.agents.qpg.ddpg_agent import DdpgAgent
from rlpyt.agents.qpg.ensemble_sac_agent import EnsembleSacAgent
from rlpyt.agents.qpg.sac_agent import SacAgent
from rlpyt.agents.qpg.sac_v_agent import SacAgent as SacVAgent
from rlpyt.agents.qpg.td3_agent import Td3Agent
from rlpyt.algos.qpg.ddpg import DDPG
from rlpyt.algos.qpg.ensemble_sac import EnsembleSAC
from rlpyt.algos.qpg.sac import SAC
from rlpyt.algos.qpg.sac_v import SAC_V
from rlpyt.algos.qpg.td3 import TD3
from rlpyt.algos.replay import SamplesToBuffer
from rlpyt.distributions.gaussian import Gaussian
from rlpyt.envs.base import EnvSpaces
from rlpyt.replays.non_sequence.n_step import SamplesFromReplay
from rlpyt.replays.non_sequence.prioritized import PrioritizedReplayBuffer
from rlpyt.replays.non_sequence.time_limit import AsyncTlUniformReplayBuffer, SamplesFromReplayTL, TlUniformReplayBuffer
from rlpyt.replays.non_sequence.uniform import AsyncUniformReplayBuffer, UniformReplayBuffer
from rlpyt.replays.sequence.uniform import UniformSequenceReplayBuffer
from rlpyt.samplers.collections import AgentSamples, BatchSpec, EnvSamples, Samples
from rlpyt.spaces.float_box import FloatBox
from rlpyt.utils.collections import namedarraytuple

O, A, T, B = 4, 2, 4, 2
SPACES = EnvSpaces(FloatBox(-1, 1, (O,)), FloatBox(-1, 1, (A,)))
EXAMPLES = dict(
    observation=np.zeros(O), action=np.zeros(A), reward=np.float64(0), done=np.bool_(False), env_info=None, ends_recorded=np.bool_(True)
)
ALGOS = {"ddpg": (DDPG, DdpgAgent), "td3": (TD3, Td3Agent), "sac": (SAC, SacAgent), "sac_v": (SAC_V, SacVAgent)}
every_algo = pytest.mark.parametrize("name", ALGOS)


def make(name, T=T, B=B, mid_batch_reset=True, agent_settings=None, **settings):
    """Algorithm and agent in float64, to compare with formulas; targets away from models."""
    AlgoCls, AgentCls = ALGOS[name]
    torch.manual_seed(0)
    np.random.seed(0)
    settings = dict(dict(replay_size=200, min_steps_learn=16, batch_size=8, replay_ratio=8), **settings)
    kwargs = dict(hidden_sizes=[6, 5])
    agent = AgentCls(model_kwargs=kwargs, q_model_kwargs=kwargs, **(agent_settings or {}))
    agent.initialize(SPACES)
    in_float64(agent)
    algo = AlgoCls(**settings)
    algo.initialize(agent, 10, BatchSpec(T, B), mid_batch_reset, EXAMPLES)
    agent.train_mode(0)
    with torch.no_grad():
        for target in agent.target_names.values():
            for parameter in getattr(agent, target).parameters():
                parameter.add_(0.3 * torch.randn_like(parameter))
    return algo, agent


def replayed(n=12, seed=0, TL=False):
    g = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, dtype=torch.float64, generator=g)

    inputs = [AgentInputs(normal(n, O), torch.zeros(n, A), torch.zeros(n)) for _ in range(2)]
    done_n = torch.rand(n, generator=g) < 0.3
    discount = 0.9 ** torch.randint(1, 4, (n,), generator=g) * ~done_n
    fields = inputs[0], normal(n, A).clamp(-1, 1), 3 * normal(n), done_n, done_n, inputs[1], discount.double()
    if not TL:
        return SamplesFromReplay(*fields)
    return SamplesFromReplayTL(*fields, timeout=done_n, timeout_n=torch.rand(n, generator=g) < 0.6)


def batch(seed=0, T=T, B=B, timeout=None, env_info=None):
    rng = np.random.default_rng(seed)
    observation = torch.from_numpy(rng.normal(size=(T + 1, B, O)))
    action = torch.from_numpy(rng.uniform(-1, 1, size=(T + 1, B, A)))
    reward, done = torch.from_numpy(rng.normal(size=(T + 1, B))), torch.from_numpy(rng.random((T, B)) < 0.2)
    if timeout is not None:
        done = done | timeout
    return Samples(
        AgentSamples(action[1:], action[:-1], None),
        EnvSamples(observation[:-1], reward[1:], reward[:-1], done, env_info, timeout),
        None if timeout is None else torch.from_numpy(rng.normal(size=(T, B, O))),
    )


# --- Reference: one transition after the other, one layer after the other -----------------------------------------------


def mlp(model, x):
    *hidden, last = [m for m in model.mlp.model if isinstance(m, torch.nn.Linear)]
    for layer in hidden:
        x = (layer.weight @ x + layer.bias).clamp(min=0)
    return last.weight @ x + last.bias


def q_of(model, o, a):
    return mlp(model, torch.cat([o, a]))[0]


def v_of(model, o):
    return mlp(model, o)[0]


def mu_of(model, o):
    return torch.tanh(mlp(model, o))


def pi_of(model, o, noise):
    """Action, and log-density by change of variables."""
    out = mlp(model, o)
    mean, log_std = out[:A], out[A:]
    x = mean + log_std.exp() * noise
    a = torch.tanh(x)
    log_pi = sum(-0.5 * ((xi - m) / s.exp()) ** 2 - s - 0.5 * math.log(2 * math.pi) for xi, m, s in zip(x, mean, log_std))
    return a, log_pi - sum(torch.log(1 - ai**2) for ai in a)


def rows(samples):
    for i in range(len(samples.action)):
        yield (
            samples.agent_inputs.observation[i],
            samples.action[i],
            samples.return_[i],
            samples.bootstrap_discount[i],
            samples.target_inputs.observation[i],
        )


def mean(values):
    return sum(values) / len(values)


def check(losses, expected, parameters):
    """Losses, and gradients of each for its own parameters and for no others."""
    owned = [list(p) for p in parameters]
    for i, (loss, reference) in enumerate(zip(losses, expected, strict=True)):
        torch.testing.assert_close(loss.detach(), reference.detach())
        expected_grads = torch.autograd.grad(reference, owned[i], retain_graph=True)
        grads = torch.autograd.grad(loss, owned[i], retain_graph=True)
        for g, e in zip(grads, expected_grads):
            torch.testing.assert_close(g, e)
        others = [p for j, params in enumerate(owned) if j != i for p in params]
        if others:
            assert all(g is None for g in torch.autograd.grad(loss, others, retain_graph=True, allow_unused=True))


# --- Losses -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("clip", [1e6, 0.5])
def test_losses_of_ddpg_and_their_gradients_are_the_formulas(clip):
    algo, agent = make("ddpg", q_target_clip=clip)
    samples = replayed()
    q_terms, mu_terms = [], []
    for o, a, r, factor, o2 in rows(samples):
        with torch.no_grad():
            y = r + factor * q_of(agent.target_q_model, o2, mu_of(agent.target_model, o2))
        q_terms.append(0.5 * (y.clamp(-clip, clip) - q_of(agent.q_model, o, a)) ** 2)
        mu_terms.append(-q_of(agent.q_model, o, mu_of(agent.model, o)))
    losses = algo.mu_loss(samples, None), algo.q_loss(samples, None)
    check(losses, (mean(mu_terms), mean(q_terms)), (agent.mu_parameters(), agent.q_parameters()))


def test_losses_of_td3_and_their_gradients_are_the_formulas():
    algo, agent = make("td3", agent_settings=dict(target_noise_std=0.6, target_noise_clip=0.4))
    samples = replayed()
    torch.manual_seed(5)
    noise = (0.6 * torch.randn(12, A, dtype=torch.float64)).clamp(-0.4, 0.4)
    q_terms, mu_terms = [], []
    for (o, a, r, factor, o2), eps in zip(rows(samples), noise):
        with torch.no_grad():
            a2 = (mu_of(agent.target_model, o2) + eps).clamp(-1, 1)
            y = r + factor * min(q_of(agent.target_q_model, o2, a2), q_of(agent.target_q2_model, o2, a2))
        q_terms.append(0.5 * (y - q_of(agent.q_model, o, a)) ** 2 + 0.5 * (y - q_of(agent.q2_model, o, a)) ** 2)
        mu_terms.append(-q_of(agent.q_model, o, mu_of(agent.model, o)))
    torch.manual_seed(5)
    losses = algo.mu_loss(samples, None), algo.q_loss(samples, None)
    check(losses, (mean(mu_terms), mean(q_terms)), (agent.mu_parameters(), agent.q_parameters()))


@pytest.mark.parametrize("TL", [False, True], ids=["all valid", "unknown final observations"])
def test_the_policy_of_td3_that_also_clones_has_the_loss_of_the_formula(TL):
    algo, agent = make("td3", behavior_cloning=2.5)
    samples = replayed(TL=TL)
    valid = algo.valid_samples(samples) if TL else [True] * 12
    assert 4 < sum(valid) < 12 or not TL
    qs, distances = [], []
    for is_valid, (o, a, *_) in zip(valid, rows(samples)):
        if not is_valid:
            continue
        mu = mu_of(agent.model, o)
        qs.append(q_of(agent.q_model, o, mu))
        distances.append(sum((m - x) ** 2 for m, x in zip(mu, a)) / A)
    weight = 2.5 / mean([abs(q.item()) for q in qs])
    expected = mean([distance - weight * q for distance, q in zip(distances, qs)])
    check([algo.mu_loss(samples, valid if TL else None)], [expected], [agent.mu_parameters()])


def test_only_cloning_needs_an_agent_that_tells_its_action():
    class WithoutMu(Td3Agent):
        mu = property()  # Reading it is an AttributeError.

    for settings, context in (
        ({}, nullcontext()),
        (dict(behavior_cloning=2.5), pytest.raises(ValueError, match="needs an agent with .*, mu")),
    ):
        agent = WithoutMu()
        agent.initialize(SPACES)
        with context:
            TD3(replay_size=200, **settings).initialize(agent, 10, BatchSpec(T, B), True, EXAMPLES)


@pytest.mark.parametrize("prior", ["uniform", "gaussian"])
@pytest.mark.parametrize("fixed_alpha", [None, 0.2])
def test_losses_of_sac_and_their_gradients_are_the_formulas(prior, fixed_alpha):
    target = dict(target_entropy=-1.5) if fixed_alpha is None else {}
    algo, agent = make("sac", fixed_alpha=fixed_alpha, action_prior=prior, reward_scale=2.0, **target)
    alpha = fixed_alpha or 0.7
    algo._log_alpha.data = torch.tensor(math.log(alpha), dtype=torch.float64)
    samples = replayed()
    torch.manual_seed(5)
    noise2, noise = torch.randn(12, A, dtype=torch.float64), torch.randn(12, A, dtype=torch.float64)
    q1_terms, q2_terms, pi_terms, alpha_terms = [], [], [], []
    for (o, a, r, factor, o2), eps2, eps in zip(rows(samples), noise2, noise):
        with torch.no_grad():
            a2, log_pi2 = pi_of(agent.model, o2, eps2)
            y = 2.0 * r + factor * (min(q_of(agent.target_q1_model, o2, a2), q_of(agent.target_q2_model, o2, a2)) - alpha * log_pi2)
        q1_terms.append(0.5 * (y - q_of(agent.q1_model, o, a)) ** 2)
        q2_terms.append(0.5 * (y - q_of(agent.q2_model, o, a)) ** 2)
        new_a, log_pi = pi_of(agent.model, o, eps)
        log_prior = sum(-0.5 * x**2 - 0.5 * math.log(2 * math.pi) for x in new_a) if prior == "gaussian" else 0.0
        pi_terms.append(alpha * log_pi - min(q_of(agent.q1_model, o, new_a), q_of(agent.q2_model, o, new_a)) - log_prior)
        alpha_terms.append(-algo._log_alpha * (log_pi.detach() - 1.5))
    torch.manual_seed(5)
    losses, values = algo.loss(samples)
    expected = [mean(q1_terms), mean(q2_terms), mean(pi_terms)]
    assert not any(value.requires_grad for value in values)
    parameters = [agent.q1_parameters(), agent.q2_parameters(), agent.pi_parameters()]
    if fixed_alpha is None:
        expected.append(mean(alpha_terms))
        parameters.append([algo._log_alpha])
    else:
        assert losses[3] is None and algo.alpha_optimizer is None
        losses = losses[:3]
    check(losses, expected, parameters)


@pytest.mark.parametrize("name", ["sac", "sac_v"])
def test_a_prior_of_a_subclass_counts_whatever_the_setting(name, monkeypatch):
    algo, _ = make(name)
    i, samples = algo.optimizer_names.index("pi_optimizer"), replayed()
    losses = []
    for prior in (0.0, 0.5):
        monkeypatch.setattr(type(algo), "get_action_prior", lambda self, action, prior=prior: torch.full(action.shape[:1], prior))
        torch.manual_seed(5)
        losses.append(algo.loss(samples)[0][i].item())
    assert losses[0] - losses[1] == pytest.approx(0.5)


@pytest.mark.parametrize("prior", ["uniform", "gaussian"])
def test_losses_of_sac_v_and_their_gradients_are_the_formulas(prior):
    networks = dict(v_model_kwargs=dict(hidden_sizes=[5]))
    algo, agent = make("sac_v", action_prior=prior, reward_scale=2.0, policy_output_regularization=0.1, agent_settings=networks)
    samples = replayed()
    torch.manual_seed(5)
    noise = torch.randn(12, A, dtype=torch.float64)
    terms = [[], [], [], []]
    for (o, a, r, factor, o2), eps in zip(rows(samples), noise):
        with torch.no_grad():
            y = 2.0 * r + factor * v_of(agent.target_v_model, o2)
        new_a, log_pi = pi_of(agent.model, o, eps)
        log_prior = sum(-0.5 * x**2 - 0.5 * math.log(2 * math.pi) for x in new_a) if prior == "gaussian" else 0.0
        soft = min(q_of(agent.q1_model, o, new_a), q_of(agent.q2_model, o, new_a)) - log_pi + log_prior
        out = mlp(agent.model, o)
        terms[0].append(0.5 * (y - q_of(agent.q1_model, o, a)) ** 2)
        terms[1].append(0.5 * (y - q_of(agent.q2_model, o, a)) ** 2)
        terms[2].append(0.5 * (v_of(agent.v_model, o) - soft.detach()) ** 2)
        terms[3].append(-soft + 0.1 * (0.5 * (out[:A] ** 2).mean() + 0.5 * (out[A:] ** 2).mean()))
    torch.manual_seed(5)
    losses, _ = algo.loss(samples)
    parameters = agent.q1_parameters(), agent.q2_parameters(), agent.v_parameters(), agent.pi_parameters()
    check(losses, [mean(t) for t in terms], parameters)


# --- Updates ----------------------------------------------------------------------------------------------------------


@every_algo
def test_an_update_steps_every_network_from_gradients_at_the_same_parameters(name):
    """Against plain torch.optim.Adam on gradients of the algorithm's losses, for SAC; for DDPG and TD3 the policy follows Q."""
    algo, agent = make(name)
    twin_algo, twin = make(name)
    twin.load_state_dict(agent.state_dict())
    samples = replayed()
    torch.manual_seed(1)
    algo.update_counter = 1  # The next is one in which TD3 updates its policy.
    info, priorities = algo.update(samples)
    assert priorities is None and info._fields == algo.opt_info_fields
    torch.manual_seed(1)
    if name in ("ddpg", "td3"):
        lr = (1e-4, 1e-3) if name == "ddpg" else (1e-3, 1e-3)
        q_optimizer = torch.optim.Adam(twin.q_parameters(), lr=lr[1])
        twin_algo.q_loss(samples, None).backward()
        q_optimizer.step()
        mu_optimizer = torch.optim.Adam(twin.mu_parameters(), lr=lr[0])
        twin_algo.mu_loss(samples, None).backward()
        mu_optimizer.step()
    else:
        losses, _ = twin_algo.loss(samples)
        names = ["pi", "q1", "q2"] + ["v"] * (name == "sac_v")
        optimizers = [torch.optim.Adam(getattr(twin, f"{n}_parameters")(), lr=3e-4) for n in names]
        sum(loss for loss in losses if loss is not None).backward()
        for optimizer in optimizers:
            optimizer.step()
    for a, b in zip(agent.state_dict().values(), twin.state_dict().values()):
        for key in a:
            torch.testing.assert_close(a[key], b[key], rtol=1e-5, atol=1e-9)


@every_algo
def test_gradients_are_clipped_by_network_and_norms_are_those_before(name):
    algo, agent = make(name, clip_grad_norm=1e-3)
    algo.update_counter = 1
    info, _ = algo.update(replayed())
    for field in info._fields:
        if field.endswith("GradNorm"):
            assert getattr(info, field) > 1e-3
    networks = [agent.model.parameters()]
    networks += [agent.q_parameters()] if name in ("ddpg", "td3") else [agent.q1_parameters(), agent.q2_parameters()]
    for parameters in networks:
        norm = torch.linalg.vector_norm(torch.cat([p.grad.reshape(-1) for p in parameters]))
        assert norm.item() == pytest.approx(1e-3, rel=1e-2)


def test_td3_updates_its_policy_and_targets_every_other_update():
    algo, agent = make("td3")
    agent.update_target()
    algo.updates_per_optimize = 1
    for itr in range(8):
        before = copy.deepcopy(agent.state_dict())
        info = algo.optimize_agent(itr, batch(itr))
        after = agent.state_dict()
        moved = {key for key in after if any(not torch.equal(before[key][k], after[key][k]) for k in after[key])}
        if itr < algo.min_itr_learn:
            assert not moved
        elif algo.update_counter % 2:
            assert moved == {"q_model", "q2_model"} and not info.muLoss
        else:
            assert moved == set(after) and len(info.muLoss) == 1
    assert algo.update_counter == 6


def test_learning_rates_of_td3_are_the_ones_given():
    algo, _ = make("td3", mu_learning_rate=0.25, q_learning_rate=0.5)
    assert algo.mu_optimizer.param_groups[0]["lr"] == 0.25 and algo.q_optimizer.param_groups[0]["lr"] == 0.5
    assert algo.learning_rate == algo.mu_learning_rate == 0.25
    algo, _ = make("td3", learning_rate=0.125)
    assert algo.mu_optimizer.param_groups[0]["lr"] == algo.mu_learning_rate == 0.125
    assert TD3().learning_rate == 1e-3 and DDPG().learning_rate == 1e-4


@pytest.mark.parametrize("ratio, updates", [(0.001, 1), (8, 8), (16, 16)])
@every_algo
def test_there_is_at_least_one_update_per_iteration(name, ratio, updates):
    algo, _ = make(name, replay_ratio=ratio)
    assert algo.updates_per_optimize == updates


@every_algo
def test_learning_begins_after_min_steps_learn_and_the_agent_is_told(name):
    algo, agent = make(name)
    assert algo.min_itr_learn == agent.min_itr_learn == 2
    before = copy.deepcopy(list(agent.parameters()))
    counts = []
    for itr in range(4):
        info = algo.optimize_agent(itr, batch(itr))
        counts.append(len(info[0] if name != "td3" else info.qLoss))
        assert all(torch.equal(p, q) for p, q in zip(before, agent.parameters())) == (itr < 2)
    assert counts == [0, 0, 8, 8]
    assert all(isinstance(x, float) for field in info for x in field)


def test_what_is_logged_of_an_update_of_sac():
    algo, agent = make("sac", batch_size=32, replay_ratio=4)
    for itr in range(3):
        info = algo.optimize_agent(itr, batch(itr))
    assert {field: len(getattr(info, field)) for field in info._fields} == dict(
        q1Loss=1, q2Loss=1, piLoss=1, q1GradNorm=1, q2GradNorm=1, piGradNorm=1, q1=4, q2=4, piMu=4 * A, piLogStd=4 * A, qMeanDiff=1, alpha=1
    )  # fmt: skip
    assert info.alpha == [pytest.approx(float(algo._alpha))]

    class More(SAC):
        def append_opt_info_(self, opt_info, losses, grad_norms, values):
            super().append_opt_info_(opt_info, losses, grad_norms, values)
            opt_info.alpha.append(7.0)
            opt_info.q1.clear()

    algo.__class__ = More
    info = algo.optimize_agent(4, batch(4))
    assert info.alpha[1] == 7 and not info.q1


def test_priorities_that_are_not_updated_are_told_of(capsys):
    make("sac", ReplayBufferCls=PrioritizedReplayBuffer)
    expected = (
        "SAC does not update the priorities of PrioritizedReplayBuffer, so it draws all steps equally often: leave ReplayBufferCls None."
    )
    assert expected in capsys.readouterr().out
    make("sac", ReplayBufferCls=UniformReplayBuffer)
    assert "priorities" not in capsys.readouterr().out


def test_an_attribute_for_priorities_that_are_not_updated_is_told_of(monkeypatch, capsys):
    monkeypatch.setattr(SAC, "prioritized_replay", True)
    make("sac")
    assert "so it draws all steps equally often: set prioritized_replay to False, or let `update` return" in capsys.readouterr().out
    monkeypatch.setattr(SAC, "update", lambda self, batch: None)  # A user's, which may return priorities.
    make("sac")
    assert "priorities" not in capsys.readouterr().out


class RewardsAsPriorities(PrioritizedReplayBuffer):
    """May set priorities itself."""


class OwnExample(SAC):
    """Stores something else, for which there is no default buffer."""

    def default_replay_buffer_cls(self, example, async_=False):
        raise AssertionError("nobody asks for the default")


class OwnUpdate(SAC):
    def update(self, batch):
        """Trains in another way."""


class OwnSequences(UniformSequenceReplayBuffer):
    def __init__(self, **kwargs):
        super().__init__(rnn_state_interval=0, batch_T=4, **kwargs)


@pytest.mark.parametrize(
    "AlgoCls, ReplayBufferCls",
    [
        (SAC, functools.partial(UniformReplayBuffer)),
        (SAC, lambda **kwargs: UniformReplayBuffer(**kwargs)),
        (SAC, RewardsAsPriorities),
        (OwnExample, UniformReplayBuffer),
        (OwnUpdate, PrioritizedReplayBuffer),
        (OwnUpdate, OwnSequences),
    ],
)
def test_buffers_of_users_are_taken_without_a_word(AlgoCls, ReplayBufferCls, capsys):
    _, agent = make("sac")
    capsys.readouterr()
    algo = AlgoCls(ReplayBufferCls=ReplayBufferCls, replay_size=200, min_steps_learn=16, batch_size=8)
    algo.initialize(agent, 10, BatchSpec(T, B), True, EXAMPLES)
    assert "WARNING" not in capsys.readouterr().out


def test_a_buffer_of_sequences_is_refused_where_single_steps_are_replayed():
    with pytest.raises(
        ValueError, match="SAC replays single steps, for which UniformSequenceReplayBuffer is not made: .* UniformReplayBuffer"
    ):
        make("sac", ReplayBufferCls=UniformSequenceReplayBuffer)


def test_alpha_is_tuned_towards_the_target_entropy():
    for target_entropy, sign in ((-100.0, -1), (100.0, 1)):
        algo, _ = make("sac", target_entropy=target_entropy, learning_rate=0.1)
        algo.update(replayed())
        assert np.sign(algo._log_alpha.item()) == sign
    assert make("sac")[0]._target_entropy == -A
    algo, _ = make("sac", fixed_alpha=0.25)
    algo.update(replayed())
    assert algo._log_alpha.exp().item() == pytest.approx(0.25)


def test_without_entropy_sac_is_as_good_as_its_word():
    algo, _ = make("sac", fixed_alpha=0)
    algo.update(replayed())
    assert algo._log_alpha.exp().item() == 0


def test_an_automatic_target_entropy_is_that_of_each_agent():
    algo, _ = make("sac")
    agent = SacAgent()
    agent.initialize(EnvSpaces(FloatBox(-1, 1, (O,)), FloatBox(-1, 1, (5,))))
    assert algo.target_entropy == -A
    arguments = agent, 10, BatchSpec(T, B), True, dict(EXAMPLES, action=np.zeros(5))
    algo.initialize(*arguments)
    assert algo.target_entropy == algo._target_entropy == -5
    algo.target_entropy = -3
    algo.initialize(*arguments)
    assert algo.target_entropy == -3


def test_a_loss_of_ones_own_reads_the_automatic_target_entropy_as_a_number():
    class Mine(SAC):
        def loss(self, samples):
            losses, values = super().loss(samples)
            *_, log_pi, _ = self.agent.pi(*samples.agent_inputs)
            return (*losses[:3], -(self._log_alpha * (log_pi.detach() + self.target_entropy)).mean()), values

    algo, _ = make("sac")
    algo.__class__ = Mine
    algo.update(replayed())


def test_a_fixed_alpha_is_not_that_of_a_loaded_state():
    state = make("sac", fixed_alpha=0.5)[0].optim_state_dict()
    algo, _ = make("sac", fixed_alpha=0.1)
    algo.load_optim_state_dict(state)
    assert algo._log_alpha.exp().item() == pytest.approx(0.1)


@pytest.mark.parametrize("name", ["sac", "td3"])
def test_a_state_without_an_optimizer_is_refused_by_name(name):
    with pytest.raises(ValueError, match=f"the state has no {ALGOS[name][0].optimizer_names[0]}, but nothing"):
        make(name)[0].load_optim_state_dict({})


def test_both_names_of_the_policys_learning_rate_work():
    assert TD3(learning_rate=1e-4).mu_learning_rate == TD3(mu_learning_rate=1e-4).learning_rate == 1e-4
    assert TD3(learning_rate=1e-4, mu_learning_rate=1e-4).learning_rate == 1e-4


@pytest.mark.parametrize("name", ["ddpg", "td3"])
def test_agents_with_another_number_of_q_functions_are_refused(name):
    AlgoCls, other = ALGOS[name][0], ALGOS["td3" if name == "ddpg" else "ddpg"][1]
    agent = other()
    agent.initialize(SPACES)
    n = dict(ddpg=1, td3=2)[name]
    with pytest.raises(ValueError, match=f"with {n} Q-functions, such as .*; rlpyt.agents.qpg.*{other.__name__} is not one"):
        AlgoCls().initialize(agent, 10, BatchSpec(T, B), True, EXAMPLES)


def test_what_ended_truncated_episodes_is_kept_also_if_an_override_forgets_it():
    class Mine(SAC):
        def samples_to_buffer(self, samples):
            env = samples.env
            return SamplesToBuffer(env.observation, samples.agent.action, env.reward, env.done, self._timeout(env))

    agent = SacAgent()
    agent.initialize(SPACES)
    algo = Mine(replay_size=200, min_steps_learn=100)
    algo.initialize(agent, 10, BatchSpec(T, B), True, EXAMPLES)
    zeros, done = torch.zeros(T, B), torch.zeros(T, B, dtype=torch.bool)
    done[1, 0] = True
    observation, action, final = torch.zeros(T, B, O), torch.zeros(T, B, A), torch.full((1, B, O), 7.0)
    env = EnvSamples(observation, zeros, zeros, done, None, done, observation)
    algo.optimize_agent(0, Samples(AgentSamples(action, action, None), env, final))
    batch = algo.replay_buffer.sample_batch(50)
    truncated = batch.target_inputs.observation[batch.done_n.bool()]
    assert len(truncated) and (truncated == 7).all()


def test_another_initialization_starts_from_nothing():
    algo, agent = make("sac")
    algo.update_counter, algo._graphed_update = 5, object()
    algo.initialize(agent, 10, BatchSpec(T, B), True, EXAMPLES)
    assert algo.update_counter == 0 and algo._graphed_update is None


@every_algo
def test_optimizer_states_are_restored(name):
    algo, agent = make(name)
    for seed in range(3):
        algo.update(replayed(seed=seed))
        algo.update_counter += 1
    state, agent_state = copy.deepcopy(algo.optim_state_dict()), copy.deepcopy(agent.state_dict())
    restored, twin = make(name, initial_optim_state_dict=state)
    restored.update_counter = algo.update_counter
    twin.load_state_dict(agent_state)
    if name == "sac":
        assert state["log_alpha"].item() == restored._log_alpha.item() != 0
    for a in (algo, restored):
        torch.manual_seed(3)
        a.update(replayed(seed=4))
    for a, b in zip(agent.state_dict().values(), twin.state_dict().values()):
        assert all(torch.equal(a[key], b[key]) for key in a)


def test_settings_that_an_initial_optimizer_state_replaces_are_logged(capfd):
    state = make("sac", learning_rate=3e-4)[0].optim_state_dict()
    algo, _ = make("sac", learning_rate=1e-5, optim_kwargs=dict(betas=(0.5, 0.9)), initial_optim_state_dict=state)
    assert algo.pi_optimizer.param_groups[0]["lr"] == 3e-4
    says = "WARNING: pi_optimizer has lr=0.0003 instead of 1e-05, betas=(0.9, 0.999) instead of (0.5, 0.9): the settings in initial_optim"
    assert says in capfd.readouterr().out
    make("sac", learning_rate=1e-5, lr_schedule="constant", initial_optim_state_dict=state)  # It sets the rate itself.
    make("sac", learning_rate=3e-4, initial_optim_state_dict=state)
    with_others = copy.deepcopy(state)
    for saved in with_others.values():
        if isinstance(saved, dict):
            saved["param_groups"][0].update(lr=float(np.float32(3e-4)), betas=[0.9, 0.999], param_names=["a"], mine=torch.ones(3))
    make("sac", learning_rate=3e-4, initial_optim_state_dict=with_others)
    assert "WARNING" not in capfd.readouterr().out


def test_an_optimizer_state_for_other_settings_is_refused():
    state = make("sac")[0].optim_state_dict()
    with pytest.raises(ValueError, match="alpha_optimizer does not fit"):
        make("sac", fixed_alpha=0.1, initial_optim_state_dict=state)


def _train_together(rank, path, pipe, name):
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=2)
    torch.manual_seed(rank)
    np.random.seed(rank)
    AgentCls, AlgoCls, more = dict(sac=(SacAgent, SAC, {}), redq=(EnsembleSacAgent, EnsembleSAC, dict(policy_update_interval=3)))[name]
    agent = AgentCls(model_kwargs=dict(hidden_sizes=[6]), q_model_kwargs=dict(hidden_sizes=[6]))
    agent.initialize(SPACES)
    agent.data_parallel()
    algo = AlgoCls(min_steps_learn=8, replay_size=200, batch_size=8, replay_ratio=4, **more)
    algo.initialize(agent, 10, BatchSpec(T, B), True, EXAMPLES, world_size=2, rank=rank)
    agent.train_mode(0)
    for itr in range(6):
        algo.optimize_agent(itr, batch(10 * itr + rank))
    pipe.send(pickle.dumps((agent.state_dict(), algo._log_alpha.item(), algo.update_counter)))
    torch.distributed.destroy_process_group()


@processes
@full
@pytest.mark.parametrize("name", ["sac", "redq"])
def test_processes_that_train_together_have_the_same_networks_and_alpha(tmp_path, name):
    ctx = mp.get_context("spawn")
    pipes = [ctx.Pipe() for _ in range(2)]
    processes = [ctx.Process(target=_train_together, args=(r, str(tmp_path / "group"), pipes[r][1], name), daemon=True) for r in range(2)]
    for process in processes:
        process.start()
    results = []
    for mine, _ in pipes:
        assert mine.poll(120), "a process does not answer"
        results.append(pickle.loads(mine.recv()))
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    (state, log_alpha, updates), (other, other_log_alpha, _) = results
    assert log_alpha == other_log_alpha != 0 and updates > 10
    for key in state:
        for name in state[key]:
            torch.testing.assert_close(state[key][name], other[key][name])


# --- Replay -----------------------------------------------------------------------------------------------------------


@every_algo
def test_n_step_returns_are_discounted(name):
    algo, _ = make(name, n_step_return=3, discount=0.5)
    samples = batch(T=8)
    samples.env.done[:] = False
    algo.replay_buffer.append_samples(algo.samples_to_buffer(samples))
    got = algo.replay_buffer.extract_batch(np.array([2]), np.array([1]))
    r = samples.env.reward[:, 1]
    assert got.return_.item() == pytest.approx((r[2] + 0.5 * r[3] + 0.25 * r[4]).item())
    assert got.bootstrap_discount.item() == 0.125


@every_algo
@pytest.mark.parametrize("bootstrap_timelimit", [True, False])
@pytest.mark.parametrize("where", ["env", "env_info"])
def test_time_limits_are_bootstrapped_from_the_final_observation_or_are_terminations(name, bootstrap_timelimit, where):
    algo, _ = make(name, discount=0.5, bootstrap_timelimit=bootstrap_timelimit)
    timeout = torch.zeros(8, B, dtype=torch.bool)
    timeout[3, 1] = True
    samples = batch(T=8, timeout=timeout)
    samples.env.done[:] = timeout
    if where == "env_info":
        info = namedarraytuple("Info", ["timeout"])(timeout)
        samples = samples._replace(env=samples.env._replace(timeout=None, env_info=info))
    algo.replay_buffer.append_samples(algo.samples_to_buffer(samples))
    got = algo.replay_buffer.extract_batch(np.array([3]), np.array([1]))
    assert got.bootstrap_discount.item() == (0.5 if bootstrap_timelimit else 0)
    if bootstrap_timelimit:
        torch.testing.assert_close(got.target_inputs.observation[0], samples.final_observation[0, 1])


@pytest.mark.parametrize("name", ["ddpg", "td3", "sac", "sac_v"])
def test_samples_whose_final_observation_is_missing_are_left_out_of_the_loss(name):
    algo, agent = make(name)
    samples = replayed(TL=True)
    missing = samples.timeout_n & (samples.bootstrap_discount == 0)
    assert missing.any() and not missing.all() and (samples.timeout_n & ~missing).any()
    assert torch.equal(algo.valid_samples(samples), ~missing)

    def q_loss(samples):
        torch.manual_seed(0)
        if name in ("ddpg", "td3"):
            return algo.q_loss(samples, algo.valid_samples(samples)).item()
        return algo.loss(samples)[0][0].item()

    spoiled = samples._replace(return_=torch.where(missing, 1e9, samples.return_))
    assert q_loss(samples) == q_loss(spoiled) != 0
    documented = samples._replace(bootstrap_discount=None)
    assert torch.equal(algo.valid_samples(documented), ~samples.timeout_n)
    algo.bootstrap_timelimit = False
    assert algo.valid_samples(samples) is None
    nothing = samples._replace(timeout_n=torch.ones_like(samples.timeout_n), bootstrap_discount=torch.zeros(12).double())
    algo.bootstrap_timelimit = True
    algo.update_counter = 1
    algo.update(nothing)
    assert all(torch.isfinite(p).all() for p in agent.parameters())


def test_without_bootstrapping_truncated_samples_are_learned_from():
    """With discount 0, the target is the reward alone, so that no final observation is missing."""
    algo, _ = make("sac", discount=0, n_step_return=2, ReplayBufferCls=TlUniformReplayBuffer)
    for seed in range(6):
        samples = batch(seed, timeout=torch.from_numpy(np.random.default_rng(seed).random((T, B)) < 0.3))
        algo.append(samples._replace(final_observation=None))
    sampled = algo.replay_buffer.sample_batch(64)
    assert sampled.timeout_n.any() and not sampled.bootstrap_discount.any() and algo.valid_samples(sampled) is None


@every_algo
@pytest.mark.parametrize("bootstrap_timelimit", [True, False])
@pytest.mark.parametrize("final_observations", thinned([True, False], quick=[True]))
def test_the_documented_time_limit_buffers_work(name, bootstrap_timelimit, final_observations):
    algo, _ = make(name, ReplayBufferCls=TlUniformReplayBuffer, bootstrap_timelimit=bootstrap_timelimit, n_step_return=2)
    for itr in range(6):
        timeout = torch.from_numpy(np.random.default_rng(itr).random((T, B)) < 0.3)
        samples = batch(itr, timeout=timeout)
        if not final_observations:
            samples = samples._replace(final_observation=None)
        info = algo.optimize_agent(itr, samples)
    assert isinstance(algo.replay_buffer, TlUniformReplayBuffer)
    assert info[0] and all(map(math.isfinite, info[0]))


@every_algo
def test_blank_rows_of_a_sampler_that_waits_with_resets_are_never_replayed(name):
    algo, _ = make(name, mid_batch_reset=False, n_step_return=2)
    for seed in range(8):
        samples = batch(seed)
        ended = samples.env.done.cumsum(0) > 0
        samples.env.done[:] = ended
        after = torch.zeros_like(ended)
        after[1:] = ended[:-1]
        samples.env.reward[after] = 77.0
        algo.optimize_agent(seed, samples)
    assert (algo.replay_buffer.samples.reward == 77).any()
    got = algo.replay_buffer.sample_batch(2000)
    assert got.done.any() and got.return_.max() < 70


@every_algo
def test_the_buffer_of_an_asynchronous_runner_is_shared(name):
    algo, agent = make(name)
    assert type(algo.replay_buffer) is UniformReplayBuffer
    agent.give_min_itr_learn(0)
    buffer = algo.async_initialize(agent, 100, BatchSpec(T, B), True, EXAMPLES)
    assert type(buffer) is AsyncUniformReplayBuffer and agent.min_itr_learn == algo.min_itr_learn == 2
    algo.ReplayBufferCls = AsyncTlUniformReplayBuffer
    assert type(algo.async_initialize(agent, 100, BatchSpec(T, B), True, EXAMPLES)) is AsyncTlUniformReplayBuffer
    assert algo.updates_per_optimize == algo.updates_per_sync == 1


# --- Settings ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make_algo",
    [
        lambda: DDPG(policy_update_interval=0),
        lambda: DDPG(q_target_clip=0),
        lambda: DDPG(q_learning_rate=-1),
        lambda: TD3(mu_learning_rate=-1),
        lambda: TD3(discount=2),
        lambda: SAC(learning_rate="fast"),
        lambda: SAC(fixed_alpha=-1),
        lambda: SAC(fixed_alpha="auto"),
        lambda: SAC(reward_scale="2"),
        lambda: DDPG(bootstrap_timelimit="no"),
        lambda: TD3(mu_learning_rate=5e-3, learning_rate=1e-4),
        lambda: SAC(target_entropy="large"),
        lambda: SAC(action_prior="normal"),
        lambda: SAC(reparameterize=False),
        lambda: SAC(batch_size=0),
        lambda: SAC_V(policy_output_regularization=-1),
        lambda: SAC_V(reparameterize=False),
        lambda: SAC_V(clip_grad_norm=0),
    ],
)
def test_impossible_settings_are_refused_by_name(make_algo):
    with pytest.raises(ValueError, match="^(DDPG|TD3|SAC|SAC_V): .* (must be|are two names)|reparameterize"):
        make_algo()


@every_algo
def test_constructor_arguments_are_attributes(name):
    algo = ALGOS[name][0](batch_size=7, target_update_tau=0.3, bootstrap_timelimit=False, n_step_return=2)
    assert (algo.batch_size, algo.target_update_tau, algo.bootstrap_timelimit, algo.n_step_return) == (7, 0.3, False, 2)


@every_algo
def test_an_agent_of_another_family_is_refused(name):
    AlgoCls, _ = ALGOS[name]
    with pytest.raises(ValueError, match=f"{AlgoCls.__name__} needs an agent with .*MlpDqnAgent is not one"):
        AlgoCls().initialize(MlpDqnAgent(), 10, BatchSpec(T, B), True, EXAMPLES)


def test_names_of_modules():
    from rlpyt.algos import replay
    from rlpyt.algos.dqn import dqn
    from rlpyt.algos.qpg import ddpg, sac, sac_v

    fields = ("observation", "action", "reward", "done")
    assert sac.SamplesToBuffer._fields[:4] == fields and sac.SamplesToBufferTl._fields[:5] == fields + ("timeout",)
    assert ddpg.SamplesToBuffer is sac_v.SamplesToBuffer is dqn.SamplesToBuffer is replay.SamplesToBuffer
    assert ddpg.OptInfo._fields == DDPG.opt_info_fields == TD3.opt_info_fields
    assert sac_v.OptInfo._fields == SAC_V.opt_info_fields and sac.OptInfo._fields == SAC.opt_info_fields


class OwnBoundsAgent(SacAgent):
    """Assigns a distribution of its own."""

    def initialize(self, env_spaces, share_memory=False, global_B=1, env_ranks=None):
        super().initialize(env_spaces, share_memory, global_B=global_B, env_ranks=env_ranks)
        self.distribution = Gaussian(dim=A, squash=2.0, min_std=math.exp(-20), max_std=math.exp(2))


@pytest.mark.parametrize("AgentCls, is_warned", [(SacAgent, True), (OwnBoundsAgent, False)])
def test_bounds_of_actions_are_compared_with_those_of_the_final_distribution(AgentCls, is_warned, capsys):
    agent = AgentCls()
    agent.initialize(EnvSpaces(SPACES.observation, FloatBox(-2, 2, (A,))))
    SAC(replay_size=200).initialize(agent, 10, BatchSpec(T, B), True, EXAMPLES)
    assert ("its action_squash" in capsys.readouterr().out) == is_warned
