"""The state of runs, as their files tell it."""

import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tiers import processes

from rlpyt.utils.launching.exp_launcher import Experiment
from rlpyt.utils.launching.status import (
    RunStatus,
    both_ends,
    error_in,
    experiment_status,
    format_seconds,
    format_status,
    from_first_traceback,
    identity,
    last_lines,
    last_row,
    mark,
    marked,
    print_status,
    read_mark,
    run_status,
    touch,
)
from rlpyt.utils.logging import logger
from rlpyt.utils.logging.context import logger_context, sole_writer


@pytest.fixture
def run_dir(tmp_path):
    path = tmp_path / "setting" / "run_0"
    path.mkdir(parents=True)
    return path


# --- Marks -------------------------------------------------------------------------------------------------------------
def test_a_run_has_one_state_at_a_time(run_dir):
    assert read_mark(run_dir) == ("pending", {})
    mark(run_dir, "running", **identity(os.getpid()))
    assert read_mark(run_dir)[0] == "running"
    mark(run_dir, "failed", error="a reason", exit_code=3)
    assert read_mark(run_dir) == ("failed", dict(error="a reason", exit_code=3))
    mark(run_dir, "finished", exit_code=0)
    assert read_mark(run_dir) == ("finished", dict(exit_code=0)) and [path.name for path in run_dir.iterdir()] == ["FINISHED.json"]


def test_of_two_states_that_a_crash_has_left_the_newer_one_counts(run_dir):
    for i, name in enumerate(("FINISHED.json", "INTERRUPTED.json")):
        (run_dir / name).write_text("{}")
        os.utime(run_dir / name, ns=(i, i))
    assert read_mark(run_dir) == ("interrupted", {})


@processes
def test_a_run_whose_process_is_gone_was_interrupted(run_dir):
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    mark(run_dir, "running", **identity(process.pid))
    assert read_mark(run_dir)[0] == "running"
    process.communicate(timeout=60)
    assert read_mark(run_dir)[0] == "interrupted"


def test_another_process_with_the_same_number_is_not_taken_for_the_run(run_dir):
    facts = identity(os.getpid())
    mark(run_dir, "running", **dict(facts, process_start=facts["process_start"] - 1000))
    assert read_mark(run_dir)[0] == "interrupted"
    mark(run_dir, "running", **dict(facts, host="another host", pid=2**22 - 1))
    assert read_mark(run_dir)[0] == "running", "it cannot be seen from here"


def test_a_run_on_another_host_is_running_as_long_as_its_mark_is_touched(run_dir):
    mark(run_dir, "running", **dict(identity(os.getpid()), host="another host"))
    os.utime(run_dir / "RUNNING.json", (time.time() - 61,) * 2)
    assert read_mark(run_dir)[0] == "interrupted"
    touch(run_dir)
    assert read_mark(run_dir)[0] == "running"
    mark(run_dir, "running", **identity(os.getpid()))
    os.utime(run_dir / "RUNNING.json", (time.time() - 61,) * 2)
    assert read_mark(run_dir)[0] == "running", "here, its process is seen"


def test_who_holds_the_lock_runs_whatever_is_written(run_dir):
    mark(run_dir, "failed", error="of an earlier attempt", exit_code=1)
    with sole_writer(run_dir, "locked"):
        run = run_status(run_dir)
    assert (run.state, run.error, run.exit_code) == ("running", None, None) or not os.path.exists("/proc/locks")
    assert run_status(run_dir).state == "failed"


def test_touching_needs_no_mark(run_dir):
    touch(run_dir)
    assert not list(run_dir.iterdir())


@pytest.mark.parametrize("damaged", ["", "[1, 2]", "{", '{"pid": "x"}'])
def test_damaged_files_are_no_reason_to_fail(run_dir, damaged):
    for name in ("RUNNING.json", "params.json"):
        (run_dir / name).write_text(damaged)
    assert run_status(run_dir).state == "interrupted"


