"""Markers, and which values of a parameter belong to the quick tests: importable as ``tiers`` in test modules."""

import pytest

full = pytest.mark.full
processes = pytest.mark.processes
learning = pytest.mark.learning
examples = pytest.mark.examples
ray = pytest.mark.ray
gpu = pytest.mark.gpu


def thinned(values, quick):
    """Return the values of a parameter, all but `quick` marked `full`.

    Two thinned parameters make a thinned product: a case is quick if both of its values are.

    Args:
        values: all values; tuples where there are several parameters.
        quick: the values whose cases are quick.
    """
    values, quick = list(values), list(quick)
    unknown = [value for value in quick if value not in values]
    assert not unknown, f"{unknown} are not among the values {values}"
    return [value if value in quick else pytest.param(*(value if isinstance(value, tuple) else [value]), marks=full) for value in values]


def start_methods(*names):
    """Return ways to start processes as the values of a parameter: only "fork" is quick, others import everything again."""
    return [pytest.param(name, marks=[processes] + [full] * (name != "fork")) for name in names]
