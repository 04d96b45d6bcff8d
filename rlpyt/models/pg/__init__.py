"""Models for policy gradient agents."""
