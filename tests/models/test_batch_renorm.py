import copy

import pytest
import torch

from rlpyt.models import batch_renorm
from rlpyt.models.batch_renorm import BatchRenorm, by_running_statistics, has_batch_renorm

EPS = 1e-3


def reference(x, weight, bias, running_mean, running_var, warm):
    """One feature after the other, in plain numbers."""
    columns = []
    for j in range(x.shape[1]):
        values = x[:, j].tolist()
        mean = sum(values) / len(values)
        std = (sum((v - mean) ** 2 for v in values) / len(values) + EPS) ** 0.5
        running_std = (running_var[j] + EPS) ** 0.5
        r = min(max(std / running_std, 1 / 3), 3) if warm else 1.0
        d = min(max((mean - running_mean[j]) / running_std, -5), 5) if warm else 0.0
        columns.append([((v - mean) / std * r + d) * weight[j] + bias[j] for v in values])
    return torch.tensor(columns, dtype=torch.float64).T


@pytest.fixture(params=["of a matrix", "single"], autouse=True)
def kernels(request, monkeypatch):
    """On a CPU, kernels for batch normalization of a matrix compute, but not in what is compiled."""
    if request.param == "single":
        monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)


def make(size=3, lead=(), warm=False):
    torch.manual_seed(0)
    layer = BatchRenorm(size, lead).double()
    with torch.no_grad():
        for p in layer.parameters():
            p.copy_(torch.randn_like(p))
        layer.running_mean.copy_(torch.randn_like(layer.running_mean))
        layer.running_var.copy_(0.01 + 3 * torch.rand_like(layer.running_var))
        layer.n_batches.fill_(batch_renorm.WARM_UP - (not warm))
    return layer


@pytest.mark.parametrize("scale", [0.1, 1.0, 20.0])  # Both corrections reach both of their limits.
@pytest.mark.parametrize("warm", [False, True])
def test_in_training_the_output_is_the_formula(warm, scale):
    layer = make(warm=warm)
    x = scale * torch.randn(5, 3, dtype=torch.float64) - scale
    state = [t.flatten().tolist() for t in (layer.weight, layer.bias, layer.running_mean, layer.running_var)]
    torch.testing.assert_close(layer(x).detach(), reference(x, *state, warm))


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("lead, is_shared", [((), False), ((2,), False), ((2,), True)])
def test_gradients_are_those_of_the_formula_with_constant_corrections(lead, is_shared, warm):
    layer = make(lead=lead, warm=warm)
    x = (2 * torch.randn(*(() if is_shared else lead), 5, 3, dtype=torch.float64) - 1).requires_grad_()
    g = torch.randn(*lead, 5, 3, dtype=torch.float64)
    wanted = (x, layer.weight, layer.bias)
    with torch.no_grad():
        var, mean = torch.var_mean(x, -2, correction=0, keepdim=True)
        r, d = layer._corrections(mean, var)
    normalized = (x - x.mean(-2, keepdim=True)) / (((x - x.mean(-2, keepdim=True)) ** 2).mean(-2, keepdim=True) + EPS).sqrt()
    expected = torch.autograd.grad((((normalized * r + d) * layer.weight + layer.bias) * g).sum(), wanted)
    for got, each in zip(torch.autograd.grad((layer(x) * g).sum(), wanted), expected, strict=True):
        torch.testing.assert_close(got, each)


@pytest.mark.parametrize("warm", [False, True])
def test_inputs_in_bfloat16_are_normalized_in_float32(warm):
    layer, rounded = make(warm=warm).float(), torch.randn(64, 3).bfloat16()
    layers, inputs = [copy.deepcopy(layer), layer], [rounded.requires_grad_(), rounded.detach().float().requires_grad_()]
    y, expected = (layer(x) for layer, x in zip(layers, inputs))
    assert y.dtype == torch.bfloat16 and torch.equal(y, expected.bfloat16())
    for name, value in layers[0].named_buffers():
        torch.testing.assert_close(value, layer.get_buffer(name))
    g = torch.randn(64, 3).bfloat16()
    grads = [torch.autograd.grad(y, [x, layer.weight, layer.bias], g.to(y.dtype)) for y, x, layer in zip((y, expected), inputs, layers)]
    assert grads[0][0].dtype == torch.bfloat16
    torch.testing.assert_close(grads[0][0], grads[1][0].bfloat16())
    for got, each in zip(grads[0][1:], grads[1][1:], strict=True):
        torch.testing.assert_close(got, each)


def test_inputs_for_which_there_are_no_kernels_are_normalized_all_the_same():
    layer, x = make(), torch.randn(5, 3)
    torch.testing.assert_close(copy.deepcopy(layer)(x), layer(x.double()).float())
    assert make(lead=(2,))(torch.empty(2, 0, 3, dtype=torch.float64)).shape == (2, 0, 3)


def test_running_statistics_follow_slowly_and_replace_those_of_the_batch_elsewhere():
    layer, x = make(), torch.randn(7, 3, dtype=torch.float64)
    before = layer.running_mean.clone(), layer.running_var.clone(), layer.n_batches.clone()
    layer(x)
    torch.testing.assert_close(layer.running_mean, 0.99 * before[0] + 0.01 * x.mean(0))
    torch.testing.assert_close(layer.running_var, 0.99 * before[1] + 0.01 * x.var(0, correction=0))
    assert layer.n_batches == before[2] + 1
    after = copy.deepcopy(layer.state_dict())
    expected = (x - layer.running_mean) / (layer.running_var + EPS).sqrt() * layer.weight + layer.bias
    with by_running_statistics(torch.nn.Sequential(layer)):
        torch.testing.assert_close(layer(x), expected)
        torch.testing.assert_close(layer(x[:1]), expected[:1])
    torch.testing.assert_close(layer.eval()(x), expected)
    assert all(torch.equal(value, after[name]) for name, value in layer.state_dict().items())
    layer.n_batches.zero_()  # Else corrections make the output the same.
    assert not torch.allclose(layer.train()(x), expected)


def test_an_ensemble_is_so_many_layers():
    ensemble, x = make(lead=(2,), warm=True), torch.randn(2, 5, 3, dtype=torch.float64)
    for shared, batch in ((False, x), (True, x[0])):
        layers = [BatchRenorm(3).double() for _ in range(2)]
        for i, layer in enumerate(layers):
            layer.load_state_dict({name: v if v.dim() == 0 else v[i] for name, v in ensemble.state_dict().items()})
        got = ensemble(batch)
        for i, layer in enumerate(layers):
            torch.testing.assert_close(got[i], layer(batch if shared else batch[i]))
            torch.testing.assert_close(ensemble.running_var[i], layer.running_var)
    assert has_batch_renorm(torch.nn.Sequential(ensemble)) and not has_batch_renorm(torch.nn.Linear(1, 1))
