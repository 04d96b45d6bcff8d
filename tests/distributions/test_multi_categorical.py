"""Independent integers, against a product of separate categorical distributions."""

import pickle

import numpy as np
import pytest
import torch

from rlpyt.distributions.base import mean_entropy_and_perplexity
from rlpyt.distributions.categorical import Categorical, DistInfo
from rlpyt.distributions.multi_categorical import MultiCategorical

SIZES = {"unequal": [3, 2, 4], "equal": [2, 2, 2], "one": [5], "a table": [[2, 3], [4, 5]], "a number": 4}
LEADS = [(), (4,), (2, 4)]


@pytest.fixture(params=SIZES)
def case(request):
    nvec = np.array(SIZES[request.param])
    return MultiCategorical(nvec), nvec


def logits(dist, *lead, seed=0):
    return torch.randn(*lead, dist.dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def separate(nvec, dist_info):
    """One Categorical for each integer, with its probabilities."""
    sizes = nvec.ravel().tolist()
    return [(Categorical(n), DistInfo(prob)) for n, prob in zip(sizes, dist_info.prob.split(sizes, dim=-1))]


@pytest.mark.parametrize("lead", LEADS)
def test_each_integer_has_probabilities_that_sum_to_one(case, lead):
    dist, nvec = case
    x = logits(dist, *lead)
    prob = dist.prob_of(x)
    expected = [part.softmax(-1) for part in x.split(nvec.ravel().tolist(), dim=-1)]
    torch.testing.assert_close(prob, torch.cat(expected, dim=-1))


@pytest.mark.parametrize("lead", LEADS)
def test_samples_are_arrays_in_range_with_all_leading_dimensions(case, lead):
    dist, nvec = case
    sample = dist.sample(DistInfo(dist.prob_of(logits(dist, *lead))))
    assert sample.shape == (*lead, *nvec.shape) and sample.dtype is torch.long
    assert (sample >= 0).all() and (sample < torch.from_numpy(nvec)).all()


def test_values_are_drawn_as_often_as_they_should_be():
    torch.manual_seed(0)
    dist = MultiCategorical([3, 2])
    prob = torch.tensor([0.2, 0.0, 0.8, 0.4, 0.6])
    sample = dist.sample(DistInfo(prob.expand(20_000, 5)))
    drawn = torch.stack([(sample[:, 0] == a) & (sample[:, 1] == b) for a in range(3) for b in range(2)]).float().mean(1)
    expected = torch.outer(prob[:3], prob[3:]).flatten()
    torch.testing.assert_close(drawn, expected, atol=0.02, rtol=0)
    assert (sample[:, 0] != 1).all()


@pytest.mark.parametrize("lead", LEADS)
def test_formulas_are_sums_over_separate_distributions(case, lead):
    dist, nvec = case
    old, new = (DistInfo(dist.prob_of(logits(dist, *lead, seed=seed))) for seed in (1, 2))
    x = dist.sample(old)
    flat = x.reshape(*lead, nvec.size)
    parts = list(zip(separate(nvec, old), separate(nvec, new)))
    torch.testing.assert_close(dist.entropy(old), sum(one.entropy(info) for (one, info), _ in parts))
    torch.testing.assert_close(dist.kl(old, new), sum(one.kl(info, other) for (one, info), (_, other) in parts))
    log_likelihood = sum(one.log_likelihood(flat[..., k], info) for k, ((one, info), _) in enumerate(parts))
    torch.testing.assert_close(dist.log_likelihood(x, old), log_likelihood)
    ratio = torch.ones(lead, dtype=torch.float64)
    for k, ((one, info), (_, other)) in enumerate(parts):
        ratio = ratio * one.likelihood_ratio(flat[..., k], info, other)
    torch.testing.assert_close(dist.likelihood_ratio(x, old_dist_info=old, new_dist_info=new), ratio)


@pytest.mark.parametrize("lead", LEADS)
def test_encodings_are_one_hots_in_a_row_and_turn_back(case, lead):
    dist, nvec = case
    x = dist.sample(DistInfo(dist.prob_of(logits(dist, *lead))))
    onehot = dist.to_onehot(x)
    flat = x.reshape(*lead, nvec.size)
    expected = [torch.nn.functional.one_hot(flat[..., k], n) for k, n in enumerate(nvec.ravel().tolist())]
    assert torch.equal(onehot, torch.cat(expected, dim=-1).float())
    assert torch.equal(dist.from_onehot(onehot), x)


def test_gradients_are_finite_where_a_probability_is_zero():
    dist = MultiCategorical([3, 2])
    prob = torch.tensor([0.2, 0.0, 0.8, 0.4, 0.6], requires_grad=True)
    info = DistInfo(prob)
    (dist.entropy(info) + dist.log_likelihood(torch.tensor([2, 0]), info) + dist.kl(info, info)).backward()
    assert prob.grad.isfinite().all() and prob.grad[[0, 2, 3, 4]].all()


def test_it_can_be_sent_to_other_processes():
    dist = MultiCategorical(SIZES["a table"], dtype=torch.int8)
    info = DistInfo(dist.prob_of(logits(dist, 3)))
    x = dist.sample(info)
    assert x.dtype is torch.int8
    assert torch.equal(pickle.loads(pickle.dumps(dist)).log_likelihood(x, info), dist.log_likelihood(x, info))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("valid", [None, torch.tensor([1.0, 1, 0, 1, 0])])
def test_the_perplexity_of_many_integers_is_finite(dtype, valid):
    """So are means over valid data, where infinity times zero would be NaN, and standard deviations of what is logged."""
    dist = MultiCategorical([2] * 2000)  # 1386 nats.
    info = DistInfo(dist.prob_of(torch.zeros(5, dist.dim, dtype=dtype)).requires_grad_())
    valid = None if valid is None else valid.to(dtype)
    entropy, perplexity = mean_entropy_and_perplexity(dist, info, valid)
    assert perplexity.dtype == dtype and perplexity.item() == pytest.approx(torch.finfo(dtype).max, rel=0.1)
    assert torch.equal(perplexity, dist.mean_perplexity(info, valid).detach())
    dist.perplexity(info).sum().backward()
    assert torch.isfinite(info.prob.grad).all() and torch.isfinite(entropy)
    if dtype == torch.float32:
        assert np.std([perplexity.item(), perplexity.item() / 2]) < np.inf


def test_a_perplexity_that_is_a_number_is_the_exponential_of_the_entropy():
    dist = MultiCategorical([2] * 127)  # 88.03 nats; the next bit is too much.
    info = DistInfo(dist.prob_of(torch.zeros(3, dist.dim)))
    assert torch.equal(dist.perplexity(info), torch.exp(dist.entropy(info))) and torch.isfinite(dist.perplexity(info)).all()
