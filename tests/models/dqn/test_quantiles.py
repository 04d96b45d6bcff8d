import math

import pytest
import torch

from rlpyt.models.dqn.atari_iqn_model import AtariIqnModel
from rlpyt.models.dqn.mlp_iqn_model import MlpIqnModel
from rlpyt.models.dqn.quantiles import FractionEmbedding, QuantileHead

A = 3


def test_an_embedding_is_the_formula():
    torch.manual_seed(0)
    embedding, fractions = FractionEmbedding(5), torch.rand(2, 3)
    got = embedding(fractions)
    weight, bias = embedding.linear.weight.tolist(), embedding.linear.bias.tolist()
    for b in range(2):
        for n in range(3):
            for k in range(5):
                total = bias[k] + sum(weight[k][i] * math.cos(math.pi * i * fractions[b, n].item()) for i in range(64))
                assert got[b, n, k].item() == pytest.approx(max(0.0, total), abs=1e-5)


def test_a_head_sees_features_times_embeddings():
    torch.manual_seed(0)
    head = QuantileHead(torch.nn.Linear(5, A), 5)
    features, fractions = torch.randn(4, 5), torch.rand(4, 6)
    got = head(features, fractions)
    assert got.shape == (4, A, 6)
    for b in range(4):
        for n in range(6):
            torch.testing.assert_close(got[b, :, n], head.head(features[b] * head.embedding(fractions[b, n])))


@pytest.mark.parametrize("dueling", [False, True])
def test_the_default_network_for_images_is_that_of_the_paper_with_the_convolutions_of_dqn(dueling):
    model = AtariIqnModel((4, 104, 80), 6, dueling=dueling)
    features = 64 * 12 * 9
    shapes = {name: tuple(p.shape) for name, p in model.head.named_parameters()}
    assert shapes["embedding.linear.weight"] == (features, 64)
    hidden = {name for name, shape in shapes.items() if shape == (512, features)}
    assert len(hidden) == 1 + dueling


@pytest.mark.parametrize("hidden_sizes", [7, [7], [7, 6], None])
@pytest.mark.parametrize("dueling", [False, True])
def test_a_perceptron_multiplies_behind_its_first_hidden_layer(hidden_sizes, dueling):
    model = MlpIqnModel((4,), A, hidden_sizes, dueling)
    for B in (5, 0):
        assert model(torch.randn(2, B, 4), None, None, torch.rand(2, B, 8)).shape == (2, B, A, 8)
    assert model.first.output_size == (128 if hidden_sizes is None else 7) == model.head.embedding.linear.out_features


def test_numbers_are_encoded_one_hot():
    assert MlpIqnModel((), A, n_observations=9)(torch.tensor([0, 8]), None, None, torch.rand(4)).shape == (2, A, 4)
