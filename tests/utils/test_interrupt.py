"""Signals in a block that looks at them between its steps. What they do to runs: tests/runners/test_interrupt.py."""

import io
import os
import signal
import sys
import threading
import time

import pytest

from rlpyt.utils import interrupt as interrupts
from rlpyt.utils.interrupt import Interrupt, Overdue

pytestmark = pytest.mark.timeout(120)


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
    with pytest.raises(SystemExit) as end, Interrupt(lambda: None, says=None, hurry=30, on_second=lambda: print("what is left")):
        press(number)
        press(number, after=0.6)
        time.sleep(60)
    said, where = capsys.readouterr()
    assert end.value.code == code and "time.sleep(60)" in where and said == "what is left\n"


@pytest.mark.parametrize("blocks", [False, True])
def test_a_run_that_does_not_end_then_is_ended(blocks, tmp_path):
    def say():
        (tmp_path / "said").touch()
        time.sleep(60 * blocks)  # As if the main thread held the lock of the log.

    pid = os.fork()
    if pid == 0:
        try:
            with Interrupt(lambda: None, says=None, hurry=0.5, on_second=say):
                os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(0.4)
                try:
                    os.kill(os.getpid(), signal.SIGTERM)
                    time.sleep(60)
                finally:
                    time.sleep(60)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 143 and (tmp_path / "said").exists()


def test_a_session_goes_on_after_a_second_ctrl_c(monkeypatch, capsys):
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    with pytest.raises(KeyboardInterrupt), Interrupt(lambda: None, says=None, hurry=30):
        press()
        press(after=0.6)
        time.sleep(60)
    assert "time.sleep(60)" in capsys.readouterr().err
