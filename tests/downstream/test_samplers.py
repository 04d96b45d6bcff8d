"""Programs with collectors, samplers and agents of their own, as they are written for the original rlpyt."""

from collections import namedtuple

import numpy as np
import pytest
import torch
from agents_for_tests import Offset, RecordingAgent, RnnAgent
from envs import CountingEnv
from users import MyCollector, MySampler

from rlpyt.agents.base import AgentStep, BaseAgent
from rlpyt.agents.dqn.mlp_dqn_agent import MlpDqnAgent
from rlpyt.agents.pg.mlp import MlpFfAgent
from rlpyt.agents.qpg.ddpg_agent import DdpgAgent
from rlpyt.agents.qpg.sac_agent import SacAgent
from rlpyt.agents.qpg.td3_agent import Td3Agent
from rlpyt.algos.dqn.dqn import DQN
from rlpyt.algos.pg.a2c import A2C
from rlpyt.algos.qpg.ddpg import DDPG
from rlpyt.algos.qpg.sac import SAC
from rlpyt.algos.qpg.td3 import TD3
from rlpyt.envs.base import EnvStep
from rlpyt.envs.contract import check_env
from rlpyt.episodes.batch import EpisodeBatch
from rlpyt.replays.non_sequence.time_limit import AsyncTlUniformReplayBuffer, TlUniformReplayFrameBuffer
from rlpyt.replays.non_sequence.uniform import UniformReplayBuffer
from rlpyt.samplers.async_.serial_sampler import AsyncSerialSampler
from rlpyt.samplers.collections import AgentInputs, TrajInfo
from rlpyt.samplers.collectors import BaseEvalCollector, DecorrelatingStartCollector
from rlpyt.samplers.parallel.cpu.collectors import CpuResetCollector, CpuWaitResetCollector
from rlpyt.samplers.parallel.cpu.sampler import CpuSampler
from rlpyt.samplers.parallel.gpu.collectors import GpuResetCollector
from rlpyt.samplers.parallel.gpu.sampler import GpuSampler
from rlpyt.samplers.serial.collectors import SerialEvalCollector
from rlpyt.samplers.serial.sampler import SerialSampler
from rlpyt.samplers.workers import WorkerError
from rlpyt.utils.collections import namedarraytuple
from rlpyt.utils.logging import logger

T, B = 6, 2
AFFINITY = dict(workers_cpus=[0, 1], set_affinity=False)


# ---------------------------------------------------------------------------------------------------------------------
# What users write
# ---------------------------------------------------------------------------------------------------------------------
class MyResetCollector(CpuResetCollector):
    """Derived from a collector of rlpyt, whose loop it replaces."""

    collect_batch = MyCollector.collect_batch


class MyShapingCollector(CpuResetCollector):
    """Changes a batch when it is full."""

    def collect_batch(self, agent_inputs, traj_infos, itr):
        result = super().collect_batch(agent_inputs, traj_infos, itr)
        self.samples_np.env.reward[:] *= 10
        return result


class MySerialSampler(SerialSampler):
    """A SerialSampler that is initialized in another way."""

    def initialize(self, agent, *args, **kwargs):
        examples = MySampler.initialize(self, agent, *args, **kwargs)
        self.agent = agent
        if self.eval_n_envs:
            self.eval_collector = self.eval_CollectorCls(
                envs=[self.EnvCls(**self.eval_env_kwargs) for _ in range(self.eval_n_envs)],
                agent=agent,
                TrajInfoCls=self.TrajInfoCls,
                max_T=self.eval_max_T,
            )
        return examples


LOOPS = pytest.mark.parametrize(
    "SamplerCls, CollectorCls",
    [(SerialSampler, MyCollector), (SerialSampler, MyResetCollector), (MySampler, MyCollector), (MySerialSampler, MyCollector)],
)


def make_sampler(SamplerCls=SerialSampler, CollectorCls=MyCollector, EnvCls=CountingEnv, env=None, T=T, B=B, **kwargs):
    return SamplerCls(
        EnvCls=EnvCls, env_kwargs=env or {}, batch_T=T, batch_B=B, CollectorCls=CollectorCls, max_decorrelation_steps=0, **kwargs
    )


