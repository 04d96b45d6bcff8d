"""Output and questions on the terminal."""

import os
import sys
import time
from collections.abc import Callable

from rlpyt.utils.left_out import names_left_out
from rlpyt.utils.text import CompletedStream, encodable_in

__getattr__ = names_left_out(__name__)

color2num = dict(gray=30, red=31, green=32, yellow=33, blue=34, magenta=35, cyan=36, white=37)

_CLEAR_LINE = "\r\x1b[K"


def colorize(string: str, color: str, bold: bool = False, highlight: bool = False) -> str:
    """Return `string` in the terminal's codes for `color`, a key of `color2num`; with `highlight`, as the color of the background."""
    if color not in color2num:
        raise ValueError(f"color={color!r} is unknown: choose one of {', '.join(color2num)}.")
    codes = [str(color2num[color] + 10 * highlight)] + ["1"] * bold
    return f"\x1b[{';'.join(codes)}m{string}\x1b[0m"


def mkdir_p(path: str | os.PathLike) -> None:
    """Make the directory `path` with its parents, unless it exists."""
    os.makedirs(path, exist_ok=True)


def log(s: object) -> None:
    """Print a line at once. On a terminal it replaces a progress bar, which is redrawn below it."""
    print_at_once(f"{_CLEAR_LINE}{s}" if is_terminal() else str(s))


def is_terminal() -> bool:
    """Return whether stdout is a terminal."""
    return CompletedStream(sys.stdout).isatty()


def print_at_once(text: str) -> None:
    """Print a text, and flush stdout."""
    print(encodable_in(sys.stdout, text))
    CompletedStream(sys.stdout).flush()


class SimpleMessage:
    """Context manager that prints what begins, and how long it took: `with SimpleMessage("Loading"): ...`"""

    def __init__(self, msg: str, logger: Callable[[str], None] = log):
        self.msg = msg
        self.logger = logger

    def __enter__(self) -> "SimpleMessage":
        self._start = time.perf_counter()
        self.logger(f"{self.msg} ...")
        return self

    def __exit__(self, etype: type[BaseException] | None, *args: object) -> None:
        outcome = "done" if etype is None else f"failed ({etype.__name__})"
        self.logger(f"{self.msg}: {outcome} after {time.perf_counter() - self._start:.3g} s")


class Message(SimpleMessage):
    """A SimpleMessage that is indented inside another one."""

    _depth = 0  # of nesting, in this process

    def __init__(self, msg: str):
        super().__init__(msg, logger=lambda s: log("  " * Message._depth + s))

    def __enter__(self) -> "Message":
        super().__enter__()
        Message._depth += 1
        return self

    def __exit__(self, etype: type[BaseException] | None, *args: object) -> None:
        Message._depth -= 1
        super().__exit__(etype, *args)


def prefix_log(prefix: str, logger: Callable[[str], None] = log) -> Callable[[str], None]:
    """Return a logging function that puts `prefix` before every line."""
    return lambda s: logger(f"{prefix}{s}")


def tee_log(file_name: str | os.PathLike) -> Callable[[str], None]:
    """Return a logging function that prints every line and appends it to a file."""

    def tee(s: object) -> None:
        log(s)
        with open(file_name, "a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(f"{s}\n")

    return tee


def query_yes_no(question: str, default: str | None = "yes") -> bool:
    """Ask on the terminal until the answer is yes or no; Enter, or the end of the input, means `default`.

    Args:
        default: "yes", "no", or None if an answer is required (then the end of the input raises EOFError).
    """
    choices = {"yes": "[Y/n]", "no": "[y/N]", None: "[y/n]"}
    if default not in choices:
        raise ValueError(f"default={default!r} must be 'yes', 'no' or None.")
    while True:
        try:
            answer = input(f"{question} {choices[default]} ").strip().lower()
        except EOFError:
            if default is None:
                raise
            answer = ""
        answer = answer or default or ""
        if answer in ("y", "ye", "yes"):
            return True
        if answer in ("n", "no"):
            return False
        log("Please answer with yes or no.")
