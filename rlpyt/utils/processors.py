"""The processors of a process: which ones it may use, and which ones the affinity of a run gives to each of its processes.

An affinity is a dictionary with keys from `AFFINITY_KEYS`. `rlpyt.utils.launching.affinity` turns codes for several runs that share a
machine into affinities.
"""

from __future__ import annotations

import numbers
import os
import time
import warnings
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from rlpyt.utils import accelerator
from rlpyt.utils.logging.context import runs_may_start
from rlpyt.utils.misc import did_you_mean
from rlpyt.utils.settings import is_integer

AFFINITY_KEYS = (
    "all_cpus",
    "master_cpus",
    "workers_cpus",
    "master_torch_threads",
    "worker_torch_threads",
    "alternating",
    "set_affinity",
    "cuda_idx",
)


def check_affinity(affinity: Any) -> None:
    """Raise ValueError if `affinity` is not possible for a run with one process and its sampler's workers.

    `check_gpus` checks whether its GPU exists.
    """
    if affinity is None:
        return
    if not isinstance(affinity, dict):
        raise ValueError(f"affinity={affinity!r} must be a dictionary, e.g. dict(workers_cpus=[0, 1], cuda_idx=None), or None.")
    for key, value in affinity.items():
        if key not in AFFINITY_KEYS:
            raise ValueError(f"affinity has the unknown key {key!r}. {did_you_mean(key, AFFINITY_KEYS)}")
        if value is None or key in ("alternating", "set_affinity"):
            continue
        if key == "workers_cpus":
            entries = list(value) if isinstance(value, (Sequence, np.ndarray)) and not isinstance(value, str) else []
            if not entries or not all(_is_cpus(entry) for entry in entries):
                raise ValueError(f"affinity['workers_cpus']={value!r} must list one processor number, or group of them, per worker.")
        elif key in ("all_cpus", "master_cpus"):
            if not _is_cpus(value):
                raise ValueError(f"affinity[{key!r}]={value!r} must be a processor number or a list of them.")
        elif not is_integer(value, lowest=0 if key == "cuda_idx" else 1):
            lowest = "a GPU number from 0" if key == "cuda_idx" else "a number of threads, at least 1"
            raise ValueError(f"affinity[{key!r}]={value!r} must be {lowest}, or None.")


def check_gpus(affinities: Iterable[dict | None]) -> None:
    """Raise ValueError if the affinity of a process names a GPU that does not exist, before any process starts.

    Code that only inspects a run, perhaps on another computer, gets no error.

    Args:
        affinities: one per process, in the form that `check_affinity` describes.
    """
    wanted = [each["cuda_idx"] for each in affinities if each and each.get("cuda_idx") is not None]
    if not wanted or not runs_may_start():
        return
    n = accelerator.count()
    if max(wanted) >= n:
        why = accelerator.why_not_more()
        seen = {0: "no GPU is", 1: "only GPU 0 is"}.get(n, f"only GPUs 0 to {n - 1} are")
        raise ValueError(f"cuda_idx={max(wanted)} is not possible: {seen} visible to this process ({why}). None is for the CPU.")


_OF_OPTIMIZER = dict(cpus="master_cpus", torch_threads="master_torch_threads", cuda_idx="cuda_idx", set_affinity="set_affinity")


def split_async_affinity(affinity: Any) -> tuple[list[dict], list[dict]]:
    """Return the affinities of the optimizing processes and of the sampling processes, in the form that `check_affinity` describes.

    A sampling process that shares processors with its workers, as in affinities made from codes, leaves them to the workers: it uses one
    torch thread and ignores ``master_torch_threads``.

    Args:
        affinity: of an asynchronous run: ``optimizer`` (a list with one dictionary for each process: ``cpus``, ``cuda_idx``,
            ``torch_threads``, ``set_affinity``), ``sampler`` (a dictionary, or a list of them for several sampling processes),
            ``all_cpus``, ``set_affinity``; all optional. Or the affinity of a run with one process, without ``optimizer`` and ``sampler``:
            the optimizing process gets all of it, the sampling process all but the ``master_`` keys.

    Raises:
        ValueError: the affinity has another form.
    """
    affinity = {} if affinity is None else affinity
    if not isinstance(affinity, dict) or not {"optimizer", "sampler"} & set(affinity):
        check_affinity(affinity)
        return [affinity], [{name: value for name, value in affinity.items() if not name.startswith("master_")}]
    unknown = set(affinity) - {"optimizer", "sampler", "all_cpus", "set_affinity"}
    if unknown:
        raise ValueError(f"affinity of an asynchronous run has the unknown keys {sorted(unknown)}: it has optimizer and sampler.")
    parts = []
    for name in ("optimizer", "sampler"):
        given = affinity.get(name, {})
        given = [given] if isinstance(given, dict) else given
        if not isinstance(given, (list, tuple)) or not given or not all(isinstance(each, dict) for each in given):
            raise ValueError(f"affinity[{name!r}]={given!r} must be a dictionary for one process, or a list of them for several.")
        parts.append([{**{key: affinity[key] for key in ("set_affinity",) if key in affinity}, **each} for each in given])
    optimizers = [{_OF_OPTIMIZER.get(key, key): value for key, value in each.items()} for each in parts[0]]
    for each in (*optimizers, *parts[1]):
        check_affinity(each)
    return optimizers, [{**each, "master_torch_threads": 1} if _workers_run_where_master_does(each) else each for each in parts[1]]


