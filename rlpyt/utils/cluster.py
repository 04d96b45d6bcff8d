"""This process's connection to a Ray cluster."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, ClassVar

import psutil

from rlpyt.utils.extras import import_error
from rlpyt.utils.logging import logger
from rlpyt.utils.processors import allowed_cpus

_ATTEMPTS = 3  # to start a local cluster
_END_SECONDS = 5.0  # that a killed process has to end


def import_ray() -> Any:
    """Return the module `ray`.

    Raises:
        ImportError: it is not installed; the message says how to do that.
    """
    try:
        import ray
    except ImportError as error:
        raise import_error("Sampling and launching on a Ray cluster need", "ray", error) from error
    return ray


def extend_path(path: list[str]) -> None:
    """Have this process find modules also where another one does, as far as its machine has these directories."""
    sys.path.extend(place for place in path if place not in sys.path and os.path.exists(place))


class Cluster:
    """A connection to a Ray cluster, for as long as it is needed.

    A process has one connection at a time. One that somebody else has opened (by ``ray.init``) is used and left as it is. Otherwise the
    first `Cluster` joins a running cluster, or starts a local one; the last one to be closed leaves it, or shuts down what was started.

    Args:
        address: of a running cluster, such as "10.0.0.1:6379", or "auto" for the one this machine is part of. None for the one in the
            environment variable RAY_ADDRESS, or without it for a local one, which is started.
        init_kwargs: further arguments of ``ray.init``, e.g. `object_store_memory` (bytes) of a local cluster.

    Raises:
        ImportError: Ray is not installed.
        ConnectionError: there is no cluster at that address.
    """

    _n_open: ClassVar[int] = 0  # Objects of this class that use a connection which one of them has opened.
    _is_own: ClassVar[bool] = False  # Whether one of them has started the cluster itself, which only this process knows of then.

    def __init__(self, address: str | None = None, init_kwargs: dict | None = None) -> None:
        self._ray = ray = import_ray()
        self._pid = os.getpid()
        if not ray.is_initialized():
            Cluster._n_open = 0  # Whatever there was has been shut down by somebody else.
            Cluster._is_own = _connect(address, init_kwargs or {})
            self._counts = True
        else:
            self._counts = Cluster._n_open > 0
            Cluster._is_own = Cluster._is_own and self._counts
        Cluster._n_open += self._counts

    def resource(self, name: str) -> float:
        """Return how much the cluster has in all, e.g. of "CPU" or "GPU"."""
        return float(self._ray.cluster_resources().get(name, 0))

    def nodes(self) -> list[dict[str, float]]:
        """Return what each node that is alive has in all: its resources by name, e.g. "CPU"."""
        return [node["Resources"] for node in self._ray.nodes() if node["Alive"]]

    def close(self) -> None:
        """Need it no longer. May be called twice."""
        counts, self._counts = self._counts, False
        if not counts or os.getpid() != self._pid:  # A forked process holds a copy of this object, and must not act on it.
            return
        Cluster._n_open -= 1
        if Cluster._n_open == 0 and self._ray.is_initialized():
            with _same_signal_handlers():
                self._ray.shutdown()


def _connect(address: str | None, init_kwargs: dict) -> bool:
    """Join a cluster, or start one; return whether it was started."""
    address = address or os.environ.get("RAY_ADDRESS") or "local"
    defaults: dict = dict(logging_level="WARNING")
    if address == "local":
        defaults.update(include_dashboard=False, num_cpus=len(allowed_cpus()))
    with _same_signal_handlers():
        try:
            _init(address, {**defaults, **init_kwargs})
        except ConnectionError as error:
            raise ConnectionError(
                f"No Ray cluster can be joined at {address!r} ({error}). Start one with `ray start --head`; if it asks for a token, set "
                "RAY_AUTH_MODE=token as Ray's documentation on authentication says."
            ) from error
    return address == "local"


def _init(address: str, kwargs: dict) -> None:
    """Call ``ray.init``; several times if need be, where a local cluster is started: Ray allows 30 s, which busy machines exceed."""
    before = {process.pid for process in psutil.Process().children(recursive=True)}
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            import_ray().init(address=address, **kwargs)
            return
        except Exception as error:
            if address != "local":
                raise
            _end_rays_processes(before)
            if attempt == _ATTEMPTS or "timed out during startup" not in str(error):
                raise
            logger.warn(f"Ray did not start in time; trying again ({attempt} of {_ATTEMPTS} attempts have failed).")


def _end_rays_processes(others: set[int]) -> None:
    """End what an attempt to start a cluster has left running, which are descendants of this process, but not `others`."""
    place = os.path.dirname(import_ray().__file__)
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if process.pid not in others and any(place in word for word in process.cmdline()):
                process.kill()
                process.wait(_END_SECONDS)


@contextmanager
def _same_signal_handlers() -> Iterator[None]:
    """Put back what handles SIGTERM, which Ray takes over: a run saves when it comes."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, handler)
