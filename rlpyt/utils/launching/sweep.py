"""Runs that share the slots of a machine: started when a slot is free, watched, ended together.

    waiting ──► slot 0: script 0slt_... log_dir run_ID args ──► FINISHED.json | PAUSED.json | FAILED.json | INTERRUPTED.json
            ──► slot 1: script 1slt_...                     ──► (the slot takes the next run at once)
                          running ──► ended, its leftover processes get some time ──► over

The launcher is one process with one thread. It waits until a run ends, or for a second, and then reads what the runs have logged. No error
in doing so kills runs at once: after an unexpected error they end cleanly, as after Ctrl-C.

Each run leads a new session. A signal from the terminal (Ctrl-C) therefore reaches only the launcher, which passes it on once. When a run
has ended, its leftover processes are ended, too, before its slot is used again. If the launcher is killed, the system sends its runs
SIGTERM (on Linux).
"""

from __future__ import annotations

import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol, TextIO

import psutil

from rlpyt.utils.interrupt import Interrupt
from rlpyt.utils.launching.status import (
    REFRESH,
    RunStatus,
    error_in,
    format_progress,
    format_seconds,
    from_first_traceback,
    identity,
    mark,
    plural,
    read_mark,
    run_status,
    says_complete,
    touch,
)
from rlpyt.utils.logging.context import EXITS_BY_SIGNAL
from rlpyt.utils.logging.logger import try_to_write
from rlpyt.utils.logging.runs import PROGRESS, STEPS_COLUMN, find_column, read_columns
from rlpyt.utils.logging.store import snapshot_files
from rlpyt.utils.text import CompletedStream, printable, sentence

RESUME_FROM = "RLPYT_RESUME_FROM"  # Environment variable: the directory of the run to resume.
PAUSE_AT = "RLPYT_PAUSE_AT"  # Environment variable: env steps after which the run pauses.
UNMARKED = "ended, not marked"  # State of a run that has ended, but whose mark could not be written: its directory does not say so.
SAVE_GRACE = 60.0  # seconds that a run has to save, after SIGINT
END_GRACE = 10.0  # seconds that it has to end, after SIGTERM; then it is killed
LEFTOVER_GRACE = 1.5  # seconds that leftover processes of a run have to end; sampler workers look for their master each second
_KILL_GRACE = 1.0  # seconds to wait for leftover processes after SIGKILL: one that hangs in a system call stays
MAX_IMMEDIATE_FAILURES = 3  # in a row: then something is wrong with all runs
_POLL = 0.1  # seconds between checks, if the system cannot wait for several processes
_LEFTOVER_POLL = 0.03  # seconds between two checks for leftover processes
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Run:
    """One learning run.

    Attributes:
        name: name of the run in its experiment.
        run_dir: directory of its log.
        start: starts the run, given its slot, additional environment variables, and the files to which stdout and stderr are appended.
        pause_at: environment steps after which the run pauses; None for a run that trains to its end.
    """

    name: str
    run_dir: Path
    start: Callable[[int, Mapping[str, str], Path, Path], RunProcess]
    pause_at: int | None = None


class Queue(Protocol):
    """Decides which run takes the next free slot."""

    @property
    def n_runs(self) -> int | None:
        """Number of all runs; None if it is not known."""

    def has_next(self) -> bool:
        """Whether a run can start now, in a free slot. If none can and none is running, the sweep is over.

        This may already choose the run that `take` returns next, and record that.
        """

    def take(self, slot: int) -> Run:
        """Return the run to start in a slot. Call it only if `has_next`."""

    def ended(self, run: Run, status: RunStatus) -> str | None:
        """Record the end of a run; return a line to show, if any."""

    def close(self) -> None:
        """Start no more runs; those that end from now on may have been told to."""


