import pytest
import torch

from rlpyt.models import linear
from rlpyt.models.linear import Linear, onednn_is_available


@pytest.fixture(params=[True, False])
def onednn(request, monkeypatch):
    if request.param and not onednn_is_available():
        pytest.skip("this torch has no oneDNN")
    monkeypatch.setattr(linear, "MIN_SIZE", 0)
    monkeypatch.setattr(linear, "onednn_helps", lambda: request.param)
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
