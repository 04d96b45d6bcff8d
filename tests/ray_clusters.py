"""A Ray cluster of two CPUs, in processes of their own: importable as ``ray_clusters`` here."""

import os
import subprocess
import sys
import time

import psutil
import pytest

from rlpyt.utils.cluster import import_ray

# Ends, with all it has started, when its standard input does: also if the tests are killed. It is no descendant of theirs, among which
# other tests look for what they have left behind.
_HOLDER = """
import os, sys
if os.fork():
    os._exit(0)
import ray
from ray_preloaded import forking_workers

with forking_workers():
    context = ray.init(address="local", num_cpus={n_cpus}, include_dashboard=False, object_store_memory=200_000_000, log_to_driver=False,
        logging_level="ERROR", resources={{"slot": 2}})
    print("address", context.address_info["gcs_address"], os.getpid(), flush=True)
    sys.stdin.read()
    ray.shutdown()
"""


class RunningCluster:
    """A local Ray cluster that tests join, as they would join one of many machines. Without Ray, they are skipped.

    Attributes:
        address: where it is.
    """

    def __init__(self, n_cpus=2):
        pytest.importorskip("ray")
        script = _HOLDER.format(n_cpus=n_cpus)
        os.environ["RAY_AUTH_MODE"] = "disabled"  # Here and in all processes: nobody else can reach it.
        environment = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path), PYTHONWARNINGS="ignore")
        self.process = subprocess.Popen(
            [sys.executable, "-c", script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            start_new_session=True,
        )
        for line in self.process.stdout:
            if line.startswith("address"):
                self.address, pid = line.split()[1:]
                self.holder = psutil.Process(int(pid))
                return
        raise RuntimeError(f"No Ray cluster could be started; it ended with {self.process.wait()}.")

    def processes(self):
        """All processes of the cluster, by pid: the command line of each."""
        found = {}
        for process in self.holder.children(recursive=True):
            try:
                found[process.pid] = " ".join(process.cmdline())
            except psutil.Error:
                pass
        return found

    def actors(self):
        """Processes of sampling actors and of runs."""
        return {pid: name for pid, name in self.processes().items() if name.startswith("ray::") and "Actor" in name}

    def wait_until_idle(self, seconds=20):
        """Return the actors that still exist, at the latest after so many seconds."""
        deadline = time.monotonic() + seconds
        while self.actors() and time.monotonic() < deadline:
            time.sleep(0.1)
        return self.actors()

    def close(self):
        """End it; return the processes that it leaves behind."""
        pids = list(self.processes())
        self.process.stdin.close()
        self.process.wait(30)
        psutil.wait_procs([self.holder], 30)
        try:
            self.holder.kill()
        except psutil.NoSuchProcess:
            pass
        deadline = time.monotonic() + 20
        while any(map(psutil.pid_exists, pids)) and time.monotonic() < deadline:
            time.sleep(0.1)
        return [pid for pid in pids if psutil.pid_exists(pid)]


def lose(sampler, rank):
    """End an actor, and wait until it has gone."""
    ray, actor = import_ray(), sampler._running_pool().actors[rank]
    ray.kill(actor)
    with pytest.raises(ray.exceptions.RayActorError):
        while True:
            ray.get(actor.where.remote())
