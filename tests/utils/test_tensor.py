from collections import namedtuple

import numpy as np
import pytest
import torch
from tiers import gpu

from rlpyt.utils import array as numpy_version
from rlpyt.utils.tensor import (
    OnDevices,
    from_onehot,
    half_square,
    huber,
    infer_leading_dims,
    mean_huber,
    restore_leading_dims,
    select_at_indexes,
    smaller,
    to_onehot,
    valid_mean,
)

DEVICES = ["cpu", pytest.param("cuda", marks=gpu)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("lead, rest", [((), ()), ((3,), ()), ((4, 3), ()), ((4, 3), (2, 5)), ((0, 3), (2,))])
def test_select_at_indexes_agrees_with_numpy(lead, rest, device):
    rng = np.random.default_rng(0)
    array, indexes = rng.normal(size=lead + (6,) + rest), np.asarray(rng.integers(6, size=lead))
    selected = select_at_indexes(torch.from_numpy(indexes).to(device), torch.from_numpy(array).to(device))
    expected = numpy_version.select_at_indexes(indexes, array)
    assert selected.shape == expected.shape and selected.device.type == device
    np.testing.assert_array_equal(selected.cpu().numpy(), expected)


def test_select_at_indexes_passes_gradients_to_the_selected_entries_only():
    tensor = torch.zeros(2, 3, requires_grad=True)
    select_at_indexes(torch.tensor([2, 0], dtype=torch.int32), tensor).sum().backward()
    assert tensor.grad.tolist() == [[0, 0, 1], [1, 0, 0]]


def test_select_at_indexes_refuses_a_tensor_that_does_not_match():
    with pytest.raises(ValueError, match="must begin with the shape of the indexes"):
        select_at_indexes(torch.zeros(4, 3, dtype=torch.long), torch.zeros(4, 3))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [None, torch.float32, torch.uint8, torch.bool])
def test_onehot_and_back(dtype, device):
    indexes = torch.tensor([[0, 2], [3, 1], [2, 2]], dtype=torch.int32, device=device)
    onehot = to_onehot(indexes, 4, dtype=dtype)
    assert onehot.shape == (3, 2, 4) and onehot.dtype == (dtype or torch.int32) and onehot.device == indexes.device
    assert torch.equal(onehot.cpu().float(), torch.eye(4)[indexes.cpu().long()])
    assert torch.equal(from_onehot(onehot), indexes.long())
    assert from_onehot(onehot, dtype=torch.int32).dtype == torch.int32


def test_onehot_of_a_single_index_and_along_another_dimension():
    assert to_onehot(torch.tensor(1), 3).tolist() == [0, 1, 0]
    assert from_onehot(torch.eye(3)[[2, 0]].T, dim=0).tolist() == [2, 0]


def test_valid_mean_agrees_with_numpy():
    rng = np.random.default_rng(0)
    x, mask = rng.normal(size=(5, 4, 3)), rng.integers(2, size=(5, 4, 3)).astype(np.float64)
    for dim in (None, 0, 1, -1, (0, 1)):
        for valid in (None, mask, mask[:, :1], mask > 0):
            expected = numpy_version.valid_mean(x, valid, dim)
            result = valid_mean(torch.from_numpy(x), None if valid is None else torch.from_numpy(valid), dim)
            np.testing.assert_allclose(result.numpy(), expected, equal_nan=True)


def test_valid_mean_of_nothing_is_nan():
    assert valid_mean(torch.ones(3), torch.zeros(3)).isnan()
    assert valid_mean(torch.ones(2, 2), torch.tensor([[0, 1], [0, 1]]), dim=0).isnan().tolist() == [True, False]


@pytest.mark.parametrize("lead", [(), (3,), (4, 3), (1, 1), (1,)])
def test_restore_undoes_infer(lead):
    x = torch.randn(*lead, 5, 6)
    lead_dim, T, B, shape = infer_leading_dims(x, 2)
    assert lead_dim == len(lead) and T * B == int(np.prod(lead)) and shape == (5, 6)
    restored = restore_leading_dims(x.view(T * B, *shape), lead_dim, T, B)
    assert torch.equal(restored, x)


def test_infer_gives_T_and_B_in_their_places():
    assert infer_leading_dims(torch.zeros(4, 3, 5), 1) == (2, 4, 3, (5,))
    assert infer_leading_dims(torch.zeros(3, 5), 1) == (1, 1, 3, (5,))
    assert infer_leading_dims(torch.zeros(5), 1) == (0, 1, 1, (5,))


@pytest.mark.parametrize("shape", [(5,), (2, 4, 3, 5, 6)])
def test_infer_says_what_is_wrong_with_too_few_or_too_many(shape):
    with pytest.raises(ValueError, match="give it 2 to 4 dimensions"):
        infer_leading_dims(torch.zeros(shape), 2)


