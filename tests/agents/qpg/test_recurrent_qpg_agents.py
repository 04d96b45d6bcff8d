import copy

import pytest
import torch

from rlpyt.agents.qpg.recurrent import RnnStates
from rlpyt.agents.qpg.sac_lstm_agent import AlternatingSacLstmAgent, SacLstmAgent
from rlpyt.agents.qpg.td3_lstm_agent import AlternatingTd3LstmAgent, Td3LstmAgent
from rlpyt.envs.base import EnvSpaces
from rlpyt.models.qpg.lstm import MuLstmModel, PiLstmModel, QofMuLstmModel
from rlpyt.spaces.float_box import FloatBox
from rlpyt.utils.buffer import buffer_func, buffer_leaves

O, A, H, B = 4, 3, 5, 2
SPACES = EnvSpaces(FloatBox(-1, 1, (O,)), FloatBox(-2, 2, (A,)))
AGENTS = {"sac": (SacLstmAgent, AlternatingSacLstmAgent), "td3": (Td3LstmAgent, AlternatingTd3LstmAgent)}
KEYS = {
    "sac": ["model", "q1_model", "q2_model", "target_q1_model", "target_q2_model"],
    "td3": ["model", "q_model", "target_model", "target_q_model", "q2_model", "target_q2_model"],
}
every_agent = pytest.mark.parametrize("name", AGENTS)
SMALL = dict(lstm_size=H, hidden_sizes=[6], head_size=[6])


def make(name, alternating=False, share_memory=False, **kwargs):
    torch.manual_seed(0)
    settings = dict(model_kwargs=SMALL, q_model_kwargs=SMALL, **(dict(action_squash=2.0) if name == "sac" else {}))
    agent = AGENTS[name][alternating](**{**settings, **kwargs})
    agent.initialize(SPACES, share_memory=share_memory)
    return agent


def inputs(*lead):
    return torch.randn(*lead, O), torch.randn(*lead, A), torch.randn(lead)


def assert_close(a, b):
    for x, y in zip(buffer_leaves(a), buffer_leaves(b), strict=True):
        torch.testing.assert_close(x, y, rtol=1e-4, atol=1e-5)


def outputs(info):
    return tuple(info.dist_info) if hasattr(info, "dist_info") else (info.mu,)


@every_agent
def test_the_state_dict_holds_all_models_and_loading_is_its_inverse(name):
    agent, other = make(name), AGENTS[name][0](model_kwargs=SMALL, q_model_kwargs=SMALL)
    other.initialize(SPACES)
    assert list(agent.state_dict()) == KEYS[name]
    other.load_state_dict(agent.state_dict())
    for key, tensors in agent.state_dict().items():
        assert all(torch.equal(tensor, other.state_dict()[key][k]) for k, tensor in tensors.items())


@every_agent
def test_models_are_recurrent_by_default(name):
    agent = AGENTS[name][0]()
    assert agent.ModelCls is (PiLstmModel if name == "sac" else MuLstmModel) and agent.QModelCls is QofMuLstmModel
    assert agent.model_kwargs == agent.q_model_kwargs == dict(hidden_sizes=[64])


@every_agent
@pytest.mark.parametrize("lead", [(), (B,)])
def test_a_step_records_the_states_before_it_and_advances_those_of_all_networks(name, lead):
    agent = make(name)
    agent.sample_mode(0)
    assert agent.recurrent and not agent.alternating and agent.prev_rnn_state is None
    before = None
    for _ in range(3):
        x = inputs(*lead)
        expected = agent.remember(*x, before)
        action, info = agent.step(*x)
        assert action.shape == (*lead, A) and (action.abs() <= 2).all()
        recorded = buffer_func(info.prev_rnn_state, lambda leaf: leaf.transpose(0, 1))
        assert type(recorded) is RnnStates and all(leaf.shape == (1, lead[-1] if lead else 1, H) for leaf in buffer_leaves(recorded))
        assert_close(recorded, buffer_func(expected, torch.zeros_like) if before is None else before)
        assert_close(agent.prev_rnn_state, expected)
        before = agent.prev_rnn_state
    assert all(leaf.any() for leaf in buffer_leaves(before))


