"""What cannot work is refused in a sentence, before any process starts; what goes wrong later is named with environment and step."""

import multiprocessing
import os
import re
import subprocess
import sys
import tempfile
from collections import namedtuple

import numpy as np
import pytest
import torch
from agents_for_tests import AlternatingRnnAgent, RecordingAgent, RnnAgent
from collecting import KINDS, ONE_OF_EACH, SAMPLERS, kinds, make_sampler
from envs import CountingEnv
from tiers import full, processes, thinned

from rlpyt.agents.base import AgentStep
from rlpyt.samplers import rows
from rlpyt.samplers.buffer import get_example_outputs
from rlpyt.samplers.parallel.cpu.collectors import CpuEvalCollector, CpuResetCollector, CpuWaitResetCollector
from rlpyt.samplers.parallel.cpu.sampler import CpuSampler
from rlpyt.samplers.parallel.gpu.alternating_sampler import AlternatingSampler, NoOverlapAlternatingSampler
from rlpyt.samplers.parallel.gpu.collectors import GpuEvalCollector, GpuResetCollector, GpuWaitResetCollector
from rlpyt.samplers.parallel.gpu.sampler import GpuSampler
from rlpyt.samplers.serial.sampler import SerialSampler
from rlpyt.samplers.workers import WorkerError
from rlpyt.spaces.composite import Composite
from rlpyt.spaces.float_box import FloatBox
from rlpyt.spaces.int_box import IntBox
from rlpyt.utils.collections import namedarraytuple

ALL = {"serial": SerialSampler, **SAMPLERS}
ALTERNATING = [AlternatingSampler, NoOverlapAlternatingSampler]
AFFINITY = dict(workers_cpus=[0, 1], set_affinity=False)

every_sampler = pytest.mark.parametrize("SamplerCls", ALL.values(), ids=ALL)
alternating_samplers = pytest.mark.parametrize("SamplerCls", ALTERNATING)
other_samplers = pytest.mark.parametrize("SamplerCls", [SerialSampler, CpuSampler, GpuSampler])


@pytest.fixture
def no_process(monkeypatch):
    """Starting a process fails in this test."""

    def refuse(*args):
        raise AssertionError("a process was started")

    monkeypatch.setattr(os, "fork", refuse)
    monkeypatch.setattr(multiprocessing.Process, "start", refuse)
    yield
    assert not multiprocessing.active_children()


def make(SamplerCls, EnvCls=CountingEnv, env_kwargs=None, **kwargs):
    return SamplerCls(EnvCls=EnvCls, env_kwargs=env_kwargs or {}, **{**dict(batch_T=2, batch_B=4), **kwargs})


def refused(SamplerCls, said, agent=None, affinity=AFFINITY, world_size=1, rank=0, **kwargs):
    """Making or initializing the sampler raises ValueError with `said` in its message."""
    with pytest.raises(ValueError, match=said) as info:
        make(SamplerCls, **kwargs).initialize(agent or RecordingAgent(), affinity=affinity, seed=0, world_size=world_size, rank=rank)
    return str(info.value)


# ---------------------------------------------------------------------------------------------------------------------
# Settings
# ---------------------------------------------------------------------------------------------------------------------
@every_sampler
@pytest.mark.parametrize(
    "bad",
    [
        dict(batch_T=0),
        dict(batch_B=0),
        dict(batch_B=2.5),
        dict(eval_n_envs=2),
        dict(eval_n_envs=4, eval_max_steps=3),
        dict(eval_n_envs=1, eval_max_steps=3, eval_max_trajectories=0),
        dict(max_decorrelation_steps=-1),
        dict(start_method="thread"),
    ],
    ids=str,
)
def test_impossible_settings_are_refused_by_name(SamplerCls, bad, no_process):
    with pytest.raises(ValueError, match=list(bad)[-1] if "eval_max_trajectories" in bad else list(bad)[0]):
        make(SamplerCls, **bad)


@every_sampler
@pytest.mark.parametrize("world_size, rank", [(1, 1), (2, 2), (2, -1), (0, 0)])
def test_a_rank_beyond_the_number_of_ranks_is_refused(SamplerCls, world_size, rank, no_process):
    message = refused(SamplerCls, "rank", world_size=world_size, rank=rank)
    assert f"{rank}" in message and f"{world_size}" in message


@every_sampler
def test_an_affinity_with_an_unknown_key_is_refused_with_the_nearest_one(SamplerCls, no_process):
    refused(SamplerCls, "Did you mean 'workers_cpus'", affinity=dict(worker_cpus=[0]))


