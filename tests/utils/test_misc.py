import dataclasses
import os
import re
import sys
from functools import partial

import numpy as np
import pytest
import torch

from rlpyt.utils.misc import (
    atomic_link,
    atomic_write,
    attributes,
    did_you_mean,
    empty,
    extract_sequences,
    iterate_mb_idxs,
    remove_stale_temporaries,
    split_evenly,
    takes_keyword,
    torch_threads,
    zeros,
)


class TakesRng:
    def __call__(self, n, rng):
        return n

    def method(self, n, *, rng=None):
        return n


def local_rng(n):
    rng = np.random.default_rng(n)
    return rng


@pytest.mark.parametrize("function", [TakesRng(), TakesRng().method, partial(TakesRng().method, 1), lambda n, rng=3: n])
def test_a_parameter_is_found_in_callables_of_any_kind(function):
    assert takes_keyword(function, "rng")


@pytest.mark.parametrize("function", [local_rng, partial(local_rng), lambda **kwargs: 1, lambda rng, /: rng, print, max])
def test_local_variables_and_what_cannot_be_given_by_that_name_are_no_parameter(function):
    assert not takes_keyword(function, "rng")


def test_minibatches_come_in_order_and_drop_the_remainder():
    assert list(iterate_mb_idxs(7, 3)) == [slice(0, 3), slice(3, 6)]  # As in the original: minibatches are views.


def test_shuffled_minibatches_are_a_permutation_that_the_global_seed_decides():
    np.random.seed(3)
    first = [idxs.tolist() for idxs in iterate_mb_idxs(100, 10, shuffle=True)]
    np.random.seed(3)
    assert first == [idxs.tolist() for idxs in iterate_mb_idxs(100, 10, shuffle=True)]
    assert sorted(sum(first, [])) == list(range(100)) != sum(first, [])


def test_every_index_has_its_turn_although_the_remainder_is_dropped():
    seen = {idx for _ in range(50) for idxs in iterate_mb_idxs(7, 3, shuffle=True) for idx in idxs.tolist()}
    assert seen == set(range(7))


def test_what_is_split_evenly_differs_by_one_at_most():
    assert split_evenly(7, 3) == [range(0, 3), range(3, 5), range(5, 7)]
    assert split_evenly(1, 3) == [range(0, 1), range(1, 1), range(1, 1)]


@pytest.mark.parametrize("minibatch_size", [0, 8])
def test_a_minibatch_size_that_gives_no_minibatch_is_refused_at_the_call(minibatch_size):
    with pytest.raises(ValueError, match=f"minibatch_size={minibatch_size} "):
        iterate_mb_idxs(7, minibatch_size)


@pytest.mark.parametrize("make", [zeros, empty])
def test_the_dtype_decides_between_torch_and_numpy(make):
    for dtype in (np.float32, np.float64, "int32", np.dtype("uint8"), np.dtype("bool"), np.dtype(float)):
        made = make((2, 3), dtype)
        assert isinstance(made, np.ndarray) and made.dtype == dtype and made.shape == (2, 3)
    made = make((2, 3), torch.int16)
    assert isinstance(made, torch.Tensor) and made.dtype == torch.int16 and made.shape == (2, 3)
    for python, dtype in {float: torch.float64, int: torch.int64, bool: torch.bool}.items():  # As in the original.
        assert make((2, 3), python).dtype == dtype
    assert isinstance(make(2, None), torch.Tensor)


@pytest.mark.parametrize("as_type", [np.asarray, torch.from_numpy])
def test_sequences_wrap_at_both_ends(as_type):
    T_all, B_all, T = 7, 3, 4
    data = np.arange(T_all * B_all * 2).reshape(T_all, B_all, 2)
    T_idxs, B_idxs = [0, 5, 6, -2, -1, 3], [0, 1, 2, 2, 0, 1]
    expected = np.zeros((T, len(T_idxs), 2), data.dtype)
    for i, (t0, b) in enumerate(zip(T_idxs, B_idxs, strict=True)):
        for t in range(T):
            expected[t, i] = data[(t0 + t) % T_all, b]
    for make_idxs in (list, np.array, torch.tensor):
        sequences = extract_sequences(as_type(data), make_idxs(T_idxs), make_idxs(B_idxs), T)
        assert isinstance(sequences, type(as_type(data)))
        np.testing.assert_array_equal(np.asarray(sequences), expected)


def test_extracted_sequences_are_a_copy():
    data = np.zeros((5, 2))
    extract_sequences(data, [0], [0], 3)[:] = 1
    assert not data.any()


