import math

import pytest
import torch
from torch.distributions import Independent, Normal, TanhTransform, TransformedDistribution, kl_divergence
from torch.distributions.transforms import AffineTransform

from rlpyt.distributions.base import Distribution
from rlpyt.distributions.gaussian import DistInfo, DistInfoStd, Gaussian

STD = torch.tensor([0.5, 1.0, 2.0])


def random_info(*lead, dim=3):
    return DistInfoStd(torch.randn(*lead, dim, dtype=torch.float64), 0.5 * torch.randn(*lead, dim, dtype=torch.float64))


def reference(info, std=None):
    return Independent(Normal(info.mean, info.log_std.exp() if std is None else std), 1)


def test_the_divergence_of_close_policies_keeps_its_digits_in_float32():
    old, new = (DistInfoStd(torch.zeros(1), torch.tensor([log_std])) for log_std in (0.0, 1e-3))
    p, q = (reference(DistInfoStd(*(x.double() for x in info))) for info in (old, new))
    assert Gaussian(dim=1).kl(old, new).item() == pytest.approx(kl_divergence(p, q).item(), rel=1e-3)


@pytest.mark.parametrize("lead", [(), (3,), (2, 3)])
@pytest.mark.parametrize("std", [None, 0.7, STD])
def test_formulas_agree_with_the_reference(lead, std):
    torch.manual_seed(0)
    dist, old, new = Gaussian(dim=3, std=std), random_info(*lead), random_info(*lead)
    p, q = (reference(info, dist.std) for info in (old, new))
    x = torch.randn(*lead, 3, dtype=torch.float64)
    close = dict(check_dtype=False, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(dist.entropy(old), p.entropy(), **close)
    torch.testing.assert_close(dist.perplexity(old), p.entropy().exp(), **close)
    torch.testing.assert_close(dist.kl(old, new), kl_divergence(p, q), **close)
    torch.testing.assert_close(dist.log_likelihood(x, old), p.log_prob(x), **close)
    torch.testing.assert_close(dist.likelihood_ratio(x, old, new), (q.log_prob(x) - p.log_prob(x)).exp(), **close)
    assert dist.entropy(old).shape == lead


@pytest.mark.parametrize("entropy_coeff", [0.0, 0.01])
@pytest.mark.parametrize("lead,dim", [((), 1), ((64,), 6), ((5, 7), 3)])
def test_the_likelihood_ratio_and_its_gradients_are_bit_for_bit_those_of_the_formula(lead, dim, entropy_coeff):
    torch.manual_seed(0)
    dist, x, weight = Gaussian(dim=dim), torch.randn(*lead, dim), torch.randn(lead)
    old = DistInfoStd(torch.randn(*lead, dim), 0.2 * torch.randn(*lead, dim))
    leaves = torch.randn(*lead, dim).requires_grad_(), (0.2 * torch.randn(dim)).requires_grad_()
    results = []
    for likelihood_ratio in (Distribution.likelihood_ratio, Gaussian.likelihood_ratio):
        new = DistInfoStd(leaves[0], leaves[1].expand(*lead, dim).clone())
        ratio = likelihood_ratio(dist, x, old, new)
        loss = (ratio * weight).mean() - entropy_coeff * dist.entropy(new).mean()  # A further gradient of log_std.
        results.append((ratio, *torch.autograd.grad(loss, leaves)))
    for formula, ours in zip(*results):
        torch.testing.assert_close(ours, formula, rtol=0, atol=0)


def test_the_likelihood_ratio_uses_a_likelihood_that_a_subclass_overrides():
    class Narrower(Gaussian):
        def log_likelihood(self, x, dist_info):
            return 2 * super().log_likelihood(x, dist_info)

    x, old, new = torch.randn(4, 3, dtype=torch.float64), random_info(4), random_info(4)
    torch.testing.assert_close(Narrower(3).likelihood_ratio(x, old, new), Gaussian(3).likelihood_ratio(x, old, new) ** 2)


def test_means_ignore_what_is_invalid():
    dist, old, new = Gaussian(dim=3), random_info(4), random_info(4)
    valid = torch.tensor([1.0, 0, 1, 0])
    torch.testing.assert_close(dist.mean_kl(old, new, valid), dist.kl(old, new)[::2].mean())
    torch.testing.assert_close(dist.mean_entropy(old, valid), dist.entropy(old)[::2].mean())
    torch.testing.assert_close(dist.mean_perplexity(old), dist.perplexity(old).mean())


def test_limits_of_the_std_count_in_samples_and_formulas():
    torch.manual_seed(0)
    info = DistInfoStd(torch.zeros(50_000, 2), torch.tensor([-9.0, 9.0]).expand(50_000, 2))
    limited = DistInfoStd(info.mean, torch.log(torch.tensor([0.1, 3.0])).expand(50_000, 2))
    dist = Gaussian(dim=2, min_std=0.1, max_std=3.0)
    torch.testing.assert_close(dist.sample(info).std(0), torch.tensor([0.1, 3.0]), rtol=0.03, atol=0)
    torch.testing.assert_close(dist.entropy(info), Gaussian(dim=2).entropy(limited))
    torch.testing.assert_close(dist.log_likelihood(info.mean + 1, info), Gaussian(dim=2).log_likelihood(info.mean + 1, limited))


def test_samples_have_the_given_mean_and_std():
    torch.manual_seed(0)
    n, mean = 100_000, torch.tensor([1.0, -2.0, 0.0])
    dist = Gaussian(dim=3, std=STD)
    x = dist.sample(DistInfo(mean.expand(n, 3)))
    assert ((x.mean(0) - mean).abs() < 5 * STD / math.sqrt(n)).all()
    torch.testing.assert_close(x.std(0), STD, rtol=0.02, atol=0)
    dist.set_std(None)
    x = dist.sample(DistInfoStd(mean.expand(n, 3), torch.zeros(n, 3)))
    torch.testing.assert_close(x.std(0), torch.ones(3), rtol=0.02, atol=0)


def test_std_0_gives_the_mean():
    mean = torch.randn(4, 3)
    assert torch.equal(Gaussian(dim=3, std=0).sample(DistInfo(mean)), mean)


def test_noise_and_samples_are_clipped():
    mean = torch.full((1000, 1), 0.8)
    dist = Gaussian(dim=1, std=1.0, noise_clip=0.3)
    noise = dist.sample(DistInfo(mean)) - mean
    assert noise.abs().max() <= 0.3 + 1e-6 and noise.std() > 0.1
    dist.set_clip(1.0)
    x = dist.sample(DistInfo(mean))
    assert x.max() == 1 and x.min() >= 0.5 - 1e-6
    dist.set_clip(None)
    dist.set_noise_clip(None)
    assert dist.sample(DistInfo(mean)).max() > 1.5


def test_squashed_density_agrees_with_the_reference():
    torch.manual_seed(0)
    info, dist = random_info(6), Gaussian(dim=3, squash=2.0)
    x = torch.randn(6, 3, dtype=torch.float64)
    squashed = TransformedDistribution(Normal(info.mean, info.log_std.exp()), [TanhTransform(), AffineTransform(0, 2.0)])
    torch.testing.assert_close(dist.log_likelihood(x, info), squashed.log_prob(2 * torch.tanh(x)).sum(-1), rtol=1e-5, atol=1e-6)


def test_squashed_density_is_finite_far_out():
    dist = Gaussian(dim=1, squash=1.0)
    x = torch.tensor([[-60.0], [60.0]])
    assert dist.log_likelihood(x, DistInfoStd(x, torch.zeros(2, 1))).isfinite().all()


def test_sample_loglikelihood_gives_a_squashed_sample_with_its_density_and_gradient():
    torch.manual_seed(0)
    mean = torch.zeros(200, 3, requires_grad=True)
    info, dist = DistInfoStd(mean, torch.zeros(200, 3)), Gaussian(dim=3, squash=1.0)
    action, log_likelihood = dist.sample_loglikelihood(info)
    assert action.abs().max() < 1 and dist.squash == 1.0
    expected = dist.log_likelihood(torch.atanh(action.double()), info)
    torch.testing.assert_close(log_likelihood, expected, check_dtype=False, rtol=1e-3, atol=1e-3)
    (action.sum() + log_likelihood.sum()).backward()
    assert mean.grad.isfinite().all() and mean.grad.abs().sum() > 0


@pytest.mark.parametrize("settings", [dict(), dict(std=0.5), dict(noise_clip=0.1)], ids=str)
def test_sample_loglikelihood_gives_a_clipped_sample_with_the_density_of_that(settings):
    info, dist = DistInfoStd(torch.full((50, 2), 0.8), torch.zeros(50, 2)), Gaussian(dim=2, clip=1.0, **settings)
    sample, log_likelihood = dist.sample_loglikelihood(info)
    assert sample.max() == 1 or "noise_clip" in settings
    torch.testing.assert_close(log_likelihood, dist.log_likelihood(sample, info))


@pytest.mark.parametrize("dim", [1, 3, 16])
def test_samples_after_others_are_those_of_two_calls(dim):
    """The noise is that of two calls, whatever the number of components."""
    dist = Gaussian(dim, squash=2.0, min_std=0.1, max_std=3.0)
    info = torch.randn(2, 9, dim) * 2
    results = []
    for joint in (True, False):
        torch.manual_seed(1)
        mean, log_std = (x[4:].clone().requires_grad_() for x in info)
        last = DistInfoStd(mean, log_std)
        if joint:
            *samples, sample, log_density = dist.sample_loglikelihood_after(last, DistInfoStd(*info))
            samples, others = (samples[0], samples[1]), (sample, log_density)
        else:
            with torch.no_grad():
                others = dist.sample_loglikelihood(DistInfoStd(*info[:, :4]))
            samples = dist.sample_loglikelihood(last)
        assert not any(x.requires_grad for x in others)
        grads = torch.autograd.grad((samples[0] * 1.5).sum() + samples[1].square().sum(), [mean, log_std])
        results.append((*samples, *others, *grads))
    torch.testing.assert_close(*results, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("limits", [dict(min_std=0.5), dict(max_std=2.0), dict(min_std=0.5, max_std=2.0)], ids=str)
def test_beyond_the_limits_of_the_deviation_it_has_no_gradient(limits):
    dist = Gaussian(3, **limits)
    log_std = torch.tensor([-3.0, 0.0, 3.0], requires_grad=True)
    sample, log_density = dist.sample_loglikelihood(DistInfoStd(torch.zeros(3), log_std))
    (sample.sum() + log_density).backward()
    assert (log_std.grad != 0).tolist() == ["min_std" not in limits, True, "max_std" not in limits]


def test_a_sample_or_a_density_alone_has_its_gradient():
    dist = Gaussian(3, squash=1.0)
    grads = []
    for uses in ((1, 0), (0, 1), (1, 1)):
        torch.manual_seed(0)
        mean, log_std = torch.randn(2, 5, 3).unbind()
        mean, log_std = mean.requires_grad_(), log_std.requires_grad_()
        results = dist.sample_loglikelihood(DistInfoStd(mean, log_std))
        grads.append(torch.autograd.grad(sum(x.sum() for x, is_used in zip(results, uses) if is_used), [mean, log_std]))
    torch.testing.assert_close([a + b for a, b in zip(*grads[:2])], list(grads[2]))


def test_clip_and_squash_exclude_each_other():
    with pytest.raises(ValueError, match="exclude each other"):
        Gaussian(dim=2, clip=1, squash=1)
    dist = Gaussian(dim=2, squash=1)
    with pytest.raises(ValueError, match="exclude each other"):
        dist.set_clip(1)
    dist.set_squash(None)
    dist.set_clip(1)


def test_there_is_no_entropy_nor_kl_when_squashing():
    dist, info = Gaussian(dim=3, squash=1), random_info()
    for formula in (lambda: dist.entropy(info), lambda: dist.kl(info, info)):
        with pytest.raises(NotImplementedError, match="set_squash"):
            formula()


def test_a_std_of_another_size_is_refused():
    with pytest.raises(ValueError, match="2 values"):
        Gaussian(dim=3, std=torch.ones(2))
