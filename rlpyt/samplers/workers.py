"""Start, watch and stop worker processes: the one place that does.

The master and each worker share a duplex pipe. The master writes a command, the worker answers with one reply::

    master                              worker
      | -- Process starts ------------->  |
      | <---------------- ("ok", reply) --|   ready
      | -- command ---------------------> |
      | <---------------- ("ok", reply) --|   or ("error", report), after which the worker ends
      | -- None ------------------------> |   stop
      | <---------------- ("ok", reply) --|   environments closed

A pipe reports the death of its other end, and every wait watches the process as well, so that no wait lasts for ever:

* a worker that raises sends its traceback as text; one that dies is named with its exit code or signal. `WorkerPool.receive` then ends
  the others and raises `WorkerError`;
* a worker whose master is gone is ended by the system, or ends itself;
* workers ignore Ctrl-C and SIGTERM, which may reach all processes of a run at once: the master decides;
* a worker leads a separate process group, which has the programs that its environments start. The group ends with the worker or the master.
"""

from __future__ import annotations

import atexit
import ctypes
import faulthandler
import gc
import multiprocessing
import os
import pickle
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import forkserver, reduction, resource_tracker
from multiprocessing.connection import Connection, wait
from typing import Any

import numpy as np

from rlpyt.utils.buffer import SharedMap, copying_private_tensors
from rlpyt.utils.choices import adopt, current
from rlpyt.utils.logging.context import IMPORTS_MAIN, leave_if_importing_main
from rlpyt.utils.stopwatch import Stopwatch
from rlpyt.utils.text import CompletedStream, encodable, notes_of, said, traceback_of

WATCH_INTERVAL = 1.0  # seconds between a worker's looks at whether its master is alive
HANG_WARNING = 30.0  # seconds of silence after which the master warns, and between its warnings
STOP_GRACE = 5.0  # seconds a worker has to close its environments
FAILURE_GRACE = 1.0  # seconds, where the run ends because of a failure
_STACK_BYTES = 64 * 1024
_HELD = (signal.SIGINT, signal.SIGTERM)
_PR_SET_PDEATHSIG = 1
_TRIAL_SECONDS = 5.0
_SHOWS_STACKS = hasattr(faulthandler, "register")  # Not on Windows.


_UNGUARDED = 'A new process imports the script, which must not start a run then: put what it does below `if __name__ == "__main__":`.'
_WITHOUT_FILE = (
    "A new process imports the script, which must be in a file for that: run `python train.py`, not `python -` or a session. "
    "start_method='fork' needs no file."
)


class WorkerError(RuntimeError):
    """A worker process raised, died, or hung; the message says which one, where, and with what traceback."""


class Abandoned(BaseException):
    """Raised in a waiting worker when the run ends because of a failure elsewhere."""


def send_by_value(pipe: Connection, message: Any) -> None:
    """Send a message through a pipe of multiprocessing.

    With the pipe's `send`, torch would put tensors into memory that a thread of this process passes on at a named socket, which a killed
    process leaves behind.
    """
    pipe.send_bytes(pickle.dumps(message, pickle.HIGHEST_PROTOCOL))


@contextmanager
def ending_on_failure(pool: Any) -> Iterator[None]:
    """Kill the processes of a pool (`pool.kill`) if anything is raised: an unfinished command would mix with the next one."""
    try:
        yield
    except BaseException:
        pool.kill()
        raise


def describe_failure(error: BaseException, where: str) -> None:
    """Attach the sentence `where` to `error`, so that every traceback of it shows the sentence.

    Raises:
        RuntimeError: in the place of SystemExit, which would look like the end of a run. A SystemExit with the code of a signal stays.
    """
    if isinstance(error, SystemExit) and error.code not in (128 + signal.SIGINT, 128 + signal.SIGTERM):
        raise RuntimeError(f"An environment called sys.exit({'' if error.code is None else repr(error.code)}). {where}") from error
    try:
        BaseException.__setattr__(error, "__notes__", [*notes_of(error), where])
    except Exception:  # Its class does not allow notes.
        error.__cause__ = RuntimeError(where)


