"""rlpyt resume."""

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import torch
from tiers import full, processes

from rlpyt.utils.launching.exp_launcher import run_experiments
from rlpyt.utils.launching.status import mark, read_mark
from rlpyt.utils.logging.context import sole_writer

TRAIN = Path(__file__).parents[2] / "examples" / "train.py"
# Without schedules, which depend on how long a run is to be.
SHORT, LONG = (("algo.linear_lr_schedule=False", f"runner.n_steps={n_steps}") for n_steps in (128, 256))


@pytest.fixture
def run_dir(trained, tmp_path):
    """A run of 256 environment steps, to write to."""
    return Path(shutil.copytree(trained("cartpole", "ppo", *SHORT), tmp_path / "run_0"))


def rows(run_dir):
    with open(run_dir / "progress.csv") as file:
        return [{k: v for k, v in row.items() if "Time" not in k and "PerSecond" not in k} for row in csv.DictReader(file)]


def parameters(run_dir):
    return torch.load(run_dir / "params.pkl", weights_only=True)["agent_state_dict"]


def test_a_resumed_run_ends_as_one_that_never_stopped(run_dir, trained, rlpyt):
    code, out, _ = rlpyt("resume", run_dir, "--n_steps", "256")
    assert code == 0 and "Resumed after iteration" in out and "Training complete" in out
    whole = trained("cartpole", "ppo", *LONG)
    torch.testing.assert_close(parameters(run_dir), parameters(whole), rtol=0, atol=0)
    assert rows(run_dir) == rows(whole)
    ours, theirs = (json.loads((d / "params.json").read_text()) for d in (run_dir, whole))
    for params in (ours, theirs):
        params["runner"].pop("n_steps")  # What the script logged.
        params["rlpyt"]["runner"]["arguments"].pop("n_steps")  # What the run was given at first; the record has the new number, too.
        for name in ("started", "command", "resumed"):
            params["rlpyt"].pop(name, None)
    assert ours == theirs and ours["rlpyt"]["n_steps"] == 256, "so that it can be resumed again"


def test_nothing_of_the_run_is_lost(run_dir, rlpyt):
    before = {path.name: path.read_bytes() for path in run_dir.iterdir()}
    assert rlpyt("resume", run_dir, "--n_steps", "256")[0] == 0
    after = [path.read_bytes() for path in run_dir.iterdir()]
    assert all(contents in after for contents in before.values())
    assert rlpyt("resume", run_dir, "--n_steps", "768")[0] == 0, "and it goes on from the second part"


@pytest.mark.parametrize("run_ID", ["00", "a-b.c"])
def test_a_run_is_resumed_in_its_own_directory(run_dir, rlpyt, run_ID):
    """Also one whose ID is no number, or another text of the same number."""
    own = Path(shutil.copytree(run_dir, run_dir.with_name(f"run_{run_ID}")))
    assert rlpyt("resume", own, "--n_steps", "256")[0] == 0
    assert len(rows(own)) > len(rows(run_dir)) and sorted(run_dir.parent.iterdir()) == sorted([run_dir, own])
    assert "progress.1.csv" not in [path.name for path in run_dir.iterdir()]


@pytest.mark.parametrize("options, mode", [([], "best"), (["--snapshot_mode", "all"], "all")])
def test_the_log_is_opened_as_before(run_dir, rlpyt, options, mode):
    params = json.loads((run_dir / "params.json").read_text())
    assert params["rlpyt"]["log"]["use_summary_writer"] is False
    before = dict(use_summary_writer=True, tf_step="env_steps", snapshot_mode="best", snapshot_gap=7, use_wandb=True)
    params["rlpyt"]["log"] = before
    (run_dir / "params.json").write_text(json.dumps(params))
    code, out, _ = rlpyt("resume", run_dir, "--n_steps", "256", *options)
    assert code == 0 and "Weights & Biases does not get the rest of this run" in out
    assert list(run_dir.glob("events.out.*"))
    now = json.loads((run_dir / "params.json").read_text())["rlpyt"]["log"]
    assert now == dict(before, snapshot_mode=mode, use_wandb=False)
    assert (run_dir / "itr_1.pkl").exists() == (mode == "all")
    header = (run_dir / "progress.csv").read_text().splitlines()[0].split(",")
    assert "ReturnAverage" in header and "Return/Average" not in header


