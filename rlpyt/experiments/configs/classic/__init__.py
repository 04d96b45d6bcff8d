"""Small problems, solved in minutes."""
