import math

import pytest
import torch

from rlpyt.models.dqn.atari_catdqn_model import AtariCatDqnModel
from rlpyt.models.dqn.atari_dqn_model import AtariDqnModel
from rlpyt.models.dqn.atari_iqn_model import AtariIqnModel
from rlpyt.models.dqn.atari_r2d1_model import AtariR2d1Model
from rlpyt.models.dqn.mlp_catdqn_model import MlpCatDqnModel
from rlpyt.models.dqn.mlp_dqn_model import MlpDqnModel
from rlpyt.models.dqn.mlp_iqn_model import MlpIqnModel
from rlpyt.models.dqn.mlp_r2d1_model import MlpR2d1Model
from rlpyt.models.dqn.noisy import NoisyLinear, make_noisy, set_noise

SMALL = dict(image_shape=(2, 12, 12), channels=[4], kernel_sizes=[4], strides=[2], paddings=[0])
MODELS = {
    "dqn": (AtariDqnModel, dict(SMALL, fc_sizes=6)),
    "catdqn": (AtariCatDqnModel, dict(SMALL, fc_sizes=6)),
    "r2d1": (AtariR2d1Model, dict(SMALL, fc_size=6, lstm_size=5, head_size=4)),
    "iqn": (AtariIqnModel, dict(SMALL, fc_sizes=6)),
    "mlp_dqn": (MlpDqnModel, dict(observation_shape=(4,), hidden_sizes=[7, 6])),
    "mlp_catdqn": (MlpCatDqnModel, dict(observation_shape=(4,), hidden_sizes=[7, 6])),
    "mlp_iqn": (MlpIqnModel, dict(observation_shape=(4,), hidden_sizes=[7, 6])),
    "mlp_r2d1": (MlpR2d1Model, dict(observation_shape=(4,), lstm_size=5, head_size=4)),
}


def make(name, **kwargs):
    ModelCls, settings = MODELS[name]
    return ModelCls(output_size=3, noisy=True, **settings, **kwargs)


def inputs(name):
    observation = torch.rand(5, 4) if name.startswith("mlp") else torch.randint(0, 256, (5, 2, 12, 12), dtype=torch.uint8)
    others = [None] if "r2d1" in name else [torch.rand(5, 4)] if "iqn" in name else []  # A state, or fractions.
    return observation, torch.zeros(5, 3), torch.zeros(5), *others


def first(outputs):
    return outputs[0] if isinstance(outputs, tuple) else outputs


def test_a_forward_pass_is_the_formula():
    torch.manual_seed(0)
    layer, x = NoisyLinear(4, 3), torch.randn(6, 4)
    torch.manual_seed(5)
    y = layer(x)
    torch.manual_seed(5)
    noise = torch.randn(7)
    f = [math.copysign(math.sqrt(abs(e)), e) for e in noise.tolist()]
    for n in range(6):
        for i in range(3):
            total = layer.bias[i] + layer.bias_sigma[i] * f[4 + i]
            for j in range(4):
                total = total + (layer.weight[i, j] + layer.weight_sigma[i, j] * f[4 + i] * f[j]) * x[n, j]
            assert y[n, i].item() == pytest.approx(total.item(), abs=1e-5)


def test_it_starts_as_in_the_paper():
    torch.manual_seed(0)
    layer = NoisyLinear(64, 500)
    for mean in (layer.weight, layer.bias):
        assert mean.abs().max() <= 1 / 8 and mean.std().item() == pytest.approx(1 / 8 / math.sqrt(3), rel=0.1)
    for sigma in (layer.weight_sigma, layer.bias_sigma):
        assert sigma.unique().tolist() == [0.5 / 8]


def test_noise_has_its_own_gradient_and_averages_out():
    torch.manual_seed(0)
    layer, x = NoisyLinear(4, 2), torch.randn(3, 4)
    layer(x).sum().backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in layer.parameters())
    with torch.no_grad():
        mean = torch.stack([layer(x) for _ in range(20_000)]).mean(0)
        layer.is_noisy = False
        torch.testing.assert_close(mean, layer(x), atol=0.03, rtol=0)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("dueling", [False, True])
def test_models_are_noisy_when_asked_and_their_state_holds_no_noise(name, dueling):
    torch.manual_seed(0)
    model, batch = make(name, dueling=dueling), inputs(name)
    parts = [getattr(model, part) for part in ("first", "head") if hasattr(model, part)]
    embedding = [model.head.embedding.linear] if "iqn" in name else []
    assert [layer for part in parts for layer in part.modules() if isinstance(layer, torch.nn.Linear)] == embedding
    before = {key: value.clone() for key, value in model.state_dict().items()}
    assert not torch.equal(first(model(*batch)), first(model(*batch)))
    for part in parts:
        set_noise(model, False)
        set_noise(part, True)
        assert not torch.equal(first(model(*batch)), first(model(*batch))), "each part has noise"
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert set(before) == {key for key, _ in model.named_parameters()}
    set_noise(model, False)
    assert torch.equal(first(model(*batch)), first(model(*batch)))
    plain = MODELS[name][0](output_size=3, dueling=dueling, **MODELS[name][1])
    plain.load_state_dict({key: value for key, value in before.items() if "sigma" not in key})
    torch.testing.assert_close(first(model(*batch)), first(plain(*batch)))


def test_a_layer_without_bias_remains_without():
    model = make_noisy(torch.nn.Sequential(torch.nn.Linear(3, 2, bias=False), torch.nn.Tanh()))
    assert [tuple(p.shape) for p in model.parameters()] == [(2, 3), (2, 3)]
    assert model(torch.randn(4, 3)).shape == (4, 2)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_dtypes(dtype):
    assert NoisyLinear(3, 2).to(dtype)(torch.ones(4, 3, dtype=dtype)).dtype is dtype
