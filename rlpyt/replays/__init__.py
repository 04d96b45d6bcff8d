"""Replay buffers: a ring of ``[T,B]`` memory, what is stored in it, which of it is drawn, and what is read out."""
