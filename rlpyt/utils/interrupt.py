"""Ctrl-C and SIGTERM end a training run cleanly and soon."""

from __future__ import annotations

import _thread
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from rlpyt.utils.logging import logger
from rlpyt.utils.text import flush_output

PATIENCE = 4.0  # seconds after a signal until sampling is abandoned
CLOSING = 3.0  # seconds that environments then have to close
HURRY = 1.5  # seconds after a second signal until a run's process ends, whatever it does
_LOOK = 0.1  # seconds between two checks of the deadline
_SAME = 0.2  # seconds in which the same signal may come twice, from the terminal and from a launcher
_AGAIN = 2.0  # seconds until `Overdue` is raised again: Python drops exceptions that a handler raises inside some hooks, such as fork's


_STARTING = "the run ends while it starts. Nothing has been trained yet, and nothing is saved."


class Overdue(BaseException):
    """Raised in work that is abandoned because it did not end soon after a signal."""


class Interrupt:
    """Context in which the first SIGINT or SIGTERM only sets a flag, and the second one raises KeyboardInterrupt.

    A training loop checks the flag between iterations, so that it saves a consistent state. Work that may take long, or for ever, runs in
    an `abandonable` block. Leaving the context restores the previous signal handlers; a run that the signal ended then raises the exception
    of `ended`. Outside the main thread, where signals cannot be handled, the context installs no handlers. Entering the context
    again inside itself changes nothing.

    A SystemExit without a signal's exit code leaves the context as a RuntimeError: code that calls sys.exit() during training, such as a
    hook, must not make the run look finished.

    Args:
        on_first: called at the first signal, to cut short what takes long.
        says: what will happen, logged at the first signal; None logs nothing.
        signals: numbers of the signals.
        hurry: seconds after the second signal until this process ends at once; None for no such limit.
        may_repeat: whether a second signal is obeyed; False ignores it, for a process whose parent decides.
        on_second: called without arguments after a second signal, to say what is left; only if `hurry` is given.

    Attributes:
        signal: number of the signal received, or None.
    """

    def __init__(
        self,
        on_first: Callable[[], None],
        says: str | None = "finishing this iteration, then saving. Ctrl-C again ends at once.",
        signals: Sequence[int] = (signal.SIGINT, signal.SIGTERM),
        hurry: float | None = None,
        may_repeat: bool = True,
        on_second: Callable[[], None] = lambda: None,
    ) -> None:
        self.on_first = on_first
        self.says = says
        self.signals = signals
        self.hurry = hurry
        self.may_repeat = may_repeat
        self.on_second = on_second
        self.signal: int | None = None
        self._previous: dict[int, Any] = {}
        self._depth = 0
        self._pid = os.getpid()
        self._since = 0.0  # When the first signal came.
        self._deadline: float | None = None  # When to abandon the current work; None outside `abandonable` blocks.
        self._is_due, self._is_second, self._is_adopted = False, False, False
        self._restoring = threading.Lock()  # Held while handlers are restored, and while the watching thread sends a signal.

    def __enter__(self) -> Interrupt:
        self._depth += 1
        if self._depth == 1 and threading.current_thread() is threading.main_thread():
            self._pid = os.getpid()
            for number in self.signals:
                self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, kind: Any, error: BaseException | None, tb: Any) -> None:
        self._depth -= 1
        if self._depth > 0:
            return
        with self._restoring:
            for number, previous in self._previous.items():
                signal.signal(number, signal.SIG_DFL if previous is None else previous)
            self._previous = {}
        if self.signal is not None and self.hurry is not None and isinstance(error, (Overdue, KeyboardInterrupt)):
            if isinstance(error, KeyboardInterrupt):
                with suppress(Exception):  # The same signal may have ended the reader of a pipe.
                    traceback.print_exception(error)
                    self.on_second()
            raise self.ended() from None
        if isinstance(error, SystemExit) and self.signal is not None and error.code == self.exit_code:
            raise self.ended() from None
        if isinstance(error, SystemExit) and error.code not in [128 + number for number in self.signals]:
            code = "" if error.code is None else repr(error.code)
            raise RuntimeError(f"sys.exit({code}) was called before the end of the run.") from error

    @property
    def is_active(self) -> bool:
        """Whether the context has been entered and not yet left."""
        return self._depth > 0

    @property
    def exit_code(self) -> int:
        """The exit code that a shell expects of a process ended by the signal."""
        return 128 + (self.signal or 0)

    def ended(self) -> BaseException:
        """Return the exception to raise when the signal has ended the run.

        This is SystemExit with `exit_code`, or KeyboardInterrupt after Ctrl-C in an interactive session or a notebook, because SystemExit
        would end the session, too.
        """
        if self.signal == signal.SIGINT and _is_interactive():
            return KeyboardInterrupt("The run has ended by Ctrl-C.")
        return SystemExit(self.exit_code)

    @property
    def is_overdue(self) -> bool:
        """Whether the first signal came so long ago that the current work has to be abandoned."""
        return self.signal is not None and time.monotonic() > self._since + PATIENCE

    @contextmanager
    def abandonable(self, patience: float | None = None, at_least: float = 1.0) -> Iterator[None]:
        """After a signal, raise `Overdue` in this block if it does not end in time.

        Args:
            patience: seconds the block has after the signal, `PATIENCE` by default; 0 abandons the block at once.
            at_least: seconds the block has from its beginning, unless `patience` is 0.
        """
        if self._deadline is not None:  # The enclosing block sets the deadline.
            yield
            return
        patience = PATIENCE if patience is None else patience
        if patience == 0 and self.signal is not None:
            raise Overdue
        self._patience, self._earliest = patience, time.monotonic() + (at_least if patience > 0 else 0)
        self._deadline = max(self._since + patience, self._earliest)
        try:
            yield
        finally:
            self._deadline = None

    def _handle(self, number: int, frame: Any) -> None:
        if os.getpid() != self._pid:  # In a forked process, which has no handlers.
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        elif self._is_due:
            self._is_due = False
            if self._deadline is not None and time.monotonic() > self._deadline:
                self._raise_overdue()
        elif self.signal is None:
            self._begin(number)
        elif self._is_adopted:
            self._is_adopted = False  # The signal that the other process received first.
        elif self.may_repeat and time.monotonic() > self._since + _SAME and not (self._is_second and self._ends_soon):
            self._is_second = True
            if self._ends_soon:
                _thread.start_new_thread(self._end_soon, ())
            raise KeyboardInterrupt

    @property
    def _ends_soon(self) -> bool:
        return self.hurry is not None and not _is_interactive()

    def adopt(self, number: int) -> None:
        """Treat a signal that another process of the run has received as received here."""
        if self.signal is None:
            self.signal, self._since, self._is_adopted = number, time.monotonic(), True
            _thread.start_new_thread(self._watch, ())

    def _begin(self, number: int) -> None:
        self.signal, self._since = number, time.monotonic()
        if self._deadline is not None:
            self._deadline = max(self._since + self._patience, self._earliest)
        if self.says is not None:
            is_starting = self._deadline is not None and self._patience == 0
            message = f"{signal.Signals(number).name}: {_STARTING if is_starting else self.says}"
            # In a thread: the interrupted code may be writing to the log and hold its lock.
            _thread.start_new_thread(logger.log, (message,), dict(level=0))
        _thread.start_new_thread(self._watch, ())
        self.on_first()
        if self._deadline is not None and self._patience == 0:
            self._raise_overdue()

    def _raise_overdue(self) -> None:
        self._deadline = time.monotonic() + _AGAIN
        raise Overdue

    def _watch(self) -> None:
        """Make the main thread abandon overdue work, by a signal, which also interrupts its waits."""
        while self._depth > 0:
            time.sleep(_LOOK)
            deadline = self._deadline
            if deadline is not None and time.monotonic() > deadline and not self._is_second:
                with self._restoring:
                    if self._depth > 0 and self.signal is not None:
                        self._is_due = True
                        signal.pthread_kill(threading.main_thread().ident or 0, self.signal)

    def _end_soon(self) -> None:
        time.sleep(self.hurry or 0)
        if self._depth > 0:
            # In a thread: the main thread may hold the lock of the log, and a flush may block, e.g. if nobody reads the pipe.
            saying = threading.Thread(target=self._say_last_words, daemon=True)
            saying.start()
            saying.join(0.2)
            os._exit(self.exit_code)

    def _say_last_words(self) -> None:
        with suppress(Exception):
            self.on_second()
        flush_output()


def _is_interactive() -> bool:
    """Return whether this process is an interactive session or a notebook, which must survive the end of a run."""
    return hasattr(sys, "ps1") or bool(sys.flags.interactive) or "ipykernel" in sys.modules
