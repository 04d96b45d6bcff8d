"""The part of the machine that this process may use: processor cores with hyperthreads and sockets, GPUs, processor time, memory."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from rlpyt.utils import accelerator
from rlpyt.utils.processors import allowed_cpus, can_bind_processes
from rlpyt.utils.text import plural

_GIB = 2**30  # bytes


@dataclass(frozen=True)
class Core:
    """A physical processor core."""

    cpus: tuple[int, ...]  # The system's numbers of the hyperthreads that this process may run on, in ascending order.
    socket: int = 0  # The system's number of the socket.


@dataclass(frozen=True)
class Machine:
    """The part of a machine that this process may use."""

    cores: tuple[Core, ...]  # Ordered by socket, then by number.
    gpu_sockets: tuple[int | None, ...] = ()  # One for each visible GPU: the socket next to it, None if unknown.
    cpu_quota: float | None = None  # Seconds of processor time per second (cgroup); None for no limit.
    memory: int | None = None  # bytes
    can_bind: bool = True  # Whether the system binds processes to processors.

    @property
    def n_gpu(self) -> int:
        """Number of visible GPUs."""
        return len(self.gpu_sockets)

    @property
    def cpus(self) -> tuple[int, ...]:
        """The system's numbers of the processors, including hyperthreads."""
        return tuple(sorted(cpu for core in self.cores for cpu in core.cpus))

    @property
    def sockets(self) -> list[list[Core]]:
        """The cores, socket by socket."""
        numbers = sorted({core.socket for core in self.cores})
        return [[core for core in self.cores if core.socket == number] for number in numbers]

    @property
    def has_hyperthreads(self) -> bool:
        """Whether any core runs more than one thread."""
        return any(len(core.cpus) > 1 for core in self.cores)

    @property
    def n_cores(self) -> int:
        """Number of cores that can be busy all the time: all cores, or fewer under a quota of processor time."""
        return self.under_quota(len(self.cores))

    def under_quota(self, n: int) -> int:
        """Number of `n` processors that the quota lets run all the time; at least 1."""
        return n if self.cpu_quota is None else max(1, min(n, int(self.cpu_quota)))

    @property
    def is_limited(self) -> bool:
        """Whether the quota is less than the processor time of the cores, so that others probably use them, too."""
        return self.n_cores < len(self.cores)

    def describe_cpus(self) -> str:
        """Return the processors in words, e.g. "40 cores (CPUs 0-79, hyperthreads included) in 2 sockets"."""
        text = f"{plural(len(self.cores), 'core')} ({'CPU' if len(self.cpus) == 1 else 'CPUs'} {cpu_list(self.cpus)}"
        text += f"{', hyperthreads included' if self.has_hyperthreads else ''}) in {plural(len(self.sockets), 'socket')}"
        return text + ("" if self.cpu_quota is None else f", with processor time for {self.cpu_quota:.3g} CPUs (cgroup quota)")

    def describe(self) -> str:
        """Return a few lines on processors, GPUs and memory."""
        lines = [f"Processors: {self.describe_cpus()}"]
        if len(self.sockets) > 1:
            for cores in self.sockets:
                cpus = cpu_list(cpu for core in cores for cpu in core.cpus)
                lines.append(f"  socket {cores[0].socket}: {plural(len(cores), 'core')}, CPUs {cpus}")
        if self.has_hyperthreads:
            widest = max(self.cores, key=lambda core: len(core.cpus))
            lines.append(f"  {len(widest.cpus)} hyperthreads per core, e.g. CPUs {cpu_list(widest.cpus)}")
        if not self.can_bind:
            lines.append("  This system does not bind processes to processors.")
        lines.append(f"GPUs: {self.n_gpu or 'none'} visible")
        for socket in sorted({socket for socket in self.gpu_sockets if socket is not None}):
            gpus = [gpu for gpu, near in enumerate(self.gpu_sockets) if near == socket]
            lines.append(f"  next to socket {socket}: {cpu_list(gpus)}")
        if self.memory is not None:
            lines.append(f"Memory: {self.memory / _GIB:.1f} GiB")
        return "\n".join(lines)


def read_machine(
    root: str | os.PathLike = "/",
    cpus: Iterable[int] | None = None,
    n_gpu: int | None = None,
    env: Mapping[str, str] | None = None,
) -> Machine:
    """Return the part of the machine that this process may use, without initializing CUDA.

    On Linux the facts come from /sys and /proc, on other systems from psutil, which does not know sockets.

    Args:
        root: root of the system's files; another root describes another machine.
        cpus: the system's numbers of the usable processors; None for those this process may run on.
        n_gpu: number of visible GPUs; None counts them, which imports torch.
        env: environment variables, whose CUDA_VISIBLE_DEVICES numbers the GPUs; None for those of this process.
    """
    root = Path(root)
    can_bind = cpus is not None or can_bind_processes()
    if (root / "sys/devices/system/cpu").is_dir() or cpus is not None:
        cores = _linux_cores(root, allowed_cpus() if cpus is None else cpus)
    elif can_bind:
        cores = [Core((cpu,)) for cpu in allowed_cpus()]
    else:
        cores = _counted_cores()
    n_gpu = accelerator.count() if n_gpu is None else n_gpu
    return Machine(
        cores=tuple(sorted(cores, key=lambda core: (core.socket, core.cpus))),
        gpu_sockets=tuple(_gpu_sockets(root, n_gpu, cores, os.environ if env is None else env)),
        cpu_quota=_cpu_quota(root),
        memory=_memory(root),
        can_bind=can_bind,
    )


