"""Digests tell other bits apart, and rows of them say where runs part."""

import json
from collections import namedtuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlpyt.utils.digests import (
    FILE,
    DigestRow,
    as_bytes,
    digest,
    digest_bytes,
    digests,
    in_common,
    line_of,
    n_compared,
    parting,
    read_rows,
    together,
)

LONG = 5000  # bytes, for which the kernel is used


@settings(max_examples=60, deadline=None)
@given(n=st.one_of(st.integers(1, 70), st.integers(LONG, LONG + 40)), where=st.integers(0, 10**6), seed=st.integers(0, 5))
def test_another_bit_gives_another_digest(n, where, seed):
    data = np.random.default_rng(seed).integers(0, 256, n, dtype=np.uint8)
    before = digest_bytes(data, 3)
    assert 0 <= before < 2**64 and digest_bytes(data.copy(), 3) == before
    data[where % n] ^= 1 << where % 8
    assert digest_bytes(data, 3) != before


@pytest.mark.parametrize("n", [40, LONG])
def test_what_came_before_counts_and_so_does_the_order(n):
    a, b = (np.random.default_rng(seed).integers(0, 256, n, dtype=np.uint8) for seed in (0, 1))
    assert digest_bytes(b, digest_bytes(a)) != digest_bytes(a, digest_bytes(b)) != digest_bytes(a)
    words = np.arange(LONG // 8, dtype=np.uint64)
    swapped = words.copy()
    swapped[[0, 4]] = swapped[[4, 0]]  # In the same lane of the kernel.
    assert digest(words) != digest(swapped)


def test_digests_of_many_arrays_are_all_different():
    rng = np.random.default_rng(0)
    found = {digest_bytes(rng.integers(0, 2, LONG, dtype=np.uint8)) for _ in range(2000)}
    assert len(found) == 2000 and len({number >> 32 for number in found}) > 1990, "in the upper half of their bits, too"


def test_dtype_and_shape_count_but_not_where_an_array_lies():
    x = torch.arange(2000, dtype=torch.float32).reshape(40, 50)
    same = [x.numpy(), x.clone(), x.t().contiguous().t(), torch.cat([x, x])[40:], x.numpy().astype(np.float32, order="F")]
    assert {digest(each) for each in same} == {digest(x)}
    shifted = np.empty(8001, np.uint8)[1:]  # At an odd address.
    shifted[:] = as_bytes(x)
    assert digest_bytes(shifted) == digest_bytes(as_bytes(x))
    others = [x.reshape(50, 40), x.double(), x.int(), x.view(torch.int32), x[:39]]
    assert len({digest(each) for each in [x, *others]}) == 6
    assert digest(torch.tensor(0.0)) != digest(torch.tensor(-0.0)) and digest(x.bfloat16()) != digest(x.half())
    assert digest(torch.zeros(0)) != digest(torch.zeros(0, 1))


def test_leaves_have_the_names_of_their_places():
    Pair = namedtuple("Pair", "left right")
    tree = dict(model={"0.weight": torch.ones(2)}, pair=Pair(np.zeros(1), None), groups=[dict(lr=1e-3, params=[0, 1, 2])], empty={})
    found = digests(tree)
    assert list(found) == ["model.0.weight", "pair.left", "groups.0.lr", "groups.0.params"]
    assert found["groups.0.params"] == digest([0, 1, 2]) != digest([0, 1, 3])
    assert together(found) == together(dict(found)) != together(dict(found, **{"pair.left": 0}))
    with pytest.raises(ValueError):
        float(together({}))  # Or a reader of progress.csv would take some of them for numbers.


# --- Rows -------------------------------------------------------------------------------------------------------------
def row(number, steps=None, on=None, **digests):
    kinds = dict(
        dict(Samples={"env.reward": "1"}, Parameters={"w": "2", "b": "3"}, Optimizer={"lr": "6"}, Random={"torch": "4"}), **digests
    )
    return DigestRow(number, number, 10 * number if steps is None else steps, 100, kinds, on or {})


def written(path, *rows):
    path.write_bytes(b"".join(map(line_of, rows)))
    return path


def test_rows_are_read_as_they_were_written(tmp_path):
    rows = [row(1, on=dict(torch="1")), row(2), row(3, on=dict(torch="2")), row(4)]
    found = read_rows(written(tmp_path / FILE, *rows))
    assert [each._replace(on={}) for each in found] == [each._replace(on={}) for each in rows]
    assert [each.on["torch"] for each in found] == ["1", "1", "2", "2"], "each as of the process that wrote it"


def test_a_line_that_was_not_written_completely_is_no_row(tmp_path):
    path = written(tmp_path / FILE, row(1), row(2))
    path.write_bytes(path.read_bytes()[:-5])
    assert [each.row for each in read_rows(path)] == [1]


@pytest.mark.parametrize("line", ["{", "[]", "{}", '{"row": -1}', json.dumps(dict(row(2)._asdict(), digests=dict(Samples=[])))])
def test_a_damaged_line_is_named(line, tmp_path):
    path = written(tmp_path / FILE, row(1))
    path.write_bytes(path.read_bytes() + line.encode() + b"\n")
    with pytest.raises(ValueError, match="digests.jsonl is damaged: line 2"):
        read_rows(path)


def test_without_a_file_the_error_says_how_to_get_one(tmp_path):
    with pytest.raises(FileNotFoundError, match="--digest"):
        read_rows(tmp_path / FILE)


def test_runs_part_in_the_first_row_with_a_difference():
    a = [row(1), row(2), row(3), row(4)]
    b = [row(1), row(2), row(3, Parameters={"w": "2", "b": "5"}), row(4, Samples={"env.reward": "7"})]
    assert parting(in_common(a, a)) is None
    found = parting(in_common(a, b))
    assert (found.a, found.b, found.n_same, found.first) == (a[2], b[2], 2, ("Parameters", "b"))
    assert found.names == dict(Samples=[], Parameters=["b"], Optimizer=[], Random=[]) and found.n["Parameters"] == 2


def test_rows_are_compared_after_equally_many_steps():
    a, b = [row(1, 10), row(2, 15), row(3, 20)], [row(1, 10), row(2, 20, Random={"torch": "5"})]
    assert [(x.row, y.row) for x, y in in_common(a, b)] == [(1, 1), (3, 2)]
    assert parting(in_common(a, b)).first == ("Random", "torch")


def test_samples_come_before_what_follows_from_them_and_a_missing_tensor_is_a_difference():
    a, b = row(1), row(1, Samples={"env.reward": "8"}, Parameters={"w": "2"}, Random={"torch": "9"})
    found = parting([(a, b)])
    assert found.first == ("Samples", "env.reward") and found.names["Parameters"] == ["b"]


def test_a_kind_without_any_tensor_is_compared_before_the_first_step_only():
    first, later = row(1, steps=0, Samples={}), row(2, Samples={})
    assert n_compared([(first, first), (later, later)]) == dict(Samples=1, Parameters=2, Optimizer=2, Random=2)
    assert n_compared([(later, row(2))])["Samples"] == 0, "nor if the other run has it"
    assert parting([(later, row(2))]) is None
    assert "Samples" not in parting([(later, row(2, Samples={}, Random={"torch": "8"}))]).names


def test_what_one_run_does_not_know_is_not_compared():
    a = row(1)
    b = a._replace(digests={kind: found for kind, found in a.digests.items() if kind != "Samples"})
    assert parting([(a, b)]) is None
    assert n_compared([(a, b), (a, a)]) == n_compared([(b, a), (a, a)]) == dict(Samples=1, Parameters=2, Optimizer=2, Random=2)
    assert n_compared([(b, b)])["Samples"] == 0
