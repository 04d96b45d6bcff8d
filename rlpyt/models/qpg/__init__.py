"""Models for Q-function policy gradients."""