# ---------------------------------------------------------------------------------------------------------------------
# Halves
# ---------------------------------------------------------------------------------------------------------------------
@alternating_samplers
@pytest.mark.parametrize("B", [1, 5])
def test_an_alternating_sampler_needs_an_even_batch_B(SamplerCls, B, no_process):
    assert f"{B}" in refused(SamplerCls, "batch_B.*even|even.*batch_B", batch_B=B)


@alternating_samplers
def test_a_list_of_workers_for_both_halves_must_be_even(SamplerCls, no_process):
    affinity = dict(workers_cpus=[0, 1, 2], set_affinity=False, alternating=True)
    assert "3" in refused(SamplerCls, "workers_cpus.*even|even.*workers_cpus", affinity=affinity, batch_B=6)


@alternating_samplers
def test_a_recurrent_agent_without_a_pair_of_states_is_refused_by_alternating_samplers(SamplerCls, no_process):
    message = refused(SamplerCls, "pair of recurrent states.*Alternating", agent=RnnAgent())
    assert SamplerCls.__name__ in message and "RnnAgent" in message


@other_samplers
def test_a_recurrent_agent_with_a_pair_of_states_is_refused_by_other_samplers(SamplerCls, no_process):
    message = refused(SamplerCls, "one recurrent state.*not.*Alternating", agent=AlternatingRnnAgent())
    assert SamplerCls.__name__ in message and "AlternatingRnnAgent" in message


# ---------------------------------------------------------------------------------------------------------------------
# Collectors of the other family
# ---------------------------------------------------------------------------------------------------------------------
CPU_SIDE, GPU_SIDE = [SerialSampler, CpuSampler], [GpuSampler, AlternatingSampler, NoOverlapAlternatingSampler]


@pytest.mark.parametrize(
    "SamplerCls, CollectorCls",
    [(SamplerCls, CollectorCls) for SamplerCls in CPU_SIDE for CollectorCls in (GpuResetCollector, GpuWaitResetCollector)]
    + [(SamplerCls, CollectorCls) for SamplerCls in GPU_SIDE for CollectorCls in (CpuResetCollector, CpuWaitResetCollector)],
)
def test_a_collector_of_the_other_family_is_refused_when_the_sampler_is_made(SamplerCls, CollectorCls, no_process):
    with pytest.raises(ValueError, match=CollectorCls.__name__) as info:
        make(SamplerCls, CollectorCls=CollectorCls)
    right = "rlpyt.samplers.parallel.cpu.collectors" if SamplerCls in CPU_SIDE else "rlpyt.samplers.parallel.gpu.collectors"
    assert SamplerCls.__name__ in str(info.value) and right in str(info.value)


@pytest.mark.parametrize(
    "SamplerCls, eval_CollectorCls",
    [*((SamplerCls, GpuEvalCollector) for SamplerCls in CPU_SIDE), *((SamplerCls, CpuEvalCollector) for SamplerCls in GPU_SIDE)],
)
def test_an_evaluation_collector_of_the_other_family_is_refused_when_the_sampler_is_made(SamplerCls, eval_CollectorCls, no_process):
    with pytest.raises(ValueError, match=eval_CollectorCls.__name__):
        make(SamplerCls, eval_CollectorCls=eval_CollectorCls, eval_n_envs=1, eval_max_steps=10)


# ---------------------------------------------------------------------------------------------------------------------
# Order of use
# ---------------------------------------------------------------------------------------------------------------------
@processes
@every_sampler
def test_use_before_initialize_and_after_shutdown_says_so(SamplerCls):
    sampler = make(SamplerCls)
    sampler.shutdown()
    for use in (sampler.obtain_samples, sampler.evaluate_agent):
        with pytest.raises(RuntimeError, match="initialize"):
            use(0)
    sampler.initialize(RecordingAgent(), affinity=AFFINITY, seed=0)
    sampler.obtain_samples(0)
    with pytest.raises(RuntimeError, match="eval_n_envs"):
        sampler.evaluate_agent(0)
    sampler.obtain_samples(1)
    sampler.shutdown()
    sampler.shutdown()
    for use in (sampler.obtain_samples, sampler.evaluate_agent):
        with pytest.raises(RuntimeError, match="initialize"):
            use(2)


@processes
@every_sampler
def test_a_sampler_can_be_started_anew(SamplerCls):
    sampler, observations = make(SamplerCls), []
    for _ in range(2):
        sampler.initialize(RecordingAgent(), affinity=AFFINITY, seed=0)
        sampler.obtain_samples(0)
        observations.append(sampler.obtain_samples(1)[0].env.observation.numpy().copy())
    sampler.shutdown()
    np.testing.assert_array_equal(*observations)


