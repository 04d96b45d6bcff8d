import numpy as np
import pytest
import torch
from envs import CountingEnv
from experience import N_ACTIONS, OBSERVATION_SIZE, SPACES, PickTheLargest, start
from oracles import h, h_inverse, munchausen_reward, soft_value
from sequences import random_sequences
from tiers import full, learning, processes, thinned

from rlpyt.agents.dqn.mlp_dqn_agent import MlpDqnAgent
from rlpyt.agents.dqn.mlp_r2d1_agent import MlpR2d1Agent, MlpR2d1AlternatingAgent
from rlpyt.agents.dqn.r2d1_agent import AgentInfo
from rlpyt.algos.dqn.dqn import DQN
from rlpyt.algos.dqn.r2d1 import (
    R2D1,
    SEQUENCE_BUFFERS,
    PrioritiesSamplesToBuffer,
    SamplesToBuffer,
    SamplesToBufferRnn,
    inverse_rescale,
    rescale,
)
from rlpyt.models.lstm import RnnState
from rlpyt.replays.non_sequence.prioritized import PrioritizedReplayBuffer
from rlpyt.replays.prefetch import PrefetchedReplay
from rlpyt.replays.sequence.prioritized import SamplesFromReplayPri
from rlpyt.replays.sequence.uniform import UniformSequenceReplayBuffer
from rlpyt.runners.minibatch_rl import MinibatchRl
from rlpyt.samplers.collections import AgentSamples, BatchSpec, EnvSamples, Samples
from rlpyt.samplers.parallel.cpu.collectors import CpuResetCollector, CpuWaitResetCollector
from rlpyt.samplers.parallel.cpu.sampler import CpuSampler
from rlpyt.samplers.parallel.gpu.alternating_sampler import AlternatingSampler
from rlpyt.samplers.parallel.gpu.collectors import GpuResetCollector, GpuWaitResetCollector
from rlpyt.samplers.parallel.gpu.sampler import GpuSampler
from rlpyt.samplers.serial.sampler import SerialSampler

H = 5
EXAMPLES = dict(
    observation=np.zeros(OBSERVATION_SIZE),
    action=np.int64(0),
    reward=np.float64(0),
    done=np.bool_(False),
    env_info=None,
    agent_info=AgentInfo(q=np.zeros(N_ACTIONS), prev_rnn_state=RnnState(np.zeros((1, H)), np.zeros((1, H)))),
)
W, T, N, B = 4, 6, 3, 16  # warm-up, training, n steps; sequences
SAMPLER_T, SAMPLER_B = 4, 2


def make(mid_batch_reset=True, dueling=False, sampler_T=SAMPLER_T, n_itr=100, **settings):
    defaults = dict(
        discount=0.9, batch_T=T, warmup_T=W, batch_B=5, store_rnn_state_interval=4, n_step_return=N, replay_size=400,
        min_steps_learn=40, replay_ratio=8,
    )  # fmt: skip
    agent = MlpR2d1Agent(model_kwargs=dict(lstm_size=H, hidden_sizes=[6], head_size=6, dueling=dueling))
    algo = R2D1(**{**defaults, **settings})
    start(algo, agent, sampler_T, SAMPLER_B, n_itr, mid_batch_reset, EXAMPLES)
    for p in agent.model.parameters():  # Away from the target network, so that it matters which one chooses.
        p.data += 0.3 * torch.randn_like(p)
    return algo, agent


# --- the loss ---------------------------------------------------------------------------------------------------------


def sequences(seed=0, n=B, prioritized=True, warmup_T=W, p_done=0.15, state=True, batch_T=T, n_step=N, discount=0.9):
    """Sequences as a buffer returns them, with the importance weights and ids of a prioritized one."""
    shape = dict(n=n, warmup_T=warmup_T, batch_T=batch_T, n_step=n_step)
    samples = random_sequences(
        seed, **shape, p_done=p_done, discount=discount, draw_actions=lambda rng, shape: rng.integers(0, N_ACTIONS, size=shape),
        init_rnn_state=RnnState(torch.randn(n, 1, H).double(), torch.randn(n, 1, H).double()) if state else None,
        observation_size=OBSERVATION_SIZE,
    )  # fmt: skip
    if not prioritized:
        return samples
    return SamplesFromReplayPri(*samples, torch.rand(n, dtype=torch.float64) + 0.1, torch.arange(n))


