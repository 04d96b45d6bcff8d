"""Experiments: which runs are started, with what, what becomes of them, and what is said about it.

Runs are small programs without rlpyt. Launchers are programs as well, where signals and exit codes matter.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import psutil
import pytest
from tiers import full, processes, thinned

from rlpyt.utils.launching import exp_launcher, sweep
from rlpyt.utils.launching.affinity import affinity_from_code, encode_affinity
from rlpyt.utils.launching.exp_launcher import launch_experiment, rerun_experiments, run_experiments
from rlpyt.utils.launching.status import both_ends, experiment_status, read_mark
from rlpyt.utils.launching.variant import VariantLevel, load_variant, make_variants
from rlpyt.utils.processors import allowed_cpus

pytestmark = [processes, pytest.mark.timeout(120)]
ROOT = Path(__file__).parents[3]
ONE_SLOT = encode_affinity(n_cpu_core=1)
TWO_SLOTS = encode_affinity(n_cpu_core=2, set_affinity=False)  # Also where there is one processor.

TRAIN = """
import json, os, signal, subprocess, sys, time

slot_affinity_code, log_dir, run_ID, *args = sys.argv[1:]
do = json.load(open(os.path.join(log_dir, "variant_config.json"))).get("do", "succeed")
run_dir = os.path.join(log_dir, "run_" + run_ID)


def log(steps, return_):
    with open(os.path.join(run_dir, "progress.csv"), "w") as file:
        file.write(f"Diagnostics/CumSteps,ReturnAverage\\n{steps},{return_}\\n")


def stop(number, frame):
    open(os.path.join(run_dir, "params.pkl"), "w").close()
    print("saved", flush=True)
    sys.exit(128 + number)


cpus = sorted(os.sched_getaffinity(0))
resume = os.environ.get("RLPYT_RESUME_FROM")
call = dict(argv=sys.argv, start=time.time(), cpus=cpus, resume=resume, egl=os.environ.get("EGL_DEVICE_ID"), pid=os.getpid(), do=do)
with open(os.path.join(run_dir, "calls.jsonl"), "a") as file:
    file.write(json.dumps(call) + "\\n")
print("to stdout of", run_ID)
if do == "fail":
    raise ValueError("this is the reason")
if do == "fail in other letters":
    sys.stderr.reconfigure(encoding="utf-8")
    raise ValueError("\u043f\u0440\u0438\u0447\u0438\u043d\u0430 \u6f22")
if do == "fail at length":
    try:
        exec("\\n" * 10 + "raise KeyError('the cause')")
    finally:
        print(*(f"line {i}" for i in range(1000)), sep="\\n", file=sys.stderr)
        try:
            raise ValueError("this is the reason")
        finally:
            import atexit
            atexit.register(print, "[rank0]:[W1122] Warning: not called", file=sys.stderr)
if do == "fail with a snapshot":
    open(os.path.join(run_dir, "params.pkl"), "w").close()
    log(10, 1.0)
    raise ValueError("this happens each time")
if do == "fail late":
    log(10, 1.0)
    raise ValueError("this is a late reason")
if do == "killed":
    log(20, 2.0)
    os.kill(os.getpid(), signal.SIGKILL)
if do == "terminated":
    os.kill(os.getpid(), signal.SIGTERM)
if do in ("log and leave", "log and complete", "log, then say nothing"):
    name = os.path.join(run_dir, "debug.log")
    if do == "log, then say nothing" and os.path.exists(name):
        os._exit(0)
    with open(name, "w") as file:
        last = "Run complete." if do == "log and complete" else "time | name_0 Training complete."
        file.write("time | name_0 itr #3 something\\n" + (last + "\\n") * (do != "log and leave"))
    log(30, 3.0)
    os._exit(1 if do == "log, then say nothing" else 0)
if do == "go on" and resume:
    log(200, 9.0)
elif do in ("wait", "go on"):
    signal.signal(signal.SIGINT, stop)
    log(50, 5.0)
    print("waiting", flush=True)
    time.sleep(300)
elif do == "stubborn":
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    subprocess.Popen([sys.executable, "-c", "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); time.sleep(300)"])
    print("waiting", flush=True)
    time.sleep(300)
elif do == "leave something":
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
    log(1, 1.0)
elif do == "short":
    time.sleep(0.5)
    log(1, 1.0)
else:
    log(100, 7.5)
