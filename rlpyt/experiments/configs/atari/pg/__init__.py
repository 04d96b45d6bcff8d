"""Policy gradient algorithms on Atari games."""
