"""What commands print."""

from __future__ import annotations

from collections.abc import Sequence


def table(rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """Return rows of text, the first of them the header, in columns: the first `left` of them and the last row's text are aligned left.

    All rows must have the same length.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [text.ljust(width) if i < left else text.rjust(width) for i, (text, width) in enumerate(zip(row, widths, strict=True))]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def duration(seconds: float) -> str:
    """Return a time in the unit that suits it: "12 s", "3 min", "2.5 h", "4 d"."""
    for unit, name in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * unit:
            number = seconds / unit
            return f"{number:.1f} {name}" if number < 10 and name == "h" else f"{number:.0f} {name}"
    return f"{seconds:.0f} s"