# ---------------------------------------------------------------------------------------------------------------------
# In the worker
# ---------------------------------------------------------------------------------------------------------------------
class _Arguments:
    """The arguments of a worker. Under spawn and forkserver it gets them in shared memory.

    Otherwise they would come through a pipe with room for 64 KB, which, under spawn, multiprocessing itself keeps open for reading. If the
    process ended before it had read all of them, because it cannot import the script, `Process.start` would wait forever.
    """

    def __init__(self, kwargs: dict) -> None:
        self.kwargs = kwargs
        self._memory: SharedMap | None = None

    def __reduce__(self) -> tuple:
        pickled = reduction.ForkingPickler.dumps(self.kwargs)
        self._memory = SharedMap(len(pickled))  # Kept until `start` has passed its descriptor to the process.
        self._memory[:] = pickled
        return _arguments_in, (self._memory,)


def _arguments_in(memory: SharedMap) -> _Arguments:
    return _Arguments(pickle.loads(memory))


def _worker_main(
    target: Callable,
    arguments: _Arguments,
    pipe: Connection,
    others: list[Connection],
    stack: SharedMap,
    master_pid: int | None,
    dies_with_parent: bool,
    choices: dict,
) -> None:
    """Run ``target(pipe, **kwargs)``; report to the master what it raises."""
    adopt(choices)
    gc.freeze()  # Do not finalize inherited objects here: a process group of torch, say, would wait for threads of the master.
    for other in others:  # Inherited ends of pipes. While they are open, these pipes report no death.
        other.close()
    os.setpgid(0, 0)
    if dies_with_parent and sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # Also in C code that keeps all threads from running.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _ignoring(os.getpid()))  # Not SIG_IGN, which programs that an environment starts would inherit.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _HELD)
    if _SHOWS_STACKS:
        faulthandler.register(signal.SIGUSR1, file=stack.fd, all_threads=False)
    threading.Thread(target=_watch_master, args=(master_pid,), daemon=True).start()
    try:
        target(pipe, **arguments.kwargs)
    except Abandoned:
        os._exit(1)
    except BaseException as error:
        _send_report(pipe, error)  # If the master is gone, nobody is left to read it.
        CompletedStream(sys.stderr).flush()
        os._exit(1)


def _ignoring(pid: int) -> Callable[[int, Any], None]:
    """Return a handler that ignores a signal in process `pid`, but not in processes that an environment forks from it."""

    def ignore(number: int, frame: Any) -> None:
        if os.getpid() != pid:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    return ignore


def _send_report(pipe: Connection, error: BaseException) -> None:
    try:
        send_by_value(pipe, ("error", failure_report(error)))
    except OSError:
        pass  # The master is gone.


def failure_report(error: BaseException) -> dict:
    """Return an exception as text, for `failure_text`; the exception may not be picklable."""
    notes = [encodable(note) for note in notes_of(error)]
    return {"summary": encodable(f"{type(error).__name__}: {said(error)}"), "notes": notes, "traceback": encodable(traceback_of(error))}


def failure_text(report: dict, name: str, pid: int | None, doing: str) -> str:
    """Return the error message for the report of worker `name`, which was `doing` something."""
    notes = "".join(f"\n{note}" for note in report["notes"])
    return f"{report['summary']}\nRaised by {name}, pid {pid}, while {doing}.{notes}\nTraceback of the worker:\n{report['traceback']}"


def _watch_master(master_pid: int | None) -> None:
    """End this process group when the master has ended for any reason."""
    parent = os.getppid()
    master = multiprocessing.parent_process()
    is_orphan = master_pid is not None and parent != master_pid
    while not is_orphan:
        time.sleep(WATCH_INTERVAL)
        is_orphan = os.getppid() != parent or (master is not None and master_pid is None and bool(wait([master.sentinel], 0)))
    os.killpg(0, signal.SIGKILL)


