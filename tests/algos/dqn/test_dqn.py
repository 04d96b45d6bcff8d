import copy
import functools
import inspect

import numpy as np
import pytest
import torch
from experience import N_ACTIONS, OBSERVATION_SIZE, SPACES, PickTheLargest, start
from tiers import learning

from rlpyt.agents.base import AgentInputs
from rlpyt.agents.dqn.mlp_dqn_agent import MlpDqnAgent
from rlpyt.agents.dqn.mlp_quantile_agents import MlpQrDqnAgent
from rlpyt.agents.pg.mlp import MlpFfAgent
from rlpyt.algos.dqn.cat_dqn import CategoricalDQN
from rlpyt.algos.dqn.dqn import DQN, scaled_log_policy
from rlpyt.algos.dqn.quantile_dqn import QuantileDQN
from rlpyt.replays.non_sequence.frame import UniformReplayFrameBuffer
from rlpyt.replays.non_sequence.n_step import SamplesFromReplay
from rlpyt.replays.non_sequence.prioritized import PrioritizedReplayBuffer
from rlpyt.replays.non_sequence.uniform import UniformReplayBuffer
from rlpyt.replays.prefetch import PrefetchedReplay
from rlpyt.samplers.collections import AgentSamples, BatchSpec, EnvSamples, Samples
from rlpyt.utils.collections import namedarraytuple

EXAMPLES = dict(observation=np.zeros(OBSERVATION_SIZE), action=np.int64(0), reward=np.float64(0), done=np.bool_(False), env_info=None)
T, B = 4, 2


def make(agent=None, T=T, B=B, mid_batch_reset=True, **settings):
    settings = dict(dict(replay_size=200, min_steps_learn=16, batch_size=8), **settings)
    agent = agent or MlpDqnAgent()
    return start(DQN(**settings), agent, T, B, mid_batch_reset=mid_batch_reset, examples=EXAMPLES), agent


def batch(seed=0, T=T, B=B):
    rng = np.random.default_rng(seed)
    observation = torch.from_numpy(rng.normal(size=(T + 1, B, OBSERVATION_SIZE)))
    action = torch.from_numpy(rng.integers(0, N_ACTIONS, size=(T + 1, B)))
    reward, done = torch.from_numpy(rng.normal(size=(T + 1, B))), torch.from_numpy(rng.random((T, B)) < 0.2)
    return Samples(
        AgentSamples(action[1:], action[:-1], None),
        EnvSamples(observation[:-1], reward[1:], reward[:-1], done, None),
    )


def replayed(n=20, seed=0):
    g = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, dtype=torch.float64, generator=g)

    inputs = [AgentInputs(normal(n, OBSERVATION_SIZE), torch.zeros(n, dtype=torch.long), torch.zeros(n)) for _ in range(2)]
    done_n = torch.rand(n, generator=g) < 0.3
    discount = 0.9 ** torch.randint(1, 4, (n,), generator=g) * ~done_n
    return SamplesFromReplay(
        inputs[0], torch.randint(N_ACTIONS, (n,), generator=g), 3 * normal(n), done_n, done_n, inputs[1], discount.double()
    )


def reference_loss(model, target_model, samples, clip, double):
    """The formula, one transition at a time."""
    total, errors = 0.0, []
    for i in range(len(samples.action)):
        q = model(samples.agent_inputs.observation[i], None, None)[samples.action[i]]
        with torch.no_grad():
            next_q = target_model(samples.target_inputs.observation[i], None, None)
            chooser = model(samples.target_inputs.observation[i], None, None) if double else next_q
            y = samples.return_[i] + samples.bootstrap_discount[i] * next_q[int(chooser.argmax())]
        error = abs(y - q)
        if clip is None or error <= clip:
            total += 0.5 * error**2
        else:
            total += clip * (error - 0.5 * clip)
        errors.append(error.item() if clip is None else min(error.item(), clip))
    return total / len(samples.action), errors


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("clip", [None, 1.0, 0.3])
def test_the_loss_and_its_gradient_are_the_formula(clip, double):
    algo, agent = make(delta_clip=clip, double_dqn=double)
    for p in agent.model.parameters():  # Away from the target network, so that it matters which one chooses.
        p.data += 0.3 * torch.randn_like(p)
    samples = replayed()
    loss, errors = algo.loss(samples)
    expected, expected_errors = reference_loss(agent.model, agent.target_model, samples, clip, double)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-9)
    np.testing.assert_allclose(errors, expected_errors, rtol=1e-9)
    grads = torch.autograd.grad(loss, list(agent.parameters()))
    expected_grads = torch.autograd.grad(expected, list(agent.parameters()))
    for g, e in zip(grads, expected_grads):
        torch.testing.assert_close(g, e, rtol=1e-9, atol=1e-9)


