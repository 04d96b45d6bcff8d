"""Configurations for continuous control."""