@processes
@pytest.mark.parametrize("SamplerCls", SAMPLERS.values(), ids=SAMPLERS)
def test_more_workers_than_environments_start_only_as_many_as_are_needed(SamplerCls, capsys):
    sampler = make(SamplerCls, batch_B=2)
    sampler.initialize(RecordingAgent(), affinity=dict(workers_cpus=[0, 1, 2, 3], set_affinity=False), seed=0)
    assert re.search(r"batch_B=2 is less than the \d workers: 2 of them start\.", capsys.readouterr().out)
    assert len(multiprocessing.active_children()) == 2
    sampler.obtain_samples(0)
    sampler.shutdown()


# ---------------------------------------------------------------------------------------------------------------------
# What environments and agents get wrong
# ---------------------------------------------------------------------------------------------------------------------
Info = namedtuple("Info", ["a", "b"])
Swapped = namedtuple("Swapped", ["b", "a"])


class OddEnv(CountingEnv):
    """Goes wrong in its sixth step, in the way it is told."""

    def __init__(self, odd=None):
        super().__init__(episode_length=100)
        self.odd, self.n_steps = odd or {}, 0

    def step(self, action):
        self.n_steps += 1
        step = super().step(action)._replace(env_info=Info(1, 2))
        return step._replace(**self.odd) if self.n_steps == 6 else step


ODD = [
    (dict(env_info=Swapped(2, 1)), r"env_info: expected the fields \['a', 'b'\].*got fields \['b', 'a'\]"),
    (dict(env_info=dict(a=1, b=2)), "env_info: expected the fields.*got dict"),
    (dict(reward=float("inf")), "reward: expected a finite number, got inf"),
    (dict(observation=np.zeros(3, np.float32)), r"observation: expected shape \(4,\), got \(3,\)"),
    (dict(observation=np.zeros(4, complex)), "observation: expected dtype float32, got complex128"),
]


@pytest.mark.parametrize("odd, said", ODD)
@pytest.mark.parametrize("kind", kinds(ONE_OF_EACH, quick=["serial", "GPU, 2 workers"]))
def test_what_an_environment_gets_wrong_later_on_is_named_with_environment_and_step(kind, odd, said):
    sampler = make_sampler(kind, EnvCls=OddEnv, env=dict(odd=odd), T=4, B=4, decorrelation=0)
    sampler.initialize(RecordingAgent(), affinity=KINDS[kind].affinity, seed=0)
    sampler.obtain_samples(0)
    with pytest.raises((ValueError, TypeError, WorkerError), match=said) as info:
        sampler.obtain_samples(1)
    text = str(info.value) + "".join(getattr(info.value, "__notes__", []))
    assert "step 1 of batch 1 (environment step 5)" in text
    assert any(f"environment {b}, " in text for b in range(4)) and (kind == "serial" or "sampler worker" in text.lower())
    sampler.shutdown()


Score = namedtuple("Score", ["points", "at"])
ManyInfo = namedtuple("ManyInfo", ["real", "whole", "flag", "array", "score", "timeout", "unused"])


class WrongEnv(CountingEnv):
    """Returns something else in a step: from the n-th on, or in the n-th only; other things in env_info than the base class."""

    def __init__(self, wrong=None, info=None, n=6, for_good=False):
        super().__init__(episode_length=100)
        self.wrong, self.info, self.n, self.for_good, self.n_steps = wrong or {}, info or {}, n, for_good, 0

    def step(self, action):
        self.n_steps += 1
        step = super().step(action)
        env_info = ManyInfo(0.5, 3, True, np.zeros(2, np.float32), Score(1.0, np.zeros(2)), False, None)
        is_wrong = self.n_steps >= self.n if self.for_good else self.n_steps == self.n
        return step._replace(env_info=env_info._replace(**self.info) if is_wrong else env_info, **self.wrong if is_wrong else {})


def sampled(EnvCls, n_batches=1, kind="serial", T=8, B=2, **env):
    sampler = make_sampler(kind, EnvCls=EnvCls, env=env, T=T, B=B, decorrelation=0)
    try:
        sampler.initialize(RecordingAgent(), affinity=KINDS[kind].affinity, seed=0)
        return [sampler.obtain_samples(itr)[0] for itr in range(n_batches)]
    finally:
        sampler.shutdown()


def error_of(call, *args, **kwargs):
    """What a call raises, with its notes."""
    with pytest.raises((ValueError, TypeError, WorkerError)) as info:
        call(*args, **kwargs)
    return str(info.value) + "".join(getattr(info.value, "__notes__", []))


