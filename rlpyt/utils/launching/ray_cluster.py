"""Runs of an experiment on a Ray cluster: each on whichever machine has room for it.

An actor holds the processors and GPUs of a run, and starts its process on the machine where it was placed; the launcher watches and ends
the run through it, as it does with processes of this machine. What a run logs is written by itself, into the directory of the
experiment, which all machines must see under the same path.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from rlpyt.utils.cluster import Cluster, import_ray
from rlpyt.utils.launching.status import identity
from rlpyt.utils.launching.sweep import RunProcess, start_run

_POLL = 0.1  # seconds
_PASSED_ON = ("PYTHONPATH", "OMP_NUM_THREADS", "OMP_WAIT_POLICY")  # Environment variables of the launcher, in place of Ray's own.


class _RunActor:
    """Starts the process of a run, and watches it."""

    def start(self, command: Sequence[str], stdout: str, stderr: str, environment: Mapping[str, str], cwd: str) -> None:
        """Start the process. Its environment is that of the machine, but for what is set here."""
        for name in [*_PASSED_ON, *(name for name in os.environ if name.startswith("RAY_"))]:
            os.environ.pop(name, None)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # Which Ray blocks, and the process would inherit.
        self._process = start_run(command, Path(stdout), Path(stderr), environment=environment, cwd=cwd)

    def wait(self, leftover_grace: float) -> tuple[int | None, str | None]:
        """Wait until the process has ended, and end what it has left behind; return what `RunProcess.finish` does."""
        while not self._process.has_ended():
            time.sleep(_POLL)
        deadline = time.monotonic() + leftover_grace
        while self._process.has_leftovers() and time.monotonic() < deadline:
            time.sleep(_POLL)
        self._process.send(signal.SIGKILL)
        return self._process.finish()

    def send(self, number: int) -> None:
        """Send a signal to the process and all of its group."""
        self._process.send(number)


class RayRunProcess(RunProcess):
    """A run on a Ray cluster, from its launcher's point of view.

    Args:
        command, stdout, stderr, environment, cwd: of its process.
        n_cpus, n_gpus: what it gets.
        leftover_grace: seconds that processes have to end by themselves which it leaves behind.
    """

    fd = None

    def __init__(
        self,
        command: Sequence[str],
        stdout: Path,
        stderr: Path,
        environment: Mapping[str, str],
        cwd: str,
        n_cpus: int,
        n_gpus: float,
        leftover_grace: float,
    ) -> None:
        self._ray = ray = import_ray()
        environment = {**{name: os.environ[name] for name in _PASSED_ON if name in os.environ}, **environment}
        options = dict(num_cpus=n_cpus, num_gpus=n_gpus, max_concurrency=3, scheduling_strategy="SPREAD")
        self._actor = ray.remote(_RunActor).options(**options).remote()
        self._started = self._actor.start.remote(list(command), str(stdout), str(stderr), environment, cwd)
        self._ended: Any = None
        self._leftover_grace = leftover_grace

    def identity(self) -> dict:
        """Facts by which `status.is_alive` recognises the run: those of its launcher, with which it would end."""
        return identity(os.getpid())

    def has_ended(self) -> bool:
        """Whether the process, or the actor, has ended."""
        if self._ended is None:
            if not self._is_here(self._started):
                return False
            self._ended = self._actor.wait.remote(self._leftover_grace)
        return self._is_here(self._ended)

    def send(self, number: int) -> None:
        """Send a signal to the process and all of its group. A run that has no place yet will not begin."""
        if not self._is_here(self._started):
            self._ray.kill(self._actor)
        else:
            self._actor.send.remote(number)

    def has_leftovers(self) -> bool:
        """Nothing is left behind when it has ended: its actor sees to that."""
        return False

    def finish(self) -> tuple[int | None, str | None]:
        """Return the exit code of the process, which has ended, and None; or None and the reason why there is no code."""
        try:
            self._ray.get(self._started)
            return self._ray.get(self._ended)
        except self._ray.exceptions.RayTaskError as error:
            return None, f"It could not be started: {error.cause}"
        except self._ray.exceptions.RayError as error:
            return None, f"Its place in the Ray cluster was lost: {error}"
        finally:
            with suppress(Exception):
                self._ray.kill(self._actor)

    def _is_here(self, ref: Any) -> bool:
        return bool(self._ray.wait([ref], timeout=0)[0])


def count_places(cluster: Cluster, n_cpus: int, n_gpus: float) -> int:
    """Return how many runs with `n_cpus` and `n_gpus` each a cluster has room for.

    Raises:
        ValueError: for none.
    """
    n = 0
    for node in cluster.nodes():
        fitting = [int(node.get(name, 0) / each) for name, each in (("CPU", n_cpus), ("GPU", n_gpus)) if each]
        n += min(fitting)
    if n == 0:
        raise ValueError(f"No machine of the Ray cluster has the {n_cpus} CPUs and {n_gpus:g} GPUs that the affinity code gives each run.")
    return n
