"""Experiments on a Ray cluster: the same runs, files, states and ends as on this machine."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from tiers import full, processes, ray

from rlpyt.utils.launching.affinity import encode_affinity, one_run
from rlpyt.utils.launching.exp_launcher import rerun_experiments, run_experiments
from rlpyt.utils.launching.status import experiment_status, read_mark

sys.path[:0] = [str(Path(__file__).parent)]
from test_exp_launcher import TRAIN  # noqa: E402

pytestmark = [ray, full, processes, pytest.mark.timeout(180)]
ONE_CPU = encode_affinity(n_cpu_core=1)


@pytest.fixture
def train(tmp_path):
    path = tmp_path / "train & go.py"
    path.write_text(TRAIN)
    return path


def launch(train, exp_dir, address, *dos, affinity_code=ONE_CPU, **kwargs):
    variants, log_dirs = [dict(do=do) for do in dos], [do.replace(" ", "_") for do in dos]
    return run_experiments(train, affinity_code, exp_dir, 1, variants, log_dirs, ray_address=address, **kwargs)


def states(exp_dir):
    return {status.name.split(os.sep)[0]: status for status in experiment_status(exp_dir)}


def calls(exp_dir, do):
    path = exp_dir / do / "run_0" / "calls.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_runs_are_placed_on_the_cluster_and_end_as_they_do_here(train, tmp_path, ray_address, capsys):
    with pytest.raises(SystemExit) as caught:
        launch(train, tmp_path / "exp", ray_address, "short", "fail", "killed", "succeed", common_args=["x y"])
    assert caught.value.code == 1
    found = states(tmp_path / "exp")
    expected = dict(short="finished", fail="failed", killed="failed", succeed="finished")
    assert {name: status.state for name, status in found.items()} == expected
    assert found["fail"].error == "ValueError: this is the reason" and "ended by SIGKILL" in found["killed"].error
    assert found["killed"].exit_code == 128 + signal.SIGKILL
    (call,) = calls(tmp_path / "exp", "succeed")
    assert call["argv"][1:] == ["0slt_1cpu_0saf", str(tmp_path / "exp" / "succeed"), "0", "x y"] and call["resume"] == ""
    assert (tmp_path / "exp" / "succeed" / "run_0" / "stdout.log").read_text() == "to stdout of 0\n"
    out = capsys.readouterr().out
    assert "4 runs, 2 at a time" in out and "rlpyt resume" in out
    with pytest.raises(SystemExit):
        rerun_experiments(tmp_path / "exp")
    assert [len(calls(tmp_path / "exp", do)) for do in ("succeed", "fail")] == [1, 2]


LAUNCH = """
import sys
from rlpyt.utils.launching.exp_launcher import run_experiments
train, exp_dir, address, code, *dos = sys.argv[1:]
if __name__ == "__main__":
    run_experiments(train, code, exp_dir, 1, [dict(do=do) for do in dos], [do.replace(" ", "_") for do in dos], ray_address=address)
"""


def wait_until(is_so, seconds=60):
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def started(exp_dir, *dos):
    return lambda: all(calls(exp_dir, do) for do in dos)


def says(exp_dir, do, text):
    path = exp_dir / do / "run_0" / "stdout.log"
    return path.exists() and text in path.read_text()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_launcher_that_is_interrupted_lets_the_runs_save_and_goes_on_with_them_later(number, train, tmp_path, ray_address):
    exp_dir = tmp_path / "exp"
    command = [sys.executable, "-c", LAUNCH, str(train), str(exp_dir), ray_address, ONE_CPU, "go on", "wait", "succeed"]
    launcher = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    wait_until(lambda: says(exp_dir, "go_on", "waiting") and says(exp_dir, "wait", "waiting"))
    assert read_mark(exp_dir / "wait" / "run_0")[0] == "running"
    launcher.send_signal(number)
    out, _ = launcher.communicate(timeout=100)
    assert launcher.returncode == 128 + number, out
    expected = dict(go_on="interrupted", wait="interrupted", succeed="pending")
    assert {name: status.state for name, status in states(exp_dir).items()} == expected
    assert says(exp_dir, "wait", "saved")
    pids = [call["pid"] for do in ("go_on", "wait") for call in calls(exp_dir, do)]
    assert not any(map(psutil.pid_exists, pids))


def test_runs_end_with_a_launcher_that_is_killed(train, tmp_path, ray_address):
    exp_dir = tmp_path / "exp"
    command = [sys.executable, "-c", LAUNCH, str(train), str(exp_dir), ray_address, ONE_CPU, "stubborn"]
    launcher = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    wait_until(started(exp_dir, "stubborn"))
    (call,) = calls(exp_dir, "stubborn")
    launcher.kill()
    launcher.wait()
    assert read_mark(exp_dir / "stubborn" / "run_0")[0] == "interrupted"
    os.kill(call["pid"], signal.SIGKILL)  # It ignores the SIGTERM that it gets; what it left behind ends by itself.


def test_a_run_whose_place_is_lost_has_failed(train, tmp_path, running_cluster, ray_address):
    exp_dir = tmp_path / "exp"
    command = [sys.executable, "-c", LAUNCH, str(train), str(exp_dir), ray_address, ONE_CPU, "wait"]
    launcher = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    wait_until(started(exp_dir, "wait"))
    for pid, name in running_cluster.actors().items():
        if "_RunActor" in name:
            os.kill(pid, signal.SIGKILL)
    launcher.communicate(timeout=60)
    assert launcher.returncode == 1
    status = states(exp_dir)["wait"]
    assert status.state == "failed" and "Its place in the Ray cluster was lost" in status.error
    wait_until(lambda: not psutil.pid_exists(calls(exp_dir, "wait")[0]["pid"]))


@pytest.mark.parametrize(
    "settings, message",
    [
        (dict(affinity_code=encode_affinity(n_cpu_core=3, cpu_per_run=3)), "No machine of the Ray cluster has the 3 CPUs and 0 GPUs"),
        (dict(affinity_code=encode_affinity(n_cpu_core=1, n_gpu=1)), "1 CPUs and 1 GPUs"),
        (dict(set_egl_device=True), "set_egl_device=True is for runs on this machine"),
    ],
)
def test_what_the_cluster_cannot_do_is_said_before_anything_is_written(settings, message, train, tmp_path, ray_address):
    with pytest.raises(ValueError, match=message):
        launch(train, tmp_path / "exp", ray_address, "succeed", **settings)
    assert not (tmp_path / "exp").exists()


@pytest.mark.parametrize(
    "of_all, of_one",
    [
        (dict(n_cpu_core=8, cpu_per_run=2), ("2cpu_2cpr_0saf", 2, 0)),
        (dict(n_cpu_core=40, n_gpu=8), ("5cpu_1gpu_0saf", 5, 1)),
        (dict(n_cpu_core=8, n_gpu=2, contexts_per_gpu=2), ("2cpu_1gpu_0saf", 2, 0.5)),
        (dict(n_cpu_core=8, n_gpu=4, gpu_per_run=2, n_socket=2), ("4cpu_2gpu_2gpr_0saf", 4, 2)),
    ],
)
def test_what_one_of_several_runs_needs(of_all, of_one):
    assert one_run(encode_affinity(**of_all)) == of_one
