"""Episodes from workers in other processes.

::

    master                                         worker
      | -- ("play", what, updates) ------------------> |  plays; keeps the episodes in its memory
      | <------------------- layout, small arrays --   |  dtypes and shapes of the packed arrays
      |    memory for the episodes of all workers      |
      | -- ("write", layout, offsets), descriptor ---> |  gathers its episodes there, in parallel with the others
      | <------------------------------------ None --  |

Parameters travel to the workers through shared memory as well; the command names their version.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from multiprocessing import reduction
from multiprocessing.connection import Connection
from typing import Any

import cloudpickle
import numpy as np

from rlpyt.agents.exchange import SharedParameters
from rlpyt.episodes.batch import EpisodeBatch
from rlpyt.episodes.segments import Episodes, Layout
from rlpyt.samplers.episodic.policies import OptionalMethods
from rlpyt.samplers.episodic.sampler import Sampler, once, play, put_together
from rlpyt.samplers.episodic.workers import Worker, for_worker
from rlpyt.samplers.parallel.worker import initialize_worker
from rlpyt.samplers.workers import WorkerPool, ending_on_failure, send_by_value
from rlpyt.utils.array import ALIGNMENT, aligned_size
from rlpyt.utils.buffer import SharedMap, check_memory, np_mp_array
from rlpyt.utils.settings import COUNT, POSITIVE, START_METHOD, checked

PICKLED_BYTES = 256 * 1024  # Smaller batches are sent through the pipe directly.


class MultiprocessingSampler(Sampler):
    """Runs each worker in a separate process.

    Episodes and parameters go through shared memory. Workers use the CPU, with one thread each; parameters of a policy on a GPU are copied.
    If a worker raises or dies, or on Ctrl-C, all workers are ended. The error names the worker, and shows its traceback.

    Args:
        args, kwargs: see `Sampler`.
        start_method: "fork", "spawn" or "forkserver"; None means fork on Linux. Except with fork, environments and policies, or
            the functions that make them, must be picklable by cloudpickle.
        worker_timeout: seconds without a sign of life after which a worker is reported as hung, with its stack; None only warns.
        worker_torch_threads: torch threads of each worker.
    """

    @checked(start_method=START_METHOD, worker_timeout=POSITIVE, worker_torch_threads=COUNT)
    def __init__(
        self,
        *args: Any,
        start_method: str | None = None,
        worker_timeout: float | None = None,
        worker_torch_threads: int = 1,
        **kwargs: Any,
    ) -> None:
        self._start_method, self._worker_timeout, self._torch_threads = start_method, worker_timeout, worker_torch_threads
        super().__init__(*args, **kwargs)

    def _options(self) -> dict:
        return dict(start_method=self._start_method, worker_timeout=self._worker_timeout, worker_torch_threads=self._torch_threads)

    def _start(self) -> None:
        n = self._factory.n_workers
        self._parameters = _shared_parameters(self._agents)
        self._memories = _Memories()
        progress = np_mp_array(n, np.int64)
        self._pool = WorkerPool(
            _worker_process,
            [
                dict(
                    number=i,
                    start=_ByCloudpickle((self._factory, for_worker(self._agents[i], cpu=True), self._envs[i])),
                    parameters=self._parameters,
                    progress=progress[i : i + 1],
                    torch_threads=self._torch_threads,
                )
                for i in range(n)
            ],
            [f"worker {i} of {n} of the {type(self).__name__}" for i in range(n)],
            start_method=self._start_method,
            timeout=self._worker_timeout,
            progress=progress,
        )
        self._pool.receive()

    def _play(self, what: str, amounts: list[int], agent_updates: list, env_updates: list) -> EpisodeBatch:
        doing = f"obtaining {sum(amounts)} {what} at iteration {self._itr}"
        self._has_sent = False  # The shared memory has room for one set of parameters.
        updates = once(self._agent_message, agent_updates), once(cloudpickle.dumps, env_updates)
        replies = self._pool.request(("play", self._itr, what, amounts, self._unbiased, *updates), doing)
        return put_together(replies, partial(self._have_written, doing))

    def _have_written(self, doing: str, merged: Layout, places: list) -> tuple[dict, dict]:
        """Let the workers gather their episodes in shared memory.

        Returns:
            The arrays in this memory, and for each worker its arrays of objects, which cannot be in shared memory.
        """
        sizes = Layout(merged.leaves, merged.last, [sum(merged.lengths)] + [0] * (len(merged.lengths) - 1), [])
        n_bytes = sizes.n_bytes + ALIGNMENT * (len(sizes.leaves) + len(sizes.last))
        with ending_on_failure(self._pool):
            key, memory, is_new = self._memories.take(n_bytes)
            self._pool.send(("write", key, memory.n_bytes, is_new, list(self._memories.maps), sizes, places), doing)
            for pipe, process in zip(self._pool.pipes, self._pool.processes) if is_new else ():
                with suppress(OSError):  # The worker has died, which is noticed next.
                    reduction.send_handle(pipe, memory.fd, process.pid)
            arrays = sizes.allocate(_in(memory))
            self._memories.lend(key, arrays.values())
            return arrays, dict(enumerate(self._pool.receive()))

    def _agent_message(self, update: Any) -> Any:
        """Return the version of the parameters in shared memory, or pickled bytes."""
        if self._parameters is not None and not self._has_sent and self._parameters.fits(update):
            self._has_sent = True
            return self._parameters.send(update)
        return cloudpickle.dumps(for_worker(update, cpu=True))

    @property
    def _is_running(self) -> bool:
        return bool(self._pool.processes)

    def _worker_states(self) -> list[dict] | None:
        return self._pool.request(("state",), "asking where they are") if self._is_running else None

    def _set_worker_states(self, states: list[dict]) -> int:
        return sum(self._pool.request(("restore", states), "restoring the states of the workers"))

    def shutdown_worker(self) -> None:
        """Close the environments and end the processes. May be called twice."""
        self._pool.stop()


# ---------------------------------------------------------------------------------------------------------------------
# In the worker
# ---------------------------------------------------------------------------------------------------------------------
class _ByCloudpickle:
    """Holds an object to be pickled by cloudpickle; under fork nothing is pickled."""

    def __init__(self, content: Any) -> None:
        self.content = content

    def __reduce__(self) -> tuple:
        return _from_cloudpickle, (cloudpickle.dumps(self.content),)


def _from_cloudpickle(pickled: bytes) -> _ByCloudpickle:
    return _ByCloudpickle(cloudpickle.loads(pickled))


def _worker_process(
    pipe: Connection, number: int, start: _ByCloudpickle, parameters: SharedParameters | None, progress: np.ndarray, torch_threads: int
) -> None:
    """Make a worker, and carry out the master's commands until None."""
    initialize_worker(number, torch_threads=torch_threads)
    factory, agent, env = start.content
    player = _Player(factory(number), number, pipe, parameters)
    player.worker.progress = progress
    try:
        player.worker.update_agent(agent)
        player.worker.update_env(env)
        reply: Any = None
        while True:
            send_by_value(pipe, ("ok", reply))
            command = pipe.recv()
            if command is None:
                break
            name, *arguments = command
            reply = getattr(player, name)(*arguments)
    except BaseException:
        with suppress(Exception):  # The first error is the one to report.
            player.worker.shutdown()
        raise
    player.worker.shutdown()
    pipe.send(("ok", None))


