import itertools
from collections import Counter

import pytest
import torch
from tiers import thinned

from rlpyt.models.batch_renorm import BatchRenorm
from rlpyt.models.qpg import ensemble
from rlpyt.models.qpg.ensemble import Dropout, EnsembleLinear, QEnsembleModel, places_of_successes
from rlpyt.models.qpg.mlp import PiCategoricalMlpModel, PiMlpModel

N, B = 3, 6


@pytest.mark.parametrize("shared", [True, False])
def test_an_ensemble_of_linear_layers_is_so_many_of_them_with_their_gradients(shared):
    torch.manual_seed(0)
    layer, x = EnsembleLinear(N, 5, 4).double(), torch.randn(N, B, 5, dtype=torch.float64, requires_grad=True)
    g = torch.randn(N, B, 4, dtype=torch.float64)
    inputs = [x, layer.weight, layer.bias]
    got = layer(x[0] if shared else x)
    expected = torch.stack([(x[0] if shared else x[i]) @ layer.weight[i].T + layer.bias[i] for i in range(N)])
    torch.testing.assert_close(got, expected)
    for a, b in zip(torch.autograd.grad((got * g).sum(), inputs), torch.autograd.grad((expected * g).sum(), inputs)):
        torch.testing.assert_close(a, b)
    assert torch.autograd.gradgradcheck(layer, (x[0] if shared else x,))


@pytest.mark.parametrize("bf16", [False, True])
def test_gradients_of_weights_have_their_layout(bf16):
    """Otherwise each of them would be copied."""
    layer = EnsembleLinear(N, 5, 4)
    with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
        y = layer(torch.randn(N, B, 5))
    (grad,) = torch.autograd.grad(y.sum(), [layer.weight])
    assert grad.is_contiguous()


def test_layers_compute_in_bfloat16_where_autocast_says_so():
    layer, x = EnsembleLinear(N, 5, 4), torch.randn(N, B, 5, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        y = layer(x)
    assert y.dtype == torch.bfloat16
    expected = layer(x)
    torch.testing.assert_close(y.float(), expected, rtol=0.02, atol=0.02)
    inputs = [x, layer.weight, layer.bias]
    for a, b in zip(torch.autograd.grad(y.float().square().sum(), inputs), torch.autograd.grad(expected.square().sum(), inputs)):
        assert a.dtype == torch.float32
        torch.testing.assert_close(a, b, rtol=0.02, atol=0.02 * b.abs().max().item())


def test_layers_start_like_those_of_torch():
    torch.manual_seed(0)
    layer, of_torch = EnsembleLinear(N, 64, 500), torch.nn.Linear(64, 500)
    for ours, theirs in ((layer.weight, of_torch.weight), (layer.bias, of_torch.bias)):
        assert ours.abs().max() <= 1 / 8 and ours.std().item() == pytest.approx(theirs.std().item(), rel=0.1)


@pytest.mark.parametrize("lead", [(), (B,), (2, B), (0,), (2, 0)])
@pytest.mark.parametrize(
    "settings, rest",
    [
        (dict(action_size=2), ()),
        (dict(action_size=2, n_quantiles=5), (5,)),
        (dict(output_size=4), (4,)),
        (dict(output_size=4, n_quantiles=5), (4, 5)),
        (dict(action_size=2, layer_norm=True, dropout=0.5, batch_renorm=True), ()),
    ],
)
def test_outputs_have_the_leading_dims_of_inputs_then_the_critics(settings, rest, lead):
    model = QEnsembleModel((3,), hidden_sizes=[8, 7], n_critics=N, **settings).eval()
    observation, action = torch.randn(*lead, 3), torch.randn(*lead, 2)
    inputs = (observation, None, None, action) if "action_size" in settings else (observation, None, None)
    assert model(*inputs).shape == (*lead, N, *rest)


@pytest.mark.parametrize(
    "settings",
    [dict(action_size=2), dict(output_size=4, n_quantiles=5), dict(action_size=2, layer_norm=True, dropout=0.5, batch_renorm=True)],
)
def test_some_critics_alone_are_those_of_all(settings):
    torch.manual_seed(0)
    model = QEnsembleModel((3,), hidden_sizes=[8, 7], n_critics=5, **settings)
    with torch.no_grad():  # Statistics and weights of no two critics are alike.
        for x in (*model.parameters(), *model.buffers()):
            x.add_(torch.rand_like(x))
    model.eval()
    observation, action = torch.randn(2, B, 3), torch.randn(2, B, 2)
    inputs = (observation, None, None, action) if "action_size" in settings else (observation, None, None)
    critics = torch.tensor([4, 1])
    torch.testing.assert_close(model(*inputs, critics=critics), model(*inputs)[:, :, critics])
    assert model(*inputs).shape[2] == 5


def test_each_critic_is_a_perceptron_with_layer_normalization():
    torch.manual_seed(0)
    model = QEnsembleModel((3,), [8, 7], action_size=2, n_critics=N, layer_norm=True)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn_like(p))
    observation, action = torch.randn(B, 3), torch.randn(B, 2)
    q = model(observation, None, None, action)
    first, norm1, _, second, norm2, _, last = model.mlp
    for i in range(N):
        x = torch.cat([observation, action], dim=1)
        for linear, norm in ((first, norm1), (second, norm2)):
            x = x @ linear.weight[i].T + linear.bias[i]
            x = (x - x.mean(1, keepdim=True)) / (x.var(1, keepdim=True, correction=0) + 1e-5).sqrt()
            x = (x * norm.weight[i] + norm.bias[i]).clamp(min=0)
        torch.testing.assert_close(q[:, i], (x @ last.weight[i].T + last.bias[i])[:, 0], rtol=1e-4, atol=1e-4)


