"""Connections to a Ray cluster. Those of samplers: tests/samplers/test_ray_batch_sampler.py."""

import signal
import subprocess
import sys

import pytest
from tiers import full, processes, ray

from rlpyt.utils.cluster import Cluster, import_ray

pytestmark = [ray, processes, pytest.mark.timeout(180)]


@full
def test_joining_leaves_the_handling_of_signals_alone(ray_address):
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    cluster = Cluster(ray_address)
    try:
        assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before
        assert cluster.resource("CPU") == 2 and len(cluster.nodes()) == 1
    finally:
        cluster.close()
        cluster.close()


def test_a_cluster_that_does_not_start_in_time_is_started_again(monkeypatch, capsys):
    pytest.importorskip("ray")
    ray, attempts, left = import_ray(), [], []

    def init(**kwargs):
        attempts.append(kwargs)
        left.append(subprocess.Popen([sys.executable, "-c", f"import time  # {ray.__file__}\ntime.sleep(300)"]))
        raise Exception("The current node timed out during startup. This could happen because of this and that.")

    monkeypatch.setattr(ray, "init", init)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with pytest.raises(Exception, match="timed out during startup"):
        Cluster()
    assert len(attempts) == 3 and attempts[0]["address"] == "local" and all(process.poll() is not None for process in left)
    assert "2 of 3 attempts have failed" in capsys.readouterr().out
