"""Products of independent distributions, against sums over their parts written out."""

import math
import pickle

import pytest
import torch

from rlpyt.distributions.categorical import Categorical, DistInfo
from rlpyt.distributions.composite import Composite, encode, leaves
from rlpyt.distributions.gaussian import DistInfoStd, Gaussian
from rlpyt.utils.collections import dynamic_namedtuple

Inner = dynamic_namedtuple("Inner", ["kind", "force"])
Action = dynamic_namedtuple("Action", ["move", "tool"])
DISTRIBUTION = Composite([Gaussian(2), Composite([Categorical(3), Gaussian(1)], Inner)], Action)


def dist_info(*lead, seed=0):
    generator = torch.Generator().manual_seed(seed)

    def normal(n):
        return torch.randn(*lead, n, generator=generator, dtype=torch.float64)

    inner = DISTRIBUTION.parts[1].DistInfoCls(DistInfo(normal(3).softmax(-1)), DistInfoStd(normal(1), normal(1)))
    return DISTRIBUTION.DistInfoCls(DistInfoStd(normal(2), normal(2)), inner)


def normal_log_density(x, mean, log_std):
    return -0.5 * ((x - mean) / math.exp(log_std)) ** 2 - log_std - 0.5 * math.log(2 * math.pi)


@pytest.mark.parametrize("lead", [(), (4,), (2, 4)])
def test_samples_are_of_the_spaces_type_and_have_all_leading_dimensions(lead):
    action = DISTRIBUTION.sample(dist_info(*lead))
    assert type(action) is Action and type(action.tool) is Inner
    assert action.move.shape == (*lead, 2) and action.tool.kind.shape == lead and action.tool.force.shape == (*lead, 1)
    assert action.tool.kind.dtype is torch.long
    info = dist_info(*lead)
    for result in (DISTRIBUTION.log_likelihood(action, info), DISTRIBUTION.entropy(info), DISTRIBUTION.kl(info, info)):
        assert result.shape == lead


def test_the_log_likelihood_is_the_sum_over_all_numbers():
    info = dist_info(5)
    action = DISTRIBUTION.sample(info)
    log_likelihood = DISTRIBUTION.log_likelihood(action, info)
    for b in range(5):
        expected = math.log(info.tool.kind.prob[b, action.tool.kind[b]])
        expected += normal_log_density(action.tool.force[b, 0], info.tool.force.mean[b, 0], info.tool.force.log_std[b, 0])
        for i in range(2):
            expected += normal_log_density(action.move[b, i], info.move.mean[b, i], info.move.log_std[b, i])
        assert log_likelihood[b].item() == pytest.approx(float(expected), rel=1e-6)


def test_likelihood_ratios_multiply():
    old, new = dist_info(5), dist_info(5, seed=1)
    action = DISTRIBUTION.sample(old)
    inner = DISTRIBUTION.parts[1]
    expected = (
        DISTRIBUTION.parts[0].likelihood_ratio(action.move, old.move, new.move)
        * inner.parts[0].likelihood_ratio(action.tool.kind, old.tool.kind, new.tool.kind)
        * inner.parts[1].likelihood_ratio(action.tool.force, old.tool.force, new.tool.force)
    )
    torch.testing.assert_close(DISTRIBUTION.likelihood_ratio(action, old_dist_info=old, new_dist_info=new), expected)


def test_entropies_and_divergences_are_the_mean_of_log_likelihoods():
    torch.manual_seed(0)
    old, new = dist_info(), dist_info(seed=1)
    many_old, many_new = repeat(old, 200_000), repeat(new, 200_000)
    action = DISTRIBUTION.sample(many_old)
    log_old, log_new = DISTRIBUTION.log_likelihood(action, many_old), DISTRIBUTION.log_likelihood(action, many_new)
    assert DISTRIBUTION.entropy(old).item() == pytest.approx(-log_old.mean().item(), rel=0.02)
    assert DISTRIBUTION.kl(old, new).item() == pytest.approx((log_old - log_new).mean().item(), rel=0.02)
    assert DISTRIBUTION.perplexity(old).item() == pytest.approx(math.exp(DISTRIBUTION.entropy(old)))


def repeat(info, n):
    if isinstance(info, tuple):
        return info._make(repeat(part, n) for part in tuple(info))
    return info.expand(n, *info.shape)


def test_means_are_over_valid_data_only():
    info = dist_info(2, 4)
    valid = torch.tensor([[1, 1, 0, 1], [1, 0, 0, 0]])
    expected = DISTRIBUTION.entropy(info)[valid.bool()].mean()
    torch.testing.assert_close(DISTRIBUTION.mean_entropy(info, valid), expected)


def test_encoded_actions_are_one_hot_where_they_are_discrete():
    action = Action(torch.tensor([[0.5, -0.5], [1.0, 2.0]]), Inner(torch.tensor([2, 0]), torch.tensor([[7.0], [8.0]])))
    assert encode(DISTRIBUTION, action).tolist() == [[0.5, -0.5, 0, 0, 1, 7.0], [1.0, 2.0, 1, 0, 0, 8.0]]
    assert DISTRIBUTION.dim == 6 and [leaf.dim for leaf in leaves(DISTRIBUTION)] == [2, 3, 1]


def test_gradients_reach_all_parts():
    info = dist_info(3)
    parts = [*info.move, *info.tool.kind, *info.tool.force]
    for part in parts:
        part.requires_grad_()
    action = Action(torch.zeros(3, 2).double(), Inner(torch.zeros(3, dtype=torch.long), torch.ones(3, 1).double()))
    (DISTRIBUTION.log_likelihood(action, info) + DISTRIBUTION.entropy(info)).sum().backward()
    assert all(part.grad is not None and part.grad.any() for part in parts)


def test_it_can_be_sent_to_other_processes():
    info = dist_info(3)
    action = DISTRIBUTION.sample(info)
    copied, info_copied = pickle.loads(pickle.dumps((DISTRIBUTION, info)))
    assert torch.equal(copied.log_likelihood(action, info_copied), DISTRIBUTION.log_likelihood(action, info))


def test_parts_and_fields_must_match():
    with pytest.raises(ValueError, match="1 distributions do not match the 2 fields"):
        Composite([Categorical(3)], Action)
