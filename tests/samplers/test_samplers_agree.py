"""Whatever sampler collects them, the samples are the same."""

import functools

import numpy as np
import pytest
from agents_for_tests import AlternatingRnnAgent, Offset, RecordingAgent
from collecting import (
    FORKED,
    KINDS,
    ONE_OF_EACH,
    STARTED_ANEW,
    along_time,
    assert_same,
    assert_same_arrays,
    collect,
    kinds,
)
from envs import SilentEnv, make_classic, make_reusing, make_walk
from tiers import full, processes

from rlpyt.agents.base import AgentStep, BaseAgent
from rlpyt.samplers.collections import TrajInfo


class WatchfulTrajInfo(TrajInfo):
    """Looks at everything `step` and `terminate` are given; the agent must be a BulkyAgent."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.FirstStep, self.FinalStep, self.TotalAction, self.TotalSeen, self.LastBulk, self.Timeouts = None, None, 0, 0.0, None, 0

    def step(self, observation, action, reward, done, agent_info, env_info):
        super().step(observation, action, reward, done, agent_info, env_info)
        self.FirstStep = float(observation[2]) if self.FirstStep is None else self.FirstStep
        self.TotalAction += int(action)
        self.Timeouts += bool(env_info.timeout)
        if agent_info is not None:  # Decorrelation has none.
            self.TotalSeen += float(agent_info.observation[2]) + float(agent_info.prev_reward) + int(agent_info.prev_action)
            self.LastBulk = float(agent_info.bulk[-1])

    def terminate(self, observation):
        self.FinalStep = float(observation[2])
        return super().terminate(observation)


HASTE = dict(episode_length=1, end=["timeout", "life", "terminated"])
SCENARIOS = {
    "mid-batch reset": dict(evaluate_after=(0, 1, 2)),
    "wait-reset": dict(wait_reset=True, evaluate_after=(0, 1, 2)),
    "recurrent": dict(agent="recurrent", evaluate_after=(0, 2)),
    "recurrent, wait-reset": dict(agent="recurrent", wait_reset=True, evaluate_after=(0, 2)),
    "no bootstrap value": dict(bootstrap_value=False),
    "no bootstrap value, wait-reset": dict(bootstrap_value=False, wait_reset=True, agent="recurrent"),
    "one step per batch": dict(T=1, n_batches=12, agent="recurrent", evaluate_after=(4, 5)),
    "one step per batch, wait-reset": dict(T=1, n_batches=12, agent="recurrent", wait_reset=True, evaluate_after=(4, 5)),
    "every step ends an episode": dict(env=HASTE, T=5, agent="recurrent"),
    "every step ends an episode, wait-reset": dict(env=HASTE, T=5, agent="recurrent", wait_reset=True),
    "two environments": dict(B=2, T=9, agent="recurrent"),
    "bounded horizon": dict(env=dict(episode_length=4, end="timeout"), T=9),
    "bounded horizon, wait-reset": dict(env=dict(episode_length=4, end="timeout"), T=9, wait_reset=True),
    "watchful TrajInfo": dict(TrajInfoCls=WatchfulTrajInfo, agent="bulky"),
    "watchful TrajInfo, wait-reset": dict(TrajInfoCls=WatchfulTrajInfo, agent="bulky", wait_reset=True),
    "no env_info": dict(EnvCls=SilentEnv),
    "no env_info, wait-reset": dict(EnvCls=SilentEnv, wait_reset=True),
    "capped evaluation": dict(agent="recurrent", eval_max_trajectories=7, evaluate_after=(0, 1, 2)),
    "no evaluation environments": dict(eval_n_envs=0, evaluate_after=()),
}


# All kinds in the scenarios in which most can go wrong, and one of each in all others. Quick are one of each in two of them, and in each
# of the others one of two kinds, in turn such that both see batches with and without wait-reset.
RICHEST = ["recurrent", "recurrent, wait-reset", "one step per batch, wait-reset", "watchful TrajInfo"]
QUICK = RICHEST[1:3]
IN_TURN = ("CPU, 2 workers", "GPU, 2 workers")
PAIRS = [
    pytest.param(scenario, kind, marks=[] if kind == IN_TURN[(i + i // 2) % 2] or (kind in ONE_OF_EACH and scenario in QUICK) else full)
    for i, scenario in enumerate(SCENARIOS)
    for kind in FORKED
    if scenario in RICHEST or kind in ONE_OF_EACH
]


@functools.cache
def serially(scenario):
    return collect("serial", **SCENARIOS[scenario])


@processes
@pytest.mark.parametrize("scenario, kind", PAIRS)
@pytest.mark.filterwarnings("ignore:. workers for batch_B=2")
def test_all_samplers_agree(scenario, kind):
    assert_same(collect(kind, **SCENARIOS[scenario]), serially(scenario))


@processes
@full
@pytest.mark.parametrize(
    "kind, scenario",
    [
        (kind, scenario)
        for kind in STARTED_ANEW
        for scenario in ("recurrent", "wait-reset")
        if scenario == "recurrent" or KINDS[kind].acts_in_master
    ],
)
def test_all_samplers_agree_however_their_processes_are_started(kind, scenario):
    assert_same(collect(kind, **SCENARIOS[scenario]), serially(scenario))


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_what_samplers_agree_on_is_worth_comparing(scenario):
    collected = serially(scenario)
    assert any(batch.env.done.any() for batch in collected.batches) and any(collected.infos)
    assert all(len(evals) >= 3 for evals in collected.evals)
    if scenario in ("mid-batch reset", "wait-reset", "recurrent", "recurrent, wait-reset"):
        done = along_time(collected.batches, lambda batch: batch.env.done)
        timeout = along_time(collected.batches, lambda batch: batch.env.timeout)
        traj_done = along_time(collected.batches, lambda batch: batch.env.env_info.traj_done)
        assert (done & ~traj_done).any() and (timeout & traj_done).any() and (~timeout & traj_done).any()
    if "watchful" in scenario:
        assert all(info.LastBulk == info.FinalStep - 1 for infos in (*collected.infos, *collected.evals) for info in infos)


def shaping(CollectorCls):
    class ShapingCollector(CollectorCls):
        """Relabels rewards once the batch is full, as subclasses of collectors do."""

        def collect_batch(self, agent_inputs, traj_infos, itr):
            result = super().collect_batch(agent_inputs, traj_infos, itr)
            self.samples_np.env.reward[:] *= 10
            return result

    return ShapingCollector


@pytest.mark.parametrize("kind", kinds([kind for kind in ONE_OF_EACH if kind != "serial"], quick=["GPU, 2 workers"]))
def test_what_a_collector_changes_after_a_batch_is_changed_after_the_agent_has_seen_it(kind):
    for _ in range(3):  # It was a matter of chance.
        assert_same(*(collect(k, change_collector=shaping, T=3, n_batches=8) for k in (kind, "serial")))


@pytest.mark.parametrize("make_twin", [make_classic, make_reusing])
@pytest.mark.parametrize("kind", kinds(ONE_OF_EACH, quick=["serial", "CPU, 2 workers"]))
def test_classic_environments_and_those_that_reuse_their_memory_are_sampled_like_their_plain_twin(kind, make_twin):
    plain, twin = (collect(kind, WalkingAgent(), EnvCls=EnvCls, env={}, T=30) for EnvCls in (make_walk, make_twin))
    for a, b in zip(plain.batches, twin.batches):
        assert_same_arrays(a.env._replace(env_info=None), b.env._replace(env_info=None), "env")
        assert_same_arrays(a.agent, b.agent, "agent")
        np.testing.assert_array_equal(a.final_observation, b.final_observation)
    assert plain.infos == twin.infos and any(plain.infos)


class WalkingAgent(BaseAgent):
    """Walks towards the start in small steps; for the walk of envs.py."""

    def __init__(self):
        super().__init__(ModelCls=Offset)

    def step(self, observation, prev_action, prev_reward):
        return AgentStep(action=-observation[..., :1].sign() / 2, agent_info=None)

    def value(self, observation, prev_action, prev_reward):
        return observation[..., 1] + prev_reward


# ---------------------------------------------------------------------------------------------------------------------
# Seeds
# ---------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", kinds(ONE_OF_EACH))
def test_the_same_seed_gives_the_same_samples_and_another_seed_others(kind):
    same, other = collect(kind, evaluate_after=(0, 1, 2)), collect(kind, seed=4)
    assert_same(same, serially("mid-batch reset"))
    assert (other.batches[-1].env.observation != same.batches[-1].env.observation).any()


@pytest.mark.parametrize("kind", kinds(ONE_OF_EACH))
def test_samplers_of_two_ranks_collect_what_one_of_twice_the_size_does(kind):
    whole = collect("serial", B=8, evaluate_after=(1,), eval_n_envs=6, eval_max_steps=6 * 30)
    ranks = [collect(kind, B=4, evaluate_after=(1,), rank=rank, world_size=2) for rank in range(2)]
    for rank, part in enumerate(ranks):
        for i, (ours, theirs) in enumerate(zip(part.batches, whole.batches)):
            assert_same_arrays(ours, theirs[:, 4 * rank : 4 * rank + 4], f"rank {rank}, batch {i}")
    infos = [[*a, *b] for a, b in zip(ranks[0].infos, ranks[1].infos)]
    assert [sorted(map(str, batch)) for batch in infos] == [sorted(map(str, batch)) for batch in whole.infos]
    assert sorted(map(str, ranks[0].evals[0] + ranks[1].evals[0])) == sorted(map(str, whole.evals[0]))


def test_no_two_environments_share_a_seed():
    codes = serially("mid-batch reset").batches[0].env.observation[0, :, 0]
    assert len(set(codes)) == len(codes)


def test_training_and_evaluation_environments_have_different_seeds():
    collected = collect("serial", TrajInfoCls=CodeTrajInfo, env=dict(episode_length=3))
    codes = {info.Code for infos in collected.infos for info in infos}, {info.Code for info in collected.evals[0]}
    assert len(codes[0]) == 6 and len(codes[1]) == 3 and not codes[0] & codes[1]


class CodeTrajInfo(TrajInfo):
    """Knows the seed of its environment."""

    def terminate(self, observation):
        self.Code = float(observation[0])
        return super().terminate(observation)


# ---------------------------------------------------------------------------------------------------------------------
# Who acts for whom, and when
# ---------------------------------------------------------------------------------------------------------------------
HALVING = ["alternating, 2 workers", "alternating, 4 workers", "no overlap, 2 workers", "no overlap, 4 workers"]
every_halving = pytest.mark.parametrize("kind", kinds(HALVING, quick=["alternating, 2 workers", "no overlap, 4 workers"]))


@every_halving
def test_alternating_samplers_call_the_agent_with_halves_in_turn(kind):
    agent = CallsAgent()
    collect(kind, agent=agent, n_batches=3, env=dict(episode_length=100), decorrelation=0)
    for _ in range(3):
        calls, agent.calls = agent.calls[:14], agent.calls[14:]
        steps = [call for call in calls if call[0] == "step"]
        assert [(rows, half) for _, rows, half, _ in steps] == [(3, 0), (3, 1)] * 6
        assert sorted((rows, half) for method, rows, half, _ in calls if method == "value") == [(3, 0), (3, 1)]
        for _, _, half, code in calls:
            assert code == steps[half][3], "the first environment of this half"
    assert not agent.calls


class CallsAgent(AlternatingRnnAgent):
    """Notes its calls while it samples: method, rows, which half it takes them for, the first row's environment."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def _note(self, method, observation):
        if self._mode == "sample":
            self.calls.append((method, len(observation), self.get_alt(), float(observation[0, 0])))

    def step(self, observation, prev_action, prev_reward):
        self._note("step", observation)
        return super().step(observation, prev_action, prev_reward)

    def value(self, observation, prev_action, prev_reward):
        self._note("value", observation)
        return super().value(observation, prev_action, prev_reward)


@every_halving
def test_the_list_of_processors_is_doubled_where_it_does_not_say_that_it_is_for_both_halves(kind):
    affinity = dict(workers_cpus=list(range(KINDS[kind].n_workers // 2)), set_affinity=False)
    assert_same(collect(kind, evaluate_after=(0, 1, 2), affinity=affinity), serially("mid-batch reset"))


@pytest.mark.parametrize("kind", kinds(ONE_OF_EACH))
def test_agents_know_before_they_are_initialized_whether_they_will_act_for_halves(kind):
    agent = CuriousAgent()
    collect(kind, agent=agent, n_batches=1, evaluate_after=())
    assert agent.alternating_at_first == KINDS[kind].alternating


class CuriousAgent(RecordingAgent):
    def initialize(self, *args, **kwargs):
        self.alternating_at_first = self.alternating
        super().initialize(*args, **kwargs)