# ---------------------------------------------------------------------------------------------------------------------
# In the master
# ---------------------------------------------------------------------------------------------------------------------
@contextmanager
def _signals_held() -> Iterator[None]:
    """Hold SIGINT and SIGTERM back until the end of the block, also from processes started in it, which do not ignore them yet."""
    came: list[int] = []
    handlers = {}
    if threading.current_thread() is threading.main_thread():  # Where handlers run, also if another thread gets the signal.
        handlers = {number: signal.signal(number, lambda number, frame: came.append(number)) for number in _HELD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _HELD)
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        for each in came:
            signal.raise_signal(each)


class _Undertaker:
    """A process that cleans up if this process dies without cleaning up: it kills process groups, and then deletes directories.

    Args:
        groups: numbers of the process groups.
        directories: paths of the directories.
    """

    _SCRIPT = """read -r word && exit
    while [ "$1" != and ]; do kill -KILL "-$1" 2>/dev/null; shift; done
    shift; rm -rf -- "$@" """

    def __init__(self, groups: Sequence[int], directories: Sequence[str]) -> None:
        self._process = None
        with suppress(OSError):  # There is no shell.
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", self._SCRIPT, "rlpyt", *map(str, groups), "and", *directories],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )

    def dismiss(self) -> None:
        """End the process: there is nothing left to clean up."""
        if self._process is not None:
            self._process.kill()  # Before its input ends.
            self._process.wait()
            if self._process.stdin is not None:
                self._process.stdin.close()
            self._process = None


def _temporary_directory() -> str | None:
    """Return the directory of multiprocessing's files of this process, such as the socket of a fork server; None without such files."""
    process: Any = multiprocessing.current_process()
    return process._config.get("tempdir")


def _kill_group(leader: int) -> None:
    """Kill the rest of a process group whose leader has ended and been waited for."""
    try:
        os.kill(leader, 0)
    except ProcessLookupError:
        with suppress(OSError):
            os.killpg(leader, signal.SIGKILL)
    except OSError:
        pass  # The number has been given to another process: so the group was empty.