def munchausen_target(q_now, q_next, chooser, action, return_, discount, alpha, temperature, least):
    """Equations 1 and 2 of Vieillard et al. 2020, for one transition, in plain numbers."""

    def log_policy(qs):
        total = sum(np.exp((q - max(qs)) / temperature) for q in qs)
        return [(q - max(qs)) / temperature - np.log(total) for q in qs]

    bonus = min(0.0, max(least, temperature * log_policy(q_now)[action]))
    log_pi = log_policy(chooser)
    soft_value = sum(np.exp(log_pi[a]) * (q_next[a] - temperature * log_pi[a]) for a in range(len(q_next)))
    return return_ + alpha * bonus + discount * soft_value


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("temperature, least", [(0.03, -1.0), (0.5, -0.2)])
def test_munchausens_loss_and_gradient_are_the_formula(temperature, least, double):
    settings = dict(munchausen=True, munchausen_alpha=0.7, munchausen_temperature=temperature, munchausen_min=least, double_dqn=double)
    algo, agent = make(delta_clip=None, **settings)
    for p in agent.model.parameters():
        p.data += 0.3 * torch.randn_like(p)
    samples = replayed()
    loss, errors = algo.loss(samples)
    expected = 0.0
    for i in range(len(samples.action)):
        now, later = samples.agent_inputs[i : i + 1], samples.target_inputs[i : i + 1]
        with torch.no_grad():
            q_now, q_next, online = (q[0].tolist() for q in (agent.target(*now), agent.target(*later), agent(*later)))
        return_, discount = samples.return_[i].item(), samples.bootstrap_discount[i].item()
        chooser = online if double else q_next
        y = munchausen_target(q_now, q_next, chooser, int(samples.action[i]), return_, discount, 0.7, temperature, least)
        error = y - agent(*now)[0, samples.action[i]]
        assert errors[i].item() == pytest.approx(abs(error.item()), rel=1e-9, abs=1e-9)
        expected = expected + 0.5 * error**2 / len(samples.action)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-9)
    expected_grads = torch.autograd.grad(expected, list(agent.parameters()))
    for g, e in zip(torch.autograd.grad(loss, list(agent.parameters())), expected_grads):
        torch.testing.assert_close(g, e, rtol=1e-9, atol=1e-9)


def test_a_policy_so_sure_that_its_logarithm_is_infinite_in_other_arithmetic_has_finite_targets():
    qs = torch.tensor([[1e4, 0.0, -1e4], [1.0, 1.0, 1.0]])
    expected = torch.tensor([[0.0, -1e4, -2e4], [-0.03 * np.log(3)] * 3], dtype=torch.float32)
    torch.testing.assert_close(scaled_log_policy(qs, 0.03), expected)


def test_an_algorithm_to_which_munchausen_does_not_apply_does_not_have_its_settings():
    assert not any("munchausen" in name for name in inspect.signature(CategoricalDQN).parameters)
    with pytest.raises(TypeError, match="CategoricalDQN has no setting 'munchausen'"):
        CategoricalDQN(munchausen=True)


def test_a_buffer_that_gives_documented_fields_only_bootstraps_over_n_steps():
    algo, _ = make(n_step_return=3, discount=0.9)
    samples = replayed()
    full = samples._replace(bootstrap_discount=0.9**3 * (~samples.done_n).double())
    assert algo.loss(samples._replace(bootstrap_discount=None))[0].item() == pytest.approx(algo.loss(full)[0].item(), rel=1e-6)


@pytest.mark.parametrize(
    "T,B,ratio,batch_size,updates", [(4, 1, 8, 32, 1), (4, 8, 8, 32, 8), (1, 1, 8, 32, 1), (5, 2, 4, 16, 2), (3, 2, 4, 16, 2)]
)
def test_updates_per_iteration_follow_from_the_replay_ratio(T, B, ratio, batch_size, updates):
    algo, _ = make(T=T, B=B, replay_ratio=ratio, batch_size=batch_size)
    assert algo.updates_per_optimize == updates


