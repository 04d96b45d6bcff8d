import numpy as np
import pytest
import torch
from experience import N_ACTIONS, OBSERVATION_SIZE, SPACES, start
from oracles import h, h_inverse, munchausen_reward, soft_value
from sequences import random_sequences
from tiers import thinned

from rlpyt.agents.dqn.atari.atari_r2d1_agent import AtariIqnR2d1Agent, AtariQrR2d1Agent
from rlpyt.agents.dqn.mlp_quantile_agents import MlpIqnAgent
from rlpyt.agents.dqn.mlp_r2d1_agent import MlpIqnR2d1Agent, MlpQrR2d1Agent, MlpR2d1Agent
from rlpyt.agents.dqn.r2d1_agent import AgentInfo
from rlpyt.algos.dqn.quantile_r2d1 import QuantileR2D1
from rlpyt.envs.base import EnvSpaces
from rlpyt.models.lstm import RnnState
from rlpyt.replays.sequence.prioritized import SamplesFromReplayPri
from rlpyt.samplers.collections import BatchSpec
from rlpyt.spaces.float_box import FloatBox
from rlpyt.spaces.int_box import IntBox
from rlpyt.utils.collections import namedarraytuple

Masked = namedarraytuple("Masked", ["observation", "action_mask"])
H, W, T, N, B = 5, 3, 4, 2, 8
K, M = 6, 7  # quantiles learned, and of targets
AGENTS = dict(
    qr=(MlpQrR2d1Agent, dict(n_quantiles=K)),
    iqn=(MlpIqnR2d1Agent, dict(n_quantiles=K, n_target_quantiles=M, n_acting_quantiles=3)),
)
EXAMPLES = dict(
    observation=np.zeros(OBSERVATION_SIZE),
    action=np.int64(0),
    reward=np.float64(0),
    done=np.bool_(False),
    env_info=None,
    agent_info=AgentInfo(q=np.zeros(N_ACTIONS), prev_rnn_state=RnnState(np.zeros((1, H)), np.zeros((1, H)))),
)


def make(kind, dueling=False, **settings):
    AgentCls, agent_settings = AGENTS[kind]
    agent = AgentCls(model_kwargs=dict(lstm_size=H, hidden_sizes=[6], head_size=6, dueling=dueling), **agent_settings)
    defaults = dict(
        discount=0.9, batch_T=T, warmup_T=W, batch_B=5, store_rnn_state_interval=2, n_step_return=N, replay_size=400, min_steps_learn=40
    )
    algo = QuantileR2D1(**{**defaults, **settings})
    start(algo, agent, 4, 2, 100, True, EXAMPLES)
    for p in agent.model.parameters():  # Away from the target network.
        p.data += 0.3 * torch.randn_like(p)
    return algo, agent


def sequences(algo, seed=0):
    state = RnnState(torch.randn(B, 1, H).double(), torch.randn(B, 1, H).double())
    samples = random_sequences(
        seed, B, algo.warmup_T, T, algo.n_step_return, 0.15, 0.9, lambda rng, shape: rng.integers(0, N_ACTIONS, size=shape), state,
        OBSERVATION_SIZE,
    )  # fmt: skip
    return SamplesFromReplayPri(*samples, torch.rand(B).double() + 0.1, torch.arange(B)) if algo.prioritized_replay else samples


def unrolled(model, samples, b, warmup_T, fractions, acting):
    """Quantiles [A,N] at each step after the warm-up, one step at a time; the state is zeroed if an episode ends in the warm-up."""
    state = RnnState(*(x[b : b + 1].transpose(0, 1) for x in samples.init_rnn_state))
    quantiles, ended = [], False
    for t in range(len(samples.all_observation)):
        if t == warmup_T:
            state = RnnState(*(torch.zeros_like(x) if ended else x.detach() for x in state))
        onehot = torch.nn.functional.one_hot(samples.all_prev_action[t, b : b + 1], N_ACTIONS).double()
        inputs = samples.all_observation[t, b : b + 1], onehot, samples.all_prev_reward[t, b : b + 1], state
        at = () if acting is None else (acting,) if t < warmup_T else (fractions[t - warmup_T, b][None],)
        of_step, state = model(*inputs, *at)
        ended |= t < warmup_T and bool(samples.done[t, b])
        if t >= warmup_T:
            quantiles.append(of_step[0])
    return quantiles


