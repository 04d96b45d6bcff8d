import copy
import pickle

import pytest
import torch
from ranks import process_group

from rlpyt.agents.dqn.atari.atari_quantile_agents import AtariIqnAgent, AtariQrDqnAgent
from rlpyt.agents.dqn.dqn_agent import AgentInfo
from rlpyt.agents.dqn.mlp_quantile_agents import MlpIqnAgent, MlpQrDqnAgent
from rlpyt.envs.base import EnvSpaces
from rlpyt.models.dqn.noisy import NoisyLinear
from rlpyt.spaces.float_box import FloatBox
from rlpyt.spaces.int_box import IntBox

SPACES = EnvSpaces(FloatBox(-1, 1, (4,)), IntBox(0, 3))
IMAGES = EnvSpaces(IntBox(0, 256, (2, 12, 12), dtype="uint8"), IntBox(0, 3))
SMALL = dict(channels=[4], kernel_sizes=[4], strides=[2], paddings=[0], fc_sizes=6)
N = 7
AGENTS = {
    "qr": (MlpQrDqnAgent, SPACES, dict(n_quantiles=N)),
    "qr_images": (AtariQrDqnAgent, IMAGES, dict(n_quantiles=N)),
    "iqn": (MlpIqnAgent, SPACES, dict(n_acting_quantiles=N)),
    "iqn_images": (AtariIqnAgent, IMAGES, dict(n_acting_quantiles=N)),
}


@pytest.fixture(params=AGENTS)
def agent(request):
    return make(request.param)


def make(name, **model_kwargs):
    torch.manual_seed(0)
    AgentCls, spaces, kwargs = AGENTS[name]
    agent = AgentCls(model_kwargs=dict(SMALL if spaces is IMAGES else {}, **model_kwargs), **kwargs)
    agent.initialize(spaces)
    agent.set_sample_epsilon_greedy(0)
    return agent


def inputs(agent, *lead):
    shape = agent.env_spaces.observation.shape
    observation = torch.randint(0, 256, (*lead, *shape), dtype=torch.uint8) if len(shape) == 3 else torch.randn(*lead, *shape)
    return observation, torch.zeros(lead, dtype=torch.long), torch.zeros(lead)


@pytest.mark.parametrize("lead", [(), (3,), (2, 3)])
def test_actions_have_the_largest_mean_of_quantiles(agent, lead):
    batch = inputs(agent, *lead)
    action, info = agent.step(*batch)
    quantiles = agent(*batch)
    assert quantiles.shape == (*lead, 3, N) and type(info) is AgentInfo and info.q.shape == (*lead, 3) and not info.q.requires_grad
    torch.testing.assert_close(info.q, quantiles.mean(-1))
    assert torch.equal(action, info.q.argmax(-1))
    assert torch.equal(agent.step(*batch).agent_info.q, info.q), "acting draws no random numbers"


@pytest.mark.parametrize("name", ["iqn", "iqn_images"])
def test_quantiles_are_those_of_each_samples_fractions(name):
    agent = make(name)
    batch = inputs(agent, 5)
    fractions = agent.fractions(5)
    quantiles = agent(*batch, fractions)
    assert quantiles.shape == (5, 3, 64) and quantiles.requires_grad
    for b in range(5):
        one = agent(*(x[b] for x in batch), fractions[b])
        torch.testing.assert_close(quantiles[b], one)
    sequences = agent(*(x[None] for x in batch), fractions[None])
    torch.testing.assert_close(sequences[0], quantiles)
    middle = agent(*batch, torch.full((1,), 0.5))
    torch.testing.assert_close(middle, agent(*batch, torch.full((5, 1), 0.5)))


@pytest.mark.parametrize("name", ["iqn", "iqn_images"])
def test_iqn_acts_on_the_mean_over_midpoints_of_equal_parts(name):
    agent = make(name)
    batch = inputs(agent, 5)
    fractions = torch.tensor([(2 * i + 1) / (2 * N) for i in range(N)])
    torch.testing.assert_close(agent.step(*batch).agent_info.q, agent(*batch, fractions).mean(-1))
    assert MlpIqnAgent().n_acting_quantiles == 32


def test_the_target_is_a_copy_until_told(agent):
    batch = inputs(agent, 4)
    assert torch.equal(agent.target(*batch), agent(*batch)) and not agent.target(*batch).requires_grad
    with torch.no_grad():
        for parameter in agent.parameters():
            parameter.add_(torch.randn_like(parameter))
    assert not torch.equal(agent.target(*batch), agent(*batch))
    agent.update_target()
    assert torch.equal(agent.target(*batch), agent(*batch))


def test_state_dicts_are_restored_also_from_data_parallel_training(agent, tmp_path):
    other = copy.deepcopy(agent)
    with torch.no_grad():
        for parameter in agent.parameters():
            parameter.add_(1)
    batch = inputs(agent, 4)
    with process_group(tmp_path / "meeting"):
        agent.data_parallel()
        agent(*batch, agent.fractions(4)).sum().backward()
        assert all(parameter.grad is not None for parameter in agent.parameters())
        other.load_state_dict(agent.state_dict())
        assert torch.equal(other(*batch), agent(*batch)) and torch.equal(other.target(*batch), agent.target(*batch))
        agent.model = None


@pytest.mark.parametrize("name", AGENTS)
@pytest.mark.parametrize("dueling", [False, True])
def test_noisy_layers_are_noisy_outside_of_evaluation_only(name, dueling):
    agent = make(name, noisy=True, dueling=dueling)
    batch = inputs(agent, 4)
    agent.sample_mode(1)
    assert not torch.equal(agent.step(*batch).agent_info.q, agent.step(*batch).agent_info.q)
    agent.eval_mode(1)
    assert torch.equal(agent.step(*batch).agent_info.q, agent.step(*batch).agent_info.q)
    embeddings = [module for name, module in agent.model.named_modules() if "embedding" in name]
    assert not any(isinstance(module, NoisyLinear) for module in embeddings)


def test_an_agent_is_pickled(agent):
    batch = inputs(agent, 4)
    assert torch.equal(pickle.loads(pickle.dumps(agent))(*batch), agent(*batch))


def test_a_number_of_quantiles_for_the_model_alone_is_refused():
    with pytest.raises(ValueError, match="n_atoms=21, but MlpQrDqnAgent gives its model n_atoms=200: give n_quantiles to the agent"):
        MlpQrDqnAgent(model_kwargs=dict(n_atoms=21))
    with pytest.raises(ValueError, match="n_acting_quantiles=0 is not possible"):
        MlpIqnAgent(n_acting_quantiles=0)


def test_a_model_without_hidden_layers_has_nothing_to_multiply():
    with pytest.raises(ValueError, match="hidden_sizes=.* needs at least one layer"):
        make("iqn", hidden_sizes=[])
