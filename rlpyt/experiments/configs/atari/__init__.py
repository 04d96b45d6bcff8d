"""Configurations for Atari games."""
