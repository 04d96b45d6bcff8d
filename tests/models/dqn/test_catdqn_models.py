import pytest
import torch

from rlpyt.models.dqn.atari_catdqn_model import AtariCatDqnModel, DistributionalHeadModel
from rlpyt.models.dqn.dueling import DistributionalDuelingHeadModel, DuelingHeadModel
from rlpyt.models.dqn.heads import atoms
from rlpyt.models.dqn.mlp_catdqn_model import MlpCatDqnModel
from rlpyt.models.dqn.mlp_dqn_model import MlpDqnModel

A, P = 3, 5
CONVOLUTIONS = [(32, 4, 8, 8), (32,), (64, 32, 4, 4), (64,), (64, 64, 3, 3), (64,)]
FEATURES = 64 * 12 * 9


@pytest.mark.parametrize("dueling", [False, True])
def test_the_default_network_is_the_documented_one(dueling):
    model = AtariCatDqnModel(image_shape=(4, 104, 80), output_size=6, dueling=dueling)
    hidden = [(512, FEATURES), (512,)]
    head = [*hidden, (6 * 51, 512), (6 * 51,)]
    dueling_head = [(51,), *hidden, (6 * 51, 512), *hidden, (51, 512), (51,)]
    assert sorted(tuple(p.shape) for p in model.parameters()) == sorted(CONVOLUTIONS + (dueling_head if dueling else head))


@pytest.mark.parametrize("lead", [(), (3,), (2, 3), (0,), (2, 0)])
@pytest.mark.parametrize("dueling", [False, True])
@pytest.mark.parametrize("images", [False, True])
def test_probabilities_sum_to_one_over_atoms_whatever_the_leading_dims(images, dueling, lead):
    if images:
        conv = dict(channels=[4], kernel_sizes=[4], strides=[2], paddings=[0])
        model = AtariCatDqnModel((2, 12, 12), A, n_atoms=P, fc_sizes=6, dueling=dueling, **conv)
        observation = torch.randint(0, 256, (*lead, 2, 12, 12), dtype=torch.uint8)
    else:
        model, observation = MlpCatDqnModel((4,), A, n_atoms=P, hidden_sizes=[7, 6], dueling=dueling), torch.randn(*lead, 4)
    p = model(observation, None, None)
    assert p.shape == (*lead, A, P) and (p > 0).all()
    torch.testing.assert_close(p.sum(-1), torch.ones(*lead, A))
    whole = model(observation.reshape(-1, *observation.shape[len(lead) :]), None, None)
    torch.testing.assert_close(whole.reshape(p.shape), p)


def test_dueling_logits_are_the_value_and_advantages_without_their_mean():
    torch.manual_seed(0)
    head, x = DistributionalDuelingHeadModel(4, [7], A, P), torch.randn(6, 4)
    head.advantage_bias.data.normal_()
    value, advantage, logits = head.value(x), head.advantage(x), head(x)
    assert advantage.shape == (6, A, P)
    for a in range(A):
        torch.testing.assert_close(logits[:, a], value + advantage[:, a] - sum(advantage[:, i] for i in range(A)) / A)


def test_dueling_streams_scale_the_gradient_they_pass_on():
    torch.manual_seed(0)
    x = torch.randn(6, 4, requires_grad=True)
    grads = {}
    for scale in (1.0, 0.5):
        torch.manual_seed(1)
        head = DistributionalDuelingHeadModel(4, 7, A, P, grad_scale=scale)
        (grads[scale],) = torch.autograd.grad(head(x).square().sum(), x)
    torch.testing.assert_close(grads[0.5], 0.5 * grads[1.0])


def test_one_atom_is_a_q_value():
    torch.manual_seed(0)
    plain, one = DuelingHeadModel(4, [7], A), DistributionalDuelingHeadModel(4, [7], A, 1)
    one.load_state_dict(plain.state_dict())
    x = torch.randn(6, 4)
    assert torch.equal(plain(x), one(x).squeeze(-1)) and torch.equal(plain.advantage(x), one.advantage(x).squeeze(-1))


def test_the_plain_head_has_logits_for_every_action():
    head = DistributionalHeadModel(4, [7], A, P)
    assert head(torch.randn(6, 4)).shape == (6, A, P)
    assert [tuple(p.shape) for p in head.parameters()] == [(7, 4), (7,), (A * P, 7), (A * P,)]


def test_numbers_are_encoded_one_hot():
    assert MlpCatDqnModel((), A, n_atoms=P, n_observations=9)(torch.tensor([0, 8]), None, None).shape == (2, A, P)


@pytest.mark.parametrize("hidden_sizes", [[], [7], 7])
def test_a_dueling_perceptron_may_have_any_number_of_hidden_layers(hidden_sizes):
    settings = dict(observation_shape=(4,), output_size=A, hidden_sizes=hidden_sizes, dueling=True)
    x = torch.randn(6, 4)
    assert MlpDqnModel(**settings)(x, None, None).shape == (6, A)
    p = MlpCatDqnModel(n_atoms=P, **settings)(x, None, None)
    assert p.shape == (6, A, P)
    torch.testing.assert_close(p.sum(-1), torch.ones(6, A))


@pytest.mark.parametrize("dueling", [False, True])
def test_the_model_of_q_values_gives_the_logits(dueling):
    torch.manual_seed(0)
    settings = dict(observation_shape=(4,), output_size=A, n_atoms=P, dueling=dueling)
    logits, probabilities = MlpDqnModel(**settings), MlpCatDqnModel(**settings)
    probabilities.load_state_dict(logits.state_dict())
    x = torch.randn(6, 4)
    torch.testing.assert_close(logits(x, None, None).softmax(-1), probabilities(x, None, None))


def test_atoms_are_evenly_spaced():
    assert atoms(-1, 1, 5).tolist() == [-1, -0.5, 0, 0.5, 1]
    assert atoms(0, 3, 4, like=torch.zeros(1, dtype=torch.float64)).dtype == torch.float64
