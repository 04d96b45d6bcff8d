import pytest
import torch

from rlpyt.models.mlp import MlpModel
from rlpyt.models.qpg.mlp import MuMlpModel, PiMlpModel, QofMuMlpModel, VMlpModel, q_values

LEADS = [(), (3,), (2, 3)]


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
