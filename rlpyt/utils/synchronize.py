"""Synchronisation between processes."""

from __future__ import annotations

import errno
import fcntl
import multiprocessing as mp
import os
import queue
import socket
import threading
import time
import weakref
from collections.abc import Callable
from multiprocessing import context
from typing import Any

from rlpyt.utils.buffer import SharedMap


class RWLock:
    """Lets several processes read at once, or one write.

    ``with lock:`` reads, ``with lock.write_lock:`` writes. The first reader acquires the write lock and the last one releases it. So
    readers have priority: a steady stream of overlapping readers keeps a writer waiting. A process may release the lock that another one
    acquired. The lock is not reentrant, and a process killed while holding it blocks the others.

    Args:
        ctx: the multiprocessing context of the processes that share the lock (default: the default context).
    """

    def __init__(self, ctx: Any = None) -> None:
        ctx = ctx or mp.get_context()
        self.write_lock = ctx.Lock()
        self._count_lock = ctx.Lock()  # Guards the count, and acquiring and releasing the write lock for readers
        self._n_readers = ctx.RawValue("l", 0)

    def __enter__(self) -> RWLock:
        self.acquire_read()
        return self

    def __exit__(self, *args: object) -> None:
        self.release_read()

    def acquire_write(self) -> None:
        self.write_lock.acquire()

    def release_write(self) -> None:
        self.write_lock.release()

    def acquire_read(self) -> None:
        with self._count_lock:
            if self._n_readers.value == 0:
                self.write_lock.acquire()  # Later readers wait for the count lock meanwhile
            self._n_readers.value += 1

    def release_read(self) -> None:
        with self._count_lock:
            if self._n_readers.value == 0:
                raise ValueError("The lock cannot be released: nobody is reading.")
            self._n_readers.value -= 1
            if self._n_readers.value == 0:
                self.write_lock.release()


class ExclusiveRWLock(RWLock):
    """A `ProcessLock` with the methods of an `RWLock`: readers exclude each other, too, but a killed process blocks no other."""

    def __init__(self, lock: ProcessLock) -> None:
        self.write_lock = lock

    acquire_read = RWLock.acquire_write
    release_read = RWLock.release_write


