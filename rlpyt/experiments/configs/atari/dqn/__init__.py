"""Deep Q-learning on Atari games."""
