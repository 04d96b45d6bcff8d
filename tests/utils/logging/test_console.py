import builtins
import io
import sys

import pytest

from rlpyt.utils.logging import console


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_colorize_wraps_in_terminal_codes():
    assert console.colorize("text", "red") == "\x1b[31mtext\x1b[0m"
    assert console.colorize("text", "green", bold=True, highlight=True) == "\x1b[42;1mtext\x1b[0m"
    with pytest.raises(ValueError, match="color='pink'.*magenta"):
        console.colorize("text", "pink")


def test_mkdir_p_makes_parents_and_accepts_an_existing_directory(tmp_path):
    for _ in range(2):
        console.mkdir_p(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()


def test_a_line_clears_a_progress_bar_on_a_terminal_only(monkeypatch):
    for stream, expected in ((Terminal(), "\r\x1b[Kline\n"), (io.StringIO(), "line\n")):
        monkeypatch.setattr(sys, "stdout", stream)
        console.log("line")
        assert stream.getvalue() == expected


def test_messages_nest_and_tell_time_and_failure(capsys):
    with pytest.raises(KeyError):
        with console.Message("outer"):
            with console.Message("inner"):
                pass
            raise KeyError
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["outer ...", "  inner ..."]
    assert lines[2].startswith("  inner: done after ") and lines[3].startswith("outer: failed (KeyError) after ")


def test_simple_message_speaks_through_the_given_function():
    said = []
    with console.SimpleMessage("work", said.append):
        assert said == ["work ..."]
    assert len(said) == 2


def test_prefix_log_and_tee_log(tmp_path, capsys):
    file = tmp_path / "log"
    log = console.prefix_log("> ", console.tee_log(file))
    log("one")
    log("two")
    assert file.read_text() == "> one\n> two\n" == capsys.readouterr().out


@pytest.mark.parametrize(
    "default, answers, expected",
    [
        ("yes", [""], True),
        ("no", [""], False),
        ("no", ["Y"], True),
        (None, ["", "maybe", "no"], False),
        ("yes", [EOFError], True),
    ],
)
def test_query_asks_until_the_answer_is_yes_or_no(monkeypatch, default, answers, expected):
    answers = iter(answers)

    def fake_input(prompt):
        answer = next(answers)
        if answer is EOFError:
            raise EOFError
        return answer

    monkeypatch.setattr(builtins, "input", fake_input)
    assert console.query_yes_no("Sure?", default) is expected
    assert next(answers, None) is None


def test_query_without_default_needs_an_answer(monkeypatch):
    def end_of_input(prompt):
        raise EOFError

    monkeypatch.setattr(builtins, "input", end_of_input)
    with pytest.raises(EOFError):
        console.query_yes_no("Sure?", None)
    with pytest.raises(ValueError, match="default='maybe'"):
        console.query_yes_no("Sure?", "maybe")
