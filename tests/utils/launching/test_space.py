"""Search spaces: what is drawn from them, as text and back."""

import json

import numpy as np
import pytest

from rlpyt.utils.launching.space import Space, choice, integer, log_uniform, looks_like_range, read_range, uniform

RANGES = [uniform(0.9, 0.999), log_uniform(1e-5, 1e-2), integer(3, 7), choice(32, 64, "many", None, [1, 2])]


@pytest.mark.parametrize("range_", RANGES, ids=str)
def test_values_lie_in_the_range_and_are_found_again(range_):
    for position in np.linspace(0, 1, 101):
        value = range_.at(position)
        assert json.loads(json.dumps(value)) == value and -1e-12 <= range_.position(value) <= 1 + 1e-12
    assert range_.at(0) == range_.corners()[0] and range_.at(1) == range_.corners()[-1]
    assert read_range(str(range_)) == range_


def test_logarithms_are_uniform_and_integers_equally_likely():
    positions = (np.arange(10_000) + 0.5) / 10_000
    values = [log_uniform(1e-4, 1e-2).at(position) for position in positions]
    assert np.mean(np.array(values) < 1e-3) == pytest.approx(0.5, abs=0.01)
    _, counts = np.unique([integer(3, 7).at(position) for position in positions], return_counts=True)
    assert list(counts) == [2000] * 5


def test_values_have_few_digits_but_stay_inside():
    assert log_uniform(1.2344e-5, 1e-2).at(0) == 1.2344e-5 and uniform(0, 0.99996).at(1) == 0.99996  # Rounded, they would lie outside.
    assert len(f"{log_uniform(1e-5, 1e-2).at(0.12345)!r}") <= len("1.234e-05")


@pytest.mark.parametrize(
    "range_", [uniform(0.9999, 0.99999), log_uniform(0.9999, 0.99999), uniform(-1000.1, -1000), uniform(0, 1e-6)], ids=str
)
def test_a_narrow_range_has_many_values(range_):
    values = {range_.at(position) for position in np.linspace(0, 1, 1001)}
    assert len(values) > 90 and range_.low <= min(values) and max(values) <= range_.high
    assert uniform(0.9, 0.999).at(0.5) == 0.9495  # As many digits as in others.


@pytest.mark.parametrize(
    "text, range_",
    [
        ("log_uniform(1e-4,1e-2)", log_uniform(1e-4, 1e-2)),
        (" integer( 1 , 20 ) ", integer(1, 20)),
        ("choice(relu, tanh)", choice("relu", "tanh")),
        ("choice(true, none, 'a b')", choice(True, None, "a b")),
        ("uniform(-1, 1)", uniform(-1, 1)),
    ],
)
def test_ranges_are_read_from_text(text, range_):
    assert looks_like_range(text) and read_range(text) == range_


@pytest.mark.parametrize("text", ["1e-3", "relu", "(1, 2)", "[32, 64]", "dict"])
def test_other_values_are_no_ranges(text):
    assert not looks_like_range(text)


@pytest.mark.parametrize(
    "text, message",
    [
        ("log_unifrom(1e-4,1e-2)", "There is no range 'log_unifrom'. Did you mean 'log_uniform' or 'uniform'?"),
        ("uniform(1)", "uniform takes two numbers"),
        ("uniform(2, 1)", "uniform() is empty: low=2 must be smaller than high=1"),
        ("log_uniform(0, 1)", "log_uniform(): low=0 is not possible; it must be a finite number above 0"),
        ("integer(1, 2.5)", "high=2.5 is not possible; it must be a whole number"),
        ("choice(32)", "give at least two"),
        ("choice(32, 32)", "has a value twice"),
        ("uniform(low, 1)", "low='low'"),
        ("uniform(1,, 2)", "cannot be read"),
        ("uniform(low=1, high=2)", "cannot be read"),
        ("choice(f(1), 2)", "f(1) is neither a number nor a word"),
        ("choice({[1]: 2}, 3)", "{[1]: 2} is neither a number nor a word"),
        ("choice(1e999, 3)", "choice() takes finite numbers, not Infinity"),
    ],
)
def test_wrong_ranges_say_what_to_write(text, message):
    with pytest.raises(ValueError) as error:
        read_range(text)
    assert message in str(error.value)


@pytest.mark.parametrize("value", [float("inf"), [1, -float("inf")], dict(a=np.float32("nan").item())])
def test_a_choice_of_a_number_that_is_not_finite_is_refused(value):
    """JSON has no such number, and as text it would be a word."""
    with pytest.raises(ValueError, match="takes finite numbers, not .*: choose a large number instead"):
        choice(0.5, value)


def test_a_space_is_a_variant_with_ranges():
    space = Space(
        dict(algo=dict(learning_rate=log_uniform(1e-4, 1e-2), optim_kwargs=dict(eps=choice(1e-8, 1e-5))), sampler=dict(batch_T=8))
    )
    assert space.names == ["algo.learning_rate", "algo.optim_kwargs.eps"]
    variant = space.variant(space.values([1e-3, 1e-5]))
    assert variant == dict(algo=dict(learning_rate=1e-3, optim_kwargs=dict(eps=1e-5)), sampler=dict(batch_T=8))
    saved = Space.read(json.loads(json.dumps(space.as_saved())))
    assert saved.ranges == space.ranges and saved.constants == space.constants == dict(sampler=dict(batch_T=8))
    corners = list(space.corners())
    assert [path[-1] for path, _ in corners] == ["learning_rate"] * 3 + ["eps"] * 2
    lowest, highest = corners[-1][1]
    assert [list(each.values()) for each in (lowest, highest)] == [[1e-4, 1e-5], [1e-2, 1e-5]]
    assert space.constants == dict(sampler=dict(batch_T=8))


def test_empty_dictionaries_stay_in_a_space():
    """Scripts may read them. Only those are left out that had nothing but ranges, and they come with their values."""
    space = Space(dict(algo=dict(optim=dict(eps=uniform(0, 1)), more={}), sampler={}, x=dict(y={})))
    assert space.constants == dict(algo=dict(more={}), sampler={}, x=dict(y={}))
    assert space.variant(space.values([0.5])) == dict(algo=dict(optim=dict(eps=0.5), more={}), sampler={}, x=dict(y={}))
    assert Space(dict(algo=dict(eps=uniform(0, 1)))).constants == {}


@pytest.mark.parametrize("nested", [{1: uniform(0, 1)}, dict(algo={("a", "b"): choice(1, 2)}), {None: dict(n=integer(1, 2))}])
def test_a_key_that_is_no_text_is_refused_in_a_sentence(nested):
    with pytest.raises(TypeError, match="The key .* in the search space must be a text"):
        Space(nested)


def test_a_space_knows_when_all_settings_have_been_tried():
    space = Space(dict(n=integer(3, 5), kind=choice("a", [1], True, 1)))
    everything = list(space.some(20))
    assert sorted(map(str, everything)) == sorted(str([n, kind]) for n in (3, 4, 5) for kind in ("a", [1], True, 1))
    assert space.is_used_up(everything) and not space.is_used_up(everything[1:] * 2)
    space = Space(dict(x=uniform(0, 1), n=integer(0, 10**9)))
    assert not space.is_used_up([[0.0, 0]]) and len({str(values) for values, _ in zip(space.some(30), range(31))}) == 31


def test_a_space_without_a_range_is_refused():
    with pytest.raises(ValueError, match="The search space has no range"):
        Space(dict(algo=dict(learning_rate=1e-3)))
