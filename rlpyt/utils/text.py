"""Text for people."""

from __future__ import annotations

from collections.abc import Collection, Sequence


def table(rows: Sequence[Sequence[str]], right: Collection[int], rule: bool = False) -> str:
    """Return lines of text in columns two spaces apart, the first row being the header.

    Args:
        rows: texts, as many in each row.
        right: columns that are aligned right, such as those of numbers.
        rule: draw a line below the header.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    rows = [rows[0], ["-" * width for width in widths], *rows[1:]] if rule else rows
    return "\n".join(
        "  ".join(text.rjust(width) if i in right else text.ljust(width) for i, (text, width) in enumerate(zip(row, widths))).rstrip()
        for row in rows
    )
