"""Checks that end in every way: importable as ``checks_for_tests`` here, also in the processes of checks."""

import faulthandler
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from rlpyt.cli.checks import NotHere

# The process that imports this first, in that process and in those it starts: several processes run tests at a time.
_TESTS = os.environ.setdefault("RLPYT_PROCESS_OF_TESTS", str(os.getpid()))
SLEEP = [sys.executable, "-c", f"import time; time.sleep(600)  # started by a check of the tests in process {_TESTS}"]


def works(directory):
    assert Path.cwd() == directory and os.environ["TMPDIR"] == str(directory)
    Path("something").write_text("written")
    print("nobody reads this")
    return "as it should"


def fails(directory):
    print("before it failed")
    raise ValueError("the sum is 3, not 4\nand more than a sentence of it")


def is_not_here(directory):
    raise NotHere("there is none")


def dies(directory):
    os.kill(os.getpid(), signal.SIGKILL)


def exits(directory):
    os._exit(3)


def hangs(directory):
    """Hangs with a child, and one that leads a session of its own."""
    child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,))
    child.start()
    subprocess.Popen(SLEEP, start_new_session=True)
    child.join()


def hangs_for_good(directory):
    faulthandler.cancel_dump_traceback_later()
    time.sleep(600)


def leaves_a_process(directory):
    subprocess.Popen(SLEEP)
    return "and ends"
