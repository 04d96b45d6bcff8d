"""Agents: between the sampler, the model, and the algorithm."""