def cpu_list(cpus: Iterable[int]) -> str:
    """Return processor numbers in the system's notation, e.g. "0-3,8"."""
    runs: list[list[int]] = []
    for cpu in sorted(set(cpus)):
        if runs and cpu == runs[-1][-1] + 1:
            runs[-1].append(cpu)
        else:
            runs.append([cpu])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def parse_cpu_list(text: str) -> list[int]:
    """Return the processor numbers in a list in the system's notation: the inverse of `cpu_list`."""
    cpus: list[int] = []
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        cpus.extend(range(int(first), int(last or first) + 1))
    return cpus


# ---------------------------------------------------------------------------------------------------------------------
# Readers
# ---------------------------------------------------------------------------------------------------------------------
def _read(path: Path) -> str | None:
    """Return the text of a system file, or None without the file."""
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return None


def _linux_cores(root: Path, cpus: Iterable[int]) -> list[Core]:
    cpus = set(cpus)
    cores = set()
    for cpu in cpus:
        topology = root / f"sys/devices/system/cpu/cpu{cpu}/topology"
        siblings = {cpu, *parse_cpu_list(_read(topology / "thread_siblings_list") or "")}
        socket = max(int(_read(topology / "physical_package_id") or 0), 0)  # -1 if the system does not know.
        cores.add(Core(tuple(sorted(siblings & cpus)), socket))
    return list(cores)


def _counted_cores() -> list[Core]:
    """Cores of a system that reports only how many it has. Such systems do not bind processes, so the numbers need not be the system's."""
    import psutil

    n_cpus = psutil.cpu_count() or os.cpu_count() or 1
    n_cores = psutil.cpu_count(logical=False) or n_cpus
    return [Core(tuple(range(i, n_cpus, n_cores))) for i in range(min(n_cores, n_cpus))]


def _gpu_sockets(root: Path, n_gpu: int, cores: list[Core], env: Mapping[str, str]) -> list[int | None]:
    """The socket next to each of `n_gpu` visible GPUs, in the order of torch's numbers."""
    folder = root / "proc/driver/nvidia/gpus"
    known = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []  # In PCI bus order, like CUDA's numbers.
    addresses: list[str | None] = [*known]
    visible = env.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        uuids = {address: _uuid(_read(folder / address / "information") or "") for address in known}
        addresses = [_named_gpu(name.strip(), uuids) for name in visible.split(",")]
    if len(addresses) != n_gpu:
        return [None] * n_gpu
    return [_socket_next_to(root, address, cores) for address in addresses]


def _uuid(information: str) -> str:
    """The UUID in the driver's information about a GPU; "" if missing."""
    for line in information.splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "GPU UUID":
            return value.strip()
    return ""


def _named_gpu(name: str, uuids: dict[str, str]) -> str | None:
    """The address of the GPU for an entry of CUDA_VISIBLE_DEVICES, a number or the beginning of a UUID; None if unknown."""
    if name.isdecimal():
        return list(uuids)[int(name)] if int(name) < len(uuids) else None
    matches = [address for address, uuid in uuids.items() if name and uuid.startswith(name)]
    return matches[0] if len(matches) == 1 else None


def _socket_next_to(root: Path, address: str | None, cores: list[Core]) -> int | None:
    text = None if address is None else _read(root / "sys/bus/pci/devices" / address.lower() / "local_cpulist")
    near = set(parse_cpu_list(text or ""))
    sockets = {core.socket for core in cores if near & set(core.cpus)}
    return sockets.pop() if len(sockets) == 1 else None


def _cgroup_values(root: Path, controller: str, v2: str, v1: tuple[str, ...]) -> Iterator[list[str]]:
    """Yield the limits of this process's control group and of those above it, from files `v2` (cgroup version 2) or `v1`."""
    for line in (_read(root / "proc/self/cgroup") or "0::/").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        mounts = (controllers, controller) if controllers else ("", "unified")
        for mount in dict.fromkeys(mounts):
            parts = [part for part in PurePosixPath(path).parts if part not in ("/", "..")]
            for depth in range(len(parts) + 1):
                folder = root.joinpath("sys/fs/cgroup", mount, *parts[:depth])
                texts = [_read(folder / name) for name in (v1 if controllers else (v2,))]
                if all(texts):
                    yield " ".join(text or "" for text in texts).split()


def _cpu_quota(root: Path) -> float | None:
    """Seconds of processor time per second: the lowest limit; None without one."""
    limits = _cgroup_values(root, "cpu", "cpu.max", ("cpu.cfs_quota_us", "cpu.cfs_period_us"))
    return min((int(quota) / int(period) for quota, period in limits if quota not in ("max", "-1")), default=None)


def _memory(root: Path) -> int | None:
    """Bytes of memory, or the lowest limit on it."""
    limits = _cgroup_values(root, "memory", "memory.max", ("memory.limit_in_bytes",))
    sizes = [int(limit) for (limit,) in limits if limit != "max"]
    for line in (_read(root / "proc/meminfo") or "").splitlines():
        if line.startswith("MemTotal:"):
            sizes.append(int(line.split()[1]) * 1024)
            break
    else:
        import psutil

        sizes.append(psutil.virtual_memory().total)
    return min(sizes, default=None)
