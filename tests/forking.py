"""Calls tests in forks of this process, and makes forks cheap: importable as ``forking`` here.

A fork copies the tables of all pages of memory that a process has for itself, and its end takes them apart again. With the hundreds of
MB that torch, numba and the tests fill, that takes 20 milliseconds at first, and 50 after some thousand tests. Huge pages, each in the
place of 512, halve it.
"""

import contextlib
import ctypes
import gc
import os
import pickle
import re
import resource
import signal
import sys
import tempfile
import threading
import time
import traceback

import leftovers
import psutil
import pytest

_HUGE = 2 << 20  # bytes of a huge page
_MADV_HUGEPAGE, _MADV_COLLAPSE = 14, 25  # of Linux
_GROWTH = 48 << 10  # KiB by which the process grows until all is done anew
_done_at = 0  # Most KiB that the process has had in memory when it was done last.


def make_forks_cheap():
    """Leave all present objects out of future garbage collections, which would copy them, and have them in huge pages."""
    global _done_at
    gc.collect()
    gc.freeze()
    if sys.platform == "linux":
        _use_huge_pages()
    _done_at = _most_memory()


def _use_huge_pages():
    madvise = ctypes.CDLL(None).madvise
    with open("/proc/self/maps") as maps:
        private = re.findall(r"^(\w+)-(\w+) rw-p 00000000 00:00 0 *(?:\[heap\])?$", maps.read(), re.MULTILINE)
    for start, end in private:
        start, end = -(-int(start, 16) // _HUGE) * _HUGE, int(end, 16) // _HUGE * _HUGE
        if start < end:  # Where the kernel has no huge pages, nothing changes.
            for advice in (_MADV_HUGEPAGE, _MADV_COLLAPSE):
                madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), advice)


def make_forks_cheap_again():
    """Do so if the process has grown since."""
    if _most_memory() > _done_at + _GROWTH:
        make_forks_cheap()


def _most_memory():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # KiB


# ---------------------------------------------------------------------------------------------------------------------
# Tests in a process of their own
# ---------------------------------------------------------------------------------------------------------------------
GRACE = 10  # seconds that a test has to end after its timeout
_PR_SET_PDEATHSIG = 1  # of Linux


def call_in_fork(item):
    """Call the function of a test in a fork of this process, with the fixtures that were set up here; raise what it raises, as text.

    The test also fails if exceptions were ignored in the fork (such as those of `__del__`), or if processes are left behind. After its
    timeout, it fails in the fork, where it shows its stack. If it does not end then, the fork is killed with all processes that it started.

    A fork that dies in C code is followed by a second one: threads of Ray 2.60 may use freed memory when a process leaves a cluster.

    Classes of exceptions do not come out of the fork, so ``xfail(raises=...)`` cannot be used; neither do log records and warnings.
    """
    for _ in range(2):
        outcome, code = _call(item)
        if outcome or code not in (-signal.SIGSEGV, -signal.SIGABRT):
            break
    if not outcome:
        pytest.fail(f"The process of the test ended with exit status {code} (minus a signal's number) and no outcome.", pytrace=False)
    kind, text = pickle.loads(outcome)
    if kind == "failed":
        pytest.fail(text, pytrace=False)
    if kind != "passed":
        {"skipped": pytest.skip, "xfailed": pytest.xfail}[kind](text)


def _call(item):
    """Call the test in a fork; return the bytes of its outcome, and the exit status of the fork."""
    with tempfile.TemporaryFile() as file:
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])  # Until it is known what to do with it.
        pid = os.fork()
        if pid == 0:
            _call_and_exit(item, file)
        code = os.waitstatus_to_exitcode(_end_of(pid))
        file.seek(0)
        return file.read(), code


def _call_and_exit(item, file):
    """Call the test, write its outcome to a file, and end this process."""
    try:
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGALRM])
        outcome = _outcome(item)
        for process in leftovers.living_children():  # A test that failed may leave some.
            process.kill()
        sys.stdout.flush()
        sys.stderr.flush()
        file.write(pickle.dumps(outcome))
        file.flush()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)


def _outcome(item):
    """Call the test, and return what became of it, and a text."""
    ignored = []
    sys.unraisablehook = lambda unraisable: ignored.append(f"{unraisable.exc_value!r} in {unraisable.object!r}")
    threading.excepthook = lambda raised: ignored.append(f"{raised.exc_value!r} in {raised.thread!r}")
    try:
        item.obj(**{name: item.funcargs[name] for name in item._fixtureinfo.argnames})
        gc.collect()
        assert not ignored, f"exceptions were ignored: {', '.join(ignored)}"
        deadline = time.monotonic() + GRACE
        while left := leftovers.living_children():
            assert time.monotonic() < deadline, f"{left} are left behind"
            time.sleep(0.1)
    except pytest.skip.Exception as skipped:
        return "skipped", str(skipped)
    except pytest.xfail.Exception as failed:
        return "xfailed", str(failed)
    except BaseException:
        error = pytest.ExceptionInfo.from_current()
        said = str(error.value) if isinstance(error.value, pytest.fail.Exception) else error.exconly()
        return "failed", f"{said}\n{item.repr_failure(error)}"
    return "passed", ""


def _end_of(pid):
    """Wait until a fork has ended, and return its status. Alarms, by which tests have timeouts, are passed on to it."""
    has_passed_on = False

    def pass_on(number, frame):
        nonlocal has_passed_on
        has_passed_on = True
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        signal.signal(number, lambda *_: _kill(pid))
        signal.alarm(GRACE)

    before = signal.signal(signal.SIGALRM, pass_on)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGALRM])
    try:
        return os.waitpid(pid, 0)[1]
    except BaseException:  # Ctrl-C.
        _kill(pid)
        os.waitpid(pid, 0)
        raise
    finally:
        if has_passed_on:  # Otherwise the alarm is still that of the timeout, which is for the fixtures, too.
            signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _kill(pid):
    """End a process with all that it started, unless it has ended."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        for each in [*process.children(recursive=True), process]:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
