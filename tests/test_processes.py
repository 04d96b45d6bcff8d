"""Runs of all tests end, and name what failed, also when a process of tests dies or hangs where Python cannot interrupt it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tiers import processes

TESTS = """
import ctypes
import os
import signal
import time

import pytest

def hang():
    mutex, library = ctypes.create_string_buffer(64), ctypes.CDLL(None)
    library.pthread_mutex_lock(mutex)
    library.pthread_mutex_lock(mutex)

@pytest.fixture(scope="session")
def running_cluster():
    pass

@pytest.mark.parametrize("number", range(5))
def test_with_ray(running_cluster, number):
    with open("processes", "a") as file:
        print(os.getpid(), file=file)
    time.sleep(0.2)

@pytest.mark.parametrize("number", range(30))
def test_something(number):
    if number == 12:
        {end}

def test_wrong():
    assert 1 == 2
"""


@processes
@pytest.mark.parametrize("end", ["os.kill(os.getpid(), signal.SIGKILL)", "hang()"])
def test_other_tests_run_when_a_process_of_tests_dies(end, tmp_path):
    (tmp_path / "test_some.py").write_text(TESTS.format(end=end))
    command = [sys.executable, "-m", "pytest", "-p", "conftest", "-n", "2", "--dist", "loadgroup", "-o", "faulthandler_timeout=2"]
    command += ["-o", "timeout=1", "-o", "faulthandler_exit_on_timeout=true", "-o", "addopts=", "--rootdir", tmp_path, tmp_path]
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join([str(Path(__file__).parent), *sys.path]))
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, cwd=tmp_path)
    lines = ended.stdout.splitlines()
    assert ended.returncode == 1 and "2 failed, 34 passed" in lines[-1], ended.stdout + ended.stderr
    shown_at_once = lines[: next(number for number, line in enumerate(lines) if "FAILURES" in line)]
    assert any("test_some.py::test_something[12]" in line and "crashed" in line for line in shown_at_once)
    assert any("test_some.py::test_wrong (call, 0 s): assert 1 == 2" in line for line in shown_at_once)
    assert len(set((tmp_path / "processes").read_text().split())) == 1, "tests with a cluster share one"
    assert "in hang" in ended.stderr or "hang" not in end
