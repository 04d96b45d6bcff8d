import copy

import pytest
import torch
from envs import CountingEnv, make_cartpole_without_velocities
from ranks import process_group
from tiers import gpu

from rlpyt.agents.base import AgentInputsRnn
from rlpyt.agents.pg.atari import AlternatingAtariLstmAgent, AtariLstmAgent
from rlpyt.agents.pg.base import AgentInfoRnn
from rlpyt.agents.pg.mlp import AlternatingMlpLstmAgent, MlpFfAgent, MlpLstmAgent
from rlpyt.agents.pg.mujoco import AlternatingMujocoLstmAgent, MujocoLstmAgent
from rlpyt.envs.base import EnvSpaces
from rlpyt.models.lstm import RnnState
from rlpyt.models.utils import unwrap_ddp
from rlpyt.samplers.buffer import get_example_outputs
from rlpyt.spaces.float_box import FloatBox
from rlpyt.spaces.int_box import IntBox

IMAGES, VECTORS, NUMBERS = IntBox(0, 256, (2, 12, 12), dtype="uint8"), FloatBox(-1, 1, (4,)), IntBox(0, 7)
DISCRETE, CONTINUOUS = IntBox(0, 3), FloatBox(-2, 2, (2,))
H = 5
SMALL_CONV = dict(channels=[4], kernel_sizes=[4], strides=[2], paddings=[0], fc_sizes=6)
AGENTS = {
    "images": (AtariLstmAgent, AlternatingAtariLstmAgent, IMAGES, DISCRETE, SMALL_CONV),
    "vectors": (MlpLstmAgent, AlternatingMlpLstmAgent, VECTORS, DISCRETE, {}),
    "numbers": (MlpLstmAgent, AlternatingMlpLstmAgent, NUMBERS, DISCRETE, {}),
    "continuous": (MujocoLstmAgent, AlternatingMujocoLstmAgent, VECTORS, CONTINUOUS, dict(hidden_sizes=[6])),
}
B = 3


def make(name, alternating=False):
    torch.manual_seed(0)
    AgentCls, AlternatingAgentCls, observation_space, action_space, model_kwargs = AGENTS[name]
    agent = (AlternatingAgentCls if alternating else AgentCls)(model_kwargs=dict(model_kwargs, lstm_size=H))
    agent.initialize(EnvSpaces(observation_space, action_space))
    agent.sample_mode(0)
    return agent


def inputs(agent, *lead):
    def sample(space):
        n = int(torch.Size(lead).numel())
        return torch.stack([torch.as_tensor(space.sample()) for _ in range(n)]).reshape(*lead, *space.shape)

    return sample(agent.env_spaces.observation), sample(agent.env_spaces.action), torch.randn(lead)


@pytest.fixture(params=AGENTS)
def agent(request):
    return make(request.param)


def assert_close(a, b):
    for x, y in zip(tuple(a), tuple(b), strict=True) if isinstance(a, tuple) else [(a, b)]:
        torch.testing.assert_close(x, y, rtol=1e-4, atol=1e-5)


def test_a_step_gives_actions_and_what_training_needs(agent):
    for _ in range(2):
        action, info = agent.step(*inputs(agent, B))
        assert type(info) is AgentInfoRnn and action.shape == (B, *agent.env_spaces.action.shape)
        assert info.value.shape == agent.value(*inputs(agent, B)).shape == (B,)
        assert all(part.shape == (B, agent.distribution.dim) and not part.requires_grad for part in info.dist_info)
        assert info.prev_rnn_state.h.shape == info.prev_rnn_state.c.shape == (B, 1, H)
        assert agent.prev_rnn_state.h.shape == (1, B, H)


def test_the_state_before_the_step_is_recorded_zeros_at_first(agent):
    recorded = agent.step(*inputs(agent, B)).agent_info.prev_rnn_state
    assert recorded.h.abs().sum() == recorded.c.abs().sum() == 0
    before = RnnState(*(x.transpose(0, 1).clone() for x in agent.prev_rnn_state))
    recorded = agent.step(*inputs(agent, B)).agent_info.prev_rnn_state
    assert torch.equal(recorded.h, before.h) and torch.equal(recorded.c, before.c) and recorded.h.abs().sum() > 0


def test_training_on_a_sequence_sees_what_the_steps_saw(agent):
    agent.step(*inputs(agent, B))
    sequence, first, infos, values = inputs(agent, 4, B), agent.prev_rnn_state, [], []
    for t in range(4):
        values.append(agent.value(*(x[t] for x in sequence)))
        infos.append(agent.step(*(x[t] for x in sequence)).agent_info)
    agent.train_mode(0)
    dist_info, value, last = agent(*AgentInputsRnn(*sequence, first))
    assert value.requires_grad and all(part.requires_grad for part in dist_info)
    for t, info in enumerate(infos):
        assert_close(dist_info[t], info.dist_info)
        assert_close(value[t], info.value)
        assert torch.equal(values[t], info.value)
    agent.sample_mode(1)
    assert_close(last, agent.prev_rnn_state)


