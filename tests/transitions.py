"""Replayed transitions of continuous control, with no environment behind them."""

import numpy as np
import torch

from rlpyt.envs.base import EnvSpaces
from rlpyt.replays.non_sequence.n_step import SamplesFromReplay
from rlpyt.samplers.collections import AgentInputs, BatchSpec
from rlpyt.spaces.float_box import FloatBox

O, A, N = 3, 2, 8
SPACES = EnvSpaces(FloatBox(-1, 1, (O,)), FloatBox(-1, 1, (A,)))
EXAMPLES = dict(observation=np.zeros(O), action=np.zeros(A), reward=np.float64(0), done=np.bool_(False), env_info=None)
SIZES = dict(hidden_sizes=[6])


def transitions(seed=0, n=N):
    """Transitions [n] as a buffer hands them over."""
    g = torch.Generator().manual_seed(seed)
    inputs = [AgentInputs(torch.randn(n, O, generator=g), torch.zeros(n, A), torch.zeros(n)) for _ in range(2)]
    done = torch.rand(n, generator=g) < 0.3
    action, return_ = torch.rand(n, A, generator=g) * 2 - 1, torch.randn(n, generator=g)
    return SamplesFromReplay(inputs[0], action, return_, done, done, inputs[1], 0.99 * ~done)


def start(algo, agent):
    """Initialize agent and algorithm as sampler and runner do; return the algorithm."""
    agent.initialize(SPACES)
    algo.replay_size = 100
    algo.initialize(agent, 10, BatchSpec(4, 2), True, EXAMPLES)
    agent.train_mode(0)
    return algo


def assert_same_parameters(agent, expected):
    """Check that two agents have the same models with the same parameters."""
    assert agent.state_dict().keys() == expected.state_dict().keys()
    for name, values in expected.state_dict().items():
        torch.testing.assert_close(dict(agent.state_dict()[name]), dict(values))
