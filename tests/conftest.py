"""Lets tests, and the processes they spawn, import what lies directly under tests/ (``import envs``), and functions of test modules."""

import signal
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
sys.path[:0] = [str(TESTS), str(TESTS.parent)]

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # As a job in the background is started: but tests press Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def running_cluster():
    """A Ray cluster of two CPUs, the same for all tests."""
    from ray_clusters import RunningCluster

    cluster = RunningCluster()
    yield cluster
    assert not cluster.close(), "processes of Ray are left behind"


@pytest.fixture
def ray_address(running_cluster):
    """Address of that cluster, on which no actor is left behind."""
    yield running_cluster.address
    assert not running_cluster.wait_until_idle(), "actors are left behind"
