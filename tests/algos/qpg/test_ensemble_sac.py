import math

import numpy as np
import pytest
import torch
from algos.qpg.test_qpg_algos import EXAMPLES, SPACES, A, check, mean, pi_of, replayed, rows
from experience import in_float64
from tiers import processes, thinned

from rlpyt.agents.base import AgentInputs
from rlpyt.agents.qpg.ensemble_sac_agent import DiscreteSacAgent, EnsembleSacAgent
from rlpyt.agents.qpg.sac_agent import SacAgent
from rlpyt.agents.qpg.sac_v_agent import SacAgent as SacVAgent
from rlpyt.algos.qpg.ensemble_sac import DiscreteSAC, EnsembleSAC
from rlpyt.algos.qpg.sac import SAC
from rlpyt.algos.qpg.sac_v import SAC_V
from rlpyt.envs.base import EnvSpaces
from rlpyt.envs.gym import make as gym_make
from rlpyt.models.batch_renorm import BatchRenorm
from rlpyt.models.qpg.ensemble import EnsembleLayerNorm, EnsembleLinear, QEnsembleModel
from rlpyt.replays.non_sequence.n_step import SamplesFromReplay
from rlpyt.runners.minibatch_rl import MinibatchRl
from rlpyt.samplers.collections import BatchSpec
from rlpyt.samplers.parallel.cpu.sampler import CpuSampler
from rlpyt.samplers.parallel.gpu.alternating_sampler import AlternatingSampler
from rlpyt.samplers.parallel.gpu.sampler import GpuSampler
from rlpyt.samplers.serial.sampler import SerialSampler
from rlpyt.spaces.composite import Composite
from rlpyt.spaces.int_box import IntBox
from rlpyt.utils.collections import namedarraytuple

T, B, N_ACTIONS = 4, 2, 3
DISCRETE = EnvSpaces(SPACES.observation, IntBox(0, N_ACTIONS))
DISCRETE_EXAMPLES = dict(EXAMPLES, action=np.int64(0))
SIZES = dict(hidden_sizes=[6, 5])


def make(algo, agent, spaces=SPACES, examples=EXAMPLES):
    """Algorithm and agent in float64, to compare with formulas; the target network away from the critics."""
    torch.manual_seed(0)
    agent.initialize(spaces)
    in_float64(agent)
    algo.initialize(agent, 10, BatchSpec(T, B), True, examples)
    agent.train_mode(0)
    if agent.target_networks:
        with torch.no_grad():
            for parameter in agent.target_q_model.parameters():
                parameter.add_(0.3 * torch.randn_like(parameter))
    algo._log_alpha.data = torch.tensor(math.log(0.7), dtype=torch.float64)
    return algo, agent


def small(**settings):
    return dict(dict(replay_size=200, min_steps_learn=16, batch_size=8, replay_ratio=8), **settings)


def ensemble(agent_settings, q_settings=None, pi_settings=None, **settings):
    agent = EnsembleSacAgent(
        model_kwargs=dict(SIZES, **(pi_settings or {})), q_model_kwargs=dict(SIZES, **(q_settings or {})), **agent_settings
    )
    return make(EnsembleSAC(**small(**settings)), agent)


def critic(model, i, x):
    """Outputs of critic number i for one input, one layer after the other."""
    for layer in model.mlp:
        if isinstance(layer, EnsembleLinear):
            x = layer.weight[i] @ x + layer.bias[i]
        elif isinstance(layer, EnsembleLayerNorm):
            x = (x - x.mean()) / (x.var(correction=0) + 1e-5).sqrt() * layer.weight[i, 0] + layer.bias[i, 0]
        else:
            x = x.clamp(min=0)
    return x


def huber(delta):
    return 0.5 * delta**2 if abs(delta) <= 1 else abs(delta) - 0.5


def noises(n=12):
    torch.manual_seed(5)
    return torch.randn(n, A, dtype=torch.float64), torch.randn(n, A, dtype=torch.float64)