class InOrder:
    """A queue of given runs."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self._waiting = deque(runs)
        self.n_runs: int | None = len(runs)

    def has_next(self) -> bool:
        return bool(self._waiting)

    def take(self, slot: int) -> Run:
        return self._waiting.popleft()

    def ended(self, run: Run, status: RunStatus) -> str | None:
        return None

    def close(self) -> None:
        self._waiting.clear()


def start_process(
    command: Sequence[str],
    cpus: Iterable[int] = (),
    environment: Mapping[str, str] | None = None,
    ends_with_parent: bool = False,
    **popen: Any,
) -> subprocess.Popen:
    """Start a program, without a shell.

    Args:
        command: program and arguments, passed on unchanged.
        cpus: processors to which the program and its children are bound, if the system can bind them; none leaves them unbound.
        environment: variables in addition to those of this process.
        ends_with_parent: send the program SIGTERM when the thread that started it ends (on Linux).
        popen: further arguments of `subprocess.Popen`.
    """
    cpus = set(cpus)
    libc = ctypes.CDLL(None) if ends_with_parent and sys.platform == "linux" else None
    parent = os.getpid()

    def in_child() -> None:  # Between fork and exec: as little as possible.
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # Background jobs ignore SIGINT, and their children would inherit that.
        if cpus:
            with suppress(OSError):
                os.sched_setaffinity(0, cpus)
        if libc is not None:
            libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
            if os.getppid() != parent:  # The parent ended before the call.
                os.kill(os.getpid(), signal.SIGTERM)

    return subprocess.Popen(list(command), env={**os.environ, **(environment or {})}, preexec_fn=in_child, **popen)


class RunProcess:
    """The launcher's handle of a started run: a process of this machine.

    Args:
        popen: the process, which leads a session.
    """

    def __init__(self, popen: subprocess.Popen) -> None:
        self._popen = popen
        self.fd: int | None = None  # Readable when the process has ended; None on systems without pidfd.
        with suppress(AttributeError, OSError):
            self.fd = os.pidfd_open(popen.pid)

    def identity(self) -> dict:
        """Facts by which `status.is_alive` recognises the run."""
        return identity(self._popen.pid)

    def has_ended(self) -> bool:
        """Whether the process has ended. If the system allows, it is not reaped yet, so that no other process gets its number."""
        if self._popen.returncode is not None:
            return True
        if not hasattr(os, "waitid"):
            return self._popen.poll() is not None
        with suppress(ChildProcessError):
            return os.waitid(os.P_PID, self._popen.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        return True

    def send(self, number: int) -> None:
        """Send a signal to the process and its group, like the terminal; send SIGKILL to its whole session."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._popen.pid, number)
        for pid in self._others() if number == signal.SIGKILL else ():
            with suppress(OSError):
                os.kill(pid, number)

    def has_leftovers(self) -> bool:
        """Whether other processes of its session are still running."""
        return next(self._others(), None) is not None

    def _others(self) -> Iterator[int]:
        """Yield the other processes of its session: workers lead separate groups in it."""
        for pid in psutil.pids():
            with suppress(OSError, psutil.Error):
                is_of_it = pid != self._popen.pid and os.getsid(pid) == self._popen.pid
                if is_of_it and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                    yield pid

    def finish(self) -> tuple[int | None, str | None]:
        """Return the exit code of the ended process in a shell's form, and None; or None and the reason why there is no code."""
        if self.fd is not None:
            os.close(self.fd)
            self.fd = None
        exit_code = self._popen.wait()
        return (128 - exit_code if exit_code < 0 else exit_code), None


def start_run(command: Sequence[str], stdout: Path, stderr: Path, **options: Any) -> RunProcess:
    """Start the program of a run and append its output to files; `options` are those of `start_process`."""
    with open(stdout, "ab") as out, open(stderr, "ab") as err:
        options.update(ends_with_parent=True, start_new_session=True, stdin=subprocess.DEVNULL, stdout=out, stderr=err)
        return RunProcess(start_process(command, **options))


