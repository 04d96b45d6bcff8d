import copy

import pytest
import torch
from ranks import process_group

from rlpyt.agents.base import AgentInputsRnn, AlternatingRecurrentAgentMixin, RecurrentAgentMixin
from rlpyt.agents.dqn.atari.atari_r2d1_agent import AtariR2d1Agent, AtariR2d1AlternatingAgent
from rlpyt.agents.dqn.mlp_dqn_agent import MlpDqnAgent
from rlpyt.agents.dqn.mlp_r2d1_agent import MlpIqnR2d1Agent, MlpQrR2d1Agent, MlpR2d1Agent, MlpR2d1AlternatingAgent
from rlpyt.agents.dqn.multi_input import MultiInputIqnR2d1Agent, MultiInputR2d1Agent
from rlpyt.agents.dqn.r2d1_agent import AgentInfo, R2d1Agent, R2d1AgentBase, R2d1AlternatingAgent
from rlpyt.envs.base import EnvSpaces
from rlpyt.models.dqn.mlp_dqn_model import MlpDqnModel
from rlpyt.models.lstm import RnnState
from rlpyt.spaces.float_box import FloatBox
from rlpyt.spaces.int_box import IntBox

H, B = 5, 3
SPACES = EnvSpaces(FloatBox(-1, 1, (4,)), IntBox(0, 3))
IMAGES = EnvSpaces(IntBox(0, 256, (2, 12, 12), dtype="uint8"), IntBox(0, 3))
SMALL = dict(channels=[4], kernel_sizes=[4], strides=[2], paddings=[0], fc_size=6, head_size=6)


def make(images=False, alternating=False, **kwargs):
    torch.manual_seed(0)
    if images:
        agent = (AtariR2d1AlternatingAgent if alternating else AtariR2d1Agent)(model_kwargs=dict(SMALL, lstm_size=H), **kwargs)
    else:
        agent = (MlpR2d1AlternatingAgent if alternating else MlpR2d1Agent)(model_kwargs=dict(lstm_size=H), **kwargs)
    agent.initialize(IMAGES if images else SPACES)
    agent.sample_mode(0)
    agent.set_sample_epsilon_greedy(0)
    return agent


@pytest.fixture(params=[False, True], ids=["vectors", "images"])
def agent(request):
    return make(request.param)


def inputs(agent, *lead):
    shape = agent.env_spaces.observation.shape
    observation = torch.randint(0, 256, (*lead, *shape), dtype=torch.uint8) if len(shape) == 3 else torch.randn(*lead, *shape)
    return observation, torch.randint(3, lead), torch.randn(lead)


def assert_close(a, b):
    torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_a_step_gives_greedy_actions_values_and_the_state_before(agent):
    before = RnnState(torch.zeros(B, 1, H), torch.zeros(B, 1, H))
    for _ in range(3):
        action, info = agent.step(*inputs(agent, B))
        assert type(info) is AgentInfo and info.q.shape == (B, 3) and torch.equal(action, info.q.argmax(-1))
        assert torch.equal(info.prev_rnn_state.h, before.h) and torch.equal(info.prev_rnn_state.c, before.c)
        before = RnnState(*(x.transpose(0, 1).clone() for x in agent.prev_rnn_state))
        assert before.h.shape == (B, 1, H) and before.h.any()


def test_a_step_without_leading_dims_keeps_b_in_the_state(agent):
    action, info = agent.step(*inputs(agent))
    assert action.shape == () and info.q.shape == (3,) and info.prev_rnn_state.c.shape == (1, 1, H)


def test_training_on_a_sequence_sees_what_the_steps_saw(agent):
    agent.step(*inputs(agent, B))
    sequence, first = inputs(agent, 4, B), agent.prev_rnn_state
    qs = [agent.step(*(x[t] for x in sequence)).agent_info.q for t in range(4)]
    agent.train_mode(0)
    q, last = agent(*AgentInputsRnn(*sequence, first))
    target_q, target_last = agent.target(*sequence, first)
    assert q.requires_grad and not target_q.requires_grad
    assert_close(q, torch.stack(qs))
    assert torch.equal(target_q, q) and torch.equal(target_last.c, last.c)
    agent.sample_mode(1)
    assert_close(last.h, agent.prev_rnn_state.h)
    assert torch.equal(agent(*sequence, None)[0], agent(*sequence, RnnState(torch.zeros(1, B, H), torch.zeros(1, B, H)))[0])


def test_an_environments_reset_leaves_the_others_alone(agent):
    agent.step(*inputs(agent, B))
    before = agent.prev_rnn_state.h.clone()
    agent.reset_one(1)
    assert not agent.prev_rnn_state.h[:, 1].any() and torch.equal(agent.prev_rnn_state.h[:, 0], before[:, 0])