# --- Logs --------------------------------------------------------------------------------------------------------------
def test_the_last_row_is_that_of_the_logger(run_dir):
    with logger_context(run_dir.parent, 0, "name", dict(runner=dict(n_steps=4e4))):
        assert run_status(run_dir) == RunStatus("run_0", run_dir, "running", n_steps=40_000)
        for steps in (10_000, 20_000):
            with logger.tabular_prefix("Diagnostics/"):
                logger.record_tabular("CumSteps", steps)
            logger.record_tabular_misc_stat("Return", [steps, steps + 2])
            logger.record_tabular('odd, "name"', "text")
            logger.dump_tabular()
        run = run_status(run_dir)
        assert (run.state, run.steps, run.n_steps, run.return_) == ("running", 20_000, 40_000, 20_001) and 0 <= run.age < 60
        logger.log("Training complete.")
    assert run_status(run_dir).state == "finished"


def test_the_score_counts_if_there_is_one(run_dir):
    (run_dir / "progress.csv").write_text("ReturnAverage,GameScoreAverage\n1,20\n")
    assert run_status(run_dir).return_ == 20


@pytest.mark.parametrize(
    "text, row",
    [
        ("", {}),
        ("a,b\n", {}),
        ("a,b\n1,2\n", dict(a=1, b=2)),
        ("a,b\n1,2\n3", dict(a=1, b=2)),  # The last row is being written.
        ("a,b\n1,nan\n", dict(a=1)),
        ("a,b\n1,text\n", dict(a=1)),
        ("a,b\n1\n", dict(a=1)),
        ('"a,x",b\n1,2\n', {"a,x": 1, "b": 2}),
        ("a,b\n" + "1,2\n" * 100_000 + "5,6\n", dict(a=5, b=6)),  # longer than what is read
    ],
)
def test_the_last_complete_row_is_read(run_dir, text, row):
    (run_dir / "progress.csv").write_text(text)
    assert last_row(run_dir)[0] == row
    assert (last_row(run_dir)[1] is None) == (not row)


def test_without_a_log_there_is_no_row(run_dir):
    assert last_row(run_dir) == ({}, None) and last_lines(run_dir / "stderr.log", 3) == []