def reference(algo, agent, samples, fractions, target_fractions):
    """The mean loss over valid steps, errors of the means [T,B], and priorities, from equations (9) and (10) of QR-DQN."""
    W, n, kappa = algo.warmup_T, algo.n_step_return, algo.delta_clip
    acting = None if isinstance(agent, MlpQrR2d1Agent) else (torch.arange(3).double() + 0.5) / 3
    total, n_valid, all_errors, priorities = 0.0, 0, np.zeros((T, B)), []
    for b in range(B):
        theta = unrolled(agent.model, samples, b, W, fractions, acting)
        with torch.no_grad():
            target = unrolled(agent.target_model, samples, b, W, target_fractions, acting)
        weight, alive, errors = samples.is_weights[b] if algo.prioritized_replay else 1.0, True, []
        for t in range(T):
            if alive and samples.valid[W + t, b]:
                chooser = theta if algo.double_dqn else target
                taken, return_ = samples.all_action[W + t + 1, b], samples.return_[W + t, b].item()
                next_qs = [chooser[t + n][a].mean().item() for a in range(N_ACTIONS)]
                if algo.munchausen:
                    return_ += munchausen_reward(algo, [target[t][a].mean().item() for a in range(N_ACTIONS)], taken)
                y = []
                for j in range(target[t + n].shape[1]):
                    values = target[t + n][:, j].tolist()
                    value = soft_value(algo, values, next_qs) if algo.munchausen else h_inverse(values[np.argmax(next_qs)])
                    y.append(h(return_ + (0.0 if samples.done_n[W + t, b] else algo.discount**n * value)))
                chosen = theta[t][taken]
                for tau, x in zip(fractions[t, b], chosen):
                    for y_j in y:
                        delta = y_j - x
                        huber = 0.5 * delta**2 if abs(delta) <= kappa else kappa * (abs(delta) - 0.5 * kappa)
                        total = total + weight * abs(tau - (1.0 if delta < 0 else 0.0)) * huber / kappa / len(y)
                errors.append(min(abs(np.mean(y) - chosen.mean().item()), kappa))
                all_errors[t, b] = errors[-1]
                n_valid += 1
            alive &= not samples.done[W + t, b]
        priorities.append(algo.pri_eta * max(errors) + (1 - algo.pri_eta) * np.mean(errors) if errors else 0.0)
    return total / n_valid, all_errors, priorities


CASES = [
    dict(kind="iqn"),
    dict(kind="qr"),
    dict(kind="iqn", double_dqn=False, dueling=True),
    dict(kind="qr", prioritized_replay=False, delta_clip=0.4, n_step_return=1),
    dict(kind="iqn", warmup_T=0, n_step_return=3),
    dict(kind="iqn", munchausen=True),
    dict(kind="qr", munchausen=True, munchausen_temperature=0.4, munchausen_min=-0.3, double_dqn=False),
]


