import gc
import multiprocessing
import os
import pickle
from collections import Counter, OrderedDict, UserDict, defaultdict, namedtuple
from copy import deepcopy

import numpy as np
import pytest
import torch
from tiers import full, processes, start_methods

from rlpyt.utils import buffer as buffer_module
from rlpyt.utils.buffer import (
    buffer_from_example,
    buffer_func,
    buffer_leaves,
    buffer_method,
    buffer_to,
    build_array,
    cloned,
    get_leading_dims,
    np_mp_array,
    np_mp_array_spawn,
    numpify_buffer,
    torchify_buffer,
)
from rlpyt.utils.collections import NamedArrayTuple, NamedTupleSchema, is_namedarraytuple

Inner = namedtuple("Inner", ["c", "d"])
Outer = namedtuple("Outer", ["a", "b", "nothing"])
EXAMPLE = Outer(np.float32(1), Inner(np.zeros((2, 3), np.uint8), 5), None)


@pytest.mark.parametrize("shared", [False, True])
def test_buffers_have_leading_dims_and_the_dtypes_of_the_example(shared):
    buf = buffer_from_example(EXAMPLE, (4, 5), share_memory=shared)
    assert is_namedarraytuple(buf) and buf.a.shape == (4, 5) and buf.a.dtype == np.float32
    assert buf.b.c.shape == (4, 5, 2, 3) and buf.b.c.dtype == np.uint8 and buf.b.d.dtype == np.int64 and buf.nothing is None
    assert all((leaf == 0).all() for leaf in buffer_leaves(buf))
    buf[1, 2] = EXAMPLE
    assert buf.a[1, 2] == 1 and buf.b.d.sum() == 5


def test_schema_examples_give_schema_buffers():
    example = NamedTupleSchema("S", "a b")(1.0, NamedTupleSchema("I", "c")(2))
    buf = buffer_from_example(example, 3)
    assert isinstance(buf, NamedArrayTuple) and isinstance(buf.b, NamedArrayTuple) and buf.b.c.shape == (3,)
    assert isinstance(buffer_from_example(EXAMPLE, 3, use_NatSchema=True), NamedArrayTuple)


def test_tensors_and_numbers_are_examples_too():
    assert build_array(torch.zeros(2, dtype=torch.int32), (3,)).dtype == np.int32
    assert build_array(True, 3).dtype == bool


@pytest.mark.parametrize("bad", ["text", object(), np.array(["a"])])
def test_what_is_not_a_number_is_refused_by_name(bad):
    with pytest.raises(TypeError, match="b.c"):
        buffer_from_example(Outer(1, Inner(bad, 1), None), (2,))


def test_memory_that_is_not_there_is_refused_before_it_is_allocated(monkeypatch):
    monkeypatch.setattr(buffer_module, "available_bytes", lambda: 100 * 1024**2)
    for shared in (False, True):
        with pytest.raises(MemoryError, match=r"0\.80 GB.*0\.10 GB"):
            build_array(np.float64(0), (100, 1_000_000), share_memory=shared)


def write(array, structure):
    array[0] = 7
    structure.b.c[1] = 9


@pytest.mark.parametrize("method", start_methods("fork", "spawn", "forkserver"))
def test_started_processes_write_into_the_same_memory_also_through_slices(method):
    array = np_mp_array((4, 3), np.float32)
    buf = buffer_from_example(EXAMPLE, (2, 6), share_memory=True)
    process = multiprocessing.get_context(method).Process(target=write, args=(array[1:, 1:], buf[:, 4:]))
    process.start()
    process.join(60)
    assert process.exitcode == 0
    expected = np.zeros((4, 3))
    expected[1, 1:] = 7
    np.testing.assert_array_equal(array, expected)
    assert (buf.b.c[1, 4:] == 9).all() and buf.b.c[1, :4].sum() == 0 and buf.b.c[0].sum() == 0