NO_NUMBERS = [None, "1.0", "one", np.zeros(2), [1.0, 2.0], [[1], [2, 3]], {}, 1j]
NO_FLAGS = [None, "False", "", "1", float("nan"), 7, -1, 0.5, np.zeros(2, bool), [True, False], [], {}]
WRONG_INFO = [
    (dict(real=None), "env_info.real: expected dtype float64 and shape"),
    (dict(real="0.5"), "env_info.real: expected dtype float64 and shape"),
    (dict(real=np.zeros(3)), "env_info.real: expected dtype float64 and shape"),
    (dict(whole=None), "env_info.whole: expected dtype int64 and shape"),
    (dict(whole="3"), "env_info.whole: expected dtype int64 and shape"),
    (dict(whole=2.5), "env_info.whole: expected dtype int64 and shape"),
    (dict(whole=2**70), "env_info.whole: expected dtype int64 and shape"),
    (dict(array=np.zeros(3)), r"env_info.array: expected dtype float32 and shape \(2,\)"),
    (dict(array="text"), r"env_info.array: expected dtype float32 and shape \(2,\)"),
    (dict(array=[[1], [2, 3]]), r"env_info.array: expected dtype float32 and shape \(2,\)"),
    (dict(score=Score(1.0, np.zeros(3))), r"env_info.score.at: expected dtype float64 and shape \(2,\)"),
    (dict(score=Score("?", np.zeros(2))), "env_info.score.points: expected dtype float64 and shape"),
    (dict(score=Swapped(1, 2)), r"env_info.score: expected the fields \['points', 'at'\] at every step, got fields \['b', 'a'\]"),
    (dict(unused=1), "env_info.unused: expected None at every step"),
    (dict(timeout=True), "env_info.timeout: expected False where done is False, got True"),
]
WRONG = [(dict(wrong=dict(reward=value)), "reward: expected one number, got") for value in NO_NUMBERS]
WRONG += [(dict(wrong=dict(done=value)), "done: expected True or False, got") for value in NO_FLAGS]
WRONG += [(dict(info=info), said) for info, said in WRONG_INFO]


@pytest.mark.parametrize("env, said", WRONG, ids=str)
def test_a_reward_done_or_info_that_does_not_fit_is_named_with_field_environment_and_step(env, said):
    text = error_of(sampled, WrongEnv, **env)
    assert re.search(said, text) and re.search(r"environment [01], (in )?step 5 of batch 0 \(environment step 5\)", text)


OneInfo = namedtuple("OneInfo", ["x"])
PairInfo = namedtuple("PairInfo", ["x", "n"])


class LaterEnv(CountingEnv):
    """Its env_info has a first value, which says shape and dtype, and another one from the sixth step on."""

    def __init__(self, first, later, form):
        super().__init__(episode_length=100)
        self.first, self.later, self.form, self.n_steps = first, later, form, 0

    def step(self, action):
        self.n_steps += 1
        x = self.later if self.n_steps >= 6 else self.first
        info = {"alone": OneInfo(x), "beside": PairInfo(x, 0), "inside": OneInfo(PairInfo(x, 0))}[self.form]
        return super().step(action)._replace(env_info=info)


@pytest.mark.parametrize("form", ["alone", "beside", "inside"])
@pytest.mark.parametrize(
    "first, later",
    [
        (np.array([1, 2]), [0.5, 1.7]),
        (np.array([1, 2]), np.array([0.5, 1.7])),
        (np.array([1, 2], np.uint8), np.array([-1, 300])),
        (np.zeros(2), ["3", "4"]),
        (np.zeros(2), [None, None]),
        (np.zeros(2), np.zeros(2, complex) + 1j),
        (np.zeros(2, bool), [None, "x"]),
        (np.float16(0.5), "2.5"),
        (np.zeros(2), np.zeros((2, 2))),
    ],
    ids=str,
)
def test_an_array_of_env_info_that_would_change_its_values_is_named(first, later, form):
    text = error_of(sampled, LaterEnv, first=first, later=later, form=form)
    name = r"env_info\.x\.x" if form == "inside" else r"env_info\.x"
    assert re.search(rf"{name}: expected dtype {np.asarray(first).dtype} and shape", text) and "step 5 of batch 0" in text


@pytest.mark.parametrize("form", ["alone", "beside", "inside"])
@pytest.mark.parametrize(
    "first, later, stored",
    [
        (np.array([1, 2]), np.array([3, 4], np.int8), [3, 4]),
        (np.array([1, 2]), [3.0, 4.0], [3, 4]),
        (np.zeros(2), 5, [5, 5]),
        (np.zeros(2), np.ones((1, 2)), [1, 1]),
        (np.zeros(2, np.float32), [0.1, 1e-3], np.float32([0.1, 1e-3])),
        (np.zeros(2, bool), [0, 2], [False, True]),
        (np.float16(0.5), np.array([2.5]), 2.5),
        (np.zeros((1, 2)), [7, 8], [[7, 8]]),
    ],
    ids=str,
)
def test_an_array_of_env_info_that_keeps_its_values_is_stored_in_the_dtype_of_the_first(first, later, stored, form):
    info = sampled(LaterEnv, first=first, later=later, form=form)[0].env.env_info.x
    x = info.x if form == "inside" else info
    np.testing.assert_array_equal(x[-1, 0], stored)
    np.testing.assert_array_equal(x[0, 0], first)