class _Attempt:
    """A run in a slot: its process from start to end, and its leftover processes."""

    def __init__(self, run: Run, slot: int) -> None:
        self.run, self.slot = run, slot
        self.started = time.time()
        self.ended: float | None = None  # When the process was found to have ended; its leftover processes may still run.
        self.rows_before = self._rows()
        self.is_stopped = False  # by the launcher
        self.process: RunProcess | None = None
        self.error: str | None = None  # Why the process could not be started, or has no exit code.
        self.resumes = run.run_dir.is_dir() and bool(snapshot_files(run.run_dir))
        self.log_before = _written(run.run_dir / "debug.log")
        self.outputs = {name: run.run_dir / f"{name}.log" for name in ("stdout", "stderr")}
        self.output_starts = {name: path.stat().st_size if path.exists() else 0 for name, path in self.outputs.items()}

    def start(self) -> None:
        """Start the process, or record why it cannot be started."""
        environment = {"PYTHONUNBUFFERED": "1", "PYTHONFAULTHANDLER": "1"}  # So that the files have all output, however the run ends.
        environment[RESUME_FROM] = str(self.run.run_dir) if self.resumes else ""
        environment[PAUSE_AT] = "" if self.run.pause_at is None else str(self.run.pause_at)
        try:
            self.run.run_dir.mkdir(parents=True, exist_ok=True)
            self.process = self.run.start(self.slot, environment, self.outputs["stdout"], self.outputs["stderr"])
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            self.error = f"It could not be started: {error}"
            return
        self._mark("running", **self.process.identity())

    def has_ended(self) -> bool:
        """Whether the process has ended."""
        if self.ended is None and (self.process is None or self.process.has_ended()):
            self.ended = time.time()
        return self.ended is not None

    def is_over(self) -> bool:
        """Whether the process and its leftover processes have ended; leftover processes are killed when their time is up."""
        if not self.has_ended():
            return False
        if self.process is None or not self.process.has_leftovers():
            return True
        assert self.ended is not None
        late = time.time() - self.ended - LEFTOVER_GRACE
        if late > 0:
            self.send(signal.SIGKILL)
        return late > _KILL_GRACE

    def send(self, number: int) -> None:
        """Send a signal to the process, as in `RunProcess.send`."""
        if self.process is not None:
            self.process.send(number)

    def finish(self) -> RunStatus:
        """Mark how the run ended, and return its state, UNMARKED if the mark cannot be written. Call it when the run is over."""
        exit_code = None
        if self.process is not None:
            exit_code, self.error = self.process.finish()
        if exit_code == 0 and self._says_complete():
            is_marked = self._mark("paused" if self._is_paused() else "finished", exit_code=exit_code)
        elif self.is_stopped or exit_code in EXITS_BY_SIGNAL:
            is_marked = self._mark("interrupted", exit_code=exit_code)
        else:
            is_marked = self._mark("failed", exit_code=exit_code, **self._what_it_said(exit_code))
        status = run_status(self.run.run_dir)
        return status if is_marked else replace(status, state=UNMARKED)

    def _says_complete(self) -> bool:
        """Whether the log says that the run is complete. A run without a log is complete unless the launcher stopped it."""
        is_complete, log = says_complete(self.run.run_dir), _written(self.run.run_dir / "debug.log")
        return not self.is_stopped if log is None else is_complete and log != self.log_before

    def _is_paused(self) -> bool:
        """Whether a complete run has reached the steps at which it pauses, but not its end.

        If its end is unknown, it has paused if no further row follows the one in which it got there.
        """
        status, pause_at = run_status(self.run.run_dir), self.run.pause_at
        if pause_at is None or status.steps is None or status.steps < pause_at:
            return False
        if status.n_steps is not None:
            return status.steps < status.n_steps
        try:
            columns = read_columns(self.run.run_dir / PROGRESS)
            return sum(steps >= pause_at for steps in columns[find_column(columns, STEPS_COLUMN)]) == 1
        except (OSError, ValueError):
            return True

    def _mark(self, state: str, **facts: Any) -> bool:
        """Write the mark of the run; return whether that succeeded."""
        facts.update(started=self.started, seconds=round((self.ended or time.time()) - self.started, 3), slot=self.slot)
        run_dir = self.run.run_dir
        return try_to_write(str(run_dir), lambda: mark(run_dir, state, **facts))  # A full disk must not end other runs.

    def _what_it_said(self, exit_code: int | None) -> dict:
        lines = [] if exit_code is None else from_first_traceback(self.outputs["stderr"], self.output_starts["stderr"])
        if exit_code is None:
            error = self.error
        elif exit_code == 0:
            error = "exit code 0, but debug.log does not end like that of a complete run: something ended the run, such as os._exit()"
        elif exit_code > 128 and exit_code - 128 in set(signal.Signals):
            name = signal.Signals(exit_code - 128).name
            error = f"ended by {name}" + (", sent by somebody, or by the system because memory ran out" if name == "SIGKILL" else "")
        else:
            error = error_in(lines) or f"exit code {exit_code}, and nothing in stderr.log"
        return dict(error=error, traceback=lines, stdout=str(self.outputs["stdout"]), stderr=str(self.outputs["stderr"]))

    @property
    def failed_immediately(self) -> bool:
        """Whether a failed run has logged no row in this attempt."""
        return self._rows() <= self.rows_before

    def _rows(self) -> set[bytes]:
        with suppress(OSError):
            return set((self.run.run_dir / "progress.csv").read_bytes().splitlines()[1:])
        return set()


def _written(path: Path) -> tuple[int, int, int] | None:
    """Return facts that change when a file is written or replaced; None without a file."""
    with suppress(OSError):
        status = path.stat()
        return status.st_ino, status.st_size, status.st_mtime_ns
    return None