@pytest.fixture
def logged(monkeypatch):
    """What is logged in this process."""
    lines = []
    monkeypatch.setattr(logger, "log", lambda line, *args, **kwargs: lines.append(line))
    return lines


# ---------------------------------------------------------------------------------------------------------------------
# Time limits
# ---------------------------------------------------------------------------------------------------------------------
ENDS = dict(episode_length=3, end=["timeout", "terminated"], n_actions=0)


def replay_of_two_batches(SamplerCls, CollectorCls, AlgoCls=SAC, AgentCls=SacAgent, **settings):
    """The algorithm after two batches, and where their episodes ended: done and timeout of env_info, [2T,B]."""
    sampler, agent = make_sampler(SamplerCls, CollectorCls, env=ENDS), AgentCls()
    examples = sampler.initialize(agent, seed=0)
    agent.to_device(None)
    algo = AlgoCls(min_steps_learn=0, batch_size=64, replay_size=100, **settings)
    algo.initialize(agent, 10, sampler.batch_spec, sampler.mid_batch_reset, examples)
    done, timeout = [], []
    for itr in range(2):
        samples, _ = sampler.obtain_samples(itr)
        algo.append(samples)
        done.append(samples.env.done.clone())
        timeout.append(samples.env.env_info.timeout.clone())
    sampler.shutdown()
    return algo, torch.cat(done), torch.cat(timeout)


def assert_learned_from_all_but_truncated_steps(algo, done, timeout):
    """Every step that ended by a time limit is left out of the loss, terminations are not, and neither is any other step."""
    buffer = algo.replay_buffer
    t, b = map(np.ravel, np.meshgrid(np.arange(1, 2 * T - 1), np.arange(B), indexing="ij"))
    batch = buffer.extract_batch(t, b)
    truncated = timeout[t, b]
    assert truncated.any() and (done[t, b] & ~truncated).any()
    assert torch.equal(batch.timeout_n.bool(), truncated)
    assert torch.equal(algo.valid_samples(batch), ~truncated)


@LOOPS
def test_steps_that_end_by_a_time_limit_are_left_out_of_the_loss_where_the_loop_is_the_users(SamplerCls, CollectorCls):
    assert_learned_from_all_but_truncated_steps(*replay_of_two_batches(SamplerCls, CollectorCls, bootstrap_timelimit=True))


@pytest.mark.parametrize("AlgoCls, AgentCls", [(TD3, Td3Agent), (DDPG, DdpgAgent)])
def test_td3_and_ddpg_leave_them_out_as_sac_does(AlgoCls, AgentCls):
    result = replay_of_two_batches(SerialSampler, MyCollector, AlgoCls, AgentCls, bootstrap_timelimit=True)
    assert_learned_from_all_but_truncated_steps(*result)


def test_time_limits_count_as_terminations_where_the_user_wants_that():
    algo, _, timeout = replay_of_two_batches(SerialSampler, MyCollector, bootstrap_timelimit=False)
    t, b = (index.numpy() for index in timeout[1:-1].nonzero(as_tuple=True))
    batch = algo.replay_buffer.extract_batch(t + 1, b)
    assert len(t) and batch.done_n.all() and not batch.bootstrap_discount.any() and algo.valid_samples(batch) is None


def test_a_collector_that_extends_the_loop_bootstraps_from_final_observations():
    algo, _, timeout = replay_of_two_batches(SerialSampler, MyShapingCollector, bootstrap_timelimit=True)
    t, b = (index.numpy() for index in timeout[1:-1].nonzero(as_tuple=True))
    batch = algo.replay_buffer.extract_batch(t + 1, b)
    assert len(t) and (batch.bootstrap_discount > 0).all() and algo.valid_samples(batch).all()
    assert (batch.target_inputs.observation[:, 2] == 3).all(), "the step at which the episode was truncated"


