"""Asynchronous samplers: what they fill their two batches with, and with which parameters."""

import copy
import uuid

import numpy as np
import pytest
import torch
from agents_for_tests import RecordingAgent
from collecting import ASYNC_KINDS, assert_same, collect, collect_in_parts, kinds, make_sampler
from envs import CountingEnv
from tiers import processes, thinned

from rlpyt.samplers.parallel.cpu.collectors import CpuResetCollector
from rlpyt.utils.buffer import buffer_leaves

pytestmark = pytest.mark.timeout(120)
FORKED = [name for name, kind in ASYNC_KINDS.items() if kind.start_method == "fork"]
SCENARIOS = {
    "mid-batch reset": dict(),
    "wait-reset": dict(wait_reset=True),
    "recurrent": dict(agent="recurrent"),
    "structured": dict(agent="structured"),
    "one step": dict(T=1, n_batches=9),
}


def without_old_ones(collected):
    """Clear the slots for final observations that a batch did not use: they hold those of earlier batches in the same memory."""
    for batch in collected.batches:
        n_used = batch.env.timeout.sum(axis=0)
        for leaf in buffer_leaves(batch.final_observation):
            leaf[np.arange(len(leaf))[:, None] >= n_used] = 0
    return collected


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("kind", kinds(FORKED))
def test_batches_in_turn_are_those_of_a_synchronous_sampler(kind, scenario):
    ours, theirs = collect_in_parts(kind, **SCENARIOS[scenario]), collect("serial", **SCENARIOS[scenario])
    assert_same(without_old_ones(ours), without_old_ones(theirs))


@pytest.mark.parametrize("kind", kinds([name for name in ASYNC_KINDS if name not in FORKED]))
def test_with_workers_that_are_not_forked(kind):
    assert_same(without_old_ones(collect_in_parts(kind, n_batches=3)), without_old_ones(collect("serial", n_batches=3)))


def in_any_order(collected):
    return without_old_ones(collected)._replace(infos=[sorted(infos, key=str) for infos in collected.infos])


@pytest.mark.parametrize("n_parts", thinned([2, 3], quick=[3]))
@pytest.mark.parametrize("kind", kinds(FORKED))
@pytest.mark.parametrize("eval_max_trajectories", [None, 5])
def test_parts_sample_together_what_one_sampler_does(kind, n_parts, eval_max_trajectories):
    parts = collect_in_parts(kind, n_parts, eval_max_trajectories=eval_max_trajectories)
    whole = collect("serial", eval_max_trajectories=eval_max_trajectories)
    assert_same(in_any_order(parts), in_any_order(whole))


def test_parts_that_would_be_empty_are_refused():
    sampler = make_sampler("async alternating", B=4)
    sampler.async_initialize(RecordingAgent(), seed=0)
    assert [part.batch_spec.B for part in sampler.parts(2)] == [2, 2]
    with pytest.raises(ValueError, match="batch_B=4 environments cannot be shared out among 3 sampling processes, an even number each"):
        sampler.parts(3)


@pytest.mark.parametrize("kind", kinds(FORKED))
def test_a_batch_is_sampled_with_the_parameters_sent_before(kind):
    agent = RecordingAgent()
    sampler = make_sampler(kind)
    (batch, other), _ = sampler.async_initialize(agent, seed=0)
    trained = copy.copy(agent)  # As the process that trains has it.
    try:
        sampler.initialize(ASYNC_KINDS[kind].affinity)
        sampler.obtain_samples(0, 0)
        with torch.no_grad():
            trained.model.offset += 1
        trained.send_shared_memory()
        before = batch.agent.action.clone()
        sampler.obtain_samples(1, 1)
        assert torch.equal(batch.agent.action, before)
        for samples, offset in ((batch, 0), (other, 1)):
            inputs = samples.agent.agent_info
            expected = (1 + inputs.observation[..., 2] + 2 * inputs.prev_action + inputs.prev_reward + offset).round() % 3
            assert torch.equal(samples.agent.action, expected.long())
        assert sampler.agent.parameters_version == trained.parameters_version == 1
    finally:
        sampler.shutdown()


class ClosedEnv(CountingEnv):
    """Leaves a file behind when it is closed."""

    def __init__(self, directory, **kwargs):
        super().__init__(**kwargs)
        self.directory = directory

    def close(self):
        (self.directory / uuid.uuid4().hex).touch()


@pytest.mark.parametrize("kind", kinds(FORKED))
def test_environments_are_closed_by_shutdown(kind, tmp_path):
    sampler = make_sampler(kind, EnvCls=ClosedEnv, env=dict(directory=tmp_path), B=4)
    sampler.async_initialize(RecordingAgent(), seed=0)
    n_examples = len(list(tmp_path.iterdir()))
    sampler.initialize(ASYNC_KINDS[kind].affinity)
    sampler.shutdown()
    assert len(list(tmp_path.iterdir())) == n_examples + 4 + 3


@processes
def test_workers_of_all_parts_draw_other_random_numbers():
    sampler = make_sampler("async CPU", change_collector=lambda Cls: DrawingCollector, B=4)
    sampler.async_initialize(RecordingAgent(), seed=0)
    for part in sampler.parts(2):
        part.agent = copy.copy(sampler.agent)
        part.initialize(ASYNC_KINDS["async CPU"].affinity)
        part.obtain_samples(0, 0)
        part.shutdown()
    assert len(set(sampler.double_buffer[0].env.reward[0].tolist())) == 4


class DrawingCollector(CpuResetCollector):
    """Writes a random number in place of each environment's first reward."""

    def collect_batch(self, *args):
        result = super().collect_batch(*args)
        self.samples_np.env.reward[0] = torch.rand(len(self.envs))
        return result
