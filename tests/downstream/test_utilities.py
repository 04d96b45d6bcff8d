"""Utilities, spaces and affinities as programs written for the original rlpyt use them."""

import numpy as np
import pytest
import torch

from rlpyt.spaces.composite import Composite
from rlpyt.spaces.float_box import FloatBox
from rlpyt.spaces.int_box import IntBox
from rlpyt.utils.array import valid_mean as valid_mean_of_array
from rlpyt.utils.buffer import buffer_from_example, get_leading_dims
from rlpyt.utils.collections import dynamic_namedtuple
from rlpyt.utils.launching.affinity import encode_affinity, get_n_run_slots, make_affinity, prepend_run_slot, quick_affinity_code
from rlpyt.utils.launching.machine import Core, Machine
from rlpyt.utils.logging import logger
from rlpyt.utils.misc import extract_sequences, iterate_mb_idxs, zeros
from rlpyt.utils.processors import split_async_affinity
from rlpyt.utils.tensor import restore_leading_dims, select_at_indexes, valid_mean


def server(n_cores, n_gpu=0):
    """A machine whose processors are numbered as on most servers: all cores, then their second hyperthreads."""
    return Machine(tuple(Core((i, i + n_cores)) for i in range(n_cores)), (None,) * n_gpu)


# ------------------------------------------------------------------------------------------------------------------
# Affinities: numbers of the original
# ------------------------------------------------------------------------------------------------------------------
def test_each_process_of_a_run_on_several_gpus_names_the_processors_of_its_own():
    first, second = make_affinity(1, n_cpu_core=8, n_gpu=4, gpu_per_run=2, machine=server(8, 4))
    assert first["all_cpus"] == first["master_cpus"] == (4, 5, 12, 13) and first["cuda_idx"] == 2
    assert second["all_cpus"] == second["master_cpus"] == (6, 7, 14, 15) and second["cuda_idx"] == 3


@pytest.mark.parametrize("n_gpu", [0, 1])
def test_an_asynchronous_sampler_without_gpu_has_cuda_idx_none(n_gpu):
    affinity = make_affinity(n_cpu_core=8, n_gpu=n_gpu, cpu_per_run=8, async_sample=True, machine=server(8, n_gpu))
    assert affinity["sampler"]["cuda_idx"] is None
    assert "cuda_idx" not in make_affinity(n_cpu_core=8, machine=server(8))


def test_an_asynchronous_sampler_has_as_many_threads_as_cores_in_its_affinity_and_uses_one():
    affinity = make_affinity(n_cpu_core=8, n_gpu=1, async_sample=True, machine=server(8, 1))
    assert affinity["sampler"]["master_torch_threads"] == 7 and affinity["optimizer"][0]["torch_threads"] == 1
    assert [each["master_torch_threads"] for each in split_async_affinity(affinity)[1]] == [1]
    by_hand = dict(sampler=dict(workers_cpus=[0, 1], master_torch_threads=3))
    apart = dict(sampler=dict(workers_cpus=[0, 1], master_cpus=[2, 3, 4], master_torch_threads=3))
    for affinity in (by_hand, apart):
        assert [each["master_torch_threads"] for each in split_async_affinity(affinity)[1]] == [3]


def test_optimizing_and_sampling_on_the_same_gpus_overrides_how_many_sample():
    code = encode_affinity(n_cpu_core=16, n_gpu=4, async_sample=True, sample_gpu_per_run=2, optim_sample_share_gpu=True)
    assert code == "16cpu_4gpu_1ass_2sgr_1oss" and get_n_run_slots(code) == 4
    kwargs = dict(n_cpu_core=16, n_gpu=4, async_sample=True, optim_sample_share_gpu=True, machine=server(16, 4))
    affinity = make_affinity(2, sample_gpu_per_run=2, **kwargs)
    assert affinity == make_affinity(2, **kwargs)
    assert [each["cuda_idx"] for each in affinity["sampler"]] == [each["cuda_idx"] for each in affinity["optimizer"]] == [2]


def test_runs_on_one_gpu_have_neighbouring_cores():
    machine = server(8, 2)
    slots = [make_affinity(slot, n_cpu_core=8, n_gpu=2, contexts_per_gpu=2, machine=machine) for slot in range(4)]
    assert [slot["cuda_idx"] for slot in slots] == [0, 1, 0, 1]
    assert [slot["master_cpus"][:2] for slot in slots] == [(0, 1), (4, 5), (2, 3), (6, 7)]