def test_with_the_collectors_of_rlpyt_nothing_is_left_out_of_the_loss():
    algo, _, timeout = replay_of_two_batches(SerialSampler, CpuResetCollector, bootstrap_timelimit=True)
    batch = algo.replay_buffer.sample_batch(50)
    assert type(algo.replay_buffer) is UniformReplayBuffer and timeout.any() and algo.valid_samples(batch) is None


def test_time_limits_of_a_users_loop_pass_through_an_asynchronous_sampler():
    sampler, agent = make_sampler(AsyncSerialSampler, env=ENDS), SacAgent()
    double_buffer, examples = sampler.async_initialize(agent, seed=0)
    algo = SAC(min_steps_learn=0, batch_size=64, replay_size=100, bootstrap_timelimit=True)
    algo.async_initialize(agent, 10, sampler.batch_spec, True, examples)
    sampler.initialize()
    done, timeout = [], []
    for itr in range(2):
        sampler.obtain_samples(itr, itr % 2)
        samples = double_buffer[itr % 2]
        algo.append(samples)
        done.append(samples.env.done.clone())
        timeout.append(samples.env.env_info.timeout.clone())
    sampler.shutdown()
    assert isinstance(algo.replay_buffer, AsyncTlUniformReplayBuffer)
    assert_learned_from_all_but_truncated_steps(algo, torch.cat(done), torch.cat(timeout))


def test_buffers_of_frames_tell_time_limits_whose_final_observations_are_missing():
    frames = np.arange(1, 9, dtype=np.uint8)[:, None, None, None, None] * np.ones((1, 1, 1, 4, 4), np.uint8)  # [T,B=1,C=1,H,W]
    Stored = namedarraytuple("Stored", ["observation", "action", "reward", "done", "timeout"])
    done, zeros = np.zeros((8, 1), bool), np.zeros((8, 1), np.float32)
    done[[2, 5]] = True
    timeout = done.copy()
    timeout[5] = False
    buffer = TlUniformReplayFrameBuffer(Stored(frames[0, 0], zeros[0, 0], zeros[0, 0], done[0, 0], done[0, 0]), size=20, B=1)
    buffer.append_samples(Stored(frames, zeros, zeros, done, timeout))
    batch = buffer.extract_batch(np.arange(1, 7), np.zeros(6, int))
    assert batch.timeout_n.tolist() == timeout[1:7, 0].tolist() and batch.done_n.tolist() == done[1:7, 0].tolist()
    assert np.array_equal(batch.agent_inputs.observation, frames[1:7, 0])
    assert batch.bootstrap_discount.tolist() == (~done[1:7, 0]).tolist()


def test_policy_gradients_take_time_limits_for_terminations_where_the_loop_is_the_users():
    sampler, agent = make_sampler(env=dict(ENDS, n_actions=3)), MlpFfAgent()
    examples = sampler.initialize(agent, seed=0, bootstrap_value=True)
    algo = A2C(discount=0.5)
    algo.initialize(agent, 10, sampler.batch_spec, True, examples)
    samples, _ = sampler.obtain_samples(0)
    samples.agent.timeout_value[:] = samples.env.timeout[:] = 1  # Whatever is left there.
    return_, _, _ = algo.process_returns(samples)
    at_end = samples.env.done
    assert samples.env.env_info.timeout.any() and torch.equal(return_[at_end], samples.env.reward[at_end])


def test_the_observation_after_the_last_row_is_not_taken_from_a_batch_whose_loop_does_not_write_it():
    sampler, agent = make_sampler(env=dict(episode_length=50)), MlpDqnAgent()
    examples = sampler.initialize(agent, seed=0)
    algo = DQN(min_steps_learn=0, replay_size=100)
    algo.initialize(agent, 10, sampler.batch_spec, True, examples)
    samples, _ = sampler.obtain_samples(0)
    assert algo.samples_to_buffer(samples).observation_after is None
    algo.append(samples)
    algo.replay_buffer.end_episodes()
    algo.append(sampler.obtain_samples(1)[0])
    batch = algo.replay_buffer.extract_batch(np.full(B, T - 1), np.arange(B))
    assert not batch.bootstrap_discount.any(), "nothing is known to bootstrap from"


