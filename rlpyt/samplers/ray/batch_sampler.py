"""Batches ``[T,B]`` from a Ray cluster: environments and agents in actors, on any number of machines."""

from __future__ import annotations

import copy
from collections import deque
from typing import Any, cast

import torch

from rlpyt.samplers.parallel.base import ParallelSamplerBase, worker_name
from rlpyt.samplers.parallel.cpu.collectors import CpuEvalCollector, CpuResetCollector
from rlpyt.samplers.ray.actors import ActorPool, Call, SamplerActor, batch_arrays, copy_arrays, model_arrays
from rlpyt.samplers.ray.cluster import Cluster
from rlpyt.samplers.workers import ending_on_failure
from rlpyt.types import infos_from_plain, plain_infos
from rlpyt.utils.choices import current
from rlpyt.utils.cluster import import_ray
from rlpyt.utils.logging import logger
from rlpyt.utils.settings import COUNT, STEPS, checked


class RayBatchSampler(ParallelSamplerBase):
    """Each actor of a Ray cluster steps its share of the environments and runs the agent for them, on the CPU.

    Replaces a `CpuSampler`, with the same collectors, in every runner. With the same seed, and as many actors as the `CpuSampler` has
    workers, it samples the same. The cluster's machines need the same packages, and must find the classes of environments and agents.

    Args:
        n_actors: number of actors, at most one per environment. None for the number of entries of ``affinity["workers_cpus"]``, or without
            this one per CPU of the cluster, shared by all samplers of a run (of `SyncRl`'s ranks).
        in_flight: number of batches collected ahead. With 0, each batch is collected with the latest parameters. With n, actors collect
            the next n batches while the algorithm optimizes, with parameters up to n updates old (see `policy_lag`). Impala and Appo
            correct for this. PPO, and methods with replay, tolerate 1.
        max_restarts: total number of lost actors (process or machine ended) that are replaced. Their environments begin new episodes.
        address: address of the Ray cluster; see `rlpyt.utils.cluster.Cluster`. None starts a local one, unless one runs.
        actor_options: resources and placement of each actor, as for Ray's ``.options``. Default: ``num_cpus=1``, on all machines.
        init_kwargs: further arguments of ``ray.init``, if the sampler starts or joins a cluster.
        args, kwargs: see `BaseSampler`. `worker_timeout` is for actors; `start_method` is ignored.

    Attributes:
        parameters_version: how often parameters have been sent to the actors to collect a batch; in an `AsyncRayBatchSampler`, the agent's
            `parameters_version` when they were last sent.
        batch_parameters_version: version of the parameters with which the last batch was collected.
        n_restarts: number of actors that have been replaced.
    """

    agent_in_workers = True
    parameters_version = 0
    batch_parameters_version = 0

    @checked(n_actors=COUNT, in_flight=STEPS, max_restarts=STEPS)
    def __init__(
        self,
        *args: Any,
        CollectorCls: Any = CpuResetCollector,
        eval_CollectorCls: Any = CpuEvalCollector,
        n_actors: int | None = None,
        in_flight: int = 0,
        max_restarts: int = 3,
        address: str | None = None,
        actor_options: dict | None = None,
        init_kwargs: dict | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, CollectorCls=CollectorCls, eval_CollectorCls=eval_CollectorCls, **kwargs)
        import_ray()
        self.n_actors = n_actors
        self.in_flight = in_flight
        self.max_restarts = max_restarts
        self.address = address
        self.actor_options = {"num_cpus": 1, "scheduling_strategy": "SPREAD", **(actor_options or {})}
        self.init_kwargs = init_kwargs

    _cluster: Cluster | None = None  # While the sampler is running.
    _pool: ActorPool | None = None  # type: ignore[assignment]  # In place of a `WorkerPool`.

    # Starting and ending --------------------------------------------------------------------------------------------
    def _start(self, affinity: dict | None, worker_process: Any = None) -> None:
        """Join or start a cluster, start the actors and wait until they are ready."""
        if worker_process is not None:
            raise ValueError("worker_process is for samplers whose workers are processes of this machine.")
        self._affinity = affinity = affinity or {}
        self._changed: set[int] = set()  # Columns whose environments `update_envs` has changed.
        self._pending: deque[Call] = deque()  # Batches collected ahead, complete or in progress.
        self._restart_next: set[int] = set()  # Columns that begin new episodes with the next submitted batch.
        self._cluster = cluster = Cluster(self.address, self.init_kwargs)
        try:
            workers_kwargs = self._workers_kwargs([None] * self._count_actors(affinity, cluster))
            for kwargs in workers_kwargs:  # Remove shared memory, which actors cannot use.
                kwargs["batches_np"] = kwargs["progress"] = None
            self._pool: Any = ActorPool(
                SamplerActor,
                self._common_kwargs(affinity),
                workers_kwargs,
                [worker_name(kwargs) for kwargs in workers_kwargs],
                options=self.actor_options,
                timeout=self.worker_timeout,
                max_restarts=self.max_restarts,
                recovery=self._recovery,
                stop=self.stop,
            )
        except BaseException:
            self.shutdown()
            raise

    def _common_kwargs(self, affinity: dict) -> dict:
        agent: Any = copy.copy(self.agent)
        agent._exchange = None  # Shared memory, useless on other machines.
        bootstrap_value = "bootstrap_value" in self.samples_np.agent
        kwargs = dict(agent=agent, stop=None, bootstrap_value=bootstrap_value, choices=current())
        return {**super()._common_kwargs(affinity), **kwargs, "keep_terminal_observations": self.keep_terminal_observations}

    def _running_pool(self) -> ActorPool:  # type: ignore[override]
        return cast(ActorPool, super()._running_pool())

    def _count_actors(self, affinity: dict, cluster: Cluster) -> int:
        each = float(self.actor_options.get("num_cpus") or 0)
        n = self.n_actors or len(affinity.get("workers_cpus") or ()) or max(cluster.n_places(each, self._n_samplers), 1)
        n = min(n, self.batch_spec.B)
        cluster.check_room(n, each, "n_actors", self._n_samplers)
        return n

    @property
    def _n_samplers(self) -> int:
        """Number of samplers of the run, each in a separate process."""
        return self._global_B // self.batch_spec.B

    def _recovery(self, rank: int, calls: list[Call]) -> tuple[str, Any]:
        """Return the command with which the replacement of a lost actor begins new episodes.

        These begin with the first batch that the replacement collects; the lost actor may have completed many batches ahead of it.
        """
        columns = self._columns[rank]
        first_batch = next((call for call in calls if call.name == "collect"), None)
        (self._restart_next if first_batch is None else first_batch.restarted).update(columns)
        if changed := sorted(self._changed.intersection(columns)):
            logger.warn(
                f"Environments are those of EnvCls again in columns {changed} of the batch, which update_envs had changed: "
                "call it again to change them."
            )
            self._changed.difference_update(changed)
        return "load", (self.itr, [None] * len(self._columns))

    def shutdown(self) -> None:
        """Close the environments, end the actors, and leave the cluster; end it if this process started it. May be called twice."""
        cluster, self._cluster = self._cluster, None
        try:
            super().shutdown()
        finally:
            if cluster is not None:
                cluster.close()

    @property
    def n_restarts(self) -> int:
        """Number of actors that have been replaced."""
        return 0 if self._pool is None else self._pool.n_restarts

    # Sampling -------------------------------------------------------------------------------------------------------
    @property
    def policy_lag(self) -> int:
        """How often parameters were sent to the actors to collect, since those that acted in the last batch: 0 if none are `in_flight`."""
        return self.parameters_version - self.batch_parameters_version

    def _run(self, name: str, argument: Any, doing: str) -> list:
        pool: Any = self._running_pool()  # An ActorPool.
        with ending_on_failure(pool):
            parameters = self._put_parameters()
            if name != "collect":
                return pool.request((name, argument), doing, parameters)
            self.parameters_version = self._version_to_send()
            for itr in range(self.itr + len(self._pending), self.itr + self.in_flight + 1):
                call = pool.submit(name, (itr, 0), f"collecting batch {itr}", parameters)
                call.version, call.restarted, self._restart_next = self.parameters_version, self._restart_next, set()
                self._pending.append(call)
            call = self._pending.popleft()
            replies = pool.receive(call)
        self.batch_parameters_version = call.version
        self._add_restarted(sorted(call.restarted))
        for columns, (_, arrays) in zip(self._columns, replies):
            copy_arrays(batch_arrays(self.samples_np[:, columns.start : columns.stop]), arrays)
        return [reply for reply, _ in replies]

    def _version_to_send(self) -> int:
        return self.parameters_version + 1

    def _put_parameters(self) -> Any:
        """Put the latest parameters into the object store, once for all actors; return the reference."""
        self.agent.sync_shared_memory()  # Copies only if the trained model is a separate one, e.g. on a GPU.
        return import_ray().put(model_arrays(self.agent))

    def update_envs(self, updates: Any) -> list[int]:
        """Change environments, between two batches; see `BaseSampler.update_envs`.

        The replacement of a lost actor starts with environments of `EnvCls` again; the log says so.

        Raises:
            NotImplementedError: batches are collected ahead.
        """
        if self.in_flight:
            raise NotImplementedError(
                f"With in_flight={self.in_flight}, batches are collected ahead in the present environments: use in_flight=0 to change "
                "environments."
            )
        columns = super().update_envs(updates)
        self._changed.update(columns)
        return columns

    # Checkpoints ----------------------------------------------------------------------------------------------------
    def state_dict(self) -> dict:
        """Wait for the batches collected ahead, and add them to the state of `ParallelSamplerBase`."""
        pool: Any = self._running_pool()  # An ActorPool.
        with ending_on_failure(pool):
            replies = [pool.receive(call) for call in self._pending]
        state = super().state_dict()  # Only now, so that it includes replacements of actors lost while waiting.
        pending = [_plain(call, each) for call, each in zip(self._pending, replies)]
        return dict(state, parameters_version=self.parameters_version, pending=pending, begin_anew_next=sorted(self._restart_next))

    def load_state_dict(self, state: dict | None) -> list[int]:
        """After `initialize`: resume from the result of `state_dict`; return the columns whose environments begin a new episode."""
        restarted = super().load_state_dict(state)
        self._pending.clear()
        self._restart_next = set()
        if state is None:
            return restarted
        self.parameters_version = state.get("parameters_version", self.parameters_version)
        if len(restarted) < self.batch_spec.B:
            self._pending.extend(self._call_from_plain(saved) for saved in state["pending"])
            self._restart_next.update(restarted, state["begin_anew_next"])
        return restarted

    def _call_from_plain(self, saved: dict) -> Call:
        replies = [
            ((infos_from_plain(infos, self.TrajInfoCls), completed_at), [tensor.numpy() for tensor in tensors])
            for infos, completed_at, tensors in saved["replies"]
        ]
        return Call("collect", replies=dict(enumerate(replies)), version=saved["version"], restarted=set(saved["begun_anew"]))


def _plain(call: Call, replies: list) -> dict:
    plain = []
    for (infos, completed_at), arrays in replies:
        ends = None if completed_at is None else [tuple(map(int, at)) for at in completed_at]
        plain.append((plain_infos(infos), ends, [torch.from_numpy(array.copy()) for array in arrays]))
    return dict(version=call.version, replies=plain, begun_anew=sorted(call.restarted))
