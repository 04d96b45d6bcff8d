"""rlpyt status."""

import fcntl
import json
import os
import time
from contextlib import suppress
from unittest.mock import ANY

import pytest

from rlpyt.experiment import wrap_experiment
from rlpyt.utils.logging import logger

FINISHED = "time | name_0 itr #9 saved\ntime | name_0 Training complete.\n"
INTERRUPTED = "time | SIGINT: finishing this iteration, then saving.\ntime | name_0 Stopped after iteration 7.\n"
FAILED = "time | name_0 itr #3\nTraceback (most recent call last):\n  File a.py, line 3\nValueError: what went wrong\n"
UNDERWAY = "time | name_0 itr #3 Optimizing over 4 iterations.\n"


def write_run(run_dir, log=None, steps=(), params=None, column="ReturnAverage", age=0):
    run_dir.mkdir(parents=True)
    if log is not None:
        (run_dir / "debug.log").write_text(log)
    if steps:
        lines = [f"Diagnostics/CumSteps,{column}", *(f"{step},{step / 100}" for step in steps)]
        (run_dir / "progress.csv").write_text("\n".join(lines) + "\n")
        written = time.time() - age
        os.utime(run_dir / "progress.csv", (written, written))
    if params is not None:
        (run_dir / "params.json").write_text(json.dumps(params))
    return run_dir


def states(rlpyt, path):
    code, out, err = rlpyt("status", path, "--json")
    assert (code, err) == (0, "")
    return {run["name"].rpartition("/")[2]: run for run in json.loads(out)}


def test_states_are_what_the_files_tell(tmp_path, rlpyt):
    write_run(tmp_path / "run_0", FINISHED, [1000, 2000], dict(runner=dict(n_steps=2500)), age=7200)
    write_run(tmp_path / "run_1", INTERRUPTED, [1000], dict(runner=dict(n_steps=1e6)))
    write_run(tmp_path / "run_2", FAILED)
    write_run(tmp_path / "run_3", UNDERWAY, [500], column="GameScore/Average")
    write_run(tmp_path / "deeper" / "run_10", FINISHED)
    (tmp_path / "deeper" / "run_10" / "FAILED.json").write_text(json.dumps(dict(error="KeyError: 'lr'", exit_code=1)))
    runs = states(rlpyt, tmp_path)
    assert {name: run["state"] for name, run in runs.items()} == dict(
        run_0="finished", run_1="interrupted", run_2="failed", run_3="interrupted", run_10="failed"
    )
    assert (runs["run_0"]["steps"], runs["run_0"]["n_steps"], runs["run_0"]["return_"]) == (2000, 2500, 20.0)
    assert 7200 <= runs["run_0"]["age"] < 7300
    assert (runs["run_1"]["n_steps"], runs["run_2"]["steps"], runs["run_3"]["return_"]) == (1_000_000, None, 5.0)
    assert (runs["run_2"]["error"], runs["run_10"]["error"]) == ("ValueError: what went wrong", "KeyError: 'lr'")


def test_the_table_has_a_line_for_each_run_then_a_summary_and_errors(tmp_path, rlpyt):
    write_run(tmp_path / "run_10", FINISHED, [1000, 200_000], dict(runner=dict(n_steps=200_000)))
    write_run(tmp_path / "run_9", FAILED)
    code, out, _ = rlpyt("status", tmp_path)
    header, _, first, second, _, summary, error = out.splitlines()
    assert code == 0 and header.split() == ["run", "status", "steps", "return", "log"]
    assert first.split() == ["run_9", "failed", str(tmp_path / "run_9")]
    assert second.split() == ["run_10", "finished", "200,000", "2000", str(tmp_path / "run_10")]
    assert summary == "2 runs: 1 finished, 1 failed."
    assert error == "run_9: ValueError: what went wrong"


@pytest.mark.skipif(not os.path.exists("/proc/locks"), reason="Only Linux tells who has locked what.")
def test_a_run_whose_directory_is_locked_is_running(tmp_path, rlpyt):
    run_dir = write_run(tmp_path / "run_0", UNDERWAY, [500])
    descriptor = os.open(run_dir, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        running = states(rlpyt, tmp_path)["run_0"]["state"]
    finally:
        os.close(descriptor)
    assert running == "running" and states(rlpyt, tmp_path)["run_0"]["state"] == "interrupted"


@pytest.mark.parametrize("damage", ["", "[]", "{", "\x00"])
def test_damaged_files_tell_nothing_but_do_no_harm(tmp_path, rlpyt, damage):
    run_dir = write_run(tmp_path / "run_0")
    for name in ("progress.csv", "params.json", "FAILED.json", "debug.log"):
        (run_dir / name).write_text(damage)
    assert states(rlpyt, tmp_path)["run_0"]["state"] == "failed"
    assert rlpyt("status", tmp_path)[0] == 0


def test_an_earlier_error_does_not_count_after_a_good_end(tmp_path, rlpyt):
    write_run(tmp_path / "run_0", FAILED + FINISHED)
    assert states(rlpyt, tmp_path)["run_0"]["state"] == "finished"


def test_runs_of_the_logger_are_understood(trained, rlpyt):
    run_dir = trained("cartpole", "ppo")
    status = states(rlpyt, run_dir)["run_0"]
    assert (status["state"], status["steps"], status["n_steps"]) == ("finished", 256, 256) and status["return_"] > 0


def test_experiments_of_wrap_experiment_are_understood(tmp_path, rlpyt):
    during = []

    def function(ctxt, fails):
        logger.record_tabular("TotalEnvSteps", 70)
        logger.record_tabular("AverageReturn", 1.5)
        logger.dump_tabular()
        during.append(states(rlpyt, tmp_path)[os.path.basename(ctxt.snapshot_dir)]["state"])
        if fails:
            raise KeyError("a fault")
        logger.log("Training complete.")  # As a runner does.

    for fails in (False, True):
        with suppress(KeyError):
            wrap_experiment(function, log_dir=tmp_path / "mine", archive_launch_repo=False)(fails=fails)
    runs = states(rlpyt, tmp_path)
    assert {name: run["state"] for name, run in runs.items()} == dict(mine="finished", mine_1="failed") and during == ["running"] * 2
    assert (runs["mine"]["steps"], runs["mine"]["return_"], runs["mine_1"]["error"]) == (70, 1.5, "KeyError: 'a fault'")
    assert states(rlpyt, tmp_path / "mine") == {"mine": {**runs["mine"], "age": ANY}}


@pytest.mark.parametrize("path", [(), ("..",)])
def test_the_directory_may_be_that_of_a_run_however_it_is_written(tmp_path, rlpyt, monkeypatch, path):
    below = write_run(tmp_path / "run_0", FINISHED, [1000]) / "below"
    below.mkdir()
    monkeypatch.chdir(below if path else below.parent)
    code, out, err = rlpyt("status", *path, "--json")
    assert (code, err) == (0, "") and [(run["name"], run["steps"]) for run in json.loads(out)] == [("run_0", 1000)]


def test_a_directory_without_runs_says_so(tmp_path, rlpyt):
    assert rlpyt("status", tmp_path) == (0, "There are no runs.\n", "")
    code, out, err = rlpyt("status", tmp_path / "none")
    assert (code, out) == (2, "") and err.startswith("rlpyt status: ") and "not a directory" in err
