"""Ctrl-C and SIGTERM end a training run in good order."""

from __future__ import annotations

import _thread
import signal
import threading
from collections.abc import Callable
from typing import Any

from rlpyt.utils.logging import logger


class Interrupt:
    """Context in which the first SIGINT or SIGTERM only sets a flag, and the second SIGINT raises KeyboardInterrupt.

    A training loop looks at the flag between iterations, so that what it saves is consistent. On leaving the context the signals do
    again what they did before. Outside the main thread, where signals cannot be handled, it does nothing.

    Args:
        on_first: called at the first signal, to cut short what takes long.

    Attributes:
        signal: number of the signal received, or None.
    """

    def __init__(self, on_first: Callable[[], None]) -> None:
        self.on_first = on_first
        self.signal: int | None = None
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Interrupt:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *exc_info: Any) -> None:
        for number, previous in self._previous.items():
            signal.signal(number, previous)
        self._previous = {}

    @property
    def exit_code(self) -> int:
        """What a shell expects of a process that ended because of the signal."""
        return 128 + (self.signal or 0)

    def _handle(self, number: int, frame: Any) -> None:
        if self.signal is not None:
            raise KeyboardInterrupt
        self.signal = number
        message = f"{signal.Signals(number).name}: finishing this iteration, then saving. Ctrl-C again ends at once."
        _thread.start_new_thread(logger.log, (message,))  # Not here: what was interrupted may be writing, and hold what that needs.
        self.on_first()
