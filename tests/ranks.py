"""Runs a test's function in several ranks of a process group: importable as ``ranks`` here."""

import contextlib
import gc
import os
import tempfile

import torch


@contextlib.contextmanager
def process_group(path, rank=0, world_size=1):
    """A gloo group whose ranks meet at a file: no port that another process could take first."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=world_size)
    try:
        yield
        gc.collect()  # Wrapped models refer to the group in cycles, and have to be gone before it.
        torch.distributed.barrier()  # No rank leaves while another still talks to it.
    finally:
        torch.distributed.destroy_process_group()


def run_ranks(func, *args, world_size=2):
    """Call ``func(rank, *args)`` in forked processes that form a group, and raise what any of them raises."""
    with tempfile.TemporaryDirectory() as directory:
        args = (os.path.join(directory, "meeting"), world_size, func, args)
        torch.multiprocessing.start_processes(_rank, args, nprocs=world_size, start_method="fork")


def _rank(rank, path, world_size, func, args):
    torch.set_num_threads(1)
    with process_group(path, rank, world_size):
        func(rank, *args)
    os._exit(0)  # The interpreter's own end now and then aborts while threads of the group still run.
