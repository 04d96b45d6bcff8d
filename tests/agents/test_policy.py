"""Agents as policies, and policies as agents."""

import copy

import numpy as np
import pytest
import torch
from agents_for_tests import AlternatingRnnAgent, RecordingAgent, StructuredAgent
from envs import CountingEnv, EveryKindGymEnv, StructuredGymEnv, make_structured
from tiers import processes

from rlpyt.agents.pg.mlp import MlpFfAgent, MlpGaussianFfAgent
from rlpyt.agents.pg.multi_input import MultiInputFfAgent
from rlpyt.agents.policy import AgentPolicy, PolicyAgent
from rlpyt.envs.point_env import PointEnv
from rlpyt.samplers.parallel.cpu.sampler import CpuSampler
from rlpyt.samplers.serial.sampler import SerialSampler
from rlpyt.utils.buffer import buffer_func, buffer_leaves
from rlpyt.utils.structures import stack, to_structure, tree_map


class Echo:
    """Acts by the third number of the observation; says what it saw."""

    def __init__(self):
        self.resets = []

    def get_action(self, observation):
        return int(observation[2]) % 3, {"seen": observation[:2] * 1, "name": "echo"}

    def get_actions(self, observations):
        return observations[:, 2].astype(np.int64) % 3, {"seen": observations[:, :2] * 1, "name": np.array(["echo"] * len(observations))}

    def reset(self, do_resets=None):
        self.resets.append(do_resets)


class OneAtATime:
    def get_action(self, observation):
        return int(observation[2]) % 3, {}

    def reset(self, do_resets=None):
        pass


@processes
@pytest.mark.timeout(60)
@pytest.mark.parametrize("SamplerCls", [SerialSampler, CpuSampler])
@pytest.mark.parametrize("PolicyCls", [Echo, OneAtATime])
def test_a_policy_is_sampled_like_an_agent(SamplerCls, PolicyCls):
    sampler = SamplerCls(CountingEnv, {}, batch_T=12, batch_B=4, max_decorrelation_steps=0)
    sampler.initialize(PolicyAgent(PolicyCls()), affinity=dict(workers_cpus=[0, 1], set_affinity=False), seed=0)
    try:
        samples, _ = sampler.obtain_samples(0)
        assert torch.equal(samples.agent.action, samples.env.observation[..., 2].long() % 3)
        if PolicyCls is Echo:
            assert samples.agent.agent_info._fields == ("seen",), "strings have no place in a batch"
            assert torch.equal(samples.agent.agent_info.seen, samples.env.observation[..., :2])
    finally:
        sampler.shutdown()


def test_a_policy_is_told_where_episodes_begin():
    agent = PolicyAgent(Echo())
    agent.initialize(CountingEnv().spaces)
    agent.step(torch.zeros(3, 4), torch.zeros(3), torch.zeros(3))
    agent.reset()
    agent.reset_one(1)
    assert agent.policy.resets == [None, [False, True, False]]
    with pytest.raises(TypeError, match="object is no policy: it has neither"):
        PolicyAgent(object())
    with pytest.raises(NotImplementedError, match="bootstrap_value"):
        agent.value(None, None, None)


def test_the_parameters_of_a_policy_are_those_of_the_agent():
    class Net(torch.nn.Linear):
        def get_actions(self, observations):
            return self(torch.as_tensor(observations)).argmax(-1).numpy(), {}

    net = Net(4, 3)
    agent = PolicyAgent(net)
    agent.initialize(CountingEnv().spaces, share_memory=True)
    assert agent.model is net and net.weight.is_shared() and set(agent.state_dict()) == {"weight", "bias"}
    assert list(agent.parameters())[0] is net.weight


def test_a_policy_without_parameters_has_no_state():
    agent = PolicyAgent(Echo())
    assert agent.state_dict() == {}
    agent.load_state_dict({})


def test_an_agent_knows_what_came_before():
    policy = AgentPolicy(RecordingAgent())
    policy.prepare(CountingEnv())
    observations = np.zeros((2, 4), np.float32)
    first, info = policy.get_actions(observations)
    assert info["prev_action"].tolist() == [0, 0] and first.tolist() == [1, 1]
    policy.take_rewards(np.array([5.0, 7.0]))
    _, info = policy.get_actions(observations)
    assert info["prev_action"].tolist() == [1, 1] and info["prev_reward"].tolist() == [5, 7]
    policy.reset([False, True])
    _, info = policy.get_actions(observations)
    assert info["prev_action"][1] == 0 and info["prev_reward"].tolist() == [5, 0] and policy.agent.resets == [1]
    action, info = policy.get_action(observations[0])
    assert np.shape(action) == () and info["prev_reward"] == 0


def test_an_agent_that_was_not_prepared_says_so():
    with pytest.raises(RuntimeError, match=r"prepare\(env\)"):
        AgentPolicy(RecordingAgent()).get_action(np.zeros(4))
    with pytest.raises(ValueError, match="Alternating"):
        AgentPolicy(AlternatingRnnAgent())


def test_parameters_go_from_one_agent_to_another():
    a, b = (AgentPolicy(MlpFfAgent(model_kwargs=dict(hidden_sizes=[4]))) for _ in range(2))
    for policy in (a, b):
        policy.prepare(CountingEnv())
    observations = np.ones((2, 4), np.float32)
    b.set_param_values(a.get_param_values())
    prob = [policy.get_actions(observations)[1]["dist_info"]["prob"] for policy in (a, b)]
    assert np.array_equal(*prob)


