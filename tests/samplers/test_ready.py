"""A vector whose environments are ready one after the other is sampled like one that steps them together."""

import pytest
from agents_for_tests import RecordingAgent
from collecting import KINDS, assert_same, assert_same_arrays, collect, kinds, make_sampler
from envs import ReadyVector, make_gym_vector
from tiers import processes, thinned

from rlpyt.envs.vector import VectorEnvs
from rlpyt.envs.vector_contract import check_vector_env
from rlpyt.types import TrajInfo

ENV = dict(lengths=(5, 1, 3, 7), ends=("terminated", "truncated", "truncated"))


class StepwiseTrajInfo(TrajInfo):
    """Is told about every step."""

    def step(self, observation, action, reward, done, agent_info, env_info):
        super().step(observation, action, reward, done, agent_info, env_info)
        self.Steps = [*self.get("Steps", ()), (observation.tolist(), int(action), env_info.code)]


def sampled(kind, agent, make, env, **kwargs):
    kwargs = dict(dict(decorrelation=3, n_batches=6, T=7, keep_terminal_observations=True), **kwargs)
    return collect(kind, agent, EnvCls=VectorEnvs(make), env=dict(env, **ENV), **kwargs)


@pytest.mark.parametrize("agent", ["recording", "recurrent"])
@pytest.mark.parametrize("n_ready", thinned([1, 2, 4, 6], quick=[2, 6]))
@pytest.mark.parametrize("kind", kinds(["serial", "CPU, 2 workers"], quick=["serial"]))
def test_columns_that_advance_at_their_own_pace_are_those_of_lockstep(kind, n_ready, agent):
    ReadyVector.most = 0
    ours = sampled(kind, agent, ReadyVector, dict(n_ready=n_ready), evaluate_after=(1, 3))
    theirs = sampled(kind, agent, make_gym_vector, dict(mode="NextStep"), evaluate_after=(1, 3))
    assert kind != "serial" or n_ready == 6 or ReadyVector.most > 2
    assert any((~batch.env.valid).any() for batch in ours.batches) and any(ours.infos)
    assert_same(ours, theirs)


@pytest.mark.parametrize("T", thinned([1, 2, 9], quick=[2]))
@pytest.mark.parametrize("TrajInfoCls", [TrajInfo, StepwiseTrajInfo])
def test_statistics_of_episodes_are_those_of_lockstep(TrajInfoCls, T):
    ours, theirs = (
        sampled("serial", "recurrent", make, env, TrajInfoCls=TrajInfoCls, T=T, n_batches=36 // T)
        for make, env in ((ReadyVector, {}), (make_gym_vector, dict(mode="NextStep")))
    )
    assert sum(map(len, ours.infos)) > 10
    assert ours.infos == theirs.infos
    for a, b in zip(ours.batches, theirs.batches, strict=True):
        assert_same_arrays(a, b, "batch")


def test_it_keeps_the_contract_of_vectors():
    check_vector_env(ReadyVector, ENV)


class MixedUp(ReadyVector):
    def receive(self, k, observation_out):
        columns, step = super().receive(k, observation_out)
        return (columns + 1) % self.n, step


class Twice(ReadyVector):
    def receive(self, k, observation_out):
        columns, step = super().receive(k, observation_out)
        return columns * 0, step


@pytest.mark.parametrize("make, says", [(MixedUp, "must lead where step_into.. does"), (Twice, "must return each of them once")])
def test_the_contract_of_vectors_finds_environments_that_are_mixed_up(make, says):
    with pytest.raises(AssertionError, match=says):
        check_vector_env(make, ENV, n_steps=0)


def test_an_error_says_which_vector_it_is_from():
    sampler = make_sampler("serial", VectorEnvs(ReadyVector), dict(fails_at=3), B=4, decorrelation=0, eval_n_envs=0)
    sampler.initialize(RecordingAgent(), seed=0)
    with pytest.raises(ZeroDivisionError) as raised:
        sampler.obtain_samples(0)
    assert "in the vector of environments 0 to 3, batch 0" in "".join(raised.value.__notes__)
    sampler.shutdown()


class ForgetfulAgent(RecordingAgent):
    def reset_one(self, idx):
        """Has a memory, but no `acting_for` that extends it."""


@pytest.mark.parametrize(
    "kind, agent, env, kwargs, says",
    [
        (
            "GPU, 2 workers",
            RecordingAgent,
            dict(n_ready=1),
            {},
            "SerialSampler or CpuSampler.*that number, 1, out: a process has 2",
        ),
        ("serial", RecordingAgent, {}, dict(wait_reset=True), "CpuWaitResetCollector lets environments wait"),
        ("serial", ForgetfulAgent, {}, {}, "ForgetfulAgent defines reset_one and not acting_for"),
        ("serial", RecordingAgent, dict(mode="SameStep"), {}, "n_ready=2 of ReadyVector is for vectors that reset an environment by"),
    ],
)
def test_what_cannot_be_sampled_as_it_is_ready_is_told_before_any_process_starts(kind, agent, env, kwargs, says):
    sampler = make_sampler(kind, VectorEnvs(ReadyVector), env, B=4, decorrelation=0, eval_n_envs=0, **kwargs)
    with pytest.raises(ValueError, match=says):
        sampler.initialize(agent(), affinity=KINDS[kind].affinity, seed=0)
    sampler.shutdown()


@pytest.mark.parametrize(
    "kind, agent, kwargs",
    [
        ("serial", ForgetfulAgent, dict(env=dict(n_ready=6))),
        ("serial", RecordingAgent, dict(env=dict(n_ready=9), wait_reset=True)),
        pytest.param("GPU, 2 workers", RecordingAgent, dict(env=dict(n_ready=3)), marks=processes),
    ],
)
def test_a_number_of_ready_environments_that_is_that_of_a_process_changes_nothing(kind, agent, kwargs):
    settings = dict(decorrelation=0, n_batches=3, T=7, evaluate_after=(1,))
    env = dict(kwargs.pop("env"), **ENV)
    ours = collect(kind, agent(), EnvCls=VectorEnvs(ReadyVector), env=env, **settings, **kwargs)
    theirs = collect("serial", agent(), EnvCls=VectorEnvs(make_gym_vector), env=dict(ENV, mode="NextStep"), **settings, **kwargs)
    assert_same(ours, theirs)
