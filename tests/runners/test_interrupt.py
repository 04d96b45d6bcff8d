"""Signals at any moment. Many more trials: ``python tests/signal_trials.py``."""

import io
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
from rlpyt.runners import interrupt as interrupts
from rlpyt.runners.interrupt import Interrupt, Overdue
from rlpyt.runners.minibatch_rl import MinibatchRl, MinibatchRlEval
from rlpyt.samplers.parallel.cpu.sampler import CpuSampler
from rlpyt.samplers.parallel.gpu.sampler import GpuSampler
from rlpyt.samplers.serial.sampler import SerialSampler
from rlpyt.utils.logging.context import logger_context

pytestmark = pytest.mark.timeout(120)
TESTS = Path(__file__).parents[1]


class Terminal(io.RawIOBase):
    """Where writing is interrupted, the first time, by Ctrl-C."""

    def __init__(self):
        self.text = b""

    def writable(self):
        return True

    def write(self, data):
        if not self.text:
            self.text += bytes(data)
            os.kill(os.getpid(), signal.SIGINT)
            for _ in range(100):  # The handler runs between any two of these.
                pass
        else:
            self.text += bytes(data)
        return len(data)


def test_ctrl_c_in_the_middle_of_writing(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BufferedWriter(terminal), write_through=True))
    with Interrupt(lambda: None) as interrupt:
        print("a line of the log", flush=True)
        assert interrupt.signal == signal.SIGINT and interrupt.exit_code == 130
        deadline = time.monotonic() + 30
        while b"finishing this iteration" not in terminal.text and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.3)  # What comes sooner is the same Ctrl-C.
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(10)
    text = terminal.text.decode()
    assert text.startswith("a line of the log") and text.count("SIGINT: finishing this iteration, then saving.") == 1


def press(number=signal.SIGINT, after=0.2):
    """Send this process a signal in so many seconds."""
    threading.Timer(after, os.kill, (os.getpid(), number)).start()


# --- What takes too long ----------------------------------------------------------------------------------------------
def test_what_need_not_come_to_an_end_is_abandoned_at_the_signal():
    with Interrupt(lambda: None, says=None) as interrupt:
        with pytest.raises(Overdue), interrupt.abandonable(patience=0):
            press()
            time.sleep(60)
        with pytest.raises(Overdue), interrupt.abandonable(patience=0):
            raise AssertionError("The signal has come before.")


def test_what_ends_in_time_is_not_abandoned(monkeypatch):
    monkeypatch.setattr(interrupts, "PATIENCE", 1.5)
    with Interrupt(lambda: None, says=None) as interrupt:
        with interrupt.abandonable():
            press(after=0)
            time.sleep(0.7)
        time.sleep(1.2)  # What is in no such block may take as long as it likes.
        assert interrupt.is_overdue
        with interrupt.abandonable(at_least=1.0):
            time.sleep(0.5)
        with pytest.raises(Overdue), interrupt.abandonable(at_least=0.1):
            time.sleep(60)


def test_it_is_tried_again_where_python_drops_what_a_handler_raises(monkeypatch):
    """As in hooks of fork and in destructors."""
    monkeypatch.setattr(interrupts, "_AGAIN", 0.3)

    class Drops:
        def __del__(self):
            time.sleep(0.5)

    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: dropped.append(unraisable.exc_type))
    dropped = []
    with Interrupt(lambda: None, says=None) as interrupt, pytest.raises(Overdue), interrupt.abandonable(patience=0):
        press(after=0.1)
        Drops()
        time.sleep(60)
    assert dropped == [Overdue]


def test_a_process_that_somebody_forks_ends_by_a_signal_as_others_do():
    with Interrupt(lambda: None, says=None) as interrupt:
        pid = os.fork()
        if pid == 0:
            os.kill(os.getpid(), signal.SIGTERM)
            os._exit(3)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGTERM and interrupt.signal is None


def test_a_signal_that_comes_again_at_once_is_the_same_one():
    """A terminal sends it to all processes, and a launcher passes it on."""
    with Interrupt(lambda: None, says=None) as interrupt:
        for number in (signal.SIGINT, signal.SIGTERM):
            os.kill(os.getpid(), number)
        assert interrupt.signal == signal.SIGINT


def test_within_itself_it_is_the_same():
    before = signal.getsignal(signal.SIGINT)
    with Interrupt(lambda: None, says=None) as interrupt:
        with interrupt:
            os.kill(os.getpid(), signal.SIGINT)
        assert interrupt.signal == signal.SIGINT and interrupt.is_active and signal.getsignal(signal.SIGINT) != before
    assert signal.getsignal(signal.SIGINT) == before


@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_second_one_ends_a_run_with_the_exit_code_of_the_first_and_shows_where_it_was(number, code, capsys):
    with pytest.raises(SystemExit) as end, Interrupt(lambda: None, says=None, hurry=30):
        press(number)
        press(number, after=0.6)
        time.sleep(60)
    assert end.value.code == code and "time.sleep(60)" in capsys.readouterr().err


def test_a_run_that_does_not_end_then_is_ended():
    pid = os.fork()
    if pid == 0:
        try:
            with Interrupt(lambda: None, says=None, hurry=0.5):
                os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(0.4)
                try:
                    os.kill(os.getpid(), signal.SIGTERM)
                    time.sleep(60)
                finally:
                    time.sleep(60)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 143


# --- Runs -------------------------------------------------------------------------------------------------------------
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


@pytest.mark.parametrize("number, ended", [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)])
def test_a_session_goes_on_after_ctrl_c_in_a_run(number, ended, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)  # As in an interactive session, which SystemExit ends.
    runner = build(SerialSampler, tmp_path / "never", n_steps=10**9, hooks=[lambda runner, row: os.kill(os.getpid(), number)])
    runner.sampler.env_kwargs = dict(fail_in="nothing")
    with logger_context(str(tmp_path), 0, "test", snapshot_mode="last") as run_dir, pytest.raises(ended):
        runner.train()
    assert torch.load(f"{run_dir}/params.pkl", weights_only=True)["cum_steps"] == 100
    assert "finishing this iteration" in capsys.readouterr().out


def test_a_session_goes_on_after_a_second_ctrl_c(monkeypatch, capsys):
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    with pytest.raises(KeyboardInterrupt), Interrupt(lambda: None, says=None, hurry=30):
        press()
        press(after=0.6)
        time.sleep(60)
    assert "time.sleep(60)" in capsys.readouterr().err


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
