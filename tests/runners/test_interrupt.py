"""Signals at any moment."""

import io
import os
import signal
import sys
import time

import pytest

from rlpyt.runners.interrupt import Interrupt

pytestmark = pytest.mark.timeout(60)


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
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(10)
    text = terminal.text.decode()
    assert text.startswith("a line of the log") and text.count("SIGINT: finishing this iteration, then saving.") == 1