class _Player:
    """A worker, and the episodes that it has played. The methods are the master's commands.

    Args:
        worker: the worker.
        number: its number.
        pipe: to the master.
        parameters: memory for the policy's parameters, if they can be shared.
    """

    def __init__(self, worker: Worker, number: int, pipe: Connection, parameters: SharedParameters | None) -> None:
        self.worker, self._number, self._pipe, self._parameters = worker, number, pipe, parameters
        self._played = Episodes()
        self._maps: dict[int, SharedMap] = {}  # The master's memories by key.

    def play(
        self, itr: int, what: str, amounts: list[int], unbiased: bool, agent_updates: list, env_updates: list
    ) -> tuple[Layout, Any, dict] | None:
        """Update the worker and let it play.

        Returns:
            The layout, the environments' specification, and all arrays if they are small; None if there are no episodes.
        """
        agent_update, env_update = agent_updates[self._number], env_updates[self._number]
        if isinstance(agent_update, int) and self._parameters is not None:  # The version of the parameters.
            self.worker.update_agent(self._parameters.receive(agent_update))
        elif agent_update is not None:
            self.worker.update_agent(cloudpickle.loads(agent_update))
        if env_update is not None:
            self.worker.update_env(cloudpickle.loads(env_update))
        self._played = played = play(self.worker, itr, what, amounts[self._number], unbiased)
        if not played.episodes:
            return None
        layout = played.layout()
        return layout, played.env_spec, played.packed(layout) if layout.n_bytes < PICKLED_BYTES else {}

    def write(self, key: int, n_bytes: int, is_new: bool, keys: list[int], sizes: Layout, places: list) -> dict:
        """Gather the episodes in the memory that the master has chosen; return the arrays of objects, which cannot be in shared memory."""
        if is_new:
            self._maps[key] = SharedMap(n_bytes, reduction.recv_handle(self._pipe))
        for gone in self._maps.keys() - set(keys):
            del self._maps[gone]
        played, self._played = self._played, Episodes()
        if not played.episodes:
            return {}
        merged = sizes.allocate(_in(self._maps[key]))
        arrays = {path: array[places[self._number][path in sizes.last]] for path, array in merged.items()}
        played.write(arrays)
        return {path: array for path, array in arrays.items() if array.dtype == object}

    def state(self) -> dict:
        """Return the worker's state."""
        return self.worker.state_dict()

    def restore(self, states: list[dict]) -> int:
        """Restore the worker's state; return how many environments restart instead."""
        return self.worker.load_state_dict(states[self._number])


