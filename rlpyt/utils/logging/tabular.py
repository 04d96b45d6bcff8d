"""Tables of diagnostics: as a CSV file without loss, and as readable text."""

import csv
import io
import math
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from rlpyt.utils.logging import console
from rlpyt.utils.misc import append_whole, atomic_write

STATS = ("Average", "Std", "Median", "Min", "Max")
_ENCODING: dict[str, Any] = dict(
    encoding="utf-8", errors="backslashreplace"
)  # Names of columns may have characters that cannot be encoded.


class CsvTable:
    """A CSV file that gets one row at a time, and whose header grows with new columns.

    When `write` returns, the complete row is in the file, and the file is closed. For a new column, a new file with
    "nan" in the older rows replaces the old one. Rows that cannot be written are kept and written with the next
    row.
    """

    def __init__(self, path: str) -> None:
        self.path = os.path.abspath(path)
        self.columns: list[str] = []
        self.n_rows = 0  # in the file
        self._earlier: dict[str, str] = {}  # The columns of a table that this one continues, by their names without slashes.
        self._unwritten: list[Mapping] = []
        if os.path.exists(self.path):
            raise FileExistsError(f"{self.path} exists already: move it away, or write to another file.")
        console.mkdir_p(os.path.dirname(self.path))

    def write(self, row: Mapping) -> None:
        """Append a row; after an OSError, this row and perhaps earlier ones are still pending."""
        self._unwritten.append({self._column(key, row): value for key, value in row.items()} if self._earlier else row)
        self.write_pending()

    def _column(self, key: str, row: Mapping) -> str:
        earlier = self._earlier.get(key.replace("/", ""), key)
        return key if key in self.columns or earlier in row else earlier

    def write_pending(self) -> None:
        """Write the rows that an OSError has kept out of the file, if any."""
        if not self._unwritten:
            return
        seen = dict.fromkeys(self.columns)
        columns = list(seen | dict.fromkeys(key for row in self._unwritten for key in row))
        rows = [["nan" if (value := row.get(column)) is None else value for column in columns] for row in self._unwritten]
        if columns != self.columns or not os.path.exists(self.path):
            self._rewrite(columns, rows)
        else:
            self._append(rows)
        self.columns = columns
        self.n_rows += len(rows)
        self._unwritten = []

    def continue_from(self, path: str, n: int) -> None:
        """Begin this still empty table with the first `n` rows of another CSV file.

        Columns that differ only by slashes are continued: with TensorBoard, ReturnAverage is called Return/Average.
        """
        with open(path, newline="", **_ENCODING) as file:
            columns, *rows = [*csv.reader(file)] or [[]]
        with atomic_write(self.path, "w", newline="", **_ENCODING) as new_file:
            csv.writer(new_file, lineterminator="\n").writerows([columns, *rows[:n]] if columns else [])
        self.columns, self.n_rows = columns, len(rows[:n])
        self._earlier = {column.replace("/", ""): column for column in columns}

    def _rewrite(self, columns: list[str], rows: Iterable[list]) -> None:
        with atomic_write(self.path, "w", newline="", **_ENCODING) as new_file:
            writer = csv.writer(new_file, lineterminator="\n")
            writer.writerow(columns)
            if os.path.exists(self.path):
                with open(self.path, newline="", **_ENCODING) as old_file:
                    reader = csv.reader(old_file)
                    next(reader, None)
                    writer.writerows(old + ["nan"] * (len(columns) - len(old)) for old in reader)
            writer.writerows(rows)

    def _append(self, rows: Iterable[list]) -> None:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(rows)
        append_whole(self.path, text.getvalue().encode(*_ENCODING.values()))