class WorkerPool:
    """A group of worker processes, each running ``target(pipe, **kwargs)``.

    While there are workers, `directory` is a temporary directory that they share with the master, and that multiprocessing uses in the
    workers. It is deleted when the workers end, also if the master is killed.

    The target sends one reply when it is ready and one to each command, as ``pipe.send(("ok", reply))``. It returns after the command
    None.

    Args:
        target: function of the worker; a module-level function if `start_method` is not fork.
        worker_kwargs: one dictionary of arguments per worker.
        names: one description per worker for messages, e.g. "sampler worker 1 (environments 4 to 7)".
        start_method: "fork", "spawn" or "forkserver"; None is fork where the system has it by default.
        timeout: seconds without a sign of life after which a worker counts as hung; None warns every half minute instead.
        progress: array ``[n_workers]`` in shared memory. Each worker counts up its entry as a sign of life, so that a long task is not
            taken for a hang. An odd number says that the worker is inside its environments.
        on_failure: called before a failure ends the workers, to release workers that wait for something else than a command.
    """

    processes: list[multiprocessing.Process] = []  # Empty until the constructor runs, for `__del__`.

    def __init__(
        self,
        target: Callable,
        worker_kwargs: list[dict],
        names: list[str],
        start_method: str | None = None,
        timeout: float | None = None,
        progress: np.ndarray | None = None,
        on_failure: Callable[[], None] | None = None,
    ) -> None:
        leave_if_importing_main()
        self.names = names
        self._on_failure = on_failure
        self.timeout = timeout
        self._progress = np.zeros(len(names)) if progress is None else progress
        self._owner_pid = os.getpid()  # A forked worker holds a copy of this object, and must not act on it.
        self.waiting = Stopwatch()  # The time in which this process only waits for the workers.
        self.doing = "starting"  # What the workers do, for messages.
        self._undertaker: _Undertaker | None = None
        self.directory: str | None = None  # Of multiprocessing's files, which a killed process does not delete.
        self.processes = []
        self.pipes: list[Connection] = []
        self._stacks: list[SharedMap] = []
        self._early: dict[int, Any] = {}  # Replies that came during `wait_for`.
        self._pollers: dict[tuple[int, ...], select.poll] = {}  # By the descriptors that `wait_for` waits for.
        # At exit, before multiprocessing waits for its children. The pool may be gone by then.
        self._at_exit = _kill_at_exit(weakref.ref(self))
        atexit.register(self._at_exit)
        context: Any = multiprocessing.get_context(start_method or default_start_method())
        forks = self._forks = context.get_start_method() == "fork"
        is_child = context.get_start_method() != "forkserver"
        # The system takes the end of the thread that starts a process for that of its parent.
        dies_with_parent = not is_child or threading.current_thread() is threading.main_thread()
        if not forks:
            resource_tracker.ensure_running()  # It would let the signals through that are held back next,
        if not is_child:
            forkserver.ensure_running()  # and this would hold them back, in all processes that the program starts by it later.
        try:
            with _signals_held():
                # Within that of the pool which this process is in, if it is in one.
                self.directory = tempfile.mkdtemp(prefix="rlpyt-", dir=_temporary_directory())
            for kwargs, name in zip(worker_kwargs, names):
                with _signals_held(), copying_private_tensors():
                    mine, theirs = context.Pipe()
                    stack = SharedMap(_STACK_BYTES)
                    inherited = [*self.pipes, mine] if forks else []
                    parent_pid = os.getpid() if is_child else None
                    args = (target, _Arguments(kwargs), theirs, inherited, stack, parent_pid, dies_with_parent, current())
                    process = context.Process(target=_worker_main, args=args, name=name)
                    process._config["tempdir"] = self.directory
                    self.pipes.append(mine)
                    self.processes.append(process)
                    self._stacks.append(stack)
                    with _explaining_start(name, context.get_start_method()):
                        process.start()
                    theirs.close()
            with _signals_held():
                # That of multiprocessing may be that of the parent, if there is one, which will delete it.
                own = _temporary_directory() if multiprocessing.parent_process() is None else None
                directories = [each for each in (self.directory, own) if each]
                self._undertaker = _Undertaker([process.pid for process in self.processes if process.pid is not None], directories)
        except BaseException:
            self.kill(grace=0)
            raise

    # The protocol ---------------------------------------------------------------------------------------------------
    def send(self, command: Any, doing: str) -> None:
        """Send `command` to all workers. `doing` describes it in messages."""
        if not self.processes:
            raise RuntimeError("The sampler was shut down; call initialize() before using it again.")
        self.doing = doing
        for rank, pipe in enumerate(self.pipes):
            try:
                send_by_value(pipe, command)
            except OSError:
                self._fail(rank)

    def receive(self) -> list:
        """Wait for one reply of every worker, and return them in the order of the workers.

        Raises:
            WorkerError: a worker raised, died, or hung. All others have been ended by then.
        """
        with self.waiting:
            return self._receive()

    def _receive(self) -> list:
        replies, self._early = self._early, {}
        patience = _Patience(self)
        while len(replies) < len(self.pipes):
            waiting = {pipe: rank for rank, pipe in enumerate(self.pipes) if rank not in replies}
            sentinels = [self.processes[rank].sentinel for rank in waiting.values()]
            ready = wait([*waiting, *sentinels], timeout=WATCH_INTERVAL)
            for source in ready:
                if source in waiting:
                    replies[waiting[source]] = self._read(waiting[source])
            if not any(source in waiting for source in ready):
                self._check_alive(waiting.values(), ready)
            patience.check(list(waiting.values()), sign_of_life=bool(ready))
        return [replies[rank] for rank in range(len(self.pipes))]

    def wait_for(self, *sources: Any) -> None:
        """Wait until a worker makes one of `sources` (anything with ``fileno()``) readable; watch the workers.

        Raises:
            WorkerError: a worker raised, died, or hung. All others have been ended by then.
        """
        with self.waiting:
            self._wait_for(tuple(source.fileno() for source in sources))

    def _wait_for(self, fds: tuple[int, ...]) -> None:
        poller = self._pollers.get(fds) or self._poller(fds)
        patience = None
        while True:
            ready = poller.poll(WATCH_INTERVAL * 1000)
            if any(fd in fds for fd, _ in ready):
                return
            patience = patience or _Patience(self)
            for rank, pipe in enumerate(self.pipes):
                if any(fd == pipe.fileno() for fd, _ in ready):
                    if rank in self._early:  # After its reply it sends nothing more, so it must have ended.
                        self._fail(rank)
                    self._early[rank] = self._read(rank)
            ranks = [rank for rank in range(len(self.pipes)) if rank not in self._early]
            if not ready:
                self._check_alive(ranks, ())
            if not ranks and not poller.poll(0):
                raise WorkerError(
                    f"All workers have finished {self.doing}, but one more step of their collectors was expected: a collector that "
                    "overrides its loop has to take all its steps, or to call `leave` of its actor."
                )
            patience.check([rank for rank in ranks if self._progress[rank] % 2] or ranks, sign_of_life=bool(ready))

    def check(self) -> None:
        """Raise WorkerError if a worker has raised or died: for a master that has other things to do than to wait.

        All others have been ended by then. Replies are kept for `receive`.
        """
        for rank, pipe in enumerate(self.pipes):
            if rank not in self._early and pipe.poll():
                self._early[rank] = self._read(rank)
        self._check_alive([rank for rank in range(len(self.pipes)) if rank not in self._early], ())

    def _poller(self, fds: tuple[int, ...]) -> select.poll:
        poller = self._pollers[fds] = select.poll()
        watched: Any
        for watched in (*fds, *self.pipes):
            poller.register(watched, select.POLLIN)
        return poller

    def _check_alive(self, ranks: Iterable[int], ready: Sequence) -> None:
        """Raise for a worker that ended without a report, or whose sentinel is `ready`."""
        # Pipe and sentinel report nothing if a process that the worker started has copies of them.
        for rank in ranks:
            if self.processes[rank].sentinel in ready or self.processes[rank].exitcode is not None:
                self._fail(rank)

    def request(self, command: Any, doing: str) -> list:
        """Send `command` to all workers and wait for their replies."""
        with ending_on_failure(self):
            self.send(command, doing)
            return self.receive()

    # Ending ---------------------------------------------------------------------------------------------------------
    def stop(self) -> None:
        """Let the workers finish and close their environments; kill workers that are late. May be called twice.

        Raises:
            WorkerError: closing an environment raised.
        """
        if not self.processes:
            return
        failures = []
        self.doing = "ending"
        with ending_on_failure(self):
            self._send_stop()
            deadline = time.monotonic() + STOP_GRACE
            for rank, pipe in enumerate(self.pipes):
                try:
                    while pipe.poll(max(deadline - time.monotonic(), 0)):
                        kind, content = pipe.recv()
                        if kind == "error":
                            failures.append(self._error_text(rank, content))
                except (EOFError, OSError):
                    pass
            for process in self.processes:
                process.join(max(deadline - time.monotonic(), 0))
        late = [name for name, process in zip(self.names, self.processes) if process.exitcode is None]
        self.kill(grace=0)
        if late:
            warnings.warn(f"Killed, since environments were not closed within {STOP_GRACE:g} s: {'; '.join(late)}.", stacklevel=2)
        if failures:
            raise WorkerError(failures[0])

    def _send_stop(self) -> None:
        for pipe in self.pipes:
            try:
                pipe.send(None)
            except OSError:
                pass  # It has ended already.

    def kill(self, grace: float = FAILURE_GRACE) -> None:
        """End all workers, and wait until they are gone. May be called twice.

        Args:
            grace: seconds they have to close their environments, if they are idle.
        """
        if os.getpid() != self._owner_pid:
            return
        atexit.unregister(self._at_exit)
        if grace > 0 and self.processes and self._on_failure is not None:
            self._on_failure()
        started = [process for process in self.processes if process.pid is not None]
        if grace > 0:
            self._send_stop()
            deadline = time.monotonic() + grace
            for process in started:
                process.join(max(deadline - time.monotonic(), 0))
        for process in started:
            process.kill()
        for process in started:
            process.join()
            if process.pid is not None:
                _kill_group(process.pid)
        if self.directory is not None:
            shutil.rmtree(self.directory, ignore_errors=True)
        if self._undertaker is not None:
            self._undertaker.dismiss()
        # Only now, so that after a signal in this method the next call repeats it.
        pipes, self.processes, self.pipes, self._stacks = self.pipes, [], [], []
        self._early, self._pollers = {}, {}
        for pipe in pipes:
            pipe.close()
        for process in started:
            process.close()

    def __del__(self) -> None:
        if self.processes:
            self.kill(grace=0)

    # Failures -------------------------------------------------------------------------------------------------------
    def _read(self, rank: int) -> Any:
        try:
            kind, content = self.pipes[rank].recv()
        except (EOFError, OSError):
            self._fail(rank)
        if kind == "error":
            message = self._error_text(rank, content)
            self.kill()
            raise WorkerError(message)
        return content

    def _error_text(self, rank: int, report: dict) -> str:
        return failure_text(report, self.names[rank], self.processes[rank].pid, self.doing)

    def _fail(self, rank: int) -> None:
        """Raise for a worker that ended, with its report, if any."""
        message = self.last_words(rank)
        self.kill()
        raise WorkerError(message) from None  # The error by which the pool noticed is no news.

    def last_words(self, rank: int) -> str:
        """Return the report of a worker that ended; without a report, say how it ended."""
        with suppress(EOFError, OSError):
            while self.pipes[rank].poll():
                kind, content = self.pipes[rank].recv()
                if kind == "error":
                    return self._error_text(rank, content)
        process = self.processes[rank]
        process.join(STOP_GRACE)
        code = process.exitcode
        if code is None:
            how = "closed its pipe but did not end"
        elif code < 0:
            how = f"was killed by {_signal_name(-code)}"
        else:
            how = f"ended with exit code {code}"
        message = f"{self.names[rank]}, pid {process.pid}, {how} while {self.doing}."
        message = message[0].upper() + message[1:]
        if code == IMPORTS_MAIN:
            message += f" {_UNGUARDED}"
        if code == 1 and self.doing == "starting" and not self._forks and not _script_is_in_a_file():
            message += f" {_WITHOUT_FILE}"
        if code == -signal.SIGKILL:
            message += " If nobody killed it, the system may have run out of memory."
        return message

    def _give_up(self, ranks: list[int], seconds: float) -> None:
        """Raise for workers that do not answer; the message has their stacks."""
        if _SHOWS_STACKS:
            for pid in (self.processes[rank].pid for rank in ranks):
                if pid is not None:
                    os.kill(pid, signal.SIGUSR1)
            time.sleep(0.5)
        lines = [f"No reply for {seconds:.0f} s (worker_timeout={self.timeout}) while {self.doing}:"]
        for rank in ranks:
            stack = self._stacks[rank][:].rstrip(b"\0").decode(errors="replace") or "  (no stack available)"
            lines.append(f"{self.names[rank]}, pid {self.processes[rank].pid}, is at\n{stack}")
        self.kill()
        raise WorkerError("\n".join(lines))


