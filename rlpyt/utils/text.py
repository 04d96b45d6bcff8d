"""Text for people.

Names of directories, columns, settings and errors in the files of a run may have been written by anybody, and a terminal obeys what some
characters say. Whoever shows them escapes those: the commands by `show`, tables by themselves.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Collection, Sequence
from typing import Any, TextIO

LINES = "\n\t"  # What may be in texts of several lines.
LONGEST_MESSAGE, LONGEST_TRACEBACK = 20_000, 100_000  # characters


def printable(text: Any, keep: str = "") -> str:
    r"""Return a text with everything escaped that is not printable: "\x1b[2J" for what clears the screen.

    Args:
        text: a text, or what is shown as one.
        keep: characters that stay nevertheless.
    """
    text = str(text)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text)


def encodable(text: str, encoding: str | None = None) -> str:
    """Return a text with everything escaped that an encoding (default UTF-8) does not have, such as the halves of pairs of surrogates."""
    encoding = encoding or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def show(text: Any, stream: TextIO | None = None) -> None:
    """Print a text of one or several lines, all else escaped that is not printable, or that the stream (default stdout) cannot encode."""
    stream = sys.stdout if stream is None else stream
    print(encodable(printable(text, keep=LINES), getattr(stream, "encoding", None)), file=stream)


def said(error: BaseException) -> str:
    """Return what an exception says, also if it cannot: it may be one of anybody's."""
    try:
        return shortened(str(error))
    except Exception as failure:
        return f"({type(error).__name__}.__str__ raised {type(failure).__name__})"


def notes_of(error: BaseException) -> list[str]:
    """Return the notes of an exception, whatever somebody has put there."""
    try:
        notes = getattr(error, "__notes__", None)
        notes = notes if isinstance(notes, (list, tuple)) else [] if notes is None else [notes]
        return [shortened(str(note)) for note in notes]
    except Exception as failure:
        return [f"(Its notes raised {type(failure).__name__}.)"]


def traceback_of(error: BaseException) -> str:
    """Return the traceback of an exception as Python shows it, also if it cannot be shown, and not all of a very long one."""
    try:
        text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        if sys.version_info < (3, 11):  # It shows notes only if the package exceptiongroup has been imported.
            text += "".join(f"{note}\n" for note in notes_of(error) if f"\n{note}\n" not in text)
    except Exception:
        cause = [] if error.__cause__ is None else ["The cause was:", traceback_of(error.__cause__)]
        lines = [f"{type(error).__name__}: {said(error)}", *notes_of(error), *cause]
        text = "\n".join(["".join(traceback.format_tb(error.__traceback__)), *lines, ""])
    return shortened(text, LONGEST_TRACEBACK)


def shortened(text: str, longest: int = LONGEST_MESSAGE) -> str:
    """Return both ends of a text, with a line between them that says how much is left out, if it has more characters than `longest`."""
    half = longest // 2
    left_out = len(text) - 2 * half
    return text if len(text) <= longest else f"{text[:half]}\n... {left_out:,} characters left out ...\n{text[-half:]}"


def plural(n: int, noun: str) -> str:
    """ "1 run", "2 runs"."""
    return f"{n} {noun}{'' if n == 1 else 's'}"


def format_seconds(seconds: float | None) -> str:
    """A duration in the two units that fit it; "" for None."""
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
        rows: texts, as many in each row; what is not printable in them is escaped.
        right: columns that are aligned right, such as those of numbers.
        rule: draw a line below the header.
    """
    rows = [[printable(text) for text in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    rows = [rows[0], ["-" * width for width in widths], *rows[1:]] if rule else rows
    return "\n".join(
        "  ".join(text.rjust(width) if i in right else text.ljust(width) for i, (text, width) in enumerate(zip(row, widths))).rstrip()
        for row in rows
    )
