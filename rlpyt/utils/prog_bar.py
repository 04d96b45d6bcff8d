"""Progress of a run: one line for the whole run. And a bar for one log interval, for training loops of users."""

from __future__ import annotations

import functools
import shutil
import sys
import threading
import time
import warnings
from collections import deque
from typing import Any

from rlpyt.utils.logging import logger
from rlpyt.utils.text import CompletedStream, format_seconds

_REDRAW = 0.5  # seconds between two updates on the screen
_LONGEST_BAR = 20  # characters


class Progress:
    """Progress of a run in one line: percent, steps per second, time left and the newest mean return.

        51% of 200,704 steps, 1,020 steps/s, 1 min 36 s left, return 410.2

    A terminal and a notebook show the line below the log, and update it during the run. Otherwise it is a line of the log after each
    row, so that a file gets no control characters. The speed is that since the row before the last one, including evaluations.

    Args:
        total: number of units in the whole run.
        done: number of units before this process began.
        unit: the unit that is counted, such as "steps" or "epochs".
        steps: environment steps before this process began, if `unit` is another one.
        stop_return: mean return at which the run stops early; None if it does not.
        is_shown: False writes only lines of the log.
    """

    def __init__(
        self,
        total: int,
        done: int = 0,
        unit: str = "steps",
        steps: int | None = None,
        stop_return: float | None = None,
        is_shown: bool = True,
    ) -> None:
        self.total, self.unit, self.stop_return = total, unit, stop_return
        self.done, self.steps = done, done if steps is None else steps
        self.return_: float | None = None  # The newest mean return.
        self._start = time.monotonic()
        # (time, done, steps) at the last two rows of the log; at first at the start.
        self._rows: deque = deque([(self._start, self.done, self.steps)], maxlen=2)
        self._bar = _new_bar(total, str(self)) if is_shown and logger.shows(0) else None
        self._next = self._start + _REDRAW

    def update(self, done: int, steps: int | None = None) -> None:
        """Record the units done, and the environment steps if the unit is another one; redraw at most twice a second."""
        self.done, self.steps = done, done if steps is None else steps
        if self._bar is not None and time.monotonic() > self._next:
            self._draw()

    def row(self, done: int, return_: float | None, steps: int | None = None, is_going_on: bool = True) -> None:
        """Record that a row of the log was written, with this mean return (or None); log a line, unless the run is about to stop."""
        self.done, self.steps = done, done if steps is None else steps
        self.return_ = self.return_ if return_ is None or return_ != return_ else return_
        if is_going_on:
            is_on_screen = self._bar is not None and self.done < self.total
            logger.log(self, level=2 if is_on_screen else 0)
        self._rows.append((time.monotonic(), self.done, self.steps))
        if self._bar is not None and is_going_on:
            self._draw()

    def clear(self) -> None:
        """Clear the line from the screen until the next update, to make room for other output."""
        if self._bar is not None:
            self._bar.clear()

    def stop(self) -> None:
        """Remove the line for good; further calls do nothing."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def _draw(self) -> None:
        bar: Any = self._bar
        bar.n, bar.desc = min(self.done, self.total), str(self)
        if bar.fits_terminal:
            bar.ncols = _width(bar.desc)
        bar.refresh()
        self._next = time.monotonic() + _REDRAW

    def __str__(self) -> str:
        now = time.monotonic()
        since, done, steps = self._rows[0]
        seconds, new = now - since, self.done - done
        is_complete = self.done >= self.total
        parts = [f"{min(100, 100 * self.done // max(self.total, 1))}% of {self.total:,} {self.unit}"]
        if is_complete:
            parts[0] += f" after {format_seconds(now - self._start)}"
        if seconds > 0 and new > 0:
            if self.steps > steps:
                speed = (self.steps - steps) / seconds
                parts.append(f"{speed:,.0f} steps/s" if speed >= 10 else f"{speed:.1f} steps/s")
            if not is_complete:
                left = format_seconds((self.total - self.done) * seconds / new)
                parts.append(f"{left} left" if self.stop_return is None else f"at most {left} left")
        if self.return_ is not None:
            parts.append(f"return {self.return_:,.1f}" if abs(self.return_) >= 10 else f"return {self.return_:.2f}")
        if self.stop_return is not None and not is_complete:
            parts[-1] += f" (stops at {self.stop_return:g})"
        return ", ".join(parts)


class ProgBarCounter:
    """A bar on the terminal for one log interval, for training loops of users; runners show `Progress` instead.

    The bar is shown only if stdout and stderr are terminals, so that no control characters go to a file. It is hidden while the logger
    shows only its table. It disappears when stopped, so that the log is not littered with finished bars.
    """

    def __init__(self, total_count: int):
        self.total_count = total_count
        self._bar = _new_terminal_bar(total_count) if logger.shows(0) and _has_terminal() else None

    def update(self, current_count: int) -> None:
        """Show that current_count of total_count are done."""
        if self._bar is not None:
            self._bar.update(current_count - self._bar.n)

    def stop(self) -> None:
        """Remove the bar; further calls do nothing."""
        if self._bar is not None:
            self._bar.close()


class NoBar:
    """Stands in for a `ProgBarCounter` if no bar is shown."""

    def update(self, current_count: int) -> None:
        """Do nothing."""

    def stop(self) -> None:
        """Do nothing."""


def _new_bar(total: int, text: str) -> Any:
    """Return a bar with a text beside it, in a notebook or on a terminal; None without either."""
    if _is_in_notebook():
        return _bar_class("tqdm.auto")(total=total, desc=text, bar_format="{bar} {desc}", leave=False)
    return _new_terminal_bar(total, _width(text), desc=text, bar_format="|{bar}| {desc}") if _has_terminal() else None


def _new_terminal_bar(total: int, ncols: int | None = None, **settings: Any) -> Any:
    columns, lines = shutil.get_terminal_size()  # tqdm would believe a terminal that reports size 0
    return _bar_class("tqdm")(total=total, ncols=ncols or columns, nrows=lines, leave=False, unit="itr", **settings)


@functools.cache
def _bar_class(module: str) -> type:
    """Return the class of bars in tqdm or tqdm.auto, without tqdm's thread and its shared semaphore: forking must stay safe."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Without ipywidgets, tqdm.auto warns and draws a text bar in a notebook, which is enough.
        tqdm = __import__(module, fromlist=["tqdm"]).tqdm
    return type("Bar", (tqdm,), dict(monitor_interval=0, _lock=threading.RLock(), fits_terminal=module == "tqdm"))


def _width(text: str) -> int:
    """Return the width in columns for a text and a bar of moderate length beside it."""
    return min(shutil.get_terminal_size().columns, len(text) + len("|| ") + _LONGEST_BAR)


def _has_terminal() -> bool:
    """Return whether stdout and stderr are terminals."""
    return all(CompletedStream(stream).isatty() for stream in (sys.stdout, sys.stderr))


def _is_in_notebook() -> bool:
    """Return whether this process is the kernel of a notebook."""
    try:
        config = sys.modules["IPython"].get_ipython().config
    except (KeyError, AttributeError):  # Not imported, only in part, or without a shell.
        return False
    return "IPKernelApp" in (config or ())
