"""Synchronisation between processes."""

import multiprocessing as mp
import queue
import socket


class RWLock:
    """Multiple simultaneous readers, one writer, among processes.

    `with lock:` reads, `with lock.write_lock:` writes. The first reader takes the write lock and the last one
    returns it, so readers come first: a steady stream of overlapping readers keeps a writer waiting. Whatever
    process has acquired it, another one may release it. Not reentrant; a process killed while holding it
    blocks the others.

    ctx: the multiprocessing context of the processes which share the lock (default: the default context).
    """

    def __init__(self, ctx=None):
        ctx = ctx or mp.get_context()
        self.write_lock = ctx.Lock()
        self._count_lock = ctx.Lock()  # guards the count, and the write lock's change of hands with it
        self._n_readers = ctx.RawValue("l", 0)

    def __enter__(self) -> "RWLock":
        self.acquire_read()
        return self

    def __exit__(self, *args) -> None:
        self.release_read()

    def acquire_write(self) -> None:
        self.write_lock.acquire()

    def release_write(self) -> None:
        self.write_lock.release()

    def acquire_read(self) -> None:
        with self._count_lock:
            if self._n_readers.value == 0:
                self.write_lock.acquire()  # later readers queue up at the count lock meanwhile
            self._n_readers.value += 1

    def release_read(self) -> None:
        with self._count_lock:
            if self._n_readers.value == 0:
                raise ValueError("The lock cannot be released: nobody is reading.")
            self._n_readers.value -= 1
            if self._n_readers.value == 0:
                self.write_lock.release()


def drain_queue(queue_obj, n_sentinel: int = 0, guard_sentinel: bool = False) -> list:
    """Take everything out of a multiprocessing queue; returns it in order, without the sentinels (None).

    n_sentinel: 0 takes what is there without waiting, which may miss what another process has put a moment
        ago.
        n > 0 waits until n sentinels have come: every producer puts one when it has finished.
    guard_sentinel: (only with n_sentinel=0) stop at a sentinel and put it back, for a waiting drain later.
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
    """A TCP port which is free on the loopback interface, for torch.distributed.

    Tries 29500 + offset and then every 100th port after it, so that runs on one machine which use different
    offsets (e.g. their first CPU) do not compete; failing all, any free port. Nothing keeps the port for the
    caller: use it at once.
    """
    for port in (*range(29500 + max(offset, 0), 2**16, 100), 0):  # 0: the operating system chooses
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return probe.getsockname()[1]
    raise OSError("There is no free TCP port on the loopback interface.")
