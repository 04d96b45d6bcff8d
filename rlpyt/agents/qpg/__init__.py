"""Agents for Q-function policy gradients."""
