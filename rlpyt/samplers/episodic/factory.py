"""The factory of a sampler's workers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import psutil

from rlpyt.samplers.episodic.workers import DefaultWorker, Worker
from rlpyt.utils.processors import allowed_cpus
from rlpyt.utils.recipes import Recorded
from rlpyt.utils.seed import next_seed
from rlpyt.utils.settings import COUNT, SEED, ArgumentsFor, Kind, Number, checked

OF_PROCESS = object()  # The last seed of `set_seed`, or one derived from it.


def identity_function(value: Any) -> Any:
    """Return `value`."""
    return value


OF_WORKERS = dict(
    seed=Kind(SEED.words, lambda value: value is OF_PROCESS or SEED.allows(value), optional=True),
    max_episode_length=Number(1),
    n_workers=COUNT,
    worker_args=ArgumentsFor(
        "worker_class", given=dict(seed="seed", max_episode_length="max_episode_length", worker_number="the sampler"), by=("__call__",)
    ),
)


class WorkerFactory(Recorded):
    """Makes workers. Samplers send the factory to the processes of their workers.

    Args:
        seed: seed of the run; each worker, and each environment, draws from a separate stream of random numbers. By default the last seed
            of `rlpyt.utils.seed.set_seed`. Later factories derive another one from it, so that no two samplers repeat each other. None,
            or the default without a call of `set_seed`, draws a seed from the system.
        max_episode_length: steps after which episodes are truncated (env steps; may be infinite).
        n_workers: number of workers; by default one per core of the machine that this process may use.
        worker_class: class of the workers.
        worker_args: further arguments of this class, such as ``dict(n_envs=16)`` of a VecWorker.

    Attributes: the arguments; `seed` is always a number.
    """

    @checked(OF_WORKERS)
    def __init__(
        self,
        *,
        seed: Any = OF_PROCESS,
        max_episode_length: float,
        n_workers: int | None = None,
        worker_class: Callable[..., Worker] = DefaultWorker,
        worker_args: dict | None = None,
    ) -> None:
        n_workers = min(psutil.cpu_count(logical=False) or 1, len(allowed_cpus())) if n_workers is None else n_workers
        seed = next_seed() if seed is OF_PROCESS else seed
        self.seed = np.random.SeedSequence(None if seed is None else int(seed)).entropy
        self.max_episode_length = max_episode_length
        self.n_workers = n_workers
        self.worker_class = worker_class
        self.worker_args = {} if worker_args is None else worker_args

    def prepare_worker_messages(self, objs: Any, preprocess: Callable[[Any], Any] = identity_function) -> list:
        """Return one object per worker.

        Args:
            objs: a list with one object for each worker, or one object (of any other type) for all workers.
            preprocess: function applied to each object.

        Raises:
            ValueError: the list has another length.
        """
        if not isinstance(objs, list):
            return [preprocess(objs) for _ in range(self.n_workers)]
        if len(objs) != self.n_workers:
            raise ValueError(
                f"The list has {len(objs)} entries, but n_workers={self.n_workers}: give one entry per worker, or one object for all."
            )
        return [preprocess(obj) for obj in objs]

    def __call__(self, worker_number: int) -> Worker:
        """Make the worker with this number.

        Raises:
            ValueError: `worker_number` is out of range.
        """
        if not 0 <= worker_number < self.n_workers:
            raise ValueError(f"worker_number={worker_number} must be from 0 to n_workers - 1, and n_workers={self.n_workers}.")
        return self.worker_class(
            worker_number=worker_number, seed=self.seed, max_episode_length=self.max_episode_length, **self.worker_args
        )
