"""Connection of this process to a Ray cluster."""

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
_END_SECONDS = 5.0  # seconds to wait for a killed process


def import_ray() -> Any:
    """Return the module `ray`.

    Raises:
        ImportError: it is not installed; the message says how to install it.
    """
    try:
        import ray
    except ImportError as error:
        raise import_error("Sampling and launching on a Ray cluster need", "ray", error) from error
    return ray


def extend_path(path: list[str]) -> None:
    """Append another process's module search path to ``sys.path``, without directories that this machine does not have."""
    sys.path.extend(place for place in path if place not in sys.path and os.path.exists(place))


class Cluster:
    """A connection to a Ray cluster.

    A process has one connection at a time. If other code has opened it (by ``ray.init``), it is used and never closed. Otherwise the
    first `Cluster` joins a running cluster or starts a local one, and the last `Cluster` to be closed leaves it or shuts it down.

    Args:
        address: of a running cluster, such as "10.0.0.1:6379", or "auto" for the cluster that this machine belongs to. None takes the
            address in the environment variable RAY_ADDRESS; without this variable, it starts a local cluster.
        init_kwargs: further arguments of ``ray.init``, e.g. `object_store_memory` (bytes) of a local cluster.

    Raises:
        ImportError: Ray is not installed.
        ConnectionError: no cluster answers at that address.
    """

    _n_open: ClassVar[int] = 0  # Open objects of this class, if one of them opened the connection.
    _is_own: ClassVar[bool] = False  # Whether one of them started the cluster. Then only this process uses it.

    def __init__(self, address: str | None = None, init_kwargs: dict | None = None) -> None:
        self._ray = ray = import_ray()
        self._pid = os.getpid()
        if not ray.is_initialized():
            Cluster._n_open = 0  # Other code has shut down any earlier connection.
            Cluster._is_own = _connect(address, init_kwargs or {})
            self._counts = True
        else:
            self._counts = Cluster._n_open > 0
            Cluster._is_own = Cluster._is_own and self._counts
        Cluster._n_open += self._counts

    def resource(self, name: str) -> float:
        """Return how much of a resource, e.g. "CPU" or "GPU", the cluster has in total."""
        return float(self._ray.cluster_resources().get(name, 0))

    def nodes(self) -> list[dict[str, float]]:
        """Return the total resources of each live node by name, e.g. "CPU"."""
        return [node["Resources"] for node in self._ray.nodes() if node["Alive"]]

    def close(self) -> None:
        """Give up this use of the connection. May be called twice."""
        counts, self._counts = self._counts, False
        if not counts or os.getpid() != self._pid:  # A forked process holds a copy of this object, and must not close the connection.
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
    """Call ``ray.init``. Retry if a local cluster does not start within Ray's limit of 30 s, which busy machines exceed."""
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
    """End Ray's processes from a failed start: descendants of this process except `others`."""
    place = os.path.dirname(import_ray().__file__)
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if process.pid not in others and any(place in word for word in process.cmdline()):
                process.kill()
                process.wait(_END_SECONDS)


@contextmanager
def _same_signal_handlers() -> Iterator[None]:
    """Restore the handler of SIGTERM that Ray replaces: a run saves when this signal comes."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, handler)
