import io
import os
import pty
import sys

import pytest

from rlpyt.utils.logging import logger
from rlpyt.utils.prog_bar import ProgBarCounter


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def streams(monkeypatch):
    def use(stdout, stderr):
        monkeypatch.setattr(sys, "stdout", stdout)
        monkeypatch.setattr(sys, "stderr", stderr)
        return stdout, stderr
    return use


def run_bar():
    bar = ProgBarCounter(10)
    for count in range(1, 11):
        bar.update(count)
    bar.stop()
    bar.stop()


def test_on_a_terminal_there_is_a_bar_and_it_goes_away(streams):
    stdout, stderr = streams(Terminal(), Terminal())
    run_bar()
    assert "0/10" in stderr.getvalue() and stderr.getvalue().endswith("\r") and stdout.getvalue() == ""


def test_on_a_real_terminal_that_does_not_know_its_size_there_is_a_bar_too():
    child, terminal = pty.fork()
    if child == 0:
        code = "from rlpyt.utils.prog_bar import ProgBarCounter; bar = ProgBarCounter(10); bar.update(10); bar.stop()"
        os.execv(sys.executable, [sys.executable, "-c", code])
    shown = b""
    try:
        while data := os.read(terminal, 4096):
            shown += data
    except OSError:  # how a pseudo terminal says that the other side has closed it
        pass
    os.waitpid(child, 0)
    os.close(terminal)
    assert b"0/10" in shown and shown.endswith(b"\r")


@pytest.mark.parametrize("stdout, stderr", [(io.StringIO, Terminal), (Terminal, io.StringIO), (io.StringIO, io.StringIO)])
def test_without_a_terminal_nothing_is_written(streams, stdout, stderr):
    stdout, stderr = streams(stdout(), stderr())
    run_bar()
    assert stdout.getvalue() == stderr.getvalue() == ""


def test_the_bar_is_quiet_while_the_logger_shows_its_table_only(streams):
    stdout, stderr = streams(Terminal(), Terminal())
    with logger.new_run():
        logger.set_log_tabular_only(True)
        run_bar()
    assert stdout.getvalue() == stderr.getvalue() == ""


def test_the_count_may_go_back_and_the_total_may_be_zero(streams):
    streams(Terminal(), Terminal())
    bar = ProgBarCounter(10)
    bar.update(9)
    bar.update(0)
    bar.stop()
    ProgBarCounter(0).stop()
