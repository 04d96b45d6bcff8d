"""Experiments: configurations of runs."""
