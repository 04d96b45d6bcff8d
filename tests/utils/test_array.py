import subprocess
import sys

import numpy as np
import pytest
import torch
from tiers import processes

from rlpyt.utils.array import aligned, aligned_zeros, from_onehot, infer_leading_dims, select_at_indexes, to_onehot, valid_mean
from rlpyt.utils.tensor import valid_mean as valid_mean_of_tensor


@pytest.mark.parametrize("lead, rest", [((), ()), ((3,), ()), ((4, 3), ()), ((4, 3), (2, 5)), ((0, 3), (2,))])
def test_select_at_indexes_takes_one_entry_per_leading_position(lead, rest):
    rng = np.random.default_rng(0)
    array, indexes = rng.normal(size=lead + (6,) + rest), rng.integers(6, size=lead)
    expected = np.zeros(lead + rest)
    for position in np.ndindex(*lead):
        expected[position] = array[position][indexes[position]]
    selected = select_at_indexes(indexes, array)
    assert selected.shape == expected.shape
    np.testing.assert_array_equal(selected, expected)


def test_select_at_indexes_refuses_an_array_that_does_not_match():
    with pytest.raises(ValueError, match=r"\(4, 3\).*\(4, 2, 6\)"):
        select_at_indexes(np.zeros((4, 3), int), np.zeros((4, 2, 6)))


def test_onehot_and_back():
    indexes = np.array([[0, 2], [3, 1], [2, 2]], dtype=np.int32)
    onehot = to_onehot(indexes, 4)
    assert onehot.shape == (3, 2, 4) and onehot.dtype == np.int32
    np.testing.assert_array_equal(onehot, np.eye(4)[indexes])
    np.testing.assert_array_equal(from_onehot(onehot), indexes)
    assert to_onehot(indexes, 4, dtype=np.float32).dtype == np.float32
    assert from_onehot(onehot, dtype=np.uint8).dtype == np.uint8


def test_onehot_of_a_single_index():
    np.testing.assert_array_equal(to_onehot(np.int64(1), 3), [0, 1, 0])
    assert from_onehot(np.array([0, 1, 0])) == 1


@pytest.mark.parametrize("index", [-1, 4])
def test_onehot_refuses_an_index_out_of_range(index):
    with pytest.raises(IndexError, match="needs 0..3"):
        to_onehot(np.array([0, index]), 4)


def test_valid_mean_counts_only_what_is_valid():
    array = np.array([[1.0, 2.0], [3.0, 100.0]])
    valid = np.array([[1.0, 1.0], [1.0, 0.0]])
    assert valid_mean(array, valid) == 2.0
    np.testing.assert_array_equal(valid_mean(array, valid, axis=0), [2.0, 2.0])
    assert valid_mean(array) == array.mean()
    np.testing.assert_array_equal(valid_mean(array, axis=1), array.mean(axis=1))
    for of, make in ((valid_mean, np.array), (valid_mean_of_tensor, torch.tensor)):
        assert of(make([1.0, np.inf, 3.0, np.nan]), make([1.0, 0.0, 1.0, 0.0])) == 2


def test_valid_mean_of_tensors_keeps_fractions_of_weights_and_does_not_overflow():
    assert valid_mean_of_tensor(torch.tensor([1, 5]), torch.tensor([0.75, 0.25])) == 2
    assert valid_mean_of_tensor(torch.tensor([True, False]), torch.tensor([1.0, 1.0])) == 0.5
    half = torch.full((70_000,), 2.0, dtype=torch.float16)  # 65,504 is the largest number of this type.
    mean = valid_mean_of_tensor(half, torch.ones(70_000))
    assert mean == 2 and mean.dtype == torch.float16


def test_valid_mean_broadcasts_the_mask():
    array = np.arange(12.0).reshape(3, 2, 2)
    valid = np.array([1, 0, 1])[:, None, None]
    assert valid_mean(array, valid) == array[[0, 2]].mean()


def test_valid_mean_of_nothing_is_nan_without_a_warning(recwarn):
    assert np.isnan(valid_mean(np.ones(3), np.zeros(3)))
    np.testing.assert_array_equal(valid_mean(np.ones((2, 2)), np.array([[0, 1], [0, 1]]), axis=0), [np.nan, 1.0])
    assert not recwarn.list


def test_infer_leading_dims_finds_none_one_or_two():
    assert infer_leading_dims(np.zeros((5, 6)), 2) == (1, 1, (5, 6), False, False)
    assert infer_leading_dims(np.zeros((3, 5, 6)), 2) == (1, 3, (5, 6), False, True)
    assert infer_leading_dims(np.zeros((4, 3, 5, 6)), 2) == (4, 3, (5, 6), True, True)


@pytest.mark.parametrize("shape", [(5,), (2, 4, 3, 5, 6)])
def test_infer_leading_dims_says_what_is_wrong_with_too_few_or_too_many(shape):
    with pytest.raises(ValueError, match="give it 2 to 4 dimensions"):
        infer_leading_dims(np.zeros(shape), 2)


@processes
def test_modules_that_environment_workers_use_do_not_import_torch():
    modules = "array, misc, seed, quick_args, synchronize, prog_bar, plotting"
    code = (
        f"from rlpyt.utils import {modules}\nfrom rlpyt.utils.logging import logger, context, console\nimport sys\n"
        "print([name for name in ('torch', 'numba', 'matplotlib', 'tensorboard') if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


@pytest.mark.parametrize("dtype", [np.bool_, np.uint8, np.float32, "f8", np.complex64])
@pytest.mark.parametrize("shape", [(), (5,), (3, 7), (0, 2)])
def test_aligned_zeros_are_zeros_at_aligned_addresses(shape, dtype):
    for _ in range(20):
        zeros = aligned_zeros(shape, dtype)
        assert zeros.shape == shape and zeros.dtype == dtype and not zeros.any() and zeros.flags.c_contiguous and zeros.flags.writeable
        assert not zeros.size or zeros.ctypes.data % 64 == 0


@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.float64, "U3"])
@pytest.mark.parametrize("shape", [(), (5,), (3, 7)])
def test_aligned_arrays_are_copied_only_where_they_begin_elsewhere(shape, dtype):
    memory = np.arange(60).astype(dtype)
    n = int(np.prod(shape))
    for start in range(17):
        array = memory[start : start + n].reshape(shape)
        found = aligned(array)
        assert found.ctypes.data % 64 == 0 and found.dtype == array.dtype and np.array_equal(found, array)
        assert (found is array) == (array.ctypes.data % 64 == 0)
    transposed = np.arange(6.0).reshape(2, 3).T[1:]
    assert np.array_equal(aligned(transposed), transposed)
    objects = np.array([None, "a", 1], object)[1:]
    assert aligned(objects) is objects
