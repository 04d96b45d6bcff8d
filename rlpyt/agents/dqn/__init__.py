"""Deep Q-learning agents."""