@full
@processes
def test_the_array_class_with_a_handle_of_its_own_shares_slices_under_spawn():
    array = np_mp_array_spawn((3, 2), "float64")
    array[:] = 1
    process = multiprocessing.get_context("spawn").Process(target=write_first, args=(array[1:],))
    process.start()
    process.join(60)
    assert array[1, 0] == 5 and array[0, 0] == 1 and array[1:]._shmem is array._shmem


def write_first(array):
    array[0] = 5


def test_ordinary_pickles_of_shared_arrays_are_copies():
    array = np_mp_array(3, int)
    copy = pickle.loads(pickle.dumps(array))
    copy[0] = 1
    assert array[0] == 0


def test_freed_memory_closes_its_descriptors():
    np_mp_array(3, int)
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(50):
        buffer_from_example(EXAMPLE, (10, 10), share_memory=True)
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before


def test_torchify_and_numpify_share_memory():
    buf = buffer_from_example(EXAMPLE, (2, 2))
    tensors = torchify_buffer(buf)
    tensors.b.c[:] = 3
    assert (buf.b.c == 3).all() and tensors.nothing is None and type(tensors) is type(buf)
    back = numpify_buffer(tensors)
    assert back.b.c.ctypes.data == buf.b.c.ctypes.data
    assert torchify_buffer(tensors).a is tensors.a and numpify_buffer(buf).a is buf.a
    assert numpify_buffer(torch.zeros(2, requires_grad=True)).shape == (2,)


def test_structures_of_results():
    buf = torchify_buffer(buffer_from_example(EXAMPLE, (2, 2)))
    assert buffer_func((buf.a, None, [1, 2]), len) == (2, None, 2)
    assert buffer_method(buf, "sum").a == 0
    assert buffer_to(buf, "cpu").a is buf.a
    with pytest.raises(TypeError, match="torchify"):
        buffer_to(np.zeros(2), "cpu")


def test_leading_dims_must_agree():
    buf = buffer_from_example(EXAMPLE, (4, 5))
    assert get_leading_dims(buf, 2) == (4, 5) and get_leading_dims(None) is None
    with pytest.raises(ValueError, match="differ"):
        get_leading_dims((np.zeros((2, 3)), np.zeros((2, 4))), 2)


@pytest.mark.parametrize("share_memory", [False, True])
def test_memory_begins_at_aligned_addresses(share_memory):
    """The last bits of torch's products can depend on it, and a run gets other memory each time."""
    for n in range(1, 30):
        assert build_array(np.float32(0), (n, 3), share_memory).ctypes.data % 64 == 0


def test_clones_share_no_tensor_with_the_original():
    Pair = namedtuple("Pair", "a b")
    tensors = [torch.zeros(2) for _ in range(4)]
    state = dict(a=(tensors[0], 1), b=[tensors[1], Pair(tensors[2], OrderedDict(c=tensors[3]))], d=torch.Size([2, 3]), e="text")
    clone = cloned(state)
    for tensor in tensors:
        tensor += 1
    found = [clone["a"][0], clone["b"][0], clone["b"][1].a, clone["b"][1].b["c"]]
    assert not any(tensor.any() for tensor in found) and clone["a"][1] == 1 and type(clone["b"][1].b) is OrderedDict
    assert type(clone["d"]) is torch.Size and clone["d"] == state["d"] and clone["e"] == "text"


@pytest.mark.parametrize(
    "state, change",
    [
        (np.zeros(2), lambda array: array.fill(1)),
        ({1, 2}, lambda numbers: numbers.add(3)),
        (Counter(a=3), lambda counts: counts.update("a")),
        (defaultdict(int, a=1), lambda counts: counts.update(a=2)),
        (UserDict(a=1), lambda counts: counts.update(a=2)),
    ],
    ids=lambda part: type(part).__name__,
)
def test_clones_of_states_of_users_stay_as_they_are(state, change):
    before, clone = deepcopy(state), cloned(dict(state=state))["state"]
    change(state)
    np.testing.assert_equal(clone, before)
    assert type(clone) is (dict if isinstance(state, UserDict) else type(state))


def test_the_clone_of_a_state_dict_has_the_versions_of_its_modules():
    state = torch.nn.BatchNorm1d(2).state_dict()
    assert cloned(state)._metadata == state._metadata
