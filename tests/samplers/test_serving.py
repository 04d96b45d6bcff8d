"""An action server that acts for the workers that are ready, before the others are."""

import numpy as np
import pytest
import torch
from agents_for_tests import RecordingAgent, RnnAgent
from collecting import SAMPLERS, ReadySampler, assert_same, assert_signals_are_empty, collect
from envs import CountingEnv
from tiers import processes

from rlpyt.agents.dqn.mlp_dqn_agent import MlpDqnAgent
from rlpyt.agents.policy import PolicyAgent
from rlpyt.samplers.parallel.gpu.sampler import GpuSampler
from rlpyt.samplers.signals import GroupSignals
from rlpyt.utils.buffer import np_mp_array

pytestmark = [processes, pytest.mark.timeout(60), pytest.mark.usefixtures("nothing_is_left_behind")]
T, B = 6, 4


class WaitingEnv(CountingEnv):
    """Its step number 2 returns only after another environment has taken all steps of the batch.

    It does not wait for the others: at a fraction of 0.75, two workers that are left are both waited for.
    """

    def __init__(self, number, n_steps):
        super().__init__(episode_length=100)
        self.number, self.n_steps = number, n_steps

    def step_into(self, action, observation):
        self.n_steps[self.number] += 1
        if self.number == 0 and self.n_steps[0] == 2:
            while (self.n_steps[1:] < T).all():
                pass
        return super().step_into(action, observation)


@pytest.mark.parametrize("fraction", [0.01, 0.75])
def test_workers_fill_their_columns_while_another_one_is_in_a_long_step(fraction):
    n_steps = np_mp_array(B, np.int64)
    sampler = GpuSampler(
        EnvCls=WaitingEnv,
        env_kwargs=[dict(number=b, n_steps=n_steps) for b in range(B)],
        batch_T=T,
        batch_B=B,
        max_decorrelation_steps=0,
        serve_fraction=fraction,
    )
    try:
        sampler.initialize(RecordingAgent(), affinity=dict(workers_cpus=list(range(B)), set_affinity=False), seed=0)
        n_steps[:] = 0
        sampler.obtain_samples(0)  # It would never return if all workers had to be at the same step.
        assert n_steps.tolist() == [T] * B
        assert_signals_are_empty(sampler)
    finally:
        sampler.shutdown()


class CallsAgent(RnnAgent):
    """Notes for which columns `step` is called while it samples."""

    def __init__(self):
        super().__init__()
        self.calls, self.columns = [], None

    def acting_for(self, columns, B):
        self.columns = columns.tolist()
        return super().acting_for(columns, B)

    def step(self, observation, prev_action, prev_reward):
        if self._mode == "sample" and len(observation) == len(self.columns or ()):
            self.calls.append(self.columns)
        return super().step(observation, prev_action, prev_reward)


def test_workers_that_are_ready_are_served_together():
    agent, settings = CallsAgent(), dict(n_batches=2, evaluate_after=(0,), serve_fraction=0.99)
    assert_same(collect("GPU, 3 workers", agent=agent, **settings), collect("serial", agent="recurrent", n_batches=2, evaluate_after=(0,)))
    assert len(agent.calls) == 2 * 6 and all(sorted(columns) == list(range(6)) for columns in agent.calls)


def test_each_environment_keeps_its_epsilon():
    agent, sampler = MlpDqnAgent(eps_final=0.5, eps_final_min=0.25), ReadySampler(CountingEnv, dict(episode_length=9), batch_T=T, batch_B=B)
    drawn = []
    try:
        sampler.initialize(agent, affinity=dict(workers_cpus=[0, 1], set_affinity=False), seed=0)
        sample = agent.distribution.sample
        agent.distribution.sample = lambda q: drawn.append((len(q), agent.distribution.epsilon)) or sample(q)
        agent._eps_init_value = torch.tensor([0.1, 0.2, 0.3, 0.4])
        for itr in range(3):
            sampler.obtain_samples(itr)
    finally:
        sampler.shutdown()
    assert sum(n for n, _ in drawn) == 3 * T * B
    parts = {tuple(epsilon.tolist()) for _, epsilon in drawn}
    assert parts <= {tuple(agent._eps_init_value[columns].tolist()) for columns in ([0, 1], [2, 3], [0, 1, 2, 3], [2, 3, 0, 1])}


