"""Runs of an experiment on a Ray cluster, each on a machine with room for it.

Ray places an actor with the processors and GPUs of a run on a machine, and the actor starts the run's process there. The launcher watches
and ends the run through the actor. The run writes its log itself, into the directory of the experiment, which all machines must see under
the same path.
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
_PASSED_ON = ("PYTHONPATH", "OMP_NUM_THREADS", "OMP_WAIT_POLICY")  # Environment variables of the launcher, which replace Ray's.


class _RunActor:
    """Starts the process of a run, and watches it."""

    def start(self, command: Sequence[str], stdout: str, stderr: str, environment: Mapping[str, str], cwd: str) -> None:
        """Start the process in the environment of the machine, without Ray's variables and with those in `environment`."""
        for name in [*_PASSED_ON, *(name for name in os.environ if name.startswith("RAY_"))]:
            os.environ.pop(name, None)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # Ray blocks SIGINT, and the process would inherit that.
        self._process = start_run(command, Path(stdout), Path(stderr), environment=environment, cwd=cwd)

    def wait(self, leftover_grace: float) -> tuple[int | None, str | None]:
        """Wait until the process has ended, and end its leftover processes; return the result of `RunProcess.finish`."""
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
    """The launcher's handle of a run on a Ray cluster.

    Args:
        command, stdout, stderr, environment, cwd: of its process.
        n_cpus, n_gpus: resources of the run.
        leftover_grace: seconds that its leftover processes have to end by themselves.
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
        """Facts by which `status.is_alive` recognises the run: those of its launcher, because the run ends with it."""
        return identity(os.getpid())

    def has_ended(self) -> bool:
        """Whether the process, or the actor, has ended."""
        if self._ended is None:
            if not self._is_here(self._started):
                return False
            self._ended = self._actor.wait.remote(self._leftover_grace)
        return self._is_here(self._ended)

    def send(self, number: int) -> None:
        """Send a signal to the process and all of its group. A run that has not been placed yet is cancelled."""
        if not self._is_here(self._started):
            self._ray.kill(self._actor)
        else:
            self._actor.send.remote(number)

    def has_leftovers(self) -> bool:
        """Return False: the actor ends all leftover processes before the run counts as ended."""
        return False

    def finish(self) -> tuple[int | None, str | None]:
        """Return the exit code of the ended process, and None; or None and the reason why it has no exit code."""
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
    """Return how many runs with `n_cpus` and `n_gpus` each fit into a cluster.

    Raises:
        ValueError: no run fits.
    """
    n = 0
    for node in cluster.nodes():
        fitting = [int(node.get(name, 0) / each) for name, each in (("CPU", n_cpus), ("GPU", n_gpus)) if each]
        n += min(fitting)
    if n == 0:
        raise ValueError(f"No machine of the Ray cluster has the {n_cpus} CPUs and {n_gpus:g} GPUs that the affinity code gives each run.")
    return n
