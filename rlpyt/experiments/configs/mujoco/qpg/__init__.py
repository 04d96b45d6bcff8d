"""Q-function policy gradient algorithms on continuous control."""
