"""Runs any sampler with any test agent, and keeps all it hands over: importable as ``collecting`` here and in spawned processes."""

import copy
from typing import NamedTuple

import numpy as np
import pytest
from agents_for_tests import AlternatingRnnAgent, BulkyAgent, RecordingAgent, RnnAgent, StructuredAgent
from envs import CountingEnv
from tiers import full, processes

from rlpyt.samplers.async_.alternating_sampler import AsyncAlternatingSampler, AsyncNoOverlapAlternatingSampler
from rlpyt.samplers.async_.cpu_sampler import AsyncCpuSampler
from rlpyt.samplers.async_.gpu_sampler import AsyncGpuSampler
from rlpyt.samplers.async_.serial_sampler import AsyncSerialSampler
from rlpyt.samplers.parallel.cpu.collectors import CpuResetCollector, CpuWaitResetCollector
from rlpyt.samplers.parallel.cpu.sampler import CpuSampler
from rlpyt.samplers.parallel.gpu.alternating_sampler import AlternatingSampler, NoOverlapAlternatingSampler
from rlpyt.samplers.parallel.gpu.collectors import GpuResetCollector, GpuWaitResetCollector
from rlpyt.samplers.parallel.gpu.sampler import GpuSampler, GpuSamplerBase
from rlpyt.samplers.serial.sampler import SerialSampler
from rlpyt.utils.buffer import buffer_func, buffer_leaves, numpify_buffer

# Episodes of different lengths that end in all ways there are; two lives in a row make a trajectory of two or more episodes.
ENV = dict(episode_length=[5, 3, 7], end=["terminated", "timeout", "life", "timeout"])