def test_a_run_that_stopped_in_its_last_interval_is_completed(run_dir, rlpyt):
    """The number of steps is rounded up to whole intervals."""
    params = json.loads((run_dir / "params.json").read_text())
    params["rlpyt"]["n_steps"] = 100
    params["rlpyt"]["runner"]["arguments"]["log_interval_steps"] = 256
    (run_dir / "params.json").write_text(json.dumps(params))
    code, out, _ = rlpyt("resume", run_dir)  # It has taken 128 steps.
    assert code == 0 and "Resumed after iteration 0" in out and "100% of 256 steps" in out
    code, out, _ = rlpyt("resume", run_dir)
    assert code == 0 and "is complete, with 256 of 256 environment steps" in out


def test_tensorboard_that_is_not_installed_is_left_out(run_dir, rlpyt, monkeypatch):
    params = json.loads((run_dir / "params.json").read_text())
    params["rlpyt"]["log"]["use_summary_writer"] = True
    (run_dir / "params.json").write_text(json.dumps(params))
    monkeypatch.setattr("rlpyt.cli.resume.find_spec", lambda name: None)
    code, out, _ = rlpyt("resume", run_dir, "--n_steps", "256")
    assert code == 0 and "TensorBoard does not get the rest of this run, because it is not installed" in out
    assert not list(run_dir.glob("events.out.*"))


def test_iterations_of_an_asynchronous_run_are_those_of_its_sampler(run_dir, rlpyt):
    """Its `itr` counts updates."""
    snapshot = torch.load(run_dir / "params.pkl", weights_only=True)
    torch.save(dict(snapshot, itr=7, sampler_itr=0), run_dir / "params.pkl")
    params = json.loads((run_dir / "params.json").read_text())
    params["rlpyt"]["n_steps"] = 100
    params["rlpyt"]["runner"]["arguments"]["log_interval_steps"] = 200
    (run_dir / "params.json").write_text(json.dumps(params))
    code, out, _ = rlpyt("resume", run_dir)
    assert code == 0 and "is complete, with 128 of 128 environment steps" in out


def test_a_complete_run_is_left_alone(run_dir, rlpyt):
    before = sorted(run_dir.iterdir())
    code, out, _ = rlpyt("resume", run_dir)
    assert code == 0 and "is complete, with 128 of 128 environment steps: --n_steps makes it longer" in out
    assert sorted(run_dir.iterdir()) == before


def test_fewer_steps_than_a_complete_run_has_taken_are_refused(trained, rlpyt):
    run_dir = trained("cartpole", "ppo", *LONG)
    before = sorted(run_dir.iterdir())
    code, _, err = rlpyt("resume", run_dir, "--n_steps", "12")
    assert code == 2 and "The run already has 256 environment steps, and --n_steps 12 asks for fewer: give more than 256." in err
    assert rlpyt("resume", run_dir, "--n_steps", "250")[0] == 0, "whole iterations make 256 of it, so that the run is complete"
    assert sorted(run_dir.iterdir()) == before


def test_fewer_steps_than_an_incomplete_run_has_taken_are_refused(run_dir, rlpyt):
    params = json.loads((run_dir / "params.json").read_text())
    params["rlpyt"]["n_steps"] = 256
    (run_dir / "params.json").write_text(json.dumps(params))
    before = sorted(run_dir.iterdir())
    code, _, err = rlpyt("resume", run_dir, "--n_steps", "12")
    assert code == 2 and "--n_steps 12 is too few: the run has taken 128 of 256 environment steps" in err
    assert sorted(run_dir.iterdir()) == before


@pytest.mark.parametrize("left", [0, 1])
def test_rows_that_the_table_has_lost_are_told(run_dir, rlpyt, left):
    lines = (run_dir / "progress.csv").read_text().splitlines(keepends=True)
    (run_dir / "progress.csv").write_text("".join(lines[: 1 + left]))
    code, out, _ = rlpyt("resume", run_dir, "--n_steps", "256")
    assert code == 0 and f"has only {left} of the {len(lines) - 1} rows that were written before the snapshot" in out
    assert len(rows(run_dir)) == left + 1


