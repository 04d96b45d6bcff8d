"""Affinities are checked and shared out; processes are bound to processors."""

import multiprocessing
import os
import time

import numpy as np
import pytest
from tiers import processes

from rlpyt.utils import processors
from rlpyt.utils.processors import allowed_cpus, busy_processors, check_affinity, set_cpu_affinity, share_processors


@pytest.mark.parametrize(
    "bad, said",
    [
        (dict(worker_cpus=[0]), "Did you mean 'workers_cpus'"),
        (dict(workers_cpus=2), "workers_cpus"),
        (dict(workers_cpus=["a"]), "workers_cpus"),
        (dict(workers_cpus=[]), "workers_cpus"),
        (dict(master_cpus="0"), "master_cpus"),
        (dict(worker_torch_threads=0), "worker_torch_threads"),
        (dict(cuda_idx="0"), "cuda_idx"),
        ([0, 1], "dictionary"),
    ],
)
def test_impossible_affinities_are_refused_by_name(bad, said):
    with pytest.raises(ValueError, match=said):
        check_affinity(bad)


@pytest.mark.parametrize(
    "good", [None, {}, dict(workers_cpus=np.arange(2)), dict(workers_cpus=[(0, 1), [2]], master_cpus=[0], cuda_idx=0, alternating=True)]
)
def test_possible_affinities_are_accepted(good):
    check_affinity(good)


def test_binding_to_processors_that_do_not_exist_is_a_warning_that_names_those_allowed():
    allowed = os.sched_getaffinity(0)
    with pytest.warns(UserWarning, match=rf"\[100000\].*allowed are \[{min(allowed)}"):
        set_cpu_affinity(100_000)
    assert os.sched_getaffinity(0) == allowed


def test_processors_are_shared_unless_all_processes_are_bound_to_others():
    a, b = dict(master_cpus=[0], workers_cpus=[0, (1, 2)]), dict(master_cpus=3, workers_cpus=[4, 5])
    assert not share_processors([a], [b]) and share_processors([a], [b, dict(b, workers_cpus=[2])])
    if 0 in allowed_cpus():
        assert share_processors([a], [dict(b, set_affinity=False)]) and share_processors([a], [dict(workers_cpus=[4])])
    assert share_processors([{}], [{}])
    assert share_processors([dict(workers_cpus=None)], [{}])


def spin(cpu):
    os.sched_setaffinity(0, [cpu])
    end = time.monotonic() + 30
    while time.monotonic() < end:
        pass


@processes
def test_processors_that_others_keep_busy_are_counted(monkeypatch):
    cpus = allowed_cpus()
    spinning = [multiprocessing.get_context("fork").Process(target=spin, args=(cpu,), daemon=True) for cpu in cpus]
    try:
        for process in spinning:
            process.start()
        time.sleep(0.2)
        assert busy_processors(0.5) > len(cpus) - 0.5
    finally:
        for process in spinning:
            process.kill()
            process.join(10)
    monkeypatch.setattr(processors, "_processor_times", lambda: int("no Linux"))
    assert busy_processors(0) == 0