class ReadySampler(GpuSampler):
    """Serves every worker as soon as it is ready."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **{"serve_fraction": 0.01, **kwargs})


SAMPLERS = {
    "CPU": CpuSampler,
    "GPU": GpuSampler,
    "as ready": ReadySampler,
    "alternating": AlternatingSampler,
    "no overlap": NoOverlapAlternatingSampler,
}
GPU_SAMPLERS = [name for name in SAMPLERS if name != "CPU"]


class Kind(NamedTuple):
    """A sampler, its number of worker processes (all groups together), and how they are started."""

    SamplerCls: type
    n_workers: int | None = None
    start_method: str | None = "fork"
    serve_fraction: float = 1

    @property
    def alternating(self):
        return self.SamplerCls.alternating

    @property
    def acts_in_master(self):
        return issubclass(self.SamplerCls, GpuSamplerBase)

    @property
    def affinity(self):
        if self.n_workers is None:
            return None
        return dict(workers_cpus=list(range(self.n_workers)), set_affinity=False, alternating=self.alternating)


KINDS = {
    "serial": Kind(SerialSampler),
    "CPU, 1 worker": Kind(CpuSampler, 1),
    "CPU, 2 workers": Kind(CpuSampler, 2),
    "CPU, 3 workers": Kind(CpuSampler, 3),
    "CPU, 4 workers": Kind(CpuSampler, 4),
    "GPU, 1 worker": Kind(GpuSampler, 1),
    "GPU, 2 workers": Kind(GpuSampler, 2),
    "GPU, 3 workers": Kind(GpuSampler, 3),
    "GPU, 4 workers": Kind(GpuSampler, 4),
    "GPU, 2 workers, as ready": Kind(GpuSampler, 2, serve_fraction=0.01),
    "GPU, 4 workers, as ready": Kind(GpuSampler, 4, serve_fraction=0.01),
    "GPU, 3 workers, half ready": Kind(GpuSampler, 3, serve_fraction=0.5),
    "GPU, as ready, spawn": Kind(GpuSampler, 3, "spawn", serve_fraction=0.01),
    "alternating, 2 workers": Kind(AlternatingSampler, 2),
    "alternating, 4 workers": Kind(AlternatingSampler, 4),
    "no overlap, 2 workers": Kind(NoOverlapAlternatingSampler, 2),
    "no overlap, 4 workers": Kind(NoOverlapAlternatingSampler, 4),
    "CPU, spawn": Kind(CpuSampler, 2, "spawn"),
    "CPU, forkserver": Kind(CpuSampler, 2, "forkserver"),
    "GPU, spawn": Kind(GpuSampler, 2, "spawn"),
    "GPU, forkserver": Kind(GpuSampler, 2, "forkserver"),
    "alternating, spawn": Kind(AlternatingSampler, 2, "spawn"),
    "alternating, forkserver": Kind(AlternatingSampler, 2, "forkserver"),
    "no overlap, spawn": Kind(NoOverlapAlternatingSampler, 2, "spawn"),
}
ASYNC_KINDS = {
    "async serial": Kind(AsyncSerialSampler),
    "async CPU": Kind(AsyncCpuSampler, 2),
    "async GPU": Kind(AsyncGpuSampler, 2),
    "async alternating": Kind(AsyncAlternatingSampler, 2),
    "async no overlap": Kind(AsyncNoOverlapAlternatingSampler, 2),
    "async CPU, spawn": Kind(AsyncCpuSampler, 2, "spawn"),
    "async GPU, forkserver": Kind(AsyncGpuSampler, 2, "forkserver"),
    "async GPU, as ready": Kind(AsyncGpuSampler, 2, serve_fraction=0.01),
}
FORKED = [name for name, kind in KINDS.items() if kind.n_workers and kind.start_method == "fork"]
STARTED_ANEW = [name for name, kind in KINDS.items() if kind.start_method != "fork"]
ANY_KIND = {**KINDS, **ASYNC_KINDS}
ONE_OF_EACH = ["serial", "CPU, 2 workers", "GPU, 2 workers", "alternating, 2 workers", "no overlap, 4 workers"]
QUICK = ["serial", "CPU, 2 workers", "GPU, 2 workers", "async serial", "async CPU"]


def kinds(names, quick=QUICK):
    """Return kinds as the values of a parameter: those with workers are marked `processes`, those that are not among `quick` `full`."""
    marks = {name: [processes] * bool(ANY_KIND[name].n_workers) + [full] * (name not in quick) for name in names}
    return [pytest.param(name, marks=marks[name]) for name in names]


AGENTS = {"recording": RecordingAgent, "bulky": BulkyAgent, "recurrent": RnnAgent, "structured": StructuredAgent}


def make_agent(name, kind):
    """Return an agent by name, the alternating twin where the sampler needs one."""
    return (AlternatingRnnAgent if name == "recurrent" and ANY_KIND[kind].alternating else AGENTS[name])()


def make_sampler(kind, EnvCls=CountingEnv, env=ENV, T=6, B=6, wait_reset=False, decorrelation=8, change_collector=None, **kwargs):
    """Return a sampler that is not initialized; `change_collector` makes one collector class out of another."""
    kind = ANY_KIND[kind]
    CpuCollectorCls, GpuCollectorCls = (
        (CpuWaitResetCollector, GpuWaitResetCollector) if wait_reset else (CpuResetCollector, GpuResetCollector)
    )
    CollectorCls = GpuCollectorCls if kind.acts_in_master else CpuCollectorCls
    if kind.serve_fraction < 1:
        kwargs["serve_fraction"] = kind.serve_fraction
    return kind.SamplerCls(
        EnvCls=EnvCls,
        env_kwargs=env,
        batch_T=T,
        batch_B=B,
        CollectorCls=CollectorCls if change_collector is None else change_collector(CollectorCls),
        max_decorrelation_steps=decorrelation,
        start_method=kind.start_method,
        **{**dict(eval_n_envs=3, eval_max_steps=3 * 30), **kwargs},
    )


class Collected(NamedTuple):
    """What a sampler handed over, copied.

    Attributes:
        batches: list of `Samples` of numpy arrays.
        infos: for each batch, the TrajInfos of the episodes that ended in it.
        evals: for each evaluation, its TrajInfos.
        examples: what `initialize` returned.
    """

    batches: list
    infos: list
    evals: list
    examples: dict


def collect(
    kind,
    agent="recording",
    n_batches=4,
    seed=3,
    bootstrap_value=True,
    evaluate_after=(1,),
    affinity=None,
    rank=0,
    world_size=1,
    **kwargs,
):
    """Collect batches and evaluate after some of them, changing the agent's mode in between as runners do.

    Args:
        kind: a key of KINDS.
        agent: a key of AGENTS, or an agent.
        evaluate_after: numbers of the batches after which an evaluation is run.
        affinity: in place of the kind's.
        kwargs: for `make_sampler`.
    """
    if isinstance(agent, str):
        agent = make_agent(agent, kind)
    sampler = make_sampler(kind, **kwargs)
    examples = sampler.initialize(
        agent,
        affinity=affinity or KINDS[kind].affinity,
        seed=seed,
        bootstrap_value=bootstrap_value,
        traj_info_kwargs=dict(discount=0.5),
        rank=rank,
        world_size=world_size,
    )
    batches, infos, evals = [], [], []
    try:
        for itr in range(n_batches):
            samples, traj_infos = sampler.obtain_samples(itr)
            assert_signals_are_empty(sampler)
            batches.append(buffer_func(numpify_buffer(samples), np.copy))
            infos.append(copy.deepcopy(traj_infos))
            agent.train_mode(itr)
            if itr in evaluate_after:
                evals.append(copy.deepcopy(sampler.evaluate_agent(itr)))
                assert_signals_are_empty(sampler)
    finally:
        sampler.shutdown()
    return Collected(batches, infos, evals, examples)


def collect_in_parts(kind, n_parts=1, agent="recording", n_batches=4, seed=3, bootstrap_value=True, evaluate_after=(1,), **kwargs):
    """As `collect`, with an asynchronous sampler in `n_parts` parts, all of them in this process, one after the other."""
    if isinstance(agent, str):
        agent = make_agent(agent, kind)
    sampler = make_sampler(kind, **kwargs)
    double_buffer, examples = sampler.async_initialize(agent, bootstrap_value, dict(discount=0.5), seed)
    parts = sampler.parts(n_parts)
    batches, infos, evals = [], [], []
    try:
        for part in parts:
            part.agent = copy.copy(agent)
            part.initialize(ASYNC_KINDS[kind].affinity)
        for itr in range(n_batches):
            infos.append([copy.deepcopy(info) for part in parts for info in part.obtain_samples(itr, itr % 2)])
            batches.append(buffer_func(numpify_buffer(double_buffer[itr % 2]), np.copy))
            if itr in evaluate_after:
                evals.append([copy.deepcopy(info) for part in parts for info in part.evaluate_agent(itr)])
    finally:
        for part in parts:
            part.shutdown()
    return Collected(batches, infos, evals, examples)


def assert_signals_are_empty(sampler):
    """No signal is left over that the next batch or evaluation could take for its own."""
    for i, signal in enumerate(getattr(sampler, "signals", ())):
        assert signal.is_empty(), f"signal {i}"


def assert_same(ours, theirs):
    """Everything two samplers handed over is the same: dtypes and values of samples, TrajInfos and their order, evaluations, examples."""
    assert len(ours.batches) == len(theirs.batches)
    for i, (a, b) in enumerate(zip(ours.batches, theirs.batches)):
        assert_same_arrays(a, b, f"batch {i}")
    assert ours.infos == theirs.infos
    assert [[type(info) for info in infos] for infos in ours.infos] == [[type(info) for info in infos] for infos in theirs.infos]
    assert [sorted(map(str, infos)) for infos in ours.evals] == [sorted(map(str, infos)) for infos in theirs.evals]
    assert shapes_and_dtypes(ours.examples) == shapes_and_dtypes(theirs.examples)


def assert_same_arrays(a, b, name):
    if isinstance(a, tuple):
        assert isinstance(b, tuple) and a._fields == b._fields, name
        for field, x, y in zip(a._fields, tuple(a), tuple(b)):
            assert_same_arrays(x, y, f"{name}.{field}")
    elif a is None or b is None:
        assert a is None and b is None, name
    else:
        assert a.dtype == b.dtype, name
        np.testing.assert_array_equal(a, b, err_msg=name)


def shapes_and_dtypes(examples):
    leaves = {name: [np.asarray(leaf) for leaf in buffer_leaves(example)] for name, example in examples.items()}
    return {name: [(leaf.shape, leaf.dtype) for leaf in of_example] for name, of_example in leaves.items()}


def along_time(batches, get):
    """Join one field of all batches along time: ``get(batch)`` is an array ``[T,B,...]``."""
    return np.concatenate([get(batch) for batch in batches])