def test_actions_and_observations_have_the_form_that_each_side_knows():
    policy = AgentPolicy(MlpGaussianFfAgent(model_kwargs=dict(hidden_sizes=[4])))
    env = PointEnv()
    policy.prepare(env)
    action, info = policy.get_action(env.reset()[0].astype(np.float64))
    assert action.dtype == np.float32 and action.shape == (2,) and set(info) == {"dist_info", "value"}


def test_environments_of_gymnasium_get_actions_in_their_units():
    """The environment refuses actions that are not in its space."""
    env, small = EveryKindGymEnv(), dict(image_sizes=4, vector_sizes=4, fc_sizes=4)
    policy = AgentPolicy(MultiInputFfAgent(model_kwargs=small))
    policy.prepare(env)
    observation, _ = env.reset(seed=0)
    for _ in range(10):
        observation, *_, info = env.step(policy.for_envs(policy.get_action(observation)[0]))
    assert info["got"].shape == (18,)


def test_structured_actions_are_one_per_environment():
    policy = AgentPolicy(StructuredAgent())
    env = make_structured()
    policy.prepare(env)
    observation = buffer_func(env.reset(), lambda x: np.repeat(np.asarray(x)[None], 2, axis=0))
    actions, _ = policy.get_actions(observation)
    assert len(actions) == 2 and all(env.action_space.contains(action) for action in actions)
    policy.reset([False, True])
    _, info = policy.get_actions(observation)
    for prev, action in zip(buffer_leaves(to_structure(info["prev_action"], "action")), buffer_leaves(actions[0])):
        assert np.array_equal(prev[0], action) and not prev[1].any()
    action, _ = policy.get_action(env.reset())
    assert env.action_space.contains(action)


@pytest.mark.parametrize("share_memory", [False, True])
def test_copies_for_workers_in_other_processes_do_not_write_to_shared_memory(share_memory):
    agent = MlpFfAgent(model_kwargs=dict(hidden_sizes=[4]))
    agent.initialize(CountingEnv().spaces, share_memory=share_memory)
    policy = AgentPolicy(agent)
    assert policy.copy_for_worker().agent.model is agent.model
    copies = [policy.copy_for_worker(cpu=True).agent for _ in range(2)]
    assert all(not parameter.is_shared() for each in copies for parameter in each.model.parameters())
    if share_memory:
        before = copy.deepcopy(agent.state_dict())
        for k, each in enumerate(copies):
            assert each.shared_model is None
            each.load_state_dict({name: torch.full_like(x, k) for name, x in before.items()})
        assert all(torch.equal(x, before[name]) for name, x in agent.state_dict().items()) and agent.shared_model is agent.model
        assert [{x.mean().item() for x in each.state_dict().values()} for each in copies] == [{0.0}, {1.0}]


class StructuredEcho:
    """Acts in a `StructuredGymEnv` by what it sees; says it, nested, and in lists."""

    def get_action(self, observation):
        joint, label = observation["joints"]["item_0"], int(observation["goal"]["class_"])
        return dict(move=np.tanh(joint), tool=(label % 2, label % 3)), {"at": {"joint": joint, "twice": [2 * label]}, "name": "echo"}

    def reset(self, do_resets=None):
        pass


class BatchStructuredEcho(StructuredEcho):
    def get_actions(self, observations):
        n = len(observations["goal"]["class_"])
        steps = [self.get_action(tree_map(lambda x, b=b: x[b], observations)) for b in range(n)]
        return [action for action, _ in steps], stack([info for _, info in steps])


@pytest.mark.parametrize("PolicyCls", [StructuredEcho, BatchStructuredEcho])
def test_a_policy_with_structured_actions_and_infos_is_sampled(PolicyCls):
    sampler = SerialSampler(make_structured, {}, batch_T=6, batch_B=2, max_decorrelation_steps=0)
    sampler.initialize(PolicyAgent(PolicyCls()), seed=0)
    samples, _ = sampler.obtain_samples(0)
    joint, label = samples.env.observation.joints.item_0, samples.env.observation.goal.class_
    assert torch.equal(samples.agent.agent_info.at.joint, joint) and samples.agent.agent_info._fields == ("at",)
    assert torch.equal(samples.agent.agent_info.at.twice[..., 0], 2 * label)
    assert torch.equal(samples.agent.action.tool.item_0, label % 2) and torch.equal(samples.agent.action.tool.item_1, label % 3)
    assert torch.allclose(samples.agent.action.move, torch.tanh(joint))
    sampler.shutdown()


def test_an_agent_sees_dictionaries_as_it_would_in_an_environment_of_rlpyt():
    space = StructuredGymEnv.observation_space
    space.seed(0)
    given, env = [space.sample() for _ in range(3)], make_structured()
    policy, oracle = AgentPolicy(StructuredAgent()), AgentPolicy(StructuredAgent())
    policy.prepare(StructuredGymEnv())
    oracle.prepare(env)
    converted = [env.observation_space.convert(value) for value in given]
    for value, expected in zip(given, converted):
        action, info = policy.get_action(value)
        expected_action, expected_info = oracle.get_action(expected)
        assert str(info) == str(expected_info) and str(action) == str(env.action_space.revert(expected_action))


def test_the_saved_memory_of_episodes_in_progress_is_a_copy():
    policy = AgentPolicy(RecordingAgent())
    policy.prepare(CountingEnv())
    policy.reset([True, True])
    policy.get_actions(np.ones((2, 4), np.float32))
    policy._prev_action[:] = 2
    saved = policy.sampling_state()
    policy.reset([True, False])
    np.testing.assert_array_equal(policy._prev_action, [0, 2])
    np.testing.assert_array_equal(saved["prev_action"][0], [2, 2])