@pytest.mark.parametrize("value", ["min", "mean"])
@pytest.mark.parametrize("layer_norm", [False, True])
def test_losses_of_many_critics_and_their_gradients_are_the_formulas(layer_norm, value):
    algo, agent = ensemble(dict(n_critics=4), dict(layer_norm=layer_norm), policy_value=value, reward_scale=2.0, target_entropy=-1.5)
    samples, (noise2, noise) = replayed(), noises()
    q_terms, pi_terms, alpha_terms = [], [], []
    for (o, a, r, factor, o2), eps2, eps in zip(rows(samples), noise2, noise):
        with torch.no_grad():
            a2, log_pi2 = pi_of(agent.model, o2, eps2)
            next_q = [critic(agent.target_q_model, i, torch.cat([o2, a2]))[0] for i in range(4)]
            y = 2.0 * r + factor * (min(next_q) - 0.7 * log_pi2)
        q_terms.append(sum(0.5 * (y - critic(agent.q_model, i, torch.cat([o, a]))[0]) ** 2 for i in range(4)))
        new_a, log_pi = pi_of(agent.model, o, eps)
        qs = [critic(agent.q_model, i, torch.cat([o, new_a]))[0] for i in range(4)]
        pi_terms.append(0.7 * log_pi - (min(qs) if value == "min" else mean(qs)))
        alpha_terms.append(-algo._log_alpha * (log_pi.detach() - 1.5))
    noises()
    torch.manual_seed(5)
    losses, values = algo.loss(samples)
    parameters = agent.q_parameters(), agent.pi_parameters(), [algo._log_alpha]
    check(losses, [mean(q_terms), mean(pi_terms), mean(alpha_terms)], parameters)
    assert values[0].shape == (12, 4) and not any(v.requires_grad for v in values)


def test_targets_take_a_few_critics_drawn_anew_for_each_update(monkeypatch):
    algo, agent = ensemble(dict(n_critics=5), n_target_critics=2)
    q = torch.randn(1, 5, dtype=torch.float64).expand(12, 5)
    seen = {algo.least(q)[0].item() for _ in range(200)}
    pairs = {min(q[0, i].item(), q[0, j].item()) for i in range(5) for j in range(i)}
    assert seen == pairs, "each pair of critics was taken, and never more than two"
    assert len(algo.least(q).unique()) == 1, "the same for the whole batch"


class AllAtOnce(EnsembleSacAgent):
    """A user's agent, whose target networks know no other way."""

    def target_q(self, *inputs):
        q = super().target_q(*inputs)
        self.shapes.append(tuple(q.shape))
        return q


class Model(QEnsembleModel):
    """A user's model, whose layers need not be [n_critics,...]."""


def with_another_layer(**settings):
    """A model with a layer that might have parameters which all critics share."""
    model = QEnsembleModel(**settings)
    model.mlp[1] = torch.nn.Threshold(0.0, 0.0)
    return model


USERS = [(AllAtOnce, QEnsembleModel), (EnsembleSacAgent, Model), (EnsembleSacAgent, with_another_layer)]


@pytest.mark.parametrize("AgentCls, QModelCls", [(EnsembleSacAgent, QEnsembleModel), *USERS])
def test_targets_are_the_least_of_the_drawn_critics_whoever_computes_them(AgentCls, QModelCls, monkeypatch):
    agent = AgentCls(model_kwargs=SIZES, q_model_kwargs=SIZES, n_critics=5, QModelCls=QModelCls)
    agent.shapes = []
    algo, _ = make(EnsembleSAC(**small(n_target_critics=2)), agent)
    monkeypatch.setattr(algo, "drawn_critics", lambda n: torch.tensor([3, 1]) if n == 5 else None)
    computed = []
    agent.target_q_model.register_forward_hook(lambda model, inputs, q: computed.append(q.shape[1]))
    samples, (noise2, _) = replayed(), noises()
    torch.manual_seed(5)
    _, y = algo.q_and_target(samples, torch.tensor(0.7, dtype=torch.float64))
    for (_, _, r, factor, o2), eps2, found in zip(rows(samples), noise2, y):
        with torch.no_grad():
            a2, log_pi2 = pi_of(agent.model, o2, eps2)
            next_q = [critic(agent.target_q_model, i, torch.cat([o2, a2]))[0] for i in (1, 3)]
        torch.testing.assert_close(found, r + factor * (min(next_q) - 0.7 * log_pi2))
    ours = AgentCls is EnsembleSacAgent and QModelCls is QEnsembleModel
    assert set(computed) == {2 if ours else 5} and bool(agent.shapes) == (AgentCls is AllAtOnce)


def test_each_pair_of_target_networks_is_drawn(monkeypatch):
    algo, agent = ensemble(dict(n_critics=5), n_target_critics=2)
    inputs, drawn = (*replayed().target_inputs, torch.zeros(12, A, dtype=torch.float64)), []
    target_q_of = agent.target_q_of
    monkeypatch.setattr(agent, "target_q_of", lambda critics, *inputs: (drawn.append(critics), target_q_of(critics, *inputs))[1])
    assert {tuple(algo.target_q(*inputs).shape) for _ in range(200)} == {(12, 2)}
    assert {tuple(sorted(critics.tolist())) for critics in drawn} == {(i, j) for j in range(5) for i in range(j)}