def test_learning_begins_after_min_steps_learn():
    algo, agent = make(min_steps_learn=16, replay_ratio=2)
    assert algo.min_itr_learn == 2
    before = copy.deepcopy(list(agent.parameters()))
    counts = []
    for itr in range(4):
        info = algo.optimize_agent(itr, batch(itr))
        counts.append(len(info.loss))
        if itr == 1:
            assert all(torch.equal(p, q) for p, q in zip(before, agent.parameters()))
    assert counts == [0, 0, 2, 2]
    assert algo.update_counter == 4
    assert not all(torch.equal(p, q) for p, q in zip(before, agent.parameters()))
    assert info._fields == algo.opt_info_fields == ("loss", "gradNorm", "tdAbsErr")
    assert len(info.tdAbsErr) == 2  # One in eight of two batches of eight.


@pytest.mark.parametrize("T,n_step", [(1, 1), (1, 5), (4, 1), (4, 7)])
def test_learning_begins_no_earlier_than_there_is_something_to_replay(T, n_step):
    algo, _ = make(T=T, min_steps_learn=0, n_step_return=n_step)
    buffer = algo.replay_buffer
    for itr in range(algo.min_itr_learn + 2):
        info = algo.optimize_agent(itr, batch(itr, T=T))
        first, end = buffer.ring.window(buffer.off_backward, buffer.off_forward)
        assert bool(info.loss) == (end > first) == (itr >= algo.min_itr_learn)


def test_the_target_network_moves_every_so_many_updates():
    algo, agent = make(min_steps_learn=16, replay_ratio=2, target_update_interval=3, target_update_tau=0.5)
    calls, update_target = [], agent.update_target
    agent.update_target = lambda tau: (calls.append((algo.update_counter, tau)), update_target(tau))
    for itr in range(7):
        algo.optimize_agent(itr, batch(itr))
    assert algo.update_counter == 10
    assert calls == [(3, 0.5), (6, 0.5), (9, 0.5)]


def test_epsilon_anneals_from_when_learning_begins_over_eps_steps():
    algo, agent = make(min_steps_learn=16, eps_steps=800)
    assert (agent.eps_itr_min, agent.eps_itr_max) == (2, 100)
    algo, agent = make(eps_steps=3)
    assert agent.eps_itr_max == 1


def test_it_is_said_if_epsilon_does_not_fall_gradually(capsys):
    make(min_steps_learn=160, eps_steps=168)
    assert "epsilon jumps" not in capsys.readouterr().out
    make(min_steps_learn=160, eps_steps=160)
    out = capsys.readouterr().out
    assert "epsilon jumps to its final value" in out and "eps_steps=160" in out and "Raise eps_steps" in out


def test_samples_are_stored_with_final_observations():
    algo, _ = make(discount=0.5)
    samples = batch(T=8)
    timeout = torch.zeros(8, B, dtype=torch.bool)
    timeout[3, 1] = timeout[5, 1] = True
    final = torch.arange(2 * B, dtype=torch.float64).reshape(2, B, 1).expand(2, B, OBSERVATION_SIZE)
    samples = samples._replace(env=samples.env._replace(done=timeout.clone(), timeout=timeout), final_observation=final.contiguous())
    algo.replay_buffer.append_samples(algo.samples_to_buffer(samples))
    got = algo.replay_buffer.extract_batch(np.array([3, 5, 4]), np.array([1, 1, 1]))
    assert got.target_inputs.observation[:, 0].tolist() == [1, 3, samples.env.observation[5, 1, 0]]
    assert got.bootstrap_discount.tolist() == [0.5, 0.5, 0.5]


def test_the_replay_buffer_suits_the_observation():
    algo, agent = make()
    assert type(algo.replay_buffer) is UniformReplayBuffer
    frames = dict(EXAMPLES, observation=np.zeros((4, 8, 8), np.uint8))
    algo.initialize_replay_buffer(frames, BatchSpec(T, B))
    assert type(algo.replay_buffer) is UniformReplayFrameBuffer
    for other in (np.zeros((4, 8, 8), np.float32), np.zeros((8, 8), np.uint8)):
        algo.initialize_replay_buffer(dict(EXAMPLES, observation=other), BatchSpec(T, B))
        assert type(algo.replay_buffer) is UniformReplayBuffer

    class Mine(UniformReplayBuffer):
        pass

    algo.ReplayBufferCls = Mine
    algo.initialize_replay_buffer(frames, BatchSpec(T, B))
    assert type(algo.replay_buffer) is Mine
    buffer = algo.replay_buffer
    assert (buffer.size, buffer.B, buffer.discount, buffer.n_step_return) == (200, B, 0.99, 1)


