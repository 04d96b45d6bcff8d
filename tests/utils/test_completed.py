"""Objects of others, with the attributes that their interface calls optional."""

from types import SimpleNamespace

import pytest

from rlpyt.utils.completed import Completed


class CompletedTool(Completed):
    size: int = 3
    _mark: str | None = None

    def cut(self, what):
        """Return `what` in two parts of the tool's size."""
        return what[: self.size], what[self.size :]


class Saw:
    size = 1

    def cut(self, what):
        return list(what)


@pytest.mark.parametrize("tool", [None, SimpleNamespace(colour="red")])
def test_what_an_object_lacks_has_the_declared_default(tool):
    completed = CompletedTool(tool)
    assert completed.size == 3 and completed._mark is None and completed.cut("wood!") == ("woo", "d!")
    assert completed.of is tool


def test_what_an_object_has_comes_first_and_is_read_anew_each_time():
    saw = Saw()
    completed = CompletedTool(saw)
    assert completed.size == 1 and completed.cut("ab") == ["a", "b"]
    saw.size = 2
    assert completed.size == 2


def test_a_default_method_reads_the_attributes_of_the_object():
    assert CompletedTool(SimpleNamespace(size=1)).cut("ab") == ("a", "b")


def test_wrappers_that_forward_attributes_are_asked_too():
    class Wrapper:
        def __getattr__(self, name):
            return getattr(Saw(), name)

    assert CompletedTool(Wrapper()).cut("ab") == ["a", "b"]


def test_an_attribute_that_is_not_declared_is_an_error_even_if_the_object_has_it():
    with pytest.raises(AttributeError):
        CompletedTool(SimpleNamespace(colour="red")).colour  # noqa: B018
