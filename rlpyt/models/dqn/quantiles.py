"""Parts of models for quantiles of the return at any fraction, IQN (Dabney et al. 2018, https://arxiv.org/abs/1806.06923)."""

import math

import torch

from rlpyt.models.linear import Linear

N_COSINES = 64


class FractionEmbedding(torch.nn.Module):
    """Embeds fractions τ of probability: ``ReLU(W c + b)`` with ``c_i = cos(π i τ)`` for i from 0 to 63.

    Args:
        output_size: size of an embedding.
    """

    frequencies: torch.Tensor

    def __init__(self, output_size: int) -> None:
        super().__init__()
        self.linear = Linear(N_COSINES, output_size)
        self.register_buffer("frequencies", math.pi * torch.arange(N_COSINES, dtype=torch.float32), persistent=False)

    def forward(self, fractions: torch.Tensor) -> torch.Tensor:
        """[*] -> [*,output_size]."""
        cosines = torch.cos(fractions[..., None] * self.frequencies)
        x = torch.relu(self.linear(cosines.view(-1, N_COSINES)))
        return x.view(*fractions.shape, x.shape[1])


class QuantileHead(torch.nn.Module):
    """Multiplies features by the embeddings of fractions, and applies a head to each product.

    Args:
        head: module with a value for each action: [*,n_features] -> [*,A].
        n_features: number of features.
    """

    def __init__(self, head: torch.nn.Module, n_features: int) -> None:
        super().__init__()
        self.embedding = FractionEmbedding(n_features)
        self.head = head

    def forward(self, features: torch.Tensor, fractions: torch.Tensor) -> torch.Tensor:
        """Features [B,n_features] and fractions [B,N], or [N] for all -> quantiles [B,A,N]."""
        B, n_features = features.shape
        N = fractions.shape[-1]
        x = features[:, None] * self.embedding(fractions)  # [B,N,n_features]
        x = self.head(x.view(B * N, n_features))
        return x.view(B, N, x.shape[1]).transpose(1, 2)