def test_the_null_action_of_the_space_reaches_the_buffer():
    class Space:
        n, shape = N_ACTIONS, ()

        def null_value(self):
            return np.int64(2)

    algo, agent = make()
    agent.env_spaces = agent.env_spaces._replace(action=Space())
    algo.initialize_replay_buffer(EXAMPLES, BatchSpec(T, B))
    assert algo.replay_buffer.null_action == 2


@pytest.mark.parametrize("prioritized", [False, True])
def test_blank_rows_of_a_sampler_that_waits_with_resets_are_never_replayed(prioritized):
    algo, _ = make(mid_batch_reset=False, prioritized_replay=prioritized, n_step_return=2)
    for seed in range(8):
        samples = batch(seed)
        ended = samples.env.done.cumsum(0) > 0
        samples.env.done[:] = ended
        after = torch.zeros_like(ended)
        after[1:] = ended[:-1]
        samples.env.reward[after] = 77.0
        samples = samples._replace(env=samples.env._replace(timeout=None))
        algo.optimize_agent(seed, samples)
    assert (algo.replay_buffer.samples.reward == 77).any()
    got = algo.replay_buffer.sample_batch(2000)
    assert got.done.any() and got.return_.max() < 70
    assert (got.bootstrap_discount[got.done_n] == 0).all()


def test_an_agent_that_is_not_for_dqn_is_refused_before_anything_else():
    with pytest.raises(ValueError, match="DQN needs an agent that acts epsilon-greedily.*MlpDqnAgent.*MlpFfAgent does not"):
        start(DQN(), MlpFfAgent(), T, B, mid_batch_reset=False, examples=None)


def test_adams_epsilon_depends_on_the_batch_size():
    algo, _ = make(batch_size=8)
    assert algo.optimizer.param_groups[0]["eps"] == 0.01 / 8
    algo, _ = make(batch_size=8, optim_kwargs=dict(eps=0.5))
    assert algo.optimizer.param_groups[0]["eps"] == 0.5


def test_optimizers_without_an_epsilon_are_given_none():
    algo, _ = make(OptimCls=torch.optim.SGD, learning_rate=0.25)
    assert algo.optim_kwargs == {} and algo.optimizer.param_groups[0]["lr"] == 0.25
    assert np.isfinite(algo.optimize_agent(algo.min_itr_learn, batch()).loss).all()
    algo, _ = make(OptimCls=functools.partial(torch.optim.Adam, weight_decay=0.1))
    assert algo.optim_kwargs == dict(eps=0.01 / 8)


def test_the_samplers_iteration_decides_where_it_is_given():
    algo, _ = make(min_steps_learn=16)
    itrs = []
    algo.update_itr_hyperparams = itrs.append
    assert algo.min_itr_learn == 2
    assert not algo.optimize_agent(7, batch(0), sampler_itr=1).loss
    assert algo.optimize_agent(0, batch(1), sampler_itr=2).loss
    assert algo.optimize_agent(5).loss
    assert itrs == [2, 5]


@pytest.mark.parametrize("n_step_return", [1, 3])
def test_prioritized_replay_learns_the_absolute_td_errors_it_is_told(n_step_return):
    algo, agent = make(prioritized_replay=True, min_steps_learn=24, n_step_return=n_step_return, default_priority=3.0, delta_clip=None)
    buffer, tree = algo.replay_buffer, algo.replay_buffer.priority_tree
    assert type(buffer) is PrioritizedReplayBuffer
    for itr in range(2):
        algo.optimize_agent(itr, batch(itr))
    assert set(tree.priorities.flat) == {0.0, 3.0**0.6}
    drawn = []
    gather, update = buffer.gather_batch, algo.update

    def gather_and_tell(draw):
        drawn.append(draw.ids.copy())
        return gather(draw)

    def update_and_tell(samples):
        result = update(samples)
        told.append(result[1].numpy().copy())
        return result

    told = []
    buffer.gather_batch, algo.update = gather_and_tell, update_and_tell
    for itr in range(2, 9):
        algo.optimize_agent(itr, batch(itr))
        latest = {}
        for ids, errors in zip(drawn, told, strict=True):
            latest.update(zip(ids.tolist(), errors.astype(float), strict=True))
        first, end = tree.window()
        for i in range(first, end):
            for b in range(B):
                expected = latest.get(i * B + b, 3.0) ** 0.6
                assert tree.priorities[i % tree.T, b] == pytest.approx(expected, rel=1e-6)
    assert len(latest) > 20


