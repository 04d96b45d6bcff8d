"""Distributions over actions: sampling, likelihoods, entropies."""