class Sweep:
    """Runs that take turns in the slots of a machine.

    Args:
        queue: decides what runs; runs marked as finished are skipped.
        n_slots: number of simultaneous runs.
        on_launch: called with the number of runs launched so far, including skipped ones.
        stream: where events are shown line by line; a terminal also shows a line for each running run below them.
        most_immediate_failures: number of consecutive immediate failures that ends the sweep; None for no limit, if the queue has its own.
    """

    def __init__(
        self,
        queue: Queue,
        n_slots: int,
        on_launch: Callable[[int], None] = lambda n: None,
        stream: TextIO | None = None,
        most_immediate_failures: int | None = MAX_IMMEDIATE_FAILURES,
    ) -> None:
        self.n_launched = 0
        self.stopped_because: str | None = None
        self._on_launch = on_launch
        self._queue = queue
        self._most_immediate_failures = most_immediate_failures
        self._free = list(range(n_slots))
        self._running: list[_Attempt] = []
        self._immediate_failures = 0
        self._error: Exception | None = None  # The first unexpected error.
        self._display = _Display(sys.stdout if stream is None else stream)

    def run(self) -> int:
        """Launch all runs, and wait for their ends; return the number of the signal that ended the sweep, or 0.

        After SIGINT, SIGTERM or SIGHUP, the runs get SIGINT, so that they save, later SIGTERM, and then they are killed. A second signal
        kills them at once. After several immediate failures in a row no more runs are launched, and `stopped_because` says why. After an
        unexpected error, runs are ended as after a signal, and then the error is raised.
        """
        signals = [signal.SIGINT, signal.SIGTERM]
        if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup ignores SIGHUP.
            signals.append(signal.SIGHUP)
        with Interrupt(lambda: None, says=None, signals=signals) as interrupt:
            try:
                while (self._running or self._queue.has_next()) and interrupt.signal is None and self._error is None:
                    self._step(REFRESH, launch=True)
                if self._running:
                    self._queue.close()
                    reason = signal.Signals(interrupt.signal).name if interrupt.signal else repr(self._error)
                    ending = f"ending {plural(len(self._running), 'run')}, with time to save"
                    self._display.line(f"{reason}: {ending}. Ctrl-C again ends at once.")
                self._end(SAVE_GRACE, signal.SIGINT)
                self._end(END_GRACE, signal.SIGTERM)
            except KeyboardInterrupt:
                pass
            finally:
                self._end(END_GRACE, signal.SIGKILL)
                self._display.clear()
        if self._error is not None:
            raise self._error
        return interrupt.signal or 0

    def _step(self, seconds: float, launch: bool = False) -> None:
        """Wait up to `seconds` for a run to end, and handle its end. An error is kept, and raised when all runs have ended."""
        try:
            if launch:
                self._fill_slots()
            self._wait(seconds)
            for attempt in [attempt for attempt in self._running if attempt.is_over()]:
                self._finish(attempt)
            for attempt in self._running:
                touch(attempt.run.run_dir)
            self._show()
        except Exception as error:
            self._error = self._error or error
            time.sleep(_POLL)  # The error may come again at once.

    def _fill_slots(self) -> None:
        while self._free and self._queue.has_next():
            run = self._queue.take(self._free[0])
            self.n_launched += 1
            self._on_launch(self.n_launched)
            if read_mark(run.run_dir)[0] == "finished":
                self._say(run, "has finished before, and is skipped")
                continue
            attempt = _Attempt(run, self._free.pop(0))
            self._running.append(attempt)  # Before the start, so that the run is ended whatever happens.
            attempt.start()
            of_all = "" if self._queue.n_runs is None else f" ({self.n_launched} of {self._queue.n_runs})"
            self._say(run, f"{'resumed' if attempt.resumes else 'launched'} in slot {attempt.slot}{of_all}")

    def _wait(self, seconds: float) -> None:
        """Wait up to `seconds` for a process to end; only briefly if a run waits for its leftover processes."""
        going_on = [attempt for attempt in self._running if not attempt.has_ended()]
        if len(going_on) < len(self._running):
            seconds = min(seconds, _LEFTOVER_POLL)
        deadline = time.monotonic() + max(seconds, 0.0)
        processes = [attempt.process for attempt in going_on if attempt.process is not None]
        descriptors = [process.fd for process in processes if process.fd is not None]
        if len(descriptors) < len(going_on):
            while time.monotonic() < deadline and not any(attempt.has_ended() for attempt in going_on):
                time.sleep(min(_POLL, seconds))
        else:
            poller = select.poll()
            for descriptor in descriptors:
                poller.register(descriptor, select.POLLIN)
            poller.poll(max(seconds, 0.0) * 1000)  # A negative time would wait for ever.

    def _finish(self, attempt: _Attempt) -> None:
        self._running.remove(attempt)  # First, because the run is over even if the rest fails.
        self._free = sorted([*self._free, attempt.slot])
        status = attempt.finish()
        facts = [f"after {format_seconds(status.seconds)}"]
        facts += [format_progress(status, " steps")] if status.steps is not None else []
        facts += [f"return {status.return_:.4g}"] if status.return_ is not None else []
        reason = f". {sentence(status.error)} See {attempt.outputs['stderr']}" if status.state == "failed" else ""
        self._say(attempt.run, f"{status.state} {', '.join(facts)}{reason}")
        line = self._queue.ended(attempt.run, status)
        if line is not None:
            self._display.line(f"{datetime.now():%H:%M:%S} {line}")
        if status.state != "failed" or not attempt.failed_immediately:
            self._immediate_failures = 0
            return
        self._immediate_failures += 1
        if self._immediate_failures == self._most_immediate_failures and self._queue.has_next():
            self.stopped_because = (
                f"{self._immediate_failures} runs in a row failed before they logged anything, so no more are launched. "
                f"The last one, {attempt.run.name}: {sentence(status.error)}"
            )
            self._queue.close()
            self._display.line(f"{self.stopped_because}{' The launcher waits for the others.' if self._running else ''}")

    def _end(self, grace: float, number: int) -> None:
        """Send a signal to all active runs, and wait up to `grace` seconds for them to end."""
        for attempt in self._running:
            attempt.is_stopped = attempt.is_stopped or not attempt.has_ended()
            attempt.send(number)
        deadline = time.monotonic() + grace
        while self._running and time.monotonic() < deadline:
            self._step(min(REFRESH, deadline - time.monotonic()))

    # What is shown --------------------------------------------------------------------------------------------------
    def _say(self, run: Run, text: str) -> None:
        self._display.line(f"{datetime.now():%H:%M:%S} {run.name} {text}")

    def _show(self) -> None:
        if not self._display.is_live:
            return
        n_ended = self.n_launched - len(self._running)
        n_runs = self._queue.n_runs
        ended = plural(n_ended, "run") if n_runs is None else f"{n_ended} of {plural(n_runs, 'run')}"
        lines = [f"{ended} ended, {len(self._running)} running"]
        for attempt in self._running:
            status = run_status(attempt.run.run_dir)
            is_new = attempt.started <= time.time() - (status.age or 0)  # The row is not of an earlier attempt.
            progress = format_progress(status, " steps") if is_new else ""
            parts = [f"slot {attempt.slot}", attempt.run.name, format_seconds(time.time() - attempt.started)]
            parts += [progress or "no row logged yet"]
            parts += [f"return {status.return_:.4g}"] if progress and status.return_ is not None else []
            lines.append(f"{_bar(status)} {'  '.join(parts)}")
        self._display.update(lines)


