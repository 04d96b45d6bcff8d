import numpy as np
import oracles
import pytest
import torch
from experience import GruAgent, random_samples, start

from rlpyt.agents.dqn.mlp_dqn_agent import MlpDqnAgent
from rlpyt.agents.pg.mlp import MlpFfAgent
from rlpyt.algos.pg.a2c import A2C
from rlpyt.algos.pg.base import normalize
from rlpyt.algos.pg.ppo import PPO

T, B = 9, 4


@pytest.mark.parametrize("gae_lambda", [1, 0.7])
@pytest.mark.parametrize("timeouts", [True, False])
def test_returns_and_advantages_are_the_oracles(gae_lambda, timeouts):
    agent = MlpFfAgent()
    algo = start(A2C(gae_lambda=gae_lambda, discount=0.9), agent, T, B)
    samples = random_samples(agent, T, B, timeouts=timeouts)
    env, value, bootstrap = samples.env, samples.agent.agent_info.value.numpy(), samples.agent.bootstrap_value[0].numpy()
    ends = (env.timeout.numpy(), samples.agent.timeout_value.numpy()) if timeouts else ()
    expected = oracles.columns(oracles.gae, env.reward.numpy(), value, env.done.numpy(), bootstrap, 0.9, gae_lambda, *ends)
    return_, advantage, valid = algo.process_returns(samples)
    np.testing.assert_allclose(advantage, expected)
    np.testing.assert_allclose(return_, expected + value)
    assert valid is None


@pytest.mark.parametrize("mid_batch_reset,AgentCls,masked", [(True, MlpFfAgent, False), (False, MlpFfAgent, True), (True, GruAgent, True)])
def test_steps_after_a_done_are_masked_unless_reset_in_the_batch_with_a_feedforward_agent(mid_batch_reset, AgentCls, masked):
    agent = AgentCls()
    algo = start(A2C(), agent, T, B, mid_batch_reset=mid_batch_reset)
    agent_info = agent.info(torch.rand(T, B, 4).double(), torch.zeros(B, 1, 5).double()) if agent.recurrent else None
    samples = random_samples(agent, T, B, agent_info=agent_info)
    valid = algo.process_returns(samples)[2]
    if masked:
        np.testing.assert_array_equal(valid, oracles.columns(oracles.valid_until_done, samples.env.done.numpy()))
    else:
        assert valid is None


def test_advantages_are_normalized_over_the_valid_steps():
    agent = MlpFfAgent()
    algo = start(A2C(normalize_advantage=True), agent, T, B, mid_batch_reset=False)
    samples = random_samples(agent, T, B)
    _, advantage, valid = algo.process_returns(samples)
    kept = advantage[valid.bool()]
    assert kept.mean().item() == pytest.approx(0, abs=1e-9)
    assert kept.std().item() == pytest.approx(1)  # The unbiased one.


@pytest.mark.parametrize("valid", [None, torch.tensor([[1.0, 1, 1], [1, 0, 0]])])
def test_normalized_numbers_are_divided_by_the_unbiased_standard_deviation(valid):
    x = torch.tensor([[1.0, 4, 2], [7, 5, 3]])
    kept = x if valid is None else x[valid.bool()]
    torch.testing.assert_close(normalize(x, valid), (x - kept.mean()) / kept.std())


def test_equal_advantages_normalize_to_zero_and_so_does_a_single_one():
    assert normalize(torch.full((3, 2), 5.0)).abs().max() == 0
    assert normalize(torch.full((1, 1), 5.0)) == 0


def test_training_sees_what_the_agent_saw_after_an_episodes_end():
    class UsesPrev(torch.nn.Module):  # As models do unless they say otherwise.
        def __init__(self, **kwargs):
            super().__init__()
            self.w = torch.nn.Parameter(torch.zeros(1))

        def forward(self, observation, prev_action, prev_reward):
            raise AssertionError

    agent = MlpFfAgent()
    algo = start(A2C(), agent, T, B)
    samples = random_samples(agent, T, B)
    agent.model = UsesPrev()
    inputs = algo.agent_inputs(samples)
    after_done = samples.env.done[:-1]
    assert after_done.any()
    assert (inputs.prev_action[1:][after_done] == 0).all() and (inputs.prev_reward[1:][after_done] == 0).all()
    assert torch.equal(inputs.prev_action[1:][~after_done], samples.agent.prev_action[1:][~after_done])
    assert torch.equal(inputs.prev_reward[1:][~after_done], samples.env.prev_reward[1:][~after_done])
    assert torch.equal(inputs.prev_action[0], samples.agent.prev_action[0])
    assert inputs.observation is samples.env.observation


@pytest.mark.parametrize("Algo", [A2C, PPO])
def test_the_model_is_trained_on_nulled_previous_actions_and_rewards(Algo):
    class Records(torch.nn.Module):
        """Actions and values from the previous action and reward alone."""

        def __init__(self, observation_shape, output_size):
            super().__init__()
            self.pi, self.v = torch.nn.Linear(output_size, output_size), torch.nn.Linear(1, 1)
            self.seen = []

        def forward(self, observation, prev_action, prev_reward):
            self.seen.append((observation, prev_action, prev_reward))
            prob = torch.softmax(self.pi(prev_action.double()), -1)
            return prob, self.v(prev_reward.double().unsqueeze(-1)).squeeze(-1)

    agent = MlpFfAgent(ModelCls=Records)
    algo = start(Algo(), agent, T, B)
    samples = random_samples(agent, T, B)
    agent.model.seen.clear()
    algo.optimize_agent(0, samples)
    rows = {tuple(samples.env.observation[t, b].tolist()): (t, b) for t in range(T) for b in range(B)}
    n_nulled, n_seen = 0, 0
    for inputs in agent.model.seen:
        for observation, prev_action, prev_reward in zip(*(x.reshape(-1, *x.shape[x.dim() - d :]) for x, d in zip(inputs, (1, 1, 0)))):
            t, b = rows[tuple(observation.tolist())]
            starts = t > 0 and samples.env.done[t - 1, b]
            expected_action = 0 if starts else samples.agent.prev_action[t, b]
            assert prev_action.tolist() == torch.eye(3)[expected_action].tolist()
            assert prev_reward == (0 if starts else samples.env.prev_reward[t, b])
            n_nulled, n_seen = n_nulled + bool(starts), n_seen + 1
    assert n_nulled and n_seen == T * B * (algo.epochs if Algo is PPO else 1)


@pytest.mark.parametrize("Algo", [A2C, PPO])
def test_an_agent_that_is_not_for_policy_gradients_is_refused_before_anything_else(Algo):
    sentence = f"{Algo.__name__} needs an agent for policy gradients.*MlpFfAgent.*MlpDqnAgent has EpsilonGreedy"
    with pytest.raises(ValueError, match=sentence):
        start(Algo(initial_optim_state_dict={}), MlpDqnAgent(), T, B)


def test_a_model_without_use_for_the_previous_action_is_given_it_without_a_copy():
    agent = MlpFfAgent()
    algo = start(A2C(), agent, T, B)
    samples = random_samples(agent, T, B)
    assert algo.agent_inputs(samples).prev_action is samples.agent.prev_action