def test_episodes_of_a_users_loop_ask_for_the_observation_that_ended_them():
    sampler = make_sampler(env=dict(episode_length=3, end="timeout"))
    sampler.initialize(RecordingAgent(), seed=0)
    samples, _ = sampler.obtain_samples(0)
    with pytest.raises(ValueError, match="final_observation, for truncated episodes"):
        EpisodeBatch.from_samples(samples, env_spec=None)
    sampler.shutdown()


# ---------------------------------------------------------------------------------------------------------------------
# Snapshots
# ---------------------------------------------------------------------------------------------------------------------
def test_a_collector_without_a_state_says_once_that_its_episodes_begin_anew(logged):
    sampler = make_sampler()
    sampler.initialize(RecordingAgent(), seed=0)
    sampler.obtain_samples(0)
    states = [sampler.state_dict() for _ in range(2)]
    assert [state["collector"] for state in states] == [None, None]
    assert sum("MyCollector has no state_dict" in line and "begins new episodes" in line for line in logged) == 1
    assert sampler.load_state_dict(states[0]) == [0, 1]
    samples, _ = sampler.obtain_samples(1)
    assert (samples.env.observation[0, :, 2] == 0).all() and not samples.agent.prev_action[0].any()
    sampler.shutdown()


def test_resumed_environments_of_a_users_collector_have_other_random_numbers_than_at_first():
    first = []
    for resumed in (False, True):
        sampler = make_sampler()
        sampler.initialize(RecordingAgent(), seed=0)
        if resumed:
            sampler.load_state_dict(dict(agent=None, itr=3, collector=None, eval_envs=[]))
        first.append(sampler.obtain_samples(0)[0].env.observation[0, :, 3].clone())
        sampler.shutdown()
    assert not (first[0] == first[1]).any()


@pytest.mark.processes
def test_collectors_without_a_state_in_workers_say_so_once_and_begin_new_episodes(logged):
    sampler = make_sampler(CpuSampler)
    sampler.initialize(RecordingAgent(), affinity=AFFINITY, seed=0)
    sampler.obtain_samples(0)
    state = [sampler.state_dict() for _ in range(2)][0]
    assert [worker["collector"] for worker in state["workers"]] == [None, None]
    assert sum("MyCollector has no state_dict" in line for line in logged) == 1
    assert sampler.load_state_dict(state) == [0, 1]
    assert (sampler.obtain_samples(1)[0].env.observation[0, :, 2] == 0).all()
    sampler.shutdown()


def test_a_sampler_without_a_state_says_once_that_its_episodes_begin_anew(logged):
    sampler = make_sampler(MySampler)
    sampler.initialize(RecordingAgent())
    assert sampler.state_dict() is None and sampler.state_dict() is None
    assert sum("MySampler has no state_dict" in line for line in logged) == 1
    assert sampler.load_state_dict(None) == [0, 1]


def test_environments_of_a_users_collector_are_not_changed_and_the_error_says_what_to_do():
    sampler = make_sampler()
    sampler.initialize(RecordingAgent(), seed=0)
    with pytest.raises(NotImplementedError, match="MyCollector has its own loop.*derive it from CpuResetCollector"):
        sampler.update_envs([CountingEnv, None])


# ---------------------------------------------------------------------------------------------------------------------
# Samplers
# ---------------------------------------------------------------------------------------------------------------------
def test_a_serial_sampler_initialized_by_the_user_samples_evaluates_saves_and_closes():
    class ClosedEnv(CountingEnv):
        n_closed = 0

        def close(self):
            type(self).n_closed += 1

    sampler = make_sampler(MySerialSampler, CpuResetCollector, ClosedEnv, eval_n_envs=1, eval_max_steps=20)
    sampler.initialize(RecordingAgent(), seed=0)
    assert isinstance(sampler.agent_inputs, AgentInputs) and len(sampler.traj_infos) == B
    samples, infos = sampler.obtain_samples(0)
    assert samples is sampler.samples_pyt and len(infos) == B
    assert [info.Length for info in sampler.evaluate_agent(0)] == [5] * 4
    assert sampler.state_dict()["collector"] is not None
    sampler.shutdown()
    assert ClosedEnv.n_closed == B + 1
    with pytest.raises(RuntimeError, match="not running"):
        sampler.obtain_samples(1)