def test_atomic_write_replaces_a_file_when_the_block_is_done(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    with atomic_write(path, "w") as file:
        file.write("new")
        file.flush()
        assert path.read_text() == "old"
    assert path.read_text() == "new" and os.listdir(tmp_path) == ["file"]


def test_atomic_link_makes_a_second_name_in_place_of_another_file(tmp_path):
    for name, text in (("new", "b"), ("old", "a")):
        (tmp_path / name).write_text(text)
    for _ in range(2):  # The second time, it is one already.
        atomic_link(tmp_path / "new", tmp_path / "old")
        assert (tmp_path / "old").samefile(tmp_path / "new") and (tmp_path / "old").read_text() == "b"
        assert sorted(os.listdir(tmp_path)) == ["new", "old"]
    with pytest.raises(FileNotFoundError):
        atomic_link(tmp_path / "none", tmp_path / "old")
    assert (tmp_path / "old").read_text() == "b"


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_atomic_write_keeps_the_old_file_if_the_block_raises(tmp_path, error):
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(error):
        with atomic_write(path, "w") as file:
            file.write("half of the n")
            raise error
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["file"]


def test_an_error_of_atomic_write_names_the_file_that_was_to_be_written(tmp_path):
    path = tmp_path / "nowhere" / "file"
    with pytest.raises(FileNotFoundError, match=re.escape(f"directory: '{path}'")) as raised, atomic_write(path):
        pass
    assert raised.value.filename == str(path)


def test_only_temporaries_of_atomic_write_are_swept(tmp_path):
    writer = atomic_write(tmp_path / "file")
    writer.__enter__()
    (tmp_path / "replay").mkdir()
    in_replay = atomic_write(tmp_path / "replay" / "part")
    in_replay.__enter__()
    (tmp_path / ".hidden").touch()
    assert len(os.listdir(tmp_path)) == 3 and len(os.listdir(tmp_path / "replay")) == 1
    remove_stale_temporaries(tmp_path)
    assert sorted(os.listdir(tmp_path)) == [".hidden", "replay"] and not os.listdir(tmp_path / "replay")


def test_torch_threads_are_those_of_before_also_after_an_error():
    before = torch.get_num_threads()
    with pytest.raises(RuntimeError), torch_threads(before + 1):
        assert torch.get_num_threads() == before + 1
        raise RuntimeError
    assert torch.get_num_threads() == before


@pytest.mark.parametrize(
    "name, names, sentence",
    [
        ("smapler", ["sampler", "algo"], "Did you mean 'sampler'?"),
        ("cup", ["cpr", "cpu"], "Did you mean 'cpu' or 'cpr'?"),  # letters interchanged first
        (1, [10, "x", 10], "Did you mean '10'?"),
        ("zzz", ["sampler", "algo"], "There are: sampler, algo."),
        ("zzz", {}, "There are: none."),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest(name, names, sentence):
    assert did_you_mean(name, names) == sentence
    near = sentence.startswith("Did")
    assert did_you_mean(name, names, otherwise="Look it up.") == (sentence if near else "Look it up.")


# ---------------------------------------------------------------------------------------------------------------------
# attributes
# ---------------------------------------------------------------------------------------------------------------------
class WithAttributes:
    def __init__(self):
        self.first, self.second = 1, [2]


@pytest.mark.skipif(not (3, 11) <= sys.version_info < (3, 13), reason="dictionaries of objects are slow in Python 3.11 and 3.12 only")
def test_looking_at_attributes_leaves_a_dictionary_that_shares_no_keys():
    looked_at, other = WithAttributes(), WithAttributes()
    shares, shares_nothing = vars(other), dict(vars(other))
    assert sys.getsizeof(shares) != sys.getsizeof(shares_nothing)
    assert sys.getsizeof(attributes(looked_at)) == sys.getsizeof(shares_nothing)


def test_attributes_are_those_of_the_object():
    thing = WithAttributes()
    found = attributes(thing)
    assert list(found) == ["first", "second"] and found["second"] is thing.second and found is vars(thing)
    found["first"] = 5
    assert thing.first == 5
    thing.second = 6
    assert attributes(thing)["second"] == 6 and found["first"] == 5


def test_a_dictionary_that_somebody_else_holds_stays_the_same():
    shared, one, other = dict(x=1), WithAttributes(), WithAttributes()
    one.__dict__ = other.__dict__ = shared
    assert attributes(one) is shared and vars(one) is shared
    one.x = 2
    assert other.x == 2
    names = iter(vars(thing := WithAttributes()))  # Whoever goes through them goes on to do so.
    attributes(thing)["first"] = 7
    assert list(names) == ["first", "second"] and thing.first == 7


@pytest.mark.parametrize("thing", [5, "text", None, (1, 2), object()])
def test_what_has_no_attributes_of_its_own(thing):
    assert attributes(thing) == {}


def test_attributes_of_a_frozen_one():
    @dataclasses.dataclass(frozen=True)
    class Frozen:
        x: int

    assert attributes(Frozen(3)) == dict(x=3)
    assert attributes(torch.nn.Linear(1, 1))["in_features"] == 1
