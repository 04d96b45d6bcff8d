import csv
import io
import os
import resource
import signal
import sys
import time

import pytest
from tiers import processes

from rlpyt.utils.logging.tabular import STATS, CsvTable, TerminalTablePrinter, format_tabular, format_value


def read(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def table(tmp_path):
    return CsvTable(tmp_path / "new" / "progress.csv")


def test_every_row_is_in_the_file_when_write_returns(table):
    for i in range(5):
        table.write({"a": i, "b": 0.1 * i})
        assert read(table.path) == [{"a": str(j), "b": str(0.1 * j)} for j in range(i + 1)]
    assert "\r" not in open(table.path, newline="").read()


def test_new_columns_join_the_header_and_missing_values_are_nan(table):
    table.write({"a": 1})
    table.write({"b": 2, "a": 3})
    table.write({"b": 4})
    table.write({"c": 'x, "y"', "a": None})
    assert open(table.path).readline() == "a,b,c\n"
    assert read(table.path) == [
        {"a": "1", "b": "nan", "c": "nan"},
        {"a": "3", "b": "2", "c": "nan"},
        {"a": "nan", "b": "4", "c": "nan"},
        {"a": "nan", "b": "nan", "c": 'x, "y"'},
    ]
    assert os.listdir(os.path.dirname(table.path)) == ["progress.csv"]


def test_a_table_refuses_a_file_which_exists(tmp_path):
    (tmp_path / "progress.csv").touch()
    with pytest.raises(FileExistsError, match="exists already"):
        CsvTable(tmp_path / "progress.csv")


def test_a_file_deleted_meanwhile_gets_its_header_again(table):
    table.write({"a": 1})
    os.remove(table.path)
    table.write({"a": 2})
    assert read(table.path) == [{"a": "2"}]


@processes
def test_a_growing_header_killed_at_any_moment_loses_no_row(tmp_path):
    """The child adds a column with every row, so that it is rewriting all the time, and tells after each one."""
    for attempt in range(20):
        path = tmp_path / f"{attempt}.csv"
        receiver, sender = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                table = CsvTable(path)
                for i in range(10**6):
                    table.write({"row": i, f"column_{i % 200}": i})
                    os.write(sender, b".")
            finally:
                os._exit(1)
        os.close(sender)
        told = len(os.read(receiver, 1))
        time.sleep(0.001 * attempt)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        while data := os.read(receiver, 4096):
            told += len(data)
        os.close(receiver)
        rows = read(path)
        assert [row["row"] for row in rows] == [str(i) for i in range(len(rows))]
        assert len(rows) in (told, told + 1) and all(row[f"column_{i % 200}"] == str(i) for i, row in enumerate(rows))


@pytest.fixture
def disk_limit():
    """Files may grow up to so many bytes: a write is cut short there, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda n_bytes: resource.setrlimit(resource.RLIMIT_FSIZE, (soft if n_bytes is None else n_bytes, hard))
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_rows_that_a_full_disk_refuses_are_kept_and_written_later(table, disk_limit):
    # so large that the limit concerns no other file of this process
    table.write({"a": 1, "b": 1, **{f"padding_{i}": "x" * 10**5 for i in range(10)}})
    size = os.path.getsize(table.path)
    disk_limit(size + 3)
    for row in ({"a": 22, "b": 2}, {"a": 3, "b": 3, "new": 3}):
        with pytest.raises(OSError):
            table.write(row)
        assert os.path.getsize(table.path) == size  # neither torn nor lost
    disk_limit(None)
    table.write({"a": 4})
    assert [row["a"] for row in read(table.path)] == ["1", "22", "3", "4"]
    assert [row["new"] for row in read(table.path)] == ["nan", "nan", "3", "nan"]
    table.write_pending()
    assert len(read(table.path)) == 4


@pytest.mark.parametrize(
    "value, text",
    [
        (12, "12"),
        (1234567, "1,234,567"),
        (0.0, "0"),
        (1.0, "1.0000"),
        (123.456, "123.46"),
        (-0.01234, "-0.01234"),
        (1234567.8, "1,234,567.8"),
        (1e12, "1.000e+12"),
        (1.5e-7, "1.500e-07"),
        (float("nan"), "nan"),
        (float("-inf"), "-inf"),
        (True, "True"),
        ("text", "text"),
        (99999.99, "100,000.0"),
    ],
)
def test_numbers_are_shown_with_about_five_digits(value, text):
    assert format_value(value) == text


def stats(*names):
    return {name: float(i) for i, name in enumerate(names)}


def test_a_row_is_shown_in_groups():
    row = {"Diagnostics/Iteration": 3, "Diagnostics/CumSteps": 1000, "Diagnostics/CumTime (s)": 1.5}
    row |= stats(*(f"Return{stat}" for stat in STATS)) | stats(*(f"loss/{stat}" for stat in STATS))
    row |= stats(*(f"{stat}/front" for stat in STATS)) | stats(*(f"Eval/{stat}Length" for stat in STATS)) | {"plain": "text"}
    assert format_tabular(row)[1:-1] == [
        "Diagnostics",
        "  Iteration      3    CumTime (s)  1.5000",
        "  CumSteps   1,000",
        "  plain  text",
        "                 Average        Std     Median        Min        Max",
        "  Return               0     1.0000     2.0000     3.0000     4.0000",
        "  loss                 0     1.0000     2.0000     3.0000     4.0000",
        "  front                0     1.0000     2.0000     3.0000     4.0000",
        "  Eval/Length          0     1.0000     2.0000     3.0000     4.0000",
    ]


def test_an_average_without_its_companions_is_a_plain_value():
    assert format_tabular({"ReturnAverage": 1, "ReturnStd": 2})[1:-1] == ["  ReturnAverage  1    ReturnStd  2"]


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_the_table_printer_prints_a_line_per_row_where_there_is_no_terminal(capsys):
    printer = TerminalTablePrinter()
    printer.print_tabular({"a": 1, "long_header": 2})
    printer.print_tabular([("a", 3), ("long_header", 4.5)])
    assert capsys.readouterr().out.split("\n")[:-1] == ["        a  long_header", "        1            2", "        3       4.5000"]


def test_the_table_printer_redraws_a_terminal_with_what_fits(monkeypatch):
    monkeypatch.setattr(sys, "stdout", Terminal())
    monkeypatch.setenv("COLUMNS", "30")
    monkeypatch.setenv("LINES", "8")
    printer = TerminalTablePrinter()
    for i in range(20):
        printer.print_tabular({"a": i, "b": i, "too_wide_to_be_shown": i})
    screen = sys.stdout.getvalue().split("\x1b[2J\x1b[H")[-1].split("\n")[:-1]
    assert screen == ["        a          b"] + [f"{i:9d}  {i:9d}" for i in range(15, 20)]