def test_a_serial_sampler_has_the_documented_attributes_for_methods_that_are_overridden():
    class Counting(SerialSampler):
        def obtain_samples(self, itr):
            self.agent_inputs, self.traj_infos, completed = self.collector.collect_batch(self.agent_inputs, self.traj_infos, itr)
            self.collector.reset_if_needed(self.agent_inputs)
            return self.samples_pyt, [*completed, "mine"]

    sampler = make_sampler(Counting)
    sampler.initialize(RecordingAgent(), seed=0)
    assert sampler.obtain_samples(0)[1][-1] == "mine" and sampler.eval_collector is None
    sampler.shutdown()


def test_a_serial_evaluation_collector_made_by_the_user_finds_out_what_the_agent_returns():
    agent, envs = MlpFfAgent(), [CountingEnv(end="terminated") for _ in range(2)]
    agent.initialize(envs[0].spaces)
    infos = SerialEvalCollector(envs=envs, agent=agent, TrajInfoCls=TrajInfo, max_T=11).collect_evaluation(0)
    assert [info.Length for info in infos] == [5] * 4


def test_a_recurrent_agents_sampling_state_outlives_an_evaluation_collector_made_by_the_user():
    env, agent = CountingEnv(), RnnAgent()
    agent.initialize(env.spaces)
    agent.sample_mode(0)
    agent.step(torch.ones(2, 4), torch.ones(2, dtype=torch.long), torch.ones(2))
    state = agent.prev_rnn_state.clone()
    SerialEvalCollector(envs=[env], agent=agent, TrajInfoCls=TrajInfo, max_T=6).collect_evaluation(0)
    agent.sample_mode(0)
    assert torch.equal(agent.prev_rnn_state, state)


class MyEvalCollector(BaseEvalCollector):
    """An evaluation loop that looks at the signal to stop, and marks its end in the queue."""

    def collect_evaluation(self, itr):
        traj_infos = [self.TrajInfoCls() for _ in self.envs]
        observations = [env.reset() for env in self.envs]
        self.agent.reset()
        self.agent.eval_mode(itr)
        for _ in range(self.max_T):
            inputs = np.stack(observations), np.zeros(len(self.envs), int), np.zeros(len(self.envs), np.float32)
            action, _ = self.agent.step(*map(torch.from_numpy, inputs))
            for b, env in enumerate(self.envs):
                o, r, d, env_info = env.step(int(action[b]))
                traj_infos[b].step(observations[b], action[b], r, d, None, env_info)
                if d:
                    self.traj_infos_queue.put(traj_infos[b].terminate(o))
                    traj_infos[b], o = self.TrajInfoCls(), env.reset()
                observations[b] = o
            if self.sync.stop_eval.value:
                break
        self.traj_infos_queue.put(None)


@pytest.mark.processes
@pytest.mark.parametrize("max_trajectories, expected", [(None, 8), (4, 4)])
def test_an_evaluation_loop_of_the_users_in_workers_ends_when_enough_episodes_are_played(max_trajectories, expected):
    limits = dict(eval_n_envs=2, eval_max_steps=40, eval_max_trajectories=max_trajectories)
    sampler = make_sampler(CpuSampler, CpuResetCollector, eval_CollectorCls=MyEvalCollector, **limits)
    sampler.initialize(RecordingAgent(), affinity=AFFINITY, seed=0)
    infos = sampler.evaluate_agent(0)
    sampler.shutdown()
    assert [info.Length for info in infos] == [5] * expected


