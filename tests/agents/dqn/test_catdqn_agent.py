import copy

import pytest
import torch
from ranks import process_group
from tiers import full

from rlpyt.agents.dqn.atari.atari_catdqn_agent import AtariCatDqnAgent
from rlpyt.agents.dqn.catdqn_agent import AgentInfo
from rlpyt.agents.dqn.mlp_catdqn_agent import MlpCatDqnAgent
from rlpyt.envs.base import EnvSpaces
from rlpyt.spaces.float_box import FloatBox
from rlpyt.spaces.int_box import IntBox

SPACES = EnvSpaces(FloatBox(-1, 1, (4,)), IntBox(0, 3))
IMAGES = EnvSpaces(IntBox(0, 256, (2, 12, 12), dtype="uint8"), IntBox(0, 3))
SMALL = dict(channels=[4], kernel_sizes=[4], strides=[2], paddings=[0], fc_sizes=6)


@pytest.fixture(params=[False, True], ids=["vectors", "images"])
def agent(request):
    torch.manual_seed(0)
    agent = AtariCatDqnAgent(n_atoms=7, model_kwargs=SMALL) if request.param else MlpCatDqnAgent(n_atoms=7)
    agent.initialize(IMAGES if request.param else SPACES)
    agent.set_sample_epsilon_greedy(0)
    return agent


def inputs(agent, *lead):
    shape = agent.env_spaces.observation.shape
    observation = torch.randint(0, 256, (*lead, *shape), dtype=torch.uint8) if len(shape) == 3 else torch.randn(*lead, *shape)
    return observation, torch.zeros(lead, dtype=torch.long), torch.zeros(lead)


@pytest.mark.parametrize("lead", [(), (3,), (2, 3)])
def test_actions_have_the_largest_mean_return(agent, lead):
    agent.give_V_min_max(-2, 10)
    action, info = agent.step(*inputs(agent, *lead))
    assert type(info) is AgentInfo and info.p.shape == (*lead, 3, 7) and not info.p.requires_grad
    assert torch.equal(action, (info.p @ torch.linspace(-2, 10, 7)).argmax(-1))


def test_workers_that_were_not_told_the_range_choose_the_same_actions(agent):
    worker, batch = copy.deepcopy(agent), inputs(agent, 500)
    for V_min, V_max in [(-10, 10), (0, 200), (-1, 0)]:
        agent.give_V_min_max(V_min, V_max)
        agree = agent.step(*batch).action == worker.step(*batch).action
        assert agree.float().mean() > 0.99  # But for rounding, where two actions are worth the same.


def test_the_target_is_a_copy_until_told(agent):
    batch = inputs(agent, 4)
    assert torch.equal(agent.target(*batch), agent(*batch)) and not agent.target(*batch).requires_grad
    with torch.no_grad():
        for parameter in agent.parameters():
            parameter.add_(torch.randn_like(parameter))
    assert not torch.equal(agent.target(*batch), agent(*batch))
    agent.update_target()
    assert torch.equal(agent.target(*batch), agent(*batch))


@full
def test_state_dicts_are_restored_also_from_data_parallel_training(agent, tmp_path):
    other = copy.deepcopy(agent)
    with torch.no_grad():
        for parameter in agent.parameters():
            parameter.add_(1)
    batch = inputs(agent, 4)
    with process_group(tmp_path / "meeting"):
        agent.data_parallel()
        agent(*batch).sum().backward()
        other.load_state_dict(agent.state_dict())
        assert torch.equal(other(*batch), agent(*batch)) and torch.equal(other.target(*batch), agent.target(*batch))
        agent.model = None


def test_the_number_of_atoms_reaches_the_model_and_leaves_the_arguments_alone():
    settings = dict(hidden_sizes=[5])
    agent = MlpCatDqnAgent(model_kwargs=settings)
    agent.initialize(SPACES)
    assert agent.n_atoms == 51 and agent(*inputs(agent, 2)).shape == (2, 3, 51) and settings == dict(hidden_sizes=[5])
    with pytest.raises(ValueError, match="n_atoms=1 is not possible; it must be a whole number at least 2"):
        MlpCatDqnAgent(n_atoms=1)


def test_a_number_of_atoms_for_the_model_alone_is_refused():
    with pytest.raises(ValueError, match="n_atoms=21, but MlpCatDqnAgent gives its model n_atoms=51: give n_atoms to the agent"):
        MlpCatDqnAgent(model_kwargs=dict(n_atoms=21))
    assert MlpCatDqnAgent(n_atoms=21, model_kwargs=dict(n_atoms=21)).n_atoms == 21
