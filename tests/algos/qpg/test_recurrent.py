import copy
import math

import gymnasium
import numpy as np
import pytest
import torch
from collecting import along_time, collect, kinds
from envs import make_walk
from experience import in_float64
from sequences import random_sequences
from tiers import full, processes, thinned

from rlpyt.agents.qpg.recurrent import RnnStates
from rlpyt.agents.qpg.sac_agent import SacAgent
from rlpyt.agents.qpg.sac_lstm_agent import AlternatingSacLstmAgent, SacLstmAgent
from rlpyt.agents.qpg.td3_agent import Td3Agent
from rlpyt.agents.qpg.td3_lstm_agent import AlternatingTd3LstmAgent, Td3LstmAgent
from rlpyt.algos.base import read_opt_info
from rlpyt.algos.qpg.recurrent import RecurrentSAC, RecurrentTD3, first_rows, needed_rows
from rlpyt.algos.qpg.sac import SAC
from rlpyt.algos.qpg.td3 import TD3
from rlpyt.envs.base import EnvSpaces
from rlpyt.envs.gym import GymEnvWrapper
from rlpyt.models.lstm import RnnState
from rlpyt.replays.sequence.uniform import AsyncUniformSequenceReplayBuffer, UniformSequenceReplayBuffer
from rlpyt.runners.minibatch_rl import MinibatchRl
from rlpyt.samplers.collections import BatchSpec
from rlpyt.samplers.parallel.cpu.collectors import CpuResetCollector, CpuWaitResetCollector
from rlpyt.samplers.parallel.cpu.sampler import CpuSampler
from rlpyt.samplers.parallel.gpu.alternating_sampler import AlternatingSampler
from rlpyt.samplers.parallel.gpu.collectors import GpuResetCollector, GpuWaitResetCollector
from rlpyt.samplers.parallel.gpu.sampler import GpuSampler
from rlpyt.samplers.serial.sampler import SerialSampler
from rlpyt.spaces.float_box import FloatBox
from rlpyt.utils.buffer import buffer_func, buffer_leaves, torchify_buffer

O, A, H = 3, 2, 4
W, T, N, B = 3, 4, 2, 10  # warm-up, training, n steps; sequences
SPACES = EnvSpaces(FloatBox(-1, 1, (O,)), FloatBox(-1, 1, (A,)))
ALGOS = {"sac": (RecurrentSAC, SacLstmAgent), "td3": (RecurrentTD3, Td3LstmAgent)}
every_algo = pytest.mark.parametrize("name", ALGOS)


def make(name, rnn="lstm", agent_settings=None, AgentCls=None, **settings):
    """Algorithm and agent in float64, to compare with formulas; targets away from models."""
    AlgoCls, DefaultCls = ALGOS[name]
    torch.manual_seed(0)
    np.random.seed(0)
    network = dict(hidden_sizes=[5], lstm_size=H, head_size=[6], rnn=rnn)
    agent = (AgentCls or DefaultCls)(model_kwargs=network, q_model_kwargs=network, **(agent_settings or {}))
    agent.initialize(SPACES)
    in_float64(agent)
    example = agent.step(torch.zeros(1, O), torch.zeros(1, A, dtype=torch.float64), torch.zeros(1, dtype=torch.float64))
    agent.reset()
    examples = dict(
        observation=np.zeros(O), action=np.zeros(A), reward=np.float64(0), done=np.bool_(False), env_info=None,
        agent_info=buffer_func(example.agent_info, lambda x: x[0].numpy()), ends_recorded=np.bool_(True),
    )  # fmt: skip
    defaults = dict(batch_T=T, warmup_T=W, batch_B=5, store_rnn_state_interval=1, n_step_return=N, discount=0.9, min_steps_learn=40)
    algo = AlgoCls(**{**defaults, "replay_size": 400, "replay_ratio": 8, **settings})
    algo.initialize(agent, 100, BatchSpec(4, 2), True, examples)
    agent.train_mode(0)
    with torch.no_grad():
        for target in agent.target_names.values():
            for parameter in getattr(agent, target).parameters():
                parameter.add_(0.3 * torch.randn_like(parameter))
    return algo, agent


def trained_steps(algo, samples):
    return algo.sequences.trained(samples, algo)


def stored_states(n, rnn="lstm"):
    def normal():
        return torch.randn(n, 1, H, dtype=torch.float64)

    return RnnStates(*(RnnState(normal(), normal()) if rnn == "lstm" else normal() for _ in RnnStates._fields))