@pytest.mark.parametrize("kind", kinds([name for name in ONE_OF_EACH if name != "serial"], quick=["CPU, 2 workers"]))
@pytest.mark.parametrize("env, said", [WRONG[1], WRONG[9], WRONG[-1]], ids=str)
def test_so_it_is_in_workers(kind, env, said):
    text = error_of(sampled, WrongEnv, kind=kind, B=4, **env)
    assert re.search(said, text) and "step 5 of batch 0" in text


@pytest.mark.parametrize("env, said", [WRONG[1], WRONG[9]], ids=str)
def test_so_it_is_from_the_first_step_on_and_before_and_in_evaluations(env, said):
    text = error_of(sampled, WrongEnv, n=1, for_good=True, **env)
    assert re.search(said, text) and "WrongEnv, in a step that is an example" in text
    sampler = make_sampler("serial", EnvCls=WrongEnv, env=dict(env, n=2, for_good=True), decorrelation=1000)
    assert re.search(f"{said}.*environment 0, in step 1 of decorrelation", error_of(sampler.initialize, RecordingAgent(), seed=0))
    sampler.shutdown()
    sampler = make_sampler("serial", env={}, eval_EnvCls=WrongEnv, eval_env_kwargs=dict(env, n=4))
    sampler.initialize(RecordingAgent(), seed=0)
    assert re.search(f"{said}.*environment 0, step 3 of the evaluation", error_of(sampler.evaluate_agent, 0))
    sampler.shutdown()


@pytest.mark.parametrize("kind", kinds(ONE_OF_EACH, quick=["serial", "CPU, 2 workers"]))
@pytest.mark.parametrize(
    "reward, done",
    [
        (np.array, np.bool_),  # 0-d
        (lambda x: np.array([x]), lambda x: np.array([x])),
        (lambda x: np.array([[x]], np.int32), int),
        (np.float64, np.array),
        (int, float),
    ],
    ids=["0-d", "one element", "2-d", "numpy", "other types"],
)
def test_numbers_of_any_type_and_arrays_of_one_element_are_numbers(kind, reward, done):
    """As environments for classic gym return them, which numpy's assignments took."""
    env = dict(reward=reward, done=done)
    sampler = make_sampler(kind, EnvCls=ScalarsEnv, env=env, B=4)
    sampler.initialize(RecordingAgent(), affinity=KINDS[kind].affinity, seed=0)
    samples, _ = sampler.obtain_samples(0)
    np.testing.assert_array_equal(samples.env.reward, samples.env.env_info.t)
    np.testing.assert_array_equal(samples.env.done, samples.env.env_info.t == 5)
    assert [info.Length for info in sampler.evaluate_agent(0)] == [5] * 18
    sampler.shutdown()


class ScalarsEnv(CountingEnv):
    """Returns its reward and done as something else; so does its info."""

    def __init__(self, reward, done):
        super().__init__()
        self.reward, self.done = reward, done

    def step(self, action):
        step = super().step(action)
        info = step.env_info._replace(t=np.array([step.env_info.t]) if step.env_info.t > 1 else step.env_info.t)
        return step._replace(reward=self.reward(step.reward), done=self.done(step.done), env_info=info)


# ---------------------------------------------------------------------------------------------------------------------
# Observations that are not finite
# ---------------------------------------------------------------------------------------------------------------------
Pair = namedarraytuple("Pair", ["image", "speed"])


class BadObservationEnv(CountingEnv):
    """The second of its numbers is `bad` in the n-th step; or what is observed at the end, or at the beginning, of the first episode."""

    def __init__(self, bad=np.nan, n=None, at=None, length=100, end="timeout"):
        super().__init__(episode_length=length, end=end)
        self.bad, self.n, self.at, self.n_steps, self.n_resets = bad, n, at, 0, 0

    def _spoilt(self, observation, is_now):
        if is_now:
            observation[1] = self.bad
        return observation

    def step(self, action):
        self.n_steps += 1
        step = super().step(action)
        is_now = self.n_steps == self.n or (self.at == "end" and step.done)
        return step._replace(observation=self._spoilt(step.observation, is_now))

    def reset(self):
        self.n_resets += 1
        return self._spoilt(super().reset(), self.at == "reset" and self.n_resets == 2)


