"""Runs of all tests end, and name what failed, also when a process of tests dies or hangs where Python cannot interrupt it. A test that
failed fails again, since its random numbers are always the same.
"""

import json
import os
import random
import re
import subprocess
import sys
import time
import zlib
from pathlib import Path

import numpy as np
import preloaded
import pytest
import torch
from tiers import full, processes, thinned

TESTS = """
import ctypes
import os
import signal
import subprocess
import time

import pytest

class Bad:
    def __del__(self):
        raise ValueError("was ignored here")

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def hang():
    mutex, library = ctypes.create_string_buffer(64), ctypes.CDLL(None)
    library.pthread_mutex_lock(mutex)
    library.pthread_mutex_lock(mutex)

@pytest.fixture(scope="session")
def running_cluster():
    pass

def has_run_twice(number):
    with open("processes") as file:
        return sum(line.split()[0] == str(number) for line in file) == 2

@pytest.mark.parametrize("number, end", {with_ray})
def test_with_ray(running_cluster, number, end):
    with open("processes", "a") as file:
        print(number, os.getpid(), os.getppid(), file=file)
    time.sleep(0.2)
    eval(end)

@pytest.mark.parametrize("number", range(30))
def test_something(number):
    if number == 12:
        {other}

def test_wrong():
    assert 1 == 2
"""


def run_tests(directory, with_ray=(("None", 30),) * 5, other="pass", timeout=30, seconds=60):
    """Run tests, and return what became of them.

    Args:
        with_ray: for each test with Ray the expression in which it ends, and its timeout in seconds.
        other: what one of the other tests does.
        timeout: seconds after which another test fails.
        seconds: after which a process of tests dies that Python cannot interrupt.

    Returns:
        What pytest prints until it shows failures, and its last line; number, process and parent of each test with Ray that has started;
        what it writes to stderr.
    """
    case = "pytest.param({}, {!r}, id='{}', marks=pytest.mark.timeout({}))"
    cases = [case.format(number, end, number, patience) for number, (end, patience) in enumerate(with_ray)]
    (directory / "test_some.py").write_text(TESTS.format(with_ray=f"[{', '.join(cases)}]", other=other))
    command = [sys.executable, "-m", "pytest", "-p", "conftest", "-n", "2", "--dist", "loadgroup", "-o", f"faulthandler_timeout={seconds}"]
    command += ["-o", f"timeout={timeout}", "-o", "faulthandler_exit_on_timeout=true", "-o", "addopts=", "--rootdir", directory, directory]
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join([str(Path(__file__).parent), *sys.path]))
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, cwd=directory)
    lines = ended.stdout.splitlines()
    at_once = lines[: next(number for number, line in enumerate(lines) if "FAILURES" in line)]
    assert any("test_some.py::test_wrong (call, 0 s): assert 1 == 2" in line for line in at_once)
    started = [tuple(line.split()) for line in (directory / "processes").read_text().splitlines()]
    return "\n".join(at_once), lines[-1], started, ended.stderr


@full
@processes
@pytest.mark.parametrize("end", thinned(["die", "hang"], quick=["die"]))
def test_other_tests_run_when_a_process_of_tests_dies(end, tmp_path):
    shown, summary, with_ray, stacks = run_tests(tmp_path, other=f"{end}()", timeout=1, seconds=2)
    assert "test_some.py::test_something[12]" in shown and "crashed" in shown
    assert "2 failed, 34 passed" in summary
    assert len(set(parent for *_, parent in with_ray)) == 1, "tests with Ray are those of one process"
    assert (" in hang" in stacks) == (end == "hang")


WITH_RAY = [  # How a test ends, its timeout in seconds, and what is said of it.
    ("None", 30, None),
    ("die()", 30, "ended with exit status -9"),
    ("time.sleep(99)", 1, "Timeout"),
    ("Bad()", 30, "ValueError.*was ignored here"),
    ("subprocess.Popen(['sleep', '60'])", 30, "are left behind"),
    ("hang()", 1, "ended with exit status -9"),
    ("has_run_twice(6) or os.abort()", 30, None),
    ("os.abort()", 30, "ended with exit status -6"),
    ("None", 30, None),
]


@pytest.fixture(scope="module")
def tests_with_ray(tmp_path_factory):
    """What `run_tests` returns for them."""
    return run_tests(tmp_path_factory.mktemp("with_ray"), with_ray=[(end, timeout) for end, timeout, _ in WITH_RAY])


@full
@processes
@pytest.mark.parametrize("number", range(len(WITH_RAY)), ids=[end for end, *_ in WITH_RAY])
def test_what_became_of_a_test_with_ray_is_said(tests_with_ray, number):
    shown, (*_, says) = tests_with_ray[0], WITH_RAY[number]
    assert bool(re.search(rf"test_some.py::test_with_ray\[{number}\]@ray \(call, ", shown)) == (says is not None)
    assert says is None or re.search(rf"test_some.py::test_with_ray\[{number}\]@ray \(call, .*{says}", shown)


@full
@processes
def test_each_test_with_ray_has_a_process_of_its_own(tests_with_ray):
    shown, summary, with_ray, _ = tests_with_ray
    assert "forking.py" not in shown
    assert "7 failed, 33 passed" in summary
    assert len({process for _, process, _ in with_ray}) == len(with_ray) and len({parent for *_, parent in with_ray}) == 1


@full
@processes
def test_a_test_with_ray_that_dies_in_c_code_runs_once_more(tests_with_ray):
    assert [number for number, *_ in tests_with_ray[2]] == ["0", "1", "2", "3", "4", "5", "6", "6", "7", "7", "8"]


@pytest.mark.parametrize("number", [1, 2])
def test_the_random_numbers_of_a_test_are_those_of_its_name(number, request):
    drawn = random.random(), np.random.random(), torch.rand(()).item()
    seed = zlib.crc32(f"{request.function.__name__}[{number}]".encode())
    assert drawn == (
        random.Random(seed).random(),
        np.random.RandomState(seed).rand(),
        torch.rand((), generator=torch.Generator().manual_seed(seed)).item(),
    )


@full
def test_a_script_may_end_before_the_number_of_its_process_is_read(tmp_path):
    script, outputs = tmp_path / "nothing.py", [str(tmp_path / name) for name in ("stdout", "stderr")]
    script.write_text("")
    parent = preloaded._Parent()
    request = dict(args=[str(script)], outputs=outputs, environment=dict(os.environ), cwd=str(tmp_path))
    parent._requests.write(json.dumps(request).encode() + b"\n")
    time.sleep(3)  # Both lines have arrived.
    assert parent._read(60) > 1 and parent.receive(60) == 0