class TerminalTablePrinter:
    """Shows the rows so far: on a terminal as one table, kept up to date; otherwise as one line per row."""

    def __init__(self) -> None:
        self.headers: list[str] = []
        self.rows: list[dict] = []

    def print_tabular(self, new_tabular: Mapping | Iterable) -> None:
        """Add a row: a mapping, or (key, value) pairs."""
        row = dict(new_tabular)
        new_headers = [key for key in row if key not in self.headers]
        self.headers += new_headers
        self.rows.append(row)
        if console.is_terminal():
            self.refresh()
        else:
            lines = self._lines(self.rows[-1:])
            console.print_at_once("\n".join(lines if new_headers else lines[1:]))

    def refresh(self) -> None:
        """Clear the terminal and show the header and as many of the latest rows as fit."""
        height = shutil.get_terminal_size().lines
        clear = "\x1b[2J\x1b[H" if console.is_terminal() else ""
        console.print_at_once(clear + "\n".join(self._lines(self.rows[-max(height - 3, 1) :])))

    def _lines(self, rows: list[dict]) -> list[str]:
        width = shutil.get_terminal_size().columns
        shown: list[tuple] = []
        used = 0
        for header in self.headers:
            column_width = max(len(header), 9)
            if shown and used + column_width + 2 > width:
                break
            shown.append((header, column_width))
            used += column_width + 2
        header_line = "  ".join(header.rjust(column_width) for header, column_width in shown)
        return [header_line] + [
            "  ".join(format_value(row.get(header, "")).rjust(column_width) for header, column_width in shown) for row in rows
        ]


def format_tabular(row: Mapping) -> list[str]:
    """Return lines that show one row of diagnostics to a person.

    Values with a common prefix ("Diagnostics/...") are grouped, two in a line; the five statistics of a quantity
    are one line of a second table.
    """
    names, stats = _split_stats(row)
    sections: dict[str, list[tuple[str, str]]] = {}
    for key, value in row.items():
        if key not in names:
            section, _, name = key.rpartition("/")
            sections.setdefault(section, []).append((name, format_value(value)))
    lines = []
    for section, items in sections.items():
        lines += [section] * bool(section) + _two_columns(items)
    lines += _stats_table(stats)
    rule = "-" * max(map(len, lines), default=0)
    return [rule, *lines, rule]


def format_value(value: object) -> str:
    """Return a number with about five digits; anything else as ``str``."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    if isinstance(value, int):
        return f"{value:,}"
    if not math.isfinite(value) or value == 0:
        return f"{value:.0f}"
    digits = math.floor(math.log10(abs(value))) + 1  # before the decimal point
    return f"{value:,.{min(max(5 - digits, 1), 5)}f}" if -2 <= digits <= 9 else f"{value:.3e}"


def _split_stats(row: Mapping) -> tuple[set[str], dict[str, list[str]]]:
    """Find the quantities with all five statistics; return their keys, and quantity -> its formatted statistics."""
    taken, stats = set(), {}
    for key in row:
        for make_key, base in _stat_patterns(key):
            keys = [make_key(stat) for stat in STATS]
            if all(k in row for k in keys):
                stats[base] = [format_value(row[k]) for k in keys]
                taken.update(keys)
                break
    return taken, stats


def _stat_patterns(key: str) -> Iterator[tuple[Callable[[str], str], str]]:
    """Yield the ways to read `key` as the average of a quantity: (function from a statistic to its key, the quantity's name)."""
    if key.endswith("Average"):
        base = key.removesuffix("Average")
        yield (lambda stat: base + stat), base.rstrip("/")
    section, slash, name = key.rpartition("/")
    if name.startswith("Average"):
        base = name.removeprefix("Average")
        yield (lambda stat: section + slash + stat + base), section + slash + base
    if section.endswith("Average"):
        front = section.removesuffix("Average")
        yield (lambda stat: f"{front}{stat}/{name}"), front + name


def _two_columns(items: list[tuple[str, str]]) -> list[str]:
    n_lines = (len(items) + 1) // 2
    columns = []
    for column in (items[:n_lines], items[n_lines:]):
        name_width = max((len(name) for name, _ in column), default=0)
        value_width = max((len(value) for _, value in column), default=0)
        columns.append([f"  {name:<{name_width}}  {value:>{value_width}}" for name, value in column])
    left, right = columns
    return [f"{a}  {b}".rstrip() for a, b in zip(left, right + [""] * (n_lines - len(right)), strict=True)]


def _stats_table(stats: Mapping[str, list[str]]) -> list[str]:
    if not stats:
        return []
    name_width = max(map(len, stats))
    width = max(9, *(len(value) for values in stats.values() for value in values))
    return [f"  {name:<{name_width}}" + "".join(f"  {value:>{width}}" for value in values) for name, values in {"": STATS, **stats}.items()]
