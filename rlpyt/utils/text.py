"""Text for people.

Anybody may have written the names of directories, columns, settings and errors in the files of a run, and a terminal obeys control
characters. So code that shows them escapes these characters: commands by `show`, tables by themselves.
"""

from __future__ import annotations

import re
import sys
import traceback
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Any, TextIO

from rlpyt.utils.completed import Completed

LINES = "\n\t"  # Allowed in texts of several lines.
_WORD = re.compile(r"[A-Za-z][\w.-]*", re.ASCII)
LONGEST_MESSAGE, LONGEST_TRACEBACK = 20_000, 100_000  # characters


def printable(text: Any, keep: str = "") -> str:
    r"""Return a text with all unprintable characters escaped, e.g. "\x1b[2J" for the sequence that clears the screen.

    Args:
        text: a text, or an object to show as one.
        keep: unprintable characters that stay.
    """
    text = str(text)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text)


def setting_text(value: Any) -> str:
    """Return a value as ``--set section.name=VALUE`` reads it: a word without quotes, anything else as Python writes it."""
    is_word = isinstance(value, str) and _WORD.fullmatch(value) and value.lower() not in ("true", "false", "none")
    return value if is_word else repr(value)


def encodable(text: str, encoding: str | None = None) -> str:
    """Return a text with all characters escaped that an encoding (default UTF-8) does not have, such as lone surrogates."""
    encoding = encoding or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


class CompletedStream(Completed):
    """A stream of text, which need not be one of Python's; None if the program was started without it."""

    encoding: str | None = None
    closed: bool = False

    def isatty(self) -> bool:
        """Return whether the stream is a terminal."""
        return False

    def flush(self) -> None:
        """Write what is buffered. The default has no buffer."""


def flush_output() -> None:
    """Flush stdout and stderr before `os._exit`, which does not. Nothing may keep the process from ending, so errors do not matter."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            CompletedStream(stream).flush()


def encodable_in(stream: TextIO | None, text: str) -> str:
    """Return a text with all characters escaped that a stream cannot encode."""
    return encodable(text, CompletedStream(stream).encoding)


def show(text: Any, stream: TextIO | None = None) -> None:
    """Print a text of one or several lines; escape characters that are unprintable or that the stream (default stdout) cannot encode."""
    stream = sys.stdout if stream is None else stream
    print(encodable_in(stream, printable(text, keep=LINES)), file=stream)


def said(error: BaseException) -> str:
    """Return the message of an exception, even if its ``__str__`` raises: the class may be a user's."""
    try:
        return shortened(str(error))
    except Exception as failure:
        return f"({type(error).__name__}.__str__ raised {type(failure).__name__})"


def sentence(text: Any) -> str:
    """Return a text with a full stop at its end, unless it ends in one, or in another mark that ends a sentence."""
    text = str(text)
    return text if text.endswith((".", "!", "?")) else f"{text}."


def said_clearly(error: Exception) -> str:
    """Return the message of an error, with the type where the message alone would be unclear."""
    return said(error) if isinstance(error, (ValueError, TypeError, ImportError)) else f"{type(error).__name__}: {said(error).rstrip('.')}."


def notes_of(error: BaseException) -> list[str]:
    """Return the notes of an exception as texts, even if ``__notes__`` holds other objects."""
    try:
        notes = getattr(error, "__notes__", None)
        notes = notes if isinstance(notes, (list, tuple)) else [] if notes is None else [notes]
        return [shortened(str(note)) for note in notes]
    except Exception as failure:
        return [f"(Its notes raised {type(failure).__name__}.)"]


def traceback_of(error: BaseException) -> str:
    """Return the traceback of an exception as Python shows it, even if formatting raises; the middle of a very long one is left out."""
    try:
        text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        if sys.version_info < (3, 11):  # Older Pythons show notes only if the package exceptiongroup is imported.
            text += "".join(f"{note}\n" for note in notes_of(error) if f"\n{note}\n" not in text)
    except Exception:
        cause = [] if error.__cause__ is None else ["The cause was:", traceback_of(error.__cause__)]
        lines = [f"{type(error).__name__}: {said(error)}", *notes_of(error), *cause]
        text = "\n".join(["".join(traceback.format_tb(error.__traceback__)), *lines, ""])
    return shortened(text, LONGEST_TRACEBACK)


def shortened(text: str, longest: int = LONGEST_MESSAGE) -> str:
    """Return a text; of one longer than `longest` characters, both ends, and between them a line that says how much is left out."""
    half = longest // 2
    left_out = len(text) - 2 * half
    return text if len(text) <= longest else f"{text[:half]}\n... {left_out:,} characters left out ...\n{text[-half:]}"


def plural(n: int, noun: str) -> str:
    """ "1 run", "2,000 runs"."""
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def format_seconds(seconds: float | None) -> str:
    """Return a duration in the two units that fit it; "" for None."""
    if seconds is None:
        return ""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, hours, days = seconds / 60, seconds / 3600, seconds / 86400
    if minutes < 60:
        return f"{int(minutes)} min {int(seconds % 60)} s"
    return f"{int(hours)} h {int(minutes % 60)} min" if days < 1 else f"{int(days)} d {int(hours % 24)} h"


def table(rows: Sequence[Sequence[str]], right: Collection[int], rule: bool = False) -> str:
    """Return lines of text in columns two spaces apart, the first row being the header.

    Args:
        rows: texts, the same number in each row; unprintable characters are escaped.
        right: indexes of right-aligned columns, such as those of numbers.
        rule: draw a line below the header.
    """
    rows = [[printable(text) for text in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    rows = [rows[0], ["-" * width for width in widths], *rows[1:]] if rule else rows
    return "\n".join(
        "  ".join(text.rjust(width) if i in right else text.ljust(width) for i, (text, width) in enumerate(zip(row, widths))).rstrip()
        for row in rows
    )
