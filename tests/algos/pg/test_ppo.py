import copy

import numpy as np
import pytest
import torch
from experience import SPACES, GruAgent, PickTheLargest, random_samples, start
from tiers import learning

from rlpyt.agents.pg.mlp import MlpFfAgent
from rlpyt.agents.pg.mujoco import MujocoFfAgent
from rlpyt.algos.pg.a2c import A2C
from rlpyt.algos.pg.appo import Appo
from rlpyt.algos.pg.ppo import PPO, Ratios, clipped_surrogate
from rlpyt.envs.base import EnvSpaces
from rlpyt.runners import checkpoint
from rlpyt.samplers.collections import AgentSamplesBsv, BatchSpec, EnvSamples, Samples
from rlpyt.spaces.float_box import FloatBox
from rlpyt.utils.buffer import buffer_leaves, buffer_method

T, B = 8, 5


def reference_loss(prob, old_prob, value, action, advantage, return_, clip):
    """The formula, one step at a time, over [n]."""
    total = 0.0
    for i in range(len(action)):
        ratio = prob[i, action[i]] / old_prob[i, action[i]]
        total += -min(ratio * advantage[i], ratio.clamp(1 - clip, 1 + clip) * advantage[i])
        total += 1.0 * 0.5 * (value[i] - return_[i]) ** 2
        total -= 0.01 * -sum(p * torch.log(p) for p in prob[i])
    return total / len(action)


def test_an_iteration_is_the_formula_on_shuffled_minibatches():
    """The whole loop written out, on a copy of the model, with the same minibatches."""
    agent = MlpFfAgent()
    algo = start(PPO(learning_rate=0.05, epochs=2, minibatches=4, gae_lambda=0.8, ratio_clip=0.05), agent, T, B)
    samples = random_samples(agent, T, B)
    model = copy.deepcopy(agent.model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05, fused=False, foreach=False)
    torch.manual_seed(7)
    minibatches = algo.minibatch_idxs((T, B), "cpu")
    torch.manual_seed(7)
    opt_info = algo.optimize_agent(0, samples)

    return_, advantage, _ = algo.process_returns(samples)
    flat = [x.reshape(T * B, *x.shape[2:]) for x in (samples.env.observation, samples.agent.action, advantage, return_)]
    old_prob = samples.agent.agent_info.dist_info.prob.reshape(T * B, -1)
    losses, norms = [], []
    for idxs in minibatches:
        observation, action, adv, ret = (x[idxs] for x in flat)
        prob, value = model(observation, None, None)
        loss = reference_loss(prob, old_prob[idxs], value, action, adv, ret, 0.05)
        optimizer.zero_grad()
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).item())
        optimizer.step()
        losses.append(loss.item())
    np.testing.assert_allclose(opt_info.loss, losses, rtol=1e-5)
    np.testing.assert_allclose(opt_info.gradNorm, norms, rtol=1e-5)
    for p, q in zip(agent.parameters(), model.parameters()):
        torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-7)


def test_every_epoch_visits_every_step_once_in_another_order():
    agent = MlpFfAgent()
    algo = start(PPO(epochs=3, minibatches=4), agent, T, B)
    idxs = algo.minibatch_idxs((T, B), "cpu")
    assert idxs.shape == (12, 10)
    epochs = idxs.reshape(3, 40)
    assert all(sorted(epoch.tolist()) == list(range(40)) for epoch in epochs)
    assert not torch.equal(epochs[0], epochs[1])


@pytest.mark.parametrize("minibatches, per_epoch, size, left_out", [(6, 6, 6, 4), (9, 10, 4, 0), (15, 20, 2, 0)])
def test_there_are_as_many_minibatches_as_fit_where_they_do_not_divide_the_batch(minibatches, per_epoch, size, left_out):
    rest = f", and leaves out {left_out} steps, chosen at random" if left_out else ""
    with pytest.warns(UserWarning, match=rf"every epoch has {per_epoch} minibatches of {size} steps{rest}\.$"):
        algo = start(PPO(epochs=2, minibatches=minibatches), MlpFfAgent(), T, B)
    idxs = algo.minibatch_idxs((T, B), "cpu")
    assert idxs.shape == (2 * per_epoch, size) and algo.batch_size == size
    assert all(len(set(epoch.tolist())) == T * B - left_out for epoch in idxs.reshape(2, -1))


