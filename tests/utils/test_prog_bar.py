import io
import os
import pty
import sys
import types

import pytest

from rlpyt.utils import prog_bar
from rlpyt.utils.logging import logger
from rlpyt.utils.prog_bar import ProgBarCounter, Progress


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


# --- The line for a whole run -----------------------------------------------------------------------------------------
@pytest.fixture
def clock(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr("rlpyt.utils.prog_bar.time.monotonic", lambda: now[0])
    return now


@pytest.fixture
def log(tmp_path):
    """What text files of the log get, line by line, without times."""
    with logger.new_run():
        logger.add_text_output(tmp_path / "debug.log")
        yield lambda: [line.split(" | ")[1] for line in (tmp_path / "debug.log").read_text().splitlines()]


def test_without_a_terminal_there_is_a_line_after_each_row_that_tells_how_long_it_still_takes(clock, log, capsys):
    progress = Progress(10_000)
    for done, seconds, return_ in ((2000, 20, None), (4000, 40, 12.34), (6000, 120, float("nan")), (10_000, 160, 480)):
        clock[0] = 1000 + seconds
        progress.update(done - 1)
        progress.update(done)
        progress.row(done, return_)
    assert log() == [
        "20% of 10,000 steps, 100 steps/s, 1 min 20 s left",
        "40% of 10,000 steps, 100 steps/s, 1 min 0 s left, return 12.3",
        "60% of 10,000 steps, 40 steps/s, 1 min 40 s left, return 12.3",
        "100% of 10,000 steps after 2 min 40 s, 50 steps/s, return 480.0",
    ], "of the last two intervals"
    shown = capsys.readouterr()
    assert shown.out.count("\n") == 4 and "\r" not in shown.out and shown.err == ""


def test_a_run_that_is_resumed_counts_from_where_it_goes_on(clock):
    progress = Progress(10_000, done=8000)
    assert str(progress) == "80% of 10,000 steps"
    clock[0] += 10
    progress.update(9000)
    assert str(progress) == "90% of 10,000 steps, 100 steps/s, 10.0 s left"


def test_a_run_that_may_stop_before_its_end_says_so(clock):
    progress = Progress(1000, stop_return=475)
    assert str(progress) == "0% of 1,000 steps (stops at 475)"
    clock[0] += 20
    progress.row(100, 31.4)
    assert str(progress) == "10% of 1,000 steps, 5.0 steps/s, at most 3 min 0 s left, return 31.4 (stops at 475)"
    progress.row(1000, 31.4)
    assert "stops at" not in str(progress)


def test_epochs_are_counted_beside_steps(clock):
    progress = Progress(20, done=5, unit="epochs", steps=50)
    clock[0] += 10
    progress.update(10, 1050)
    assert str(progress) == "50% of 20 epochs, 100 steps/s, 20.0 s left"


def test_what_takes_more_steps_than_planned_or_has_none_is_complete(clock):
    progress = Progress(100)
    progress.row(120, None)
    assert str(progress) == "100% of 100 steps after 0.0 s"
    assert str(Progress(0)).startswith("0% of 0 steps")


def test_a_row_of_a_run_that_stops_announces_nothing(clock, log):
    progress = Progress(100)
    progress.row(10, 5.0, is_going_on=False)
    progress.stop()
    assert log() == []


def test_a_terminal_shows_it_twice_a_second_below_the_log_and_the_log_has_its_lines(clock, log, streams):
    stdout, stderr = streams(Terminal(), Terminal())
    progress = Progress(1000)
    for done in range(1, 900):
        clock[0] += 0.01  # seconds
        progress.update(done)
    assert 15 <= stderr.getvalue().count("of 1,000 steps") <= 20 and "86% of 1,000 steps, 100 steps/s, 1.3 s left" in stderr.getvalue()
    progress.clear()
    progress.row(900, 7.0)
    assert stdout.getvalue() == "" and "return 7.00" in stderr.getvalue() and log()[0].startswith("90% of 1,000 steps")
    progress.row(1000, 8.0)
    assert "100% of 1,000 steps" in stdout.getvalue(), "The last line stays on the screen."
    progress.stop()
    progress.stop()
    progress.update(1000)
    assert stderr.getvalue().endswith("\r")


def test_where_all_is_shown_the_lines_are_too(clock, log, streams):
    stdout, _ = streams(Terminal(), Terminal())
    logger.set_verbose(2)
    Progress(1000).row(10, None)
    assert "1% of 1,000 steps" in stdout.getvalue()


@pytest.mark.parametrize("silence", [logger.disable, lambda: logger.set_log_tabular_only(True)])
def test_it_is_silent_where_the_log_is(silence, clock, log, streams):
    stdout, stderr = streams(Terminal(), Terminal())
    silence()
    progress = Progress(100)
    clock[0] += 10
    progress.update(10)
    progress.row(20, 1.0)
    assert stdout.getvalue() == stderr.getvalue() == ""


def test_a_notebook_shows_it_by_what_tqdm_takes_for_notebooks(clock, log, streams, monkeypatch):
    import tqdm.auto

    shown = []

    class Bar:
        def __init__(self, **settings):
            self.__dict__.update(settings)

        def refresh(self):
            shown.append((self.n, self.desc))

        def close(self):
            shown.append("closed")

    shell = types.SimpleNamespace(config={"IPKernelApp": {}})
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setattr(tqdm.auto, "tqdm", Bar)
    prog_bar._bar_class.cache_clear()
    try:
        progress = Progress(100)
        clock[0] += 10
        progress.update(50)
        progress.row(50, 1.0)
        progress.stop()
    finally:
        prog_bar._bar_class.cache_clear()
    text = "50% of 100 steps, 5.0 steps/s, 10.0 s left"
    assert shown == [(50, text), (50, f"{text}, return 1.00"), "closed"] and log() == [f"{text}, return 1.00"]