@pytest.mark.parametrize("images", [False, True])
def test_alternating_agents_act_like_one_agent_per_half(images):
    agent, halves = make(images, alternating=True), [make(images), make(images)]
    assert agent.alternating and not halves[0].alternating
    for _ in range(4):
        for half in halves:
            batch = inputs(agent, B)
            info, expected = agent.step(*batch).agent_info, half.step(*batch).agent_info
            assert_close(info.q, expected.q)
            assert_close(info.prev_rnn_state.h, expected.prev_rnn_state.h)


def test_each_environment_may_have_an_epsilon_of_its_own():
    agent = MlpR2d1Agent(eps_final=0.1, eps_final_min=0.001)
    agent.initialize(SPACES, global_B=B, env_ranks=range(B))
    agent.sample_mode(10**6)
    torch.testing.assert_close(agent.distribution.epsilon, torch.tensor([0.001, 0.01, 0.1]))
    assert agent.step(*inputs(agent, B)).action.shape == (B,)


def test_state_dicts_are_restored_also_from_data_parallel_training(agent, tmp_path):
    other, sequence = copy.deepcopy(agent), inputs(agent, 2, B)
    with torch.no_grad():
        for parameter in agent.parameters():
            parameter.add_(1)
    with process_group(tmp_path / "meeting"):
        agent.data_parallel()
        agent.step(*inputs(agent, B))
        q, _ = agent(*sequence, agent.prev_rnn_state)
        q.sum().backward()
        assert all(parameter.grad is not None for parameter in agent.parameters())
        other.load_state_dict(agent.state_dict())
        assert torch.equal(other(*sequence, None)[0], agent(*sequence, None)[0])
        assert torch.equal(other.target(*sequence, None)[0], agent.target(*sequence, None)[0])
        agent.model = None


def test_bases_come_in_the_documented_order():
    assert R2d1Agent.__bases__ == (RecurrentAgentMixin, R2d1AgentBase)
    assert R2d1AlternatingAgent.__bases__ == (AlternatingRecurrentAgentMixin, R2d1AgentBase)


@pytest.mark.parametrize(
    "AgentCls, model_kwargs, message",
    [
        (MlpDqnAgent, dict(n_atoms=3), "MlpDqnAgent .*n_atoms=3 .*MlpCatDqnAgent.*MlpQrDqnAgent"),
        (MlpR2d1Agent, dict(n_atoms=3), "MlpR2d1Agent .*n_atoms=3 .*MlpCatDqnAgent.*MlpQrR2d1Agent"),
        (MultiInputR2d1Agent, dict(implicit=True), "MultiInputR2d1Agent .*implicit=True .*MlpIqnR2d1Agent"),
        (AtariR2d1AlternatingAgent, dict(implicit=True), "AtariR2d1AlternatingAgent .*implicit=True .*MlpIqnR2d1Agent"),
        (MlpQrR2d1Agent, dict(implicit=True), "MlpQrR2d1Agent .*implicit=True .*MlpIqnR2d1Agent"),
        (MlpIqnR2d1Agent, dict(n_atoms=3), "MlpIqnR2d1Agent .*n_atoms=3 .*MlpQrR2d1Agent"),
        (MultiInputIqnR2d1Agent, dict(n_atoms=3), "MultiInputIqnR2d1Agent .*n_atoms=3 .*MlpQrR2d1Agent"),
        (MlpIqnR2d1Agent, dict(implicit=False), "implicit=False, but MlpIqnR2d1Agent gives its model implicit=True: leave it out"),
        (MlpQrR2d1Agent, dict(n_atoms=3), "n_atoms=3, but MlpQrR2d1Agent gives its model n_atoms=200: give n_quantiles to the agent"),
    ],
)
def test_settings_with_which_the_model_would_return_what_another_agent_takes_are_refused(AgentCls, model_kwargs, message):
    with pytest.raises(ValueError, match=message):
        AgentCls(model_kwargs=model_kwargs)


class MeanOfAtoms(MlpDqnModel):
    def forward(self, *inputs):
        return super().forward(*inputs).mean(-1)


def test_settings_of_the_model_may_have_the_agents_values_and_those_of_a_users_model_any():
    assert MlpQrR2d1Agent(n_quantiles=5, model_kwargs=dict(n_atoms=5, implicit=False)).model_kwargs == dict(n_atoms=5, implicit=False)
    assert MlpIqnR2d1Agent(model_kwargs=dict(n_atoms=None, implicit=True)).model_kwargs == dict(n_atoms=None, implicit=True)
    agent = MlpDqnAgent(ModelCls=MeanOfAtoms, model_kwargs=dict(n_atoms=3))
    agent.initialize(SPACES)
    assert agent(torch.randn(2, 4), torch.zeros(2, dtype=torch.long), torch.zeros(2)).shape == (2, 3)