def _bar(status: RunStatus, width: int = 20) -> str:
    done = min(status.steps / status.n_steps, 1.0) if status.steps and status.n_steps else 0.0
    return f"[{'#' * int(done * width):{width}}]"


class _Display:
    """Lines that stay; on a terminal, also lines below them that are redrawn at each update."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        completed = CompletedStream(stream)
        self.is_live = not completed.closed and completed.isatty()
        self._shown: list[str] = []

    def line(self, text: str) -> None:
        """Print a line above the redrawn ones."""
        shown = self._shown
        self.clear()
        self._write(f"{printable(text)}\n")
        self.update(shown)

    def update(self, lines: list[str]) -> None:
        """Replace the redrawn lines by these."""
        self.clear()
        if self.is_live and lines:
            columns, rows = shutil.get_terminal_size()
            fitting = lines[: max(rows - 1, 1)]  # Lines that wrap or scroll cannot be cleared.
            self._shown = [printable(line)[: max(columns - 1, 20)] for line in fitting]
            self._write("".join(f"{line}\n" for line in self._shown))

    def clear(self) -> None:
        """Remove the redrawn lines."""
        if self._shown:
            self._write(f"\x1b[{len(self._shown)}F\x1b[J")
            self._shown = []

    def _write(self, text: str) -> None:
        say(text, self.stream)


def say(text: str, stream: TextIO | None) -> None:
    """Write a text, with "?" for characters that the stream cannot encode. A stream that is gone, such as a closed terminal, is no error.

    It is none at the end of this program either, when Python would flush the stream again, fail, and change the exit code.
    """
    if stream is None:  # The program was started without this stream.
        return
    encoding = CompletedStream(stream).encoding or "utf-8"
    try:
        stream.write(text.encode(encoding, "replace").decode(encoding))
        stream.flush()
    except OSError:
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    except ValueError:  # The stream is closed.
        pass