@pytest.mark.parametrize("bad", thinned([np.nan, np.inf, -np.inf], quick=[np.nan]))
@pytest.mark.parametrize("kind", kinds([*ONE_OF_EACH, "async CPU"]))
def test_an_observation_that_is_not_finite_is_named_with_environment_and_step(kind, bad):
    env = [dict(bad=bad, n=6 if b == 2 else None) for b in range(4)]
    sampler = make_sampler(kind, EnvCls=BadObservationEnv, env=env, T=4, B=4, decorrelation=0)
    if kind.startswith("async"):
        sampler.async_initialize(RecordingAgent(), seed=0)
        sampler.initialize(dict(workers_cpus=[0, 1], set_affinity=False))
        sampler.obtain_samples(0, 0)
        text = error_of(sampler.obtain_samples, 1, 1)
    else:
        sampler.initialize(RecordingAgent(), affinity=KINDS[kind].affinity, seed=0)
        sampler.obtain_samples(0)
        text = error_of(sampler.obtain_samples, 1)
    assert f"observation[1]: expected a finite number, got {bad}." in text
    assert "environment 2, observed at the end of step 1 of batch 1 (environment step 5)" in text
    sampler.shutdown()


@pytest.mark.parametrize("wait_reset", [False, True])
def test_so_it_is_after_a_reset_and_at_the_end_of_an_episode(wait_reset):
    def first_error(**settings):
        sampler = make_sampler(
            "serial",
            EnvCls=BadObservationEnv,
            env=settings,
            T=8,
            B=2,
            decorrelation=0,
            wait_reset=wait_reset,
            keep_terminal_observations=True,
        )
        sampler.initialize(RecordingAgent(), seed=0)
        try:
            return error_of(lambda: [sampler.obtain_samples(itr) for itr in range(3)])
        finally:
            sampler.shutdown()

    after_reset = first_error(at="reset", length=5)
    where = "before step 0 of batch 1" if wait_reset else "after a reset at the end of step 4 of batch 0"
    assert f"environment 0, {where}" in after_reset and "observation[1]: expected a finite number, got nan" in after_reset
    for end in ("timeout", "terminated"):
        text = first_error(at="end", length=5, end=end)
        assert "environment 0, at the end of an episode, in batch 0" in text and "observation[1]" in text


class PairEnv(CountingEnv):
    """An image of uint8, and a speed."""

    def __init__(self, n=None):
        super().__init__(episode_length=100)
        self._observation_space = Composite([IntBox(0, 255, shape=(2, 2), dtype="uint8"), FloatBox(-10, 10, shape=(3,))], Pair)
        self.n, self.n_steps = n, 0

    def _pair(self):
        speed = np.zeros(3, np.float32)
        speed[2] = np.nan if self.n_steps == self.n else 0
        return Pair(np.full((2, 2), 255, np.uint8), speed)

    def reset(self):
        super().reset()
        return self._pair()

    def step(self, action):
        self.n_steps += 1
        return super().step(action)._replace(observation=self._pair())


class StillAgent(RecordingAgent):
    """Looks at nothing."""

    def step(self, observation, prev_action, prev_reward):
        return AgentStep(action=torch.zeros(prev_reward.shape, dtype=torch.int64), agent_info=None)


def test_the_field_of_a_structure_is_named():
    sampler = make_sampler("serial", EnvCls=PairEnv, env=dict(n=3), T=8, B=2, decorrelation=0, eval_n_envs=0)
    sampler.initialize(StillAgent(), seed=0)
    assert "observation.speed[2]: expected a finite number, got nan" in error_of(sampler.obtain_samples, 0)
    sampler.shutdown()


def test_observations_of_integers_are_not_looked_at(monkeypatch):
    looked = []
    monkeypatch.setattr(rows, "first_not_finite", lambda array: looked.append(array.dtype) or None)
    sampler = make_sampler("serial", EnvCls=PairEnv, env={}, T=8, B=2, decorrelation=0, eval_n_envs=0)
    sampler.initialize(StillAgent(), seed=0)
    sampler.obtain_samples(0)
    assert set(looked) == {np.dtype("float32")} and len(looked) == 3, "rewards, the first speeds, and those that follow"
    sampler.shutdown()


def test_a_collector_for_environments_that_mean_something_by_them_says_so():
    def unchecked(CollectorCls):
        return type("Unchecked", (CollectorCls,), dict(check_observations=lambda self: None))

    sampler = make_sampler("serial", EnvCls=PairEnv, env=dict(n=3), T=8, B=2, decorrelation=0, eval_n_envs=0, change_collector=unchecked)
    sampler.initialize(StillAgent(), seed=0)
    assert np.isnan(sampler.obtain_samples(0)[0].env.observation.speed.numpy()).sum() == 2
    sampler.shutdown()


