"""Q-function policy gradient algorithms."""