def test_training_without_a_state_starts_from_zeros(agent):
    sequence = inputs(agent, 2, B)
    zeros = RnnState(torch.zeros(1, B, H), torch.zeros(1, B, H))
    assert torch.equal(agent(*sequence, None)[1], agent(*sequence, zeros)[1])


def test_a_step_without_leading_dims_keeps_b_in_the_state(agent):
    batch = inputs(agent, 1)
    expected = agent.value(*batch)
    action, info = agent.step(*(x[0] for x in batch))
    assert action.shape == agent.env_spaces.action.shape and info.prev_rnn_state.c.shape == (1, 1, H)
    assert_close(info.value, expected[0])


def test_recorded_states_are_constants_of_a_loss(agent):
    agent.step(*inputs(agent, B))
    info = agent.step(*inputs(agent, B)).agent_info
    assert not any(x.requires_grad for x in (*info.prev_rnn_state, *agent.prev_rnn_state, info.value))


@pytest.mark.parametrize("name", AGENTS)
def test_alternating_agents_act_like_one_agent_per_half(name):
    agent, halves = make(name, alternating=True), [make(name), make(name)]
    assert agent.alternating and not halves[0].alternating
    for _ in range(4):
        for half in halves:
            batch = inputs(agent, B)
            assert_close(agent.value(*batch), half.value(*batch))
            info, expected = agent.step(*batch).agent_info, half.step(*batch).agent_info
            assert_close(info.value, expected.value)
            assert_close(info.prev_rnn_state, expected.prev_rnn_state)


@pytest.mark.parametrize("EnvCls", [CountingEnv, make_cartpole_without_velocities])
def test_examples_for_the_batch(EnvCls):
    agent, env, examples = MlpLstmAgent(model_kwargs=dict(lstm_size=H)), EnvCls(), {}
    agent.initialize(EnvSpaces(env.observation_space, env.action_space))
    get_example_outputs(agent, env, examples)
    assert examples["agent_info"].prev_rnn_state.h.shape == (1, H)
    assert examples["agent_info"].value.shape == examples["action"].shape == ()


def test_wrapping_for_data_parallel_training_changes_no_outputs(agent, tmp_path):
    plain = copy.deepcopy(agent)
    with process_group(tmp_path / "meeting"):
        agent.data_parallel()
        assert unwrap_ddp(agent.model) is not agent.model
        batch, sequence = inputs(agent, B), inputs(agent, 2, B)
        assert torch.equal(agent.step(*batch).agent_info.value, plain.step(*batch).agent_info.value)
        state = agent.prev_rnn_state
        dist_info, value, _ = agent(*sequence, state)
        assert torch.equal(value, plain(*sequence, state)[1])
        (value.sum() + sum(part.square().sum() for part in dist_info)).backward()
        assert all(parameter.grad is not None for parameter in agent.parameters())
        assert list(agent.state_dict()) == list(plain.state_dict())
        agent.model = None


@gpu
@pytest.mark.parametrize("acts_on_device", [True, False])
def test_on_a_gpu_the_state_stays_there_and_outputs_go_where_the_sampler_wants_them(agent, acts_on_device, monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)  # Else LSTMs and convolutions round as no CPU does.
    reference = copy.deepcopy(agent)
    agent.to_device(0)
    agent.acts_on_device = acts_on_device
    place = "cuda" if acts_on_device else "cpu"
    for b in range(B):
        batch = inputs(agent, B)
        (action, info), expected = agent.step(*batch), reference.step(*batch).agent_info
        outputs = (action, info.value, *info.dist_info, *info.prev_rnn_state, agent.value(*batch))
        assert {x.device.type for x in outputs} == {place}
        assert {x.device.type for x in agent.prev_rnn_state} == {"cuda"}
        assert_close(info.value.cpu(), expected.value)
        assert_close(tuple(x.cpu() for x in info.prev_rnn_state), tuple(expected.prev_rnn_state))
        agent.reset_one(b)
        reference.reset_one(b)
    *_, value, last = agent(*inputs(agent, 2, B), reference.prev_rnn_state)
    assert value.device.type == last.h.device.type == "cuda"


@gpu
def test_feedforward_agents_also_leave_outputs_on_the_gpu_if_asked():
    agent = MlpFfAgent()
    agent.initialize(EnvSpaces(VECTORS, DISCRETE))
    agent.to_device(0)
    agent.acts_on_device = True
    step = agent.step(*inputs(agent, B))
    assert step.action.device.type == step.agent_info.value.device.type == "cuda"
