"""Tensors in shared memory: they remain what they are, and nothing of them is in /dev/shm."""

import copy
import gc
import multiprocessing as mp
import os

import numpy as np
import pytest
import torch
from mapped import torch_files, unnamed_memory
from tiers import full, start_methods

from rlpyt.utils import buffer as buffer_module
from rlpyt.utils.buffer import copying_private_tensors, np_mp_array, torchify_buffer
from rlpyt.utils.shared_tensors import share_tensors


@pytest.fixture
def without_torch_files():
    """Fails if torch puts anything into /dev/shm; the value is what it has there already."""
    before = torch_files()
    yield before
    assert not torch_files() - before


def test_a_shared_tensor_is_the_same_object_with_the_same_content(without_torch_files):
    weight = torch.nn.Parameter(torch.arange(12.0).view(3, 4).t(), requires_grad=True)
    frozen = torch.nn.Parameter(torch.ones(2, dtype=torch.float64), requires_grad=False)
    count, empty = torch.tensor(7), torch.zeros(0)
    (weight.sum() * 2).backward()
    before, grad = weight.detach().clone(), weight.grad
    share_tensors([weight, frozen, count, empty])
    assert all(tensor.is_shared() for tensor in (weight, frozen, count))
    assert torch.equal(weight, before) and weight.stride() == (1, 4) and weight.is_leaf
    assert weight.grad is grad and not grad.is_shared()
    assert [weight.requires_grad, frozen.requires_grad, count.requires_grad] == [True, False, False]
    assert frozen.dtype == torch.float64 and frozen.tolist() == [1, 1] and count == 7 and count.dtype == torch.int64
    assert unnamed_memory() > 0


def test_tensors_that_are_one_memory_remain_so():
    whole = torch.zeros(2, 3)
    rows, column, apart = [torch.nn.Parameter(row) for row in whole], whole[:, 1], torch.zeros(3)
    share_tensors(rows, aliases=[whole, column, apart])
    with torch.no_grad():
        rows[1].add_(5)
    assert whole.tolist() == [[0, 0, 0], [5, 5, 5]] and column.tolist() == [0, 5]
    assert whole.is_shared() and not apart.is_shared()


def test_what_is_shared_stays_where_it_is(without_torch_files):
    tensor = torch.zeros(3)
    share_tensors([tensor])
    address = tensor.data_ptr()
    share_tensors([tensor, tensor])
    tensor.share_memory_()
    assert tensor.data_ptr() == address


def test_copies_of_shared_tensors_are_private():
    module = torch.nn.BatchNorm1d(3)
    share_tensors([*module.parameters(), *module.buffers()])
    twin = copy.deepcopy(module)
    assert not any(tensor.is_shared() for tensor in (*twin.parameters(), *twin.buffers()))


def test_memory_that_is_not_there_is_refused_before_anything_is_moved(monkeypatch):
    monkeypatch.setattr(buffer_module, "available_bytes", lambda: 100 * 1024**2)
    tensors = [torch.empty(10_000_000) for _ in range(3)]
    with pytest.raises(MemoryError, match=r"A model in shared memory needs 0\.12 GB.*0\.10 GB"):
        share_tensors(tensors)
    assert not any(tensor.is_shared() for tensor in tensors)


def test_freed_tensors_close_their_descriptors_and_free_their_memory():
    gc.collect()
    descriptors, mapped = len(os.listdir("/proc/self/fd")), unnamed_memory()
    for _ in range(20):
        tensors = [torch.zeros(1000) for _ in range(5)]
        share_tensors(tensors)
    del tensors
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == descriptors and unnamed_memory() == mapped


# --- In processes that are started ------------------------------------------------------------------------------------


def _look_and_write(pipe, known, shared, of_array, private):
    seen = [tensor.tolist() for tensor in (shared, of_array, private)]
    for tensor in (shared, of_array, private):
        tensor.add_(10)
    pipe.send((seen, [torch_files() - known, private.is_shared()]))


@pytest.mark.parametrize("start_method", start_methods("fork", "spawn", "forkserver"))
def test_shared_tensors_reach_a_process_and_private_ones_are_copied(start_method, without_torch_files):
    shared, private = torch.ones(2), torch.full((2,), 3.0)
    share_tensors([shared])
    array = np_mp_array((3, 4), np.float32)
    array[:] = 2
    of_array = torchify_buffer(array)[1:, 2:]
    context = mp.get_context(start_method)
    mine, theirs = context.Pipe()
    process = context.Process(target=_look_and_write, args=(theirs, without_torch_files, shared, of_array, private))
    with copying_private_tensors():
        process.start()
    assert mine.poll(60)
    assert mine.recv() == ([[1, 1], [[2, 2], [2, 2]], [3, 3]], [set(), False])
    process.join(60)
    assert shared.tolist() == [11, 11] and private.tolist() == [3, 3]
    assert of_array.tolist() == [[12, 12], [12, 12]] and array.tolist() == [[2] * 4, [2, 2, 12, 12], [2, 2, 12, 12]]
    assert not private.is_shared()


@full
@pytest.mark.processes
def test_processes_that_a_program_starts_itself_get_private_tensors_as_torch_says():
    tensors = [torch.zeros(1) for _ in range(3)]
    context = mp.get_context("spawn")
    mine, theirs = context.Pipe()
    process = context.Process(target=_look_and_write, args=(theirs, set(), *tensors))
    process.start()
    process.join(60)
    assert mine.poll() and [tensor.item() for tensor in tensors] == [10, 10, 10]
