import math

import pytest
import torch
from torch.distributions import Categorical as Reference
from torch.distributions import kl_divergence

from rlpyt.distributions.base import mean_entropy_and_perplexity
from rlpyt.distributions.categorical import Categorical, DistInfo


def random_info(*lead, dim=5, requires_grad=False):
    logits = torch.randn(*lead, dim, dtype=torch.float64, requires_grad=requires_grad)
    return DistInfo(torch.softmax(logits, dim=-1)), logits


@pytest.mark.parametrize("lead", [(), (3,), (2, 3)])
def test_formulas_agree_with_the_reference(lead):
    torch.manual_seed(0)
    dist, (old, _), (new, _) = Categorical(dim=5), random_info(*lead), random_info(*lead)
    actions = torch.randint(5, lead)
    p, q = Reference(probs=old.prob), Reference(probs=new.prob)
    close = dict(rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(dist.entropy(old), p.entropy(), **close)
    torch.testing.assert_close(dist.perplexity(old), p.entropy().exp(), **close)
    torch.testing.assert_close(dist.kl(old, new), kl_divergence(p, q), **close)
    torch.testing.assert_close(dist.log_likelihood(actions, old), p.log_prob(actions), **close)
    ratio = (q.log_prob(actions) - p.log_prob(actions)).exp()
    torch.testing.assert_close(dist.likelihood_ratio(actions, old, new), ratio, **close)


def test_means_ignore_what_is_invalid():
    dist, (old, _), (new, _) = Categorical(dim=5), random_info(4, 3), random_info(4, 3)
    valid = torch.tensor([[1.0, 1, 0], [1, 0, 0], [1, 1, 1], [0, 0, 0]])
    picked = valid.bool()
    for mean, each in [
        (dist.mean_kl(old, new, valid), dist.kl(old, new)),
        (dist.mean_entropy(old, valid), dist.entropy(old)),
        (dist.mean_perplexity(old, valid), dist.perplexity(old)),
    ]:
        torch.testing.assert_close(mean, each[picked].mean())
    torch.testing.assert_close(dist.mean_entropy(old), dist.entropy(old).mean())


def test_zero_probabilities_stay_finite_with_their_gradients():
    dist = Categorical(dim=3)
    logits = torch.tensor([[0.0, 0.0, -1e4]], requires_grad=True)
    info = DistInfo(torch.softmax(logits, dim=-1))
    other = DistInfo(torch.tensor([[0.0, 0.5, 0.5]]))
    out = dist.entropy(info) + dist.kl(info, other) + dist.log_likelihood(torch.tensor([2]), info)
    out = out + dist.likelihood_ratio(torch.tensor([2]), info, other)
    out.sum().backward()
    assert out.isfinite().all() and logits.grad.isfinite().all()


def test_entropy_of_the_uniform_distribution():
    assert Categorical(dim=4).entropy(DistInfo(torch.full((4,), 0.25))).item() == pytest.approx(math.log(4), abs=1e-6)


@pytest.mark.parametrize("scale", [1.0, 0.37, 12.0])
def test_values_are_drawn_as_often_as_their_probability_says(scale):
    torch.manual_seed(0)
    n, prob = 200_000, torch.tensor([[0.5, 0.0, 0.2, 0.3], [0.0, 0.001, 0.999, 0.0]])
    drawn = Categorical(dim=4).sample(DistInfo((scale * prob).expand(n, 2, 4)))
    assert drawn.shape == (n, 2) and drawn.dtype == torch.long
    for b in range(2):
        counts = torch.bincount(drawn[:, b], minlength=4).double()
        assert counts[prob[b] == 0].sum() == 0
        # Five standard deviations of a binomial count.
        assert ((counts - n * prob[b]).abs() <= 5 * (n * prob[b] * (1 - prob[b])).sqrt()).all()


@pytest.mark.parametrize("wrong", [[math.nan, 0.5, 0.5], [0.5, 0.5, math.nan], [0.0, 0.0, 0.0], [0.0, math.inf, 1.0]])
@pytest.mark.parametrize("lead", [(), (3,), (2, 3)])
def test_no_action_is_drawn_from_what_is_no_distribution(wrong, lead):
    prob = torch.full((*lead, 3), 1 / 3)
    prob.view(-1, 3)[-1] = torch.tensor(wrong)
    with pytest.raises(ValueError, match="No action can be drawn from probabilities .*lower the learning rate"):
        Categorical(dim=3).sample(DistInfo(prob))


def test_a_sample_for_nobody_is_empty():
    assert Categorical(dim=3).sample(DistInfo(torch.zeros(0, 3))).shape == (0,)


def test_a_certain_value_is_always_drawn():
    prob = torch.eye(6).repeat(2000, 1)
    assert torch.equal(Categorical(dim=6).sample(DistInfo(prob)), prob.argmax(-1))


@pytest.mark.parametrize("lead", [(), (3,), (2, 3)])
def test_samples_keep_leading_dims_and_repeat_with_the_seed(lead):
    dist, (info, _) = Categorical(dim=5), random_info(*lead)
    torch.manual_seed(3)
    first = dist.sample(info)
    torch.manual_seed(3)
    assert first.shape == lead and torch.equal(first, dist.sample(info))


def test_one_hot_and_back():
    dist = Categorical(dim=4, dtype=torch.int32)
    indexes = torch.tensor([[0, 3], [2, 1]])
    onehot = dist.to_onehot(indexes)
    assert onehot.shape == (2, 2, 4) and onehot.dtype == torch.float
    assert dist.to_onehot(indexes, dtype=torch.bool).dtype == torch.bool
    assert dist.from_onehot(onehot).dtype == torch.int32
    assert torch.equal(dist.from_onehot(onehot, dtype=torch.long), indexes)
    assert dist.dim == 4 and dist.sample(DistInfo(onehot)).dtype == torch.int32


def test_entropy_and_perplexity_together_are_what_their_methods_say():
    class Scaled(Categorical):
        def mean_perplexity(self, dist_info, valid=None):
            return 100 * super().mean_perplexity(dist_info, valid)

        def entropy(self, dist_info):
            return 3 * super().entropy(dist_info)

    info = DistInfo(torch.softmax(torch.randn(6, 4), dim=-1).requires_grad_())
    for dist in (Categorical(4), Scaled(4)):
        for valid in (None, torch.tensor([1.0, 0, 1, 1, 0, 1])):
            entropy, perplexity = mean_entropy_and_perplexity(dist, info, valid)
            torch.testing.assert_close(entropy, dist.mean_entropy(info, valid), rtol=0, atol=0)
            torch.testing.assert_close(perplexity, dist.mean_perplexity(info, valid).detach(), rtol=0, atol=0)
            assert entropy.requires_grad and not perplexity.requires_grad