def sequences(algo, seed=0, n=B, p_done=0.2, rnn="lstm"):
    states = stored_states(n, rnn)
    for leaf in buffer_leaves(states):
        leaf[::3] = 0  # Episodes start there.
    buffer_leaves(states)[0][1] = 0  # No episode starts here: the other states are not zeros.
    return random_sequences(
        seed, n, algo.warmup_T, algo.batch_T, algo.n_step_return, p_done, algo.discount,
        lambda rng, shape: rng.uniform(-1, 1, size=(*shape, A)),
        states if algo.store_rnn_state_interval else None, O,
    )  # fmt: skip


# --- Reference: one sequence, one step, one gate after the other ------------------------------------------------------


def perceptron(layers, x, last_is_linear):
    linears = [m for m in layers.model if isinstance(m, torch.nn.Linear)]
    for i, layer in enumerate(linears):
        x = layer.weight @ x + layer.bias
        if i < len(linears) - last_is_linear:
            x = x.clamp(min=0)
    return x


def recurrent_step(layer, x, state):
    """Output, and state after the step, both by the formulas of the layer."""
    if isinstance(layer, torch.nn.GRU):
        of_x = (layer.weight_ih_l0 @ x + layer.bias_ih_l0).split(H)
        of_h = (layer.weight_hh_l0 @ state + layer.bias_hh_l0).split(H)
        r, z = torch.sigmoid(of_x[0] + of_h[0]), torch.sigmoid(of_x[1] + of_h[1])
        h = (1 - z) * torch.tanh(of_x[2] + r * of_h[2]) + z * state
        return h, h
    h, c = state
    i, f, g, o = (layer.weight_ih_l0 @ x + layer.bias_ih_l0 + layer.weight_hh_l0 @ h + layer.bias_hh_l0).split(H)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    h = torch.sigmoid(o) * torch.tanh(c)
    return h, (h, c)


def layer_of(model):
    return getattr(model.lstm, "lstm", None) or model.lstm.gru


def no_state(model):
    zeros = torch.zeros(H, dtype=torch.float64)
    return zeros if isinstance(layer_of(model), torch.nn.GRU) else (zeros, zeros)


def advance(model, samples, t, b, state):
    """What the head sees of the history at row t of sequence b, and the state after it."""
    o = samples.all_observation[t, b]
    x = torch.cat([perceptron(model.mlp, o, 0), samples.all_prev_action[t, b], samples.all_prev_reward[t, b, None]])
    h, state = recurrent_step(layer_of(model), x, state)
    return torch.cat([h, o]), state


def starts(samples, b):
    """Whether an episode starts with sequence b: the states are zeros."""
    return samples.init_rnn_state is not None and all(not leaf[b].any() for leaf in buffer_leaves(samples.init_rnn_state))


