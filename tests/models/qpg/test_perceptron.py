import pytest
import torch
from tiers import full

from rlpyt.models.linear import onednn_is_available
from rlpyt.models.qpg import perceptron
from rlpyt.models.qpg.mlp import QofMuMlpModel
from rlpyt.models.qpg.perceptron import after_constants, perceptrons, stack_parameters
from rlpyt.utils import choices

SIZES = [(5, 7), (7, 6), (6, 2)]


def make_nets(n, dtype=torch.float64, sizes=SIZES):
    torch.manual_seed(0)
    return [
        [(torch.randn(o, i, dtype=dtype).mul_(i**-0.5).requires_grad_(), torch.randn(o, dtype=dtype).requires_grad_()) for i, o in sizes]
        for _ in range(n)
    ]


def stacked(nets):
    modules = []
    for net in nets:
        module = torch.nn.Module()
        for i, parameter in enumerate(p for layer in net for p in layer):
            module.register_parameter(str(i), torch.nn.Parameter(parameter.detach()))
        modules.append(module)
    stack_parameters(modules)
    return [list(zip(*[iter(module.parameters())] * 2)) for module in modules]


def parameters(nets):
    return [p for net in nets for layer in net for p in layer]


def reference(x, net):
    """One number after the other."""
    outputs = []
    for row in x:
        y = row
        for i, (weight, bias) in enumerate(net):
            y = torch.stack([sum(w * v for w, v in zip(weights, y)) + b for weights, b in zip(weight, bias)])
            y = y * (y > 0) if i < len(net) - 1 else y
        outputs.append(y)
    return torch.stack(outputs)


@pytest.fixture(params=["one after the other", "batched"])
def nets(request, monkeypatch):
    """Two nets, computed in either way."""
    if request.param == "batched":
        monkeypatch.setattr(perceptron, "_together", lambda weight, n_nets, rows: True)
        return stacked(make_nets(2))
    return make_nets(2)


def test_outputs_and_gradients_are_those_of_linear_layers_with_relu(nets):
    x = torch.randn(4, 5, dtype=torch.float64, requires_grad=True)
    weights = torch.randn(2, 4, 2, dtype=torch.float64)
    got, expected = perceptrons(x, nets), [reference(x, net) for net in nets]
    inputs = [x, *parameters(nets)]
    grads = torch.autograd.grad(sum((w * y).sum() for w, y in zip(weights, got)), inputs)
    expected_grads = torch.autograd.grad(sum((w * y).sum() for w, y in zip(weights, expected)), inputs)
    for a, b in zip([*got, *grads], [*expected, *expected_grads]):
        torch.testing.assert_close(a, b)
    with torch.no_grad():
        for a, b in zip(perceptrons(x, nets), expected):
            torch.testing.assert_close(a, b)


@pytest.mark.parametrize("which", [0, 1])
def test_a_loss_of_one_net_has_no_gradient_for_the_other(nets, which):
    x = torch.randn(4, 5, dtype=torch.float64, requires_grad=True)
    inputs = [x, *parameters(nets)]
    got = torch.autograd.grad(perceptrons(x, nets)[which].square().sum(), inputs, allow_unused=True, materialize_grads=True)
    expected = torch.autograd.grad(reference(x, nets[which]).square().sum(), inputs, allow_unused=True, materialize_grads=True)
    for a, b in zip(got, expected):
        torch.testing.assert_close(a, b)


def test_frozen_parameters_let_gradients_through_and_get_none(nets):
    for parameter in parameters(nets):
        parameter.requires_grad = False
    x = torch.randn(4, 5, dtype=torch.float64, requires_grad=True)
    (got,) = torch.autograd.grad(sum(y.square().sum() for y in perceptrons(x, nets)), [x])
    (expected,) = torch.autograd.grad(sum(reference(x, net).square().sum() for net in nets), [x])
    torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("nets", [pytest.param("one after the other", marks=full), "batched"], indirect=True)
def test_gradients_can_be_differentiated(nets):
    x = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)

    def func(x, *params):
        pairs = list(zip(params[::2], params[1::2]))
        return perceptrons(x, [pairs[:3], pairs[3:]])

    assert torch.autograd.gradcheck(func, (x, *parameters(nets)))
    assert torch.autograd.gradgradcheck(func, (x, *parameters(nets)))


@pytest.mark.skipif(not onednn_is_available(), reason="this torch has no oneDNN")
def test_large_products_by_onednn_agree_with_double_precision(monkeypatch):
    monkeypatch.setattr(choices, "_chosen", {("linear", 256, n, 256): "onednn" for n in (23, 256)})
    nets = make_nets(2, torch.float32, [(23, 256), (256, 256), (256, 1)])
    exact = [[(w.detach().double().requires_grad_(), b.detach().double().requires_grad_()) for w, b in net] for net in nets]
    x = torch.randn(256, 23)
    for inputs in (x, x[:16]):  # Large and small products.
        grads = torch.autograd.grad(sum(y.square().mean() for y in perceptrons(inputs, nets)), parameters(nets))
        expected = torch.autograd.grad(sum(y.square().mean() for y in perceptrons(inputs.double(), exact)), parameters(exact))
        for a, b in zip(grads, expected):
            torch.testing.assert_close(a.double(), b, rtol=1e-3, atol=1e-4)


