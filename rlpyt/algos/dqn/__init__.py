"""Deep Q-learning algorithms."""
