"""Searches: whatever is killed, and whenever, a search ends with the same trials as if nothing had happened.

Runs are small programs without rlpyt. Launchers are processes forked from this one.
"""

import errno
import json
import os
import random
import shutil
import signal
import sys
import time
import traceback
from dataclasses import replace
from functools import partial
from pathlib import Path

import psutil
import pytest
from tiers import full, processes, thinned

from rlpyt.utils.launching import journal as journals
from rlpyt.utils.launching import search as searches
from rlpyt.utils.launching import sweep
from rlpyt.utils.launching.affinity import encode_affinity
from rlpyt.utils.launching.exp_launcher import StillRunning
from rlpyt.utils.launching.journal import History, Journal, read_journal
from rlpyt.utils.launching.proposals import RandomProposals
from rlpyt.utils.launching.search import MOST_RETRIES, Search, _why_without_result, reached_in, rerun_search, run_search
from rlpyt.utils.launching.search_status import facts, format_search, importances
from rlpyt.utils.launching.space import choice, integer, log_uniform
from rlpyt.utils.launching.status import SNAPSHOT_MISSING, experiment_status, identity, mark
from rlpyt.utils.logging.runs import find_runs, read_columns
from rlpyt.utils.misc import atomic_write

pytestmark = [processes, pytest.mark.timeout(280)]
ONE_SLOT = encode_affinity(n_cpu_core=1, set_affinity=False)
TWO_SLOTS = encode_affinity(n_cpu_core=2, set_affinity=False)
SPACE = dict(algo=dict(rate=log_uniform(1e-3, 1.0), n=integer(1, 9)), kind=choice("a", "b"))
RUNGS = [20, 60, 180]  # env steps; a row, and a snapshot, every 10

TRAIN = """
import csv, json, os, sys, time

slot_affinity_code, log_dir, run_ID, do = sys.argv[1:]
with open(os.path.join(log_dir, "variant_config.json")) as file:
    variant = json.load(file)
run_dir = os.path.join(log_dir, "run_" + run_ID)
snapshot, resume = os.path.join(run_dir, "params.pkl"), os.environ["RLPYT_RESUME_FROM"]
rate, pause_at = variant["algo"]["rate"], int(os.environ["RLPYT_PAUSE_AT"])
is_repaired = os.path.exists(os.path.join(log_dir, "..", "repaired"))
is_at_fault = do in ("restart", "keep nothing") and not is_repaired
state = dict(rows=[], x=float(run_ID) + (time.time() if do == "restart" else 0))
if resume and not (do == "restart" and is_at_fault):
    with open(snapshot) as file:
        state = json.load(file)
replay = os.path.join(run_dir, "replay")
if os.path.exists(replay):  # A resumed run puts aside what it was resumed from.
    os.rename(replay, next(f"{replay}.{i}" for i in range(1, 999) if not os.path.exists(f"{replay}.{i}")))
os.mkdir(replay)
with open(os.path.join(run_dir, "calls.jsonl"), "a") as file:
    file.write(json.dumps(dict(resume=bool(resume), pause_at=pause_at, begins_at=10 * len(state["rows"]))) + "\\n")


def write(path, text):
    with open(path + ".new", "w") as file:
        file.write(text)
    os.replace(path + ".new", path)


if do == "train to the end":  # as a Trainer does, which neither pauses nor resumes
    pause_at, state = 180, dict(rows=[], x=float(run_ID))
if do == "wait":
    time.sleep(60)
if do == "begin with SIGINT" and not os.path.exists(os.path.join(run_dir, "interrupted")):
    open(os.path.join(run_dir, "interrupted"), "w").close()
    print("Traceback (most recent call last):\\n  File \\"site.py\\", line 1\\nKeyboardInterrupt", file=sys.stderr)
    os._exit(1)  # as Python does while it starts
if do == "kill itself at once":
    os.kill(os.getpid(), 9)
if do == "need repair" and not is_repaired:
    raise ImportError("a module is missing")
if do == "log elsewhere" and not is_repaired:
    sys.exit(0)
if do == "need room" and resume and not is_repaired:
    raise RuntimeError("The last snapshot could not be saved, not even in a second try: No space left. Make room for it.")
if do == "fail" and rate > 0.1:
    raise ValueError("the rate is too high.")
while 10 * len(state["rows"]) < min(pause_at, 180):
    time.sleep(0.01)
    state["x"] = 0.9 * state["x"] + rate * (1 + variant["algo"]["n"])
    state["rows"].append([10 * len(state["rows"]) + 10, "" if do == "no returns" else state["x"]])
    table = [["Diagnostics/CumSteps", "ReturnAverage"], *state["rows"]]
    write(os.path.join(run_dir, "progress.csv"), "".join(f"{a},{b}\\n" for a, b in table))
    if not (do == "keep nothing" and is_at_fault) and do != "train to the end":
        write(snapshot, json.dumps(state))
    if do == "solve" and len(state["rows"]) == 4:
        break
    if do == "kill itself" and len(state["rows"]) == 2 + int(run_ID):
        os.kill(os.getpid(), 9)
    if do == "train to the end" and len(state["rows"]) == 4 and not os.path.exists(os.path.join(run_dir, "killed")):
        open(os.path.join(run_dir, "killed"), "w").close()
        os.kill(os.getpid(), 9)
"""