def test_a_loop_that_gives_its_signal_itself_is_known_to_the_server_by_its_number():
    signals = GroupSignals(3)
    for i in (2, 0, 1):
        signals.of_worker(i).to_server.release()
    assert signals.obs_ready.acquire_all() == [2, 0, 1]


@pytest.mark.parametrize("kind", ["alternating", "no overlap"])
def test_alternating_samplers_refuse_another_order(kind):
    with pytest.raises(ValueError, match="serve_fraction=0.5 is for one group of workers"):
        SAMPLERS[kind](CountingEnv, {}, batch_T=T, batch_B=B, serve_fraction=0.5)


@pytest.mark.parametrize("fraction", [0, 1.5, -1])
def test_impossible_fractions_are_refused(fraction):
    with pytest.raises(ValueError, match="serve_fraction=.* is not possible; it must be a number above 0 and at most 1"):
        ReadySampler(CountingEnv, {}, batch_T=T, batch_B=B, serve_fraction=fraction)


class SqueezingAgent(RecordingAgent):
    """Returns a number without dimensions for one environment."""

    def step(self, *agent_inputs):
        step = super().step(*agent_inputs)
        return step._replace(action=step.action.squeeze())


def test_a_worker_with_one_environment_is_served_like_all_others():
    settings = dict(B=4, n_batches=2, evaluate_after=())
    assert_same(collect("GPU, 4 workers, as ready", agent=SqueezingAgent(), **settings), collect("serial", **settings))


class PreparedAgent(RecordingAgent):
    def __init__(self):
        super().__init__()
        self.prepared = []

    def prepare_acting(self, B, n_steps=None):
        self.prepared.append((B, n_steps))


def test_agents_are_prepared_for_as_many_environments_as_may_be_ready_at_once():
    agent = PreparedAgent()
    collect("GPU, 3 workers", agent=agent, n_batches=2, evaluate_after=(0,), serve_fraction=0.5)
    assert agent.prepared == [(6, 6), (3, None), (6, 6)]


class ForgetfulAgent(RecordingAgent):
    """Has a memory of each environment besides that of its base class."""

    def reset_one(self, idx):
        super().reset_one(idx)


class CountingPolicy:
    """A policy with a memory of each environment."""

    def get_actions(self, observations):
        return np.zeros(len(observations), np.int64), {}

    def reset(self, do_resets=None):
        pass


@pytest.mark.parametrize("make_agent", [ForgetfulAgent, lambda: PolicyAgent(CountingPolicy())])
def test_agents_with_a_memory_that_cannot_be_taken_in_parts_are_refused(make_agent):
    agent, sampler = make_agent(), ReadySampler(CountingEnv, {}, batch_T=T, batch_B=B)
    with pytest.raises(ValueError, match=f"{type(agent).__name__} defines reset_one and not acting_for"):
        sampler.initialize(agent, affinity=dict(workers_cpus=[0], set_affinity=False), seed=0)


class Stranger:
    """An agent that is not derived from ours, and lacks the newest methods."""

    def __init__(self, agent):
        self.__dict__["agent"] = agent

    def __getattr__(self, name):
        if name in ("prepare_acting", "acting_for"):
            raise AttributeError(name)
        return getattr(self.agent, name)

    def __setattr__(self, name, value):
        setattr(self.agent, name, value)


def test_agents_that_lack_the_optional_methods_sample_in_lockstep_only():
    settings = dict(n_batches=2, evaluate_after=(0,))
    assert_same(collect("GPU, 2 workers", agent=Stranger(RecordingAgent()), **settings), collect("serial", **settings))
    with pytest.raises(ValueError, match="Stranger defines reset_one and not acting_for"):
        collect("GPU, 2 workers, as ready", agent=Stranger(RecordingAgent()))
