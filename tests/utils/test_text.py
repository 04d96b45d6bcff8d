"""Text for people."""

import io

import pytest

from rlpyt.experiments.build import read_value
from rlpyt.utils.text import LINES, encodable, printable, sentence, setting_text, shortened, show, table, traceback_of

ROWS = [("run", "steps", "log"), ("a", "1,000", "data"), ("longest", "2", "")]


def test_a_table():
    assert table(ROWS, right=[1]) == "run      steps  log\na        1,000  data\nlongest      2"


def test_a_line_below_the_header():
    lines = table(ROWS, right=[1], rule=True).splitlines()
    assert lines[1] == "-------  -----  ----" and len(lines) == 4


def test_a_header_alone():
    assert table(ROWS[:1], right=[]) == "run  steps  log"


def test_what_is_not_printable_is_escaped():
    assert printable("plain, ç, 漢") == "plain, ç, 漢" and printable(5) == "5"
    assert printable("\x1b[2J\x07\u202e\x9b\udcff\n\t") == r"\x1b[2J\x07\u202e\x9b\udcff\n\t"
    assert printable("a\n\tb\r", keep=LINES) == "a\n\tb" + r"\r"
    assert encodable("→\udcff") == "→" + r"\udcff" and encodable("→", "ascii") == r"\u2192"


def test_a_setting_is_written_as_the_command_line_reads_it():
    words = ["HalfCheetah-v5", "a", "true", "None", "1e5", "4", "a b", "", "x'", "nan", "ale_py.env"]
    values = [*words, 1, 0.5, None, True, [1, "a"], dict(a=1)]
    assert [read_value(setting_text(value)) for value in values] == values
    assert setting_text("HalfCheetah-v5") == "HalfCheetah-v5" and setting_text("true") == "'true'"


def test_tables_escape_what_is_in_them():
    lines = table([("run", "steps"), ("a\n\x1b[2Jb", "1")], right=[1]).splitlines()
    assert lines == ["run          steps", r"a\n\x1b[2Jb      1"]


def test_lines_are_shown_whatever_the_stream_can_encode():
    stream = io.TextIOWrapper(io.BytesIO(), "ascii")
    show("a →\n\x1b[2J\udcff", stream)
    stream.flush()
    assert stream.buffer.getvalue() == rb"a \u2192" + b"\n" + rb"\x1b[2J\udcff" + b"\n"


def test_of_long_texts_both_ends_are_kept():
    assert shortened("abc", 4) == "abc"
    assert shortened("a" * 50 + "b" * 50, 10) == "aaaaa\n... 90 characters left out ...\nbbbbb"


def test_a_traceback_has_the_notes_of_the_exception_in_every_python():
    try:
        raise ValueError("too large")
    except ValueError as error:
        error.__notes__ = ["In environment 3."]
        text = traceback_of(error)
    assert text.endswith("ValueError: too large\nIn environment 3.\n") and text.count("In environment 3.") == 1


@pytest.mark.parametrize("text, said", [("failed", "failed."), ("It failed.", "It failed."), ("Why?", "Why?"), (ValueError("no"), "no.")])
def test_a_sentence_has_one_full_stop(text, said):
    assert sentence(text) == said