def unrolled(model, samples, b, warmup_T):
    """Q-values at every step of one sequence, one step at a time; the warm-up is no part of the graph, and zeroed by a done."""
    state = None
    if samples.init_rnn_state is not None:
        state = RnnState(*(x[b : b + 1].transpose(0, 1) for x in samples.init_rnn_state))
    qs, ended = [], False
    for t in range(len(samples.all_observation)):
        if t == warmup_T and state is not None:
            state = RnnState(*(torch.zeros_like(x) if ended else x.detach() for x in state))
        onehot = torch.nn.functional.one_hot(samples.all_prev_action[t, b : b + 1], N_ACTIONS).to(samples.all_prev_reward.dtype)
        q, state = model(samples.all_observation[t, b : b + 1], onehot, samples.all_prev_reward[t, b : b + 1], state)
        qs.append(q[0])
        ended |= t < warmup_T and bool(samples.done[t, b])
    return qs


def reference_loss(algo, agent, samples):
    """Everything one step after the other."""
    losses, n_valid, all_errors, priorities = 0.0, 0, [], []
    warmup_T, batch_T, n = algo.warmup_T, algo.batch_T, algo.n_step_return
    for b in range(samples.return_.shape[1]):
        qs = unrolled(agent.model, samples, b, warmup_T)
        target_qs = [q.detach() for q in unrolled(agent.target_model, samples, b, warmup_T)]
        weight = samples.is_weights[b] if algo.prioritized_replay else 1.0
        errors, alive, of_steps = [], True, [0.0] * batch_T
        for t in range(warmup_T, warmup_T + batch_T):
            if alive and samples.valid[t, b]:
                chooser = qs[t + n].detach() if algo.double_dqn else target_qs[t + n]
                if algo.munchausen:
                    value = soft_value(algo, target_qs[t + n].tolist(), chooser.tolist())
                else:
                    value = h_inverse(target_qs[t + n][int(chooser.argmax())].item())
                y = samples.return_[t, b].item()
                if algo.munchausen:
                    y += munchausen_reward(algo, target_qs[t].tolist(), int(samples.all_action[t + 1, b]))
                if not samples.done_n[t, b]:
                    y += algo.discount**n * value
                error = abs(h(y) - qs[t][samples.all_action[t + 1, b]])
                clip = algo.delta_clip
                losses = losses + weight * (0.5 * error**2 if clip is None or error <= clip else clip * (error - 0.5 * clip))
                errors.append(error.item() if clip is None else min(error.item(), clip))
                of_steps[t - warmup_T] = errors[-1]
                n_valid += 1
            alive &= not samples.done[t, b]
        all_errors.append(of_steps)
        priorities.append(algo.pri_eta * max(errors) + (1 - algo.pri_eta) * sum(errors) / len(errors) if errors else 0.0)
    return losses / max(n_valid, 1), np.transpose(all_errors), priorities


CASES = [
    dict(),
    dict(dueling=True),
    dict(double_dqn=False),
    dict(prioritized_replay=False),
    dict(delta_clip=0.5, pri_eta=0.4),
    dict(n_step_return=1),
    dict(warmup_T=0),
    dict(double_dqn=False, delta_clip=1.0, n_step_return=5, prioritized_replay=False),
    dict(munchausen=True),
    dict(munchausen=True, munchausen_temperature=0.4, munchausen_alpha=0.7, munchausen_min=-0.3, double_dqn=False, warmup_T=0),
]