class ProcessLock:
    """A lock among processes and their threads that is released when its holder dies, however it dies.

    Use ``with lock:``, or `acquire` and `release` in the same thread. A forked process inherits the lock, but never holds it at first;
    under spawn and forkserver, pass it to the process as an argument.

    It is a POSIX record lock on anonymous memory. The kernel assigns record locks to the process and not to the open file (unlike `flock`
    and open file description locks). So a child cannot keep the lock of its dead parent, and need not open the file again. There are three
    drawbacks. Closing any descriptor of the file would release the lock; only this object has one, and it cannot be copied within a
    process. Threads of one process do not exclude each other; a second lock, new in every process, does that. And the kernel reports
    deadlocks among processes although their threads are in none (see `acquire`).

    A byte of that memory tells whether the lock is held. After its holder has died, the next holder can therefore first repair what the
    lock protects (`call_on_takeover`).

    Args:
        reentrant: whether the thread that holds the lock may acquire it again; the lock is free after as many releases.
    """

    def __init__(self, reentrant: bool = False, _memory: SharedMap | None = None) -> None:
        self._memory = SharedMap(1) if _memory is None else _memory
        self._repair: weakref.WeakMethod | None = None
        self._fd = self._memory.fd
        self._reentrant = reentrant
        self._forget_threads()
        _process_locks.add(self)

    def _forget_threads(self) -> None:
        self._threads = threading.RLock() if self._reentrant else threading.Lock()
        self._depth = 0  # How often the holding thread of this process has acquired it.
        self._holder: int | None = None  # Identifier of the holding thread.

    def acquire(self, blocking: bool = True) -> bool:
        """Wait for the lock and acquire it, or with blocking=False only try to; return whether it is acquired."""
        if not self._threads.acquire(blocking):
            return False
        if self._depth:
            self._depth += 1
            return True
        taken, how = False, fcntl.LOCK_EX if blocking else fcntl.LOCK_EX | fcntl.LOCK_NB
        try:
            while not taken:
                try:
                    fcntl.lockf(self._fd, how)
                    taken = True
                except BlockingIOError:
                    break
                except OSError as error:
                    if error.errno != errno.EDEADLK:
                        raise
                    time.sleep(1e-3)  # Not a deadlock: a thread in the reported cycle still runs, and will release its lock.
        finally:
            if not taken:
                self._threads.release()
        if taken:
            self._depth, self._holder = 1, threading.get_ident()
            self._begin()
        return taken

    def _begin(self) -> None:
        """Repair what a dead holder left, and mark the lock as held."""
        repair = self._repair and self._memory[0] and self._repair()
        if repair:
            try:
                repair()
            except BaseException:
                self.release()
                raise
        self._memory[0] = 1

    def release(self) -> None:
        """Release the lock; raise RuntimeError if no thread of this process holds it, or if it is reentrant and another thread does."""
        if not self._depth:
            raise RuntimeError("This lock cannot be released: no thread of this process holds it.")
        if self._reentrant and self._holder != threading.get_ident():
            raise RuntimeError("This lock cannot be released: another thread of this process holds it.")
        self._depth -= 1
        if not self._depth:
            self._memory[0] = 0
            fcntl.lockf(self._fd, fcntl.LOCK_UN)
        self._threads.release()

    def call_on_takeover(self, method: Callable[[], None]) -> None:
        """Call a bound method after acquiring the lock if the previous holder died while holding it.

        The lock keeps only a weak reference to its object. Processes started under spawn or forkserver do not get this reference.
        """
        self._repair = weakref.WeakMethod(method)

    __enter__ = acquire

    def __exit__(self, *args: object) -> None:
        self.release()

    def __reduce__(self) -> tuple:
        context.assert_spawning(self)
        return ProcessLock, (self._reentrant, self._memory)


_process_locks: weakref.WeakSet = weakref.WeakSet()


def _forget_threads() -> None:
    """Reset the thread part of all locks after a fork: the threads that held them do not exist in this process."""
    for lock in _process_locks:
        lock._forget_threads()


os.register_at_fork(after_in_child=_forget_threads)


def drain_queue(queue_obj: Any, n_sentinel: int = 0, guard_sentinel: bool = False) -> list:
    """Take everything out of a multiprocessing queue; return it in order, without the sentinels (None).

    Args:
        n_sentinel: 0 takes the available items without waiting, and may miss items that another process has just put. n > 0 waits until n
            sentinels have arrived: every producer puts one when it has finished.
        guard_sentinel: (only with n_sentinel=0) stop at a sentinel and put it back, for a later waiting call.
    """
    if n_sentinel and guard_sentinel:
        raise ValueError(f"n_sentinel={n_sentinel} waits for sentinels, guard_sentinel keeps them: use one.")
    contents, n_seen = [], 0
    while not n_sentinel or n_seen < n_sentinel:
        try:
            item = queue_obj.get(block=bool(n_sentinel))
        except queue.Empty:
            break
        if item is not None:
            contents.append(item)
        elif guard_sentinel:
            queue_obj.put(None)
            break
        else:
            n_seen += 1
    return contents


def find_port(offset: int = 0) -> int:
    """Return a free TCP port on the loopback interface, for torch.distributed. The port is not reserved: use it at once.

    It is the first free one of 29500 + offset and every 100th port after it, so that runs on one machine with different offsets (e.g.
    their first CPU) do not compete; if none of these is free, it is any free port.
    """
    for port in (*range(29500 + max(offset, 0), 2**16, 100), 0):  # 0: the operating system chooses
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return probe.getsockname()[1]
    raise OSError("There is no free TCP port on the loopback interface.")
