"""Ctrl-C and SIGTERM end a training run in good order."""

from __future__ import annotations

import _thread
import signal
import threading
from collections.abc import Callable, Sequence
from typing import Any

from rlpyt.utils.logging import logger


class Interrupt:
    """Context in which the first SIGINT or SIGTERM only sets a flag, and the second one raises KeyboardInterrupt.

    A training loop looks at the flag between iterations, so that what it saves is consistent. On leaving the context the signals do
    again what they did before. Outside the main thread, where signals cannot be handled, it does nothing.

    Args:
        on_first: called at the first signal, to cut short what takes long.
        says: what will happen, logged at the first signal; None logs nothing.
        signals: numbers of the signals.

    Attributes:
        signal: number of the signal received, or None.
    """

    def __init__(
        self,
        on_first: Callable[[], None],
        says: str | None = "finishing this iteration, then saving. Ctrl-C again ends at once.",
        signals: Sequence[int] = (signal.SIGINT, signal.SIGTERM),
    ) -> None:
        self.on_first = on_first
        self.says = says
        self.signals = signals
        self.signal: int | None = None
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Interrupt:
        if threading.current_thread() is threading.main_thread():
            for number in self.signals:
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
        if self.says is not None:
            message = f"{signal.Signals(number).name}: {self.says}"
            _thread.start_new_thread(logger.log, (message,))  # Not here: what was interrupted may be writing, and hold what that needs.
        self.on_first()