def test_last_lines_begin_where_they_are_told_to(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(b"before\none\ntwo\n\xff three")
    assert last_lines(path, 2) == ["two", "\ufffd three"] and last_lines(path, 9, start=7) == ["one", "two", "\ufffd three"]


def test_runs_without_a_launcher_are_judged_by_their_log(run_dir):
    with pytest.raises(ZeroDivisionError), logger_context(run_dir.parent, 0, "name"):
        raise ZeroDivisionError("a reason")
    assert run_status(run_dir).state == "failed"
    with pytest.raises(SystemExit), logger_context(run_dir.parent, 1, "name"):
        raise SystemExit(130)
    assert run_status(run_dir.with_name("run_1")).state == "interrupted"
    assert [run.name for run in experiment_status(run_dir.parent)] == ["run_0", "run_1"]
    assert [run.state for run in experiment_status(run_dir)] == ["failed"], "a single run is fine too"


@pytest.mark.parametrize(
    "raised, state, exit_code",
    [
        (None, "finished", 0),
        (SystemExit(130), "interrupted", 130),
        (SystemExit(143), "interrupted", 143),
        (KeyboardInterrupt(), "interrupted", 130),
        (SystemExit(3), "failed", 1),
        (SystemExit(), "failed", 1),
        (ValueError("a reason"), "failed", 1),
    ],
    ids=repr,
)
def test_who_goes_on_with_a_run_marks_how_it_ends(raised, state, exit_code, run_dir):
    mark(run_dir, "interrupted", exit_code=130)
    with contextlib.suppress(BaseException), marked(run_dir):
        assert read_mark(run_dir)[0] == "running"
        if raised is not None:
            raise raised
    assert (read_mark(run_dir)[0], read_mark(run_dir)[1]["exit_code"]) == (state, exit_code)


# --- What was said -----------------------------------------------------------------------------------------------------
TRACEBACK = ["Traceback (most recent call last):", '  File "a.py", line 3, in f', "    g()"]
AFTERWARDS = "[rank0]:[W1122 00:00:00 ProcessGroupNCCL.cpp:1250] Warning: destroy_process_group() was not called"


@pytest.mark.parametrize(
    "lines, error",
    [
        ([], None),
        (["one", "two", ""], "two"),
        ([*TRACEBACK, "ValueError: a reason"], "ValueError: a reason"),
        ([*TRACEBACK, "ValueError: a reason", AFTERWARDS], "ValueError: a reason"),
        ([*TRACEBACK, "ValueError: a reason", "its second line", "Hint: its third"], "ValueError: a reason"),
        (
            [*TRACEBACK, "ValueError: a reason", "This was in environment 2, step 3."],
            "ValueError: a reason This was in environment 2, step 3.",
        ),
        (
            [
                *TRACEBACK,
                "WorkerError: KeyError: 1",
                "This was in a.",
                "Traceback of it:",
                *TRACEBACK,
                "KeyError: 1",
                "more",
                "This was when b.",
            ],
            "KeyError: 1 This was when b.",
        ),
        ([f"[rank0]: {line}" for line in [*TRACEBACK, "KeyError: 1", "This was in a.", "This was in b."]], "KeyError: 1 This was in a."),
        (["This was in a.", *TRACEBACK, "KeyError: 1", AFTERWARDS], "KeyError: 1"),
        ([*TRACEBACK, "KeyboardInterrupt", "bye"], "KeyboardInterrupt"),
        ([*TRACEBACK, "a.b.<locals>.Odd: text"], "a.b.<locals>.Odd: text"),
        ([*TRACEBACK, "KeyError: 1", "", "During handling of the above ...", "", *TRACEBACK, "OSError: 2", AFTERWARDS], "OSError: 2"),
        ([f"[rank0]: {line}" for line in [*TRACEBACK, "ValueError: x"]] + [AFTERWARDS], "ValueError: x"),
        ([*TRACEBACK, "KeyError: 1", "Exception ignored in: <function f>", *TRACEBACK, "TypeError: of no interest"], "KeyError: 1"),
        ([*TRACEBACK, "Segmentation fault, core dumped"], "Segmentation fault, core dumped"),
    ],
)
def test_the_error_is_the_exception_of_the_last_traceback(lines, error):
    assert error_in(lines) == error


def test_of_many_lines_both_ends_are_kept():
    lines = [str(i) for i in range(1000)]
    assert both_ends(lines[:200]) == lines[:200]
    assert both_ends(lines[:201]) == [*lines[:100], "... 1 line left out ...", *lines[101:201]]
    assert both_ends(lines) == [*lines[:100], "... 800 lines left out ...", *lines[-100:]]


def test_what_was_said_counts_from_the_first_traceback_of_this_attempt(tmp_path):
    path = tmp_path / "stderr.log"
    assert from_first_traceback(path) == []
    path.write_text("Traceback (most recent call last)\nKeyError: earlier\n")
    start = path.stat().st_size
    with open(path, "ab") as file:
        file.write(b"a warning\n\xff progress\rTraceback (most recent call last):\n  File\nOSError: now\n" + b"x" * 10**6)
    lines = from_first_traceback(path, start)
    assert lines[:3] == ["Traceback (most recent call last):", "  File", "OSError: now"] and len(lines[3]) == 1000 and len(lines) == 4
    path.write_text("\n".join(str(i) for i in range(1000)))
    assert from_first_traceback(path) == [str(i) for i in range(900, 1000)]


# --- Experiments -------------------------------------------------------------------------------------------------------
def test_planned_runs_are_pending_and_those_found_besides_are_there_too(tmp_path):
    experiment = Experiment("train.py", "1cpu", [2, 2], [{}, {}], ["a", "b/c"], [], [[], []], False, "/")
    exp_dir = tmp_path / "2026" / "title"
    for name in ("b/c/run_0", "b/c/run_7", "run_no_run"):
        (exp_dir / name).mkdir(parents=True)
    (exp_dir / "experiment.json").write_text(json.dumps(vars(experiment)))
    mark(exp_dir / "b/c/run_0", "finished", exit_code=0)
    (exp_dir / "b/c/run_7" / "progress.csv").write_text("Diagnostics/CumSteps\n5\n")
    expected = [("a/run_0", "pending"), ("b/c/run_0", "finished"), ("a/run_1", "pending"), ("b/c/run_1", "pending")]
    expected += [("b/c/run_7", "interrupted")]
    assert [(run.name, run.state) for run in experiment_status(exp_dir)] == expected
    assert [run.name for run in experiment_status(tmp_path)] == [f"2026/title/{name}" for name, _ in expected]
    (exp_dir / "experiment.json").write_text(json.dumps(dict(vars(experiment), runs_per_setting=2)))
    assert [(run.name, run.state) for run in experiment_status(exp_dir)] == expected, "one number is for all settings"


def test_damaged_experiments_have_the_runs_that_are_found(tmp_path):
    (tmp_path / "run_0").mkdir()
    mark(tmp_path / "run_0", "finished")
    for damaged in ("", "[]", '{"runs_per_setting": 2}', '{"runs_per_setting": [2]}', '{"log_dirs": ["a"]}'):
        (tmp_path / "experiment.json").write_text(damaged)
        assert [run.name for run in experiment_status(tmp_path)] == ["run_0"]


def test_there_must_be_a_directory(tmp_path, capsys):
    with pytest.raises(FileNotFoundError, match="not a directory"):
        experiment_status(tmp_path / "none")
    assert print_status(tmp_path) == [] and capsys.readouterr().out == "There are no runs.\n"


def test_the_table_shows_what_there_is():
    runs = [
        RunStatus("a/run_0", Path("/x/a/run_0"), "finished", 0, 50_000, 50_000, 475.25, 3700.0, 5.0),
        RunStatus("a/run_1", Path("/x/a/run_1"), "running", None, 12_345, 50_000, -3.0, 61.0, 2.0),
        RunStatus("a/run_10", Path("/x/a/run_10"), "failed", 1, error="ValueError: a reason"),
        RunStatus("a/run_11", Path("/x/a/run_11"), "pending"),
    ]
    assert format_status(runs).splitlines() == [
        "run       status    exit code         steps  return       time   last row  log",
        "--------  --------  ---------  ------------  ------  ---------  ---------  -----------",
        "a/run_0   finished          0        50,000   475.2  1 h 1 min             /x/a/run_0",
        "a/run_1   running              12,345 (24%)      -3  1 min 1 s  2.0 s ago  /x/a/run_1",
        "a/run_10  failed            1                                              /x/a/run_10",
        "a/run_11  pending                                                          /x/a/run_11",
        "",
        "4 runs: 1 pending, 1 running, 1 finished, 1 failed.",
        "a/run_10: ValueError: a reason",
    ]


def test_an_error_of_several_runs_is_shown_once():
    errors = dict(run_0="ValueError: a reason", run_1="another", run_2="ValueError: a reason")
    runs = [RunStatus(name, Path("/x") / name, "failed", 1, error=error) for name, error in errors.items()]
    assert format_status(runs).splitlines()[-2:] == ["run_0, run_2: ValueError: a reason", "run_1: another"]


@pytest.mark.parametrize(
    "seconds, text", [(None, ""), (0.04, "0.0 s"), (59.9, "59.9 s"), (60, "1 min 0 s"), (3600, "1 h 0 min"), (90_000, "1 d 1 h")]
)
def test_durations_are_in_units_that_fit(seconds, text):
    assert format_seconds(seconds) == text


def test_the_duration_of_a_running_run_is_up_to_now(run_dir):
    mark(run_dir, "running", **identity(os.getpid()), started=time.time() - 100, seconds=0)
    assert 100 <= run_status(run_dir).seconds < 160


@pytest.mark.parametrize("state", ["running", "finished"])
@pytest.mark.parametrize("cum_time, expected", [(120, 120), (10, 34)])
def test_the_duration_of_a_resumed_run_has_the_time_before_in_it(run_dir, state, cum_time, expected):
    """The mark tells the last attempt only, with the time that it took to start."""
    mark(run_dir, state, **identity(os.getpid()), started=time.time() - 34, seconds=34)
    (run_dir / "progress.csv").write_text(f"Diagnostics/CumSteps,Diagnostics/CumTime (s)\n100,{cum_time}\n")
    assert expected <= run_status(run_dir).seconds < expected + 10


def test_a_run_that_nobody_launched_has_the_duration_in_its_log(run_dir):
    (run_dir / "progress.csv").write_text("TotalEnvSteps,CumTime (s)\n100,7.5\n")
    assert run_status(run_dir).seconds == 7.5
