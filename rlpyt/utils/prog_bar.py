"""How far a run is: one line for the whole of it. And a bar toward the next row of the log, for programs that draw one themselves."""

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
from rlpyt.utils.text import format_seconds

_REDRAW = 0.5  # seconds between two updates of what is shown
_LONGEST_BAR = 20  # characters


class Progress:
    """How far a run is: percent, steps per second, time left and the newest mean return, in one line.

        51% of 200,704 steps, 1,020 steps/s, 1 min 36 s left, return 410.2

    A terminal and a notebook show it below what is logged, and it changes during the run. Elsewhere it is a line of the log after each
    row, so that a file gets no control characters. Speed is that since the row before the last one, evaluations included.

    Args:
        total: of what is counted, in the whole run.
        done: of it, before this process began.
        unit: what is counted, such as "steps" or "epochs".
        steps: environment steps before this process began, where something else is counted.
        stop_return: mean return at which the run stops before its end; None if it does not.
        is_shown: False for lines of the log only.
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
        self._rows: deque = deque([(self._start, self.done, self.steps)], maxlen=2)  # Of the last two rows of the log; at first the start.
        self._bar = _new_bar(total, str(self)) if is_shown and logger.shows(0) else None
        self._next = self._start + _REDRAW

    def update(self, done: int, steps: int | None = None) -> None:
        """Take note that so much is done, and environment steps where something else is counted; show it twice a second at the most."""
        self.done, self.steps = done, done if steps is None else steps
        if self._bar is not None and time.monotonic() > self._next:
            self._draw()

    def row(self, done: int, return_: float | None, steps: int | None = None, is_going_on: bool = True) -> None:
        """A row of the log has been written, with this mean return (None: with none): log a line, unless the run is about to stop."""
        self.done, self.steps = done, done if steps is None else steps
        self.return_ = self.return_ if return_ is None or return_ != return_ else return_
        if is_going_on:
            is_on_screen = self._bar is not None and self.done < self.total
            logger.log(self, level=2 if is_on_screen else 0)
        self._rows.append((time.monotonic(), self.done, self.steps))
        if self._bar is not None and is_going_on:
            self._draw()

    def clear(self) -> None:
        """Take the line from the screen, for other output, until the next update."""
        if self._bar is not None:
            self._bar.clear()

    def stop(self) -> None:
        """Take the line away for good; more calls do nothing."""
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
    """A bar on the terminal for one log interval; nothing where its control characters would go to a file.

    Runners show `Progress`, and take no bar. This is for training loops of users. Shown only if stdout and stderr are terminals, and
    not while the logger shows its table only. It disappears when stopped, so that the log is not littered with finished bars.
    """

    def __init__(self, total_count: int):
        self.total_count = total_count
        self._bar = _new_terminal_bar(total_count) if logger.shows(0) and _has_terminal() else None

    def update(self, current_count: int) -> None:
        """Show that current_count out of total_count are done."""
        if self._bar is not None:
            self._bar.update(current_count - self._bar.n)

    def stop(self) -> None:
        """Take the bar away; more calls do nothing."""
        if self._bar is not None:
            self._bar.close()


class NoBar:
    """Stands in for a `ProgBarCounter` where no bar is shown."""

    def update(self, current_count: int) -> None:
        """Do nothing."""

    def stop(self) -> None:
        """Do nothing."""


def _new_bar(total: int, text: str) -> Any:
    """A bar with a text beside it, in a notebook or on a terminal; None where there is neither."""
    if _is_in_notebook():
        return _bar_class("tqdm.auto")(total=total, desc=text, bar_format="{bar} {desc}", leave=False)
    return _new_terminal_bar(total, _width(text), desc=text, bar_format="|{bar}| {desc}") if _has_terminal() else None


def _new_terminal_bar(total: int, ncols: int | None = None, **settings: Any) -> Any:
    columns, lines = shutil.get_terminal_size()  # tqdm itself trusts a terminal of size 0
    return _bar_class("tqdm")(total=total, ncols=ncols or columns, nrows=lines, leave=False, unit="itr", **settings)


@functools.cache
def _bar_class(module: str) -> type:
    """The class of bars in tqdm or tqdm.auto, without the thread and the semaphore shared with other processes: forking must stay safe."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Without ipywidgets, tqdm.auto draws a bar of text in a notebook, which will do.
        tqdm = __import__(module, fromlist=["tqdm"]).tqdm
    return type("Bar", (tqdm,), dict(monitor_interval=0, _lock=threading.RLock(), fits_terminal=module == "tqdm"))


def _width(text: str) -> int:
    """Columns for a text and a bar of moderate length beside it."""
    return min(shutil.get_terminal_size().columns, len(text) + len("|| ") + _LONGEST_BAR)


def _has_terminal() -> bool:
    """Whether all that is printed goes to a terminal."""
    return all(hasattr(stream, "isatty") and stream.isatty() for stream in (sys.stdout, sys.stderr))


def _is_in_notebook() -> bool:
    """Whether this process is that of a notebook, where output is shown by IPython."""
    ipython: Any = sys.modules.get("IPython")
    shell = ipython.get_ipython() if hasattr(ipython, "get_ipython") else None
    return "IPKernelApp" in (getattr(shell, "config", None) or ())
