"""Buffers that replay single transitions."""
