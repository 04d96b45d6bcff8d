"""What a test may not leave behind: importable as ``leftovers`` here. Tests use the fixture `nothing_is_left_behind`."""

import contextlib
import gc
import multiprocessing.forkserver
import multiprocessing.resource_tracker
import multiprocessing.util
import os
import shutil
import tempfile
import threading
import time

import psutil

_HELPERS = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")  # Processes that multiprocessing keeps until this one ends.
_KEPT_THREADS = ("tqdm_monitor", "QueueFeederThread")  # Which libraries keep.
_KEPT_FILES = ("torchinductor", "listener-")  # Caches of torch; sockets of what this process keeps.


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
def nothing_is_left(run_dir, seconds=15):
    """Fail if something that the block made is still there some seconds later.

    That is a process, a thread, a descriptor of this process, a half-written file below `run_dir`, or any file in $TMPDIR or /dev/shm.
    The seconds are for processes that are about to end, and for files that other programs have in /dev/shm for a moment. $TMPDIR is
    another directory meanwhile, since several tests run at a time.
    """
    home = multiprocessing.util.get_temp_dir()  # Made before, since what this process keeps there, such as a fork server, stays.
    threads, shm, at_home, descriptors = set(threading.enumerate()), _in_shm(), set(os.listdir(home)), _descriptors()
    temporary, before = tempfile.mkdtemp(prefix="t-"), (os.environ.get("TMPDIR"), tempfile.tempdir)
    os.environ["TMPDIR"] = tempfile.tempdir = temporary

    def left():
        found = [thread for thread in threading.enumerate() if thread not in threads and thread.name not in _KEPT_THREADS]
        files = [name for name in (*os.listdir(temporary), *(set(os.listdir(home)) - at_home)) if not name.startswith(_KEPT_FILES)]
        opened = [f"descriptor {number} of {target}" for number, target in sorted(_descriptors() - descriptors)]
        return [*living_children(), *found, *sorted(_in_shm() - shm), *files, *opened, *run_dir.rglob("*.atomic_tmp*")]

    try:
        yield
        deadline, pause = time.monotonic() + seconds, 0.02
        while remains := left():
            assert time.monotonic() < deadline, f"{remains} are left behind"
            gc.collect()
            time.sleep(pause)  # What ends takes its time on a machine that is busy: looking all the time would make it longer.
            pause = min(2 * pause, 0.3)
    finally:
        os.environ.pop("TMPDIR")
        if before[0] is not None:
            os.environ["TMPDIR"] = before[0]
        tempfile.tempdir = before[1]
        shutil.rmtree(temporary, ignore_errors=True)


def _in_shm():
    return {name for name in os.listdir("/dev/shm") if not name.startswith("pymp-")}


def _descriptors():
    """Return the open descriptors of this process and what they are of, without those by which it holds the helpers of multiprocessing."""
    helpers = {multiprocessing.forkserver._forkserver._forkserver_alive_fd, multiprocessing.resource_tracker._resource_tracker._fd}
    found = set()
    for number in map(int, os.listdir("/proc/self/fd")):
        with contextlib.suppress(FileNotFoundError):  # That of the listing itself.
            found.add((number, os.readlink(f"/proc/self/fd/{number}")))
    return {(number, target) for number, target in found if number not in helpers}
