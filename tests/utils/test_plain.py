"""Plain data: what comes back is what was written, and reading them runs nothing and believes nothing."""

import json
import random
from collections import OrderedDict, deque

import numpy as np
import pytest
import torch
from damage import DEEP, IN_ITSELF, comparable, damaged, watched
from tiers import thinned

from rlpyt.utils.plain import DEEPEST, NATURAL, NotPlain, check_form, from_plain, set_generator_state, to_plain
from rlpyt.utils.seed import rng_states, set_rng_states

BIT_GENERATORS = ["PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64"]


def everything():
    generators = {name: np.random.Generator(getattr(np.random, name)(4)) for name in BIT_GENERATORS}
    for generator in generators.values():
        generator.integers(10, dtype=np.uint32)  # Half of a word is kept.
    arrays = dict(
        floats=np.arange(6, dtype=">f4").reshape(2, 3), none=np.zeros((0, 2)), flags=np.array([True, False]), bytes=np.array([b"ab", b"c"]),
        text=np.array(["ab", "ç"]), one=np.array(3), scalar=np.float32(0.5), flag=np.bool_(True),
    )  # fmt: skip
    containers = dict(
        list=[1, [2.5, None]], tuple=((), (True,)), set={1, "x"},
        deque=deque([1, 2], 3), endless=deque("a"), ordered=OrderedDict(b=1, a=b"x", c=b""),
    )  # fmt: skip
    return dict(generators=generators, arrays=arrays, containers=containers, random=random.Random(3), legacy=np.random.RandomState(5))


def test_what_comes_back_is_what_was_written():
    value = everything()
    back = from_plain(to_plain(value))
    assert comparable(to_plain(back)) == comparable(to_plain(value))
    for name in BIT_GENERATORS:
        ours, theirs = value["generators"][name], back["generators"][name]
        assert ours.integers(2**32, size=9, dtype=np.uint32).tolist() == theirs.integers(2**32, size=9, dtype=np.uint32).tolist()
    assert (value["random"].random(), value["legacy"].rand()) == (back["random"].random(), back["legacy"].rand())
    assert type(back["containers"]["ordered"]) is OrderedDict and back["containers"]["deque"].maxlen == 3


def test_torch_reads_plain_data_from_a_file_without_running_code(tmp_path):
    """Memory without a byte is the case to think of: `torch.load` refuses b""."""
    torch.save(to_plain(everything()), tmp_path / "plain")
    assert comparable(torch.load(tmp_path / "plain", weights_only=True)) == comparable(to_plain(everything()))


MALFORMED = {
    "bytes where there are none": (("bytes", "a"), "not the text that stands for no bytes"),
    "no kind": (("nokind", [1]), "state is 'nokind'"),
    "an item of a dictionary that is no pair": (("dict", [1]), r"state\[0\] is 1"),
    "three in a pair": (("dict", [(1, 2, 3)]), "Item 0 of state"),
    "a key twice": (("dict", [("a", 1), ("a", 2)]), "state has the key 'a' twice"),
    "a key that cannot be one": (("dict", [(("list", []), 1)]), "state is no dict"),
    "a list that was not written as one": ([1], "state is a list"),
    "one inside": (("dict", [("a", ("list", [[1]]))]), r"state\['a'\]\[0\] is a list"),
    "a kind that is no text": (((), 1), "state is a tuple"),
    "nothing": ((), "state is None"),
    "too many parts": (("list", [], 3), "state is 'list' with 2 parts"),
    "objects": (("array", ["O", [1], b"\0" * 8]), "state has dtype 'O'"),
    "several columns": (("array", ["f4,O", [1], b"\0" * 12]), "state has dtype"),
    "a dtype that there is not": (("array", ["<f3", [1], b"123"]), "state is no array"),
    "a shape larger than the memory": (("array", ["<f4", [2**40], b""]), "0 bytes, which do not make up shape"),
    "a negative size": (("array", ["<f4", [-1], b""]), "the shape of state"),
    "a size that is no number": (("array", ["<f4", [True], b"1234"]), "the shape of state"),
    "very many dimensions": (("array", ["<f4", [1] * 33, b"1234"]), "do not make up shape"),
    "a flag that is neither": (("array", ["|b1", [1], b"\7"]), "neither True nor False"),
    "characters that do not exist": (("array", ["<U1", [1], b"\xff" * 4]), "characters that do not exist"),
    "a scalar of several": (("scalar", ["<f4", [2], b"12341234"]), r"shape \(2,\)"),
    "a deque longer than it may be": (("deque", [1, 2], 1), "state has 2 items"),
    "something twice in a set": (("set", [1, 1]), "twice"),
    "a function of numpy.random": (("generator", '{"bit_generator": "test"}'), "bit generator 'test'"),
    "another one": (("generator", '{"bit_generator": "RandomState"}'), "bit generator 'RandomState'"),
    "no JSON": (("generator", "{"), "not readable as JSON"),
    "JSON without end": (("random", "[" * 100_000), "not readable as JSON"),
    "a number of too many digits": (("random", "1" * 10_000), "not readable as JSON"),
    "a state that is no dictionary": (("generator", '{"bit_generator": "PCG64", "state": 5, "has_uint32": 0, "uinteger": 0}'), "'state'"),
    "Python's numbers": (("random", "[3, [1, 2], null]"), "not the state of Python's random numbers"),
    "deeper than anything": (DEEP, f"{DEEPEST} containers deep"),
    "in itself": (("list", IN_ITSELF), r"state\[0\] is a list"),
}