"""


@pytest.fixture
def train(tmp_path):
    """Path of a train script, in a directory with characters that a shell would trip over."""
    path = tmp_path / "a $(touch hacked); 'b' \"c\" & d" / "train & go.py"
    path.parent.mkdir()
    path.write_text(TRAIN)
    return path


@pytest.fixture
def mark(monkeypatch):
    """A text that all processes of the test have in their environment; afterwards, none must be left."""
    mark = f"RLPYT_TEST_{uuid.uuid4().hex}"
    monkeypatch.setenv(mark, "1")
    yield mark
    deadline = time.monotonic() + 20
    while left_behind(mark) and time.monotonic() < deadline:
        time.sleep(0.05)
    left = left_behind(mark)
    for process in left:
        process.kill()
    assert not left


def left_behind(mark):
    found = []
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and mark in process.environ() and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            pass
    return found


def settings(*does):
    """Variants and log_dirs of runs that do these things."""
    return dict(variants=[dict(do=do) for do in does], log_dirs=[f"{i} {do}" for i, do in enumerate(does)])


def calls(run_dir):
    return [json.loads(line) for line in (Path(run_dir) / "calls.jsonl").read_text().splitlines()]


def call(run_dir):
    (only,) = calls(run_dir)
    return only


class Launcher:
    """A launcher in a process of its own."""

    def __init__(self, tmp_path, function="run_experiments", before="", environment=None, **kwargs):
        script = tmp_path / "launch.py"
        script.write_text(
            "import json, sys\n"
            "from rlpyt.utils.launching import sweep\n"
            f"from rlpyt.utils.launching.exp_launcher import {function}\n"
            f"{before}\n"
            f"{function}(**json.loads(sys.argv[1]))\n"
        )
        environment = dict(os.environ, PYTHONPATH=str(ROOT), **(environment or {}))
        self.process = subprocess.Popen(
            [sys.executable, str(script), json.dumps(kwargs, default=str)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def wait(self):
        """Return exit code, stdout and stderr."""
        try:
            out, err = self.process.communicate(timeout=90)
        finally:
            self.process.kill()
        return self.process.returncode, out, err


def wait_until(condition, what):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, f"waited for {what}"
        time.sleep(0.02)


def wait_for_text(path, text):
    wait_until(lambda: path.exists() and text in path.read_text(), f"{text} in {path}")


# --- What is started ---------------------------------------------------------------------------------------------------
def test_every_variant_runs_with_every_run_ID_and_its_own_arguments(train, tmp_path, mark):
    optimization = VariantLevel([("algo", "lr"), ("B",)], [(0.1, 1), (0.2, 2)], ["lr 1", "lr 2"])
    variants, log_dirs = make_variants(optimization, VariantLevel([("env",)], [("x",), ("y",)], ["x", "y"]))
    exp_dir = tmp_path / "exp"
    args = [[f"own {i}", i] for i in range(4)]
    states = run_experiments(train, TWO_SLOTS, exp_dir, 2, variants, log_dirs, common_args=("both", 3), runs_args=args)
    assert [state.state for state in states] == ["finished"] * 8
    expected = [os.path.join(log_dir, f"run_{run_ID}") for run_ID in range(2) for log_dir in log_dirs]
    assert [state.name for state in states] == expected, "first runs of all settings first"
    for i, log_dir in enumerate(log_dirs):
        assert load_variant(exp_dir / log_dir) == variants[i]
        for run_ID in range(2):
            argv = call(exp_dir / log_dir / f"run_{run_ID}")["argv"]
            slot, code = argv[1].split("slt_")
            assert (int(slot) in (0, 1), code) == (True, TWO_SLOTS)
            assert argv == [str(train), argv[1], str(exp_dir / log_dir), str(run_ID), "both", "3", f"own {i}", str(i)]
    assert (exp_dir / "num_launched.txt").read_text() == "8 of 8 runs launched.\n"
    tree = (exp_dir / "experiments_tree.txt").read_text().splitlines()
    assert tree[0] == str(exp_dir) and tree[1:5] == ["├── lr 1", "│   ├── x", "│   │   ├── run_0", "│   │   └── run_1"]
    assert len(tree) == 1 + 2 + 4 + 8


def test_nothing_passes_through_a_shell(train, tmp_path, mark):
    names = ["$(touch hacked)", "; touch hacked", "a b", "'", '"', "`touch hacked`", "*", "ä\n"]
    exp_dir = tmp_path / "exp $HOME & 'x'"
    run_experiments(train, TWO_SLOTS, exp_dir, 1, [{} for _ in names], names, common_args=names)
    for name in names:
        argv = call(exp_dir / name / "run_0")["argv"]
        assert argv[2:] == [str(exp_dir / name), "0", *names]
    assert not list(tmp_path.rglob("hacked")) and not Path("hacked").exists()


def test_runs_use_all_slots_and_never_share_one(train, tmp_path, mark):
    exp_dir = tmp_path / "exp"
    run_experiments(train, TWO_SLOTS, exp_dir, 1, **settings(*["short"] * 6))
    runs = []
    for i in range(6):
        run_dir = exp_dir / f"{i} short" / "run_0"
        facts = read_mark(run_dir)[1]
        runs.append((facts["slot"], call(run_dir)["start"], facts["started"] + facts["seconds"]))
    assert {slot for slot, _, _ in runs} == {0, 1}
    for slot in (0, 1):
        mine = sorted((start, end) for each, start, end in runs if each == slot)
        assert all(end <= start for (_, end), (start, _) in zip(mine, mine[1:]))


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system does not bind processes")
def test_a_run_is_bound_to_the_processors_of_its_slot_and_still_finds_its_slot(train, tmp_path, mark, monkeypatch):
    n = len(allowed_cpus())
    code = encode_affinity(n_cpu_core=n, hyperthread_offset=0)
    slots = [set(affinity_from_code(f"{slot}slt_{code}")["all_cpus"]) for slot in range(n)]
    train.write_text(
        TRAIN + "\nfrom rlpyt.utils.launching.affinity import affinity_from_code\n"
        "call['affinity'] = affinity_from_code(slot_affinity_code)\njson.dump(call, open(run_dir + '/affinity.json', 'w'))\n"
    )
    before = os.sched_getaffinity(0)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    run_experiments(train, code, tmp_path / "exp", 1, **settings(*["succeed"] * n))
    for run_dir in sorted((tmp_path / "exp").glob("*/run_0")):
        found = json.loads((run_dir / "affinity.json").read_text())
        slot = int(found["argv"][1].split("slt_")[0])
        assert set(found["cpus"]) == slots[slot] == set(found["affinity"]["all_cpus"])
    assert os.sched_getaffinity(0) == before


def test_without_affinity_a_run_may_use_what_the_launcher_may(train, tmp_path, mark):
    run_experiments(train, TWO_SLOTS, tmp_path, 1, **settings("succeed"))
    assert call(tmp_path / "0 succeed" / "run_0")["cpus"] == allowed_cpus()


def test_launching_a_single_run_returns_its_process(train, tmp_path, mark):
    (tmp_path / "setting" / "run_5").mkdir(parents=True)
    process = launch_experiment(train, 0, ONE_SLOT, tmp_path / "setting", dict(do="succeed"), 5, ["x y"])
    assert isinstance(process, subprocess.Popen) and process.wait(60) == 0
    assert call(tmp_path / "setting" / "run_5")["argv"][1:] == [f"0slt_{ONE_SLOT}", str(tmp_path / "setting"), "5", "x y"]
    assert load_variant(tmp_path / "setting") == dict(do="succeed")


def test_rendering_gets_the_number_of_the_training_gpu(train, tmp_path, mark, monkeypatch):
    affinities = {
        "0slt_a": dict(cuda_idx=2, set_affinity=False),
        "0slt_b": [dict(cuda_idx=3, set_affinity=False), dict(cuda_idx=4, set_affinity=False)],
        "0slt_c": dict(optimizer=[dict(cuda_idx=5)], sampler=dict(), set_affinity=False),
    }
    monkeypatch.setattr(exp_launcher, "affinity_from_code", affinities.__getitem__)
    monkeypatch.setattr(exp_launcher, "prepend_run_slot", lambda slot, code: f"{slot}slt_{code}")
    for run_ID, code, gpu in ((0, "a", "2"), (1, "b", "3"), (2, "c", "5")):
        (tmp_path / f"run_{run_ID}").mkdir()
        process = launch_experiment(train, 0, code, tmp_path, {}, run_ID, [], sys.executable, set_egl_device=True)
        assert process.wait(60) == 0 and call(tmp_path / f"run_{run_ID}")["egl"] == gpu


# --- What becomes of them ----------------------------------------------------------------------------------------------
def test_one_fails_at_start_one_is_killed_one_succeeds(train, tmp_path, mark):
    exp_dir = tmp_path / "exp"
    kwargs = dict(script=train, affinity_code=ONE_SLOT, experiment_title=exp_dir, runs_per_setting=1)
    code, out, err = Launcher(tmp_path, **kwargs, **settings("fail", "killed", "succeed")).wait()
    assert code == 1 and "\r" not in out and "\x1b" not in out and not err
    table = out[out.index("\nrun") + 1 :].splitlines()
    rows = [" ".join(line.split()) for line in table[2:5]]
    assert rows[0].startswith("0 fail/run_0 failed 1 ") and rows[0].endswith(str(exp_dir / "0 fail" / "run_0"))
    assert rows[1].startswith("1 killed/run_0 failed 137 20 2 ")
    assert rows[2].startswith("2 succeed/run_0 finished 0 100 7.5 ")
    assert "3 runs: 1 finished, 2 failed." in table
    assert "0 fail/run_0: ValueError: this is the reason" in table and any("SIGKILL" in line for line in table)
    failed = json.loads((exp_dir / "0 fail" / "run_0" / "FAILED.json").read_text())
    assert failed["error"] == "ValueError: this is the reason" and failed["exit_code"] == 1
    assert failed["traceback"][0].startswith("Traceback") and any("line" in line for line in failed["traceback"])
    assert "this is the reason" in Path(failed["stderr"]).read_text() and "to stdout of 0" in Path(failed["stdout"]).read_text()
    assert (exp_dir / "2 succeed" / "run_0" / "FINISHED.json").exists()
    for name in ("0 fail", "1 killed", "2 succeed"):
        assert len(list((exp_dir / name / "run_0").glob("*.json"))) == 1, "one state per run"


def test_a_run_that_somebody_tells_to_end_was_interrupted(train, tmp_path, mark):
    with contextlib.suppress(SystemExit):
        run_experiments(train, ONE_SLOT, tmp_path / "exp", 1, **settings("terminated"))
    (run,) = experiment_status(tmp_path / "exp")
    assert run.state == "interrupted"


def test_runs_that_finished_are_skipped_and_those_that_failed_run_again(train, tmp_path, mark, capsys):
    with pytest.raises(SystemExit) as end:
        run_experiments(train, ONE_SLOT, tmp_path / "exp", 1, **settings("fail", "succeed"))
    assert end.value.code == 1
    train.write_text(TRAIN.replace('if do == "fail":', "if False:"))
    capsys.readouterr()
    states = run_experiments(train, ONE_SLOT, tmp_path / "exp", 2, **settings("fail", "succeed", "succeed"))
    assert [state.state for state in states] == ["finished"] * 6
    assert [len(calls(state.run_dir)) for state in states] == [2, 1, 1, 1, 1, 1]
    assert "1 succeed/run_0 has finished before, and is skipped" in capsys.readouterr().out
    assert not list((tmp_path / "exp").rglob("FAILED.json"))
    stdout = (tmp_path / "exp" / "0 fail" / "run_0" / "stdout.log").read_text()
    assert stdout.count("to stdout of 0") == 2, "what the first attempt said is kept"


@pytest.mark.parametrize("number", thinned([signal.SIGINT, signal.SIGTERM, signal.SIGHUP], quick=[signal.SIGINT]))
def test_a_signal_ends_all_runs_which_save_and_go_on_later(train, tmp_path, mark, number):
    exp_dir = tmp_path / "exp"
    kwargs = dict(script=train, affinity_code=TWO_SLOTS, experiment_title=exp_dir, runs_per_setting=1)
    launcher = Launcher(tmp_path, **kwargs, **settings("succeed", "go on", "go on", "succeed"))
    for name in ("1 go on", "2 go on"):
        wait_for_text(exp_dir / name / "run_0" / "stdout.log", "waiting")
        wait_until(lambda name=name: read_mark(exp_dir / name / "run_0")[0] == "running", "its mark")
    assert [run.state for run in experiment_status(exp_dir)] == ["finished", "running", "running", "pending"]
    launcher.process.send_signal(number)
    code, out, _ = launcher.wait()
    assert code == 128 + number
    assert [run.state for run in experiment_status(exp_dir)] == ["finished", "interrupted", "interrupted", "pending"]
    assert [run.exit_code for run in experiment_status(exp_dir)] == [0, 130, 130, None]
    assert "4 runs: 1 pending, 1 finished, 2 interrupted." in out and "rlpyt resume" in out
    assert not left_behind(mark)
    code, out, _ = Launcher(tmp_path, "rerun_experiments", exp_dir=exp_dir).wait()
    assert code == 0 and "4 runs: 4 finished." in out and "1 go on/run_0 resumed in slot" in out
    first, second = calls(exp_dir / "1 go on" / "run_0")
    assert (first["resume"] or None, second["resume"]) == (None, str(exp_dir / "1 go on" / "run_0"))
    assert first["argv"][2:] == second["argv"][2:], "a script that knows nothing of it begins anew"
    assert not call(exp_dir / "3 succeed" / "run_0")["resume"]


def test_runs_that_do_not_end_are_killed_with_all_they_started(train, tmp_path, mark):
    before = "sweep.SAVE_GRACE = sweep.END_GRACE = 0.5"
    kwargs = dict(script=train, affinity_code=ONE_SLOT, experiment_title=tmp_path / "exp", runs_per_setting=1, **settings("stubborn"))
    launcher = Launcher(tmp_path, before=before, **kwargs)
    wait_for_text(tmp_path / "exp" / "0 stubborn" / "run_0" / "stdout.log", "waiting")
    launcher.process.send_signal(signal.SIGINT)
    code, out, _ = launcher.wait()
    assert code == 130 and "interrupted" in out and not left_behind(mark)


def test_a_second_signal_ends_them_at_once(train, tmp_path, mark):
    kwargs = dict(script=train, affinity_code=ONE_SLOT, experiment_title=tmp_path / "exp", runs_per_setting=1, **settings("stubborn"))
    launcher = Launcher(tmp_path, **kwargs)  # It would wait a minute.
    wait_for_text(tmp_path / "exp" / "0 stubborn" / "run_0" / "stdout.log", "waiting")
    launcher.process.send_signal(signal.SIGINT)
    time.sleep(1.5)  # Two signals at the same time are one.
    launcher.process.send_signal(signal.SIGINT)
    code, out, _ = launcher.wait()
    assert code == 130 and "1 run: 1 interrupted." in out and not left_behind(mark)
    facts = read_mark(tmp_path / "exp" / "0 stubborn" / "run_0")[1]
    assert facts["exit_code"] == 137 and facts["seconds"] < 50


@pytest.mark.skipif(sys.platform != "linux", reason="the system does not tell children of their parent's death")
def test_runs_end_when_the_launcher_is_killed_and_are_not_taken_for_running(train, tmp_path, mark):
    exp_dir = tmp_path / "exp"
    launcher = Launcher(tmp_path, script=train, affinity_code=ONE_SLOT, experiment_title=exp_dir, runs_per_setting=1, **settings("wait"))
    wait_for_text(exp_dir / "0 wait" / "run_0" / "stdout.log", "waiting")
    launcher.process.kill()
    launcher.wait()
    wait_until(lambda: not left_behind(mark), "the end of the run")
    # A process that is ending has lost its environment, by which it is found, but may still exist for a moment.
    wait_until(lambda: experiment_status(exp_dir)[0].state != "running", "the end of the process")
    (run,) = experiment_status(exp_dir)
    assert (run.state, run.steps) == ("interrupted", 50)


def test_what_a_run_leaves_behind_is_ended_before_its_slot_is_used_again(train, tmp_path, mark):
    states = run_experiments(train, ONE_SLOT, tmp_path, 1, **settings("leave something", "succeed"))
    assert [state.state for state in states] == ["finished", "finished"] and not left_behind(mark)


def test_three_immediate_failures_in_a_row_stop_the_sweep(train, tmp_path, mark, capsys):
    with pytest.raises(SystemExit) as end:
        run_experiments(train, ONE_SLOT, tmp_path, 1, **settings("fail", "fail", "fail", "succeed", "fail"))
    out = capsys.readouterr().out
    assert end.value.code == 1 and "3 runs in a row failed before they logged anything" in out and "this is the reason" in out
    assert [run.state for run in experiment_status(tmp_path)] == ["failed"] * 3 + ["pending"] * 2
    assert (tmp_path / "num_launched.txt").read_text() == "3 of 5 runs launched.\n"


@pytest.mark.parametrize("does", [("fail", "fail", "succeed", "fail", "succeed"), ("fail late",) * 4 + ("succeed",)])
def test_other_failures_do_not(train, tmp_path, mark, does):
    with pytest.raises(SystemExit):
        run_experiments(train, ONE_SLOT, tmp_path, 1, **settings(*does))
    assert [run.state for run in experiment_status(tmp_path)] == ["failed" if do.startswith("fail") else "finished" for do in does]


@full
def test_runs_that_go_well_are_waited_for_when_others_stop_the_sweep(train, tmp_path, mark):
    train.write_text(TRAIN.replace("time.sleep(0.5)", "time.sleep(3)"))
    with pytest.raises(SystemExit):
        run_experiments(train, TWO_SLOTS, tmp_path, 1, **settings("short", "fail", "fail", "fail", "succeed"))
    assert [run.state for run in experiment_status(tmp_path)] == ["finished", "failed", "failed", "failed", "pending"]


@full
def test_an_exit_code_without_a_word_is_a_failure_and_the_run_is_done_again(train, tmp_path, mark):
    does = ("log and leave", "log and complete", "succeed", "log, then say nothing")
    for attempt in (1, 2):
        with pytest.raises(SystemExit):
            run_experiments(train, ONE_SLOT, tmp_path / "exp", 1, **settings(*does))
        runs = experiment_status(tmp_path / "exp")
        assert [run.state for run in runs] == ["failed", "finished", "finished", "failed"]
        assert [len(calls(run.run_dir)) for run in runs] == [attempt, 1, 1, attempt]
        assert runs[0].exit_code == 0 and runs[0].error.startswith("exit code 0, but debug.log does not end like that of a complete run")
    assert runs[3].exit_code == 0, "what the log says is of the first attempt, which failed"


RLPYT_TRAIN = """
import errno, os, sys
from gymnasium.envs.classic_control import CartPoleEnv
from rlpyt.agents.pg.mlp import MlpFfAgent
from rlpyt.algos.pg.a2c import A2C
from rlpyt.runners.minibatch_rl import MinibatchRl
from rlpyt.samplers.serial.sampler import SerialSampler
from rlpyt.utils.launching.variant import load_variant
from rlpyt.utils.logging import snapshot
from rlpyt.utils.logging.context import logger_context

