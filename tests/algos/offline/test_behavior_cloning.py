from functools import partial

import numpy as np
import pytest
import torch
from experience import N_ACTIONS, OBSERVATION_SIZE, SPACES, in_float64, start

from rlpyt.agents.base import AgentInputs
from rlpyt.agents.dqn.mlp_dqn_agent import MlpDqnAgent
from rlpyt.agents.pg.mlp import MlpFfAgent, MlpGaussianFfAgent, MlpLstmAgent
from rlpyt.algos.offline.behavior_cloning import BehaviorCloning
from rlpyt.distributions.categorical import EPS
from rlpyt.envs.base import EnvSpaces
from rlpyt.replays.non_sequence.n_step import SamplesFromReplay
from rlpyt.spaces.float_box import FloatBox
from rlpyt.types import BatchSpec

EXAMPLES = dict(observation=np.zeros(OBSERVATION_SIZE), action=np.int64(0), reward=np.float64(0), done=np.bool_(False), env_info=None)


def replayed(action):
    n = len(action)
    inputs = AgentInputs(torch.randn(n, OBSERVATION_SIZE, dtype=torch.float64), torch.zeros_like(action), torch.zeros(n))
    return SamplesFromReplay(inputs, action, torch.zeros(n), torch.zeros(n).bool(), torch.zeros(n).bool(), inputs, torch.ones(n))


def test_the_loss_is_minus_the_mean_log_probability_of_recorded_actions():
    agent = MlpFfAgent()
    algo = start(BehaviorCloning(replay_size=100, batch_size=8), agent, 4, 2, examples=EXAMPLES)
    samples = replayed(torch.randint(N_ACTIONS, (10,)))
    loss = algo.loss(samples)
    expected = 0.0
    for i in range(10):
        prob = agent(*samples.agent_inputs[i : i + 1])[0].prob[0]
        expected = expected - (prob[samples.action[i]] + EPS).log() / 10
    assert loss.item() == pytest.approx(expected.item(), rel=1e-9)
    grads = torch.autograd.grad(loss, list(agent.parameters()))
    for g, e in zip(grads, torch.autograd.grad(expected, list(agent.parameters()), materialize_grads=True, allow_unused=True)):
        torch.testing.assert_close(g, e, rtol=1e-9, atol=1e-9)


def test_continuous_actions_have_densities():
    agent = MlpGaussianFfAgent()
    agent.initialize(EnvSpaces(SPACES.observation, FloatBox(-1, 1, (2,))))
    in_float64(agent)
    algo = BehaviorCloning()
    algo.agent = agent
    samples = replayed(torch.rand(10, 2, dtype=torch.float64) * 2 - 1)
    dist_info, _ = agent(*samples.agent_inputs)
    normal = torch.distributions.Normal(dist_info.mean, dist_info.log_std.exp())
    torch.testing.assert_close(algo.loss(samples), -normal.log_prob(samples.action).sum(-1).mean(), rtol=1e-9, atol=0)


@pytest.mark.parametrize("AgentCls", [MlpDqnAgent, MlpLstmAgent])
def test_agents_without_a_distribution_and_recurrent_ones_are_refused(AgentCls):
    with pytest.raises(ValueError, match=f"BehaviorCloning needs a policy gradient agent .*; {AgentCls.__name__} is not one"):
        start(BehaviorCloning(), AgentCls(), 4, 2, examples=EXAMPLES)


@pytest.mark.parametrize(
    "low, high, rescale, is_refused",
    [
        (0, 10, "auto", True),
        (-2, 2, "auto", False),
        (-2, 2, True, True),
        (-1, 1, True, False),
        (0, 10, False, False),
        (-np.inf, np.inf, True, False),
    ],
)
def test_agents_that_rescale_their_actions_are_refused(low, high, rescale, is_refused):
    agent, algo = MlpGaussianFfAgent(rescale_actions=rescale), BehaviorCloning(replay_size=100)
    agent.initialize(EnvSpaces(SPACES.observation, FloatBox(low, high, (2,))))
    initialize = partial(algo.initialize, agent, 10, BatchSpec(4, 2), mid_batch_reset=True, examples=dict(EXAMPLES, action=np.zeros(2)))
    if not is_refused:
        initialize()
        return
    with pytest.raises(ValueError, match=r"MlpGaussianFfAgent acts in \[-1,1\] .*: give the agent rescale_actions=False"):
        initialize()


def test_the_learning_rate_follows_its_schedule():
    algo = start(BehaviorCloning(replay_size=100, learning_rate=0.5, lr_schedule="linear"), MlpFfAgent(), 4, 2, n_itr=10, examples=EXAMPLES)
    rates = []
    for itr in range(10):
        algo.set_learning_rates(itr)
        rates.append(algo.optimizer.param_groups[0]["lr"])
    assert rates[0] == 0.5 and rates[5] == pytest.approx(0.25) and rates == sorted(rates, reverse=True)


@pytest.mark.parametrize("name, value", [("n_step_return", 2), ("discount", 0.5)])
def test_there_are_no_settings_of_targets(name, value):
    with pytest.raises(TypeError, match=f"BehaviorCloning has no setting '{name}'"):
        BehaviorCloning(**{name: value})
