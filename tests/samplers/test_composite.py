"""Composite observations and actions, nested and of all kinds, through every sampler."""

import functools

import numpy as np
import pytest
from agents_for_tests import RecordingAgent, StructuredAgent
from collecting import ASYNC_KINDS, FORKED, ONE_OF_EACH, QUICK, assert_same, collect, collect_in_parts, kinds
from envs import CountingEnv, StructuredGymEnv, make_structured

from rlpyt.agents.pg.composite import MlpCompositeFfAgent
from rlpyt.agents.pg.mlp import MlpGaussianFfAgent
from rlpyt.envs.base import Env, EnvStep
from rlpyt.samplers.collections import TrajInfo
from rlpyt.spaces.int_box import IntBox
from rlpyt.utils.buffer import buffer_leaves

SETTINGS = dict(agent="structured", EnvCls=make_structured, env={}, T=12, B=4, evaluate_after=(0, 1), eval_max_steps=3 * 20)


@functools.cache
def serially(wait_reset):
    return collect("serial", wait_reset=wait_reset, **SETTINGS)


def cases():
    """The quick kinds resetting in both ways, and the others in turn."""
    for i, param in enumerate(kinds(FORKED, quick=["GPU, 2 workers"])):
        for wait_reset in (False, True) if param.values[0] in QUICK else (i % 2 == 1,):
            yield pytest.param(*param.values, wait_reset, marks=param.marks)


@pytest.mark.parametrize("kind, wait_reset", [*cases()])
def test_all_samplers_agree_on_composite_observations_and_actions(kind, wait_reset):
    assert_same(collect(kind, wait_reset=wait_reset, **SETTINGS), serially(wait_reset))


@pytest.mark.parametrize("kind", kinds(["CPU, spawn", "GPU, spawn", "alternating, forkserver"]))
def test_composite_spaces_pass_to_processes_that_are_not_forked(kind):
    assert_same(collect(kind, **SETTINGS), serially(False))


@pytest.mark.parametrize("wait_reset", [False, True])
def test_what_is_compared_is_a_whole_structure(wait_reset):
    collected = serially(wait_reset)
    for batch in collected.batches:
        observations, actions = buffer_leaves(batch.env.observation), buffer_leaves(batch.agent.action)
        assert len(observations) == 5 and len(actions) == 3
        assert all(leaf.shape[:2] == (12, 4) for leaf in (*observations, *actions, *buffer_leaves(batch.env.next_observation)))
        assert all(leaf.any() and not (leaf[1:] == leaf[:-1]).all() for leaf in (*observations, *actions))
    assert any(batch.env.timeout.any() for batch in collected.batches)
    assert all(len(infos) >= 2 for infos in collected.evals)


def test_final_observations_of_truncated_episodes_are_whole_structures():
    checked = 0
    for batch in serially(False).batches:
        for b in range(4):
            for slot, t in enumerate(np.flatnonzero(batch.env.timeout[:, b])):
                finals, firsts = (buffer_leaves(x) for x in (batch.final_observation[slot, b], batch.env.next_observation[t, b]))
                assert any((final != first).any() for final, first in zip(finals, firsts)), "not that of the next episode"
                assert any(final.any() for final in finals)
                checked += 1
    assert checked >= 4


@pytest.mark.parametrize("kind", kinds(ONE_OF_EACH, quick=["serial", "CPU, 2 workers"]))
def test_the_agent_sees_what_is_stored(kind):
    for batch in collect(kind, **SETTINGS).batches:
        seen = batch.agent.agent_info
        for stored, leaf in zip(buffer_leaves(batch.env.observation), buffer_leaves(seen.observation)):
            np.testing.assert_array_equal(stored, leaf)
        done = batch.env.done[:-1]
        for stored, leaf in zip(buffer_leaves(batch.agent.prev_action), buffer_leaves(seen.prev_action)):
            np.testing.assert_array_equal(leaf[0], stored[0])
            np.testing.assert_array_equal(leaf[1:][~done], stored[1:][~done])
            assert not leaf[1:][done].any(), "null after an episode's end"


@pytest.mark.parametrize("kind", kinds(ONE_OF_EACH, quick=["serial", "CPU, 2 workers"]))
def test_environments_are_given_the_actions_that_are_stored(kind):
    """Its reward is the second tool's number, which starts at 3 in the environment and at 0 here."""
    for batch in collect(kind, **SETTINGS).batches:
        np.testing.assert_array_equal(batch.env.reward, batch.agent.action.tool.item_1 + 3)
        assert StructuredGymEnv.action_space["tool"][1].start == 3


