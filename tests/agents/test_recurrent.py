"""The recurrent state of agents, by a model whose state counts the steps of each environment."""

import pickle

import numpy as np
import pytest
import torch
from envs import CountingEnv

from rlpyt.agents.base import (
    AgentInputs,
    AgentInputsRnn,
    AgentStep,
    AlternatingRecurrentAgentMixin,
    BaseAgent,
    RecurrentAgentMixin,
)
from rlpyt.agents.pg.base import AgentInfoRnn
from rlpyt.agents.recurrent import recorded_rnn_state
from rlpyt.envs.base import EnvSpaces
from rlpyt.samplers.buffer import get_example_outputs
from rlpyt.spaces.float_box import FloatBox
from rlpyt.spaces.int_box import IntBox
from rlpyt.utils.collections import namedarraytuple
from rlpyt.utils.tensor import infer_leading_dims

N, H = 2, 3
Counts = namedarraytuple("Counts", ["steps", "twice"])
SPACES = EnvSpaces(FloatBox(-1, 1, (4,)), IntBox(0, 2))


class CountingModel(torch.nn.Module):
    """The state is the number of steps."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))

    def forward(self, observation, prev_action, prev_reward, init_rnn_state):
        _, _, B, _ = infer_leading_dims(observation, 1)
        if init_rnn_state is None:
            init_rnn_state = Counts(torch.zeros(N, B, H), torch.zeros(N, B, H))
        return Counts(init_rnn_state.steps + 1, init_rnn_state.twice + 2)


class CountingAgentBase(BaseAgent):
    def __init__(self, ModelCls=CountingModel, **kwargs):
        super().__init__(ModelCls=ModelCls, **kwargs)

    @torch.no_grad()
    def step(self, observation, prev_action, prev_reward):
        state = self.prev_rnn_state
        next_state = self.model(observation, prev_action, prev_reward, state)
        self.advance_rnn_state(next_state)
        return AgentStep(prev_action, AgentInfoRnn(None, prev_reward, recorded_rnn_state(state, next_state)))

    @torch.no_grad()
    def value(self, observation, prev_action, prev_reward):
        return self.model(observation, prev_action, prev_reward, self.prev_rnn_state).steps[0, :, 0]


class CountingAgent(RecurrentAgentMixin, CountingAgentBase):
    pass


class AlternatingCountingAgent(AlternatingRecurrentAgentMixin, CountingAgentBase):
    pass


class FrozenModel(CountingModel):
    """Returns the very state it was given."""

    def forward(self, observation, prev_action, prev_reward, init_rnn_state):
        return super().forward(observation, prev_action, prev_reward, None) if init_rnn_state is None else init_rnn_state


def make(AgentCls=CountingAgent, **kwargs):
    agent = AgentCls(**kwargs)
    agent.initialize(SPACES)
    agent.sample_mode(0)
    return agent


def inputs(B):
    return torch.zeros(B, 4), torch.zeros(B, dtype=torch.long), torch.zeros(B)


def step(agent, B=3):
    """How many steps each environment had made before this one, by the recorded state."""
    recorded = agent.step(*inputs(B)).agent_info.prev_rnn_state
    assert recorded.steps.shape == recorded.twice.shape == (B, N, H)
    assert torch.equal(2 * recorded.steps, recorded.twice)
    assert (recorded.steps == recorded.steps[:, :1, :1]).all()
    return recorded.steps[:, 0, 0].tolist()


def test_the_state_before_the_step_is_recorded():
    agent = make()
    assert [step(agent) for _ in range(3)] == [[0, 0, 0], [1, 1, 1], [2, 2, 2]]


def test_values_are_computed_with_the_state_and_do_not_advance_it():
    agent = make()
    step(agent)
    assert agent.value(*inputs(3)).tolist() == agent.value(*inputs(3)).tolist() == [2, 2, 2]
    assert step(agent) == [1, 1, 1]


def test_a_reset_forgets_everything():
    agent = make()
    step(agent)
    agent.reset()
    assert agent.prev_rnn_state is None
    assert step(agent, B=5) == [0] * 5


def test_resetting_one_environment_leaves_the_others_alone():
    agent = make()
    agent.reset_one(1)  # before the first step there is nothing to forget
    step(agent)
    step(agent)
    agent.reset_one(idx=1)
    assert step(agent) == [2, 0, 2]
    agent.reset_one(0)
    agent.reset_one(2)
    assert step(agent) == [0, 1, 0]


@pytest.mark.parametrize("ModelCls", [CountingModel, FrozenModel])
def test_resetting_does_not_change_what_was_handed_out(ModelCls):
    agent = make(ModelCls=ModelCls)
    if ModelCls is FrozenModel:
        agent.advance_rnn_state(Counts(torch.ones(N, 3, H), torch.ones(N, 3, H)))
    handed_out = []
    for b in range(3):
        handed_out += [agent.step(*inputs(3)).agent_info.prev_rnn_state.steps, agent.prev_rnn_state.steps]
        before = [x.clone() for x in handed_out]
        agent.reset_one(b)
        handed_out.append(agent.prev_rnn_state.steps)
        before.append(handed_out[-1].clone())
        agent.reset_one((b + 1) % 3)
        assert all(map(torch.equal, handed_out, before))
        assert (agent.prev_rnn_state.steps[:, b] == 0).all() and (agent.prev_rnn_state.steps[:, (b + 1) % 3] == 0).all()


def test_sampling_goes_on_where_evaluation_and_training_interrupted_it():
    agent = make()
    step(agent)
    agent.sample_mode(1)
    assert step(agent) == [1, 1, 1]
    agent.eval_mode(1)
    assert agent.prev_rnn_state is None
    agent.reset()
    assert [step(agent, B=5) for _ in range(2)] == [[0] * 5, [1] * 5]
    agent.reset_one(4)
    agent.train_mode(1)
    agent.reset()
    agent.eval_mode(1)
    agent.sample_mode(2)
    assert step(agent) == [2, 2, 2]
    agent.train_mode(2)
    assert agent.prev_rnn_state is None
    agent.sample_mode(3)
    assert step(agent) == [3, 3, 3]


def test_another_sampler_starts_from_zeros():
    agent = make()
    step(agent)
    agent.train_mode(0)
    agent.initialize(SPACES)
    agent.reset()
    agent.sample_mode(0)
    assert step(agent, B=2) == [0, 0]


@pytest.mark.parametrize("AgentCls", [CountingAgent, AlternatingCountingAgent])
def test_examples_for_the_batch_have_no_leading_dims(AgentCls):
    agent, examples = make(AgentCls), {}
    step(agent)
    get_example_outputs(agent, CountingEnv(), examples)
    assert {name: x.shape for name, x in zip(Counts._fields, examples["agent_info"].prev_rnn_state)} == {"steps": (N, H), "twice": (N, H)}
    assert agent.prev_rnn_state is None


def test_the_state_is_not_among_what_is_saved():
    agent = make()
    names = list(agent.state_dict())
    step(agent)
    assert list(agent.state_dict()) == names == ["weight"]


def test_an_agent_with_a_state_pickles():
    agent = make()
    step(agent)
    assert step(pickle.loads(pickle.dumps(agent))) == [1, 1, 1] == step(agent)


def test_flags_say_what_an_agent_needs():
    assert (BaseAgent.recurrent, BaseAgent.alternating, BaseAgent.acts_on_device) == (False, False, False)
    assert (CountingAgent.recurrent, CountingAgent.alternating) == (True, False)
    assert (AlternatingCountingAgent.recurrent, AlternatingCountingAgent.alternating) == (True, True)


def test_training_inputs_of_recurrent_agents_end_with_the_state():
    assert AgentInputsRnn._fields == (*AgentInputs._fields, "init_rnn_state")


# --- Alternating ------------------------------------------------------------------------------------------------------


def test_an_agent_without_the_mixin_may_keep_a_state_by_itself():
    agent = make(CountingAgentBase)
    with pytest.raises(TypeError, match="put RecurrentAgentMixin in front of its bases"):
        agent.advance_rnn_state(None)
    agent.prev_rnn_state = 5
    agent.sample_mode(0)
    agent.reset_one(0)
    assert agent.prev_rnn_state == 5 and agent.sampling_state() is None


def test_two_halves_that_take_turns_are_like_two_agents():
    rng = np.random.default_rng(0)
    agent, halves = make(AlternatingCountingAgent), [make(), make()]
    for _ in range(50):
        for i, half in enumerate(halves):
            assert agent.get_alt() == i
            for b in range(3):
                if rng.random() < 0.3:
                    agent.reset_one(b)
                    half.reset_one(b)
            assert agent.value(*inputs(3)).tolist() == half.value(*inputs(3)).tolist()
            assert agent.get_alt() == i
            assert step(agent) == step(half)


def test_every_method_means_the_half_whose_turn_it_is():
    agent = make(AlternatingCountingAgent)
    step(agent)
    assert agent.get_alt() == 1 and agent.prev_rnn_state is None
    agent.toggle_alt()
    assert agent.get_alt() == 0 and agent.prev_rnn_state.steps[0, :, 0].tolist() == [1, 1, 1]
    agent.reset_one(2)
    agent.toggle_alt()
    assert step(agent) == [0, 0, 0]
    assert step(agent) == [1, 1, 0]
    assert step(agent) == [1, 1, 1]
    agent.reset()
    assert agent.get_alt() == 0 and step(agent) == step(agent) == [0, 0, 0]


def test_both_halves_and_whose_turn_it_is_outlast_other_modes():
    agent = make(AlternatingCountingAgent)
    for _ in range(3):
        step(agent)
    agent.eval_mode(0)
    agent.reset()
    assert agent.get_alt() == 0 and [step(agent, B=2) for _ in range(4)] == [[0, 0], [0, 0], [1, 1], [1, 1]]
    agent.train_mode(0)
    agent.sample_mode(1)
    assert agent.get_alt() == 1
    assert step(agent) == [1, 1, 1] and step(agent) == [2, 2, 2]