# ---------------------------------------------------------------------------------------------------------------------
# Action servers
# ---------------------------------------------------------------------------------------------------------------------
class MyGpuCollector(DecorrelatingStartCollector):
    """A loop for an action server that exchanges observations and actions by the step buffer."""

    mid_batch_reset = True

    def collect_batch(self, agent_inputs, traj_infos, itr):
        for t in range(self.batch_T):
            self.samples_np.env.observation[t] = self.step_buffer_np.observation
            self.sync.obs_ready.release()
            self.sync.act_ready.acquire()
        return None, traj_infos, []


class MyActingGpuCollector(GpuResetCollector):
    """A loop for an action server in terms of an actor."""

    def collect_batch(self, agent_inputs, traj_infos, itr):
        env_buf = self.samples_np.env
        env_buf.observation[0] = agent_inputs.observation
        actor = self.make_actor(agent_inputs)
        actor.begin(itr)
        actor.request(0)
        for t in range(self.batch_T):
            action = actor.receive(t)
            for b, env in enumerate(self.envs):
                o, env_buf.reward[t, b], env_buf.done[t, b], _ = env.step(action[b])
                env_buf.next_observation[t, b] = env.reset() if env_buf.done[t, b] else o
            actor.request(t + 1)
        actor.finish()
        agent_inputs.observation[:] = env_buf.next_observation[-1]
        return agent_inputs, traj_infos, []


@pytest.mark.processes
def test_a_users_loop_for_an_action_server_is_taken_and_told_what_else_to_do_instead_of_sampling_what_is_wrong():
    sampler = make_sampler(GpuSampler, MyGpuCollector)
    sampler.initialize(RecordingAgent(), affinity=AFFINITY, seed=0)
    with pytest.raises(WorkerError, match="sync.obs_ready does not exist.*Extend collect_batch of GpuResetCollector.*make_actor"):
        sampler.obtain_samples(0)


@pytest.mark.processes
def test_a_users_loop_can_act_by_an_action_server():
    sampler = make_sampler(GpuSampler, MyActingGpuCollector)
    sampler.initialize(RecordingAgent(), affinity=AFFINITY, seed=0)
    for itr in range(2):
        samples, _ = sampler.obtain_samples(itr)
    sampler.shutdown()
    assert torch.equal(samples.agent.agent_info.observation, samples.env.observation)
    assert samples.agent.action.any() and samples.env.observation[0, 0, 2] == T % 5


# ---------------------------------------------------------------------------------------------------------------------
# Agents
# ---------------------------------------------------------------------------------------------------------------------
Info = namedtuple("Info", ["p"])


class TupleAgent(RecordingAgent):
    """Its step returns a plain tuple."""

    def step(self, observation, prev_action, prev_reward):
        return tuple(super().step(observation, prev_action, prev_reward))


@pytest.mark.parametrize("CollectorCls", [MyCollector, CpuResetCollector])
def test_an_agent_may_return_a_plain_tuple(CollectorCls):
    batches = []
    for AgentCls in (TupleAgent, RecordingAgent):
        sampler = make_sampler(CollectorCls=CollectorCls)
        sampler.initialize(AgentCls(), seed=0)
        batches.append(sampler.obtain_samples(0)[0].agent.action.clone())
        sampler.shutdown()
    assert torch.equal(*batches)


class SqueezingAgent(BaseAgent):
    """Removes the leading dimension of one environment from what it returns as `p`."""

    def __init__(self):
        super().__init__(ModelCls=Offset)

    def step(self, observation, prev_action, prev_reward):
        p = torch.stack([observation[..., 2]] * 6, dim=-1).squeeze(0)
        return AgentStep(torch.zeros_like(prev_action), Info(p))


@pytest.mark.parametrize("CollectorCls", [CpuResetCollector, CpuWaitResetCollector])
def test_what_an_agent_returns_for_one_environment_may_lack_its_dimension(CollectorCls):
    sampler = make_sampler(CollectorCls=CollectorCls, B=1)
    sampler.initialize(SqueezingAgent(), seed=0)
    samples, _ = sampler.obtain_samples(0)
    sampler.shutdown()
    assert samples.agent.agent_info.p.shape == (T, 1, 6)
    assert torch.equal(samples.agent.agent_info.p[..., 0], samples.env.observation[..., 2])


