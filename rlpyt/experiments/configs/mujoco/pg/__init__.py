"""Policy gradient algorithms on continuous control."""