@every_agent
def test_training_on_a_sequence_sees_what_the_steps_saw(name):
    agent = make(name)
    agent.sample_mode(0)
    agent.step(*inputs(B))
    sequence, first = inputs(4, B), agent.prev_rnn_state
    infos = [agent.step(*(x[t] for x in sequence)).agent_info for t in range(4)]
    last = agent.prev_rnn_state
    agent.train_mode(0)
    seen = tuple(agent.pi(*sequence, first)[2]) if name == "sac" else (agent.mu(*sequence, first),)
    for i, x in enumerate(seen):
        assert x.requires_grad
        assert_close(x, torch.stack([outputs(info)[i] for info in infos]))
    assert_close(agent.remember(*sequence, first), last)
    assert all(q.shape == (4, B) and q.requires_grad for q in agent.q(*sequence, first, torch.rand(4, B, A)))
    targets = agent.target_q(*sequence, first, torch.rand(4, B, A)) if name == "sac" else agent.target_q_at_mu(*sequence, first)
    assert len(targets) == 2 and all(q.shape == (4, B) and not q.requires_grad for q in targets)


@every_agent
def test_states_for_targets_are_those_of_target_networks_where_there_are_any(name):
    agent = make(name)
    sequence = inputs(4, B)
    with torch.no_grad():
        for target in agent.target_names.values():
            for p in getattr(agent, target).parameters():
                p.mul_(2)
    own, targets = agent.remember(*sequence, None), agent.remember(*sequence, None, target=True)
    differs = [not torch.equal(a.h, b.h) for a, b in zip(own, targets)]
    assert differs == [name == "td3", True, True]


@every_agent
def test_alternating_agents_act_like_one_agent_per_half(name):
    agent, halves = make(name, alternating=True), [make(name), make(name)]
    assert agent.alternating
    for one in (agent, *halves):
        one.sample_mode(0)
    for _ in range(3):
        for half in halves:
            x = inputs(B)
            info, expected = agent.step(*x).agent_info, half.step(*x).agent_info
            assert_close(outputs(info), outputs(expected))
            assert_close(info.prev_rnn_state, expected.prev_rnn_state)


@every_agent
def test_sampling_processes_share_policy_and_q_functions_but_no_target_networks(name):
    agent = make(name, share_memory=True)
    assert agent.shared_model is agent.model
    targets = agent.target_names.values()
    for attribute in agent.model_names.values():
        assert all(p.is_shared() == (attribute not in targets) for p in getattr(agent, attribute).parameters()), attribute


@every_agent
def test_an_asynchronous_sampler_receives_policy_and_q_functions(name):
    agent = make(name)
    agent.async_initialize()
    sampler = copy.copy(agent)
    sampler.async_cpu(share_memory=False)
    sampler._forget_everything()
    with torch.no_grad():
        for model in agent.named_models().values():
            for p in model.parameters():
                p.mul_(1.5)
    x = inputs(4, B)
    expected = agent.remember(*x, None)
    assert not any(torch.allclose(a.h, b.h) for a, b in zip(sampler.remember(*x, None), expected))
    agent.send_shared_memory()
    sampler.recv_shared_memory()
    assert_close(sampler.remember(*x, None), expected)


@every_agent
def test_copies_that_are_trained_elsewhere_are_synchronized(name):
    agent = make(name, share_memory=True)
    shared = {attribute: getattr(agent, attribute) for attribute in agent.acting_names}
    for attribute, model in shared.items():
        setattr(agent, attribute, copy.deepcopy(model))
        with torch.no_grad():
            for p in getattr(agent, attribute).parameters():
                p.add_(1)
    agent.sync_shared_memory()
    for attribute, model in shared.items():
        assert all(torch.equal(a, b) for a, b in zip(model.parameters(), getattr(agent, attribute).parameters()))