def test_dropout_comes_before_layer_normalization_and_batch_renormalization_last():
    model = QEnsembleModel((3,), [8], action_size=2, dropout=0.1, layer_norm=True, batch_renorm=True)
    names = [type(layer).__name__ for layer in model.mlp]
    assert names == [
        "BatchRenorm", "EnsembleLinear", "Dropout", "EnsembleLayerNorm", "ReLU", "BatchRenorm", "EnsembleOutputLinear",
    ]  # fmt: skip


def test_policies_normalize_batches_if_asked_and_are_else_the_same_as_ever():
    torch.manual_seed(0)
    plain = PiMlpModel((3,), [8, 7], 2)
    torch.manual_seed(0)
    model = PiMlpModel((3,), [8, 7], 2, batch_renorm=True)
    assert [layer.running_mean.numel() for layer in model.mlp if isinstance(layer, BatchRenorm)] == [3, 8, 7]
    x = torch.randn(B, 3)
    mean, log_std = model(x, None, None)
    assert mean.shape == log_std.shape == (B, 2)
    linears = [[m for m in each.modules() if isinstance(m, torch.nn.Linear)] for each in (plain, model)]
    assert all(torch.equal(a.weight, b.weight) for a, b in zip(*linears, strict=True))
    assert not torch.allclose(mean, plain(x, None, None)[0])
    model.eval()  # Nearly the plain model, as long as the running statistics are 0 and 1.
    for layer in model.modules():
        if isinstance(layer, BatchRenorm):
            layer.running_mean.zero_(), layer.running_var.fill_(1 - 1e-3)
    torch.testing.assert_close(model(x, None, None), plain(x, None, None))


@pytest.mark.parametrize("batch_renorm", [False, True])
def test_a_policy_of_discrete_actions_has_probabilities(batch_renorm):
    model = PiCategoricalMlpModel((3,), [8], 4, batch_renorm=batch_renorm)
    assert [layer.running_mean.numel() for layer in model.modules() if isinstance(layer, BatchRenorm)] == ([3, 8] if batch_renorm else [])
    log_pi = model(torch.randn(2, B, 3), None, None)
    assert log_pi.shape == (2, B, 4)
    torch.testing.assert_close(log_pi.exp().sum(-1), torch.ones(2, B))


@pytest.mark.parametrize("p", thinned([0.02, 0.3, 0.9], quick=[0.3]))
@pytest.mark.parametrize("n_at_once", [1, None])  # Rounds of one distance, and nearly always one round.
def test_every_pattern_of_successes_has_its_probability(p, n_at_once):
    torch.manual_seed(0)
    n, n_draws = 3, 4000
    counts = Counter(tuple(places_of_successes(n, p, n_at_once).tolist()) for _ in range(n_draws))
    for pattern in (subset for size in range(n + 1) for subset in itertools.combinations(range(n), size)):
        probability = p ** len(pattern) * (1 - p) ** (n - len(pattern))
        assert abs(counts.pop(pattern, 0) - n_draws * probability) <= 5 * (n_draws * probability * (1 - probability)) ** 0.5 + 1
    assert not counts, "no other pattern"


@pytest.mark.parametrize("p, n, is_ours", [(0.01, 60_000, True), (0.1, 60_000, True), (0.5, 60_000, False), (0.01, 600, False)])
def test_dropout_leaves_out_values_and_their_gradients_and_scales_the_others(p, n, is_ours, monkeypatch):
    torch.manual_seed(0)
    sizes, draw = [], ensemble.places_of_successes
    monkeypatch.setattr(ensemble, "places_of_successes", lambda n, p: sizes.append(n) or draw(n, p))
    layer, x = Dropout(p), (torch.rand(4, 50, n // 200) + 1).transpose(1, 2).requires_grad_()
    y, g = layer(x), torch.rand(4, n // 200, 50)
    assert sizes == [n] * is_ours
    dropped = y == 0
    torch.testing.assert_close(y, torch.where(dropped, 0, x / (1 - p)))
    torch.testing.assert_close(torch.autograd.grad(y, x, g)[0], torch.where(dropped, 0, g / (1 - p)))
    assert abs(dropped.sum() - n * p) < 5 * (n * p * (1 - p)) ** 0.5
    assert not torch.equal(dropped, layer(x) == 0), "drawn anew"
    assert torch.equal(layer.eval()(x), x)


def test_dropout_can_be_differentiated_twice():
    layer, x = Dropout(0.01), torch.rand(2**15, dtype=torch.float64, requires_grad=True)
    y = layer(x)
    (grad,) = torch.autograd.grad((y**3).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(grad.sum(), x)
    torch.testing.assert_close(second, torch.where(y == 0, 0, 6 * x / 0.99**3))
