import pytest
import torch

from rlpyt.distributions.epsilon_greedy import CategoricalEpsilonGreedy, EpsilonGreedy


def test_without_epsilon_the_best_action_is_taken():
    q = torch.randn(7, 3, 5)
    assert torch.equal(EpsilonGreedy(dim=5, epsilon=0).sample(q), q.argmax(-1))
    assert EpsilonGreedy(dim=5, epsilon=0).sample(q[0, 0]).shape == ()


def test_each_environment_explores_as_often_as_its_epsilon_says():
    torch.manual_seed(0)
    epsilon, T, dim = torch.tensor([0.0, 0.1, 1.0]), 60_000, 4
    dist = EpsilonGreedy(dim=dim)
    dist.set_epsilon(epsilon)
    q = torch.tensor([0.0, 0, 1, 0]).expand(T, 3, dim)
    action = dist.sample(q)
    for b in range(3):
        frequency = torch.bincount(action[:, b], minlength=dim) / T
        expected = torch.full((dim,), epsilon[b].item() / dim)
        expected[2] += 1 - epsilon[b]
        assert ((frequency - expected).abs() <= 5 * (expected * (1 - expected) / T).sqrt() + 1e-9).all()


def test_one_step_of_a_batch_takes_the_same_epsilons():
    dist = EpsilonGreedy(dim=2, epsilon=torch.tensor([0.0, 1.0]))
    actions = torch.stack([dist.sample(torch.tensor([[0.0, 1.0], [0.0, 1.0]])) for _ in range(200)])
    assert (actions[:, 0] == 1).all() and 0 < actions[:, 1].float().mean() < 1


def test_the_value_of_an_action_is_the_mean_of_its_distribution():
    torch.manual_seed(0)
    z = torch.tensor([-1.0, 0.0, 5.0])
    p = torch.softmax(torch.randn(7, 3, 4, 3), -1)
    for lead in (p, p[0], p[0, 0]):
        means = sum(z[i] * lead[..., i] for i in range(3))
        assert torch.equal(CategoricalEpsilonGreedy(z=z, dim=4, epsilon=0).sample(lead), means.argmax(-1))
    dist = CategoricalEpsilonGreedy(dim=4, epsilon=0)
    dist.set_z(-z)
    assert torch.equal(dist.sample(p), (p @ -z).argmax(-1))
    assert torch.equal(dist.sample(p, z), (p @ z).argmax(-1))


def test_distributions_are_explored_like_values():
    torch.manual_seed(0)
    dist = CategoricalEpsilonGreedy(dim=2, epsilon=torch.tensor([0.0, 1.0]), z=torch.tensor([0.0, 1.0]))
    actions = dist.sample(torch.tensor([[0.9, 0.1], [0.1, 0.9]]).expand(200, 2, 2, 2))
    assert (actions[:, 0] == 1).all() and 0.3 < actions[:, 1].float().mean() < 0.7


def test_atoms_without_values_are_refused():
    with pytest.raises(ValueError, match="The atoms have no values"):
        CategoricalEpsilonGreedy(dim=2).sample(torch.ones(2, 3))


class OfAUser(EpsilonGreedy):
    def set_epsilon(self, epsilon):
        self._epsilon = epsilon


@pytest.mark.parametrize("assign", [lambda d: d.set_epsilon(0.0), lambda d: setattr(d, "_epsilon", 0.0)])
def test_an_epsilon_that_a_subclass_assigns_is_the_one_that_counts(assign):
    distribution = OfAUser(dim=3, epsilon=1.0)
    assign(distribution)
    assert distribution.epsilon == 0 and distribution.sample(torch.eye(3).repeat(50, 1)).tolist() == [0, 1, 2] * 50