def _script_is_in_a_file() -> bool:
    """Return whether new processes can import the program's main script: that of `python -` is said to be in a file called <stdin>."""
    return os.path.exists(getattr(sys.modules["__main__"], "__file__", None) or "")


@contextmanager
def _explaining_start(name: str, start_method: str) -> Iterator[None]:
    """Add advice to errors of starting a process."""
    try:
        yield
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        if start_method == "fork":
            raise
        raise ValueError(
            f"{name[0].upper()}{name[1:]} cannot be given what it needs: {said(error).rstrip('.')}. With start_method={start_method!r}, "
            "classes and functions such as EnvCls must be found by name in a module: define them at its top level, not by lambda or in a "
            "function."
        ) from error
    except (EOFError, ConnectionError) as error:  # The fork server, which imports the script before it forks.
        raise WorkerError(f"{name[0].upper()}{name[1:]} could not be started, since the fork server has ended. {_UNGUARDED}") from error


class _Patience:
    """Measures, during one wait, how long `pool`'s workers are silent: warns every half minute, gives up after the pool's timeout."""

    def __init__(self, pool: WorkerPool) -> None:
        self.pool = pool
        self.silent_since = self.warned = time.monotonic()
        self.progress = pool._progress.copy()

    def check(self, waiting: list[int], sign_of_life: bool) -> None:
        """Record whether there was a sign of life; `waiting` are the ranks of workers that have not answered."""
        pool, now = self.pool, time.monotonic()
        if sign_of_life or (pool._progress != self.progress).any():
            self.silent_since = self.warned = now
            self.progress = pool._progress.copy()
        elif pool.timeout is not None and now - self.silent_since > pool.timeout:
            pool._give_up(waiting, now - self.silent_since)
        elif now - self.warned > HANG_WARNING:
            self.warned = now
            names = "; ".join(pool.names[rank] for rank in waiting)
            warnings.warn(
                f"No reply for {now - self.silent_since:.0f} s while {pool.doing}: {names}. If an environment hangs, worker_timeout= turns "
                "this into an error that shows where.",
                stacklevel=4,
            )