def first_trained(algo, samples, b):
    """Row at which training begins, and whether an episode begins there."""
    ends = [t for t in range(algo.warmup_T) if samples.done[t, b]]
    first, L = (ends[-1] + 1 if ends else algo.warmup_T), algo.warmup_T + algo.batch_T
    while ends and first < L and samples.done[first, b] and not samples.valid[first, b]:
        first += 1
    if starts(samples, b) and (first == L if ends else b < samples.done.shape[1] // 2):
        return 0, True
    return first, bool(ends)


def state_at_first(algo, model, samples, b, stored):
    first, begins = first_trained(algo, samples, b)
    state = no_state(model)
    if begins:
        return state
    if stored is not None:
        leaves = [leaf[b, 0] for leaf in buffer_leaves(stored)]
        state = tuple(leaves) if len(leaves) > 1 else leaves[0]
    with torch.no_grad():
        for t in range(first):
            state = advance(model, samples, t, b, state)[1]
    return state


def histories(algo, model, samples, b, stored):
    """What the head sees at each row of the trained part and of the targets of sequence b."""
    state, first = state_at_first(algo, model, samples, b, stored), first_trained(algo, samples, b)[0]
    seen = []
    for t in range(first, min(first + algo.batch_T, algo.warmup_T + algo.batch_T) + algo.n_step_return):
        x, state = advance(model, samples, t, b, state)
        seen.append(x)
    return seen


def counted(algo, samples, b):
    """Steps to learn from, counted from the first that is trained."""
    first, steps = first_trained(algo, samples, b)[0], []
    for k in range(min(algo.batch_T, algo.warmup_T + algo.batch_T - first)):
        if samples.valid[first + k, b]:
            steps.append(k)
        if samples.done[first + k, b]:
            break
    return steps


def q_of(model, x, a):
    return perceptron(model.head, torch.cat([x, a]), 1)[0]


def mu_of(model, x):
    return torch.tanh(perceptron(model.head, x, 1))


def pi_of(model, x, noise):
    out = perceptron(model.head, x, 1)
    mean, log_std = out[:A], out[A:]
    a = torch.tanh(mean + log_std.exp() * noise)
    log_pi = sum(-0.5 * e**2 - s - 0.5 * math.log(2 * math.pi) for e, s in zip(noise, log_std))
    return a, log_pi - sum(torch.log(1 - ai**2) for ai in a)


def steps_of(algo, agent, samples, q_names):
    """Of each step to learn from: (b, k, action, R, factor, histories now, histories for targets); the policy comes first in both."""
    stored = samples.init_rnn_state or RnnStates(None, None, None)
    names = ["model", *q_names]
    for b in range(samples.done.shape[1]):
        first, steps = first_trained(algo, samples, b)[0], counted(algo, samples, b)
        if not steps:
            continue
        now = [histories(algo, getattr(agent, name), samples, b, state) for name, state in zip(names, stored)]
        targets = [getattr(agent, agent.target_names.get(name, name)) for name in names]
        with torch.no_grad():
            later = [histories(algo, model, samples, b, state) for model, state in zip(targets, stored)]
        for k in steps:
            t = first + k
            factor = 0.0 if samples.done_n[t, b] else algo.discount**algo.n_step_return
            seen_later = [x[k + algo.n_step_return] for x in later]
            yield b, k, samples.all_action[t + 1, b], samples.return_[t, b], factor, [x[k] for x in now], seen_later


def mean(values):
    return sum(values) / len(values)


def check(losses, expected, parameters):
    """Losses, and gradients of each for its own parameters and for no others."""
    owned = [list(p) for p in parameters]
    for i, (loss, reference) in enumerate(zip(losses, expected, strict=True)):
        torch.testing.assert_close(loss.detach(), reference.detach())
        grads = torch.autograd.grad(loss, owned[i], retain_graph=True)
        for g, e in zip(grads, torch.autograd.grad(reference, owned[i], retain_graph=True)):
            torch.testing.assert_close(g, e, rtol=1e-6, atol=1e-9)
        others = [p for j, params in enumerate(owned) if j != i for p in params]
        if others:
            assert all(g is None for g in torch.autograd.grad(loss, others, retain_graph=True, allow_unused=True))


# --- Losses -----------------------------------------------------------------------------------------------------------

CASES = [
    dict(),
    dict(warmup_T=0),
    dict(n_step_return=1),
    dict(rnn="gru", p_done=0.0),
    dict(store_rnn_state_interval=0),
    dict(p_done=0.5),
]


@pytest.mark.parametrize("case", thinned(CASES, quick=CASES[:4]), ids=str)
def test_losses_of_sac_and_their_gradients_are_those_of_steps_taken_one_by_one(case):
    case = dict(dict(p_done=0.2, rnn="lstm"), **case)
    p_done, rnn = case.pop("p_done"), case.pop("rnn")
    algo, agent = make("sac", rnn=rnn, reward_scale=2.0, target_entropy=-1.5, action_prior="gaussian", **case)
    algo._log_alpha.data = torch.tensor(math.log(0.7), dtype=torch.float64)
    samples = sequences(algo, p_done=p_done, rnn=rnn)
    torch.manual_seed(5)
    noise2, noise = torch.randn(T, B, A, dtype=torch.float64), torch.randn(T, B, A, dtype=torch.float64)
    q1_terms, q2_terms, pi_terms, alpha_terms = [], [], [], []
    for b, k, a, r, factor, (of_pi, of_q1, of_q2), (of_pi2, of_target1, of_target2) in steps_of(algo, agent, samples, agent.q_names):
        with torch.no_grad():
            a2, log_pi2 = pi_of(agent.model, of_pi2, noise2[k, b])
            q = min(q_of(agent.target_q1_model, of_target1, a2), q_of(agent.target_q2_model, of_target2, a2))
            y = 2.0 * r + factor * (q - 0.7 * log_pi2)
        q1_terms.append(0.5 * (y - q_of(agent.q1_model, of_q1, a)) ** 2)
        q2_terms.append(0.5 * (y - q_of(agent.q2_model, of_q2, a)) ** 2)
        new_a, log_pi = pi_of(agent.model, of_pi, noise[k, b])
        least = min(q_of(agent.q1_model, of_q1, new_a), q_of(agent.q2_model, of_q2, new_a))
        log_prior = sum(-0.5 * x**2 - 0.5 * math.log(2 * math.pi) for x in new_a)
        pi_terms.append(0.7 * log_pi - least - log_prior)
        alpha_terms.append(-algo._log_alpha * (log_pi.detach() - 1.5))
    assert 5 < len(q1_terms) <= T * B
    torch.manual_seed(5)
    losses, _ = algo.loss(trained_steps(algo, samples))
    parameters = [agent.q1_parameters(), agent.q2_parameters(), agent.pi_parameters(), [algo._log_alpha]]
    check(losses, [mean(q1_terms), mean(q2_terms), mean(pi_terms), mean(alpha_terms)], parameters)


@pytest.mark.parametrize("case", thinned(CASES, quick=CASES[:1]), ids=str)
def test_losses_of_td3_and_their_gradients_are_those_of_steps_taken_one_by_one(case):
    case = dict(dict(p_done=0.2, rnn="lstm"), **case)
    p_done, rnn = case.pop("p_done"), case.pop("rnn")
    algo, agent = make("td3", rnn=rnn, agent_settings=dict(target_noise_std=0.6, target_noise_clip=0.4), **case)
    samples = sequences(algo, p_done=p_done, rnn=rnn)
    torch.manual_seed(5)
    noise = (0.6 * torch.randn(T, B, A, dtype=torch.float64)).clamp(-0.4, 0.4)
    q_terms, mu_terms = [], []
    for b, k, a, r, factor, (of_mu, of_q1, of_q2), (of_mu2, of_target1, of_target2) in steps_of(algo, agent, samples, agent.q_names):
        with torch.no_grad():
            a2 = (mu_of(agent.target_model, of_mu2) + noise[k, b]).clamp(-1, 1)
            y = r + factor * min(q_of(agent.target_q_model, of_target1, a2), q_of(agent.target_q2_model, of_target2, a2))
        q_terms.append(0.5 * (y - q_of(agent.q_model, of_q1, a)) ** 2 + 0.5 * (y - q_of(agent.q2_model, of_q2, a)) ** 2)
        mu_terms.append(-q_of(agent.q_model, of_q1, mu_of(agent.model, of_mu)))
    torch.manual_seed(5)
    trained = trained_steps(algo, samples)
    losses = algo.q_loss(trained, trained.valid), algo.mu_loss(trained, trained.valid)
    check(losses, [mean(q_terms), mean(mu_terms)], [agent.q_parameters(), agent.mu_parameters()])


def test_the_random_sequences_have_everything_that_can_happen():
    algo, _ = make("sac")
    samples = sequences(algo)
    begun = samples.done[:W].any(0)
    assert begun.any() and not begun.all()
    columns = range(B)
    steps = [counted(algo, samples, b) for b in columns]
    assert any(not s for s in steps) and any(len(s) == T for s in steps) and any(0 < len(s) < T for s in steps)
    firsts = [first_trained(algo, samples, b)[0] for b in columns]
    assert len({first for first, begins in zip(firsts, begun) if begins}) > 1
    assert any(samples.done_n[firsts[b] + k, b] for b in columns for k in steps[b])
    assert any(not samples.valid[firsts[b], b] for b in columns)


def needed_by_loops(algo, samples, b):
    """Rows of sequence b that have a part in a loss: those to learn from, those of targets, and those before; with warm-up if it counts."""
    first, begins = first_trained(algo, samples, b)
    n = algo.n_step_return
    needed = {r for k in counted(algo, samples, b) for r in range(k + 1 + n * (not samples.done_n[first + k, b]))}
    return {first + r for r in needed}, not begins and bool(needed)


@pytest.mark.parametrize("name, warmup_T", [("sac", W), ("td3", W), ("sac", 0)])
def test_what_is_not_used_for_a_step_to_learn_from_may_be_anything(name, warmup_T):
    """NaN in all other rows changes neither losses, gradients nor what is logged."""
    algo, agent = make(name, warmup_T=warmup_T)
    samples = sequences(algo, seed=1, n=40)
    torch.manual_seed(7)
    clean = buffer_func(samples, torch.clone)
    for b in range(40):
        rows, warmed_up = needed_by_loops(algo, samples, b)
        first = first_trained(algo, samples, b)[0]
        for t in range(len(samples.all_observation)):
            if t not in rows and not (warmed_up and t < warmup_T):
                for x in (samples.all_observation, samples.all_prev_action, samples.all_prev_reward):
                    x[t, b] = torch.nan
        steps = {first + k for k in counted(algo, samples, b)}
        for t in range(len(samples.return_)):
            if t not in steps:
                samples.return_[t, b], samples.all_action[t + 1, b] = torch.nan, torch.nan
        if not warmed_up and not starts(samples, b):  # Zeros say that an episode starts there.
            for leaf in buffer_leaves(samples.init_rnn_state):
                leaf[b] = torch.nan
    assert samples.all_observation.isnan().any() and samples.return_.isnan().any()
    outcomes = []
    for data in (clean, samples):
        algo, agent = make(name, warmup_T=warmup_T)
        torch.manual_seed(7)
        algo.update_counter = 1  # TD3 updates its policy.
        info, _ = algo.update(data)
        outcomes.append((buffer_leaves(tuple(info)), agent.state_dict()))
    torch.testing.assert_close(outcomes[1], outcomes[0], rtol=0, atol=0)


def test_what_is_logged_are_outputs_at_steps_to_learn_from():
    algo, agent = make("sac", batch_T=12)
    batches = [sequences(algo, seed=seed, p_done=0.1) for seed in (0, 1, 2)]
    batches.append(batches[0]._replace(valid=torch.zeros_like(batches[0].valid)))  # An update with nothing to learn.
    expected = {name: [] for name in ("q1", "q2", "piMu", "piLogStd", "qMeanDiff")}
    updates = []
    for samples in batches:
        rows, differences = {}, []
        for b, k, a, _, _, (of_pi, of_q1, of_q2), _ in steps_of(algo, agent, samples, agent.q_names):
            q1, q2 = q_of(agent.q1_model, of_q1, a).item(), q_of(agent.q2_model, of_q2, a).item()
            mean_and_log_std = perceptron(agent.model.head, of_pi, 1).detach()
            rows[k, b] = [q1], [q2], mean_and_log_std[:A].tolist(), mean_and_log_std[A:].tolist()
            differences.append(abs(q1 - q2))
        for i in range(0, 12 * B, 10):  # Every tenth is logged.
            for name, values in zip(expected, rows.get((i // B, i % B), ())):
                expected[name] += values
        expected["qMeanDiff"] += [mean(differences)] if differences else []
        updates.append(algo.update(samples)[0])
    info = read_opt_info(algo.OptInfoCls, updates)
    assert 10 < len(expected["q1"]) < 30 and len(expected["qMeanDiff"]) == 3
    assert {name: getattr(info, name) for name in expected} == {name: pytest.approx(values) for name, values in expected.items()}


def test_a_batch_with_nothing_to_learn_gives_zeros():
    algo, agent = make("sac", fixed_alpha=0.2)
    samples = sequences(algo)
    losses, _ = algo.loss(trained_steps(algo, samples._replace(valid=torch.zeros_like(samples.valid))))
    assert all(loss == 0 for loss in losses[:3])
    sum(losses[:3]).backward()
    assert not any(p.grad.any() for p in agent.pi_parameters())


@pytest.mark.parametrize("behavior_cloning", [None, 2.5])
def test_a_batch_with_nothing_to_learn_gives_zeros_in_td3_too(behavior_cloning):
    algo, agent = make("td3", behavior_cloning=behavior_cloning)
    samples = sequences(algo)
    trained = trained_steps(algo, samples._replace(valid=torch.zeros_like(samples.valid)))
    valid = algo.valid_samples(trained)
    loss = algo.mu_loss(trained, valid)
    assert loss == algo.q_loss(trained, valid) == 0
    loss.backward()
    assert not any(p.grad.any() for p in agent.mu_parameters())


def test_needed_rows_and_first_rows_of_an_example():
    counts = torch.tensor([[1, 1, 0], [1, 0, 0], [0, 0, 0]]).bool()  # [T,B]
    done_n = torch.tensor([[0, 1, 1], [1, 1, 1], [0, 0, 0]]).bool()
    expected = [[1, 1, 0], [1, 0, 0], [1, 0, 0], [0, 0, 0], [0, 0, 0]]
    assert needed_rows(counts, done_n, 2).int().tolist() == expected
    done = torch.tensor([[0, 1, 1, 0], [0, 0, 1, 0], [0, 0, 0, 1], [0, 0, 0, 1], [0, 0, 0, 1]]).bool()
    begun, first = first_rows(done, None, 3)
    assert begun.tolist() == [False, True, True, True] and first.tolist() == [3, 1, 2, 3]
    begun, first = first_rows(done[:, :2], None, 0)
    assert begun.tolist() == [False, False] and first.tolist() == [0, 0]
    valid = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 0, 1], [1, 1, 1, 0], [1, 1, 1, 1]]).bool()
    assert first_rows(done, valid, 3)[1].tolist() == [3, 1, 2, 4]  # Row 3 of the last one is blank.
    valid[4, 3] = False
    begun, first = first_rows(done, valid, 3)
    assert begun.tolist() == [False, True, True, True] and first.tolist() == [3, 1, 2, 5]
    begun, first = first_rows(done, valid, 3, torch.tensor([True, True, False, True]))
    assert begun.tolist() == [True, True, True, True] and first.tolist() == [0, 1, 2, 0]
    begun, first = first_rows(done[:, [0, 0, 0]], None, 3, torch.tensor([True, True, False]))
    assert begun.tolist() == [True, False, False] and first.tolist() == [0, 3, 3]


class Counting(gymnasium.Env):
    """Episodes of 8 to 29 steps; the observation is the number of the step."""

    observation_space, action_space = gymnasium.spaces.Box(0, 100, (1,)), gymnasium.spaces.Box(-1, 1, (1,))

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.t, self.length = 0, int(self.np_random.integers(8, 30))
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.t += 1
        return np.full(1, self.t, np.float32), 1.0, self.t == self.length, False, {}


def make_counting():
    return GymEnvWrapper(Counting())


@full
@pytest.mark.parametrize(
    "CollectorCls, batch_T",
    thinned([(CpuResetCollector, 20), (CpuWaitResetCollector, 20), (CpuWaitResetCollector, 40)], quick=[(CpuWaitResetCollector, 20)]),
)
def test_each_step_of_an_episode_is_trained_on_about_as_often_as_any_other(CollectorCls, batch_T):
    agent = SacLstmAgent(model_kwargs=SMALL, q_model_kwargs=SMALL)
    sampler = SerialSampler(make_counting, {}, batch_T=batch_T, batch_B=4, CollectorCls=CollectorCls, max_decorrelation_steps=0)
    examples = sampler.initialize(agent, affinity=dict(set_affinity=False), seed=1)
    algo = RecurrentSAC(batch_T=8, warmup_T=4, batch_B=8, store_rnn_state_interval=4, replay_size=16_000, min_steps_learn=10**6)
    algo.initialize(agent, 1000, sampler.batch_spec, CollectorCls.mid_batch_reset, examples)
    for itr in range(2400 // batch_T):
        agent.sample_mode(itr)
        samples, _ = sampler.obtain_samples(itr)
        agent.train_mode(itr)
        algo.append(samples)
    visits = np.zeros(40)
    for _ in range(20):
        trained = algo.sequences.trained(algo.replay_buffer.sample_batch(128), algo)
        np.add.at(visits, trained.agent_inputs.observation[trained.valid][:, 0].numpy().astype(int), 1)
    stored = algo.replay_buffer.samples
    valid = np.ones(stored.done.shape, bool) if stored.valid is None else stored.valid.astype(bool)
    positions = stored.observation[: algo.replay_buffer.written][valid[: algo.replay_buffer.written]][:, 0].astype(int)
    often = visits[:8] / np.bincount(positions, minlength=40)[:8]  # per step stored
    assert often.min() > 0.3 * often.max()


# --- Stored states ----------------------------------------------------------------------------------------------------

SMALL = dict(hidden_sizes=[5], lstm_size=H, head_size=[6])
AGENTS = {"sac": (SacLstmAgent, AlternatingSacLstmAgent), "td3": (Td3LstmAgent, AlternatingTd3LstmAgent)}
SILENT = {"sac": dict(pretrain_std=0.0), "td3": dict(pretrain_std=0.0)}


def changing(name, alternating=False):
    """An agent without noise, whose networks change whenever sampling stops, as if they were trained."""

    class Changing(AGENTS[name][alternating]):
        @torch.no_grad()
        def train_mode(self, itr):
            super().train_mode(itr)
            for model in self.named_models().values():
                for p in model.parameters():
                    p.mul_(0.8).add_(0.05)

    torch.manual_seed(0)
    agent = Changing(model_kwargs=SMALL, q_model_kwargs=SMALL, **SILENT[name])
    agent.min_itr_learn = 10**6
    return agent


WALKS = dict(EnvCls=make_walk, env={}, T=5, B=4, n_batches=6, decorrelation=0, bootstrap_value=False, evaluate_after=(1, 3))


@every_algo
@pytest.mark.parametrize(
    "kind", kinds(["CPU, 2 workers", "GPU, 2 workers", "alternating, 2 workers", "no overlap, 4 workers"], quick=["GPU, 2 workers"])
)
def test_samplers_of_all_kinds_record_the_same_states_while_networks_change(kind, name):
    expected = collect("serial", changing(name), **WALKS)
    ours = collect(kind, changing(name, "alternating" in kind or "overlap" in kind), **WALKS)
    assert along_time(expected.batches, lambda batch: batch.env.done).any()
    for a, b in zip(buffer_leaves(tuple(ours.batches)), buffer_leaves(tuple(expected.batches)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)  # Batches of another size round otherwise.


@every_algo
def test_recorded_states_are_those_of_all_networks_going_through_each_episode(name):
    agent = changing(name)
    collected = collect("serial", agent, **dict(WALKS, n_batches=1, T=30, evaluate_after=()))
    batch = torchify_buffer(collected.batches[0])
    torch.manual_seed(0)
    same = changing(name)
    same.initialize(EnvSpaces(FloatBox(-1, 1, (2,)), FloatBox(-1, 1, (1,))))
    with torch.no_grad():  # `collect` has ended with a change.
        for x, y in zip(same.named_models().values(), agent.named_models().values()):
            for p, q in zip(x.parameters(), y.parameters()):
                p.copy_((q - 0.05) / 0.8)
    observation, prev_action, prev_reward = batch.env.observation, batch.agent.prev_action, batch.env.prev_reward
    assert batch.env.done.any()
    for b in range(4):
        state, is_first = None, True
        for t in range(30):
            if state is not None:
                recorded = buffer_func(batch.agent.agent_info.prev_rnn_state, lambda x, t=t, b=b: x[t, b, :, None])
                for x, y in zip(buffer_leaves(recorded), buffer_leaves(state), strict=True):
                    torch.testing.assert_close(x, y, rtol=1e-4, atol=1e-5)
            null = 0.0 if is_first else 1.0
            inputs = observation[t, b : b + 1], null * prev_action[t, b : b + 1], null * prev_reward[t, b : b + 1]
            state, is_first = same.remember(*inputs, state), False
            if batch.env.done[t, b]:
                state, is_first = buffer_func(state, torch.zeros_like), True


@pytest.mark.parametrize("interval", [1, 3])
@every_algo
def test_with_unchanged_networks_the_warm_up_ends_in_the_states_that_the_agent_had(name, interval):
    """States before the first trained step, from the buffer and the warm-up, are those recorded while sampling."""
    AgentCls = AGENTS[name][0]
    torch.manual_seed(0)
    agent = AgentCls(model_kwargs=SMALL, q_model_kwargs=SMALL)
    sampler = SerialSampler(make_walk, {}, batch_T=4, batch_B=3, max_decorrelation_steps=0)
    examples = sampler.initialize(agent, affinity=dict(set_affinity=False), seed=1)
    algo = ALGOS[name][0](
        batch_T=4, warmup_T=3, batch_B=2, store_rnn_state_interval=interval, replay_size=300, min_steps_learn=10**6, n_step_return=2
    )
    algo.initialize(agent, 100, sampler.batch_spec, True, examples)
    recorded, done = [], []
    for itr in range(15):
        agent.sample_mode(itr)
        samples, _ = sampler.obtain_samples(itr)
        recorded.append(buffer_func(samples.agent.agent_info.prev_rnn_state, torch.clone))
        done.append(samples.env.done.clone())
        agent.train_mode(itr)
        algo.append(samples)
    done = torch.cat(done)
    drawn = [(t, b) for t in range(0, 45, interval) for b in range(3)]
    T_idxs, B_idxs = (np.array(x) for x in zip(*drawn, strict=True))
    batch = algo.replay_buffer.extract_batch(T_idxs, B_idxs, 7)
    trained = trained_steps(algo, batch)
    all_states = [torch.cat(leaves) for leaves in zip(*(buffer_leaves(x) for x in recorded), strict=True)]  # [60,B,N,H] each
    begun, n_checked = 0, 0
    for i, (t, b) in enumerate(drawn):
        ends = [k for k in range(3) if done[t + k, b]]
        is_start = t == 0 or done[t - 1, b]
        first = t + (ends[-1] + 1 if ends else 0 if is_start and i < len(drawn) // 2 else 3)
        begun += bool(ends)
        for leaf, stored, expected in zip(
            buffer_leaves(trained.agent_inputs.init_rnn_state), buffer_leaves(batch.init_rnn_state), all_states, strict=True
        ):
            torch.testing.assert_close(stored[i], expected[t, b], rtol=0, atol=0)
            if trained.valid[:, i].any():
                torch.testing.assert_close(leaf[:, i], expected[first, b], rtol=1e-4, atol=1e-6)
                n_checked += 1
    assert 0 < begun < len(drawn) and n_checked > len(drawn)


# --- Training ---------------------------------------------------------------------------------------------------------

SAMPLERS = [
    (SerialSampler, CpuResetCollector, "sac"),
    (SerialSampler, CpuWaitResetCollector, "td3"),
    (CpuSampler, CpuWaitResetCollector, "sac"),
    (GpuSampler, GpuResetCollector, "td3"),
    (AlternatingSampler, GpuWaitResetCollector, "sac"),
    (AlternatingSampler, GpuResetCollector, "td3"),
]


@processes
@pytest.mark.parametrize("SamplerCls, CollectorCls, name", thinned(SAMPLERS, quick=SAMPLERS[:1]))
def test_it_trains_with_every_kind_of_sampler(SamplerCls, CollectorCls, name):
    AlgoCls, (AgentCls, AlternatingCls) = ALGOS[name][0], AGENTS[name]
    agent = (AlternatingCls if SamplerCls is AlternatingSampler else AgentCls)(model_kwargs=SMALL, q_model_kwargs=SMALL)
    algo = AlgoCls(
        batch_T=6, warmup_T=4, batch_B=4, store_rnn_state_interval=2, n_step_return=2, replay_size=800, min_steps_learn=80, replay_ratio=5
    )
    sampler = SamplerCls(make_walk, {}, batch_T=4, batch_B=4, CollectorCls=CollectorCls, max_decorrelation_steps=3)
    before, counts = [], []
    trained = algo.sequences.trained

    def watched(*args):
        if not before:
            before.append(copy.deepcopy(agent.state_dict()))
        counts.append(int((result := trained(*args)).valid.sum()))
        return result

    algo.sequences.trained = watched
    affinity = dict(workers_cpus=[0, 1], set_affinity=False)
    MinibatchRl(algo=algo, agent=agent, sampler=sampler, n_steps=200, seed=1, affinity=affinity, log_interval_steps=100).train()
    assert algo.update_counter == len(counts) > 10 and sum(counts) > 5 * len(counts)
    after = agent.state_dict()
    for model, tensors in before[0].items():
        assert any(not torch.equal(tensor, after[model][key]) for key, tensor in tensors.items()), model


def test_the_replay_buffer_is_one_of_sequences():
    algo, agent = make("sac")
    assert type(algo.replay_buffer) is UniformSequenceReplayBuffer
    assert algo.replay_buffer.samples_prev_rnn_state.pi.h.shape[2:] == (1, H)
    assert algo.replay_buffer.samples_prev_rnn_state._fields == ("pi", "q1", "q2")


def test_an_asynchronous_runner_gets_a_buffer_that_is_shared():
    _, agent = make("sac")
    example = agent.step(torch.zeros(1, O), torch.zeros(1, A, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)).agent_info
    examples = dict(
        observation=np.zeros(O), action=np.zeros(A), reward=np.float64(0), done=np.bool_(False),
        agent_info=buffer_func(example, lambda x: x[0].numpy()),
    )  # fmt: skip
    algo = RecurrentSAC(replay_size=1000)
    buffer = algo.async_initialize(agent, 100, BatchSpec(4, 2), True, examples)
    assert type(buffer) is AsyncUniformSequenceReplayBuffer and algo.updates_per_optimize == algo.updates_per_sync


@every_algo
def test_the_settings_are_those_of_the_algorithm_and_of_sequences(name):
    algo = ALGOS[name][0]()
    assert (algo.batch_T, algo.batch_B, algo.warmup_T, algo.store_rnn_state_interval) == (32, 32, 8, 8)
    assert algo.batch_size == 40 * 32 == algo.replay_ratio and algo.replay_batch_B == 32
    plain = {"sac": SAC, "td3": TD3}[name]()
    assert (algo.learning_rate, algo.target_update_tau, algo.discount) == (plain.learning_rate, plain.target_update_tau, plain.discount)
    with pytest.raises(TypeError, match="batch_size"):
        ALGOS[name][0](batch_size=3)
    with pytest.raises(ValueError, match=f"{ALGOS[name][0].__name__}: warmup_T=-1"):
        ALGOS[name][0](warmup_T=-1)


@pytest.mark.parametrize(
    "AlgoCls, agent, needed, example",
    [
        (RecurrentSAC, SacAgent(), "a recurrent state", "SacLstmAgent"),
        (RecurrentTD3, Td3Agent(), "a recurrent state", "Td3LstmAgent"),
        (SAC, SacLstmAgent(), "no recurrent state", "SacAgent"),
        (TD3, Td3LstmAgent(), "no recurrent state", "Td3Agent"),
    ],
)
def test_agents_with_and_without_memory_are_not_confused(AlgoCls, agent, needed, example):
    agent.initialize(SPACES)
    examples = dict(observation=np.zeros(O), action=np.zeros(A), reward=np.float64(0), done=np.bool_(False))
    with pytest.raises(ValueError, match=f"{AlgoCls.__name__} needs an agent .*{needed}.*such as .*{example}"):
        AlgoCls().initialize(agent, 10, BatchSpec(4, 2), True, examples)