# ---------------------------------------------------------------------------------------------------------------------
class NumberEnv(Env):
    """Its observation is a single number, without a dimension: the step of the episode."""

    def __init__(self):
        self._action_space, self._observation_space = IntBox(0, 3), IntBox(0, 100)

    def reset(self):
        self.t = 0
        return np.asarray(self.t)

    def step(self, action):
        self.t += 1
        return EnvStep(np.asarray(self.t), float(action), self.t == 5, None)


class NumberAgent(RecordingAgent):
    def step(self, observation, prev_action, prev_reward):
        return super().step(observation[..., None].expand(*observation.shape, 3).float(), prev_action, prev_reward)

    def value(self, observation, prev_action, prev_reward):
        return observation.float()


@pytest.mark.parametrize("wait_reset", [False, True])
@pytest.mark.parametrize("kind", kinds(ONE_OF_EACH, quick=["serial", "CPU, 2 workers"]))
def test_observations_may_be_single_numbers(kind, wait_reset):
    settings = dict(EnvCls=NumberEnv, env={}, wait_reset=wait_reset)
    ours, serial = (collect(k, NumberAgent(), **settings) for k in (kind, "serial"))
    assert_same(ours, serial)
    assert ours.batches[0].env.observation.shape == (6, 6) and ours.batches[0].env.observation.any()


@pytest.mark.parametrize("wait_reset", [False, True])
@pytest.mark.parametrize("kind", kinds(ONE_OF_EACH, quick=["serial", "GPU, 2 workers"]))
def test_actions_may_be_continuous(kind, wait_reset):
    settings = dict(EnvCls=CountingEnv, env=dict(n_actions=0, episode_length=[4, 2]), wait_reset=wait_reset)
    ours, serial = (collect(k, StructuredAgent(), **settings) for k in (kind, "serial"))
    assert_same(ours, serial)
    assert ours.batches[0].agent.action.shape == (6, 6, 2) and ours.batches[0].agent.action.dtype == np.float32


# ---------------------------------------------------------------------------------------------------------------------
class BoundsTrajInfo(TrajInfo):
    """The largest number that was chosen, and that the environment got, in the first component of the action."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.Chosen = self.Got = 0.0

    def step(self, observation, action, reward, done, agent_info, env_info):
        super().step(observation, action, reward, done, agent_info, env_info)
        self.Chosen, self.Got = max(self.Chosen, float(action[0])), max(self.Got, float(env_info.action))


CONTINUOUS = dict(EnvCls=CountingEnv, env=dict(n_actions=0, episode_length=[4, 2]), TrajInfoCls=BoundsTrajInfo)
FAR = dict(model_kwargs=dict(init_log_std=1.0))  # With this standard deviation, most actions are beyond the bounds -1 and 1.


@pytest.mark.parametrize("wait_reset", [False, True])
@pytest.mark.parametrize(
    "kind", kinds([*ONE_OF_EACH, "async serial", "async CPU", "async GPU"], quick=["serial", "GPU, 2 workers", "async CPU"])
)
def test_environments_get_actions_within_their_bounds_and_the_batch_keeps_what_was_chosen(kind, wait_reset):
    run = collect_in_parts if kind in ASYNC_KINDS else collect
    collected = run(kind, agent=MlpGaussianFfAgent(**FAR), wait_reset=wait_reset, **CONTINUOUS)
    for batch in collected.batches:
        chosen, got = batch.agent.action[..., 0], batch.env.env_info.action
        np.testing.assert_array_equal(np.clip(chosen, -1, 1), got)  # Where an environment stands still, both are 0.
        np.testing.assert_array_equal(batch.agent.prev_action[1:], batch.agent.action[:-1])
    chosen = np.concatenate([batch.agent.action for batch in collected.batches])
    assert (chosen < -1).any() and (chosen > 1).any()
    evaluated = collected.evals[0]
    assert all(info.Got == min(info.Chosen, 1) for info in evaluated) and any(info.Chosen > 1 for info in evaluated)


@pytest.mark.parametrize("kind", kinds(ONE_OF_EACH, quick=["serial", "GPU, 2 workers"]))
def test_a_setting_gives_environments_what_was_chosen(kind):
    for batch in collect(kind, MlpGaussianFfAgent(clip_actions=False, **FAR), **CONTINUOUS).batches:
        np.testing.assert_array_equal(batch.agent.action[..., 0], batch.env.env_info.action)
        assert (np.abs(batch.agent.action) > 1).any()


@pytest.mark.parametrize("kind", kinds(ONE_OF_EACH, quick=["serial", "GPU, 2 workers"]))
def test_structured_actions_are_clipped_part_by_part(kind):
    """The environment refuses actions that are not in its space, of which one part is a Box of float64."""
    settings = {key: SETTINGS[key] for key in ("EnvCls", "env", "T", "B", "eval_max_steps")}
    for batch in collect(kind, MlpCompositeFfAgent(**FAR), **settings).batches:
        assert (np.abs(batch.agent.action.move) > 1).any()