@pytest.mark.parametrize("settings", thinned(CASES, quick=[CASES[i] for i in (1, 4, 7, 9)]), ids=str)
@pytest.mark.parametrize("p_done", thinned([0.0, 0.15], quick=[0.15]))
def test_the_loss_its_gradient_and_the_priorities_are_those_of_steps_taken_one_by_one(settings, p_done):
    algo, agent = make(**settings)
    samples = sequences(prioritized=algo.prioritized_replay, warmup_T=algo.warmup_T, n_step=algo.n_step_return, p_done=p_done)
    loss, errors, priorities = algo.loss(samples)
    expected, expected_errors, expected_priorities = reference_loss(algo, agent, samples)
    assert loss.item() == pytest.approx(expected.item())
    np.testing.assert_allclose(errors, expected_errors, atol=1e-7)  # Differences of numbers around 1.
    np.testing.assert_allclose(priorities, expected_priorities)
    assert not errors.requires_grad and not priorities.requires_grad
    grads = torch.autograd.grad(loss, list(agent.parameters()))
    for g, e in zip(grads, torch.autograd.grad(expected, list(agent.parameters())), strict=True):
        torch.testing.assert_close(g, e)


def test_the_random_sequences_have_everything_that_can_happen():
    samples = sequences()
    died = samples.done[:W].any(0)
    first = samples.done[W:].float().cumsum(0)
    assert died.any() and not died.all()
    assert (~samples.valid[W:] & (first == 0)).any()  # A truncated window before the first end.
    assert (~samples.valid & samples.done).any() and (samples.valid & samples.done).any()
    assert (samples.done_n & samples.valid).any()
    assert (first[0] > 0).any()


def test_a_sequence_starts_from_zeros_where_no_state_is_stored():
    algo, agent = make(store_rnn_state_interval=0)
    samples = sequences(state=False)
    assert algo.loss(samples)[0].item() == pytest.approx(reference_loss(algo, agent, samples)[0].item())
    zeros = samples._replace(init_rnn_state=RnnState(torch.zeros(B, 1, H).double(), torch.zeros(B, 1, H).double()))
    assert algo.loss(samples)[0].item() == pytest.approx(algo.loss(zeros)[0].item())


def test_a_batch_with_nothing_to_learn_gives_zeros_and_no_nan():
    algo, agent = make()
    samples = sequences()
    loss, errors, priorities = algo.loss(samples._replace(valid=torch.zeros_like(samples.valid)))
    loss.backward()
    assert loss == 0 and not errors.any() and not priorities.any()
    assert all(p.grad is None or not p.grad.any() for p in agent.parameters())


def test_a_sequence_without_error_keeps_a_chance_to_be_replayed():
    """Only priorities of sequences with nothing to learn are 0."""
    algo, agent = make()
    samples = sequences()
    has_steps = algo.loss(samples)[2] > 0
    assert has_steps.any() and not has_steps.all()
    for model in (agent.model, agent.target_model):
        for parameter in model.parameters():
            torch.nn.init.zeros_(parameter)
    priorities = algo.loss(samples._replace(return_=torch.zeros_like(samples.return_)))[2]
    assert torch.equal(priorities > 0, has_steps) and priorities.max() < 1e-3
    stored = batch(agent, p_done=0.0)
    info = stored.agent.agent_info
    nothing = stored._replace(
        agent=stored.agent._replace(agent_info=info._replace(q=torch.zeros_like(info.q))),
        env=stored.env._replace(reward=torch.zeros_like(stored.env.reward)),
    )
    assert (algo.compute_input_priorities(nothing) > 0).all()


def test_a_buffer_that_gives_documented_fields_only_will_do():
    algo, _ = make()
    samples = sequences()
    raw = samples._replace(all_prev_action=samples.all_action, all_prev_reward=samples.all_reward, valid=torch.ones_like(samples.valid))
    documented = samples._replace(all_prev_action=None, all_prev_reward=None, valid=None)
    assert algo.loss(raw)[0].item() == algo.loss(documented)[0].item()


