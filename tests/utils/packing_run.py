"""Copies structures to the pretended accelerator and back, and raises an error if one is not what it was."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import accelerator
import numpy as np
import torch

from rlpyt.utils.buffer import buffer_leaves, torchify_buffer
from rlpyt.utils.packing import PackedCopies, Ruler, Slab, to_cpu

DEVICE = torch.device(accelerator.NAME, 0)
DTYPES = (torch.bool, torch.uint8, torch.int16, torch.int64, torch.float16, torch.float32, torch.float64)


def tensor(rng):
    """A random tensor of any dtype and shape, sometimes without a number, sometimes not contiguous."""
    shape = tuple(rng.integers(0, 4, size=rng.integers(0, 4)))
    x = torch.from_numpy(np.asarray(rng.integers(0, 100, size=shape))).to(DTYPES[rng.integers(len(DTYPES))])
    return x.transpose(0, 1) if x.dim() > 1 and rng.integers(2) else x


def same(a, b):
    a, b = buffer_leaves(a), buffer_leaves(b)
    return len(a) == len(b) and all(x.dtype == y.dtype and torch.equal(x, y) for x, y in zip(a, b))


def copies_arrive(copies, rng):
    for _ in range(60):
        structure = tuple(tensor(rng) for _ in range(rng.integers(1, 6))), None, tensor(rng)
        kept = tuple(tuple(x.clone() for x in structure[0])), None, structure[2].clone()
        with accelerator.counted() as counts:
            moved = copies.to_device(structure)
            for leaf in buffer_leaves(structure):
                leaf.zero_()  # They are free at once.
            assert {leaf.device for leaf in buffer_leaves(moved)} == {DEVICE}
            assert counts.to_device.total() == 1 and not counts.waits
        with accelerator.counted() as counts:
            assert same(to_cpu(moved), kept)
            assert counts.from_device.total() == counts.waits.total() == 1


def slabs_are_copied_at_once(copies, rng):
    def allocate(new):
        return new((5, 3), np.float32), new((5,), np.bool_), new((0, 2), np.int64), new((10,), np.uint8)

    ruler = Ruler()
    allocate(ruler.empty)
    slab = Slab(ruler.n_bytes)
    arrays = allocate(slab.empty)
    for array in arrays:
        array[...] = rng.integers(0, 2, size=array.shape)
    a, b, c, d = slab.tensors(torchify_buffer(arrays))
    structure = (a[1:], b, (c, d[2:8]), a)
    with accelerator.counted() as counts:
        moved = copies.to_device((structure, torch.arange(3)))
    assert counts.to_device.total() == 2 and not counts.waits  # One more for what lies elsewhere.
    assert same(to_cpu(moved), (structure, torch.arange(3)))


def large_tensors_that_are_page_locked_are_not_copied_in_memory(copies, rng):
    large = torch.empty(2**16, dtype=torch.uint8, pin_memory=True).fill_(3)
    with accelerator.counted() as counts:
        moved = copies.to_device((large, torch.arange(3)))
    assert counts.to_device.total() == 2 and not counts.waits
    assert same(to_cpu(moved), (large, torch.arange(3)))
    there = copies.to_device(moved)
    assert there[0] is moved[0] and there[1] is moved[1]


with accelerator.pretended():
    for check in (copies_arrive, slabs_are_copied_at_once, large_tensors_that_are_page_locked_are_not_copied_in_memory):
        check(PackedCopies(DEVICE), np.random.default_rng(0))
print("all copies have arrived")