def test_a_solved_run_is_left_alone_unless_stop_return_is_another_one(trained, tmp_path, rlpyt):
    solved = trained("cartpole", "ppo", *SHORT, "runner.stop_return=1")
    run_dir = Path(shutil.copytree(solved, tmp_path / "run_0"))
    before, n_rows = sorted(run_dir.iterdir()), len(rows(run_dir))
    code, out, _ = rlpyt("resume", run_dir)
    assert code == 0 and "is complete. Solved: mean return" in out and "(stop_return=1)" in out
    assert sorted(run_dir.iterdir()) == before
    assert rlpyt("resume", run_dir, "--n_steps", "256", "--stop_return", "none")[0] == 0
    assert len(rows(run_dir)) > n_rows
    assert json.loads((run_dir / "params.json").read_text())["rlpyt"]["stop_return"] is None


@pytest.mark.parametrize(
    "args, message",
    [
        (["run_0", "--stop_return", "nan"], "stop_return=nan is not possible; it must be a finite number"),
        (["run_0", "--stop_return", "much"], "much must be a number, or none"),
        ([""], "launched. It has run_0: give one of these."),
        ([""], "must be the directory of a run, called run_<ID>"),
        (["run_1"], "There is no directory"),
        (["run_0", "--n_steps", "nan"], "--n_steps nan must be a finite number"),
        (["run_0", "--n_steps", "inf"], "--n_steps inf must be a finite number"),
        (["run_0", "--n_steps", "256", "--snapshot_mode", "lats"], "snapshot_mode='lats' is unknown"),
        (["run_0", "--n_parallel", "0"], "must be an integer of at least 1"),
        (["run_0", "--n_steps", "256", "--script", "s.py:f", "--n_parallel", "2"], "cannot be combined with --script"),
    ],
)
def test_what_cannot_be_resumed_is_refused_and_stays_as_it_is(run_dir, tmp_path, rlpyt, args, message):
    before = {path: path.read_bytes() for path in run_dir.iterdir()}
    code, _, err = rlpyt("resume", tmp_path / args[0], *args[1:])
    assert code == 2 and message in err
    assert {path: path.read_bytes() for path in run_dir.iterdir()} == before


@pytest.mark.parametrize("names", [["variant.json", "metadata.json"], ["trainer.json"]])
def test_what_only_a_script_can_resume_is_told_how(tmp_path, rlpyt, names):
    for name in names:
        (tmp_path / name).write_text("{}")
    code, _, err = rlpyt("resume", tmp_path)
    assert code == 2 and "a run of wrap_experiment or of a Trainer" in err and "not a snapshot" not in err
    assert f"trainer.setup(...), trainer.restore({str(tmp_path)!r}) and trainer.resume()" in err
    (tmp_path / names[0]).unlink()
    assert "must be the directory of a run, called run_<ID>" in rlpyt("resume", tmp_path)[2]


def test_other_settings_are_refused_before_anything_is_renamed(run_dir, rlpyt):
    params = json.loads((run_dir / "params.json").read_text())
    params["rlpyt"]["algo"]["arguments"]["learning_rate"] = 0.5
    (run_dir / "params.json").write_text(json.dumps(params))
    before = sorted(run_dir.iterdir())
    code, _, err = rlpyt("resume", run_dir, "--n_steps", "256")
    assert code == 2 and "algo.learning_rate: 0.001 in the snapshot, 0.5 now" in err
    assert sorted(run_dir.iterdir()) == before


def test_a_snapshot_of_an_agent_alone_is_refused(run_dir, rlpyt):
    for file in run_dir.glob("*.pkl"):
        snapshot = torch.load(file, weights_only=True)
        del snapshot["run"]
        torch.save(snapshot, file)
    assert "not the state of a run" in rlpyt("resume", run_dir, "--n_steps", "256")[2]


def test_an_error_of_training_comes_with_its_traceback(run_dir, monkeypatch, rlpyt):
    from rlpyt.algos.pg.ppo import PPO

    def fail(self, itr, samples):
        raise FloatingPointError("loss became nan")

    monkeypatch.setattr(PPO, "optimize_agent", fail)
    code, _, err = rlpyt("resume", run_dir, "--n_steps", "256")
    assert code == 1 and "Traceback" in err and "loss became nan" in err
    assert "loss became nan" in (run_dir / "debug.log").read_text()
    monkeypatch.undo()
    assert rlpyt("resume", run_dir, "--n_steps", "256")[0] == 0, "from the last snapshot there is"