@pytest.mark.parametrize("case", thinned(CASES, quick=[*CASES[:2], CASES[5]]), ids=str)
def test_loss_gradient_and_priorities_are_those_of_steps_taken_one_by_one(case):
    algo, agent = make(**case)
    samples = sequences(algo)
    rows = T + algo.n_step_return
    torch.manual_seed(3)
    if case["kind"] == "iqn":  # Drawn in this order.
        trained_rows = rows if algo.double_dqn else T
        fractions, target_fractions = (agent.fractions(trained_rows * B).double(), agent.target_fractions(rows * B).double())
        fractions, target_fractions = fractions.view(trained_rows, B, K), target_fractions.view(rows, B, M)
        fractions = torch.cat([fractions, torch.full((rows - trained_rows, B, K), 0.5).double()])
    else:
        fractions = target_fractions = ((torch.arange(K) + 0.5) / K).double().expand(rows, B, K)
    expected, errors, priorities = reference(algo, agent, samples, fractions, target_fractions)
    parameters = list(agent.parameters())
    expected_grads = torch.autograd.grad(expected, parameters)
    torch.manual_seed(3)
    loss, abs_errors, ours = algo.loss(samples)
    torch.testing.assert_close(loss, expected)
    np.testing.assert_allclose(abs_errors, errors, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(ours, priorities, rtol=1e-6, atol=1e-9)
    for grad, expected_grad in zip(torch.autograd.grad(loss, parameters), expected_grads):
        torch.testing.assert_close(grad, expected_grad, rtol=1e-5, atol=1e-9)
    assert 0 < np.count_nonzero(errors) < T * B


@pytest.mark.parametrize("kind", AGENTS)
def test_masked_actions_are_not_chosen_for_targets_and_change_nothing_else(kind, monkeypatch):
    algo, agent = make(kind)
    samples = sequences(algo)
    masks = torch.ones(*samples.all_observation.shape[:2], N_ACTIONS, dtype=torch.uint8)
    masked = samples._replace(all_observation=Masked(samples.all_observation, masks))
    torch.manual_seed(3)
    plain = algo.loss(samples)
    torch.manual_seed(3)
    torch.testing.assert_close(algo.loss(masked), plain, rtol=0, atol=0)  # All are allowed.

    allowed = torch.randint(N_ACTIONS, masks.shape[:2])
    masks.copy_(torch.nn.functional.one_hot(allowed, N_ACTIONS))  # Only one is, at each step another.
    target, targets, computed, chosen = agent.target, algo.targets, [], []
    monkeypatch.setattr(agent, "target", lambda *args: computed.append(target(*args)) or computed[-1])
    monkeypatch.setattr(algo, "targets", lambda samples, values: chosen.append(values) or targets(samples, values))
    algo.loss(masked)
    of_allowed = computed[-1][0].gather(2, allowed[W:, :, None, None].expand(-1, -1, 1, computed[-1][0].shape[-1])).squeeze(2)
    assert torch.equal(chosen[0], of_allowed[N:])


@pytest.mark.parametrize("AgentCls", [MlpQrR2d1Agent, MlpIqnR2d1Agent])
def test_the_agent_acts_on_means_of_quantiles_and_goes_on_with_its_state(AgentCls):
    agent = AgentCls(model_kwargs=dict(lstm_size=H, hidden_sizes=[6], head_size=6), n_quantiles=K)
    agent.initialize(SPACES)
    agent.eval_mode(1)
    observation, reward = torch.randn(3, 2, OBSERVATION_SIZE), torch.randn(3, 2)
    action = torch.randint(N_ACTIONS, (3, 2))
    steps = [agent.step(observation[t], action[t], reward[t]) for t in range(3)]
    quantiles, state = agent(observation, action, reward, None)
    assert quantiles.shape == (3, 2, N_ACTIONS, K if AgentCls is MlpQrR2d1Agent else 32)
    torch.testing.assert_close(torch.stack([step.agent_info.q for step in steps]), quantiles.mean(dim=-1))
    torch.testing.assert_close(tuple(agent.prev_rnn_state), tuple(state))
    assert torch.equal(steps[2].action, quantiles[2].mean(dim=-1).argmax(dim=-1))
    again, _ = agent.target(observation[1:], action[1:], reward[1:], state_before(steps[1]))
    torch.testing.assert_close(again, quantiles[1:])


def state_before(step):
    return RnnState(*(x.transpose(0, 1) for x in step.agent_info.prev_rnn_state))


@pytest.mark.parametrize("AgentCls", [AtariQrR2d1Agent, AtariIqnR2d1Agent])
def test_agents_for_images_return_quantiles(AgentCls):
    agent = AgentCls(model_kwargs=dict(lstm_size=H, fc_size=6, head_size=6), n_quantiles=K)
    agent.initialize(EnvSpaces(IntBox(0, 256, (4, 84, 84), dtype="uint8"), IntBox(0, 3)))
    observation = torch.zeros(2, 1, 4, 84, 84, dtype=torch.uint8)
    fractions = torch.rand(2, 1, K)
    quantiles, state = agent(observation, torch.zeros(2, 1, dtype=torch.int64), torch.zeros(2, 1), None, fractions)
    assert quantiles.shape == (2, 1, 3, K) and state.h.shape == (1, 1, H)


@pytest.mark.parametrize("agent", [MlpR2d1Agent(), MlpIqnAgent()])
def test_other_agents_are_refused(agent):
    agent.initialize(EnvSpaces(FloatBox(-1, 1, (OBSERVATION_SIZE,)), SPACES.action))
    with pytest.raises(ValueError, match="QuantileR2D1 needs an agent .*means of quantiles.* recurrent state, such as .*MlpIqnR2d1Agent"):
        QuantileR2D1().initialize(agent, 10, BatchSpec(4, 2), True, EXAMPLES)
