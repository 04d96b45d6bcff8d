"""Processes that train together: their rendezvous, waiting for each other, and the death of one of them."""

from __future__ import annotations

import os
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from importlib import import_module
from multiprocessing.util import get_temp_dir
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from rlpyt.samplers.workers import WATCH_INTERVAL, WorkerError, WorkerPool
from rlpyt.utils import accelerator
from rlpyt.utils.logging import logger
from rlpyt.utils.text import flush_output

SEED_STEP = 100  # Distance between the seeds of ranks. Environments have separate random streams.
_PATIENCE = timedelta(days=7)  # Ranks may wait long for each other, for example for an evaluation; deaths are noticed by other means.
_GRACE = 5.0  # seconds for the report of a rank that failed, and for a wait for that rank to raise an error

T = TypeVar("T")


def running(part: T | None) -> T:
    """Return a part of a run that exists from its startup on, such as a pool; RuntimeError before."""
    if part is None:
        raise RuntimeError("The run has not started: call its train().")
    return part


def meeting_place(directory: str | None, world_size: int) -> Any:
    """Return the store at which processes meet: a file in the directory of their pool, which is deleted with the pool.

    None is for workers, in which multiprocessing's `get_temp_dir` returns that directory.
    """
    return dist.FileStore(os.path.join(get_temp_dir() if directory is None else directory, "ranks"), world_size)


@contextmanager
def process_group(runner: Any, store: Any) -> Iterator[None]:
    """Make `runner` a rank of the group that meets at `store`, or by torchrun's settings if that is None."""
    if runner.world_size > 1:  # Wrapping a model imports this. Torch then keeps a group that exists already until the process ends.
        import_module("torch._dynamo")
    cuda_idx = runner.affinity.get("cuda_idx")
    if store is not None:
        for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
            os.environ.setdefault(name, _loopback())  # All ranks are on this machine.
    backend = "gloo"
    if cuda_idx is not None:
        device = accelerator.device_of(cuda_idx)
        accelerator.use(device)
        backend = dist.get_default_backend_for_device(device)
    where = dict(init_method="env://") if store is None else dict(store=store, rank=runner.rank, world_size=runner.world_size)
    dist.init_process_group(backend, timeout=_PATIENCE, **where)
    runner._control = dist.group.WORLD if backend == "gloo" else dist.new_group(backend="gloo", timeout=_PATIENCE)
    try:
        yield
        interruptibly(dist.barrier, group=runner._control)  # No rank leaves while another still talks to it.
    finally:
        runner._control = None
        with suppress(RuntimeError):
            dist.destroy_process_group()


def _loopback() -> str:
    import socket

    names = [name for _, name in socket.if_nameindex()]
    return next((name for name in names if name.startswith("lo")), names[0])


def interruptibly(collective: Callable, *args: Any, **kwargs: Any) -> None:
    """Call `collective` in another thread, so that this thread handles signals meanwhile."""
    errors = []

    def call() -> None:
        try:
            collective(*args, **kwargs)
        except BaseException as error:
            errors.append(error)
        finally:
            ended.set()

    ended = threading.Event()
    threading.Thread(target=call, name="wait for ranks", daemon=True).start()
    ended.wait()
    if errors:
        try:
            raise errors[0]
        finally:
            errors.clear()  # An error refers to the thread's frame, and so to the group, which must be deleted before another one.


@contextmanager
def watching(pool: WorkerPool) -> Iterator[None]:
    """End this process if another rank has died and the wait for it does not end by itself, as with NCCL."""
    done = threading.Event()

    def watch() -> None:
        while not done.wait(WATCH_INTERVAL):
            dead = [i for i, process in enumerate(list(pool.processes)) if process.exitcode not in (None, 0)]
            if dead and not done.wait(2 * _GRACE):
                logger.log(f"ERROR: the run ends. {pool.last_words(dead[0])}", level=0)
                pool.kill(grace=0)
                flush_output()
                os._exit(1)

    threading.Thread(target=watch, name="watch ranks", daemon=True).start()
    try:
        yield
    finally:
        done.set()


def raise_first_failure(pool: WorkerPool, error: BaseException) -> None:
    """If this process only lost its connection because another process failed first, raise the error of that process."""
    if not may_be_lost_connection(error):  # This process failed first, and the others lost their connection to it.
        return
    ended = threading.Event()
    ended.wait(0.1)
    for _ in range(int(_GRACE / 0.1)):
        for i, process in enumerate(pool.processes):
            if pool.pipes[i].poll() or process.exitcode is not None:
                try:
                    pool._fail(i)
                except WorkerError as failure:
                    raise failure from error
        ended.wait(0.1)


def may_be_lost_connection(error: BaseException) -> bool:
    """Return whether an error is a RuntimeError raised inside a function of torch."""
    frames = traceback.extract_tb(error.__traceback__)
    return isinstance(error, RuntimeError) and bool(frames) and frames[-1].filename.startswith(os.path.dirname(torch.__file__))


def leave(pipe: Any) -> None:
    """End this process, a rank of a group, once all ranks are done."""
    pipe.send(("ok", None))
    pipe.recv()
    pipe.send(("ok", None))
    os._exit(0)  # A normal exit sometimes aborts while threads of the group still run.
