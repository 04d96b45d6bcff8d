"""Sampling workers as Ray actors: start, watch, replace and end them.

The master submits any number of commands ahead of the replies. Every actor carries them out in order::

    master                                         actor
      | -- start -------------------------------->  |   environments, collectors, a private batch
      | -- do(name, argument, parameters) ------->  |
      | <- ("ok", reply, arrays) ------------------ |   or ("error", report, None), also to all further commands
      | -- stop_evaluation ---------------------->  |   during the current command
      | -- close -------------------------------->  |   environments closed

Arguments, parameters and samples travel through Ray's object store. Parameters are put there once for all actors, and reading them on a
machine that holds them does not copy.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rlpyt.samplers.buffer import build_samples_buffer
from rlpyt.samplers.parallel.worker import SamplingWorker
from rlpyt.samplers.workers import HANG_WARNING, STOP_GRACE, WATCH_INTERVAL, WorkerError, ending_on_failure, failure_report, failure_text
from rlpyt.types import BatchSpec, Samples
from rlpyt.utils.buffer import buffer_func, buffer_leaves
from rlpyt.utils.choices import adopt
from rlpyt.utils.cluster import extend_path, import_ray
from rlpyt.utils.logging import logger
from rlpyt.utils.stopwatch import Stopwatch

START = "start"  # the first command
_ANSWER_SECONDS, _LAST_ANSWER_SECONDS = 0.2, 5.0  # limits for an actor's answer to `where`: while waiting for it, and before giving it up


# ---------------------------------------------------------------------------------------------------------------------
# What travels
# ---------------------------------------------------------------------------------------------------------------------
def model_arrays(agent: Any) -> list[np.ndarray]:
    """Return parameters and buffers of the models by which an agent acts, as numpy arrays, which share the memory of tensors on the CPU.

    The list is empty if the agent has no model.
    """
    if agent.model is None:
        return []
    return [_as_array(tensor) for tensor in agent.acting_tensors()]


def _as_array(tensor: Any) -> np.ndarray:
    import torch

    tensor = tensor.detach()
    if tensor.dtype == torch.bfloat16:  # Numpy has no bfloat16.
        tensor = tensor.view(torch.int16)
    return tensor.cpu().numpy()


def batch_arrays(samples_np: Samples, used_slots_only: bool = False) -> list[np.ndarray]:
    """Return the memory of a batch as a flat list of arrays, every row once.

    If two fields are views of the same memory, one row apart, the list has only the first row of the earlier one.

    Args:
        samples_np: numpy arrays ``[T,B,...]``.
        used_slots_only: leave out the slots ``[K,B,...]`` of last observations that no column has used.
    """
    agent, env = samples_np.agent, samples_np.env
    first_rows = [buffer_func(x, lambda array: array[:1]) for x in (agent.prev_action, env.prev_reward, env.observation)]
    ends = samples_np._replace(agent=None, env=None)
    if used_slots_only:
        n_used = int(env.done.sum(axis=0).max())
        ends = buffer_func(ends, lambda array: array[:n_used])
    return buffer_leaves((*first_rows, agent._replace(prev_action=None), env._replace(prev_reward=None, observation=None), ends))


def copy_arrays(destinations: Sequence[np.ndarray], sources: Sequence[np.ndarray]) -> None:
    """Copy arrays into destinations, whose first dimension may be longer."""
    for destination, source in zip(destinations, sources, strict=True):
        if destination.ndim:
            destination[: len(source)] = source
        else:
            destination[...] = source


# ---------------------------------------------------------------------------------------------------------------------
# In the actor
# ---------------------------------------------------------------------------------------------------------------------
class _Worker(SamplingWorker):
    """A worker that shares no memory with the master."""

    def make_batches(self, env: Any) -> list[Samples]:
        """Allocate a batch for the columns of this worker."""
        c, batch_spec = self._common, BatchSpec(self._common.batch_T, len(self._own.env_ranks))
        kwargs = dict(examples=c.examples, keep_terminal_observations=c.keep_terminal_observations)
        return [build_samples_buffer(c.agent, env, batch_spec, c.bootstrap_value, False, False, **kwargs)[1]]


class WorkerActor:
    """One worker of a sampler, as a Ray actor; subclasses define its work.

    Args:
        common: arguments for all workers, pickled.
        worker_kwargs: arguments of this worker.
        path: the master's search path of modules.
    """

    def __init__(self, common: bytes, worker_kwargs: dict, path: list[str]) -> None:
        extend_path(path)
        self._common, self._worker_kwargs = common, worker_kwargs
        self._stop, self._progress = np.zeros(1, bool), np.zeros(1, np.int64)
        self._thread = 0  # The thread that samples.
        self._failure: dict | None = None

    # Defined by subclasses
    def _start(self, common: dict, worker_kwargs: dict) -> None:
        """Make the environments and everything else that the worker needs."""
        raise NotImplementedError

    def _do(self, name: str, argument: Any, parameters: Any) -> tuple[Any, Any]:
        """Carry out a command; return the reply, and arrays or None."""
        raise NotImplementedError

    def _reset_if_needed(self) -> None:
        """Between two batches: reset idle environments, which may be slow."""

    def _close(self) -> None:
        """Close the environments, if they exist already."""
        raise NotImplementedError

    # Called by the master
    def start(self) -> tuple[str, Any, None]:
        """Make environments and collectors; reply with host name and process id."""
        self._thread = threading.get_ident()
        return self._reporting(self._start_here)

    def do(self, name: str, argument: Any, parameters: Any) -> tuple[str, Any, Any]:
        """Carry out a command with these parameters of the agent, and reply."""
        return self._reporting(self._do, name, argument, parameters)

    def reset_if_needed(self) -> None:
        """Between two batches: reset idle environments. The next command reports errors."""
        self._reporting(lambda: (self._reset_if_needed(), None))  # type: ignore[func-returns-value]

    def close(self) -> tuple[str, Any, None]:
        """Close the environments."""
        self._failure = None
        return self._reporting(lambda: (self._close(), None))  # type: ignore[func-returns-value]

    def stop_evaluation(self) -> None:
        """End an evaluation, also one that is running."""
        self._stop[0] = True

    def where(self) -> tuple[int, str]:
        """Return the number of half-steps so far, and the stack of the thread that samples."""
        frame = sys._current_frames().get(self._thread)
        return int(self._progress[0]), "".join(traceback.format_stack(frame)) if frame else "  (no stack available)\n"

    def _reporting(self, method: Callable, *args: Any) -> tuple[str, Any, Any]:
        if self._failure is None:
            try:
                return ("ok", *method(*args))
            except BaseException as error:  # It cannot continue after this.
                self._failure = failure_report(error)
        return "error", self._failure, None

    def _start_here(self) -> tuple[Any, None]:
        self._start(import_ray().cloudpickle.loads(self._common), self._worker_kwargs)
        return (socket.gethostname(), os.getpid()), None


class SamplerActor(WorkerActor):
    """A `SamplingWorker` with a private batch."""

    def _start(self, common: dict, worker_kwargs: dict) -> None:
        adopt(common["choices"])
        self._worker = _Worker(dict(common, stop=self._stop), dict(worker_kwargs, progress=self._progress))
        self._worker.start()
        self._parameters = model_arrays(common["agent"])

    def _do(self, name: str, argument: Any, parameters: list[np.ndarray] | None) -> tuple[Any, list | None]:
        """Carry out a command of `SamplingWorker.do`; return the reply, and the samples of "collect" or None."""
        self._reset_if_needed()
        if parameters is not None:
            copy_arrays(self._parameters, parameters)
        reply = self._worker.do(name, argument)
        return reply, batch_arrays(self._worker.batches_np[0], used_slots_only=True) if name == "collect" else None

    def _reset_if_needed(self) -> None:
        self._worker.reset_if_needed()

    def _close(self) -> None:
        if "_worker" in vars(self):  # It has started.
            self._worker.close()


# ---------------------------------------------------------------------------------------------------------------------
# In the master
# ---------------------------------------------------------------------------------------------------------------------
@dataclass(eq=False)
class Call:
    """A command to all actors.

    Attributes:
        name, argument: name and argument of the command.
        doing: description of the command for messages, such as "collecting batch 4".
        parameters: reference to the parameters of the agent, or None.
        refs: for each actor, the reference to its reply.
        replies: for each actor that has replied, the reply and its samples.
        version: version of the parameters.
        restarted: columns that begin new episodes with this batch, because their actor was lost.
    """

    name: str
    argument: Any = None
    doing: str = ""
    parameters: Any = None
    refs: list = field(default_factory=list)
    replies: dict[int, tuple[Any, list | None]] = field(default_factory=dict)
    version: int = 0
    restarted: set[int] = field(default_factory=set)


class ActorPool:
    """Sampling workers in Ray actors. Has the methods of a `WorkerPool`, and accepts commands ahead of the replies.

    Args:
        ActorCls: a `WorkerActor`.
        common_kwargs: arguments for all actors.
        worker_kwargs: arguments of each actor.
        names: one description per worker for messages, e.g. "sampler worker 1 (environments 4 to 7)".
        options: Ray's options of the actors: resources such as `num_cpus`, and placement.
        timeout: seconds without a sign of life after which a worker counts as hung; None warns every half minute instead.
        max_restarts: total number of lost actors that are replaced.
        recovery: function of a lost actor's number, and of the calls that its replacement repeats, in order. It returns name and argument
            of the first command of the replacement.
        stop: array ``[1]``, set from outside to end evaluations.

    Attributes:
        n_restarts: number of actors that have been replaced.
        waiting: the time that this process has spent waiting for actors.

    Raises:
        TypeError: something cannot be sent to other processes.
    """

    def __init__(
        self,
        ActorCls: type[WorkerActor],
        common_kwargs: dict,
        worker_kwargs: list[dict],
        names: list[str],
        options: dict,
        timeout: float | None,
        max_restarts: int,
        recovery: Callable[[int, list[Call]], tuple[str, Any]],
        stop: np.ndarray,
    ) -> None:
        self._ray = ray = import_ray()
        self.names, self.timeout, self.max_restarts, self.n_restarts = list(names), timeout, max_restarts, 0
        self.waiting = Stopwatch()
        self._options, self._recovery, self._stop, self._stop_told = options, recovery, stop, False
        self._common, self._worker_kwargs = ray.put(pickled(common_kwargs)), worker_kwargs
        self._Actor = ray.remote(concurrency_groups={"control": 1})(ActorCls)
        self._where: list[str | tuple[str, int]] = ["not placed yet"] * len(names)
        self._underway: list[Call] = []  # Calls that lack replies, in order.
        self.actors = [self._make(kwargs) for kwargs in worker_kwargs]
        with ending_on_failure(self):
            self.receive(self._send(Call(START, doing="starting")))

    # The protocol ---------------------------------------------------------------------------------------------------
    def submit(self, name: str, argument: Any, doing: str, parameters: Any = None) -> Call:
        """Queue a command for all actors. `parameters` refers to the agent's parameters in the object store."""
        if not self.actors:
            raise RuntimeError("The sampler was shut down; call initialize() before using it again.")
        return self._send(Call(name, argument, doing, parameters))

    def receive(self, call: Call) -> list:
        """Wait until all actors have replied to `call`; return pairs of reply and arrays, in the order of the workers.

        Actors lost in the meantime are replaced.

        Raises:
            WorkerError: a worker raised or hung, or more actors were lost than may be replaced. All other actors have been ended.
        """
        with self.waiting:
            self._receive(call)
        if call in self._underway:
            self._underway.remove(call)
        return [call.replies[rank] for rank in range(len(self.names))]

    def request(self, command: tuple[str, Any], doing: str, parameters: Any = None) -> list:
        """Give all actors a command, and return their replies."""
        with ending_on_failure(self):
            return [reply for reply, _ in self.receive(self.submit(*command, doing, parameters))]

    def _make(self, worker_kwargs: dict) -> Any:
        return self._Actor.options(**self._options).remote(self._common, worker_kwargs, sys.path)

    def _send(self, call: Call) -> Call:
        call.refs = [_submit(actor, call) for actor in self.actors]
        if call.name == "collect":
            for actor in self.actors:
                actor.reset_if_needed.remote()  # While the master trains.
        self._underway.append(call)
        return call

    def _receive(self, call: Call) -> None:
        silent_since = warned = time.monotonic()
        steps: dict[int, int] = {}  # by worker
        while len(call.replies) < len(self.names):
            waiting = {call.refs[rank]: rank for rank in range(len(self.names)) if rank not in call.replies}
            ready, _ = self._ray.wait(list(waiting), timeout=WATCH_INTERVAL)
            for ref in ready:
                self._take(call, waiting[ref])
            if self._stop[0] and not self._stop_told:
                self._tell_stop(self.actors)
                self._stop_told = True
            before, places = steps, {} if ready else self._ask_where(waiting.values(), _ANSWER_SECONDS)
            steps = {rank: n for rank, (n, _) in places.items()}
            now = time.monotonic()
            if ready or steps != before:
                silent_since = warned = now
            elif self.timeout is not None and now - silent_since > self.timeout:
                self._give_up(call, now - silent_since)
            elif now - warned > HANG_WARNING:
                warned = now
                warnings.warn(self._patience_text(call, waiting.values(), now - silent_since), stacklevel=4)

    def _take(self, call: Call, rank: int) -> None:
        """Store a reply, or replace a lost actor."""
        try:
            kind, reply, arrays = self._ray.get(call.refs[rank])
        except self._losses() as error:
            self._replace(call, rank, error)
            return
        if kind == "error":
            where = self._where[rank]
            host, pid = where if isinstance(where, tuple) else ("unknown", None)
            self.kill()
            raise WorkerError(failure_text(reply, f"{self.names[rank]} on {host}", pid, call.doing))
        if call.name == START:
            self._where[rank] = reply
        call.replies[rank] = reply, arrays

    def _losses(self) -> tuple[type[Exception], ...]:
        errors = self._ray.exceptions
        return errors.RayActorError, errors.ObjectLostError, errors.WorkerCrashedError, errors.NodeDiedError, errors.OutOfMemoryError

    def _replace(self, call: Call, rank: int, error: Exception) -> None:
        """Replace a lost actor by one that begins new episodes, and repeats the unfinished calls."""
        what = f"{_capitalized(self.names[rank])} was lost while {call.doing} ({_first_line(error)})"
        if call.name == START or self.n_restarts >= self.max_restarts:
            self.kill()
            raise WorkerError(f"{what}; {self.n_restarts} of max_restarts={self.max_restarts} were used before.\n{error}")
        self.n_restarts += 1
        logger.warn(f"{what}. Another one replaces it ({self.n_restarts} of max_restarts={self.max_restarts}).")
        with suppress(Exception):
            self._ray.kill(self.actors[rank])
        self.actors[rank] = actor = self._make(self._worker_kwargs[rank])
        self._where[rank] = "in place of a lost one"
        again = self._not_done(call, rank)
        actor.start.remote()  # If this or a later call raises, all following replies report the error.
        actor.do.remote(*self._recovery(rank, again), None)
        if self._stop_told:
            self._tell_stop([actor])
        for other in again:
            other.refs[rank] = _submit(actor, other)

    def _not_done(self, call: Call, rank: int) -> list[Call]:
        """Return the calls to repeat after the loss of an actor: all from the first one without its reply, at latest `call`."""
        open_calls = [other for other in self._underway if rank not in other.replies]
        for i, other in enumerate(open_calls):
            if other is call or not self._is_here(other.refs[rank]):
                return open_calls[i:]
        return []

    def _is_here(self, ref: Any) -> bool:
        try:
            self._ray.get(ref, timeout=0)
        except self._ray.exceptions.RayError:
            return False
        return True

    def _tell_stop(self, actors: list) -> None:
        for actor in actors:
            actor.stop_evaluation.options(concurrency_group="control").remote()

    # Silence --------------------------------------------------------------------------------------------------------
    def _ask_where(self, ranks: Iterable[int], seconds: float) -> dict[int, tuple[int, str]]:
        """Return the number of half-steps and the stack of each of these workers, except those that do not answer."""
        refs = {self.actors[rank].where.options(concurrency_group="control").remote(): rank for rank in ranks}
        ready, _ = self._ray.wait(list(refs), num_returns=len(refs), timeout=seconds)
        places = {}
        for ref in ready:
            with suppress(self._ray.exceptions.RayError):
                places[refs[ref]] = self._ray.get(ref)
        return places

    def _give_up(self, call: Call, seconds: float) -> None:
        silent = [rank for rank in range(len(self.names)) if rank not in call.replies]
        places = self._ask_where(silent, _LAST_ANSWER_SECONDS)
        lines = [f"No reply for {seconds:.0f} s (worker_timeout={self.timeout}) while {call.doing}:"]
        for rank in silent:
            stack = places.get(rank, (0, "  (no answer)\n"))[1]
            lines.append(f"{self.names[rank]}, {_place(self._where[rank])}, is at\n{stack}")
        self.kill()
        raise WorkerError("\n".join(lines))

    def _patience_text(self, call: Call, ranks: Iterable[int], seconds: float) -> str:
        names = "; ".join(f"{self.names[rank]}, {_place(self._where[rank])}" for rank in ranks)
        free = self._ray.available_resources()
        return (
            f"No reply for {seconds:.0f} s while {call.doing}: {names}. The cluster has {free.get('CPU', 0):g} free CPUs and "
            f"{free.get('GPU', 0):g} free GPUs, and each worker needs {self._options}. If an environment hangs, worker_timeout= turns "
            "this into an error that shows the place."
        )

    # Ending ---------------------------------------------------------------------------------------------------------
    def stop(self) -> None:
        """Let the actors finish and close their environments; end actors that do not. May be called twice.

        Raises:
            WorkerError: closing an environment raised.
        """
        if not self.actors:
            return
        failures = []
        with ending_on_failure(self):
            refs = {actor.close.remote(): rank for rank, actor in enumerate(self.actors)}
            ready, _ = self._ray.wait(list(refs), num_returns=len(refs), timeout=STOP_GRACE)
            for ref in ready:
                with suppress(self._ray.exceptions.RayError):
                    kind, report, _ = self._ray.get(ref)
                    if kind == "error":
                        failures.append(failure_text(report, self.names[refs[ref]], None, "closing environments"))
        self.kill()
        if failures:
            raise WorkerError(failures[0])

    def kill(self) -> None:
        """End all actors. May be called twice."""
        for actor in self.actors:
            with suppress(Exception):
                self._ray.kill(actor)
        self.actors, self._underway = [], []


def pickled(kwargs: dict) -> bytes:
    """Return arguments as bytes.

    Raises:
        TypeError: one of them cannot be pickled; the message names it.
    """
    cloudpickle = import_ray().cloudpickle
    try:
        return cloudpickle.dumps(kwargs)
    except Exception as error:
        for name, value in kwargs.items():
            try:
                cloudpickle.dumps(value)
            except Exception as reason:
                raise TypeError(
                    f"{name}={value!r} cannot be sent to Ray's actors ({reason}): give classes and functions instead of objects, "
                    "e.g. EnvCls and env_kwargs instead of an environment."
                ) from error
        raise


def _submit(actor: Any, call: Call) -> Any:
    if call.name == START:
        return actor.start.remote()
    return actor.do.remote(call.name, call.argument, call.parameters)


def _place(where: Any) -> str:
    return f"pid {where[1]} on {where[0]}" if isinstance(where, tuple) else where


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def _capitalized(text: str) -> str:
    return text[0].upper() + text[1:]