def test_restore_takes_several_tensors_and_keeps_namedtuples():
    Output = namedtuple("Output", ["mean", "value"])
    mean, value = torch.zeros(12, 2), torch.zeros(12)
    for several in ((mean, value), [mean, value]):
        restored = restore_leading_dims(several, 2, 4, 3)
        assert type(restored) is tuple and [tuple(r.shape) for r in restored] == [(4, 3, 2), (4, 3)]
    restored = restore_leading_dims(Output(mean, value), 2, 4, 3)
    assert isinstance(restored, Output) and restored.mean.shape == (4, 3, 2)


def test_restore_refuses_to_drop_a_batch():
    with pytest.raises(ValueError, match="must be of size 1"):
        restore_leading_dims(torch.zeros(2, 5), 0)


def test_the_smaller_of_two_has_the_gradient_of_the_minimum():
    a, b = torch.tensor([1.0, 2.0, 3.0], requires_grad=True), torch.tensor([2.0, 2.0, 1.0], requires_grad=True)
    result = smaller(a, b)
    assert result.tolist() == [1, 2, 1]
    result.backward(torch.tensor([1.0, 10.0, 100.0]))
    assert a.grad.tolist() == [1, 10, 0] and b.grad.tolist() == [0, 0, 100]
    assert not smaller(a.detach(), b.detach()).requires_grad


def test_gradients_of_the_smaller_of_two_are_adjacent_in_memory():
    a, b = torch.randn(2, 5).unbind()
    a, b = a.clone().requires_grad_(), b.clone().requires_grad_()
    of_a, of_b = torch.autograd.grad(smaller(a, b).sum(), [a, b])
    assert of_b.data_ptr() - of_a.data_ptr() == 5 * of_a.itemsize


@pytest.mark.parametrize("values, targets", [((4, 1), (4,)), ((4,), (4, 1)), ((4, 1), (4, 4)), ((4,), (4, 4)), ((4,), (3,))])
def test_each_value_has_one_target(values, targets):
    for loss in (mean_huber, half_square):
        with pytest.raises(ValueError, match="there is not one target for each value"):
            loss(torch.zeros(values), torch.zeros(targets))


def test_several_values_may_share_a_target():
    x, y = torch.randn(5, 2), torch.randn(5, 1)
    torch.testing.assert_close(half_square(x, y), 0.5 * (y - x) ** 2)
    torch.testing.assert_close(mean_huber(x, torch.tensor(3.0)), (0.5 * (3 - x) ** 2).mean())


@pytest.mark.parametrize("valid", [None, torch.tensor([1.0, 0, 1, 1, 0, 0, 1]), torch.zeros(7)], ids=["all", "some", "none"])
@pytest.mark.parametrize("clip", [None, 0.5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])  # That of the predictions; targets of another type are possible.
def test_a_mean_huber_loss_and_its_gradient_are_those_of_a_loop(valid, clip, dtype):
    torch.manual_seed(0)
    x, y = torch.randn(7, dtype=dtype, requires_grad=True), torch.randn(7, requires_grad=True)
    loss = mean_huber(x, y, clip, valid)
    loss.backward()
    losses, slopes = [], []
    for prediction, target in zip(x.tolist(), y.tolist()):
        error = prediction - target
        linear = clip is not None and abs(error) > clip
        losses.append(clip * (abs(error) - clip / 2) if linear else error**2 / 2)
        slopes.append(max(-clip, min(clip, error)) if linear else error)
    mask = [1.0] * 7 if valid is None else valid.tolist()
    n = max(sum(mask), 1)
    assert loss.item() == pytest.approx(sum(m * each for m, each in zip(mask, losses)) / n, rel=1e-5, abs=1e-7)
    assert x.grad.tolist() == pytest.approx([m * slope / n for m, slope in zip(mask, slopes)], rel=1e-5, abs=1e-7)
    assert y.grad is None


@pytest.mark.parametrize("clip", [None, 0.5, 2.0])
def test_huber_losses_and_their_gradients_are_those_of_torch(clip):
    x = torch.linspace(-3, 3, 25, dtype=torch.float64, requires_grad=True)
    losses, derivative = huber(x, clip)
    y = x.detach().clone().requires_grad_()
    zeros = torch.zeros_like(y)
    expected = 0.5 * y**2 if clip is None else torch.nn.functional.huber_loss(y, zeros, reduction="none", delta=clip)
    weights = torch.arange(25.0, dtype=torch.float64)
    (losses * weights).sum().backward()
    (expected * weights).sum().backward()
    torch.testing.assert_close(losses, expected)
    torch.testing.assert_close(x.grad, y.grad)
    torch.testing.assert_close(derivative * weights, y.grad)
    assert not derivative.requires_grad


def test_a_constant_is_on_the_device_where_it_is_wanted_and_copied_again_when_it_changes():
    value, meta = torch.ones(2), torch.device("meta")
    constant = OnDevices()
    assert constant.on(torch.device("cpu"), value) is value and OnDevices().on(meta, 0.5) == 0.5
    there = constant.on(meta, value)
    assert there.device.type == "meta" and constant.on(meta, value) is there
    value += 1
    again = constant.on(meta, value)
    assert again is not there
    assert constant.on(meta, torch.ones(2)) is not again