code, log_dir, run_ID = sys.argv[1:]
do, n = load_variant(log_dir)["do"], 0


class LeavingEnv(CartPoleEnv):
    def step(self, action):
        global n
        n += 1
        if do == "exit" and n == 500:
            sys.exit()
        if do == "_exit" and n == 500:
            os._exit(0)
        return super().step(action)


def refuse(path, data):
    raise OSError(errno.ENOSPC, "No space left on device")


if do == "disk full":
    snapshot.write = refuse
sampler = SerialSampler(LeavingEnv, {}, batch_T=10, batch_B=2, max_decorrelation_steps=0)
affinity = dict(master_torch_threads=1, set_affinity=False)
runner = MinibatchRl(algo=A2C(), agent=MlpFfAgent(), sampler=sampler, n_steps=1000, log_interval_steps=200, affinity=affinity)
with logger_context(log_dir, run_ID, "test"):
    runner.train()
"""


@full
def test_runs_that_did_not_come_to_their_end_are_in_the_table_with_the_reason(tmp_path, mark, capsys, monkeypatch):
    (tmp_path / "train.py").write_text(RLPYT_TRAIN)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    with pytest.raises(SystemExit) as end:
        run_experiments(tmp_path / "train.py", TWO_SLOTS, tmp_path / "exp", 1, **settings("exit", "_exit", "disk full", "succeed"))
    out = capsys.readouterr().out
    runs = experiment_status(tmp_path / "exp")
    assert end.value.code == 1 and [(run.state, run.exit_code) for run in runs] == [
        ("failed", 1),
        ("failed", 0),
        ("failed", 1),
        ("finished", 0),
    ]
    assert "RuntimeError: An environment called sys.exit(). This was in environment " in out and "of batch 24" in out
    assert "exit code 0, but debug.log does not end" in out
    assert "The last snapshot could not be saved" in out and "[Errno 28] No space left on device" in out


def test_what_cannot_be_started_has_failed(train, tmp_path, mark, monkeypatch):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "no python"))
    with pytest.raises(SystemExit):
        run_experiments(train, ONE_SLOT, tmp_path / "exp", 1, **settings("succeed"))
    (run,) = experiment_status(tmp_path / "exp")
    assert run.state == "failed" and run.error.startswith("It could not be started") and "no python" in run.error


def test_systems_that_cannot_wait_for_several_processes_look_now_and_then(train, tmp_path, mark, monkeypatch):
    for name in ("pidfd_open", "waitid"):
        monkeypatch.delattr(os, name, raising=False)
    states = run_experiments(train, TWO_SLOTS, tmp_path, 1, **settings("short", "leave something", "short"))
    assert [state.state for state in states] == ["finished"] * 3 and not left_behind(mark)


@full
def test_on_a_terminal_there_is_a_line_for_each_running_run(train, tmp_path, mark):
    import pty

    master, slave = pty.openpty()
    exp_dir = tmp_path / "exp"
    variants = dict(settings("wait", "wait"))
    code = (
        "from rlpyt.utils.launching.exp_launcher import run_experiments\n"
        f"run_experiments({str(train)!r}, {TWO_SLOTS!r}, {str(exp_dir)!r}, 1, {variants['variants']!r}, {variants['log_dirs']!r})\n"
    )
    environment = dict(os.environ, PYTHONPATH=str(ROOT), COLUMNS="80", LINES="24")
    process = subprocess.Popen([sys.executable, "-c", code], stdout=slave, stderr=slave, stdin=slave, env=environment)
    os.close(slave)
    shown = b""
    try:
        deadline = time.monotonic() + 60
        while shown.count(b"50 steps  return 5") < 2:
            assert time.monotonic() < deadline
            shown += os.read(master, 1000)
        process.send_signal(signal.SIGINT)
        while True:
            shown += os.read(master, 1000)
    except OSError:  # its end
        pass
    finally:
        process.kill()
        process.wait()
        os.close(master)
    assert b"0 of 2 runs ended, 2 running" in shown and b"slot 1  1 wait/run_0" in shown and b"2 runs: 2 interrupted." in shown


# --- What happens to the launcher itself -------------------------------------------------------------------------------
def test_what_its_output_cannot_show_does_not_end_runs(train, tmp_path, mark):
    kwargs = dict(script=train, affinity_code=TWO_SLOTS, experiment_title=tmp_path / "exp", runs_per_setting=1)
    kwargs |= settings("short", "fail in other letters", "succeed")
    code, out, err = Launcher(tmp_path, environment=dict(PYTHONIOENCODING="latin-1"), **kwargs).wait()
    assert (code, err) == (1, "") and "ValueError: ??????? ?" in out
    assert [run.state for run in experiment_status(tmp_path / "exp")] == ["finished", "failed", "finished"]


@full
@pytest.mark.parametrize("do, expected", [("short", 0), ("fail", 1)])
@pytest.mark.parametrize("before", ["", "sys.stdout.close()", "sys.stdout = None", "sys.stdout = open('/dev/full', 'w')"])
def test_nobody_has_to_read_its_output(train, tmp_path, mark, before, do, expected):
    kwargs = dict(script=train, affinity_code=ONE_SLOT, experiment_title=tmp_path / "exp", runs_per_setting=2, **settings(do))
    launcher = Launcher(tmp_path, before=before, **kwargs)
    if not before:
        launcher.process.stdout.readline()  # As `head -1` does.
    launcher.process.stdout.close()
    err = launcher.process.stderr.read()
    assert (launcher.process.wait(60), err) == (expected, "")
    assert len(experiment_status(tmp_path / "exp")) == 2


@full
def test_after_an_error_that_nobody_expected_runs_save_before_it_is_raised(train, tmp_path, mark, monkeypatch):
    class SomeBug(Exception):
        pass

    def show(self):
        if all((attempt.run.run_dir / "progress.csv").exists() for attempt in self._running):
            raise SomeBug

    monkeypatch.setattr(sweep.Sweep, "_show", show)
    with pytest.raises(SomeBug):
        run_experiments(train, TWO_SLOTS, tmp_path / "exp", 1, **settings("wait", "wait", "succeed"))
    assert [run.state for run in experiment_status(tmp_path / "exp")] == ["interrupted", "interrupted", "pending"]
    for name in ("0 wait", "1 wait"):
        assert "saved" in (tmp_path / "exp" / name / "run_0" / "stdout.log").read_text()


@full
def test_slots_of_runs_that_end_together_are_used_again_together(train, tmp_path, mark):
    """What each has left behind is given its time at once, not one after the other."""
    run_experiments(train, encode_affinity(n_cpu_core=4, set_affinity=False), tmp_path, 1, **settings(*["leave something"] * 4, "short"))
    ends = [(tmp_path / f"{i} leave something" / "run_0" / "progress.csv").stat().st_mtime for i in range(4)]
    marks = [read_mark(tmp_path / f"{i} leave something" / "run_0")[1] for i in range(4)]
    assert all(abs(facts["started"] + facts["seconds"] - end) < 1 for facts, end in zip(marks, ends)), "when the process itself ended"
    assert read_mark(tmp_path / "4 short" / "run_0")[1]["started"] - min(ends) < 3


def test_waiting_for_less_than_no_time_ends(train):
    assert sweep.Sweep(sweep.InOrder([]), 1)._wait(-0.5) is None


@full
def test_marks_of_running_runs_are_touched(train, tmp_path, mark):
    kwargs = dict(script=train, affinity_code=ONE_SLOT, experiment_title=tmp_path / "exp", runs_per_setting=1)
    launcher = Launcher(tmp_path, **kwargs, **settings("wait"))
    file = tmp_path / "exp" / "0 wait" / "run_0" / "RUNNING.json"
    wait_until(file.exists, "its mark")
    written = file.stat().st_mtime_ns
    wait_until(lambda: file.stat().st_mtime_ns > written, "a touch")
    wait_for_text(tmp_path / "exp" / "0 wait" / "run_0" / "stdout.log", "waiting")
    launcher.process.send_signal(signal.SIGINT)
    assert "SIGINT: ending 1 run, with time to save" in launcher.wait()[1]


def test_the_first_and_last_lines_of_what_a_run_said_are_kept(train, tmp_path, mark):
    with pytest.raises(SystemExit):
        run_experiments(train, ONE_SLOT, tmp_path, 1, **settings("fail at length"))
    failed = json.loads((tmp_path / "0 fail at length" / "run_0" / "FAILED.json").read_text())
    said = (tmp_path / "0 fail at length" / "run_0" / "stderr.log").read_text().splitlines()
    first = next(i for i, line in enumerate(said) if line.startswith("Traceback"))
    assert said[-1] == "[rank0]:[W1122] Warning: not called" and failed["error"] == "ValueError: this is the reason"
    assert failed["traceback"] == both_ends(said[first:])


@full
def test_resumed_runs_that_fail_at_once_stop_the_sweep_too(train, tmp_path, mark):
    """Their table is written anew, with the rows of before."""
    with pytest.raises(SystemExit):
        run_experiments(train, ONE_SLOT, tmp_path / "exp", 1, **settings(*["fail with a snapshot"] * 5))
    assert [len(calls(run.run_dir)) for run in experiment_status(tmp_path / "exp")] == [1] * 5
    with pytest.raises(SystemExit):
        rerun_experiments(tmp_path / "exp")
    assert [len(calls(run.run_dir)) for run in experiment_status(tmp_path / "exp")] == [2, 2, 2, 1, 1]


# --- What is refused ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "wrong, error, message",
    [
        (dict(script="no_such.py"), FileNotFoundError, "no script 'no_such.py'"),
        (dict(runs_per_setting=0), ValueError, "runs_per_setting=0"),
        (dict(runs_per_setting=1.5), ValueError, "runs_per_setting=1.5"),
        (dict(variants=[]), ValueError, "variants is empty"),
        (dict(log_dirs=["a"]), ValueError, "2 variants, but 1 log_dirs"),
        (dict(runs_args=[[]]), ValueError, "2 variants, but 1 runs_args"),
        (dict(log_dirs=["a", "b/../a"]), ValueError, "same log_dir"),
        (dict(log_dirs=["a", "../b"]), ValueError, "inside the directory of the experiment"),
        (dict(log_dirs=["a", "/b"]), ValueError, "inside the directory of the experiment"),
        (dict(log_dirs=["a", "a/run_0"]), ValueError, "'a/run_0' is in that of a run of 'a'"),
        (dict(log_dirs=["a/run_12/b", "./a"]), ValueError, "'a/run_12/b' is in that of a run of './a'"),
        (dict(log_dirs=["run_1", ""]), ValueError, "'run_1' is in that of a run of ''"),
        (dict(common_args="dqn"), TypeError, "common_args='dqn' must be a list"),
        (dict(runs_args=["ab", "cd"]), TypeError, "must be a list"),
        (dict(common_args=["a\0b"]), ValueError, "zero character"),
        (dict(variants=[{}, dict(a=object())]), TypeError, "not <object"),
        (dict(affinity_code="8cup"), ValueError, "cup"),
        (dict(affinity_code="100000cpu"), ValueError, "100000|100,000"),
        (dict(set_egl_device=True), ValueError, "set_egl_device"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_started_or_written(train, tmp_path, wrong, error, message):
    right = dict(script=train, affinity_code=ONE_SLOT, runs_per_setting=1, variants=[{}, {}], log_dirs=["a", "b"])
    with pytest.raises(error, match=message):
        run_experiments(experiment_title=tmp_path / "exp", **{**right, **wrong})
    assert not (tmp_path / "exp").exists()


def test_runs_of_other_variants_are_not_mixed_with_these(train, tmp_path, mark):
    run_experiments(train, ONE_SLOT, tmp_path, 1, [dict(lr=(1, 2))], ["a"])
    run_experiments(train, ONE_SLOT, tmp_path, 1, [dict(lr=(1, 2))], ["a"])
    with pytest.raises(ValueError, match="another variant.*another log_dir"):
        run_experiments(train, ONE_SLOT, tmp_path, 1, [dict(lr=(1, 3))], ["a"])
    assert load_variant(tmp_path / "a") == dict(lr=[1, 2])


def test_a_variant_with_nan_may_be_launched_again(train, tmp_path, mark):
    for _ in range(2):
        states = run_experiments(train, ONE_SLOT, tmp_path, 1, [dict(fill=float("nan"))], ["a"])
        assert [run.state for run in states] == ["finished"]


def test_an_experiment_is_not_run_in_the_directory_of_a_search(train, tmp_path):
    (tmp_path / "exp").mkdir()
    (tmp_path / "exp" / "search.json").write_text("{}")
    with pytest.raises(ValueError, match="exp is the directory of a search: give the experiment another one"):
        run_experiments(train, ONE_SLOT, tmp_path / "exp", 1, [{}], ["a"])
    assert os.listdir(tmp_path / "exp") == ["search.json"]


def test_a_setting_may_be_within_another_one(train, tmp_path, mark):
    log_dirs = ["a", "a/b", "a/run_of_mine", "c/run_0"]
    states = run_experiments(train, TWO_SLOTS, tmp_path, 1, [{}] * 4, log_dirs)
    assert [run.name for run in states] == [f"{name}/run_0" for name in log_dirs]


@pytest.mark.parametrize(
    "changed, difference",
    [
        (dict(common_args=["real"]), r"common_args: \['--smoke'\] before, \['real'\] now"),
        (dict(runs_args=[["x"], ["y"]]), r"runs_args of 'b': \[\] before, \['y'\] now"),
        (dict(script="other.py"), "script: .*before, .*other.py' now"),
        (dict(common_args=["real"], variants=[{}], log_dirs=["c"]), "common_args: .* now"),
    ],
)
def test_runs_that_finished_with_other_arguments_are_not_taken_for_these(train, tmp_path, mark, changed, difference):
    """Or else tiny runs, to see whether everything works, would pass for the experiment."""
    exp_dir = tmp_path / "exp"
    asked = dict(affinity_code=ONE_SLOT, experiment_title=exp_dir, runs_per_setting=1)
    asked |= dict(script=train, variants=[dict(do="fail"), {}], log_dirs=["a", "b"], common_args=["--smoke"])
    with pytest.raises(SystemExit):
        run_experiments(**asked)
    before = {path: path.read_bytes() for path in exp_dir.rglob("*") if path.is_file()}
    (tmp_path / "other.py").write_text(TRAIN)
    changed = {name: str(tmp_path / value) if name == "script" else value for name, value in changed.items()}
    with pytest.raises(ValueError, match=f"{difference}.*another directory"):
        run_experiments(**{**asked, **changed})
    assert {path: path.read_bytes() for path in exp_dir.rglob("*") if path.is_file()} == before


def test_arguments_with_which_nothing_has_finished_may_be_mended(train, tmp_path, mark):
    asked = dict(script=train, affinity_code=ONE_SLOT, experiment_title=tmp_path / "exp", runs_per_setting=1)
    with pytest.raises(SystemExit):
        run_experiments(**asked, variants=[dict(do="fail")], log_dirs=["a"], common_args=["wrong"])
    train.write_text(TRAIN.replace('if do == "fail":', "if False:"))
    run_experiments(**asked, variants=[dict(do="fail")], log_dirs=["a"], common_args=["right"])
    assert [call["argv"][-1] for call in calls(tmp_path / "exp" / "a" / "run_0")] == ["wrong", "right"]


@full
def test_what_is_not_asked_for_any_more_stays_part_of_the_experiment(train, tmp_path, mark, capsys):
    exp_dir = tmp_path / "exp"
    with pytest.raises(SystemExit):
        run_experiments(train, ONE_SLOT, exp_dir, 1, [dict(do="fail"), {}], ["a", "b"], runs_args=[["A"], ["B"]])
    states = run_experiments(train, ONE_SLOT, exp_dir, 2, [{}, {}], ["b", "c"], runs_args=[["B"], ["C"]])
    assert [run.name for run in states] == ["b/run_0", "c/run_0", "b/run_1", "c/run_1"]
    assert {run.name: run.state for run in experiment_status(exp_dir)} == {
        "a/run_0": "failed",
        **{name: "finished" for name in ("b/run_0", "c/run_0", "b/run_1", "c/run_1")},
    }
    assert not (exp_dir / "a" / "run_1").exists() and "b/run_1" not in (exp_dir / "experiments_tree.txt").read_text().split("├── b")[0]
    train.write_text(TRAIN.replace('if do == "fail":', "if False:"))
    assert [run.state for run in rerun_experiments(exp_dir)] == ["finished"] * 5
    assert [call["argv"][-1] for call in calls(exp_dir / "a" / "run_0")] == ["A", "A"] and len(calls(exp_dir / "c" / "run_1")) == 1


def test_so_do_runs_when_fewer_are_asked_for(train, tmp_path, mark):
    exp_dir = tmp_path / "exp"
    run_experiments(train, ONE_SLOT, exp_dir, 2, [{}], ["a"])
    assert len(run_experiments(train, ONE_SLOT, exp_dir, 1, [{}], ["a"])) == 1
    assert [run.name for run in rerun_experiments(exp_dir)] == ["a/run_0", "a/run_1"]


def test_a_run_that_is_running_elsewhere_is_named(train, tmp_path, mark):
    run_dir = tmp_path / "a" / "run_0"
    run_dir.mkdir(parents=True)
    (run_dir / "RUNNING.json").write_text(json.dumps(dict(host="another host", pid=12)))
    with pytest.raises(exp_launcher.StillRunning, match="still running, as process 12 on another host, says .*RUNNING.json"):
        run_experiments(train, ONE_SLOT, tmp_path, 1, [{}], ["a"])
    os.utime(run_dir / "RUNNING.json", (time.time() - 100,) * 2)
    assert run_experiments(train, ONE_SLOT, tmp_path, 1, [{}], ["a"])[0].state == "finished"


def test_an_experiment_is_not_run_twice_at_the_same_time(train, tmp_path, mark):
    exp_dir = tmp_path / "exp"
    launcher = Launcher(tmp_path, script=train, affinity_code=ONE_SLOT, experiment_title=exp_dir, runs_per_setting=1, **settings("wait"))
    wait_for_text(exp_dir / "0 wait" / "run_0" / "stdout.log", "waiting")
    with pytest.raises(RuntimeError, match="is still running, as process|is running already, by another launcher"):
        rerun_experiments(exp_dir)
    launcher.process.send_signal(signal.SIGINT)
    assert launcher.wait()[0] == 130


def test_what_is_no_experiment_is_not_run_again(tmp_path):
    with pytest.raises(ValueError, match="not the directory of an experiment"):
        rerun_experiments(tmp_path)
    (tmp_path / "experiment.json").write_text("[]")
    with pytest.raises(ValueError, match="not the directory of an experiment"):
        rerun_experiments(tmp_path)


def test_a_title_is_a_name_in_the_directory_of_today(train, tmp_path, mark, monkeypatch):
    monkeypatch.setattr("rlpyt.utils.logging.context.LOG_DIR", str(tmp_path))
    (state,) = run_experiments(train, ONE_SLOT, "my title", 1, [{}], [""])
    assert state.run_dir.parent.name == "my title" and state.run_dir.relative_to(tmp_path / "local").parts[-2:] == ("my title", "run_0")
