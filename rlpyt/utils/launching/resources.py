"""Division of processors and GPUs among equal simultaneous runs, and in each run among its processes.

A run has a *slot*, numbered from 0. Each process of a run that needs separate processor cores is a `Part`. The parts of all slots are
placed at once, so that slots cannot overlap::

    slot 0                        slot 1
    | optimizer | sampler |       | optimizer | sampler |        parts: a number of cores, near a GPU
         |           |                 |           |
    | c0 c1 | c2 c3 c4 c5 c6 c7 | c8 c9 | c10 ...                cores, socket by socket
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from itertools import chain, cycle, islice
from typing import Any

from rlpyt.utils.collections import AttrDict
from rlpyt.utils.launching.machine import Core, Machine
from rlpyt.utils.misc import split_evenly
from rlpyt.utils.settings import FLAG, is_integer, shown

_HIGHEST = 10**6  # Limit for all numbers; no machine has that many of anything.
_LOWEST = dict(n_gpu=0, cpu_reserved=0, hyperthread_offset=0, sample_gpu_per_run=0)  # The lowest other numbers are 1.


@dataclass(frozen=True)
class Part:
    """One or more processes of a run that share no processor core with other parts."""

    n_cores: int
    gpu: int | None = None  # The GPU it uses.
    near_gpu: int | None = None  # If it uses none: the GPU whose socket it should run on.


@dataclass(frozen=True)
class Resources:
    """Processor cores and GPUs for several equal simultaneous runs, and how each run uses its share.

    Runs get equal numbers of whole cores; remaining cores are not used. No two slots share a core. With `contexts_per_gpu`,
    slots share GPUs; the first slots use different ones. Runs on the same GPU get neighbouring cores.

    Fields are the arguments of `rlpyt.utils.launching.affinity.encode_affinity`, which describes them.

    Raises:
        TypeError: a value is not a whole number.
        ValueError: values are out of range or contradict each other.
    """

    n_cpu_core: int = 1
    n_gpu: int = 0
    contexts_per_gpu: int = 1
    gpu_per_run: int = 1
    cpu_per_run: int = 1
    cpu_per_worker: int = 1
    cpu_reserved: int = 0
    hyperthread_offset: int | None = None
    n_socket: int | None = None
    async_sample: bool = False
    sample_gpu_per_run: int = 0
    optim_sample_share_gpu: bool = False
    alternating: bool = False
    set_affinity: bool = True

    def __post_init__(self) -> None:
        for field in fields(self):
            object.__setattr__(self, field.name, checked_field(field.name, getattr(self, field.name), field.default))
        self._check_gpus()
        if self.n_run_slots < 1:
            raise ValueError(f"cpu_per_run={self.cpu_per_run} is more than n_cpu_core={self.n_cpu_core}: no run fits.")
        self._check_cores()

    # Numbers ---------------------------------------------------------------------------------------------------------
    @property
    def gpus_in_run(self) -> int:
        """GPUs of each run, for optimization and for sampling."""
        if not self.n_gpu:
            return 0
        return self.gpu_per_run + (0 if self.optim_sample_share_gpu else self.sample_gpu_per_run)

    @property
    def n_run_slots(self) -> int:
        """Number of simultaneous runs."""
        return self.n_gpu * self.contexts_per_gpu // self.gpus_in_run if self.n_gpu else self.n_cpu_core // self.cpu_per_run

    @property
    def cores_in_run(self) -> int:
        """Cores of each run."""
        return self.n_cpu_core // self.n_run_slots if self.n_gpu else self.cpu_per_run

    @property
    def n_optimizers(self) -> int:
        """Processes of each run that optimize."""
        return self.gpu_per_run if self.n_gpu else 1

    @property
    def n_samplers(self) -> int:
        """Processes of each run that sample, each with its workers."""
        if not self.async_sample:
            return self.n_optimizers
        return self.gpu_per_run if self.optim_sample_share_gpu else self.sample_gpu_per_run or 1

    @property
    def optimizer_cores(self) -> int:
        """Cores of each process that only optimizes."""
        return max(self.cpu_reserved, 1) if self.async_sample else 0

    @property
    def sampler_cores(self) -> int:
        """Cores of each process that samples."""
        return (self.cores_in_run - self.optimizer_cores * self.n_optimizers) // self.n_samplers

    @property
    def workers_cores(self) -> int:
        """Cores of each sampling process for its workers; an error follows if they are too few for one worker."""
        return self.sampler_cores - (0 if self.async_sample else self.cpu_reserved)

    def _check_gpus(self) -> None:
        if not self.async_sample and (self.sample_gpu_per_run or self.optim_sample_share_gpu):
            raise ValueError("sample_gpu_per_run and optim_sample_share_gpu are for asynchronous runs: add async_sample=True.")
        wanted = dict(gpu_per_run=self.gpu_per_run, sample_gpu_per_run=self.sample_gpu_per_run)
        text = ", ".join(f"{name}={value}" for name, value in wanted.items() if value)
        if not self.n_gpu and (self.gpu_per_run > 1 or self.sample_gpu_per_run or self.optim_sample_share_gpu):
            raise ValueError(f"n_gpu=0, but runs are to use GPUs ({text}): give n_gpu, or leave these out.")
        if self.gpus_in_run > self.n_gpu:
            raise ValueError(f"A run takes {self.gpus_in_run} GPUs ({text}), more than n_gpu={self.n_gpu}.")

    def _check_cores(self) -> None:
        if self.workers_cores >= self.cpu_per_worker:
            return
        each = self.cpu_per_worker + (0 if self.async_sample else self.cpu_reserved)
        needed = each * self.n_samplers + self.optimizer_cores * self.n_optimizers
        share = f"n_cpu_core={self.n_cpu_core} for {self.n_run_slots} runs at a time" if self.n_gpu else f"cpu_per_run={self.cpu_per_run}"
        raise ValueError(
            f"{share} leaves {self.cores_in_run} cores for a run, which needs {needed} at least: {self.n_samplers} x {self.cpu_per_worker} "
            f"for workers, the others for optimization or reserved. Raise it; with set_affinity=False it may exceed the machine's cores."
        )

    # Slots -----------------------------------------------------------------------------------------------------------
    def gpus(self, slot: int) -> list[int]:
        """Return the GPUs of a slot."""
        return [(slot * self.gpus_in_run + i) % self.n_gpu for i in range(self.gpus_in_run)]

    def parts(self, slot: int) -> list[Part]:
        """Return the parts of a slot: of an asynchronous run first the optimizing, then the sampling ones; else one per optimizer."""
        gpus: list[int | None] = [*self.gpus(slot)] or [None]
        if not self.async_sample:
            return [Part(self.sampler_cores, gpu) for gpu in gpus]
        sampling = gpus if self.optim_sample_share_gpu else gpus[self.n_optimizers :] or [None]
        optimizers = [Part(self.optimizer_cores, gpu) for gpu in gpus[: self.n_optimizers]]
        return optimizers + [Part(self.sampler_cores, gpu, near_gpu=gpus[0]) for gpu in sampling]

    def affinity(self, machine: Machine, slot: int = 0) -> AttrDict | list[AttrDict]:
        """Return the affinity of the run in `slot`, in the form that runners take.

        Raises:
            ValueError: the slot does not exist, or the machine has too few cores or GPUs.
        """
        if not 0 <= slot < self.n_run_slots:
            raise ValueError(f"There is no run slot {slot}: the slots are 0 to {self.n_run_slots - 1}.")
        if self.n_gpu > machine.n_gpu:
            raise ValueError(
                f"The affinity asks for n_gpu={self.n_gpu}, but {machine.n_gpu} are visible to this process (CUDA_VISIBLE_DEVICES may hide "
                "some, and torch may have been installed without CUDA)."
            )
        sockets = self._sockets(machine)
        slots = sorted(range(self.n_run_slots), key=lambda slot: self.gpus(slot)[:1])
        parts = [self.parts(i) for i in slots]
        homes = [self._home(part, i, machine, sockets) for i, own in zip(slots, parts) for part in own]
        placed = place([part.n_cores for part in chain(*parts)], homes, sockets)
        own, n = slots.index(slot), len(parts[0])
        return self._form(parts[own], placed[own * n : (own + 1) * n])

    def _sockets(self, machine: Machine) -> list[list[Core]]:
        """The usable cores, one list for each socket."""
        cores = self._with_hyperthreads(machine)
        if self.hyperthread_offset == 0:
            singles = [Core(core.cpus[:1], core.socket) for core in cores]
            others = [Core((cpu,), core.socket) for core in cores for cpu in core.cpus[1:]]
            cores = singles if self.n_cpu_core <= len(singles) else singles + others
        if not self.set_affinity and self.n_cpu_core > len(cores):
            return [list(islice(cycle(cores), self.n_cpu_core))]
        if self.set_affinity and self.n_cpu_core > machine.under_quota(len(cores)):
            raise ValueError(
                f"The affinity asks for n_cpu_core={self.n_cpu_core} physical cores, but this process may use {machine.describe_cpus()}. "
                "Ask for fewer, or set_affinity=False: then processes are not bound, and n_cpu_core may be any number."
            )
        names = sorted({core.socket for core in cores})
        if self.n_socket in (None, len(names)):
            return [[core for core in cores if core.socket == name] for name in names]
        return [cores[part.start : part.stop] for part in split_evenly(len(cores), self.n_socket)]

    def _with_hyperthreads(self, machine: Machine) -> list[Core]:
        """The cores that the system reports; paired by `hyperthread_offset` if the system reports no hyperthreads."""
        cores, offset = list(machine.cores), self.hyperthread_offset
        if not offset or machine.has_hyperthreads:
            return cores
        if offset < len(cores):
            seconds = cores[offset : 2 * offset]
            paired = [Core(a.cpus + b.cpus, a.socket) for a, b in zip(cores, seconds)]
            return paired + cores[len(seconds) : offset] + cores[2 * offset :]
        if self.set_affinity:
            raise ValueError(
                f"hyperthread_offset={offset} asks for hyperthreads, but this process may use {machine.describe_cpus()}: leave it out, or "
                "pass 0."
            )
        return cores

    def _home(self, part: Part, slot: int, machine: Machine, sockets: list[list[Core]]) -> int:
        """Index of the preferred socket of `part`: next to its GPU, if known; parts without GPU are spread evenly."""
        gpu = part.near_gpu if part.gpu is None else part.gpu
        if gpu is None:
            return slot * len(sockets) // self.n_run_slots
        near = [i for i, cores in enumerate(sockets) if {core.socket for core in cores} == {machine.gpu_sockets[gpu]}]
        return near[0] if len(near) == 1 else gpu * len(sockets) // self.n_gpu

    # Forms -----------------------------------------------------------------------------------------------------------
    def _form(self, parts: list[Part], placed: list[list[Core]]) -> AttrDict | list[AttrDict]:
        if not self.async_sample:
            affinities = [self._sampling(part, cores) for part, cores in zip(parts, placed)]
            return affinities[0] if self.gpu_per_run == 1 else affinities
        n = self.n_optimizers
        optimizer = [self._optimizing(part, cores) for part, cores in zip(parts[:n], placed[:n])]
        sampler = [self._sampling(part, cores) for part, cores in zip(parts[n:], placed[n:])]
        return AttrDict(
            all_cpus=processors(chain(*placed)),
            optimizer=optimizer,
            sampler=sampler if parts[n].gpu is not None else sampler[0],
            set_affinity=self.set_affinity,
        )

    def _optimizing(self, part: Part, cores: list[Core]) -> AttrDict:
        return AttrDict(cpus=processors(cores), cuda_idx=part.gpu, torch_threads=len(cores), set_affinity=self.set_affinity)

    def _sampling(self, part: Part, cores: list[Core]) -> AttrDict:
        affinity = AttrDict(
            all_cpus=processors(cores),
            master_cpus=processors(cores),
            workers_cpus=workers_processors(cores[len(cores) - self.workers_cores :], self.cpu_per_worker, self.alternating),
            master_torch_threads=len(cores),  # `split_async_affinity` sets 1 in processes that only sample.
            worker_torch_threads=self.cpu_per_worker,
            alternating=self.alternating,
            set_affinity=self.set_affinity,
        )
        if part.gpu is not None or self.async_sample:
            affinity["cuda_idx"] = part.gpu
        return affinity


def place(sizes: Sequence[int], homes: Sequence[int], sockets: list[list[Core]]) -> list[list[Core]]:
    """Give each part its number of cores: in its home socket, else all in another socket, else spread over sockets with free cores.

    Args:
        sizes: cores of each part; their sum must not exceed the number of cores.
        homes: index of the preferred socket of each part.
        sockets: the cores of each socket, which are given out from the front.
    """
    free = [list(cores) for cores in sockets]
    placed: dict[int, list[Core]] = {}

    def take(i: int, socket: int) -> None:
        n = sizes[i] - len(placed.get(i, []))
        placed[i] = placed.get(i, []) + free[socket][:n]
        del free[socket][:n]

    for i, home in enumerate(homes):
        if sizes[i] <= len(free[home]):
            take(i, home)
    for i in range(len(sizes)):
        roomiest = max(range(len(free)), key=lambda socket: len(free[socket]))
        if i not in placed and sizes[i] <= len(free[roomiest]):
            take(i, roomiest)
    for i, home in enumerate(homes):
        for socket in sorted(range(len(free)), key=lambda socket: socket != home):
            if len(placed.get(i, [])) < sizes[i]:
                take(i, socket)
    return [placed[i] for i in range(len(sizes))]


def processors(cores: Iterable[Core]) -> tuple[int, ...]:
    """Return the numbers of all hyperthreads of `cores`, each once: the first one of each core, then the others."""
    cores = list(cores)
    return tuple(dict.fromkeys([core.cpus[0] for core in cores] + [cpu for core in cores for cpu in core.cpus[1:]]))


def workers_processors(cores: Sequence[Core], cpu_per_worker: int, alternating: bool) -> tuple[tuple[int, ...], ...]:
    """Return the processors of each worker: `cpu_per_worker` cores with all their hyperthreads.

    With `alternating`, the first half is for the first group of workers, on the first hyperthread of their cores. The second half is for
    the second group, on the other hyperthreads of the same cores, or on the same hyperthread if a core has only one.
    """
    groups = [cores[i : i + cpu_per_worker] for i in range(0, len(cores) - cpu_per_worker + 1, cpu_per_worker)]
    if not alternating:
        return tuple(processors(group) for group in groups)
    first = [[core.cpus[0] for core in group] for group in groups]
    other = [[cpu for core in group for cpu in core.cpus[1:]] for group in groups]
    second = [b or a for a, b in zip(first, other)]
    return tuple(tuple(dict.fromkeys(group)) for group in first + second)


def checked_field(name: str, value: Any, default: Any) -> Any:
    """Return the value of a field as an int, or as a bool if the default is one; raise TypeError or ValueError if it is not possible."""
    if value is None and default is None:
        return None
    if isinstance(default, bool):
        if not FLAG.allows(value):
            raise ValueError(f"{name}={value!r} must be True or False.")
        return bool(value)
    if not is_integer(value):
        raise TypeError(f"{name}={value!r} must be a whole number{' or None' if default is None else ''}.")
    value, lowest = int(value), _LOWEST.get(name, 1)
    if value < lowest:
        raise ValueError(f"{name}={value} must be at least {lowest}.")
    if value > _HIGHEST:
        raise ValueError(f"{name}={shown(value)} must be at most {_HIGHEST}.")
    return value