@pytest.mark.parametrize("size", [16, 20])
def test_small_minibatches_are_gathered_together_and_each_begins_in_memory_like_an_array_of_its_own(size):
    T, B = 100, 16
    agent = MlpFfAgent()
    algo = start(PPO(minibatches=T * B // size, epochs=2, clip_value_loss=True), agent, T, B)
    inputs, state, old_value, _ = algo.loss_inputs(random_samples(agent, T, B))
    all_idxs = algo.minibatch_idxs((T, B), "cpu")
    minibatches = list(algo._minibatches(inputs, state, old_value, all_idxs))
    assert (len({minibatch[2].untyped_storage().data_ptr() for minibatch in minibatches}) < len(minibatches)) == (size == 16)
    for idxs, minibatch in zip(all_idxs, minibatches, strict=True):
        alone = *buffer_method(inputs, "flatten", 0, 1)[idxs], old_value.flatten()[idxs]
        for ours, reference in zip(buffer_leaves(minibatch), buffer_leaves(alone), strict=True):
            assert torch.equal(ours, reference) and ours.is_contiguous()
            assert ours.data_ptr() % 64 == 0


def test_a_recurrent_agent_trains_on_every_sequence_where_minibatches_do_not_divide_them():
    with pytest.warns(UserWarning, match=r"every epoch has 6 minibatches of 1 environments\.$"):
        algo = start(PPO(epochs=1, minibatches=4), GruAgent(), T, 6)
    assert sorted(algo.minibatch_idxs((T, 6), "cpu", torch.ones(T, 6)).flatten().tolist()) == list(range(6))


def test_minibatches_are_of_valid_steps_only():
    agent = MlpFfAgent()
    algo = start(PPO(epochs=3, minibatches=4), agent, T, B, mid_batch_reset=False)
    valid = torch.zeros(T, B)
    valid[0], valid[:4, 2], valid[:, 4] = 1, 1, 1
    expected = [t * B + b for t in range(T) for b in range(B) if valid[t, b]]  # 15 of 40
    idxs = algo.minibatch_idxs((T, B), "cpu", valid)
    assert idxs.shape == (12, 3)
    for epoch in idxs.reshape(3, 12).tolist():
        assert len(set(epoch)) == 12 and set(epoch) <= set(expected)
    assert set(idxs.flatten().tolist()) == set(expected)


@pytest.mark.parametrize("minibatches", [1, 4])
@pytest.mark.parametrize("settings", [{}, dict(normalize_advantage=True), dict(clip_value_loss=True, target_kl=0.1)], ids=str)
def test_a_batch_of_blank_rows_alone_changes_nothing(settings, minibatches):
    """All environments of a vector may have reached the same time limit in the batch before, which was as long as an episode."""
    agent = MlpFfAgent()
    algo = start(PPO(epochs=2, minibatches=minibatches, OptimCls=torch.optim.SGD, **settings), agent, T, B)
    samples = random_samples(agent, T, B)
    blank = samples.env._replace(valid=torch.zeros(T, B, dtype=torch.bool), done=torch.ones(T, B, dtype=torch.bool))
    before = [parameter.clone() for parameter in agent.parameters()]
    opt_info = algo.optimize_agent(0, samples._replace(env=blank))
    assert len(opt_info.loss) == 2 * minibatches and not any(opt_info.loss)
    torch.testing.assert_close(list(agent.parameters()), before, rtol=0, atol=0)


@pytest.mark.parametrize("minibatches", [1, 4, 9])
def test_a_batch_in_which_all_episodes_end_at_once_is_trained_on(minibatches):
    agent = MlpFfAgent()
    algo = start(PPO(epochs=2, minibatches=minibatches, normalize_advantage=True), agent, T, B, mid_batch_reset=False)
    samples = random_samples(agent, T, B)
    samples.env.done[:] = True
    calls, loss = [], algo.loss
    algo.loss = lambda *args: (calls.append(args), loss(*args))[1]
    opt_info = algo.optimize_agent(0, samples)
    assert len(opt_info.loss) == 2 * minibatches and np.isfinite(opt_info.loss).all()
    first_row = samples.env.observation[0].tolist()
    for agent_inputs, *_, valid, _ in calls:
        assert valid.all() and len(valid) == max(B // minibatches, 1)
        assert all(row in first_row for row in agent_inputs.observation.tolist())


def test_updates_are_counted():
    agent = MlpFfAgent()
    algo = start(PPO(epochs=3, minibatches=2), agent, T, B)
    for itr in range(2):
        opt_info = algo.optimize_agent(itr, random_samples(agent, T, B))
        of_iteration = {"explainedVariance", "learningRate"}
        assert {name: len(field) for name, field in opt_info._asdict().items()} == {
            name: 1 if name in of_iteration else 6 for name in algo.opt_info_fields
        }
    assert algo.update_counter == 12


def test_more_minibatches_than_there_is_data_are_refused():
    with pytest.raises(ValueError, match="minibatches=50 must be at most 40, the steps"):
        start(PPO(minibatches=50), MlpFfAgent(), T, B)
    with pytest.raises(ValueError, match="at most 5, the environments .* whole sequences"):
        start(PPO(minibatches=6), GruAgent(), T, B)


def test_rates_fall_linearly_and_are_functions_of_the_iteration():
    agent = MlpFfAgent()
    algo = start(PPO(learning_rate=0.4, ratio_clip=0.2), agent, T, B, n_itr=10)
    seen = {}
    for itr in (0, 1, 5, 9, 5):
        algo.optimize_agent(itr, random_samples(agent, T, B))
        rates = algo.optimizer.param_groups[0]["lr"], algo.ratio_clip
        assert seen.setdefault(itr, rates) == rates
    assert seen[0] == (0.4, 0.2)
    assert seen[1] == pytest.approx((0.36, 0.2))  # The clip is one iteration late, as in the original.
    assert seen[5] == pytest.approx((0.2, 0.12))
    assert seen[9] == pytest.approx((0.04, 0.04))

    resumed = start(PPO(learning_rate=0.4, ratio_clip=0.2, initial_optim_state_dict=algo.optim_state_dict()), agent, T, B, n_itr=10)
    resumed.optimize_agent(9, random_samples(agent, T, B))
    assert (resumed.optimizer.param_groups[0]["lr"], resumed.ratio_clip) == seen[9]


class OwnLoop(PPO):
    def optimize_agent(self, itr, samples):
        return super().optimize_agent(itr, samples)


@pytest.mark.parametrize("AlgoCls, warns", [(PPO, False), (OwnLoop, True)])
def test_a_rate_from_an_initial_optimizer_state_is_logged_where_no_schedule_replaces_it(AlgoCls, warns, capfd):
    agent = MlpFfAgent()
    state = start(PPO(learning_rate=0.4), agent, T, B, n_itr=10).optim_state_dict()
    start(AlgoCls(learning_rate=0.1, initial_optim_state_dict=state), agent, T, B, n_itr=10)
    assert ("WARNING: optimizer has lr=0.4 instead of 0.1" in capfd.readouterr().out) is warns


@pytest.mark.parametrize("n_itr", [1, 2, 3])
def test_rates_of_runs_of_any_length_and_beyond_are_finite_and_never_negative(n_itr):
    agent = MlpFfAgent()
    algo = start(PPO(learning_rate=0.4, ratio_clip=0.2, minibatches=1, epochs=1), agent, T, B, n_itr=n_itr)
    for itr in range(n_itr + 2):
        opt_info = algo.optimize_agent(itr, random_samples(agent, T, B))
        remaining, before = max(1 - itr / n_itr, 0), max(1 - max(itr - 1, 0) / n_itr, 0)
        assert (algo.optimizer.param_groups[0]["lr"], algo.ratio_clip) == pytest.approx((0.4 * remaining, 0.2 * before))
        assert np.isfinite(opt_info.loss).all()


def test_a2c_has_a_schedule_too_if_asked_for():
    for wanted, expected in ((True, 0.4 * 0.7), (False, 0.4)):
        agent = MlpFfAgent()
        algo = start(A2C(learning_rate=0.4, linear_lr_schedule=wanted), agent, T, B, n_itr=10)
        algo.optimize_agent(3, random_samples(agent, T, B))
        assert algo.optimizer.param_groups[0]["lr"] == pytest.approx(expected)


def test_rates_stay_without_the_schedule():
    agent = MlpFfAgent()
    algo = start(PPO(learning_rate=0.4, ratio_clip=0.2, linear_lr_schedule=False), agent, T, B, n_itr=10)
    algo.optimize_agent(9, random_samples(agent, T, B))
    assert (algo.optimizer.param_groups[0]["lr"], algo.ratio_clip) == (0.4, 0.2)


def test_a_recurrent_agent_trains_on_whole_sequences_from_their_recorded_states():
    agent = GruAgent()
    algo = start(PPO(epochs=2, minibatches=2), agent, T, 6)
    state = torch.rand(6, 1, 5).double()
    samples = random_samples(agent, T, 6, agent_info=agent.info(torch.rand(T, 6, 4).double(), state))
    calls, loss = [], algo.loss

    def recording_loss(*args):
        calls.append(args)
        return loss(*args)

    algo.loss = recording_loss
    algo.optimize_agent(0, samples)
    assert len(calls) == 4
    columns = samples.env.observation[0].tolist()
    for epoch in (calls[:2], calls[2:]):
        visited = []
        for agent_inputs, *_, init_rnn_state in epoch:
            assert agent_inputs.observation.shape == (T, 3, 4)
            envs = [columns.index(row) for row in agent_inputs.observation[0].tolist()]
            torch.testing.assert_close(init_rnn_state, state[envs].transpose(0, 1))
            torch.testing.assert_close(agent_inputs.observation, samples.env.observation[:, envs])
            visited += envs
        assert sorted(visited) == list(range(6))


def test_likelihood_ratios_start_at_one_with_normalized_observations():
    """Statistics of a batch must not change what its recorded probabilities are compared with, only the batches after it."""
    spaces = EnvSpaces(FloatBox(-1, 1, (4,)), FloatBox(-1, 1, (2,)))
    torch.manual_seed(0)
    agent = MujocoFfAgent(model_kwargs=dict(normalize_observation=True))
    agent.initialize(spaces)
    algo = PPO(epochs=2, minibatches=2, learning_rate=0.01)
    algo.initialize(agent, 10, BatchSpec(T, B), mid_batch_reset=True)
    likelihood_ratio, ratios = agent.distribution.likelihood_ratio, []
    agent.distribution.likelihood_ratio = lambda *args, **kwargs: (ratios.append(likelihood_ratio(*args, **kwargs)), ratios[-1])[1]
    for itr in range(2):
        agent.sample_mode(itr)
        observation = 5 + 3 * torch.randn(T, B, 4)
        reward, done = torch.randn(T, B), torch.zeros(T, B, dtype=torch.bool)
        step = agent.step(observation, torch.zeros(T, B, 2), reward)
        samples = Samples(
            AgentSamplesBsv(step.action, torch.zeros(T, B, 2), step.agent_info, torch.zeros(1, B)),
            EnvSamples(observation, reward, reward, done, None),
        )
        before = agent.model.obs_rms.mean.clone()
        agent.train_mode(itr)
        algo.optimize_agent(itr, samples)
        assert not torch.equal(agent.model.obs_rms.mean, before)
    assert len(ratios) == 8
    for first in (ratios[0], ratios[4]):
        torch.testing.assert_close(first, torch.ones(T * B // 2), rtol=1e-4, atol=1e-4)
    assert (ratios[5] - 1).abs().max() > 1e-3


def masked_loss(prob, old_prob, value, action, advantage, return_, valid, clip, value_coeff=1.0, entropy_coeff=0.01):
    """The formula over the valid steps [T,B], one at a time: policy part, value part, entropy part."""
    policy, values, entropies, n = 0.0, 0.0, 0.0, 0
    for t, b in valid.nonzero().tolist():
        a = action[t, b]
        ratio = prob[t, b, a] / old_prob[t, b, a]
        policy += -min(ratio * advantage[t, b], ratio.clamp(1 - clip, 1 + clip) * advantage[t, b])
        values += value_coeff * 0.5 * (value[t, b] - return_[t, b]) ** 2
        entropies += entropy_coeff * sum(p * torch.log(p) for p in prob[t, b])
        n += 1
    return policy / n, values / n, entropies / n


@pytest.mark.parametrize("AgentCls", [MlpFfAgent, GruAgent])
@pytest.mark.parametrize("part", ["all", "policy", "value"])
def test_the_loss_is_the_formula_over_valid_steps(AgentCls, part):
    agent = AgentCls()
    coeffs = dict(all=(1.0, 0.01), policy=(0, 0), value=(1.0, 0))[part]
    settings = dict(zip(("value_loss_coeff", "entropy_loss_coeff"), coeffs), epochs=1, minibatches=1, linear_lr_schedule=False)
    algo = start(PPO(ratio_clip=0.05, gae_lambda=0.8, **settings), agent, T, B, mid_batch_reset=False)
    state = torch.rand(B, 1, 5).double()
    agent_info = agent.info(torch.rand(T, B, 4).double(), state) if agent.recurrent else None
    samples = random_samples(agent, T, B, agent_info=agent_info)
    for p in agent.parameters():  # Away from the policy that acted, so that some ratios are clipped.
        p.data += 0.1 * torch.randn_like(p)
    return_, advantage, valid = algo.process_returns(samples)
    if part == "value":
        algo.process_returns = lambda samples: (return_, advantage * 0, valid)
        advantage = advantage * 0
    assert 0 < valid.sum() < T * B
    inputs = (state.transpose(0, 1).contiguous(),) if agent.recurrent else (None, None)
    prob, value = agent.model(samples.env.observation, *inputs)[:2]
    old_prob = samples.agent.agent_info.dist_info.prob
    parts = masked_loss(prob, old_prob, value, samples.agent.action, advantage, return_, valid, 0.05, *coeffs)
    opt_info = algo.optimize_agent(0, samples)
    assert opt_info.loss == [pytest.approx(sum(parts).item(), abs=1e-6)]
    if part != "all":
        assert abs(parts[part == "value"]) > 1e-3 and parts[part != "value"] == 0


# --- Diagnostics and options -------------------------------------------------------------------------------------------
@pytest.mark.parametrize("AgentCls", [MlpFfAgent, GruAgent])
def test_diagnostics_are_their_formulas(AgentCls):
    agent = AgentCls()
    algo = start(PPO(ratio_clip=0.05, epochs=1, minibatches=1, learning_rate=0.3), agent, T, B, mid_batch_reset=False)
    state = torch.rand(B, 1, 5).double()
    agent_info = agent.info(torch.rand(T, B, 4).double(), state) if agent.recurrent else None
    samples = random_samples(agent, T, B, agent_info=agent_info)
    for p in agent.parameters():
        p.data += 0.1 * torch.randn_like(p)
    return_, advantage, valid = algo.process_returns(samples)
    inputs = (state.transpose(0, 1).contiguous(),) if agent.recurrent else (None, None)
    prob, value = (x.detach() for x in agent.model(samples.env.observation, *inputs)[:2])
    old_prob, action = samples.agent.agent_info.dist_info.prob, samples.agent.action
    policy, values, _ = masked_loss(prob, old_prob, value, action, advantage, return_, valid, 0.05)
    opt_info = algo.optimize_agent(0, samples)
    steps = [(t, b) for t, b in valid.nonzero().tolist()]
    ratio = np.array([float(prob[t, b, action[t, b]] / old_prob[t, b, action[t, b]]) for t, b in steps])
    returns, errors = (np.array([float(x[t, b]) for t, b in steps]) for x in (return_, return_ - samples.agent.agent_info.value))
    assert opt_info.piLoss == [pytest.approx(float(policy), rel=1e-4)] and opt_info.valueLoss == [pytest.approx(float(values), rel=1e-4)]
    assert opt_info.approxKl == [pytest.approx(np.mean(ratio - 1 - np.log(ratio)), rel=1e-3)]
    assert opt_info.clipFrac == [pytest.approx(np.mean(np.abs(ratio - 1) > 0.05))] and 0 < opt_info.clipFrac[0] < 1
    assert opt_info.explainedVariance == [pytest.approx(1 - np.var(errors) / np.var(returns), rel=1e-5)]
    assert opt_info.learningRate == [0.3]


def test_a_ratio_that_overflows_or_vanishes_leaves_the_divergence_finite():
    algo = start(PPO(), MlpFfAgent(), T, B)
    found = algo._diagnosed([Ratios(torch.tensor([0.0, 1.0, float("inf")]), None)])
    assert found.approxKl.isfinite().all() and found.clipFrac.tolist() == pytest.approx([2 / 3])


def test_epochs_end_when_the_policy_has_moved_far_enough():
    n_updates = {}
    for target_kl in (None, 1e-9, 1e9):
        agent = MlpFfAgent()
        algo = start(PPO(epochs=5, minibatches=2, learning_rate=0.05, target_kl=target_kl), agent, T, B)
        opt_info = algo.optimize_agent(0, random_samples(agent, T, B))
        n_updates[target_kl] = algo.update_counter
        assert len(opt_info.loss) == len(opt_info.approxKl) == algo.update_counter
    assert n_updates == {None: 10, 1e-9: 2, 1e9: 10}


def test_a_target_that_is_not_reached_changes_nothing():
    parameters = []
    for target_kl in (None, 1e9):
        agent = MlpFfAgent()
        algo = start(PPO(epochs=3, target_kl=target_kl), agent, T, B)
        torch.manual_seed(3)
        algo.optimize_agent(0, random_samples(agent, T, B))
        parameters.append(list(agent.parameters()))
    assert all(torch.equal(p, q) for p, q in zip(*parameters))


@pytest.mark.parametrize("AgentCls", [MlpFfAgent, GruAgent])
def test_the_clipped_value_loss_is_the_formula(AgentCls):
    agent = AgentCls()
    settings = dict(epochs=1, minibatches=1, entropy_loss_coeff=0.0, clip_value_loss=True, ratio_clip=0.1)
    algo = start(PPO(**settings), agent, T, B)
    state = torch.rand(B, 1, 5).double()
    agent_info = agent.info(torch.rand(T, B, 4).double(), state) if agent.recurrent else None
    samples = random_samples(agent, T, B, agent_info=agent_info)
    for p in agent.parameters():
        p.data += 0.3 * torch.randn_like(p)
    return_, _, valid = algo.process_returns(samples)
    inputs = (state.transpose(0, 1).contiguous(),) if agent.recurrent else (None, None)
    value, old = agent.model(samples.env.observation, *inputs)[1].detach(), samples.agent.agent_info.value
    losses, n_clipped = [], 0
    for t in range(T):
        for b in range(B):
            if valid is None or valid[t, b]:
                clipped = min(max(value[t, b], old[t, b] - 0.1), old[t, b] + 0.1)
                n_clipped += (clipped - return_[t, b]) ** 2 > (value[t, b] - return_[t, b]) ** 2
                losses.append(max((value[t, b] - return_[t, b]) ** 2, (clipped - return_[t, b]) ** 2) / 2)
    assert 0 < n_clipped < len(losses)
    assert algo.optimize_agent(0, samples).valueLoss == [pytest.approx(float(sum(losses) / len(losses)), rel=1e-5)]


@pytest.mark.parametrize("desired_kl, factors", [(1e9, [1, 1.5, 2.25]), (1e-9, [1, 1 / 1.5, 1 / 2.25])])
def test_an_adaptive_rate_follows_the_divergence_and_is_resumed(desired_kl, factors):
    def make():
        agent = MlpFfAgent()
        settings = dict(lr_schedule="adaptive", desired_kl=desired_kl, learning_rate=0.01, linear_lr_schedule=False)
        return start(PPO(**settings), agent, T, B), random_samples(agent, T, B)

    algo, samples = make()
    rates = [algo.optimize_agent(itr, samples).learningRate[0] for itr in range(3)]
    assert rates == pytest.approx([0.01 * factor for factor in factors])
    resumed, _ = make()
    resumed.load_training_state(algo.training_state())
    assert resumed.optimize_agent(3, samples).learningRate == pytest.approx([rates[-1] * factors[1]])


@pytest.mark.parametrize("desired_kl, factor", [(1e9, 10), (1e-15, 0.01)])
def test_an_adaptive_rate_has_limits(desired_kl, factor):
    algo = start(PPO(lr_schedule="adaptive", desired_kl=desired_kl, learning_rate=1e-3, epochs=2), MlpFfAgent(), T, B)
    samples = random_samples(algo.agent, T, B)
    for itr in range(14):
        rate = algo.optimize_agent(itr, samples).learningRate[0]
    assert rate == pytest.approx(1e-3 * factor)


@pytest.mark.parametrize("AlgoCls", [PPO, Appo])
def test_a_rate_does_not_adapt_to_the_divergence_before_the_only_update(AlgoCls):
    algo = start(AlgoCls(lr_schedule="adaptive", epochs=1, minibatches=1, learning_rate=0.01), MlpFfAgent(), T, B)
    samples = random_samples(algo.agent, T, B)
    with pytest.warns(UserWarning, match='"adaptive" leaves the learning rate as it is. It needs several updates on each batch'):
        rates = [algo.optimize_agent(itr, samples).learningRate[0] for itr in range(3)]
    assert rates == [0.01] * 3
    algo.policy_lag = 1  # Now the divergence is that from an older policy.
    algo.optimize_agent(3, samples)
    assert algo.optimize_agent(4, samples).learningRate[0] != 0.01


@pytest.mark.parametrize("lr_schedule", ["constant", "linear", "adaptive"])
def test_a_schedule_of_the_rate_leaves_the_clip_alone(lr_schedule):
    algo = start(PPO(lr_schedule=lr_schedule, ratio_clip=0.2), MlpFfAgent(), T, B, n_itr=10)
    for itr in (0, 5, 9):
        algo.set_schedules(itr)
        assert algo.ratio_clip == 0.2


@pytest.mark.parametrize("AlgoCls", [A2C, PPO])
def test_normalized_rewards_train_as_scaled_ones_would_and_are_resumed(AlgoCls):
    def make(**settings):
        agent = MlpFfAgent()
        return start(AlgoCls(**settings), agent, T, B), agent

    algo, agent = make(normalize_reward=True)
    samples = random_samples(agent, T, B)
    reward = samples.env.reward.clone()
    torch.manual_seed(5)
    algo.optimize_agent(0, samples)
    assert torch.equal(samples.env.reward, reward)  # The sampler's memory, from which TrajInfos are made, is left alone.
    other, its_agent = make()
    scaled = samples._replace(env=samples.env._replace(reward=(reward / algo._reward_scale.std).clamp(-10, 10)))
    torch.manual_seed(5)
    other.optimize_agent(0, scaled)
    assert all(torch.equal(p, q) for p, q in zip(agent.parameters(), its_agent.parameters()))
    resumed, _ = make(normalize_reward=True)
    resumed.load_training_state(algo.training_state())
    assert torch.equal(resumed.scaled(samples).env.reward, algo.scaled(samples).env.reward)


def test_returns_that_normalize_rewards_begin_anew_where_environments_restart():
    algo = start(PPO(normalize_reward=True), agent := MlpFfAgent(), T, B)
    samples = random_samples(agent, T, B)
    samples.env.done[-1] = False
    algo.scaled(samples)
    before = algo._reward_scale.state_dict()["returns"]
    checkpoint.tell_restarted(algo, [1])
    assert before[1] != 0 and algo._reward_scale.state_dict()["returns"] == [0.0 if b == 1 else before[b] for b in range(B)]


def test_a_loss_of_ones_own_that_leaves_nothing_for_the_log_has_no_diagnostics_of_it():
    class Mine(PPO):
        def loss(self, agent_inputs, action, return_, advantage, valid, old_dist_info, init_rnn_state=None):
            dist_info, value = self.agent(*agent_inputs)
            loss = ((value - return_) ** 2).mean() + dist_info.prob.sum() * 0
            return loss, loss.detach(), loss.detach()

    agent = MlpFfAgent()
    opt_info = start(Mine(target_kl=0.1), agent, T, B).optimize_agent(0, random_samples(agent, T, B))
    assert len(opt_info.loss) == 16 and opt_info.approxKl == opt_info.clipFrac == opt_info.piLoss == []


def test_overriding_loss_takes_effect():
    class Mine(PPO):
        def loss(self, agent_inputs, action, return_, advantage, valid, old_dist_info, init_rnn_state=None):
            loss, entropy, perplexity = super().loss(agent_inputs, action, return_, advantage, valid, old_dist_info)
            return loss * 0 + 7, entropy, perplexity

    agent = MlpFfAgent()
    algo = start(Mine(), agent, T, B)
    assert algo.optimize_agent(0, random_samples(agent, T, B)).loss == [7.0] * 16


@learning
def test_it_learns_a_game():
    torch.manual_seed(1)
    agent, game = MlpFfAgent(), PickTheLargest(B=8, seed=1)
    agent.initialize(SPACES)
    algo = PPO(discount=0.5, learning_rate=0.01, ratio_clip=0.2, gae_lambda=0.9, normalize_advantage=True)
    algo.initialize(agent, 30, BatchSpec(16, 8), mid_batch_reset=True)
    rewards = []
    for itr in range(30):
        samples = game.sample(agent, itr, T=16, bootstrap_value=True)
        rewards.append(samples.env.reward.mean().item())
        agent.train_mode(itr)
        algo.optimize_agent(itr, samples)
    assert rewards[0] < 0.5
    assert np.mean(rewards[-5:]) > 0.8


def test_the_clipped_surrogate_and_its_gradient_are_the_formula():
    ratio = torch.linspace(0.5, 1.5, 21, dtype=torch.float64).repeat(2).requires_grad_()
    advantage = torch.tensor([2.0, -3.0], dtype=torch.float64).repeat_interleave(21)
    result = clipped_surrogate(ratio, advantage, 0.1)
    expected = torch.min(ratio * advantage, ratio.clamp(0.9, 1.1) * advantage)
    torch.testing.assert_close(result, expected)
    (grad,), (expected_grad,) = (torch.autograd.grad(x.sum(), ratio, retain_graph=True) for x in (result, expected))
    torch.testing.assert_close(grad, expected_grad)


def test_a_graph_of_an_optimizer_that_cannot_see_its_learning_rate_change_is_refused(monkeypatch):
    monkeypatch.setattr(PPO, "prepare_models", lambda self: None)  # Which would see that the CPU has no graphs.
    algo = PPO(OptimCls=OwnOptimizer).accelerate(cuda_graphs=True)
    agent = MlpFfAgent()
    agent.initialize(SPACES)
    with pytest.raises(ValueError, match="cuda_graphs=True would always repeat the first learning rate of OwnOptimizer"):
        algo.initialize(agent, 10, BatchSpec(4, 4), mid_batch_reset=True)


class OwnOptimizer(torch.optim.SGD):
    __module__ = "of_a_user"
