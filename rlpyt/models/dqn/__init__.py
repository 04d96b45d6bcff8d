"""Models for deep Q-learning agents."""