def test_a_function_of_the_script_builds_the_runner(run_dir, tmp_path, rlpyt):
    script = """
from rlpyt.experiments.build import build
from rlpyt.experiments.configs import SECTIONS, classes_of, load

def again(params):
    module, _, key = params["configuration"].partition(":")
    config = {name: params[name] for name in SECTIONS if name in params}
    return build(config, classes_of(load(module), key), dict(set_affinity=False), 0)
"""
    (tmp_path / "script.py").write_text(script)
    code, out, err = rlpyt("resume", run_dir, "--n_steps", "256", "--script", f"{tmp_path / 'script.py'}:again")
    assert code == 0 and "Training complete" in out, err


@pytest.mark.parametrize(
    "recorded, cuda_idx, n_parallel, expected",
    [
        (None, None, None, {}),
        (None, 1, 3, dict(workers_cpus=[0, 1, 2], set_affinity=False, cuda_idx=1)),
        (dict(workers_cpus=[4, 5], cuda_idx=0), None, None, {}),
        (dict(workers_cpus=[4, 5], cuda_idx=0), None, 1, dict(workers_cpus=[0], cuda_idx=0)),
        ("auto", None, None, {}),
        ("auto", None, 2, dict(workers_cpus=[0, 1], set_affinity=False)),
        ("auto", 1, None, dict(cuda_idx=1, set_affinity=False)),
        (dict(workers_cpus=[4, 5], cuda_idx=0), "none", None, dict(workers_cpus=[4, 5], cuda_idx=None)),
        ([dict(cuda_idx=0), dict(cuda_idx=1)], None, None, {}),
    ],
)
def test_the_affinity_is_that_of_before_but_for_what_is_given(recorded, cuda_idx, n_parallel, expected):
    from rlpyt.cli.resume import new_affinity

    record = dict(runner=dict(arguments=dict(affinity=recorded)))
    assert new_affinity(record, cuda_idx, n_parallel) == (dict(affinity=expected) if expected else {})


def test_a_run_of_a_gpu_is_resumed_on_a_machine_without(run_dir, monkeypatch, rlpyt):
    from rlpyt.utils import accelerator

    file = run_dir / "params.json"
    params = json.loads(file.read_text())
    params["rlpyt"]["runner"]["arguments"]["affinity"]["cuda_idx"] = 3
    file.write_text(json.dumps(params))
    monkeypatch.setattr(accelerator, "count", lambda: 3)
    before = sorted(run_dir.iterdir())
    for args in ([], ["--cuda_idx", "3"]):
        code, _, err = rlpyt("resume", run_dir, "--n_steps", "256", *args)
        assert code == 2 and "GPU 3 is not visible to this process" in err and "on the CPU, with --cuda_idx none" in err
    assert sorted(run_dir.iterdir()) == before
    assert "must be an integer, or none" in rlpyt("resume", run_dir, "--cuda_idx", "1.5")[2]
    code, out, err = rlpyt("resume", run_dir, "--n_steps", "256", "--cuda_idx", "none")
    assert code == 0 and "Training complete" in out, err
    assert json.loads(file.read_text())["rlpyt"]["runner"]["arguments"]["affinity"]["cuda_idx"] is None


def test_affinities_of_several_processes_are_not_guessed():
    from rlpyt.cli.resume import new_affinity

    for recorded in ([{}, {}], dict(optimizer=[{}], sampler={})):
        with pytest.raises(ValueError, match="several processes"):
            new_affinity(dict(runner=dict(arguments=dict(affinity=recorded))), 0, None)


@processes
@pytest.mark.timeout(100)
def test_what_has_not_finished_of_an_experiment_is_launched_again(tmp_path, monkeypatch, rlpyt):
    script = tmp_path / "script.py"
    script.write_text("import sys, pathlib; sys.exit(sys.argv[3] == '1' and not pathlib.Path(sys.argv[4]).exists())")
    exp_dir, repaired = tmp_path / "experiment", tmp_path / "repaired"
    with pytest.raises(SystemExit):
        run_experiments(script, "1cpu", exp_dir, 2, [{}], ["a"], common_args=[repaired])
    assert "2 runs: 1 finished, 1 failed." in rlpyt("status", exp_dir)[1]
    assert "--n_steps are for a single run" in rlpyt("resume", exp_dir, "--n_steps", "5")[2]
    assert rlpyt("resume", exp_dir, "--trust")[0] == 1, "a run has failed again"
    repaired.touch()
    code, _, err = rlpyt("resume", exp_dir)
    assert code == 2 and f"would be resumed by running {script}" in err and "--trust" in err
    monkeypatch.chdir(tmp_path)
    code, out, _ = rlpyt("resume", exp_dir)
    assert code == 0 and "a/run_0 has finished before" in out and "2 runs: 2 finished." in out
    assert "has no experiment.json" in rlpyt("resume", exp_dir / "a", "--affinity_code", "1cpu")[2]