@pytest.mark.parametrize("name", ["least", "q_and_target"])
def test_methods_of_a_user_get_all_critics(name):
    class Mine(EnsembleSAC):
        def least(self, q):
            shapes.append(q.shape[1])
            return q.amin(dim=1)

        def q_and_target(self, samples, alpha):
            return self.q_and_next_q(samples, (samples.action,), (samples.action,))

    delattr(Mine, {"least": "q_and_target", "q_and_target": "least"}[name])
    shapes = []
    algo, _ = make(Mine(**small(n_target_critics=2)), EnsembleSacAgent(model_kwargs=SIZES, q_model_kwargs=SIZES, n_critics=5))
    q, target = algo.q_and_target(replayed(), torch.tensor(0.7, dtype=torch.float64))
    assert shapes == [5] if name == "least" else target.shape == q.shape == (12, 5)


def test_with_two_critics_losses_and_updates_are_those_of_sac():
    def twins():
        agent = SacAgent(model_kwargs=SIZES, q_model_kwargs=SIZES)
        agent.initialize(SPACES)
        algo = SAC(**small())
        algo.initialize(agent, 10, BatchSpec(T, B), True, EXAMPLES)
        agent.train_mode(0)
        return algo, agent

    torch.manual_seed(0)
    sac, twin_agent = twins()
    agent = EnsembleSacAgent(model_kwargs=SIZES, q_model_kwargs=SIZES)
    agent.initialize(SPACES)
    state = {"model": twin_agent.state_dict()["model"]}
    for name, (q1, q2) in dict(q_model=("q1_model", "q2_model"), target_q_model=("target_q1_model", "target_q2_model")).items():
        pairs = zip(getattr(twin_agent, q1).parameters(), getattr(twin_agent, q2).parameters())
        state[name] = dict(zip(getattr(agent, name).state_dict(), [torch.stack(pair).detach() for pair in pairs], strict=True))
    agent.load_state_dict(state)
    algo = EnsembleSAC(**small())
    algo.initialize(agent, 10, BatchSpec(T, B), True, EXAMPLES)
    agent.train_mode(0)
    for seed in range(3):
        batch = replayed(seed=seed)
        infos = []
        for each in (sac, algo):
            torch.manual_seed(seed)
            infos.append(each.update(batch)[0])
            each.agent.update_target(0.1)
        assert infos[1].qLoss.item() == pytest.approx(infos[0].q1Loss.item() + infos[0].q2Loss.item(), rel=1e-4)
        torch.testing.assert_close(infos[1].piLoss, infos[0].piLoss, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(infos[1].alpha, infos[0].alpha)
    for p, (p1, p2) in zip(
        agent.target_q_model.parameters(), zip(*(m.parameters() for m in (twin_agent.target_q1_model, twin_agent.target_q2_model)))
    ):
        torch.testing.assert_close(p, torch.stack([p1, p2]), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dropped", [0, 1, 3])
def test_losses_of_truncated_quantile_critics_and_their_gradients_are_the_formulas(dropped):
    n, Q = 3, 4
    algo, agent = ensemble(dict(n_critics=n, n_quantiles=Q), policy_value="mean", n_dropped_quantiles=dropped)
    samples, (noise2, noise) = replayed(), noises()
    q_terms, pi_terms, alpha_terms = [], [], []
    for (o, a, r, factor, o2), eps2, eps in zip(rows(samples), noise2, noise):
        with torch.no_grad():
            a2, log_pi2 = pi_of(agent.model, o2, eps2)
            pooled = sorted(z.item() for i in range(n) for z in critic(agent.target_q_model, i, torch.cat([o2, a2])))
            ys = [r + factor * (z - 0.7 * log_pi2) for z in pooled[: n * (Q - dropped)]]
        term = 0.0
        for i in range(n):
            for k, theta in enumerate(critic(agent.q_model, i, torch.cat([o, a]))):
                fraction = (k + 0.5) / Q
                term = term + mean([abs(fraction - float(y < theta)) * huber(y - theta) for y in ys]) / Q
        q_terms.append(term)
        new_a, log_pi = pi_of(agent.model, o, eps)
        pi_terms.append(0.7 * log_pi - mean([critic(agent.q_model, i, torch.cat([o, new_a])).mean() for i in range(n)]))
        alpha_terms.append(-algo._log_alpha * (log_pi.detach() - float(A)))
    torch.manual_seed(5)
    losses, values = algo.loss(samples)
    check(losses, [mean(q_terms), mean(pi_terms), mean(alpha_terms)], (agent.q_parameters(), agent.pi_parameters(), [algo._log_alpha]))
    assert values[0].shape == (12, n)


def layers_over_a_batch(mlp, x, running):
    """Outputs of a perceptron with batch renormalization in its warm-up, of a whole batch; by statistics of the batch or running ones."""
    for layer in mlp:
        if isinstance(layer, BatchRenorm):
            mean_, var = (
                (layer.running_mean, layer.running_var) if running else (x.mean(-2, keepdim=True), x.var(-2, keepdim=True, correction=0))
            )
            x = (x - mean_) / (var + 1e-3).sqrt() * layer.weight + layer.bias
        elif isinstance(layer, EnsembleLinear):
            x = x @ layer.weight.mT + layer.bias[:, None]
        elif isinstance(layer, torch.nn.Linear):
            x = x @ layer.weight.T + layer.bias
        else:
            x = x.clamp(min=0)
    return x


def ends_that_count(samples):
    """Next observations; after a termination the observations themselves."""
    pairs = zip(samples.bootstrap_discount, samples.target_inputs.observation, samples.agent_inputs.observation)
    return torch.stack([after if discount > 0 else before for discount, after, before in pairs])


def test_what_follows_a_termination_or_does_not_count_is_not_in_the_statistics_of_critics_without_target_networks():
    samples = replayed(TL=True)
    unused = samples.bootstrap_discount == 0
    assert (unused & samples.timeout_n).any() and (unused & ~samples.timeout_n).any()
    found = []
    for garbage in (0.0, 1e3):
        algo, agent = ensemble(dict(target_networks=False), dict(batch_renorm=True), dict(batch_renorm=True))
        observation = torch.where(unused[:, None], garbage, samples.target_inputs.observation)
        torch.manual_seed(5)
        losses, _ = algo.loss(samples._replace(target_inputs=samples.target_inputs._replace(observation=observation)))
        found.append(([loss.detach() for loss in losses], agent.state_dict()["q_model"]))
    assert all(map(torch.equal, found[0][0], found[1][0]))
    assert all(torch.equal(found[0][1][name], found[1][1][name]) for name in found[0][1])


def test_samples_that_do_not_count_have_no_part_in_the_losses():
    samples = replayed(TL=True)
    unused = samples.timeout_n & ~(samples.bootstrap_discount > 0)
    assert unused.any() and not unused.all()
    algo, _ = ensemble({})
    found = []
    for garbage in (0.0, 3.0):
        return_ = torch.where(unused, 1e9 * garbage, samples.return_)
        observation = torch.where(unused[:, None], garbage, samples.agent_inputs.observation)
        others = samples._replace(return_=return_, agent_inputs=samples.agent_inputs._replace(observation=observation))
        torch.manual_seed(5)
        found.append(algo.loss(others)[0])
    assert len(found[0]) == 3 and all(map(torch.equal, *found))


def test_the_prior_of_actions_is_in_the_loss_of_the_policy():
    samples, found = replayed(), []
    for prior in ("uniform", "gaussian"):
        algo, agent = ensemble({}, action_prior=prior)
        torch.manual_seed(5)
        found.append(algo.loss(samples)[0][1])
    with torch.no_grad():
        torch.manual_seed(5)
        agent.target_pi(*samples.target_inputs)
        action, *_ = agent.pi(*samples.agent_inputs)
    log_prior = torch.distributions.Normal(0, 1).log_prob(action).sum(-1)
    torch.testing.assert_close(found[1], found[0] - log_prior.mean())


def test_losses_without_target_networks_and_their_gradients_are_the_formulas():
    algo, agent = ensemble(dict(target_networks=False), dict(batch_renorm=True), dict(batch_renorm=True))
    for layer in [*agent.model.modules(), *agent.q_model.modules()]:
        if isinstance(layer, BatchRenorm):
            layer.running_mean.normal_(), layer.running_var.uniform_(0.5, 2)
    samples, (noise2, noise) = replayed(), noises()
    o, o2 = samples.agent_inputs.observation, ends_that_count(samples)

    def squashed(outputs, eps):
        mean_, log_std = outputs.chunk(2, -1)
        x = mean_ + log_std.exp() * eps
        log_pi = (-0.5 * eps**2 - log_std - 0.5 * math.log(2 * math.pi) - torch.log(1 - torch.tanh(x) ** 2)).sum(-1)
        return torch.tanh(x), log_pi

    with torch.no_grad():
        a2, log_pi2 = squashed(layers_over_a_batch(agent.model.mlp, o2, running=True), noise2)
    both = torch.cat([torch.cat([o, samples.action], 1), torch.cat([o2, a2], 1)])
    q, next_q = layers_over_a_batch(agent.q_model.mlp, both, running=False)[..., 0].split(12, dim=1)  # [2,12] each
    y = samples.return_ + samples.bootstrap_discount * (next_q.detach().amin(0) - 0.7 * log_pi2)
    q_loss = (0.5 * (y - q) ** 2).sum(0).mean()
    # The running statistics of the critics, by which the policy sees them, have moved by the loss of the critics.
    before = {name: value.clone() for name, value in agent.q_model.state_dict().items()}
    torch.manual_seed(5)
    losses, _ = algo.loss(samples)
    assert any(not torch.equal(value, before[name]) for name, value in agent.q_model.state_dict().items())
    new_a, log_pi = squashed(layers_over_a_batch(agent.model.mlp, o, running=False), noise)
    min_q = layers_over_a_batch(agent.q_model.mlp, torch.cat([o, new_a], 1), running=True)[..., 0].amin(0)
    alpha_loss = -algo._log_alpha * (log_pi.detach() - A).mean()
    parameters = agent.q_parameters(), agent.pi_parameters(), [algo._log_alpha]
    check(losses, [q_loss, (0.7 * log_pi - min_q).mean(), alpha_loss], parameters)
    assert set(agent.state_dict()) == {"model", "q_model"}
    agent.update_target()


def test_dropout_is_active_in_critics_and_targets_while_training():
    algo, agent = ensemble({}, dict(dropout=0.5))
    samples = replayed()
    inputs = *samples.agent_inputs, samples.action
    for q in (agent.q, agent.target_q):
        assert not torch.equal(q(*inputs), q(*inputs))
    agent.sample_mode(1)
    agent.train_mode(1)
    assert not torch.equal(agent.target_q(*inputs), agent.target_q(*inputs))


def test_the_policy_is_updated_every_so_many_updates_and_alpha_with_it():
    algo, agent = ensemble({}, policy_update_interval=3)
    names = []
    for i in range(6):
        before = [p.detach().clone() for p in agent.pi_parameters()], algo._alpha.clone()
        info, priorities = algo.update(replayed(seed=i))
        algo.update_counter += 1
        moved = not all(torch.equal(p, q) for p, q in zip(before[0], agent.pi_parameters()))
        assert moved == (not torch.equal(before[1], algo._alpha)) == (info.piLoss is not None) == (i % 3 == 2)
        assert priorities is None and info.qLoss is not None and info.qStd is not None
        names.append(info._fields)
    assert set(names) == {algo.opt_info_fields}


@pytest.mark.parametrize(
    "agent_settings, q_settings, settings, message",
    [
        (dict(n_critics=3), {}, dict(n_target_critics=4), "n_target_critics=4 must be at most n_critics=3"),
        (dict(n_quantiles=5), {}, dict(n_target_critics=2), "leave n_target_critics None"),
        (dict(n_quantiles=5), {}, dict(n_dropped_quantiles=5), "n_dropped_quantiles=5 must be below n_quantiles=5"),
        ({}, {}, dict(n_dropped_quantiles=1), "n_dropped_quantiles=1 has no effect without n_quantiles of the agent"),
        (dict(n_critics=3), dict(n_critics=2), {}, "n_critics=3 of the agent and n_critics=2 in q_model_kwargs differ"),
        ({}, {}, dict(policy_value="max"), "policy_value='max' is not possible"),
    ],
)
def test_settings_that_do_not_fit_together_are_refused(agent_settings, q_settings, settings, message):
    with pytest.raises(ValueError, match=message):
        ensemble(agent_settings, q_settings, **settings)


class OwnCritics(QEnsembleModel):
    """May normalize in another way."""


class BoundedAgent(EnsembleSacAgent):
    """Its values cannot grow."""

    def q(self, *inputs):
        return 100 * torch.tanh(super().q(*inputs))


class Wrapped(torch.nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.layers = layers

    def forward(self, x):
        return self.layers(x)


class WrappedAgent(EnsembleSacAgent):
    """Its perceptrons are not a sequence of layers."""

    def make_models(self):
        super().make_models()
        self.q_model.mlp = Wrapped(self.q_model.mlp)


class NormalizedAgent(EnsembleSacAgent):
    """Its critics have a layer of another kind."""

    def make_models(self):
        super().make_models()
        self.q_model.mlp.insert(1, torch.nn.LayerNorm(6))


class BoundedTargets(EnsembleSAC):
    """Its targets cannot grow."""

    def q_and_target(self, *args):
        q, y = super().q_and_target(*args)
        return q, y.clamp(-100, 100)


def bounded_layer(agent):
    """A layer that a script replaces."""
    agent.q_model.mlp[1] = torch.nn.Tanh()


@pytest.mark.parametrize(
    "AlgoCls, AgentCls, change",
    [
        (EnsembleSAC, BoundedAgent, None),
        (EnsembleSAC, WrappedAgent, None),
        (EnsembleSAC, NormalizedAgent, None),
        (EnsembleSAC, EnsembleSacAgent, bounded_layer),
        (BoundedTargets, EnsembleSacAgent, None),
    ],
)
def test_critics_of_users_without_target_networks_have_no_warning(AlgoCls, AgentCls, change, capsys):
    agent = AgentCls(model_kwargs=SIZES, q_model_kwargs=SIZES, target_networks=False)
    agent.initialize(SPACES)
    if change is not None:
        change(agent)
    AlgoCls(**small()).initialize(agent, 10, BatchSpec(T, B), True, EXAMPLES)
    assert "without target networks" not in capsys.readouterr().out


@pytest.mark.parametrize("AgentCls, spaces", [(EnsembleSacAgent, SPACES), (DiscreteSacAgent, DISCRETE)])
@pytest.mark.parametrize(
    "agent_settings, q_settings, warns",
    [
        (dict(target_networks=False), {}, True),
        (dict(target_networks=False), dict(batch_renorm=True), False),
        (dict(target_networks=False), dict(layer_norm=True), False),
        (dict(target_networks=False, QModelCls=OwnCritics), {}, False),
        ({}, {}, False),
    ],
    ids=str,
)
def test_critics_that_follow_their_own_targets_without_normalization_have_a_warning(
    AgentCls, spaces, agent_settings, q_settings, warns, capsys
):
    agent = AgentCls(model_kwargs=SIZES, q_model_kwargs=dict(SIZES, **q_settings), **agent_settings)
    agent.initialize(spaces)
    algo = (DiscreteSAC if AgentCls.discrete else EnsembleSAC)(**small())
    algo.initialize(agent, 10, BatchSpec(T, B), True, DISCRETE_EXAMPLES if AgentCls.discrete else EXAMPLES)
    warning = f"{AgentCls.__name__}: without target networks, values easily grow without bound"
    assert (warning in capsys.readouterr().out) == warns


def test_batch_statistics_of_several_processes_are_refused():
    agent = EnsembleSacAgent(target_networks=False, q_model_kwargs=dict(SIZES, batch_renorm=True))
    agent.initialize(SPACES)
    with pytest.raises(ValueError, match="train in one process"):
        EnsembleSAC(**small()).initialize(agent, 10, BatchSpec(T, B), True, EXAMPLES, world_size=2)
    agent = SacVAgent(model_kwargs=dict(SIZES, batch_renorm=True))
    agent.initialize(SPACES)
    with pytest.raises(ValueError, match="^SAC_V: .*train in one process"):
        SAC_V(**small()).initialize(agent, 10, BatchSpec(T, B), True, EXAMPLES, world_size=2)
    SAC_V(**small()).initialize(agent, 10, BatchSpec(T, B), True, EXAMPLES, world_size=1)


def test_agents_for_another_kind_of_sac_are_refused():
    for algo, agent, spaces in [
        (EnsembleSAC(), SacAgent(), SPACES),
        (SAC(), EnsembleSacAgent(), SPACES),
        (EnsembleSAC(), DiscreteSacAgent(), DISCRETE),
        (DiscreteSAC(), EnsembleSacAgent(), SPACES),
    ]:
        agent.initialize(spaces)
        with pytest.raises(ValueError, match=f"^{type(algo).__name__} needs an agent"):
            algo.initialize(agent, 10, BatchSpec(T, B), True, EXAMPLES)


# --- Discrete actions -------------------------------------------------------------------------------------------------


def discrete(agent_settings=None, model_settings=None, **settings):
    sizes = dict(SIZES, **(model_settings or {}))
    agent = DiscreteSacAgent(model_kwargs=sizes, q_model_kwargs=sizes, **(agent_settings or {}))
    return make(DiscreteSAC(**small(**settings)), agent, DISCRETE, DISCRETE_EXAMPLES)


def replayed_discrete(n=12):
    samples, g = replayed(n), torch.Generator().manual_seed(7)
    inputs = [
        AgentInputs(x.observation, torch.zeros(n, dtype=torch.long), x.prev_reward) for x in (samples.agent_inputs, samples.target_inputs)
    ]
    fields = dict(samples.items(), action=torch.randint(N_ACTIONS, (n,), generator=g), agent_inputs=inputs[0], target_inputs=inputs[1])
    return SamplesFromReplay(**fields)


def probabilities(model, o):
    *hidden, last = [m for m in model.mlp.model if isinstance(m, torch.nn.Linear)]
    for layer in hidden:
        o = (layer.weight @ o + layer.bias).clamp(min=0)
    exps = (last.weight @ o + last.bias).exp()
    return exps / exps.sum()


@pytest.mark.parametrize("value", ["min", "mean"])
def test_losses_for_discrete_actions_and_their_gradients_are_the_formulas(value):
    algo, agent = discrete(dict(n_critics=3), policy_value=value)
    samples = replayed_discrete()
    q_terms, pi_terms, alpha_terms = [], [], []
    for o, a, r, factor, o2 in rows(samples):
        with torch.no_grad():
            p2 = probabilities(agent.model, o2)
            next_q = [critic(agent.target_q_model, i, o2) for i in range(3)]
            v = sum(p2[b] * (min(q[b] for q in next_q) - 0.7 * p2[b].log()) for b in range(N_ACTIONS))
            y = r + factor * v
            qs = [critic(agent.q_model, i, o) for i in range(3)]
        q_terms.append(sum(0.5 * (y - critic(agent.q_model, i, o)[a]) ** 2 for i in range(3)))
        p = probabilities(agent.model, o)
        combined = [(min if value == "min" else mean)([q[b] for q in qs]) for b in range(N_ACTIONS)]
        pi_terms.append(sum(p[b] * (0.7 * p[b].log() - combined[b]) for b in range(N_ACTIONS)))
        alpha_terms.append(-algo._log_alpha * (sum(x * x.log() for x in p.detach()) + 0.98 * math.log(N_ACTIONS)))
    losses, (q, entropy) = algo.loss(samples)
    check(losses, [mean(q_terms), mean(pi_terms), mean(alpha_terms)], (agent.q_parameters(), agent.pi_parameters(), [algo._log_alpha]))
    assert q.shape == (12, 3) and entropy.shape == (12,) and (entropy > 0).all()


def test_losses_for_discrete_actions_without_target_networks_are_the_formulas():
    algo, agent = discrete(dict(target_networks=False), dict(batch_renorm=True))
    for layer in [*agent.model.modules(), *agent.q_model.modules()]:
        if isinstance(layer, BatchRenorm):
            layer.running_mean.normal_(), layer.running_var.uniform_(0.5, 2)
    samples = replayed_discrete()
    o, o2 = samples.agent_inputs.observation, ends_that_count(samples)
    with torch.no_grad():
        p2 = layers_over_a_batch(agent.model.mlp, o2, running=True).softmax(-1)
    q, next_q = layers_over_a_batch(agent.q_model.mlp, torch.cat([o, o2]), running=False).split(12, dim=1)  # [2,12,N_ACTIONS] each
    y = samples.return_ + samples.bootstrap_discount * (p2 * (next_q.detach().amin(0) - 0.7 * p2.log())).sum(-1)
    q_loss = (0.5 * (y - q[:, range(12), samples.action]) ** 2).sum(0).mean()
    losses, _ = algo.loss(samples)  # Moves the running statistics of the critics, by which the policy sees them.
    p = layers_over_a_batch(agent.model.mlp, o, running=False).softmax(-1)
    least_q = layers_over_a_batch(agent.q_model.mlp, o, running=True).detach().amin(0)
    pi_loss = (p * (0.7 * p.log() - least_q)).sum(-1).mean()
    alpha_loss = -algo._log_alpha * ((p * p.log()).detach().sum(-1) + 0.98 * math.log(N_ACTIONS)).mean()
    check(losses, [q_loss, pi_loss, alpha_loss], (agent.q_parameters(), agent.pi_parameters(), [algo._log_alpha]))


Masked = namedarraytuple("Masked", ["observation", "action_mask"])


def test_sac_refuses_batch_renormalization_which_only_the_ensemble_keeps_out_of_targets():
    agent = SacAgent(model_kwargs=dict(SIZES, batch_renorm=True))
    with pytest.raises(ValueError, match="SAC cannot train networks with batch_renorm=True: use rlpyt.algos.qpg.ensemble_sac.EnsembleSAC"):
        make(SAC(**small()), agent)
    with pytest.raises(ValueError, match="use rlpyt.algos.qpg.ensemble_sac.EnsembleSAC"):
        SAC(**small()).initialize(agent, 10, BatchSpec(T, B), True, EXAMPLES, world_size=2)


@pytest.mark.parametrize("target", [-3.0, 5.0])
def test_a_target_entropy_that_no_policy_has_is_refused(target):
    agent = DiscreteSacAgent(model_kwargs=SIZES, q_model_kwargs=SIZES)
    with pytest.raises(ValueError, match=f"target_entropy={target} is not possible, .* 3 actions is between 0 and log 3 = 1.099"):
        make(DiscreteSAC(**small(target_entropy=target)), agent, DISCRETE, DISCRETE_EXAMPLES)


def test_a_target_entropy_that_is_not_a_given_number_of_nats_is_accepted():
    def agent():
        return DiscreteSacAgent(model_kwargs=SIZES, q_model_kwargs=SIZES)

    algo, _ = make(DiscreteSAC(**small()), agent(), EnvSpaces(SPACES.observation, IntBox(0, 18)), DISCRETE_EXAMPLES)
    assert algo.target_entropy == pytest.approx(0.98 * math.log(18))
    make(algo, agent(), DISCRETE, DISCRETE_EXAMPLES)  # "auto" again, for fewer actions.
    assert algo.target_entropy == pytest.approx(0.98 * math.log(3))
    make(DiscreteSAC(**small(target_entropy=float(torch.tensor(3.0).log()))), agent(), DISCRETE, DISCRETE_EXAMPLES)

    class Fraction(DiscreteSAC):
        def target_entropies(self, samples):
            return self.target_entropy * math.log(2)

    spaces = EnvSpaces(SPACES.observation, IntBox(0, 2))
    make(Fraction(**small(target_entropy=0.98)), agent(), spaces, DISCRETE_EXAMPLES)


@pytest.mark.parametrize("target", ["auto", 0.3])
def test_the_automatic_target_entropy_is_that_of_the_allowed_actions(target):
    spaces = EnvSpaces(Composite([SPACES.observation, IntBox(0, 2, (N_ACTIONS,), "int8")], Masked), DISCRETE.action)
    agent = DiscreteSacAgent(model_kwargs=SIZES, q_model_kwargs=SIZES)
    examples = dict(DISCRETE_EXAMPLES, observation=spaces.observation.sample())
    algo, agent = make(DiscreteSAC(**small(target_entropy=target)), agent, spaces, examples)
    samples = replayed_discrete()
    masks = torch.tensor([[1, 1, 1], [1, 0, 1], [0, 0, 1], [0, 0, 0]], dtype=torch.int8).repeat(3, 1)
    masked = [x._replace(observation=Masked(x.observation, masks)) for x in (samples.agent_inputs, samples.target_inputs)]
    samples = samples._replace(agent_inputs=masked[0], target_inputs=masked[1])
    terms = []
    for o, mask in zip(samples.agent_inputs.observation.observation, masks.tolist()):
        allowed = [b for b in range(N_ACTIONS) if mask[b] or not any(mask)]
        p = probabilities(agent.model, o).detach()[allowed]
        p = p / p.sum()
        entropy = 0.98 * math.log(len(allowed)) if target == "auto" else target
        terms.append(-algo._log_alpha * (sum(x * x.log() for x in p) + entropy))
    (*_, alpha_loss), _ = algo.loss(samples)
    torch.testing.assert_close(alpha_loss, mean(terms))


def test_discrete_actions_are_drawn_and_in_evaluation_the_most_probable():
    _, agent = discrete()
    inputs = torch.randn(1, 4).double().expand(2000, 4), torch.zeros(2000, dtype=torch.long), torch.zeros(2000)
    agent.sample_mode(0)
    action, info = agent.step(*inputs)
    pi = info.dist_info.prob
    frequencies = torch.bincount(action, minlength=N_ACTIONS) / 2000
    torch.testing.assert_close(frequencies.double(), pi[0], atol=0.05, rtol=0)
    agent.eval_mode(1)
    assert (agent.step(*inputs).action == pi[0].argmax()).all()


# --- Training ---------------------------------------------------------------------------------------------------------

PAIRS = {
    "redq": (dict(n_critics=4), {}, dict(n_target_critics=2, policy_value="mean", policy_update_interval=2)),
    "droq": ({}, dict(dropout=0.01, layer_norm=True), dict(policy_value="mean")),
    "tqc": (dict(n_critics=3, n_quantiles=5), {}, dict(policy_value="mean")),
    "crossq": (dict(target_networks=False), dict(batch_renorm=True), dict(policy_update_interval=3)),
}
SAMPLERS = {"serial": SerialSampler, "cpu": CpuSampler, "gpu": GpuSampler, "alternating": AlternatingSampler}
CASES = [(name, sampler) for name in (*PAIRS, "discrete") for sampler in SAMPLERS] + [("discrete crossq", "serial")]


@processes
@pytest.mark.parametrize("name, sampler", thinned(CASES, quick=[("crossq", "serial"), ("discrete", "gpu")]))
def test_every_kind_of_sampler_serves(name, sampler):
    settings = dict(min_steps_learn=64, replay_size=1000, batch_size=32, replay_ratio=4)
    if name.startswith("discrete"):
        sizes = dict(SIZES, batch_renorm=name.endswith("crossq"))
        agent = DiscreteSacAgent(model_kwargs=sizes, q_model_kwargs=sizes, target_networks=not sizes["batch_renorm"])
        algo, env = DiscreteSAC(**settings), "CartPole-v1"
    else:
        agent_settings, q_settings, more = PAIRS[name]
        pi_settings = dict(batch_renorm=True) if name == "crossq" else {}
        agent = EnsembleSacAgent(
            model_kwargs=dict(SIZES, **pi_settings), q_model_kwargs=dict(SIZES, **q_settings), action_squash="auto", **agent_settings
        )
        algo, env = EnsembleSAC(**settings, **more), "Pendulum-v1"
    n_threads = torch.get_num_threads()
    try:
        MinibatchRl(
            algo=algo,
            agent=agent,
            sampler=SAMPLERS[sampler](EnvCls=gym_make, env_kwargs=dict(id=env), batch_T=8, batch_B=4),
            n_steps=20 * 32,
            log_interval_steps=320,
            affinity=dict(workers_cpus=[0, 1], set_affinity=False, master_torch_threads=1),
            seed=0,
        ).train()
    finally:
        torch.set_num_threads(n_threads)
    assert algo.update_counter == 4 * (20 - 2)