def _kill_at_exit(pool: weakref.ref) -> Callable[[], None]:
    def at_exit() -> None:
        if (alive := pool()) is not None:
            alive.kill(grace=0)

    return at_exit


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def default_start_method() -> str:
    """Return the method that the program has set; else fork on Linux, which is fast and pickles nothing; elsewhere Python's default."""
    chosen = multiprocessing.get_start_method(allow_none=True)
    return chosen or ("fork" if sys.platform == "linux" else multiprocessing.get_context().get_start_method())


def check_forked_torch_threads(n: int, start_method: str, key: str) -> None:
    """Raise ValueError if a forked process would hang with `n` torch threads, as it does once its parent has used several.

    GNU's OpenMP hangs so. This function finds out by a trial, since OpenMP does not tell. The message names `key` of the affinity.
    """
    if n <= 1 or start_method != "fork":
        return
    name = f"a process that tries torch with {n} threads"
    pool = WorkerPool(_use_torch_threads, [dict(n=n)], [name], start_method="fork", timeout=_TRIAL_SECONDS)
    try:
        pool.receive()
    except WorkerError as error:
        raise ValueError(
            f"affinity[{key!r}]={n}: workers would hang, since this process has used several torch threads already, and "
            "workers are forked from it. Use start_method='spawn' or 'forkserver' of the sampler, or 1 thread for each worker."
        ) from error
    finally:
        pool.kill(grace=0)


def _use_torch_threads(pipe: Any, n: int) -> None:
    import torch

    torch.set_num_threads(n)
    (torch.ones(512, 512) @ torch.ones(512, 512)).exp().sum()
    pipe.send(("ok", None))
