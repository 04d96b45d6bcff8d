"""The recurrent state of agents: stored before each step, forgotten exactly where an episode ends, untouched by evaluation."""

import math

import numpy as np
import pytest
from agents_for_tests import AlternatingRnnAgent, RnnAgent, RnnArithmetic
from collecting import KINDS, along_time, assert_same, collect, kinds, make_sampler
from tiers import processes

from rlpyt.samplers.collections import TrajInfo
from rlpyt.utils.buffer import buffer_func

T, B = 6, 6
N, H = RnnArithmetic.N, RnnArithmetic.H
TESTED = ["serial", "CPU, 2 workers", "GPU, 2 workers", "alternating, 2 workers", "alternating, 4 workers", "no overlap, 4 workers"]


class ActionsTrajInfo(TrajInfo):
    """Lists the actions."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self._actions = []

    def step(self, observation, action, reward, done, agent_info, env_info):
        super().step(observation, action, reward, done, agent_info, env_info)
        self._actions.append(int(action))

    def terminate(self, observation):
        self.Actions = str(self._actions)
        return super().terminate(observation)


@pytest.fixture(scope="module", params=kinds(TESTED, quick=["serial", "GPU, 2 workers"]))
def kind(request):
    return request.param


@pytest.fixture(scope="module", params=[False, True], ids=["mid-batch reset", "wait-reset"])
def wait_reset(request):
    return request.param


@pytest.fixture(scope="module")
def batches(kind, wait_reset):
    return collect(kind, agent="recurrent", T=T, B=B, n_batches=6, wait_reset=wait_reset, evaluate_after=(1, 2, 4)).batches


def advanced(state, observation, prev_action, prev_reward):
    """The state [N][H] of one environment after a step, as plain Python numbers."""
    return [[state[n][k] / 2 + 1 + observation[2] + (n + 1) * prev_action + (k + 1) * prev_reward for k in range(H)] for n in range(N)]


def zeros():
    return [[0.0] * H for _ in range(N)]


def test_states_actions_and_values_are_those_of_replaying_what_was_stored(batches, wait_reset):
    """One environment after the other, one step after the other, from nothing but what is in the batches."""
    n_steps = n_timeouts = 0
    for b in range(B):
        state, null = zeros(), False
        for batch in batches:
            env, agent = batch.env[:, b], batch.agent[:, b]
            standing_still = False
            for t in range(T):
                if standing_still:
                    assert not agent.agent_info.prev_rnn_state[t].any() and agent.agent_info.ones[t] == agent.action[t] == 0
                    continue
                assert agent.agent_info.ones[t] == 1
                prev_action, prev_reward = (0, 0) if null else (agent.prev_action[t], env.prev_reward[t])
                assert agent.agent_info.prev_rnn_state[t].tolist() == state, (b, t)
                state = advanced(state, env.observation[t].tolist(), int(prev_action), float(prev_reward))
                assert agent.action[t] == math.floor(state[0][0]) % 3
                n_steps, null = n_steps + 1, False
                if env.timeout[t]:
                    final = batch.final_observation[np.count_nonzero(env.timeout[:t]), b]
                    assert agent.timeout_value[t] == 10 * final[2] + env.reward[t] + state[0][0]
                    n_timeouts += 1
                else:
                    assert agent.timeout_value[t] == 0
                if env.done[t]:
                    state, null = zeros(), True
                    standing_still = wait_reset
            if not env.done[-1]:
                assert agent.bootstrap_value[0] == 10 * env.next_observation[-1][2] + env.reward[-1] + state[0][0]
            elif not wait_reset:
                assert agent.bootstrap_value[0] == 10 * env.next_observation[-1][2]
    assert n_timeouts > B and n_steps >= (3 * T * B if wait_reset else 6 * T * B)


def test_the_state_is_stored_with_the_environment_first(batches):
    for batch in batches:
        assert batch.agent.agent_info.prev_rnn_state.shape == (T, B, N, H)
        assert batch.agent.agent_info.prev_rnn_state.dtype == np.float32


def test_the_state_is_zero_at_the_start_of_the_batch_after_done_and_nowhere_else(batches):
    for batch, next_batch in zip(batches, batches[1:]):
        is_zero = ~next_batch.agent.agent_info.prev_rnn_state[0].any(axis=(1, 2))
        np.testing.assert_array_equal(is_zero, batch.env.done[-1])


def test_the_first_batch_starts_with_zeros(batches):
    assert not batches[0].agent.agent_info.prev_rnn_state[0].any()


def test_evaluation_leaves_the_sampling_state_alone(kind, wait_reset):
    settings = dict(agent="recurrent", T=T, B=B, wait_reset=wait_reset, n_batches=4)
    with_evaluation, without = collect(kind, evaluate_after=(0, 1, 2), **settings), collect(kind, evaluate_after=(), **settings)
    assert len(with_evaluation.evals) == 3 and all(with_evaluation.evals)
    assert_same(with_evaluation._replace(evals=[]), without)


def test_evaluations_start_from_zeros_each_time(kind):
    env = dict(episode_length=4)  # All evaluations are alike then, but for the order in which workers finish.
    evals = collect(kind, agent="recurrent", env=env, evaluate_after=(0, 1, 2), TrajInfoCls=ActionsTrajInfo).evals
    actions = [sorted(info.Actions for info in infos) for infos in evals]
    assert actions[0] and actions[0] == actions[1] == actions[2]
    state, prev_action, expected = zeros(), 0, []
    for t in range(4):
        state = advanced(state, [0, 0, t], prev_action, t)
        prev_action = math.floor(state[0][0]) % 3
        expected.append(prev_action)
    assert all(of_one == str(expected) for of_one in actions[0])


def test_a_new_start_of_the_sampler_forgets_the_state(kind):
    agent = (AlternatingRnnAgent if KINDS[kind].alternating else RnnAgent)()
    sampler = make_sampler(kind, decorrelation=0, T=3)
    for _ in range(2):
        sampler.initialize(agent, affinity=KINDS[kind].affinity, seed=0)
        samples, _ = sampler.obtain_samples(0)
        first = buffer_func(samples.agent.agent_info.prev_rnn_state, lambda x: x.numpy().copy())
        sampler.shutdown()
        assert not first[0].any() and first[1].any()


@processes
def test_halves_of_different_episodes_do_not_mix_their_states():
    """Were the halves confused anywhere, environments of one would carry on with states of the other."""
    settings = dict(agent="recurrent", env=dict(episode_length=[2, 13, 5, 3], end=["timeout", "terminated"]), T=7, B=2, n_batches=10)
    alternating, serial = collect("alternating, 2 workers", **settings), collect("serial", **settings)
    states = [along_time(c.batches, lambda batch: batch.agent.agent_info.prev_rnn_state) for c in (alternating, serial)]
    np.testing.assert_array_equal(*states)
    assert (states[0][:, 0] != states[0][:, 1]).any()
