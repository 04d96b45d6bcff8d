"""Reading values as they are written on a command line."""

import pytest

from rlpyt.experiments.build import read_value


@pytest.mark.parametrize("text, value", [("1e-3", 1e-3), ("TRUE", True), ("none", None), ("(1, 2)", (1, 2)), ("a-b", "a-b"), ("", "")])
def test_values_are_read_as_python_writes_them_and_else_as_text(text, value):
    assert read_value(text) == value
