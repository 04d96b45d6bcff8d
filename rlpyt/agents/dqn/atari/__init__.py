"""Deep Q-learning agents for Atari games."""
