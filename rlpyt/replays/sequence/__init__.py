"""Buffers that replay sequences of steps."""
