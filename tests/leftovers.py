"""What a test may not leave behind: importable as ``leftovers`` here. Tests use the fixture `nothing_is_left_behind`."""

import contextlib
import os
import time

import psutil

_HELPERS = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")  # Processes that multiprocessing keeps until this one ends.


def living_children(pid=None):
    """Return the living descendants of a process (by default this one), without the helpers of multiprocessing."""
    try:
        return [process for process in psutil.Process(pid).children(recursive=True) if is_alive(process) and not _is_helper(process)]
    except psutil.NoSuchProcess:
        return []


def workers_of(pid=None):
    """Return those of them that are no shells: a pool of workers has one, which cleans up after a master that is killed."""
    return [process for process in living_children(pid) if process.name() != "sh"]


def is_alive(process):
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _is_helper(process):
    try:
        line = " ".join(process.cmdline())
    except psutil.Error:
        return True
    return any(name in line for name in _HELPERS)


@contextlib.contextmanager
def nothing_is_left(seconds=15):
    """Fail if, so many seconds after the block, a process that it started lives on, or a file that it made is in /dev/shm.

    Some seconds are needed: processes may be about to end, and other programs have files in /dev/shm for a moment.
    """
    before = _in_shm()
    yield
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and (living_children() or _in_shm() - before):
        time.sleep(0.05)
    assert not living_children()
    assert not _in_shm() - before


def _in_shm():
    return {name for name in os.listdir("/dev/shm") if not name.startswith("pymp-")}