@processes
@pytest.mark.skipif(sys.platform != "linux", reason="It depends on the system what is locked.")
def test_an_experiment_that_is_running_is_refused_in_a_sentence(tmp_path, rlpyt):
    script = tmp_path / "script.py"
    script.touch()
    run_experiments(script, "1cpu", tmp_path / "exp", 1, [{}], ["a"])
    with sole_writer(tmp_path / "exp", ""):
        code, _, err = rlpyt("resume", tmp_path / "exp", "--trust")
    assert code == 2 and "is running already, by another launcher" in err and "Traceback" not in err
    with sole_writer(tmp_path / "exp" / "a" / "run_0", ""):
        code, _, err = rlpyt("resume", tmp_path / "exp", "--trust")
    assert code == 2 and "run_0 is still running, as its directory is locked by a process" in err


@pytest.mark.parametrize(
    "end, state, facts",
    [
        (None, "finished", dict(exit_code=0)),
        (FloatingPointError("loss became nan"), "failed", dict(exit_code=1, error="FloatingPointError: loss became nan")),
        (SystemExit(143), "interrupted", dict(exit_code=143)),
        (KeyboardInterrupt(), "interrupted", dict(exit_code=130)),
    ],
)
def test_the_mark_of_a_run_of_an_experiment_follows(run_dir, monkeypatch, rlpyt, end, state, facts):
    from rlpyt.algos.pg.ppo import PPO

    marks, optimize = [], PPO.optimize_agent

    def optimize_agent(self, itr, samples):
        marks.append(read_mark(run_dir))
        if end is not None:
            raise end
        return optimize(self, itr, samples)

    monkeypatch.setattr(PPO, "optimize_agent", optimize_agent)
    mark(run_dir, "failed", error="of an earlier attempt", exit_code=1)
    rlpyt("resume", run_dir, "--n_steps", "256")
    assert marks[0][0] == "running" and marks[0][1]["pid"] == os.getpid()
    now, said = read_mark(run_dir)
    assert now == state and said.items() >= facts.items() and 0 <= said["seconds"] <= time.time() - said["started"] + 1
    assert state != "failed" or said["traceback"][0].startswith("Traceback")


def test_a_run_without_a_mark_gets_none(run_dir, rlpyt):
    assert rlpyt("resume", run_dir, "--n_steps", "256")[0] == 0 and read_mark(run_dir) == ("pending", {})


@full
@processes
@pytest.mark.timeout(280)
def test_an_interrupted_run_goes_on_in_a_process_of_its_own(tmp_path, rlpyt):
    """Ctrl-C ends a run with workers; status tells; resume, by the command, brings it to its end."""

    def process(*args):
        environment = dict(os.environ, OMP_NUM_THREADS="1")
        return subprocess.Popen(
            [sys.executable, *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
        )

    def state():
        (run,) = json.loads(rlpyt("status", tmp_path, "--json")[1])
        return run["state"]

    settings = ["runner.n_steps=1e6", "runner.log_interval_steps=512", "sampler.eval_n_envs=0"]
    run = process(TRAIN, "cartpole", "ppo", "--sampler", "cpu", "--log_dir", tmp_path, "--set", *settings)
    run_dir = tmp_path / "run_0"
    try:
        while not (run_dir / "params.pkl").exists():
            assert run.poll() is None, run.stdout.read()
            time.sleep(0.1)
        assert state() == "running" or sys.platform != "linux"
        refused = rlpyt("resume", run_dir)
        assert refused[0] == 2 and "Another run is writing to" in refused[2]
        run.send_signal(signal.SIGINT)
        run.communicate(timeout=100)
        assert run.returncode == 130
    finally:
        run.kill()
    assert state() == "interrupted"
    steps = torch.load(run_dir / "params.pkl", weights_only=True)["cum_steps"]
    run = process("-m", "rlpyt", "resume", run_dir, "--n_steps", steps + 512, "--n_parallel", "1")
    try:
        out, _ = run.communicate(timeout=150)
    finally:
        run.kill()
    assert run.returncode == 0 and f"({steps:,} environment steps)" in out, out
    assert state() == "finished"
    assert not [p for p in psutil.process_iter(["cmdline"]) if str(tmp_path) in " ".join(p.info["cmdline"] or [])]
