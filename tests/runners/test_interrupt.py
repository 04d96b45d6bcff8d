"""Signals at any moment of a run. Many more trials: ``python tests/signal_trials.py``."""

import csv
import os
import signal
import sys
import threading
import time
from pathlib import Path

import preloaded
import pytest
import torch
from envs import FailingEnv
from tiers import full, processes, thinned

from rlpyt.agents.pg.mlp import MlpFfAgent
from rlpyt.algos.pg.a2c import A2C
from rlpyt.runners import minibatch_rl
from rlpyt.runners.minibatch_rl import MinibatchRl, MinibatchRlEval
from rlpyt.runners.sync_rl import SyncRlEval
from rlpyt.samplers.parallel.cpu.sampler import CpuSampler
from rlpyt.samplers.parallel.gpu.sampler import GpuSampler
from rlpyt.samplers.serial.sampler import SerialSampler
from rlpyt.utils import interrupt as interrupts
from rlpyt.utils.launching.sweep import PAUSE_AT
from rlpyt.utils.logging.context import logger_context

pytestmark = pytest.mark.timeout(120)
TESTS = Path(__file__).parents[1]


def build(SamplerCls, once, RunnerCls=MinibatchRl, **kwargs):
    """A run of which an environment hangs in a step of the third iteration, once."""
    env = dict(fail_in="step", fail_at=13, how="hang", once=str(once))
    sampler = SamplerCls(FailingEnv, env, batch_T=5, batch_B=4, max_decorrelation_steps=0, eval_n_envs=2, eval_max_steps=20)
    one = dict(master_torch_threads=1, workers_cpus=[0, 1], set_affinity=False)
    settings = dict(n_steps=200, log_interval_steps=100, seed=0, affinity=one)
    return RunnerCls(algo=A2C(), agent=MlpFfAgent(), sampler=sampler, **{**settings, **kwargs})


@processes
@pytest.mark.parametrize("SamplerCls", thinned([SerialSampler, CpuSampler, GpuSampler], quick=[SerialSampler, CpuSampler]))
def test_where_an_environment_hangs_the_last_complete_iteration_is_saved_and_can_be_resumed(
    SamplerCls, tmp_path, monkeypatch, capsys, nothing_is_left_behind
):
    monkeypatch.setattr(interrupts, "PATIENCE", 0.5)
    once = tmp_path / "hung"

    def press_when_it_hangs():
        while not once.exists():
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=press_when_it_hangs, daemon=True).start()
    with logger_context(str(tmp_path), 0, "test", snapshot_mode="last") as run_dir, pytest.raises(SystemExit) as end:
        build(SamplerCls, once).train()
    said = capsys.readouterr().out
    assert end.value.code == 130 and "is abandoned" in said and "Stopped after iteration 1." in said
    snapshot = torch.load(f"{run_dir}/params.pkl", weights_only=True)
    assert (snapshot["itr"], snapshot["cum_steps"]) == (1, 40)
    with logger_context(str(tmp_path), 0, "test", snapshot_mode="last"):
        resumed = build(SamplerCls, once, resume_from=run_dir)
        resumed.train()
    said = capsys.readouterr().out
    assert resumed.first_itr == 2 and "4 environments begin a new episode" in said and "Training complete." in said


@processes
@full
def test_where_an_evaluation_hangs_the_iteration_before_it_is_the_last_one(tmp_path, monkeypatch, capsys, nothing_is_left_behind):
    monkeypatch.setattr(interrupts, "PATIENCE", 0.5)
    once = tmp_path / "hung"
    runner = build(CpuSampler, once, MinibatchRlEval)
    runner.sampler.env_kwargs = dict(fail_in="nothing")
    runner.sampler.eval_env_kwargs = dict(fail_in="step", fail_at=15, how="hang", once=str(once))  # In the second evaluation.
    threading.Thread(target=lambda: (wait_for(once), os.kill(os.getpid(), signal.SIGTERM)), daemon=True).start()
    with logger_context(str(tmp_path), 0, "test", snapshot_mode="last") as run_dir, pytest.raises(SystemExit) as end:
        runner.train()
    assert end.value.code == 143 and torch.load(f"{run_dir}/params.pkl", weights_only=True)["cum_steps"] == 100
    rows = Path(run_dir, "progress.csv").read_text().splitlines()
    assert len(rows) == 1 + 2


@pytest.mark.parametrize("RunnerCls", [MinibatchRlEval, SyncRlEval])
def test_an_evaluation_that_a_signal_cuts_short_has_no_return_and_is_not_the_best(RunnerCls, tmp_path, capsys):
    affinity = [dict(master_torch_threads=1, set_affinity=False)] if RunnerCls is SyncRlEval else None
    runner = build(SerialSampler, tmp_path / "hung", RunnerCls, affinity=affinity)
    runner.sampler.env_kwargs = runner.sampler.eval_env_kwargs = dict(fail_in="nothing")
    evaluate, n_episodes = runner.sampler.evaluate_agent, []

    def interrupted(itr):
        infos = evaluate(itr)
        if itr > 0:
            os.kill(os.getpid(), signal.SIGTERM)
        n_episodes.append(len(infos))
        return infos

    runner.sampler.evaluate_agent = interrupted
    with logger_context(str(tmp_path), 0, "test", snapshot_mode="best") as run_dir, pytest.raises(SystemExit):
        runner.train()
    assert n_episodes[-1] > 0 and len(n_episodes) == 2
    rows = list(csv.DictReader(Path(run_dir, "progress.csv").open()))
    assert [float(row["Diagnostics/TrajsInEval"]) > 0 for row in rows] == [True, False]
    assert not Path(run_dir, "best.pkl").exists() or torch.load(f"{run_dir}/best.pkl", weights_only=True)["cum_steps"] == 0
    assert "no evaluation episode was completed" not in capsys.readouterr().out