class _Memories:
    """Shared memory for batches. Memory is reused when no array of its last batch is alive, because new memory is slow.

    Attributes:
        maps: the memories by key.
    """

    def __init__(self) -> None:
        self.maps: dict[int, SharedMap] = {}
        self._arrays: dict[int, list[weakref.ref]] = {}
        self._n = 0

    def take(self, n_bytes: int) -> tuple[int, SharedMap, bool]:
        """Return the key of free memory that is large enough, the memory, and whether it is new; release other free memory."""
        free = [key for key in self.maps if all(array() is None for array in self._arrays[key])]
        fitting = [key for key in free if n_bytes <= self.maps[key].n_bytes <= 4 * n_bytes]
        for key in free:
            if key not in fitting[:1]:
                del self.maps[key], self._arrays[key]
        if fitting:
            return fitting[0], self.maps[fitting[0]], False
        check_memory(n_bytes, "A batch of episodes")
        self._n += 1
        self.maps[self._n] = SharedMap(n_bytes + n_bytes // 4)  # The next batch may be larger. Unused pages take no memory.
        self._arrays[self._n] = []
        return self._n, self.maps[self._n], True

    def lend(self, key: int, arrays: Iterable[np.ndarray]) -> None:
        """Keep this memory until these arrays are gone."""
        self._arrays[key] = [weakref.ref(array) for array in arrays]


def _in(memory: SharedMap) -> Callable[[tuple, np.dtype], np.ndarray]:
    """Return a function that allocates consecutive arrays in this memory. The same calls give the same arrays in every process."""
    position = 0

    def empty(shape: tuple, dtype: np.dtype) -> np.ndarray:
        nonlocal position
        array = np.ndarray(shape, dtype, buffer=memory, offset=position)
        position += aligned_size(array.nbytes)
        return array

    return empty


def _shared_parameters(policies: list) -> SharedParameters | None:
    """Return memory for the policy's parameters; None if they cannot be shared."""
    try:
        return SharedParameters(OptionalMethods(policies[0]).get_param_values())
    except TypeError:
        return None