def _workers_run_where_master_does(affinity: dict) -> bool:
    """Return whether an affinity names the master's processors, and a worker has one of the same."""
    master, workers = affinity.get("master_cpus"), affinity.get("workers_cpus")
    return master is not None and workers is not None and not _cpus_of([master]).isdisjoint(_cpus_of(workers))


def share_processors(some: list[dict], others: list[dict]) -> bool:
    """Return whether processes with affinities of both lists may run on the same processor."""
    ours, theirs = (set().union(*(_processors(affinity) for affinity in affinities)) for affinities in (some, others))
    return bool(ours & theirs)


def _processors(affinity: dict) -> set[int]:
    """Return the processors on which an affinity's processes may run: all, unless master and workers are bound."""
    of_workers = affinity.get("workers_cpus")
    groups = [affinity.get("master_cpus"), *(() if of_workers is None else of_workers)]
    if not affinity.get("set_affinity", True) or any(cpus is None for cpus in groups):
        return set(allowed_cpus())
    return _cpus_of(groups)


def _cpus_of(groups: Iterable) -> set[int]:
    """Return all processors of these groups; a group is a number, a collection of numbers, or None for no processors."""
    return {int(cpu) for cpus in groups if cpus is not None for cpu in ([cpus] if isinstance(cpus, numbers.Integral) else cpus)}


def _is_cpus(value: Any) -> bool:
    """Return whether `value` is None (unbound), a processor number, or a group of them."""
    if isinstance(value, (list, tuple, range, set, np.ndarray)):
        return len(value) > 0 and all(is_integer(cpu, lowest=0) for cpu in value)
    return value is None or is_integer(value, lowest=0)


def allowed_cpus() -> list[int]:
    """Return the processors this process may run on."""
    if can_bind_processes():
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def can_bind_processes() -> bool:
    """Return whether the system lets processes choose their processors."""
    return hasattr(os, "sched_setaffinity")


def busy_processors(seconds: float = 0.05) -> float:
    """Return how many of the allowed processors are busy while this process sleeps for `seconds`; 0 if the system does not tell."""
    try:
        before = _processor_times()
        time.sleep(seconds)
        after = _processor_times()
    except (OSError, ValueError):
        return 0.0
    spans = [np.subtract(after[cpu], before[cpu]) for cpu in allowed_cpus() if cpu in before and cpu in after]
    return float(sum(1 - idle / total for idle, total in spans if total > 0))


def _processor_times() -> dict[int, tuple[int, int]]:
    """Return each processor's idle time and total time so far, in clock ticks of Linux."""
    times = {}
    for line in Path("/proc/stat").read_text().splitlines():
        name, *values = line.split()
        if name.startswith("cpu") and name != "cpu":
            ticks = [int(value) for value in values[:8]]  # user, nice, system, idle, iowait, irq, softirq, steal
            times[int(name[3:])] = ticks[3] + ticks[4], sum(ticks)
    return times


def set_cpu_affinity(cpus: Any) -> None:
    """Bind this process to processors (one number or several); warn if the system refuses."""
    cpus = [int(cpus)] if isinstance(cpus, numbers.Integral) else [int(cpu) for cpu in cpus]
    if not can_bind_processes():
        return
    try:
        os.sched_setaffinity(0, cpus)
    except (OSError, ValueError) as error:
        warnings.warn(
            f"Could not bind process {os.getpid()} to processors {cpus} ({error}); allowed are {allowed_cpus()}. It runs unbound. "
            "affinity=dict(..., set_affinity=False) avoids this warning.",
            stacklevel=2,
        )


def bind_master(affinity: dict) -> None:
    """Bind this process to ``affinity["master_cpus"]``, if given and ``set_affinity`` is not False.

    Call it after its workers have started: unbound workers would inherit the binding.
    """
    if affinity.get("set_affinity", True) and affinity.get("master_cpus") is not None:
        set_cpu_affinity(affinity["master_cpus"])


def yield_to_waker() -> None:
    """Keep this process, when woken, from preempting the process that wakes it.

    For workers of an action server: otherwise the first worker would step its environments before the server has woken the next one.
    """
    with suppress(OSError, AttributeError):  # Only Linux has it.
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
