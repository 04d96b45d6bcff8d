import pytest
import torch

from rlpyt.models.mlp import MlpModel
from rlpyt.models.qpg.mlp import MuMlpModel, PiMlpModel, QofMuMlpModel, VMlpModel, q_values

LEADS = [(), (3,), (2, 3), (0,), (2, 0)]


def inputs(*lead, shape=(4,)):
    return torch.randn((*lead, *shape)), torch.zeros(*lead, 2), torch.zeros(lead)


@pytest.mark.parametrize("lead", LEADS)
@pytest.mark.parametrize("shape", [(4,), (), (2, 3)])
def test_outputs_have_the_leading_dimensions_of_observations_of_any_shape(lead, shape):
    settings = dict(observation_shape=shape, hidden_sizes=[8, 8], action_size=2)
    batch = inputs(*lead, shape=shape)
    assert MuMlpModel(**settings)(*batch).shape == (*lead, 2)
    assert [x.shape for x in PiMlpModel(**settings)(*batch)] == [(*lead, 2)] * 2
    assert QofMuMlpModel(**settings)(*batch, torch.randn(*lead, 2)).shape == lead
    assert VMlpModel(**settings)(*batch).shape == lead
    assert VMlpModel(shape, 8)(*batch).shape == lead


def test_models_are_perceptrons_of_observation_and_action():
    o, a, r = inputs(5)
    mu, pi, q = MuMlpModel((4,), [8], 2, output_max=3), PiMlpModel((4,), [8, 8], 2), QofMuMlpModel((4,), [8, 8], 2)
    torch.testing.assert_close(mu(o, a, r), 3 * torch.tanh(mu.mlp(o)))
    torch.testing.assert_close(torch.cat(pi(o, a, r), -1), pi.mlp(o))
    torch.testing.assert_close(q(o, a, r, a + 1), q.mlp(torch.cat([o, a + 1], -1)).squeeze(-1))
    assert all(isinstance(model.mlp, MlpModel) for model in (mu, pi, q))
    assert mu(100 * o, a, r).abs().max() <= 3


@pytest.mark.parametrize("Cls", [MuMlpModel, PiMlpModel, VMlpModel])
def test_outputs_are_the_same_bits_with_any_leading_dimensions_with_and_without_gradient(Cls):
    model, batch = Cls((4,), [8, 8], 2), inputs(5)

    def outputs(*batch):
        out = model(*batch)
        return torch.stack(out) if isinstance(out, tuple) else out

    expected = outputs(*batch)
    for grad in (True, False):
        with torch.set_grad_enabled(grad):
            assert torch.equal(outputs(*batch), expected)
            assert torch.equal(outputs(*(x[None] for x in batch)).view_as(expected), expected)


def test_observations_of_another_kind_are_made_vectors_and_hooks_are_called():
    model = VMlpModel((4,), [8], None)
    observation = torch.randint(256, (5, 4), dtype=torch.uint8)
    expected = model(observation.float() / 255, None, None)
    torch.testing.assert_close(model(observation, None, None), expected)
    torch.testing.assert_close(model(observation.double() / 255, None, None), expected)
    seen = []
    model.observation.register_forward_hook(lambda *args: seen.append(args))
    model(observation.float(), None, None)
    assert len(seen) == 1
    image = VMlpModel((2, 3), [8], None)
    assert image(torch.zeros(2, 3), None, None).shape == ()  # No leading dimensions, and not a batch of vectors.


class Doubling(torch.nn.Module):
    def forward(self, x):
        return 2 * x


def replace(model, i, module):
    model.mlp.model[i] = module


CHANGES = {
    "another perceptron": lambda model: setattr(model, "mlp", MlpModel(6, [8, 8], 1, nonlinearity=torch.nn.Tanh)),
    "another nonlinearity": lambda model: replace(model, 1, torch.nn.Tanh()),
    "another layer": lambda model: replace(model, 2, torch.nn.Linear(8, 8)),
    "normalization": lambda model: model.mlp.model.insert(1, torch.nn.LayerNorm(8)),
    "a layer without bias": lambda model: setattr(model.mlp.model[2], "bias", None),
    "parametrization": lambda model: torch.nn.utils.parametrize.register_parametrization(model.mlp.model[2], "weight", Doubling()),
    "a hook": lambda model: model.mlp.model[1].register_forward_hook(lambda module, args, out: 2 * out),
    "no ReLU in the end": lambda model: model.mlp.model.append(torch.nn.ReLU()),
    "the same layers": lambda model: setattr(model, "mlp", MlpModel(6, [8, 8], 1)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_perceptron_is_what_computes(change):
    """`mlp` itself, called as a module, is the oracle."""
    models = [QofMuMlpModel((4,), [8, 8], 2) for _ in range(2)]
    CHANGES[change](models[1])
    o, a, r = inputs(5)
    results = []
    for compute in (
        lambda: q_values(models, o, a, r, a + 1),
        lambda: [model(o, a, r, a + 1) for model in models],
        lambda: [model.mlp(torch.cat([o, a + 1], -1)).squeeze(-1) for model in models],
    ):
        q = compute()
        grads = torch.autograd.grad(sum(x.square().sum() for x in q), [p for model in models for p in model.parameters()])
        results.append([list(q), grads])
    torch.testing.assert_close(results[0], results[2])
    torch.testing.assert_close(results[1], results[2])


def test_models_of_different_depth_are_computed_in_turn():
    models = [QofMuMlpModel((4,), sizes, 2) for sizes in ([8, 8], [8], [6, 7])]
    batch = *inputs(3), torch.randn(3, 2)
    torch.testing.assert_close(list(q_values(models, *batch)), [model(*batch) for model in models])


def test_models_can_be_vectorized():
    models = [QofMuMlpModel((4,), [8, 8], 2) for _ in range(3)]
    parameters, buffers = torch.func.stack_module_state(models)
    batch = *inputs(5), torch.randn(5, 2)
    together = torch.func.vmap(lambda p, b: torch.func.functional_call(models[0], (p, b), batch))(parameters, buffers)
    torch.testing.assert_close(list(together), [model(*batch) for model in models])


@pytest.mark.parametrize("lead", LEADS)
def test_q_of_several_models_is_that_of_each(lead):
    models = [QofMuMlpModel((4,), [8, 8], 2) for _ in range(2)]
    batch = *inputs(*lead), torch.randn(*lead, 2)
    for got, model in zip(q_values(models, *batch), models, strict=True):
        torch.testing.assert_close(got, model(*batch))
        assert got.shape == lead


def test_q_of_a_model_of_ones_own_comes_from_its_forward():
    class Negative(QofMuMlpModel):
        def forward(self, *args):
            return -super().forward(*args)

    models = [Negative((4,), [8], 2), QofMuMlpModel((4,), [8], 2)]
    batch = *inputs(3), torch.randn(3, 2)
    for got, model in zip(q_values(models, *batch), models, strict=True):
        assert torch.equal(got, model(*batch))


def test_models_can_be_copied_and_compiled_code_sees_plain_layers():
    import copy

    model = PiMlpModel((4,), [8], 2)
    twin = copy.deepcopy(model)
    with torch.no_grad():
        for p in model.parameters():
            p.zero_()
    assert torch.cat(model(*inputs(3)), -1).eq(0).all() and not torch.cat(twin(*inputs(3)), -1).eq(0).all()
    twin.load_state_dict(model.state_dict())
    assert torch.cat(twin(*inputs(3)), -1).eq(0).all()