@pytest.mark.skipif(not onednn_is_available(), reason="this torch has no oneDNN")
def test_with_onednn_passes_without_gradient_compute_layer_and_relu_together(monkeypatch):
    then, onednn_linear = [], perceptron.onednn_linear
    monkeypatch.setattr(perceptron, "onednn_linear", lambda *args: then.append(args[3]) or onednn_linear(*args))
    monkeypatch.setattr(choices, "_chosen", {("linear", 256, 256, 256): "onednn"})
    nets, x = make_nets(2, torch.float32, [(23, 256), (256, 256), (256, 1)]), torch.randn(256, 23)
    expected = perceptrons(x, nets)
    with torch.no_grad():
        for a, b in zip(perceptrons(x, nets), expected):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)
    assert then == ["relu", "relu"]


@pytest.mark.parametrize("chosen", [{}, {("linear", 256, 256, 256): "onednn"}])
def test_a_compiled_perceptron_is_a_single_graph(chosen, monkeypatch):
    monkeypatch.setattr(choices, "_chosen", chosen)
    nets, x = make_nets(2, torch.float32, [(23, 256), (256, 256), (256, 1)]), torch.randn(256, 23)
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: perceptrons(x, nets), backend="eager", fullgraph=True)
    for a, b in zip(compiled(x), perceptrons(x, nets)):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)
    torch._dynamo.reset()


def test_parameters_changed_before_the_backward_pass_are_noticed(nets):
    loss = sum(y.sum() for y in perceptrons(torch.randn(4, 5, dtype=torch.float64), nets))
    with torch.no_grad():
        nets[0][1][0].add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_under_autocast_all_but_the_last_layers_compute_in_its_dtype():
    nets, x = make_nets(2, torch.float32), torch.randn(4, 5)
    with torch.autocast("cpu", torch.bfloat16):
        outputs = perceptrons(x, nets)
        sum(y.sum() for y in outputs).backward()
    for y, exact in zip(outputs, perceptrons(x, nets)):
        assert y.dtype == torch.float32 and 0 < (y - exact).abs().max() < 0.1
    assert all(p.grad.dtype == torch.float32 for p in parameters(nets))


def test_stacked_parameters_keep_their_values_and_follow_each_other_in_memory():
    models = [QofMuMlpModel((3,), [4, 4], 2) for _ in range(2)]
    before = [[p.clone() for p in model.parameters()] for model in models]
    identities = [[id(p) for p in model.parameters()] for model in models]
    stack_parameters(models)
    assert [[id(p) for p in model.parameters()] for model in models] == identities
    for model, values in zip(models, before):
        assert all(torch.equal(p, value) for p, value in zip(model.parameters(), values))
    assert all(perceptron._are_stacked(pair) for pair in zip(*(model.parameters() for model in models)))
    models[1].double()
    assert not any(perceptron._are_stacked(pair) for pair in zip(*(model.parameters() for model in models)))


def test_outputs_after_constants_are_those_of_two_passes_and_only_the_last_rows_have_gradients():
    (net,) = make_nets(1)
    constants, x = torch.randn(3, 5, dtype=torch.float64), torch.randn(4, 5, dtype=torch.float64)
    both, last = after_constants(constants, x, net)
    assert last.requires_grad and not both.requires_grad
    torch.testing.assert_close(both, torch.cat([reference(constants, net), reference(x, net)]))
    torch.testing.assert_close(last, both[3:])
    weights = torch.randn(4, 2, dtype=torch.float64)
    got, expected = (torch.autograd.grad((weights * y).sum(), parameters([net])) for y in (last, reference(x, net)))
    torch.testing.assert_close(got, expected)


def test_outputs_after_constants_can_be_differentiated_twice():
    (net,) = make_nets(1)
    x = torch.randn(4, 5, dtype=torch.float64)
    seconds = []
    for outputs in (after_constants(torch.randn(3, 5, dtype=torch.float64), x, net)[1], reference(x, net)):
        first = torch.autograd.grad(outputs.square().sum(), parameters([net]), create_graph=True)
        seconds.append(torch.autograd.grad(sum(g.square().sum() for g in first), parameters([net])))
    torch.testing.assert_close(*seconds)


def test_gradients_that_are_adjacent_in_memory_are_taken_as_they_are():
    (a, b), x = stacked(make_nets(2)), torch.randn(4, 5, dtype=torch.float64)
    weights = torch.randn(2, 4, 2, dtype=torch.float64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(perceptron, "_together", lambda weight, n_nets, rows: True)
        outputs = perceptrons(x, [a, b])
        apart = torch.autograd.grad(outputs, parameters([a, b]), [w.clone() for w in weights], retain_graph=True)
        patch.setattr(torch, "stack", None)
        torch.testing.assert_close(torch.autograd.grad(outputs, parameters([a, b]), list(weights)), apart, rtol=0, atol=0)