@pytest.mark.parametrize("make_algo", [DQN, QuantileDQN])
def test_steps_without_error_keep_a_chance_to_be_replayed(make_algo):
    """Rewards are 0 at first, and so may be all values: priorities of 0 would be for ever."""
    agent = MlpDqnAgent() if make_algo is DQN else MlpQrDqnAgent(n_quantiles=5)
    algo = make_algo(replay_size=64, min_steps_learn=8, batch_size=32, replay_ratio=32, prioritized_replay=True)
    start(algo, agent, T, B, examples=EXAMPLES)
    for model in (agent.model, agent.target_model):
        for parameter in model.parameters():
            torch.nn.init.zeros_(parameter)
    for itr in range(4):
        samples = batch(itr)
        algo.optimize_agent(itr, samples._replace(env=samples.env._replace(reward=torch.zeros_like(samples.env.reward))))
    tree = algo.replay_buffer.priority_tree
    first, end = tree.window()
    drawable = tree.priorities.reshape(-1, B)[first:end]
    assert len(drawable) and (drawable > 0).all() and drawable.min() < 1e-3


def test_settings_of_replay_that_cannot_work_are_refused_in_a_sentence(capsys):
    for name in ("prioritized_replay", "prefetch_batches"):
        with pytest.raises(ValueError, match=f"DQN: {name}='yes' is not possible; it must be True or False"):
            DQN(**{name: "yes"})
    with pytest.raises(ValueError, match="needs a replay buffer with priorities, which UniformReplayBuffer is not"):
        make(prioritized_replay=True, ReplayBufferCls=UniformReplayBuffer)
    make(ReplayBufferCls=PrioritizedReplayBuffer)
    assert "does not update the priorities" in capsys.readouterr().out
    with pytest.raises(ValueError, match="replay_size=7 must be at least the 8 environment steps of a sampler's batch"):
        make(replay_size=7)


class PrioritizedDqn(DQN):
    def __init__(self, replay_size=64):
        super().__init__(replay_size=replay_size, prioritized_replay=True)


def test_a_subclass_with_a_constructor_of_its_own_is_known_to_update_priorities(capsys):
    start(PrioritizedDqn(), MlpDqnAgent(), T, B, examples=EXAMPLES)
    assert "priorities" not in capsys.readouterr().out


def test_two_batches_sampled_one_after_the_other_are_different_memory():
    algo, _ = make()
    for itr in range(3):
        algo.optimize_agent(itr, batch(itr))
    first = algo.replay_buffer.sample_batch(8)
    copy = first.agent_inputs.observation.clone()
    algo.replay_buffer.sample_batch(8)
    assert torch.equal(first.agent_inputs.observation, copy)


def test_importance_weights_correct_the_loss():
    algo, _ = make(prioritized_replay=True, min_steps_learn=16)
    algo.optimize_agent(0, batch(0))
    samples = algo.replay_buffer.sample_batch(8)
    ones = samples._replace(is_weights=torch.ones(8))
    halves = samples._replace(is_weights=torch.full((8,), 0.5))
    assert algo.loss(halves)[0].item() == pytest.approx(algo.loss(ones)[0].item() / 2)


def test_a_prefetched_batch_is_the_one_that_would_have_been_drawn_then():
    losses = []
    for prefetch_batches in (False, True):
        algo, _ = make(min_steps_learn=16, prefetch_batches=prefetch_batches)
        assert (type(algo.replay_buffer) is PrefetchedReplay) == prefetch_batches
        info = [algo.optimize_agent(itr, batch(itr)).loss for itr in range(8)]
        losses.append(info)
    assert losses[0][2][0] == pytest.approx(losses[1][2][0])  # The first batch of all.
    assert all(np.isfinite(losses[1][-1]))