@pytest.mark.parametrize("double", [True, False])
def test_networks_go_through_a_sequence_once(double):
    algo, agent = make(double_dqn=double)
    steps = []
    for model in (agent.model, agent.target_model):
        model.register_forward_hook(lambda module, inputs, outputs: steps.append((len(inputs[0]), torch.is_grad_enabled())))
    algo.loss(sequences())
    assert steps == [(W, False), (W, False), (T + N, False), (T + N * double, True)]


# --- value scale ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("eps", [1e-3, 1e-2, 1.0])
def test_values_are_rescaled_by_the_formula(eps):
    x = torch.tensor([-1000.0, -3.0, -1e-3, 0.0, 1e-3, 0.5, 7.0, 1e5]).double()
    np.testing.assert_allclose(rescale(x, eps), [h(v, eps) for v in x.tolist()], rtol=1e-9)
    np.testing.assert_allclose(inverse_rescale(x, eps), [h_inverse(v, eps) for v in x.tolist()], rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("eps", [0.0, 1e-3, 1.0])
def test_the_scale_is_inverted_in_single_precision_too(eps):
    x = torch.cat([torch.linspace(-1e5, 1e5, 1001), torch.logspace(-8, 6, 50), -torch.logspace(-8, 6, 50), torch.zeros(1)])
    torch.testing.assert_close(inverse_rescale(rescale(x, eps), eps), x, rtol=1e-6, atol=0)


def test_another_scale_can_be_chosen():
    class Plain(R2D1):
        def value_scale(self, x):
            return x

        inv_value_scale = value_scale

    algo, _ = make()
    algo.__class__ = Plain
    samples = sequences(p_done=1.0)._replace(valid=torch.ones(W + T, B, dtype=torch.bool))
    qs = algo.agent(*[x[W : W + 1] for x in (samples.all_observation, samples.all_prev_action, samples.all_prev_reward)], None)[0][0]
    q = qs[torch.arange(B), samples.all_action[W + 1]]
    errors = algo.loss(samples)[1]
    np.testing.assert_allclose(errors[0], (samples.return_[W] - q).abs().detach())
    assert not errors[1:].any()  # All episodes are over.


# --- what is stored ---------------------------------------------------------------------------------------------------


def batch(agent, seed=0, T=SAMPLER_T, n=SAMPLER_B, p_done=0.2, wait_reset=False, timeouts=True):
    rng = np.random.default_rng(seed)
    observation = torch.from_numpy(rng.normal(size=(T + 1, n, OBSERVATION_SIZE)))
    action = torch.from_numpy(rng.integers(0, N_ACTIONS, size=(T + 1, n)))
    reward, done = torch.from_numpy(rng.normal(size=(T + 1, n))), torch.from_numpy(rng.random((T, n)) < p_done)
    timeout = done & torch.from_numpy(rng.random((T, n)) < 0.5)
    if wait_reset:
        blank = torch.zeros_like(done)
        blank[1:] = done.cumsum(0)[:-1] > 0
        done |= blank
        timeout &= ~blank
        action[1:][blank], reward[1:][blank] = 0, 0.0
    state = RnnState(*(torch.from_numpy(rng.normal(size=(T, n, 1, H))) for _ in range(2)))
    info = AgentInfo(torch.from_numpy(rng.normal(size=(T, n, N_ACTIONS))), state)
    return Samples(
        AgentSamples(action[1:], action[:-1], info),
        EnvSamples(observation[:-1], reward[1:], reward[:-1], done, None, timeout if timeouts else None),
    )


def reference_input_priority(algo, samples, b):
    """Priority of what one environment did in a batch, one step at a time."""
    errors, n_steps = [], len(samples.env.reward)
    for t in range(n_steps - 1):
        y, discount, truncated = 0.0, 1.0, False
        for k in range(t, min(t + algo.n_step_return, n_steps - 1)):
            y += discount * samples.env.reward[k, b].item()
            discount *= algo.discount
            if samples.env.done[k, b]:
                discount, truncated = 0.0, samples.env.timeout is not None and bool(samples.env.timeout[k, b])
                break
        if not truncated:
            q = samples.agent.agent_info.q
            last = q[min(t + algo.n_step_return, n_steps - 1), b].tolist()
            y += discount * (soft_value(algo, last, last) if algo.munchausen else h_inverse(max(last)))
            if algo.munchausen:
                y += munchausen_reward(algo, q[t, b].tolist(), int(samples.agent.action[t, b]))
            error = abs(h(y) - q[t, b, samples.agent.action[t, b]].item())
            errors.append(error if algo.delta_clip is None else min(error, algo.delta_clip))
        if samples.env.done[t, b]:
            break
    if not errors:
        return algo.default_priority
    return algo.pri_eta * max(errors) + (1 - algo.pri_eta) * sum(errors) / len(errors)


@pytest.mark.parametrize("sampler_T", [1, 2, 4, 9])
@pytest.mark.parametrize(
    "settings",
    [dict(), dict(n_step_return=1), dict(delta_clip=0.6, pri_eta=0.3, default_priority=7.0), dict(munchausen=True)],
    ids=str,
)
@pytest.mark.parametrize("wait_reset", [False, True])
def test_input_priorities_are_those_of_steps_taken_one_by_one(wait_reset, settings, sampler_T):
    algo, agent = make(not wait_reset, **settings)
    for seed, p_done in enumerate([0.0, 0.2, 0.2, 0.5, 1.0]):
        samples = batch(agent, seed, sampler_T, 12, p_done, wait_reset, timeouts=seed != 1)
        priorities = algo.compute_input_priorities(samples)
        np.testing.assert_allclose(priorities, [reference_input_priority(algo, samples, b) for b in range(12)], rtol=1e-6)


def test_input_priorities_bootstrap_with_the_discount_of_n_steps():
    """Zero rewards and equal values: what is left is γ^n."""
    algo, agent = make(n_step_return=3, discount=0.5, pri_eta=1.0)
    samples = batch(agent, T=4, p_done=0.0)
    samples.env.reward[:] = 0
    q = samples.agent.agent_info.q
    q[:] = 0
    q[3] = 2.0
    assert algo.compute_input_priorities(samples)[0].item() == pytest.approx(h(0.5 * h_inverse(2.0)))  # Step 2 has only 1 step left.
    q[3], q[0] = 2.0, -5.0
    samples.agent.action[0] = 0
    expected = max(abs(h(0.5**3 * h_inverse(2.0)) + 5.0), h(0.5 * h_inverse(2.0)))
    assert algo.compute_input_priorities(samples)[0].item() == pytest.approx(expected)


def test_what_is_stored_has_the_documented_fields():
    algo, agent = make()
    assert SamplesToBufferRnn._fields == SamplesToBuffer._fields + ("prev_rnn_state",)
    assert PrioritiesSamplesToBuffer._fields == ("priorities", "samples")
    samples = batch(agent)
    stored = algo.samples_to_buffer(samples)
    assert type(stored) is PrioritiesSamplesToBuffer and type(stored.samples) is SamplesToBufferRnn
    assert stored.priorities.shape == (SAMPLER_B,) and stored.samples.prev_rnn_state is samples.agent.agent_info.prev_rnn_state
    for off in (dict(input_priorities=False), dict(prioritized_replay=False)):
        assert type(make(**off)[0].samples_to_buffer(samples)) is SamplesToBufferRnn
    assert make(store_rnn_state_interval=0, input_priorities=False)[0].samples_to_buffer(samples).prev_rnn_state is None


def test_input_priorities_go_to_the_starts_so_many_batches_before_and_alpha_is_applied_once():
    algo, agent = make(min_steps_learn=10**6, pri_alpha=0.7)
    assert algo.input_priority_shift == 1
    tree, given = algo.replay_buffer.priority_tree, []
    for itr in range(12):
        samples = batch(agent, itr)
        given.append(algo.compute_input_priorities(samples).numpy())
        algo.optimize_agent(itr, samples)
    first, end = tree.window()
    assert end - first > 5
    for i in range(first, end):
        np.testing.assert_allclose(tree.priorities[i % tree.T], given[i + 1] ** 0.7)


@pytest.mark.parametrize("interval, warmup_T, shift", [(40, 40, 1), (20, 40, 2), (0, 40, 40), (40, 0, 0), (40, 50, 1)])
def test_by_default_priorities_are_shifted_by_the_warm_up(interval, warmup_T, shift):
    assert R2D1(store_rnn_state_interval=interval, warmup_T=warmup_T).input_priority_shift == shift
    assert R2D1(store_rnn_state_interval=interval, warmup_T=warmup_T, input_priority_shift=3).input_priority_shift == 3


@pytest.mark.parametrize("async_", [False, True])
@pytest.mark.parametrize("prioritized", [False, True])
@pytest.mark.parametrize("frames", [False, True])
def test_the_replay_buffer_suits_observation_settings_and_runner(frames, prioritized, async_):
    algo, agent = make(prioritized_replay=prioritized)
    examples = dict(EXAMPLES, observation=np.zeros((4, 8, 8), np.uint8)) if frames else EXAMPLES
    buffer = algo.initialize_replay_buffer(examples, BatchSpec(4, 2), async_)
    assert type(buffer) is SEQUENCE_BUFFERS[frames, prioritized, async_]
    assert (buffer.batch_T, buffer.rnn_state_interval, buffer.n_step_return, buffer.discount) == (W + T, 4, N, 0.9)
    if prioritized:
        assert (buffer.alpha, buffer.beta, buffer.input_priorities, buffer.input_priority_shift) == (0.6, 0.9, True, 1)


# --- training ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wait_reset", thinned([False, True], quick=[True]))
@pytest.mark.parametrize(
    "settings",
    thinned(
        [dict(), dict(prioritized_replay=False), dict(store_rnn_state_interval=0), dict(input_priorities=False),
         dict(prefetch_batches=True), dict(warmup_T=0, store_rnn_state_interval=1), dict(store_rnn_state_interval=6, warmup_T=6)],
        quick=[dict(prioritized_replay=False), dict(prefetch_batches=True), dict(store_rnn_state_interval=6, warmup_T=6)],
    ),
    ids=str,
)  # fmt: skip
def test_it_trains_on_what_samplers_of_both_kinds_give(settings, wait_reset):
    algo, agent = make(not wait_reset, **settings)
    learned = 0
    for itr in range(40):
        info = algo.optimize_agent(itr, batch(agent, itr, wait_reset=wait_reset))
        assert bool(info.loss) == (itr >= algo.min_itr_learn)
        learned += len(info.loss)
    assert learned == algo.update_counter > 10 and all(np.isfinite(info.loss + info.gradNorm + info.priority))
    assert info._fields == algo.opt_info_fields == ("loss", "gradNorm", "tdAbsErr", "priority")
    assert len(info.tdAbsErr) == len(info.priority) == algo.updates_per_optimize * algo.batch_B
    assert isinstance(algo.replay_buffer, PrefetchedReplay) == algo.prefetch_batches


@pytest.mark.parametrize("n, nothing", [(3, True), (2, False)])
def test_it_is_said_once_if_all_targets_would_cross_a_truncation(n, nothing, capsys):
    algo, agent = make(n_step_return=n, prioritized_replay=False)
    for itr in range(60):
        samples = batch(agent, itr, p_done=0)
        samples.env.done[(torch.arange(SAMPLER_T) + itr * SAMPLER_T) % 3 == 2] = True
        samples.env.timeout[:] = samples.env.done
        info = algo.optimize_agent(itr, samples)
        assert not (nothing and any(info.tdAbsErr + info.priority))
    out = capsys.readouterr().out
    assert algo.update_counter > 10 and out.count("R2D1 has learned nothing") == nothing
    assert ("n_step_return=3" in out and "Lower n_step_return" in out) == nothing


SAMPLERS = [
    (SerialSampler, CpuResetCollector, MlpR2d1Agent),
    (SerialSampler, CpuWaitResetCollector, MlpR2d1Agent),
    (CpuSampler, CpuWaitResetCollector, MlpR2d1Agent),
    (GpuSampler, GpuResetCollector, MlpR2d1Agent),
    (AlternatingSampler, GpuWaitResetCollector, MlpR2d1AlternatingAgent),
]


@processes
@pytest.mark.parametrize("SamplerCls, CollectorCls, AgentCls", thinned(SAMPLERS, quick=SAMPLERS[:1]))
def test_it_trains_with_every_kind_of_sampler(SamplerCls, CollectorCls, AgentCls):
    agent = AgentCls(model_kwargs=dict(lstm_size=H))
    algo = R2D1(
        batch_T=6, warmup_T=4, batch_B=4, store_rnn_state_interval=4, n_step_return=2, replay_size=800, min_steps_learn=80, replay_ratio=2
    )
    env_kwargs = dict(episode_length=[5, 9, 2, 14], end=["terminated", "timeout", "life"])
    sampler = SamplerCls(CountingEnv, env_kwargs, batch_T=4, batch_B=4, CollectorCls=CollectorCls, max_decorrelation_steps=3)
    losses, loss = [], algo.loss
    algo.loss = lambda samples: (losses.append(reference_loss(algo, agent, samples)[0].item()), loss(samples))[1]
    infos, update = [], algo.update
    algo.update = lambda samples: (infos.append(update(samples)), infos[-1])[1]
    affinity = dict(workers_cpus=[0, 1], set_affinity=False)
    runner = MinibatchRl(algo=algo, agent=agent, sampler=sampler, n_steps=200, seed=1, affinity=affinity, log_interval_steps=100)
    runner.train()
    assert algo.update_counter == len(infos) > 10
    np.testing.assert_allclose([info.loss.item() for info, _ in infos], losses, rtol=1e-3)


def test_a_batch_from_the_buffer_gives_the_loss_of_steps_taken_one_by_one():
    for wait_reset in (False, True):
        algo, agent = make(not wait_reset)
        for itr in range(30):
            algo.optimize_agent(0, batch(agent, itr, wait_reset=wait_reset, p_done=0.1))
        samples = algo.replay_buffer.sample_batch(32)
        loss, _, priorities = algo.loss(samples)
        expected, _, expected_priorities = reference_loss(algo, agent, samples)
        assert loss.item() == pytest.approx(expected.item(), rel=1e-6)
        np.testing.assert_allclose(priorities, expected_priorities, rtol=1e-6)


def test_priorities_of_a_batch_become_those_of_the_buffer():
    algo, agent = make(pri_alpha=0.5)
    told = []
    update = algo.update

    def update_and_tell(samples):
        result = update(samples)
        told.append((samples.ids.clone(), result[1]))
        return result

    algo.update = update_and_tell
    for itr in range(20):
        algo.optimize_agent(itr, batch(agent, itr))
    ids, priorities = told[-1]
    tree = algo.replay_buffer.priority_tree
    expected = dict(zip(ids.tolist(), (priorities**0.5).tolist(), strict=True))
    assert all(tree.priorities[i // SAMPLER_B % tree.T, i % SAMPLER_B] == pytest.approx(p) for i, p in expected.items())


@pytest.mark.parametrize("ratio, batch_B, updates", [(1, 64, 1), (4, 32, 2), (4, 64, 1), (4, 16, 4)])
def test_an_update_replays_the_warm_up_too(ratio, batch_B, updates):
    algo = R2D1(batch_T=80, warmup_T=40, batch_B=batch_B, replay_ratio=ratio)
    assert algo.batch_size == 120 * batch_B and algo.replay_batch_B == batch_B
    algo, _ = make(sampler_T=40, batch_T=8, warmup_T=2, batch_B=batch_B // 16, replay_ratio=ratio / 8, replay_size=2000)
    assert algo.updates_per_optimize == updates


def test_defaults_are_the_documented_ones():
    algo = R2D1()
    assert (algo.discount, algo.batch_T, algo.batch_B, algo.warmup_T, algo.store_rnn_state_interval) == (0.997, 80, 64, 40, 40)
    assert (algo.default_priority, algo.optim_kwargs, algo.clip_grad_norm, algo.double_dqn) == (1.0, dict(eps=1e-3), 80.0, True)
    assert (algo.target_update_tau, algo.n_step_return, algo.pri_eta, algo.value_scale_eps) == (1, 5, 0.9, 1e-3)
    assert R2D1(optim_kwargs=dict(eps=0.1)).optim_kwargs == dict(eps=0.1)
    assert R2D1(OptimCls=torch.optim.SGD).optim_kwargs == {}


@pytest.mark.parametrize(
    "name, value",
    [("batch_T", 0), ("batch_B", 1.5), ("warmup_T", -1), ("store_rnn_state_interval", -1), ("pri_eta", 1.1), ("value_scale_eps", -1),
     ("input_priority_shift", -1), ("n_step_return", 0), ("delta_clip", 0), ("input_priorities", 2), ("double_dqn", "no")],
)  # fmt: skip
def test_impossible_settings_are_refused(name, value):
    with pytest.raises(ValueError, match=f"R2D1: {name}="):
        R2D1(**{name: value})


def test_agents_with_and_without_memory_are_not_confused():
    with pytest.raises(ValueError, match="R2D1 needs an agent.*MlpR2d1Agent.*; MlpDqnAgent does not"):
        start(R2D1(), MlpDqnAgent(), 4, 2, examples=EXAMPLES)
    with pytest.raises(ValueError, match="^DQN needs an agent.*no recurrent state.*; MlpR2d1Agent does not"):
        start(DQN(), MlpR2d1Agent(), 4, 2, examples=EXAMPLES)


def test_a_buffer_of_single_steps_is_refused_where_sequences_are_replayed():
    with pytest.raises(ValueError, match="R2D1 replays sequences, for which PrioritizedReplayBuffer is not made: .* PrioritizedSequence"):
        make(ReplayBufferCls=PrioritizedReplayBuffer)


def test_an_asynchronous_runner_gets_a_buffer_that_is_shared():
    algo, agent = make()
    buffer = algo.async_initialize(agent, 100, BatchSpec(4, 2), True, EXAMPLES)
    assert buffer.async_ and algo.updates_per_optimize == algo.updates_per_sync
    algo.ReplayBufferCls = UniformSequenceReplayBuffer
    with pytest.raises(ValueError, match="needs a replay buffer that processes share"):
        algo.async_initialize(agent, 100, BatchSpec(4, 2), True, EXAMPLES)


@learning
@full
def test_it_learns_a_game():
    torch.manual_seed(1)
    np.random.seed(1)
    agent, game = MlpR2d1Agent(eps_final=0.02, model_kwargs=dict(lstm_size=16)), PickTheLargest(B=8, seed=1)
    agent.initialize(SPACES)
    examples = dict(game.examples(), agent_info=AgentInfo(np.zeros(3, np.float32), RnnState(*np.zeros((2, 1, 16), np.float32))))
    algo = R2D1(
        discount=0.5, learning_rate=0.003, batch_T=8, warmup_T=4, batch_B=16, store_rnn_state_interval=4, min_steps_learn=256,
        replay_size=5000, eps_steps=1500, target_update_interval=50, n_step_return=2, replay_ratio=16,
    )  # fmt: skip
    algo.initialize(agent, 120, BatchSpec(16, 8), True, examples)
    rewards = []
    for itr in range(60):
        samples = game.sample(agent, itr, T=16)
        rewards.append(samples.env.reward.mean().item())
        agent.train_mode(itr)
        algo.optimize_agent(itr, samples)
    assert np.mean(rewards[:2]) < 0.5
    assert np.mean(rewards[-10:]) > 0.8
