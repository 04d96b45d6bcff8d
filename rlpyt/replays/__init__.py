"""Replay buffers: storage in a ring of ``[T,B]`` memory, drawing of samples, and gathering of batches."""