@pytest.mark.parametrize("plain, message", MALFORMED.values(), ids=MALFORMED.keys())
def test_what_is_malformed_is_an_error_that_says_where(plain, message):
    with pytest.raises(ValueError, match=message):
        from_plain(plain, "state")


@pytest.mark.parametrize(
    "name, key, wrong", [("MT19937", "pos", 625), ("MT19937", "pos", -1), ("Philox", "buffer_pos", 5), ("SFC64", "has_uint32", 2)]
)
def test_what_would_be_an_index_into_memory_is_checked(name, key, wrong):
    text = to_plain(np.random.Generator(getattr(np.random, name)(0)))[1]
    state = json.loads(text)
    (state["state"] if key in state["state"] else state)[key] = wrong
    with pytest.raises(ValueError, match=rf"rng.*\['{key}'\] is {wrong}"):
        set_generator_state(np.random.Generator(getattr(np.random, name)(1)), json.dumps(state))


def test_the_states_of_a_process_are_checked_likewise():
    states = rng_states()
    set_rng_states(states)
    kind, items = states["numpy"]
    with pytest.raises(ValueError, match=r"rng\['numpy'\]\['state'\]\['pos'\] is 5000"):
        set_rng_states(dict(states, numpy=(kind, [*items[:2], 5000, *items[3:]])))
    with pytest.raises(ValueError, match="torch"):
        set_rng_states(dict(states, torch=5))
    with pytest.raises(ValueError, match="has no 'python'"):
        set_rng_states({"numpy": states["numpy"]})


def test_what_is_too_deep_to_be_read_is_not_written():
    value = []
    for _ in range(DEEPEST - 1):
        value = [value]
    assert from_plain(to_plain(value)) == value
    with pytest.raises(NotPlain, match="containers deep"):
        to_plain([value])


def test_generators_of_ones_own_are_not_plain():
    class MyGenerator(np.random.PCG64):
        pass

    with pytest.raises(NotPlain, match="numpy.random"):
        to_plain(np.random.Generator(MyGenerator(1)))


@pytest.mark.parametrize("n", thinned([100, 600], quick=[100]))
def test_whatever_is_damaged_is_refused_or_comes_back_as_it_is(n, tmp_path, monkeypatch):
    """And nothing is imported, executed or written meanwhile, whatever the data name, and whatever lies in the current directory."""
    for name in ("conftest", "test", "evil"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    plain, choices = to_plain(everything()), random.Random(n)
    refused = 0
    from_plain(plain)
    with watched() as events:
        for _ in range(n):
            mutated = damaged(plain, choices)
            events.clear()
            try:
                back = from_plain(mutated, "state")
            except ValueError as error:
                refused += 1
                assert "state" in str(error) and len(str(error)) < 1000
            else:
                assert comparable(to_plain(back, keep=(torch.Tensor,))) == comparable(mutated)
            assert not events
    assert n / 2 < refused < n and not (tmp_path / "ran").exists()


def test_forms():
    form = dict(n=NATURAL, name=(str, type(None)), items=[dict(x=float)])
    check_form(dict(n=3, name=None, items=[dict(x=0.5)], more=1), form, "value")
    for wrong, message in [
        (dict(n=True), r"value\['n'\] is True"),
        (dict(n=-1), r"value\['n'\] is -1"),
        (dict(n=10**40), "an integer of 133 bits"),
        (dict(name=b"x" * 100), r"value\['name'\] is b'x+'\.\.\., and not str or NoneType"),
        (dict(items=[dict(x=0.5), dict(x=1)]), r"value\['items'\]\[1\]\['x'\] is 1, and not float"),
        (dict(items=[{}]), r"value\['items'\]\[0\] has no 'x'"),
    ]:
        with pytest.raises(ValueError, match=message):
            check_form({**dict(n=3, name=None, items=[]), **wrong}, form, "value")
