import numpy as np
import pytest
import torch
from agents_for_tests import RecordingAgent, StructuredAgent
from envs import CountingEnv
from tiers import processes

from rlpyt.envs.base import Env, EnvStep, Wrapper
from rlpyt.samplers.buffer import build_samples_buffer, get_example_outputs, max_timeouts
from rlpyt.samplers.collections import AgentSamples, AgentSamplesBsv, BatchSpec, EnvSamples, Samples
from rlpyt.samplers.parallel.cpu.sampler import CpuSampler
from rlpyt.samplers.serial.sampler import SerialSampler
from rlpyt.spaces.float_box import FloatBox
from rlpyt.utils.collections import namedarraytuple


def build(bootstrap_value=True, **kwargs):
    env = CountingEnv()
    agent = RecordingAgent()
    agent.initialize(env.spaces)
    return build_samples_buffer(agent, env, BatchSpec(4, 3), bootstrap_value, **kwargs)


@pytest.mark.parametrize("shared", [False, True])
def test_fields_have_their_documented_shapes_and_dtypes(shared):
    pyt, batch, examples = build(agent_shared=shared, env_shared=shared, subprocess=False)
    assert batch.agent.action.shape == (4, 3) and batch.agent.action.dtype == np.int64
    assert batch.env.observation.shape == (4, 3, 4) and batch.env.observation.dtype == np.float32
    assert batch.env.reward.dtype == np.float32 and batch.env.done.dtype == bool and batch.env.timeout.dtype == bool
    assert batch.agent.bootstrap_value.shape == (1, 3) and batch.agent.timeout_value.shape == (4, 3)
    assert batch.final_observation.shape == (4, 3, 4)
    assert set(examples) == {"observation", "reward", "done", "env_info", "action", "agent_info"}
    assert isinstance(pyt.env.reward, torch.Tensor) and pyt.env.reward.data_ptr() == batch.env.reward.ctypes.data


def test_previous_and_next_are_views_of_the_same_memory():
    _, batch, _ = build(subprocess=False)
    batch.agent.action[1], batch.env.reward[1], batch.env.next_observation[1] = 2, 7, 5
    assert (batch.agent.prev_action[2] == 2).all() and (batch.env.prev_reward[2] == 7).all()
    assert (batch.env.observation[2] == 5).all()


def test_values_are_left_out_where_nobody_needs_them():
    batch = build(bootstrap_value=False, subprocess=False)[1]
    assert batch.agent._fields == AgentSamples._fields


@processes
def test_examples_can_be_made_in_a_process_of_their_own():
    here, elsewhere = build(subprocess=False)[2], build(subprocess=True)[2]
    assert {k: np.shape(v) for k, v in here.items() if k != "agent_info"} == {
        k: np.shape(v) for k, v in elsewhere.items() if k != "agent_info"
    }


def test_making_examples_leaves_torchs_random_state_and_threads_alone():
    class Dice(RecordingAgent):
        def step(self, *args):
            torch.rand(3)
            return super().step(*args)

    state, threads = torch.get_rng_state(), torch.get_num_threads()
    env, agent, examples = CountingEnv(), Dice(), {}
    agent.initialize(env.spaces)
    get_example_outputs(agent, env, examples)
    assert torch.equal(state, torch.get_rng_state()) and threads == torch.get_num_threads() and examples


def test_memory_for_final_observations_is_bounded_by_the_horizon_where_nothing_else_truncates():
    assert max_timeouts(CountingEnv(), 10) == 10
    assert max_timeouts(CountingEnv(episode_length=4, end="timeout"), 10) == 3
    assert max_timeouts(CountingEnv(episode_length=400, end="timeout"), 10) == 1
    assert max_timeouts(CountingEnv(episode_length=1, end="timeout"), 10) == 10


def test_what_an_environment_says_about_timeouts_does_not_hold_for_a_wrapper_that_steps_otherwise():
    class Stepping(Wrapper):
        def step(self, action):
            return self.env.step(action)

    class Saying(Stepping):
        truncates_only_at_horizon = True

    env = CountingEnv(episode_length=4, end="timeout")
    for wrapped, most in (
        (Wrapper(env), 3),
        (Stepping(env), 10),
        (Wrapper(Stepping(env)), 10),
        (Saying(env), 3),
        (Stepping(Saying(env)), 10),
    ):
        assert max_timeouts(wrapped, 10) == most


def test_more_timeouts_than_an_environment_says_are_an_error_that_says_so():
    class Wrong(Wrapper):
        truncates_only_at_horizon, horizon = True, 100

    sampler = SerialSampler(lambda: Wrong(CountingEnv(episode_length=4, end="timeout")), {}, batch_T=20, batch_B=2)
    sampler.initialize(RecordingAgent(), seed=0, bootstrap_value=True)
    with pytest.raises(ValueError, match="Environment 0 was truncated more than 1 time in a batch. It says truncates_only_at"):
        for i in range(3):
            sampler.obtain_samples(i)


def test_optional_fields_may_be_missing():
    env = EnvSamples(1, 2, 3, 4, 5)
    assert env.timeout is None and env.next_observation is None
    assert Samples(None, env).final_observation is None and AgentSamplesBsv(1, 2, 3, 4).timeout_value is None


class InfoEnv(Env):
    """Returns an env_info that is not made of numbers."""

    _action_space = FloatBox(-1, 1, shape=(1,))
    _observation_space = FloatBox(-1, 1, shape=(2,))
    EnvInfo = namedarraytuple("BadInfo", ["name"])

    def reset(self):
        return np.zeros(2, np.float32)

    def step(self, action):
        return EnvStep(np.zeros(2, np.float32), 0.0, False, self.EnvInfo("text"))


def test_text_in_env_info_is_refused_by_name_before_anything_starts():
    sampler = CpuSampler(EnvCls=InfoEnv, env_kwargs={}, batch_T=2, batch_B=1)
    with pytest.raises(TypeError, match="env_info.name"):
        sampler.initialize(StructuredAgent(), seed=0)
    assert getattr(sampler, "_pool", None) is None
