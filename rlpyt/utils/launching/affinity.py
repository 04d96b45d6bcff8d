"""Affinity: the processors and GPUs of each run that shares a machine, and of each process of a run.

A launch script writes the resources of the machine and of each run in a code for the command line; each run finds its share by its slot::

    code = encode_affinity(n_cpu_core=40, n_gpu=8)              # "40cpu_8gpu": 8 runs at a time
    affinity = affinity_from_code(prepend_run_slot(3, code))    # dict(cuda_idx=3, workers_cpus=((15, 55), (16, 56), ...), ...)

Cores are logical: they are mapped onto the processors that this process may use, with hyperthreads and sockets, and GPUs onto the visible
ones (`rlpyt.utils.launching.machine`). `rlpyt.utils.launching.resources` divides them. A launcher that binds each run to the processors of
its slot passes on the processors of all slots by `launcher_environment`.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Iterable
from dataclasses import fields, replace
from typing import Any

from rlpyt.utils.collections import AttrDict
from rlpyt.utils.completed import Completed
from rlpyt.utils.launching.machine import Core, Machine, cpu_list, parse_cpu_list, read_machine
from rlpyt.utils.launching.resources import Resources, checked_field, processors, workers_processors
from rlpyt.utils.misc import did_you_mean
from rlpyt.utils.processors import allowed_cpus, can_bind_processes
from rlpyt.utils.settings import ANYTHING, COUNT, SEED, STEPS, TEXT, Kind, checked, has

# The code is a list of numbers, each followed by three letters for its meaning: 8gpu_40cpu_2gpr.
N_CPU_CORE = "cpu"
N_GPU = "gpu"
CONTEXTS_PER_GPU = "cxg"
GPU_PER_RUN = "gpr"
CPU_PER_RUN = "cpr"
CPU_PER_WORKER = "cpw"
CPU_RESERVED = "res"
HYPERTHREAD_OFFSET = "hto"
N_SOCKET = "skt"
ASYNC_SAMPLE = "ass"
SAMPLE_GPU_PER_RUN = "sgr"
OPTIM_SAMPLE_SHARE_GPU = "oss"
ALTERNATING = "alt"
SET_AFFINITY = "saf"
RUN_SLOT = "slt"

_FIELDS = {  # In the order of the code.
    N_CPU_CORE: "n_cpu_core",
    N_GPU: "n_gpu",
    CONTEXTS_PER_GPU: "contexts_per_gpu",
    GPU_PER_RUN: "gpu_per_run",
    CPU_PER_RUN: "cpu_per_run",
    CPU_PER_WORKER: "cpu_per_worker",
    CPU_RESERVED: "cpu_reserved",
    HYPERTHREAD_OFFSET: "hyperthread_offset",
    N_SOCKET: "n_socket",
    ASYNC_SAMPLE: "async_sample",
    SAMPLE_GPU_PER_RUN: "sample_gpu_per_run",
    OPTIM_SAMPLE_SHARE_GPU: "optim_sample_share_gpu",
    ALTERNATING: "alternating",
    SET_AFFINITY: "set_affinity",
}
ABBREVS = (*_FIELDS, RUN_SLOT)
_DEFAULTS = {field.name: field.default for field in fields(Resources)}
LAUNCHER_CPUS = "RLPYT_LAUNCHER_CPUS"  # Environment variable, see `launcher_environment`.
MACHINE = has("a Machine", "n_cores", "n_gpu")
CODE = Kind("a text, an affinity code such as encode_affinity() makes", TEXT.test)
AUTO = "auto"  # In place of an affinity, makes a runner use `auto_affinity`.


# ---------------------------------------------------------------------------------------------------------------------
# Codes
# ---------------------------------------------------------------------------------------------------------------------
@checked(dict.fromkeys((*_FIELDS.values(), "run_slot"), ANYTHING))
def encode_affinity(
    n_cpu_core: int = 1,
    n_gpu: int = 0,
    contexts_per_gpu: int = 1,
    gpu_per_run: int = 1,
    cpu_per_run: int = 1,
    cpu_per_worker: int = 1,
    cpu_reserved: int = 0,
    hyperthread_offset: int | None = None,
    n_socket: int | None = None,
    run_slot: int | None = None,
    async_sample: bool = False,
    sample_gpu_per_run: int = 0,
    optim_sample_share_gpu: bool = False,
    alternating: bool = False,
    set_affinity: bool = True,
) -> str:
    """Return the code for the processors and GPUs that runs may use, and for how they use them, e.g. for `run_experiments`.

    Args:
        n_cpu_core: physical processor cores (not hyperthreads) for all runs together.
        n_gpu: GPUs for all runs together.
        contexts_per_gpu: runs that share each GPU.
        gpu_per_run: GPUs on which each run optimizes; with 2 or more, for `SyncRl` or `AsyncRl`.
        cpu_per_run: cores of each run without GPUs.
        cpu_per_worker: cores of each worker process; 1 unless environments have several threads.
        cpu_reserved: cores per optimizing process that no worker gets; at least 1 in asynchronous runs.
        hyperthread_offset: None uses the hyperthreads that the system reports. 0 uses one hyperthread per core (or, if `n_cpu_core`
            exceeds the number of physical cores, counts each hyperthread as a core). A positive number is for systems that do not report
            them: the difference between the numbers of a core's second and first hyperthread.
        n_socket: sockets, which processes straddle only if necessary; None for those that the system reports.
        run_slot: slot of the run; leave it out for `run_experiments`, which fills it in.
        async_sample: the runs are asynchronous (`AsyncRl`).
        sample_gpu_per_run: asynchronous runs: GPUs of each run's action servers; 0 samples without GPUs.
        optim_sample_share_gpu: asynchronous runs: sampling uses the same GPUs as optimization; `sample_gpu_per_run` is ignored.
        alternating: for alternating samplers: twice the workers, which share cores in pairs.
        set_affinity: False leaves processes unbound, e.g. on shared machines. `n_cpu_core` may then exceed the machine's cores.

    Raises:
        TypeError, ValueError: values are out of range or contradict each other.
    """
    values = {name: value for name, value in locals().items() if name != "run_slot"}
    code = _encode(Resources(**values))
    return code if run_slot is None else prepend_run_slot(run_slot, code)


def _encode(resources: Resources) -> str:
    values = {letters: getattr(resources, name) for letters, name in _FIELDS.items()}
    tokens = [(int(value), letters) for letters, value in values.items() if letters == N_CPU_CORE or value != _DEFAULTS[_FIELDS[letters]]]
    return "_".join(f"{value}{letters}" for value, letters in tokens)


@checked(affinity_code=CODE)
def decode_affinity(affinity_code: str) -> dict[str, int]:
    """Return the numbers in a code by their letters, e.g. ``dict(gpu=8, cpu=40)``, without the run slot.

    Raises:
        ValueError: the code is malformed.
    """
    tokens = _tokens(affinity_code)
    tokens.pop(RUN_SLOT, None)
    return tokens


@checked(run_slot=ANYTHING, affinity_code=CODE)
def prepend_run_slot(run_slot: int, affinity_code: str) -> str:
    """Return the code with this run slot, which replaces any other.

    Raises:
        ValueError: the code is malformed, or has no such slot.
    """
    code = remove_run_slot(affinity_code)[1]
    slots = get_n_run_slots(code)
    if not SEED.allows(run_slot) or run_slot >= slots:
        raise ValueError(f"run_slot={run_slot!r} is none of the slots of affinity code {code!r}, which are 0 to {slots - 1}.")
    return f"{int(run_slot)}{RUN_SLOT}_{code}"


@checked(run_slot_affinity_code=CODE)
def remove_run_slot(run_slot_affinity_code: str) -> tuple[int | None, str]:
    """Return the slot of a run, None if the code has none, and the code without it.

    Raises:
        ValueError: the code is malformed.
    """
    slot = _tokens(run_slot_affinity_code).get(RUN_SLOT)
    return slot, run_slot_affinity_code if slot is None else run_slot_affinity_code.partition("_")[2]


@checked(affinity_code=CODE)
def get_n_run_slots(affinity_code: str) -> int:
    """Return the number of simultaneous runs.

    Raises:
        ValueError: the code is malformed.
    """
    return _resources(affinity_code).n_run_slots


@checked(affinity_code=CODE)
def one_run(affinity_code: str) -> tuple[str, int, float]:
    """Return what one of the runs needs: the code of a single run, its cores, and its GPUs, which may be a fraction of one.

    Raises:
        ValueError: the code is malformed.
    """
    all_runs = _resources(remove_run_slot(affinity_code)[1])
    n_cores, n_gpu = all_runs.cores_in_run, all_runs.gpus_in_run
    one_run = replace(
        all_runs, n_cpu_core=n_cores, n_gpu=n_gpu, contexts_per_gpu=1, hyperthread_offset=None, n_socket=None, set_affinity=False
    )
    return _encode(one_run), n_cores, n_gpu / all_runs.contexts_per_gpu if n_gpu == 1 else n_gpu


@checked(run_slot_affinity_code=CODE, machine=MACHINE)
def affinity_from_code(run_slot_affinity_code: str, *, machine: Machine | None = None) -> AttrDict | list[AttrDict]:
    """Return the affinity of a run, for its runner.

    The affinity of a run in one process has ``all_cpus``, ``master_cpus``, ``workers_cpus`` (one group of processors for each worker),
    ``master_torch_threads``, ``worker_torch_threads``, ``alternating``, ``set_affinity``, and ``cuda_idx`` if it has a GPU. A run that
    optimizes on several GPUs has a list of such affinities. An asynchronous run has ``all_cpus``, ``set_affinity``, ``optimizer`` (a list
    of ``cpus``, ``cuda_idx``, ``torch_threads``, ``set_affinity``), and ``sampler`` (like a run in one process, with a ``cuda_idx`` that
    may be None; a list if action servers have GPUs).

    Args:
        run_slot_affinity_code: as `run_experiments` passes it to a train script; without a slot, this is slot 0.
        machine: the usable machine; None for what this process may use.

    Raises:
        ValueError: the code is malformed, or asks for more than the machine has.
    """
    slot = remove_run_slot(run_slot_affinity_code)[0]
    resources = _resources(run_slot_affinity_code)
    if machine is None:
        machine = read_machine(cpus=None if slot is None else _launcher_cpus(), n_gpu=None if resources.n_gpu else 0)
    return resources.affinity(machine, slot or 0)


def launcher_environment() -> dict[str, str]:
    """Return the environment variables that a launcher adds for runs that it binds to the processors of their slots.

    Such a run may use only its own processors, but its `affinity_from_code` has to divide those of the launcher.
    """
    return {LAUNCHER_CPUS: cpu_list(allowed_cpus())} if can_bind_processes() else {}


def _launcher_cpus() -> list[int] | None:
    """The processors that the launcher of this run may use; None without a launcher."""
    cpus = parse_cpu_list(os.environ.get(LAUNCHER_CPUS, ""))
    return cpus if set(allowed_cpus()) <= set(cpus) else None  # Otherwise other code has bound this process.


def make_affinity(run_slot: int = 0, *, machine: Machine | None = None, **kwargs: Any) -> AttrDict | list[AttrDict]:
    """Return the affinity of a run, like `affinity_from_code`, from the arguments of `encode_affinity`.

    Raises:
        TypeError: an argument is unknown, or not a whole number.
        ValueError: values are out of range, contradict each other, or ask for more than the machine has.
    """
    known = list(inspect.signature(encode_affinity).parameters)
    for name in kwargs:
        if name not in known:
            raise TypeError(f"make_affinity() has no argument {name!r}. {did_you_mean(name, known)}")
    code = encode_affinity(**kwargs)
    machine = read_machine(n_gpu=None if _resources(code).n_gpu else 0) if machine is None else machine
    return affinity_from_code(prepend_run_slot(run_slot, code), machine=machine)


def _tokens(code: str) -> dict[str, int]:
    """Return the numbers in a code by their letters, with the slot; raise ValueError if the code is malformed."""
    if not isinstance(code, str) or not code:
        raise ValueError(f"affinity code {code!r} must be a text such as 8{N_CPU_CORE}_2{N_GPU}; encode_affinity() makes one.")
    numbers: dict[str, int] = {}
    for i, token in enumerate(code.split("_")):
        match = re.fullmatch(r"([0-9]+)([A-Za-z]+)", token)
        where = f"affinity code {code!r}: {token!r}"
        if match is None:
            raise ValueError(f"{where} must be a number and three letters, e.g. 4{N_CPU_CORE}.")
        letters = match[2]
        if letters not in ABBREVS:
            raise ValueError(f"{where} has unknown letters. {did_you_mean(letters, ABBREVS)}")
        if letters in numbers:
            raise ValueError(f"{where} comes after another number of {letters!r}.")
        if letters == RUN_SLOT and i > 0:
            raise ValueError(f"{where} must be at the front.")
        numbers[letters] = int(match[1])
    if list(numbers) == [RUN_SLOT]:
        raise ValueError(f"affinity code {code!r} has only a slot: add the resources behind it, e.g. {code}_4{N_CPU_CORE}.")
    return numbers


def _resources(code: str) -> Resources:
    numbers = {_FIELDS[letters]: number for letters, number in decode_affinity(code).items()}
    try:
        return Resources(**numbers)
    except ValueError as error:
        raise ValueError(f"affinity code {code!r}: {error}") from None


# ---------------------------------------------------------------------------------------------------------------------
# Affinities for this machine
# ---------------------------------------------------------------------------------------------------------------------
@checked(n_parallel=ANYTHING, contexts_per_gpu=ANYTHING, machine=MACHINE)
def quick_affinity_code(
    n_parallel: int | None = None, use_gpu: bool = True, contexts_per_gpu: int = 1, *, machine: Machine | None = None
) -> str:
    """Return a code that divides this whole machine among simultaneous runs, each with at most one GPU.

    Processes stay unbound under a cgroup quota (other programs probably use the same processors), with fewer cores than runs, or if the
    system cannot bind them.

    Args:
        n_parallel: simultaneous runs; with GPUs, the greatest number up to this one that gives every GPU equally many runs. None for
            `contexts_per_gpu` runs on each GPU, or without GPUs for one on each processor core.
        use_gpu: use the GPUs, if any.
        contexts_per_gpu: maximum number of runs on each GPU.
        machine: the usable machine; None for what this process may use.

    Raises:
        TypeError: an argument is not a whole number.
        ValueError: `n_parallel` is more than GPUs x `contexts_per_gpu`, or a number is less than 1.
    """
    n_parallel = checked_field("n_parallel", n_parallel, None)
    contexts_per_gpu = checked_field("contexts_per_gpu", contexts_per_gpu, 1)
    machine = read_machine(n_gpu=None if use_gpu else 0) if machine is None else machine
    n_core, n_gpu = machine.n_cores, machine.n_gpu if use_gpu else 0
    shares = machine.can_bind and not machine.is_limited
    if not n_gpu:
        n_parallel = n_core if n_parallel is None else n_parallel
        each = max(n_core // n_parallel, 1)
        return encode_affinity(n_cpu_core=each * n_parallel, cpu_per_run=each, set_affinity=shares and n_parallel <= n_core)
    if n_parallel is not None and n_parallel > n_gpu * contexts_per_gpu:
        raise ValueError(
            f"n_parallel={n_parallel} runs are more than contexts_per_gpu={contexts_per_gpu} on each of {n_gpu} visible GPUs: raise "
            "contexts_per_gpu, or pass use_gpu=False."
        )
    layouts = [(gpu, context) for gpu in range(1, n_gpu + 1) for context in range(1, contexts_per_gpu + 1)]
    possible = [(gpu * context, gpu, context) for gpu, context in layouts if n_parallel is None or gpu * context <= n_parallel]
    n_runs, n_gpu, contexts = max(possible)  # The most runs, and among equal numbers of runs the most GPUs.
    return encode_affinity(n_cpu_core=max(n_core, n_runs), n_gpu=n_gpu, contexts_per_gpu=contexts, set_affinity=shares and n_runs <= n_core)


@checked(n_parallel=COUNT, n_process=STEPS, max_parallel=COUNT, machine=MACHINE)
def auto_affinity(
    n_parallel: int | None = None,
    use_gpu: bool = True,
    n_process: int | None = None,
    async_sample: bool = False,
    set_affinity: bool = False,
    *,
    max_parallel: int | None = None,
    machine: Machine | None = None,
) -> AttrDict | list[AttrDict]:
    """Return an affinity for a single run on this machine; runners use it for ``affinity="auto"``.

    Args:
        n_parallel: worker processes of each sampler; None for one per core, except the cores on which an asynchronous run optimizes: one
            core, or half of them without GPU.
        use_gpu: use the first GPU, if any, and for asynchronous sampling the second one, if any.
        n_process: for `SyncRl`, the number of processes, each with a separate GPU if the machine has GPUs; 0 for one per GPU. The result
            is then a list. None for one process.
        async_sample: for `AsyncRl`.
        set_affinity: bind processes to processors. Several runs on this machine would be bound to the same ones.
        max_parallel: maximum number of worker processes of each sampler if `n_parallel` is None; None for no limit.
        machine: the usable machine; None for what this process may use.

    Raises:
        ValueError: the arguments ask for more than the machine has.
    """
    machine = read_machine(n_gpu=None if use_gpu else 0) if machine is None else machine
    n_gpu = machine.n_gpu if use_gpu else 0
    n_runs = 1 if n_process is None else n_process or max(n_gpu, 1)
    each = machine.n_cores // n_runs
    reserved = 0 if not async_sample else 1 if n_gpu else max(each // 2, 1)
    if n_parallel is None:
        n_parallel = max(min(each - reserved, max_parallel or each), 1)
    sample_gpus = min(n_gpu - 1, 1) if async_sample and n_gpu else 0
    resources = Resources(
        n_cpu_core=n_runs * (n_parallel + reserved),
        cpu_per_run=1 if n_gpu else n_parallel + reserved,
        n_gpu=(n_runs + sample_gpus) if n_gpu else 0,
        cpu_reserved=reserved,
        async_sample=async_sample,
        sample_gpu_per_run=sample_gpus,
        optim_sample_share_gpu=bool(async_sample and n_gpu and not sample_gpus),
        set_affinity=set_affinity,
    )
    affinities: list[Any] = [resources.affinity(machine, slot) for slot in range(n_runs)]
    for affinity in affinities:
        if not machine.is_limited:  # torch and samplers choose better, except under a quota, which they do not see.
            affinity.pop("master_torch_threads", None)
    return affinities[0] if n_process is None else affinities


def for_runner(affinity: Any, sampler: Any, **kwargs: Any) -> Any:
    """Return the affinity of a runner; for "auto", make one for its sampler.

    Args:
        affinity: the runner's argument.
        sampler: the runner's sampler, which gets no more workers than environments.
        kwargs: arguments of `auto_affinity`.

    Raises:
        ValueError: the affinity is another text.
    """
    if not isinstance(affinity, str):
        return affinity
    if affinity != AUTO:
        raise ValueError(f'affinity={affinity!r} must be "{AUTO}" or a dictionary; affinity_from_code() makes one of an affinity code.')
    completed = _CompletedSampler(sampler)
    size = completed.batch_spec
    return auto_affinity(max_parallel=size and size.B and size.B // completed.n_groups, **kwargs)


class _CompletedSampler(Completed):
    """A sampler, which need not be one of ours, with the attributes that limit its number of workers."""

    batch_spec: Any = None  # with the number of environments, B
    n_groups: int = 1  # of workers that step in turn


# ---------------------------------------------------------------------------------------------------------------------
# Functions under their old names
# ---------------------------------------------------------------------------------------------------------------------
# The arguments are named by the letters of the code; `slt` and `run_slot` are the slot.
def build_cpu_affinity(
    slt: int,
    cpu: int,
    cpr: int,
    cpw: int = 1,
    hto: int | None = None,
    res: int = 0,
    skt: int | None = 1,
    gpu: int = 0,
    alt: int = 0,
    saf: int = 1,
) -> AttrDict:
    """Return the affinity of a run without GPU."""
    if gpu:
        raise ValueError(f"gpu={gpu}: build_cpu_affinity() is for runs without GPU.")
    return _build(**locals())


def build_gpu_affinity(
    slt: int,
    gpu: int,
    cpu: int,
    cxg: int = 1,
    cpw: int = 1,
    hto: int | None = None,
    res: int = 0,
    skt: int | None = 1,
    alt: int = 0,
    saf: int = 1,
) -> AttrDict:
    """Return the affinity of a run with one GPU."""
    return _build(**locals())


def build_multigpu_affinity(
    run_slot: int,
    gpu: int,
    cpu: int,
    gpr: int = 1,
    cpw: int = 1,
    hto: int | None = None,
    res: int = 0,
    skt: int | None = 1,
    alt: int = 0,
    saf: int = 1,
) -> list[AttrDict]:
    """Return the affinities of a run that optimizes on several GPUs, one for each."""
    return _as_list(_build(**locals()))


def build_async_affinity(
    run_slot: int,
    gpu: int,
    cpu: int,
    gpr: int = 1,
    sgr: int = 0,
    oss: int = 0,
    cpw: int = 1,
    hto: int | None = None,
    res: int = 1,
    skt: int | None = 1,
    alt: int = 0,
    saf: int = 1,
) -> AttrDict:
    """Return the affinity of an asynchronous run; without GPUs it is the only run and gets all cores."""
    letters = locals()
    if not gpu:
        letters.update(cpr=cpu, gpu=0, gpr=1, sgr=0, oss=0)
    return _build(**letters, ass=1)


def build_affinities_gpu_1cpu_drive(
    slt: int, gpu: int, cpu: int, cxg: int = 1, gpr: int = 1, cpw: int = 1, hto: int | None = None, skt: int | None = 1
) -> list[AttrDict]:
    """Return one affinity for each GPU of a run; one core per GPU drives the GPU and gets no worker."""
    return _as_list(_build(**locals(), res=1))


def _build(slt: int = 0, run_slot: int = 0, **letters: Any) -> Any:
    """Return the affinity of a run in a slot, or a list of them if it optimizes on several GPUs."""
    resources = Resources(**{_FIELDS[name]: value for name, value in letters.items()})
    return resources.affinity(read_machine(n_gpu=None if resources.n_gpu else 0), slt or run_slot)


def _as_list(affinity: AttrDict | list[AttrDict]) -> list[AttrDict]:
    return affinity if isinstance(affinity, list) else [affinity]


def get_n_socket() -> int:
    """Return the number of processor sockets that this process may use."""
    return len(read_machine(n_gpu=0).sockets)


def get_hyperthread_offset() -> int:
    """Return the difference between the numbers of a core's two hyperthreads; 0 if cores have one."""
    cpus = read_machine(n_gpu=0).cores[0].cpus
    return cpus[1] - cpus[0] if len(cpus) > 1 else 0


def get_master_cpus(cores: Iterable[int], hto: int | None) -> tuple[int, ...]:
    """Return the processors of `cores` and their second hyperthreads, numbered `hto` higher; 0 or None for no second ones."""
    return processors(_offset_cores(cores, hto))


def get_workers_cpus(cores: Iterable[int], cpw: int, hto: int | None, alt: int | bool) -> tuple[tuple[int, ...], ...]:
    """Return the processors of each worker, which gets `cpw` of the `cores`, with hyperthreads as in `get_master_cpus`."""
    return workers_processors(_offset_cores(cores, hto), cpw, bool(alt))


def _offset_cores(cores: Iterable[int], hto: int | None) -> list[Core]:
    return [Core((core, core + hto) if hto else (core,)) for core in cores]