def test_a_quick_code_is_one_that_a_launch_script_can_hand_on():
    code = quick_affinity_code(n_parallel=4, contexts_per_gpu=2, machine=server(8, 2))
    assert prepend_run_slot(3, code) == "3slt_8cpu_2gpu_2cxg"


# ------------------------------------------------------------------------------------------------------------------
# Logger
# ------------------------------------------------------------------------------------------------------------------
def own_row(key):
    """What a program that writes tables of its own asks the logger for."""
    return dict(step=logger._iteration, key=logger._tabular_prefix_str + key, line="".join(logger._prefixes) + logger._prefix_str)


def test_a_table_of_ones_own_may_read_the_state_of_the_logger():
    logger.set_iteration(7)
    with logger.prefix("run 1 | "), logger.tabular_prefix("Diagnostics/"), logger.tabular_prefix("Mine/"):
        assert own_row("x") == dict(step=7, key="Diagnostics/Mine/x", line="run 1 | run 1 | ")
        assert logger._tabular_prefixes == ["Diagnostics/", "Mine/"]
    logger.set_iteration(0)
    assert own_row("x") == dict(step=0, key="x", line="")


# ------------------------------------------------------------------------------------------------------------------
# Spaces and arrays
# ------------------------------------------------------------------------------------------------------------------
def test_the_null_value_none_of_a_float_box_is_zero():
    class ContinuousAction(FloatBox):
        def __init__(self, n, null_value=None):
            super().__init__(-1, 1, shape=(n,), null_value=null_value)

    assert ContinuousAction(3).null_value().tolist() == [0, 0, 0] and ContinuousAction(1, 0.5).null_value().tolist() == [0.5]


def test_parts_of_a_composite_space_are_a_list_and_their_names_a_tuple():
    space = Composite([IntBox(0, 3), FloatBox(-1, 1, shape=2)], dynamic_namedtuple("Parts", ["choice", "amount"]))
    assert space.names + ("more",) == ("choice", "amount", "more")
    assert [part.shape for part in space.spaces + [IntBox(0, 2)]] == [(), (2,), ()]


def test_minibatches_in_order_are_slices_hence_views():
    data = np.zeros(7)
    for i, idxs in enumerate(iterate_mb_idxs(len(data), 3)):
        minibatch = data[idxs]
        minibatch += i + 1
    assert data.tolist() == [1, 1, 1, 2, 2, 2, 0]


@pytest.mark.parametrize("dtype", [float, bool, torch.float32])
def test_zeros_of_a_type_of_python_are_a_tensor_like_those_of_torch(dtype):
    assert zeros((2, 3), dtype).unsqueeze(0).shape == (1, 2, 3)


# What is not the original's, with the reason in docs/differences.md --------------------------------------------------
def test_sequences_that_begin_before_row_0_are_not_shifted():
    rows = np.arange(10)[:, None] * np.ones((1, 2), int)
    assert extract_sequences(rows, np.array([-2, 8]), np.array([0, 1]), 4).T.tolist() == [[8, 9, 0, 1], [8, 9, 0, 1]]


@pytest.mark.parametrize("mean,of", [(valid_mean, torch.tensor), (valid_mean_of_array, np.array)])
def test_a_mean_under_a_mask_that_broadcasts_is_a_mean(mean, of):
    assert mean(of([[1.0, 3.0], [5.0, 7.0]]), of([1.0, 0.0])) == 3.0


def test_what_would_go_wrong_silently_is_refused_in_a_sentence():
    with pytest.raises(ValueError, match="minibatch_size=8 must be at least 1 and at most the 7 samples"):
        iterate_mb_idxs(7, 8)
    with pytest.raises(ValueError, match="Expected at least 2 leading dimensions"):
        get_leading_dims(np.zeros(3), n_dim=2)
    with pytest.raises(TypeError, match="only numbers can be stored"):
        buffer_from_example(dynamic_namedtuple("Info", ["text"])("won"), (2,))
    with pytest.raises(RuntimeError):
        select_at_indexes(torch.tensor([-1]), torch.zeros(1, 3))


def test_leading_dimensions_of_a_namedtuple_are_restored_in_a_namedtuple():
    Output = dynamic_namedtuple("Output", ["pi", "value"])
    pi, value = restored = restore_leading_dims(Output(torch.zeros(6, 3), torch.zeros(6)), 2, 3, 2)
    assert restored.pi is pi and pi.shape == (3, 2, 3) and value.shape == (3, 2)