@pytest.fixture
def train(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(TRAIN)
    return path


def search(train, exp_dir, do="succeed", n_trials=9, affinity_code=ONE_SLOT, space=SPACE, **settings):
    settings = dict(dict(max_steps=180, min_steps=20, runs_per_trial=2, proposals="random"), **settings)
    return run_search(train, affinity_code, space, exp_dir, n_trials, common_args=[do], **settings)


def result(exp_dir):
    """Everything that a search has decided and measured."""
    return [(trial.values, trial.rung, trial.returns, trial.steps, trial.error) for trial in Search(exp_dir).trials]


def calls(run_dir):
    return [json.loads(line) for line in (Path(run_dir) / "calls.jsonl").read_text().splitlines()]


def check_nothing_was_lost_or_done_twice(exp_dir):
    events = read_journal(exp_dir / "search.jsonl")
    reached = [(e["trial"], e["rung"], e["run"]) for e in events if e["event"] == "end" and e["outcome"] == "reached"]
    assert len(reached) == len(set(reached))
    for run in experiment_status(exp_dir):
        assert run.state in ("paused", "finished")
        steps = read_columns(run.run_dir / "progress.csv")["Diagnostics/CumSteps"]
        assert steps == [10.0 * (i + 1) for i in range(len(steps))] and steps[-1] in RUNGS


class Launcher:
    """A launcher in a forked process, which leads a session. `before` is called in it first."""

    def __init__(self, work, tmp_path, before=lambda: None):
        self.output = tmp_path / "launcher.log"
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            code = 1
            try:
                os.setsid()
                signal.signal(signal.SIGTERM, signal.SIG_DFL)  # A test with Ray in this process has left a handler that exits with 15.
                output = os.open(self.output, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
                os.dup2(output, 1)
                os.dup2(output, 2)
                sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
                before()
                work()
                code = 0
            except SystemExit as end:
                code = end.code
            except KeyboardInterrupt:  # It does not handle signals yet, or no longer. Python ends a program like this.
                code = 128 + signal.SIGINT
            except BaseException:
                traceback.print_exc(file=sys.stderr)
            finally:
                sys.stderr.flush()
                os._exit(code)

    def send(self, number):
        os.kill(self.pid, number)

    def wait(self):
        """Return the exit code, minus the number of the signal that killed it."""
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def is_over(self):
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """The result of a search in one slot, to which nothing happens."""
    directory = tmp_path_factory.mktemp("uninterrupted")
    (directory / "train.py").write_text(TRAIN)
    search(directory / "train.py", directory / "exp")
    return result(directory / "exp")


# --- What a search does -------------------------------------------------------------------------------------------------
def test_good_trials_resume_and_the_others_stay(train, tmp_path, capsys):
    found = search(train, tmp_path / "exp", affinity_code=TWO_SLOTS)
    assert len(found.trials) == 9 and found.best.rung == 2
    check_nothing_was_lost_or_done_twice(tmp_path / "exp")
    at_first = {trial.number: trial.scores(2)[0] for trial in found.trials}
    best_at_first = max(at_first, key=at_first.get)
    assert found.trials[best_at_first].rung > 0
    for trial in found.trials:
        for run_ID in range(2):
            made = calls(tmp_path / "exp" / f"trial_{trial.number}" / f"run_{run_ID}")
            assert [call["begins_at"] for call in made] == [0, *RUNGS][: trial.rung + 1]
            assert [call["pause_at"] for call in made] == RUNGS[: trial.rung + 1]
    kept = {path.name for path in (tmp_path / "exp").glob("trial_*/run_*/replay*")}
    assert kept == {"replay"}, "one replay buffer of each run is on the disk"
    out = capsys.readouterr().out
    assert "Importance: 9 trials at the first rung" in out and "% saved" in out and f"Best: trial {found.best.number}" in out
    assert json.loads((tmp_path / "exp" / "best.json").read_text())["variant"] == found.variant(found.best)


def test_the_first_free_slot_is_the_moment_of_decision(train, tmp_path, monkeypatch):
    """With one slot, a trial is proposed, or promoted, only when all runs that began before have ended."""
    monkeypatch.setattr(sweep, "REFRESH", 0.01)  # So that the launcher looks often while a run is running.
    search(train, tmp_path / "exp", n_trials=4, max_steps=60)
    running = 0
    for event in read_journal(tmp_path / "exp" / "search.jsonl"):
        running += dict(begin=1, end=-1).get(event["event"], 0)
        assert event["event"] not in ("trial", "promote") or running == 0


@full
def test_trials_do_not_depend_on_the_number_of_slots_until_one_is_promoted(train, tmp_path, uninterrupted):
    search(train, tmp_path / "exp", affinity_code=TWO_SLOTS)
    both = zip(result(tmp_path / "exp"), uninterrupted)
    assert all((a[0], a[2][0]) == (b[0], b[2][0]) for a, b in both)


@full
def test_failed_trials_are_the_worst_and_reported(train, tmp_path, capsys):
    space = dict(algo=dict(rate=choice(0.01, 0.02, 0.5, 0.03), n=1))
    found = search(train, tmp_path / "exp", "fail", space=space, n_trials=12)
    failed = [trial for trial in found.trials if trial.values == [0.5]]
    assert failed and all("the rate is too high" in trial.error and trial.rung == 0 for trial in failed)
    assert found.best.values == [0.03]  # 0.5 would have the highest return.
    out = capsys.readouterr().out
    assert f"trial {failed[0].number} has failed, and counts as the worst: ValueError: the rate is too high" in out
    assert f"failed: {', '.join(f'trial_{trial.number}' for trial in failed)}: ValueError" in format_search(found)
    # Their second runs were not started.
    assert all(len(list((tmp_path / "exp" / f"trial_{trial.number}").glob("run_*"))) == 1 for trial in failed)


def test_a_search_in_which_everything_fails_ends_soon(train, tmp_path, capsys):
    with pytest.raises(SystemExit) as end:
        search(train, tmp_path / "exp", "fail", space=dict(algo=dict(rate=choice(0.5, 0.6, 0.7, 0.8), n=1)), n_trials=50)
    assert end.value.code == 1 and len(Search(tmp_path / "exp").trials) == 3
    out = capsys.readouterr().out
    assert "3 trials in a row failed before they logged anything" in out and "the rate is too high. Remove the cause, and resume" in out
    assert "If the cause is in the search space or the arguments of the script, which cannot change, start a new search in another" in out
    assert "the rate is too high. See " in out and ".. " not in out, "errors that end in a full stop get no second one"


def test_a_space_that_is_used_up_ends_the_search(train, tmp_path, capsys):
    found = search(train, tmp_path / "exp", space=dict(algo=dict(rate=choice(0.01, 0.02), n=choice(1, 2))), n_trials=12, runs_per_trial=1)
    assert sorted(trial.values for trial in found.trials) == [[0.01, 1], [0.01, 2], [0.02, 1], [0.02, 2]]
    assert found.best.rung == 2 and found.best.values == [0.02, 2]
    said = "4 of 12 trials begun, "
    (line,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith(said))
    assert line.endswith("The search space has no other settings.")
    assert len(rerun_search(tmp_path / "exp").trials) == 4


@full
def test_a_search_stops_if_all_settings_of_its_space_fail_at_once(train, tmp_path, capsys):
    with pytest.raises(SystemExit):
        search(train, tmp_path / "exp", "need repair", space=dict(algo=dict(rate=choice(0.01, 0.02), n=1)), n_trials=50)
    assert "2 trials in a row failed before they logged anything" in capsys.readouterr().out
    (tmp_path / "exp" / "repaired").touch()
    assert [trial.error for trial in rerun_search(tmp_path / "exp").trials] == [None, None]


def test_a_trial_without_returns_counts_as_the_worst(train, tmp_path, capsys):
    with pytest.raises(SystemExit):
        search(train, tmp_path / "exp", "no returns", n_trials=3)
    assert "it counts as the worst. If evaluations are too short for good agents, make eval_max_steps" in capsys.readouterr().out
    found = Search(tmp_path / "exp")
    assert found.best is None and [trial.rung for trial in found.trials] == [0] * 3


@full
def test_runs_that_are_solved_early_are_not_launched_again(train, tmp_path):
    found = search(train, tmp_path / "exp", "solve")
    assert found.best.rung == 2 and found.history.rungs == RUNGS
    for run in experiment_status(tmp_path / "exp"):
        assert run.steps in (20, 40) and len(calls(run.run_dir)) == (1 if run.steps == 20 else 2)


@pytest.mark.parametrize(
    "do, why, begins",
    [
        ("restart", "trial_0/run_0: it has restarted instead of resuming. Let its script give", [0, 0, 60]),
        ("keep nothing", "trial_0/run_0: it has paused without a snapshot, so it could not resume. Let its log", [0, 0, 20, 60]),
    ],
)
def test_a_script_that_cannot_resume_stops_the_search_and_fails_no_trial(train, tmp_path, capsys, do, why, begins):
    exp_dir = tmp_path / "exp"
    with pytest.raises(SystemExit) as end:
        search(train, exp_dir, do, n_trials=1, runs_per_trial=1)
    assert end.value.code == 1 and len(calls(exp_dir / "trial_0" / "run_0")) == (2 if do == "restart" else 1)
    out = capsys.readouterr().out
    assert f"Stopped: {why}" in out and "Then resume the search: it has lost no trial." in out
    assert Search(exp_dir).trials[0].error is None and "was killed" not in out
    (exp_dir / "repaired").touch()
    (trial,) = rerun_search(exp_dir).trials
    assert trial.error is None and trial.rung == 2 and trial.scores(1)[2] > 0
    assert [call["begins_at"] for call in calls(exp_dir / "trial_0" / "run_0")] == begins


def test_runs_that_train_to_their_end_need_neither_resume_nor_snapshots(train, tmp_path):
    """They are launched again if they are killed, begin anew, and count with their row at the rung."""
    found = search(train, tmp_path / "exp", "train to the end", n_trials=3, runs_per_trial=1)
    assert found.best.rung == 2 and not any(trial.error for trial in found.trials)
    for run in experiment_status(tmp_path / "exp"):
        assert run.state == "finished" and run.steps == 180 and [call["begins_at"] for call in calls(run.run_dir)] == [0, 0]


@full
def test_a_script_that_cannot_resume_stops_a_search_of_many_trials_at_the_first(train, tmp_path):
    """Runs in other slots end as usual, and are not lost either."""
    exp_dir = tmp_path / "exp"
    with pytest.raises(SystemExit):
        search(train, exp_dir, "keep nothing", affinity_code=TWO_SLOTS)
    assert len(Search(exp_dir).trials) == 1
    with pytest.raises(SystemExit):  # It is not repaired.
        rerun_search(exp_dir)
    assert len(Search(exp_dir).trials) == 1 and not any(trial.error for trial in Search(exp_dir).trials)
    (exp_dir / "repaired").touch()
    found = rerun_search(exp_dir)
    assert len(found.trials) == 9 and not any(trial.error for trial in found.trials) and found.best.rung == 2
    check_nothing_was_lost_or_done_twice(exp_dir)


@full
def test_a_run_that_is_killed_resumes(train, tmp_path):
    """Run 0 is killed after two rows, run 1 after three."""
    found = search(train, tmp_path / "exp", "kill itself", n_trials=1, min_steps=60, max_steps=60)
    made = [[call["begins_at"] for call in calls(tmp_path / "exp" / "trial_0" / f"run_{run_ID}")] for run_ID in range(2)]
    assert found.trials[0].error is None and made == [[0, 20], [0, 30]]


def test_a_run_that_is_killed_again_and_again_has_failed(train, tmp_path):
    with pytest.raises(SystemExit):
        search(train, tmp_path / "exp", "kill itself at once", n_trials=1)
    (trial,) = Search(tmp_path / "exp").trials
    assert trial.error.startswith("5 times in a row: ended by SIGKILL") and len(calls(tmp_path / "exp" / "trial_0" / "run_0")) == 5


@full
def test_a_run_that_gets_sigint_while_python_starts_was_killed(train, tmp_path):
    """The exception of Python is no failure of the trial, neither for the launcher that sees it nor for the next one."""
    found = search(train, tmp_path / "exp", "begin with SIGINT", n_trials=1, runs_per_trial=1)
    assert found.trials[0].error is None and found.best.rung == 2
    journal = tmp_path / "exp" / "search.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[:3]))  # The launcher was killed after it had begun the run.
    run_dir = tmp_path / "exp" / "trial_0" / "run_0"
    shutil.rmtree(run_dir)
    run_dir.mkdir()
    mark(run_dir, "failed", exit_code=1, error="KeyboardInterrupt")
    assert rerun_search(tmp_path / "exp").trials[0].error is None


@full
def test_what_a_search_is_made_of_is_plain_data(train, tmp_path):
    found = search(train, tmp_path / "exp")
    told = json.loads(json.dumps(facts(found)))
    assert told["best"] == found.best.number and len(told["trials"]) == 9 and set(importances(found)) == set(found.space.names)
    assert [rung["steps"] for rung in told["rungs"]] == RUNGS and told["rungs"][0]["reached"] == 9
    assert 0 < told["busy_share"] <= 1 and 0 < told["busy_share_until_last_begin"] <= 1
    assert told["steps_if_restarting"] > told["steps_taken"] == sum(run.steps for run in experiment_status(tmp_path / "exp"))


class RunOfSomeSeconds:
    """A run that ends when the clock says so, instead of a process. Its return is a number that differs between trials."""

    fd = None

    def __init__(self, clock, seconds, log_dir, run_ID, slot, environment, stdout, stderr):
        self._end, self._clock = clock.now + seconds, clock
        self._run_dir, self._steps = log_dir / f"run_{run_ID}", environment["RLPYT_PAUSE_AT"]
        self._return = random.Random(log_dir.name).random()

    def identity(self):
        return identity(os.getpid())

    def has_ended(self):
        return self._clock.now >= self._end

    def has_leftovers(self):
        return False

    def finish(self):
        table = self._run_dir / "progress.csv"
        rows = table.read_text() if table.exists() else "Diagnostics/CumSteps,ReturnAverage\n"
        table.write_text(f"{rows}{self._steps},{self._return}\n")
        (self._run_dir / "params.pkl").touch()
        return 0, None


class Clock:
    """Time that goes on only when the launcher waits, in place of the module `time`."""

    def __init__(self):
        self.now = 0.0

    def time(self):
        return self.now

    monotonic = time

    def sleep(self, seconds):
        self.now += seconds


def seconds_without_a_run_that_could_run(exp_dir):
    """Slots are free for so many seconds, of all slots together, though a trial is waiting, could be promoted, or could begin."""
    found, n_trials, wasted, before = Search(exp_dir), Search(exp_dir).settings.n_trials, 0.0, 0.0
    history = History(found.settings.runs_per_trial, found.settings.rungs, found.settings.eta)
    for event in read_journal(exp_dir / "search.jsonl"):
        running = history.launches[-1]["runs"] if history.launches else {}
        waiting = [(trial, run_ID) for trial, run_ID in history.waiting() if (trial.number, run_ID) not in running]
        is_all_proposed = len(history.trials) >= n_trials
        can_run = waiting or not is_all_proposed or history.to_promote(at_least=int(not running))
        if history.launches and can_run:
            wasted += (history.launches[-1]["n_slots"] - len(running)) * (event.get("at", before) - before)
        before = event.get("at", before)
        history.apply(event)
    return wasted


@pytest.mark.parametrize("n_slots", [1, 4])
def test_a_slot_that_becomes_free_gets_a_run_at_once_if_there_is_work(train, tmp_path, monkeypatch, n_slots):
    """By a clock that goes on only when the launcher waits, runs take 5 to 20 s each. Nothing here depends on the speed of the machine."""
    clock, lengths = Clock(), random.Random(0)
    monkeypatch.setattr(sweep, "time", clock)
    monkeypatch.setattr(searches, "_now", lambda: clock.now)

    def start(experiment, log_dir, run_ID, args, *of_the_slot):
        return RunOfSomeSeconds(clock, lengths.uniform(5, 20), log_dir, run_ID, *of_the_slot)

    monkeypatch.setattr(searches, "start_in_slot", start)
    found = search(train, tmp_path / "exp", affinity_code=encode_affinity(n_cpu_core=n_slots, set_affinity=False), n_trials=15)
    assert len(found.trials) == 15 and found.best.rung == 2
    busy = [stop - begin for begin, stop in found.history.launches[0]["ended"]]
    idle = seconds_without_a_run_that_could_run(tmp_path / "exp")
    assert len(busy) > 40 and idle <= 0.11 * len(busy), "it looks every 0.1 s, and then starts a run in each free slot"
    assert sum(busy) / (sum(busy) + idle) >= 0.95
    assert n_slots > 1 or found.history.busy_share() >= 0.95  # Of several slots, some have nothing to do at the end.


def test_the_launcher_waits_for_the_end_of_a_run_and_not_for_a_time(train, tmp_path, monkeypatch):
    """Otherwise this search would take hours."""
    monkeypatch.setattr(sweep, "REFRESH", 3600.0)
    assert search(train, tmp_path / "exp", n_trials=3, max_steps=60, affinity_code=TWO_SLOTS).best.rung == 1


# --- What may happen to it ----------------------------------------------------------------------------------------------
@full
def test_a_search_may_grow(train, tmp_path, uninterrupted, capsys):
    """As trials are decided on one after the other, the first ones are those of the shorter search."""
    search(train, tmp_path / "exp", n_trials=2)
    assert len(search(train, tmp_path / "exp", n_trials=9).trials) == 9
    assert "keeps its" not in capsys.readouterr().out
    assert len(search(train, tmp_path / "exp", n_trials=2).trials) == 9
    assert "The search keeps its 9 trials, not 2." in capsys.readouterr().out
    assert [each[0] for each in result(tmp_path / "exp")] == [each[0] for each in uninterrupted]
    check_nothing_was_lost_or_done_twice(tmp_path / "exp")


@pytest.mark.parametrize("number", thinned([signal.SIGINT, signal.SIGTERM], quick=[]))
def test_after_a_signal_it_goes_on(train, tmp_path, uninterrupted, number):
    exp_dir = tmp_path / "exp"
    launcher = Launcher(lambda: search(train, exp_dir), tmp_path)
    wait_for_events(exp_dir, 20)
    launcher.send(number)
    assert launcher.wait() == 128 + number
    assert f"To resume it: rlpyt resume {exp_dir}" in launcher.output.read_text()
    assert len(rerun_search(exp_dir).trials) == 9
    assert result(exp_dir) == uninterrupted
    check_nothing_was_lost_or_done_twice(exp_dir)


def test_runs_that_the_launcher_ends_are_interrupted_and_not_said_to_be_killed(train, tmp_path):
    exp_dir = tmp_path / "exp"
    launcher = Launcher(lambda: search(train, exp_dir, "wait"), tmp_path)
    wait_for_events(exp_dir, 3)  # The third one begins the run.
    launcher.send(signal.SIGINT)
    assert launcher.wait() == 128 + signal.SIGINT
    said = launcher.output.read_text()
    assert "trial_0/run_0 interrupted after" in said and f"To resume it: rlpyt resume {exp_dir}" in said
    assert "was killed" not in said and "is launched again" not in said


@full
@pytest.mark.parametrize("n_kills", [3, 20])
@pytest.mark.parametrize("seed", [0, 1])
def test_whatever_is_killed_whenever_nothing_is_lost(train, tmp_path, uninterrupted, n_kills, seed):
    """Launchers and runs get signals at random moments, until so many launchers have died; a search that is over is followed by another."""
    exp_dir, generator, n_dead = tmp_path / "exp_0", random.Random(seed), 0
    while n_dead < n_kills:
        launcher = Launcher(partial(search, train, exp_dir), tmp_path)
        for _ in range(generator.randrange(MOST_RETRIES)):  # After more in a row, a run would count as failed.
            time.sleep(generator.uniform(0, 0.8))
            kill_a_run(launcher.pid, generator)
        time.sleep(generator.uniform(0, 0.4))
        number = generator.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
        launcher.send(number)
        code = launcher.wait()
        assert code in (-number, 128 + number, 0), launcher.output.read_text()
        n_dead += code != 0
        if code == 0 or n_dead == n_kills:
            rerun_search(exp_dir)
            assert result(exp_dir) == uninterrupted
            check_nothing_was_lost_or_done_twice(exp_dir)
            exp_dir = tmp_path / f"exp_{n_dead}"


@pytest.mark.parametrize("how", thinned(["before", "half", "after"], quick=[]))
def test_a_launcher_may_die_at_every_event(train, tmp_path, uninterrupted, how):
    """Each launcher dies at the first, second, third ... line that it writes: before it, in the middle, or after it."""
    exp_dir, code, n = tmp_path / "exp", None, 0
    while code != 0:
        n += 1
        launcher = Launcher(lambda: search(train, exp_dir), tmp_path, before=lambda n=n: die_at(2 + n % 9, how))
        code = launcher.wait()
        assert code in (-signal.SIGKILL, 0) and n < 60, launcher.output.read_text()
    assert n > 8
    assert result(exp_dir) == uninterrupted
    check_nothing_was_lost_or_done_twice(exp_dir)


def die_at(n, how):
    """Let this process die at the n-th event that it writes."""
    append, events = Journal.append, []

    def dying(self, event):
        events.append(event)
        if len(events) == n and how == "half":
            line = json.dumps(event).encode()
            os.write(self._descriptor, line[: len(line) // 2])
        if len(events) != n or how == "after":
            append(self, event)
        if len(events) == n:
            os.kill(os.getpid(), signal.SIGKILL)

    journals.Journal.append = dying


def kill_a_run(pid, generator):
    try:
        runs = psutil.Process(pid).children()
        if runs:
            generator.choice(runs).send_signal(generator.choice([signal.SIGKILL, signal.SIGTERM]))
    except psutil.Error:
        pass


def wait_for_events(exp_dir, n):
    deadline = time.monotonic() + 60
    while len(read_journal(exp_dir / "search.jsonl")) < n:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_it_is_not_run_twice_at_the_same_time(train, tmp_path):
    exp_dir = tmp_path / "exp"
    launcher = Launcher(lambda: search(train, exp_dir), tmp_path)
    wait_for_events(exp_dir, 3)
    with pytest.raises(StillRunning, match="is running already, by another launcher"):
        search(train, exp_dir)
    launcher.send(signal.SIGKILL)
    launcher.wait()


@full
@pytest.mark.parametrize("n_trials, affinity_code", thinned([(9, ONE_SLOT), (9, TWO_SLOTS), (1, ONE_SLOT)], quick=[(9, TWO_SLOTS)]))
def test_trials_that_failed_before_the_cause_was_removed_are_tried_again(train, tmp_path, uninterrupted, n_trials, affinity_code, capsys):
    exp_dir = tmp_path / "exp"
    for _ in range(2):  # The cause is still there when the search is launched again.
        with pytest.raises(SystemExit):
            search(train, exp_dir, "need repair", n_trials=n_trials, affinity_code=affinity_code)
        failed = Search(exp_dir).trials
        assert all(trial.error == "ImportError: a module is missing" for trial in failed) and 1 <= len(failed) <= 4
    (exp_dir / "repaired").touch()
    assert len(rerun_search(exp_dir).trials) == n_trials
    assert all(trial.error is None for trial in Search(exp_dir).trials)
    check_nothing_was_lost_or_done_twice(exp_dir)
    if n_trials == 9 and affinity_code == ONE_SLOT:
        assert result(exp_dir) == uninterrupted


@full
def test_scripts_that_log_elsewhere_stop_the_search_and_are_tried_again(train, tmp_path, capsys):
    """They end in good order, but nothing of them is in the runs' directories."""
    exp_dir = tmp_path / "exp"
    for _ in range(2):
        with pytest.raises(SystemExit):
            search(train, exp_dir, "log elsewhere")
        assert len(Search(exp_dir).trials) == 3
    assert "logged no row in its run_<ID>. The script must give `logger_context` the log_dir and run_ID" in capsys.readouterr().out
    (exp_dir / "repaired").touch()
    rerun_search(exp_dir)
    assert [trial.error for trial in Search(exp_dir).trials] == [None] * 9
    check_nothing_was_lost_or_done_twice(exp_dir)


def test_why_a_run_that_ended_in_good_order_has_no_result(tmp_path):
    assert "has logged no row in its run_<ID>. The script must give" in _why_without_result(tmp_path)
    (tmp_path / "progress.csv").write_text("ReturnAverage\n1.0\n")
    assert "has no column CumSteps, which tells at which rung it is" in _why_without_result(tmp_path)
    (tmp_path / "progress.csv").write_text("Diagnostics/CumSteps,ReturnAverage\n10,1.0\n")
    assert "its log does not say that it was complete" in _why_without_result(tmp_path)


@full
def test_an_older_copy_of_the_journal_credits_no_run_to_other_settings(train, tmp_path, monkeypatch):
    """Later trials may then get other settings. What has been trained with those before is moved, and nothing of it is lost."""
    exp_dir, rates = tmp_path / "exp", [0.01, 0.02, 0.03]
    monkeypatch.setattr(RandomProposals, "propose", lambda self, history: [rates[len(history.trials)]])
    settings = dict(space=dict(algo=dict(rate=choice(0.01, 0.02, 0.03, 0.5), n=1)), n_trials=3, max_steps=20)
    search(train, exp_dir, **settings)
    journal, before = exp_dir / "search.jsonl", result(exp_dir)
    lines = journal.read_text().splitlines(keepends=True)
    journal.write_text("".join(lines[: next(i for i, line in enumerate(lines) if '"trial": 1' in line)]))
    table = (exp_dir / "trial_1" / "run_1" / "progress.csv").read_bytes()
    rates[1] = 0.5
    rerun_search(exp_dir)
    search(train, tmp_path / "other", **settings)
    assert result(exp_dir) == result(tmp_path / "other") != before
    assert (exp_dir / "put_aside" / "trial_1.1" / "run_1" / "progress.csv").read_bytes() == table
    names = [status.name for status in experiment_status(exp_dir)]
    assert len(names) == len(find_runs([exp_dir])) and not [name for name in names if "put_aside" in name]
    assert all(len(calls(run.run_dir)) == 1 for run in experiment_status(exp_dir))  # Trials with the same settings did not train again.


@full
def test_trials_that_fail_again_at_once_though_others_do_not_count_as_the_worst(train, tmp_path, monkeypatch):
    """The first three have bad settings, so the search stops. Once another one has reached a rung, it does not stop for them again."""
    rates = [0.5, 0.5, 0.5, 0.01, 0.5, 0.02]
    monkeypatch.setattr(RandomProposals, "propose", lambda self, history: [rates[len(history.trials)]])
    settings = dict(space=dict(algo=dict(rate=choice(0.5, 0.01, 0.02), n=1)), n_trials=6)
    with pytest.raises(SystemExit):
        search(train, tmp_path / "exp", "fail", **settings)
    monkeypatch.setattr("rlpyt.utils.launching.search.MAX_IMMEDIATE_FAILURES", 4)
    found = search(train, tmp_path / "exp", "fail", **settings)
    assert [trial.error is not None for trial in found.trials] == [True, True, True, False, True, False]


@full
@pytest.mark.parametrize("by", ["resume", "the same command"])
def test_a_search_goes_on_where_its_first_directory_is_gone(train, tmp_path, uninterrupted, monkeypatch, by):
    (tmp_path / "old").mkdir()
    monkeypatch.chdir(tmp_path / "old")
    with pytest.raises(SystemExit):
        search(train, tmp_path / "exp", "need repair", runs_per_trial=1, n_trials=1)
    (tmp_path / "exp" / "repaired").touch()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "old").rename(tmp_path / "new")
    if by == "resume":
        found = rerun_search(tmp_path / "exp")
    else:
        found = search(train, tmp_path / "exp", "need repair", runs_per_trial=1, n_trials=1)
    assert found.trials[0].rung == 2 and found.trials[0].error is None


def test_a_script_in_a_directory_that_is_gone_is_refused_before_anything_is_started(train, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    search(train.name, tmp_path / "exp", n_trials=1, max_steps=20)
    path = tmp_path / "exp" / "search.json"
    path.write_text(path.read_text().replace(json.dumps(str(tmp_path)), json.dumps(str(tmp_path / "old"))))
    with pytest.raises(FileNotFoundError, match=f"There is no directory {tmp_path / 'old'} any more, .*: make it again, or launch"):
        rerun_search(tmp_path / "exp")


@full
def test_a_run_that_cannot_be_started_stops_the_search_and_has_not_failed(train, tmp_path, monkeypatch, capsys):
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", str(tmp_path / "no python"))
        with pytest.raises(SystemExit) as end:
            search(train, tmp_path / "exp", n_trials=2)
    (trial,) = Search(tmp_path / "exp").trials
    out = capsys.readouterr().out
    assert end.value.code == 1 and trial.error is None and "Stopped: trial_0/run_0: It could not be started: " in out
    assert len([event for event in read_journal(tmp_path / "exp" / "search.jsonl") if event["event"] == "begin"]) == 1
    assert [trial.error for trial in rerun_search(tmp_path / "exp").trials] == [None, None]
    check_nothing_was_lost_or_done_twice(tmp_path / "exp")


def test_a_search_loses_no_trial_if_the_end_of_a_run_cannot_be_written(train, tmp_path, monkeypatch, capsys):
    def on_full_disk(run_dir, state, **facts):
        if "trial_1" in str(run_dir):
            raise OSError(errno.ENOSPC, "No space left on device")
        mark(run_dir, state, **facts)

    settings = dict(n_trials=2, runs_per_trial=1)
    with monkeypatch.context() as patched, pytest.raises(SystemExit) as end:
        patched.setattr(sweep, "mark", on_full_disk)
        search(train, tmp_path / "exp", **settings)
    assert end.value.code == 1 and "how the run ended could not be written. Make room on the disk" in capsys.readouterr().out
    assert all(trial.error is None for trial in Search(tmp_path / "exp").trials)
    assert max(trial.rung for trial in rerun_search(tmp_path / "exp").trials) == 2
    check_nothing_was_lost_or_done_twice(tmp_path / "exp")


def test_a_run_whose_last_snapshot_had_no_room_stops_the_search_and_resumes(train, tmp_path, capsys):
    settings = dict(n_trials=1, runs_per_trial=1)
    with pytest.raises(SystemExit) as end:
        search(train, tmp_path / "exp", "need room", **settings)
    out = capsys.readouterr().out
    assert end.value.code == 1 and Search(tmp_path / "exp").trials[0].error is None
    assert f"could not save its last snapshot. Make room on the disk, and then: rlpyt resume {tmp_path / 'exp'} (RuntimeError: The" in out
    (tmp_path / "exp" / "repaired").touch()
    assert rerun_search(tmp_path / "exp").trials[0].rung == 2
    check_nothing_was_lost_or_done_twice(tmp_path / "exp")


def test_the_message_of_runners_about_a_missing_snapshot_is_recognized():
    from rlpyt.runners.minibatch_rl import snapshot_is_missing

    assert SNAPSHOT_MISSING in str(snapshot_is_missing(None))


def test_a_log_without_a_finite_number_of_steps_has_reached_nothing(tmp_path):
    (tmp_path / "progress.csv").write_text("Diagnostics/CumSteps,ReturnAverage\nnan,1.0\n")
    (tmp_path / "FINISHED.json").write_text("{}")
    assert reached_in(tmp_path, 10) is None


def test_the_best_command_has_settings_that_are_in_no_section(train, tmp_path):
    found = search(train, tmp_path / "exp", n_trials=1, max_steps=20, train_command=["train"])
    assert found.train_command(found.trials[0]).split()[-1] in ("kind=a", "kind=b") and " algo.n=" in found.train_command(found.trials[0])


# --- What is refused ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "changed, message",
    [
        (dict(eta=4), "eta: 3 before, 4 now"),
        (dict(space=dict(SPACE, kind=choice("a", "c"))), "other arguments. kind: choice('a', 'b') before, choice('a', 'c') now. Give"),
        (dict(space=dict(SPACE, more=dict(x=1))), "other arguments. more.x: nothing before, 1 now. Give"),
        (dict(space=dict(reversed(SPACE.items()))), "other arguments. space: "),
        (dict(do="other"), "common_args: succeed before, other now"),
        (dict(runs_per_trial=1), "runs_per_trial: 2 before, 1 now"),
    ],
)
def test_another_search_does_not_go_on_with_this_one(train, tmp_path, changed, message):
    exp_dir = tmp_path / "exp"
    search(train, exp_dir, n_trials=1, max_steps=20)
    before = (exp_dir / "search.jsonl").read_bytes()
    with pytest.raises(ValueError) as error:
        search(train, exp_dir, **dict(dict(n_trials=1, max_steps=20), **changed))
    assert message in str(error.value) and (exp_dir / "search.jsonl").read_bytes() == before


def test_what_differs_in_a_command_is_told_once_and_as_in_a_shell(finished):
    old = Search(finished).settings
    old.common_args, old.train_command = ["a:b", "--set", "x=1", "y='p q'"], ["rlpyt", "train", "a", "b", "--set", "x=1", "y='p q'"]

    def differences(**changes):
        return replace(old, **changes).differences(old)

    new = dict(common_args=["a:b", "--set", "x=2", "y='p q'"], train_command=[*old.train_command[:-2], "x=2", "y='p q'"])
    assert differences(**new) == ["common_args: x=1 before, x=2 now"]
    assert differences(train_command=new["train_command"]) == ["train_command: x=1 before, x=2 now"]
    assert differences(common_args=[*old.common_args, "z=2 3"]) == ["common_args: nothing before, 'z=2 3' now"]
    assert differences(common_args=["a:b", "x=1", "--set", old.common_args[-1]])[0].startswith("common_args: a:b --set x=1 ")
    assert differences() == []


@pytest.mark.parametrize(
    "wrong, error, message",
    [
        (dict(space=dict(algo=dict(rate=1.0))), ValueError, "The search space has no range"),
        (dict(n_trials=0), ValueError, "n_trials=0"),
        (dict(proposals="optun"), ValueError, "proposals='optun'"),
        (dict(min_steps=1000), ValueError, "min_steps=1,000, of the first rung"),
        (dict(eta=1), ValueError, "eta=1"),
        (dict(train="nowhere.py"), FileNotFoundError, "There is no script"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_started_or_written(train, tmp_path, wrong, error, message):
    with pytest.raises(error, match=message):
        search(**dict(dict(train=train, exp_dir=tmp_path / "exp"), **wrong))
    assert not (tmp_path / "exp").exists()


def test_a_search_that_is_refused_without_optuna_leaves_its_directory_to_others(train, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "optuna", None)
        with pytest.raises(ImportError, match="tune"):
            search(train, tmp_path / "exp", proposals="optuna")
    assert not (tmp_path / "exp" / "search.json").exists()
    search(train, tmp_path / "exp", n_trials=1, max_steps=20)


def test_a_directory_with_something_else_is_refused(train, tmp_path):
    (tmp_path / "exp").mkdir()
    (tmp_path / "exp" / "precious.txt").touch()
    with pytest.raises(ValueError, match="is not empty, and no search"):
        search(train, tmp_path / "exp")
    with pytest.raises(ValueError, match="is not the directory of a search"):
        rerun_search(tmp_path / "exp")


def test_a_damaged_journal_is_named(train, tmp_path):
    search(train, tmp_path / "exp", n_trials=1, max_steps=20)
    path = tmp_path / "exp" / "search.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    with atomic_write(path) as file:
        file.write(b"".join([lines[0], b'{"event": "tri\n', *lines[2:]]))
    with pytest.raises(ValueError, match="search.jsonl is damaged: line 2 is no event"):
        Search(tmp_path / "exp")


@pytest.mark.parametrize(
    "line, event, why",
    [
        (2, dict(event="trial", trial=1, values=[0.1, 2, "a"]), "trial 0 comes next, not 1"),
        (2, dict(event="trial", trial=0, values=[0.1, 2]), "it has 2 values for 3 ranges"),
        (2, dict(event="trial", trial=0, values=["x", 2, "a"]), ""),
        (2, dict(event="trial", trial=0), "values is missing"),
        (2, dict(event="promote", trial=0, rung=1), "there is no trial 0 before it"),
        (2, dict(event="reset"), "the event must be one of launch, "),
        (3, dict(event="begin", trial=0, rung=0, run="0", slot=0, at=1.0), "run cannot be '0'"),
        (3, dict(event="begin", trial=0, rung=7, run=0, slot=0, at=1.0), "trial 0 is at rung 0"),
        (3, dict(event="end", trial=0, rung=0, run=2, at=1.0, outcome="reached"), "a trial has the runs 0 to 1"),
        (3, dict(event="end", trial=0, rung=0, run=0, at=1.0, outcome="solved"), "the outcome must be one of reached, "),
        (3, {"event": "end", "trial": 0, "rung": 0, "run": 0, "at": 1.0, "outcome": "reached", "return": "x"}, "return cannot be 'x'"),
        (1, dict(event="begin", trial=0, rung=0, run=0, slot=0, at=1.0), "there is no trial 0 before it"),
    ],
)
def test_a_line_that_people_have_changed_is_named(finished, tmp_path, line, event, why):
    shutil.copytree(finished, tmp_path / "exp")
    path = tmp_path / "exp" / "search.jsonl"
    lines = path.read_text().splitlines()
    lines[line - 1] = json.dumps(event)
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(ValueError) as error:
        Search(tmp_path / "exp")
    message = str(error.value)
    assert message.startswith(f"{path} is damaged: line {line} is no event of this search ({why}")
    assert message.endswith("): restore the file from a copy.")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The directory of a search with one trial that has ended."""
    directory = tmp_path_factory.mktemp("finished")
    (directory / "train.py").write_text(TRAIN)
    search(directory / "train.py", directory / "exp", n_trials=1, max_steps=20)
    return directory / "exp"
