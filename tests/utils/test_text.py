"""Text for people."""

from rlpyt.utils.text import table

ROWS = [("run", "steps", "log"), ("a", "1,000", "data"), ("longest", "2", "")]


def test_a_table():
    assert table(ROWS, right=[1]) == "run      steps  log\na        1,000  data\nlongest      2"


def test_a_line_below_the_header():
    lines = table(ROWS, right=[1], rule=True).splitlines()
    assert lines[1] == "-------  -----  ----" and len(lines) == 4


def test_a_header_alone():
    assert table(ROWS[:1], right=[]) == "run  steps  log"