class FussyAgent(RecordingAgent):
    """Raises where it is given what is not finite, as distributions do."""

    def step(self, observation, prev_action, prev_reward):
        if not torch.isfinite(observation).all():
            raise ValueError("probabilities must be finite")
        return super().step(observation, prev_action, prev_reward)


@pytest.mark.parametrize("kind", kinds(ONE_OF_EACH, quick=["serial", "GPU, 2 workers"]))
def test_what_an_agent_raises_because_of_it_names_the_environment_as_well(kind):
    env = [dict(n=2 if b == 3 else None) for b in range(4)]
    settings = dict(EnvCls=BadObservationEnv, env=env, eval_env_kwargs=dict(n=3), eval_n_envs=4)
    sampler = make_sampler(kind, T=4, B=4, decorrelation=0, **settings)
    sampler.initialize(FussyAgent(), affinity=KINDS[kind].affinity, seed=0)
    text = error_of(sampler.obtain_samples, 0)
    given = "This was in environment 3, in what the agent was given for step 2 of batch 0 (environment step 2)."
    assert f"observation[1]: expected a finite number, got nan. {given}" in text
    sampler.shutdown()
    sampler.initialize(FussyAgent(), affinity=KINDS[kind].affinity, seed=0)
    text = error_of(sampler.evaluate_agent, 0)
    given = r"in what the agent was given for step 3 of the evaluation at iteration 0\."
    assert re.search(rf"got nan. This was in environment \d, {given}", text)
    sampler.shutdown()


class ForgetfulAgent(RecordingAgent):
    """Leaves out a field of its agent_info after the example and the first step."""

    def step(self, *inputs):
        step = super().step(*inputs)
        return step if self.n_calls < 3 else step._replace(agent_info=step.agent_info._replace(prev_action=None))


@pytest.mark.parametrize("kind", kinds(ONE_OF_EACH, quick=["serial", "GPU, 2 workers"]))
def test_an_agent_that_leaves_out_a_field_of_agent_info_later_on_is_refused(kind):
    sampler = make_sampler(kind, env={}, B=4)
    sampler.initialize(ForgetfulAgent(), affinity=KINDS[kind].affinity, seed=0)
    with pytest.raises((ValueError, WorkerError), match="agent_info must have the same fields"):
        sampler.obtain_samples(0)
    sampler.shutdown()


@processes
@full
def test_threads_that_forked_workers_cannot_have_are_refused_and_spawned_ones_get_them():
    program = """
import torch
from agents_for_tests import RecordingAgent
from envs import CountingEnv
from rlpyt.samplers.parallel.cpu.sampler import CpuSampler

def start(start_method):
    sampler = CpuSampler(EnvCls=CountingEnv, env_kwargs={}, batch_T=2, batch_B=2, start_method=start_method)
    sampler.initialize(RecordingAgent(), affinity=dict(workers_cpus=[0, 1], set_affinity=False, worker_torch_threads=2), seed=0)
    sampler.obtain_samples(0)
    sampler.shutdown()
    print(start_method, "ran")

if __name__ == "__main__":
    start("fork")
    torch.set_num_threads(2)
    torch.ones(512, 512) @ torch.ones(512, 512)
    start("spawn")
    start("fork")
"""
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "program.py")
        with open(path, "w") as file:
            file.write(program)
        env = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
        result = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=120, env=env)
    assert result.stdout.split("\n")[:2] == ["fork ran", "spawn ran"], result.stderr
    # Other OpenMP libraries than GNU's get on after a fork.
    assert "fork ran" in result.stdout.split("\n")[2:] or "workers would hang" in result.stderr


class SlippingAgent(RecordingAgent):
    def __init__(self, change):
        super().__init__()
        self.change = change

    def step(self, *inputs):
        step = super().step(*inputs)
        return step if self.n_calls < 4 else self.change(step)


@pytest.mark.parametrize("kind", kinds(["serial", "GPU, 2 workers"]))
@pytest.mark.parametrize(
    "change, said",
    [
        (lambda step: step._replace(action=step.action.float() + 0.5), "action with shape .* and dtype torch.float32, expected"),
        (lambda step: step._replace(action=step.action.sum()), r"action with shape \(\)"),
        (
            lambda step: step._replace(agent_info=step.agent_info._replace(prev_reward=step.action[:1])),
            r"agent_info.prev_reward with shape \(1,\)",
        ),
    ],
)
def test_an_agent_whose_outputs_change_shape_or_dtype_is_refused_by_name(kind, change, said):
    sampler = make_sampler(kind)
    sampler.initialize(SlippingAgent(change), affinity=KINDS[kind].affinity, seed=0)
    with pytest.raises(ValueError, match=said):
        sampler.obtain_samples(0)
    sampler.shutdown()


