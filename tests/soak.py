"""Does anything grow? Long runs, watched from outside: memory, descriptors, threads, processes, files.

    python tests/soak.py --minutes 20 [--only cpu async] [--interval 5]

The minutes are shared by three runs, one after the other: DQN with prioritized replay on CartPole, with an evaluation (but for the
alternating sampler) and a snapshot, replay included, after each row of the log. From the first row on, the whole family of a run is looked
at every few seconds: the process that was started and all that descend from it. Then the run is told to end by SIGINT. It takes too long
for CI.

Resident memory is the proportional set size, in which a page counts once among all that share it, without the pages of mapped files such
as libraries: those are shared with other programs that come and go. Shared memory is the part of it that processes share. Entries are
counted in a $TMPDIR of the run's own, in its directory, and in /dev/shm, where those count that were not there before the run; other
programs have theirs there, too.

A series is flat if it does not grow by more than 1 % and 2 MB, or one of what is counted, from the end of the warm-up, which is the first
third, to the end of the run. How much it grows is the slope by Theil and Sen (the median of the slopes between all pairs of points) times
the seconds in between: so that a few points out of line, and what comes and goes, do not matter. The exit code is 1 if
anything grows, or is left in $TMPDIR when a run has ended.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import NamedTuple

import psutil

KINDS = ("cpu", "alternating", "async")
WARM_UP = 1 / 3  # Part of a run that is not looked at.
START_SECONDS, END_SECONDS = 120.0, 60.0  # That a run has until the first row of its log, and to end in.


# ---------------------------------------------------------------------------------------------------------------------
# The runs
# ---------------------------------------------------------------------------------------------------------------------
def train(kind: str, directory: str, log_interval_steps: int) -> None:
    """Train until told to end."""
    from rlpyt.agents.dqn.mlp_dqn_agent import MlpDqnAgent
    from rlpyt.algos.dqn.dqn import DQN
    from rlpyt.envs.gym import make
    from rlpyt.runners.async_rl import AsyncRlEval
    from rlpyt.runners.minibatch_rl import MinibatchRl, MinibatchRlEval
    from rlpyt.samplers.async_.cpu_sampler import AsyncCpuSampler
    from rlpyt.samplers.parallel.cpu.sampler import CpuSampler
    from rlpyt.samplers.parallel.gpu.alternating_sampler import AlternatingSampler
    from rlpyt.utils.logging.context import logger_context

    SamplerCls = dict(cpu=CpuSampler, alternating=AlternatingSampler)
    SamplerCls["async"] = AsyncCpuSampler
    evaluates = kind != "alternating"
    settings = dict(eval_n_envs=2, eval_max_steps=400) if evaluates else {}
    sampler = SamplerCls[kind](make, dict(id="CartPole-v1"), batch_T=16, batch_B=8, **settings)
    workers = dict(workers_cpus=[0, 1], set_affinity=False)
    master = dict(optimizer=[dict(torch_threads=1, set_affinity=False)], sampler=workers)
    runner = (AsyncRlEval if kind == "async" else MinibatchRlEval if evaluates else MinibatchRl)(
        algo=DQN(prioritized_replay=True, replay_size=50_000, min_steps_learn=1000, batch_size=32, replay_ratio=1),
        agent=MlpDqnAgent(),
        sampler=sampler,
        n_steps=10**12,
        seed=0,
        log_interval_steps=log_interval_steps,
        affinity=master if kind == "async" else dict(workers, master_torch_threads=1),
        save_replay=True,
    )
    with logger_context(directory, 0, kind, snapshot_mode="last", override_prefix=True):
        runner.train()


# ---------------------------------------------------------------------------------------------------------------------
# What is looked at
# ---------------------------------------------------------------------------------------------------------------------
class Series(NamedTuple):
    """What is counted, or measured in MB, of a run.

    Attributes:
        look: returns the value, given the processes of the run.
        tolerance: how much it may grow; for memory also one percent.
    """

    name: str
    look: Callable[[Sequence[psutil.Process]], float]
    tolerance: float
    unit: str = ""


def all_series(tmpdir: Path, run_dir: Path) -> list[Series]:
    """Return what is looked at of a run with this $TMPDIR and directory."""
    in_shm = set(os.listdir("/dev/shm"))
    return [
        Series("resident memory", lambda family: sum(_memory(process, "Pss_Anon", "Pss_Shmem") for process in family), 2.0, "MB"),
        Series("shared memory", lambda family: sum(_memory(process, "Pss_Shmem") for process in family), 2.0, "MB"),
        Series("descriptors", lambda family: sum(process.num_fds() for process in family), 1),
        Series("threads", lambda family: sum(process.num_threads() for process in family), 1),
        Series("processes", len, 1),
        Series("entries of $TMPDIR", lambda family: _n_entries(tmpdir), 1),
        Series("entries of the run's directory", lambda family: _n_entries(run_dir), 1),
        Series("new entries of /dev/shm", lambda family: len(set(os.listdir("/dev/shm")) - in_shm), 1),
    ]


def _memory(process: psutil.Process, *fields: str) -> float:
    """Fields of the sum over all memory maps of a process, in MB."""
    lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.partition(":")[0] in fields) / 1024


def _n_entries(directory: Path) -> int:
    return sum(len(directories) + len(files) for _, directories, files in os.walk(directory))


def family_of(pid: int) -> list[psutil.Process]:
    """Return a process and all that descend from it; none if it has ended."""
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    return []


# ---------------------------------------------------------------------------------------------------------------------
# What is said about it
# ---------------------------------------------------------------------------------------------------------------------
class Trend(NamedTuple):
    """What became of a series after the warm-up."""

    median: float
    per_hour: float
    growth: float
    is_flat: bool


def trend(times: Sequence[float], values: Sequence[float], tolerance: float, relative: float = 0.0) -> Trend:
    """Return the trend of a series, the warm-up left out.

    Args:
        times: seconds.
        values: at these times.
        tolerance: how much it may grow.
        relative: how much it may grow, in parts of the median, if that is more.
    """
    start = times[0] + WARM_UP * (times[-1] - times[0])
    points = [point for point in zip(times, values) if point[0] >= start]
    slope = median((y - x) / (t - s) for (s, x), (t, y) in combinations(points, 2))
    growth, middle = slope * (points[-1][0] - points[0][0]), median(value for _, value in points)
    return Trend(middle, 3600 * slope, growth, growth < max(tolerance, relative * middle))


def watch(process: subprocess.Popen, series: Sequence[Series], seconds: float, interval: float) -> tuple[list, list[list]]:
    """Look at a run again and again; return the times, and the values of each series at these times."""
    times, values, start = [], [[] for _ in series], time.monotonic()
    while time.monotonic() < start + seconds:
        _wait(process, interval)
        try:
            family = family_of(process.pid)
            looked = [each.look(family) for each in series]
        except (psutil.Error, OSError):  # A process ended just now.
            continue
        times.append(time.monotonic() - start)
        for row, value in zip(values, looked):
            row.append(value)
    return times, values


def _wait(process: subprocess.Popen, seconds: float) -> None:
    time.sleep(seconds)
    if process.poll() is not None:
        raise RuntimeError(f"The run ended by itself, with exit code {process.returncode}.")


def _n_rows(run_dir: Path) -> int:
    """Rows of the log."""
    with suppress(FileNotFoundError):
        return max((run_dir / "progress.csv").read_bytes().count(b"\n") - 1, 0)
    return 0


def soak(kind: str, seconds: float, interval: float, directory: Path, *options: str) -> bool:
    """Do a run, print what became of each series, and return whether all are flat."""
    tmpdir, run_dir = directory / "tmp", directory / "run_0"
    tmpdir.mkdir(parents=True)
    series = all_series(tmpdir, run_dir)
    command = [sys.executable, __file__, "--run", kind, str(directory), *options]
    environment = {**os.environ, "TMPDIR": str(tmpdir), "TORCHINDUCTOR_CACHE_DIR": str(directory / "cache")}  # Which torch keeps.
    with open(directory / "output", "w") as output:
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT)
    try:
        deadline = time.monotonic() + START_SECONDS
        while _n_rows(run_dir) == 0 and time.monotonic() < deadline:
            _wait(process, 0.1)
        times, values = watch(process, series, seconds, interval)
        process.send_signal(signal.SIGINT)
        code = process.wait(END_SECONDS)
        if code != 128 + signal.SIGINT:
            raise RuntimeError(f"The run ended with exit code {code}, not {128 + signal.SIGINT}.")
    except BaseException:
        print((directory / "output").read_text()[-3000:])
        raise
    finally:
        for member in family_of(process.pid):
            with suppress(psutil.Error):
                member.kill()
        process.wait()
    from rlpyt.utils.launching.status import run_status

    print(f"\n{kind}: {seconds:.0f} s, {run_status(run_dir).steps:,} environment steps, {_n_rows(run_dir)} rows of the log")
    print(f"{len(times)} points, those in the first third of the time left out")
    print(f"{'':32}{'median':>10}{'slope per hour':>16}{'grows by':>10}")
    all_flat = True
    for each, row in zip(series, values):
        found = trend(times, row, each.tolerance, 0.01 if each.unit else 0.0)
        all_flat &= found.is_flat
        name = f"{each.name}{', ' * bool(each.unit)}{each.unit}"
        print(f"{name:32}{found.median:10.1f}{found.per_hour:16.2f}{found.growth:10.2f}   {'flat' if found.is_flat else 'NOT FLAT'}")
    print(f"{'left in $TMPDIR in the end':32}{_n_entries(tmpdir):10}", flush=True)
    return all_flat and _n_entries(tmpdir) == 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Soak; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=20, help="of all runs together")
    parser.add_argument("--interval", type=float, default=5, help="seconds between two looks")
    parser.add_argument("--only", nargs="+", choices=KINDS, default=KINDS, help="these runs")
    parser.add_argument("--log_interval_steps", default="4000", help="environment steps between two rows of the log, and two snapshots")
    parser.add_argument("--run", nargs=2, metavar=("KIND", "DIRECTORY"), help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    if args.run:
        train(*args.run, log_interval_steps=int(args.log_interval_steps))
        return 0
    seconds = 60 * args.minutes / len(args.only)
    with tempfile.TemporaryDirectory(prefix="soak_") as directory:
        options = "--log_interval_steps", args.log_interval_steps
        flat = [soak(kind, seconds, args.interval, Path(directory, kind), *options) for kind in args.only]
    return 0 if all(flat) else 1


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    sys.exit(main())