def test_what_an_agent_returns_for_several_environments_may_not():
    class Forgetful(SqueezingAgent):
        def step(self, observation, prev_action, prev_reward):
            step = super().step(observation, prev_action, prev_reward)
            return step if observation.ndim == 1 else step._replace(agent_info=Info(step.agent_info.p[0]))

    sampler = make_sampler(CollectorCls=CpuResetCollector)
    sampler.initialize(Forgetful(), seed=0)
    with pytest.raises(ValueError, match=r"agent_info.p with shape \(6,\)"):
        sampler.obtain_samples(0)
    sampler.shutdown()


class FirstStepAgent(BaseAgent):
    """Its first step ever has another shape than all others, which are those of a batch of one."""

    def __init__(self):
        super().__init__(ModelCls=Offset)
        self.is_first = True

    def step(self, observation, prev_action, prev_reward):
        action = torch.zeros(1, dtype=torch.int64)
        if self.is_first:
            self.is_first, action = False, action.squeeze(0)
        return AgentStep(action, None)


def test_the_first_step_of_an_agent_says_what_shape_its_actions_have():
    sampler = make_sampler(CollectorCls=CpuResetCollector, B=1)
    examples = sampler.initialize(FirstStepAgent(), seed=0)
    assert np.shape(examples["action"]) == () and np.asarray(examples["action"]).dtype == np.int64
    assert sampler.obtain_samples(0)[0].agent.action.shape == (T, 1)
    sampler.shutdown()


# ---------------------------------------------------------------------------------------------------------------------
# Environments
# ---------------------------------------------------------------------------------------------------------------------
PartialInfo = namedtuple("PartialInfo", ["discount", "score", "traj_done"])


class UnusedFieldEnv(CountingEnv):
    """Its env_info has a field that is never used, and its horizon is not implemented."""

    unused = None

    def step(self, action):
        step = super().step(action)
        return EnvStep(step.observation, step.reward, step.done, PartialInfo(self.unused, np.float32(step.reward), step.done))

    @property
    def horizon(self):
        raise NotImplementedError


@pytest.mark.parametrize("CollectorCls", [MyCollector, CpuResetCollector])
def test_env_info_may_have_fields_that_are_none_and_a_horizon_that_is_not_implemented(CollectorCls):
    class ScoreTrajInfo(TrajInfo):
        env_info_sums = (("Score", "score"),)

    sampler = make_sampler(EnvCls=UnusedFieldEnv, CollectorCls=CollectorCls, TrajInfoCls=ScoreTrajInfo, eval_n_envs=1, eval_max_steps=9)
    sampler.initialize(RecordingAgent(), seed=0)
    samples, infos = sampler.obtain_samples(0)
    assert samples.env.env_info.discount is None and torch.equal(samples.env.env_info.score, samples.env.reward)
    if CollectorCls is CpuResetCollector:
        assert [info.Score for info in infos] == [15.0] * B
    assert [info.Length for info in sampler.evaluate_agent(0)] == [5]
    sampler.shutdown()


def test_a_field_of_env_info_that_is_not_none_any_more_is_named():
    sampler = make_sampler(EnvCls=UnusedFieldEnv, CollectorCls=CpuResetCollector)
    sampler.initialize(RecordingAgent(), seed=0)
    sampler.collector.envs[1].unused = 0.5
    with pytest.raises(ValueError, match="env_info.discount: expected None at every step.*got 0.5"):
        sampler.obtain_samples(0)
    sampler.shutdown()


def test_an_environment_that_does_not_say_whether_a_trajectory_ends_is_refused():
    class NoSignal(UnusedFieldEnv):
        def step(self, action):
            step = super().step(action)
            return step._replace(env_info=step.env_info._replace(traj_done=None))

    with pytest.raises(ValueError, match="traj_done is None"):
        make_sampler(EnvCls=NoSignal).initialize(RecordingAgent(), seed=0)


def test_check_env_passes_what_samplers_take():
    check_env(UnusedFieldEnv, n_steps=30)