@pytest.mark.parametrize("prioritized", [False, True])
@pytest.mark.parametrize("frames", [False, True])
def test_the_buffer_of_an_asynchronous_runner_is_shared(prioritized, frames):
    algo, agent = make(prioritized_replay=prioritized)
    examples = dict(EXAMPLES, observation=np.zeros((4, 8, 8), np.uint8)) if frames else EXAMPLES
    buffer = algo.async_initialize(agent, 100, BatchSpec(T, B), True, examples)
    names = {
        (False, False): "AsyncUniformReplayBuffer",
        (True, False): "AsyncPrioritizedReplayBuffer",
        (False, True): "AsyncUniformReplayFrameBuffer",
        (True, True): "AsyncPrioritizedReplayFrameBuffer",
    }
    assert type(buffer).__name__ == names[prioritized, frames] and buffer is algo.replay_buffer
    assert algo.updates_per_optimize == algo.updates_per_sync
    algo.ReplayBufferCls = UniformReplayBuffer
    with pytest.raises(ValueError, match="needs a replay buffer that processes share, which UniformReplayBuffer is not"):
        algo.async_initialize(agent, 100, BatchSpec(T, B), True, examples)


def test_a_buffer_of_ones_own_that_prioritizes_gets_settings_and_priorities():
    SamplesFromReplayPri = namedarraytuple("SamplesFromReplayPri", SamplesFromReplay._fields + ("is_weights",))

    class Prioritized(UniformReplayBuffer):
        def __init__(self, alpha, beta, default_priority, **kwargs):
            super().__init__(**kwargs)
            self.settings, self.betas, self.priorities = (alpha, beta, default_priority), [], []

        def set_beta(self, beta):
            self.betas.append(beta)

        def update_batch_priorities(self, priorities):
            self.priorities.append(priorities)

        def sample_batch(self, batch_B):
            return SamplesFromReplayPri(*super().sample_batch(batch_B), is_weights=torch.full((batch_B,), 0.0))

    algo, _ = make(
        prioritized_replay=True, ReplayBufferCls=Prioritized, delta_clip=0.5, pri_beta_steps=48, min_steps_learn=16, pri_beta_init=0.2
    )
    buffer = algo.replay_buffer
    for itr in range(8):
        info = algo.optimize_agent(itr, batch(itr))
    assert buffer.settings == (0.6, 0.2, 0.5)
    np.testing.assert_allclose(buffer.betas, [0.2, 0.2, 0.4, 0.6, 0.8, 1.0])  # One iteration late, as in the original.
    assert len(buffer.priorities) == algo.update_counter and buffer.priorities[0].shape == (8,)
    assert max(p.max() for p in buffer.priorities) <= 0.5
    assert info.loss == [0.0] * algo.updates_per_optimize  # All weights are zero.


def test_overriding_what_is_stored_takes_effect():
    class Mine(DQN):
        def samples_to_buffer(self, samples):
            stored = super().samples_to_buffer(samples)
            return stored._replace(reward=stored.reward * 0 + 9)

    algo = start(Mine(replay_size=200, min_steps_learn=16), MlpDqnAgent(), T, B, examples=EXAMPLES)
    algo.optimize_agent(0, batch())
    assert (algo.replay_buffer.samples.reward[:T] == 9).all()


def test_an_episode_that_is_cut_off_after_a_batch_is_bootstrapped_from_what_follows_it():
    algo, _ = make(n_step_return=1)
    samples = batch()
    after = torch.full_like(samples.env.observation, 7.0)
    algo.append(samples._replace(env=samples.env._replace(done=torch.zeros(T, B, dtype=torch.bool), next_observation=after)))
    buffer = algo.replay_buffer
    buffer.end_episodes([1])
    assert buffer.samples.done[T - 1].tolist() == buffer.samples.timeout[T - 1].tolist() == [False, True]
    algo.append(samples)
    cut = buffer.extract_batch(np.array([T - 1]), np.array([1]))
    assert (cut.target_inputs.observation == 7).all() and cut.bootstrap_discount.item() == pytest.approx(algo.discount)


@learning
def test_it_learns_a_game():
    torch.manual_seed(1)
    np.random.seed(1)
    agent, game = MlpDqnAgent(eps_final=0.02), PickTheLargest(B=8, seed=1)
    agent.initialize(SPACES)
    agent.value = lambda *inputs: None
    algo = DQN(
        discount=0.5, learning_rate=0.002, batch_size=64, min_steps_learn=256, replay_size=5000, eps_steps=1500, target_update_interval=50,
        n_step_return=2, double_dqn=True,
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
