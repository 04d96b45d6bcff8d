"""Exploration by noise on the weights (Fortunato et al. 2018, https://arxiv.org/abs/1706.10295)."""

import math

import torch
import torch.nn.functional as F

from rlpyt.models.linear import OutputLinear, in_float32


class NoisyLinear(torch.nn.Module):
    """Linear layer whose weights are random, with means and standard deviations that are learned.

    ``y = (W + W_sigma * f(e_out) f(e_in)^T) x + b + b_sigma * f(e_out)`` with standard normal e_in, e_out and ``f(e) = sign(e) sqrt(|e|)``:
    the factorised noise of the paper. Every forward pass draws new noise, the same for all data in it, from torch's generator of the
    process and device. The noise is not in the state dict.

    Args:
        in_features, out_features: sizes.
        bias: whether there are b and b_sigma.
        sigma_init: initial standard deviations, times the square root of in_features.

    Attributes:
        is_noisy: False turns the noise off, so that the layer is deterministic; see `set_noise`.
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = True, sigma_init: float = 0.5) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        bound = 1 / math.sqrt(in_features)
        self.weight = torch.nn.Parameter(torch.empty(out_features, in_features).uniform_(-bound, bound))
        self.weight_sigma = torch.nn.Parameter(torch.full((out_features, in_features), sigma_init * bound))
        self.bias = torch.nn.Parameter(torch.empty(out_features).uniform_(-bound, bound)) if bias else None
        self.bias_sigma = torch.nn.Parameter(torch.full((out_features,), sigma_init * bound)) if bias else None
        self.is_noisy = True

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """[*,in_features] -> [*,out_features]."""
        if not self.is_noisy:
            return F.linear(input, self.weight, self.bias)
        noise = torch.randn(self.in_features + self.out_features, dtype=self.weight.dtype, device=self.weight.device)
        noise_in, noise_out = torch.copysign(noise.abs().sqrt(), noise).split((self.in_features, self.out_features))
        weight = torch.addcmul(self.weight, self.weight_sigma, torch.outer(noise_out, noise_in))
        bias = None if self.bias is None or self.bias_sigma is None else torch.addcmul(self.bias, self.bias_sigma, noise_out)
        return F.linear(input, weight, bias)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


class NoisyOutputLinear(NoisyLinear):
    """Last layer of a noisy model."""

    forward = in_float32(NoisyLinear.forward)


def make_noisy(module: torch.nn.Module) -> torch.nn.Module:
    """Replace every linear layer inside `module` by a new noisy layer; return `module`."""
    for name, child in module.named_children():
        if isinstance(child, torch.nn.Linear):
            LayerCls = NoisyOutputLinear if isinstance(child, OutputLinear) else NoisyLinear
            setattr(module, name, LayerCls(child.in_features, child.out_features, bias=child.bias is not None))
        else:
            make_noisy(child)
    return module


def set_noise(module: torch.nn.Module, is_noisy: bool) -> None:
    """Turn the noise of all `NoisyLinear` layers in `module` on or off."""
    for part in module.modules():
        if isinstance(part, NoisyLinear):
            part.is_noisy = is_noisy
