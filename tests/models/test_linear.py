import copy
import pickle

import pytest
import torch

from rlpyt.models import linear
from rlpyt.models.linear import Linear, OutputLinear, onednn_is_available


@pytest.fixture(params=[True, False])
def onednn(request, monkeypatch):
    if request.param and not onednn_is_available():
        pytest.skip("this torch has no oneDNN")
    monkeypatch.setattr(linear, "MIN_SIZE", 0)
    monkeypatch.setattr(linear, "onednn_is_chosen", lambda rows, weight: request.param)
    return request.param


def pair(bias=True):
    torch.manual_seed(0)
    ours, plain = Linear(70, 30, bias=bias), torch.nn.Linear(70, 30, bias=bias)
    plain.load_state_dict(ours.state_dict())
    return ours, plain


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("lead", [(), (1,), (9,), (2, 9)])
def test_results_are_those_of_torchs_layer(onednn, lead, bias):
    ours, plain = pair(bias)
    x = torch.randn(*lead, 70)
    with torch.no_grad():
        torch.testing.assert_close(ours(x), plain(x))
    torch.testing.assert_close(ours(x), plain(x))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("input_grad", [True, False])
def test_gradients_are_those_of_torchs_layer(onednn, bias, input_grad):
    grads = []
    for layer in pair(bias):
        x = torch.linspace(-1, 1, 9 * 70).view(70, 9).t().requires_grad_(input_grad)  # not contiguous
        (torch.tanh(layer(x)) * torch.arange(30.0)).sum().backward()
        grads.append([p.grad for p in layer.parameters()] + ([x.grad] if input_grad else []))
    torch.testing.assert_close(*grads)


def test_second_derivatives_are_those_of_torchs_layer(onednn):
    grads = []
    for layer in pair():
        x = torch.linspace(-1, 1, 9 * 70).view(9, 70).requires_grad_()
        (slope,) = torch.autograd.grad(torch.tanh(layer(x)).square().sum(), x, create_graph=True)
        slope.square().sum().backward()
        grads.append([layer.weight.grad, layer.bias.grad, x.grad])
    torch.testing.assert_close(*grads, rtol=1e-4, atol=1e-4)


def test_other_dtypes_and_autocast_are_left_to_torch(onednn):
    ours, plain = pair()
    x = torch.randn(9, 70)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert ours(x).dtype == torch.bfloat16
    torch.testing.assert_close(ours.double()(x.double()), plain.double()(x.double()))


@pytest.mark.skipif(not linear.packs(), reason="this torch or this processor does not pack weights")
class TestPackedInBfloat16:
    @pytest.fixture
    def layer(self, monkeypatch):
        monkeypatch.setattr(linear, "MIN_SIZE", 0)
        torch.manual_seed(0)
        return Linear(70, 30)

    def test_results_are_those_of_weights_and_inputs_rounded_to_bfloat16(self, layer):
        x = torch.randn(9, 70)
        exact = torch.nn.functional.linear(x.bfloat16().double(), layer.weight.bfloat16().double(), layer.bias.double())
        assert layer.pack(rows=9)
        with torch.no_grad():
            y = layer(x)
        assert y.dtype == torch.float32
        torch.testing.assert_close(y.double(), exact, rtol=2**-7, atol=2**-7)
        assert not torch.equal(y, torch.nn.functional.linear(x, layer.weight, layer.bias))

    def test_gradients_are_of_the_float32_weight(self, layer):
        x = torch.randn(9, 70)
        expected = layer(x)
        layer.pack(rows=9)
        assert torch.equal(layer(x), expected)

    @pytest.mark.parametrize("end", ["unpack", "change"])
    def test_the_copy_is_used_until_it_is_dropped_or_the_weight_changes(self, layer, end):
        x = torch.randn(9, 70)
        layer.pack(rows=9)
        with torch.no_grad():
            if end == "unpack":
                layer.unpack()
            else:
                layer.weight.mul_(2)
            torch.testing.assert_close(layer(x), torch.nn.functional.linear(x, layer.weight, layer.bias), rtol=1e-6, atol=1e-6)

    def test_training_by_a_fused_optimizer_ends_the_use_of_the_copy(self, layer):
        x = torch.randn(9, 70)
        layer.pack(rows=9)
        layer(x).square().sum().backward()
        torch.optim.SGD(layer.parameters(), lr=1.0, fused=True).step()  # It does not raise the version of the weight.
        with torch.no_grad():
            torch.testing.assert_close(layer(x), torch.nn.functional.linear(x, layer.weight, layer.bias), rtol=1e-6, atol=1e-6)

    def test_copies_of_the_layer_are_not_packed(self, layer):
        layer.pack(rows=9)
        for copied in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
            assert copied._packed is None and torch.equal(copied.weight, layer.weight)
        assert layer._packed is not None

    def test_few_calls_and_small_layers_are_not_worth_it(self, layer, monkeypatch):
        assert linear.pack_layers(layer, rows=9, n_calls=linear.MIN_CALLS - 1) == []
        assert linear.pack_layers(layer, rows=9, n_calls=linear.MIN_CALLS) == [layer]
        assert linear.pack_layers(OutputLinear(70, 30), rows=9) == []
        monkeypatch.setattr(linear, "MIN_SIZE", 9 * 70 * 30 + 1)
        assert linear.pack_layers(layer, rows=9) == []