@processes
def test_a_feedforward_agent_goes_from_an_alternating_sampler_to_any_other():
    agent = RecordingAgent()
    for kind, alternating in (("alternating, 2 workers", True), ("GPU, 2 workers", False), ("serial", False)):
        sampler = make_sampler(kind)
        sampler.initialize(agent, affinity=KINDS[kind].affinity, seed=0)
        assert agent.alternating == alternating
        sampler.shutdown()


class HastyCollector(GpuResetCollector):
    """Replies before it has taken its steps."""

    def collect_batch(self, agent_inputs, traj_infos, itr):
        return agent_inputs, traj_infos, []


@processes
def test_a_collector_that_does_not_take_its_steps_is_an_error_and_not_a_hang():
    sampler = GpuSampler(EnvCls=CountingEnv, env_kwargs={}, batch_T=4, batch_B=2, CollectorCls=HastyCollector)
    sampler.initialize(RecordingAgent(), affinity=dict(workers_cpus=[0, 1], set_affinity=False), seed=0)
    with pytest.raises(WorkerError, match="one more step of their collectors was expected"):
        sampler.obtain_samples(0)
    sampler.shutdown()


class ClassicEnv:
    """Not an environment of this framework."""

    import gymnasium

    action_space = observation_space = gymnasium.spaces.Discrete(2)

    def reset(self):
        return 0

    def step(self, action):
        return 0, 0.0, False, False, {}


@every_sampler
def test_an_environment_of_another_framework_is_pointed_to_its_wrapper(SamplerCls, no_process):
    with pytest.raises(ValueError, match="GymEnvWrapper"):
        get_example_outputs(RecordingAgent(), ClassicEnv(), {})
    with pytest.raises(ValueError, match="GymEnvWrapper"):
        make(SamplerCls, EnvCls=ClassicEnv).initialize(RecordingAgent(), affinity=AFFINITY, seed=0)


@every_sampler
@pytest.mark.parametrize("name", ["timeout", "traj_done"])
def test_a_flag_of_env_info_that_is_an_array_of_several_is_named(SamplerCls, name, no_process):
    info = namedtuple("Flag", [name])(np.zeros(2, bool))
    with pytest.raises(TypeError, match=rf"env_info\.{name}: expected True or False"):
        make(SamplerCls, EnvCls=FlaggedEnv, env_kwargs=dict(info=info)).initialize(RecordingAgent(), affinity=AFFINITY, seed=0)


@pytest.mark.parametrize("kind", kinds(ONE_OF_EACH, quick=["serial", "CPU, 2 workers"]))
@pytest.mark.parametrize("name", ["timeout", "traj_done"])
def test_a_flag_of_env_info_that_is_an_array_of_one_is_a_flag(kind, name):
    (batch,) = sampled(ArrayFlagEnv, kind=kind, B=4, name=name, episode_length=3, end="timeout")
    flag = getattr(batch.env.env_info, name)
    assert flag.shape == (8, 4) and flag.any() and (flag == batch.env.done).all() and (batch.env.timeout == batch.env.done).all()


class ArrayFlagEnv(CountingEnv):
    def __init__(self, name, **kwargs):
        super().__init__(**kwargs)
        self.name = name

    def step(self, action):
        step = super().step(action)
        return step._replace(env_info=step.env_info._replace(**{self.name: np.array([getattr(step.env_info, self.name)])}))


class FlaggedEnv(CountingEnv):
    def __init__(self, info):
        super().__init__()
        self.info = info

    def step(self, action):
        return super().step(action)._replace(env_info=self.info)


def test_one_environment_for_several_columns_is_refused():
    env = CountingEnv()
    refused(SerialSampler, "the same environment for 0 and for 1", EnvCls=lambda: env)
    sampler = make(SerialSampler, EnvCls=lambda: env, batch_B=1, eval_n_envs=1, eval_max_steps=10)  # In turn, they may use one robot.
    sampler.initialize(RecordingAgent(), seed=0)
    sampler.obtain_samples(0)
    sampler.shutdown()


def test_tensors_among_the_arguments_of_environments_are_compared():
    lists = [dict(episode_length=3, scale=torch.ones(2)), dict(episode_length=4, scale=torch.zeros(2))]
    sampler = make(SerialSampler, EnvCls=ScaledEnv, env_kwargs=lists, batch_B=2)
    sampler.initialize(RecordingAgent(), seed=0)
    sampler.obtain_samples(0)
    sampler.shutdown()


class ScaledEnv(CountingEnv):
    def __init__(self, scale, **kwargs):
        super().__init__(**kwargs)
