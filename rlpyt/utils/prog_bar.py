"""A progress bar toward the next logging update."""

import shutil
import sys
import threading

from tqdm import tqdm

from rlpyt.utils.logging import logger


class _Bar(tqdm):
    """tqdm without the thread and the semaphore it shares with other processes: forking must stay safe."""

    monitor_interval = 0
    _lock = threading.RLock()


class ProgBarCounter:
    """A bar on the terminal for one log interval; nothing where its control characters would go to a file.

    Shown only if stdout and stderr are terminals, and not while the logger shows its table only. It
    disappears when stopped, so that the log is not littered with finished bars.
    """

    def __init__(self, total_count: int):
        self.total_count = total_count
        self._bar = None
        if not logger.get_log_tabular_only() and _is_terminal(sys.stdout) and _is_terminal(sys.stderr):
            columns, lines = shutil.get_terminal_size()  # tqdm itself trusts a terminal of size 0
            self._bar = _Bar(total=total_count, leave=False, ncols=columns, nrows=lines, unit="itr")

    def update(self, current_count: int) -> None:
        """Show that current_count out of total_count are done."""
        if self._bar is not None:
            self._bar.update(current_count - self._bar.n)

    def stop(self) -> None:
        """Take the bar away; more calls do nothing."""
        if self._bar is not None:
            self._bar.close()


def _is_terminal(stream) -> bool:
    return hasattr(stream, "isatty") and stream.isatty()