@pytest.mark.parametrize("number, ended", [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)])
def test_a_session_goes_on_after_ctrl_c_in_a_run(number, ended, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)  # As in an interactive session, which SystemExit ends.
    runner = build(SerialSampler, tmp_path / "never", n_steps=10**9, hooks=[lambda runner, row: os.kill(os.getpid(), number)])
    runner.sampler.env_kwargs = dict(fail_in="nothing")
    with logger_context(str(tmp_path), 0, "test", snapshot_mode="last") as run_dir, pytest.raises(ended):
        runner.train()
    assert torch.load(f"{run_dir}/params.pkl", weights_only=True)["cum_steps"] == 100
    assert "finishing this iteration" in capsys.readouterr().out


@pytest.mark.parametrize("told_in, left", [(2, "This training has saved no snapshot."), (7, "The last snapshot is of iteration 4, in {}.")])
def test_a_run_that_a_second_signal_ends_says_which_snapshot_is_the_last_one(told_in, left, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(interrupts, "PATIENCE", 60)  # However slow this machine is.
    monkeypatch.setattr(minibatch_rl, "HURRY", 60)
    runner = build(SerialSampler, tmp_path / "never", n_steps=400, verbose=0)
    runner.sampler.env_kwargs = dict(fail_in="nothing")
    obtain = runner.sampler.obtain_samples

    def told_twice(itr):
        for _ in range(2 * (itr == told_in)):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.4)  # What comes sooner is the same Ctrl-C.
        return obtain(itr)

    monkeypatch.setattr(runner.sampler, "obtain_samples", told_twice)
    with logger_context(str(tmp_path), 0, "test") as run_dir, pytest.raises(SystemExit) as end:
        runner.train()
    said, where = capsys.readouterr()
    assert end.value.code == 130 and "in told_twice" in where and f"Ended at once. {left.format(run_dir)}" in said, said


@pytest.mark.parametrize("RunnerCls", [MinibatchRl, MinibatchRlEval])
@pytest.mark.parametrize("where", ["between two rows", "in an evaluation"])
def test_a_signal_leaves_a_run_of_a_search_as_it_was_at_its_last_row(RunnerCls, where, tmp_path, monkeypatch, capsys):
    """A row that only the signal brought would be compared with whole rows of other trials."""
    if RunnerCls is MinibatchRl and where == "in an evaluation":
        pytest.skip("It has no evaluation.")
    monkeypatch.setenv(PAUSE_AT, "150")

    def make(**settings):
        runner = build(SerialSampler, tmp_path / "never", RunnerCls, n_steps=400, **settings)
        runner.sampler.env_kwargs = runner.sampler.eval_env_kwargs = dict(fail_in="nothing")
        return runner

    runner = make()
    owner, name = (runner.algo, "optimize_agent") if where == "between two rows" else (runner.sampler, "evaluate_agent")
    method = getattr(owner, name)

    def told_once(itr, *args):
        if itr in (8, 9):  # The second row comes after iteration 9.
            os.kill(os.getpid(), signal.SIGTERM)
        return method(itr, *args)

    monkeypatch.setattr(owner, name, told_once)
    with logger_context(str(tmp_path), 0, "test", snapshot_mode="last") as run_dir, pytest.raises(SystemExit):
        runner.train()
    assert torch.load(f"{run_dir}/params.pkl", weights_only=True)["cum_steps"] == 100
    n_rows = 1 + (RunnerCls is MinibatchRlEval)
    assert len(Path(run_dir, "progress.csv").read_text().splitlines()) == 1 + n_rows
    with logger_context(str(tmp_path), 0, "test", snapshot_mode="last"):
        make(resume_from=run_dir).train()
    assert "Paused after 200 of 400 steps" in capsys.readouterr().out
    rows = Path(run_dir, "progress.csv").read_text().splitlines()
    assert len(rows) == 1 + n_rows + 1


def wait_for(path):
    while not path.exists():
        time.sleep(0.05)


@processes
@pytest.mark.timeout(280)
@pytest.mark.parametrize(
    "trials",
    [
        ["--trials", "3", "--only", "start_method=fork", "env=fast"],
        pytest.param(["--trials", "12", "--seed", "3"], marks=full),
    ],
    ids=["forked", "all"],
)
def test_no_signal_is_lost_whenever_it_comes(trials):
    ended = preloaded.run(TESTS / "signal_trials.py", *trials, timeout=270, OMP_NUM_THREADS="1")
    assert ended.returncode == 0 and " 0 signals lost, 0 with anything wrong" in ended.stdout, ended.stdout + ended.stderr
