"""Episodes from workers that are actors of a Ray cluster."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

import cloudpickle
import numpy as np

from rlpyt.envs.env_update import supersedes
from rlpyt.episodes.batch import EpisodeBatch
from rlpyt.samplers.episodic.sampler import Sampler, once, play, put_together
from rlpyt.samplers.episodic.workers import Worker, for_worker, is_parameters
from rlpyt.samplers.parallel.worker import initialize_worker
from rlpyt.samplers.ray.actors import ActorPool, Call, WorkerActor
from rlpyt.samplers.ray.cluster import Cluster
from rlpyt.samplers.workers import ending_on_failure
from rlpyt.utils.cluster import import_ray
from rlpyt.utils.settings import POSITIVE, STEPS, checked


class RaySampler(Sampler):
    """Runs each worker in an actor of a Ray cluster, on any of its machines, with one thread on the CPU.

    With the same seed it returns the same as a `LocalSampler`. If all workers get the same update of the policy, it is put into Ray's
    object store only once. A cluster that others have started or joined keeps running.

    Args:
        args, kwargs: see `Sampler`.
        address: address of the cluster; see `rlpyt.utils.cluster.Cluster`. None starts a local one, unless one runs.
        actor_options: resources and placement of each actor, as for Ray's ``.options``. Default: ``num_cpus=1``, on all machines.
        init_kwargs: further arguments of ``ray.init``, if the sampler starts or joins a cluster.
        max_restarts: total number of lost actors that are replaced. A replacement gets the policy and environments of the lost actor, and
            plays its whole share, with other random numbers.
        worker_timeout: seconds without a sign of life after which a worker is reported as hung, with its stack; None only warns.

    Raises:
        ValueError: the workers need more CPUs than the cluster has. Other errors are those of `Sampler`.

    Attributes:
        n_restarts: number of actors that have been replaced.
    """

    @checked(max_restarts=STEPS, worker_timeout=POSITIVE)
    def __init__(
        self,
        *args: Any,
        address: str | None = None,
        actor_options: dict | None = None,
        init_kwargs: dict | None = None,
        max_restarts: int = 3,
        worker_timeout: float | None = None,
        **kwargs: Any,
    ) -> None:
        import_ray()
        given: dict[str, Any] = dict(address=address, actor_options=actor_options, init_kwargs=init_kwargs)
        self._ray_options = dict(given, max_restarts=max_restarts, worker_timeout=worker_timeout)
        super().__init__(*args, **kwargs)

    def _options(self) -> dict:
        return self._ray_options

    def _start(self) -> None:
        options, n = self._ray_options, self._factory.n_workers
        actor_options = {"num_cpus": 1, "scheduling_strategy": "SPREAD", **(options["actor_options"] or {})}
        self._started_pool: ActorPool | None = None
        self._cluster: Cluster | None = Cluster(options["address"], options["init_kwargs"])
        try:
            self._cluster.check_room(n, float(actor_options["num_cpus"] or 0), "n_workers")
            self._pasts = [_Past() for _ in range(n)]
            for past, *given in zip(self._pasts, *self._updates_and_messages(self._agents, self._envs)):
                past.append(*given)
            self._started_pool = ActorPool(
                EpisodeActor,
                dict(factory=self._factory),
                [dict(number=i, updates=self._pasts[i].updates()) for i in range(n)],
                [f"worker {i} of {n} of the {type(self).__name__}" for i in range(n)],
                options=actor_options,
                timeout=options["worker_timeout"],
                max_restarts=options["max_restarts"],
                recovery=self._recovery,
                stop=np.zeros(1, bool),
            )
        except BaseException:
            self.shutdown_worker()
            raise

    @property
    def _is_running(self) -> bool:
        return self._started_pool is not None and bool(self._started_pool.actors)

    def _running_pool(self) -> ActorPool:
        if self._started_pool is None:
            raise RuntimeError("The sampler has no workers: its constructor failed, or it was shut down.")
        return self._started_pool

    @property
    def n_restarts(self) -> int:
        """Number of actors that have been replaced."""
        return 0 if self._started_pool is None else self._started_pool.n_restarts

    def _play(self, what: str, amounts: list[int], agent_updates: list, env_updates: list) -> EpisodeBatch:
        given = list(zip(*self._updates_and_messages(agent_updates, env_updates)))
        updates = [([agent_message], [env_message]) for _, agent_message, _, env_message in given]
        doing = f"obtaining {sum(amounts)} {what} at iteration {self._itr}"
        pool = self._running_pool()
        with ending_on_failure(pool):
            call = pool.submit("play", (self._itr, what, amounts, self._unbiased, updates), doing)
            replies = pool.receive(call)
        for past, each in zip(self._pasts, given):
            past.append(*each)
        return put_together([None if reply is None else (*reply, arrays) for reply, arrays in replies])

    def _updates_and_messages(self, agent_updates: list, env_updates: list) -> tuple[list, list, list, list]:
        """Return the updates of all policies and the messages that carry them, and the same for environments."""
        return agent_updates, once(self._put, agent_updates), env_updates, once(cloudpickle.dumps, env_updates)

    def _put(self, update: Any) -> list:
        """Put an update of the policy into the object store; return a reference, in a list so that Ray does not resolve it."""
        return [import_ray().put(cloudpickle.dumps(for_worker(update, cpu=True)))]

    def _recovery(self, rank: int, calls: list[Call]) -> tuple[str, Any]:
        return "renew", (self.n_restarts, self._pasts[rank].updates())

    def _worker_states(self) -> list[dict] | None:
        return self._running_pool().request(("state", None), "asking where they are") if self._is_running else None

    def _set_worker_states(self, states: list[dict]) -> int:
        return sum(self._running_pool().request(("restore", states), "restoring the states of the workers"))

    def shutdown_worker(self) -> None:
        """Close the environments, end the actors, and leave the cluster; end it if this process started it. May be called twice."""
        cluster, self._cluster = self._cluster, None
        try:
            if self._started_pool is not None:
                self._started_pool.stop()
        finally:
            if cluster is not None:
                cluster.close()


@dataclass
class _Past:
    """The messages with updates that one worker has received, from which a replacement is made."""

    policy: Any = None
    parameters: Any = None  # The latest message with parameters after the policy, if any.
    envs: list = field(default_factory=list)  # Pairs of update and message: first makes the environments; others change them.

    def append(self, agent_update: Any, agent_message: Any, env_update: Any, env_message: Any) -> None:
        """Record the updates of a worker and their messages; None for no update."""
        if is_parameters(agent_update):
            self.parameters = agent_message
        elif agent_update is not None:
            self.policy, self.parameters = agent_message, None
        if env_update is None:
            return
        while self.envs and supersedes(env_update, self.envs[-1][0]):
            self.envs.pop()
        self.envs.append((env_update, env_message))

    def updates(self) -> tuple[list, list]:
        """Return the messages about the policy, and those about environments, in order."""
        return [self.policy, self.parameters], [message for _, message in self.envs]


class EpisodeActor(WorkerActor):
    """A worker that plays episodes."""

    _worker: Worker | None = None  # Until it is made, and after it is closed.

    def _start(self, common: dict, worker_kwargs: dict) -> None:
        self._factory, self._number, self._updates = common["factory"], worker_kwargs["number"], worker_kwargs["updates"]
        self._worker = None
        initialize_worker(self._number)
        self._renew(0, self._updates)

    def _renew(self, attempt: int, updates: tuple[list, list]) -> None:
        """Make the worker; a later `attempt` has other random numbers."""
        self._close()
        factory = copy.copy(self._factory)
        if attempt:
            factory.seed = int(np.random.SeedSequence([factory.seed, attempt]).generate_state(1, np.uint64)[0])
        self._worker = worker = factory(self._number)
        worker.progress = self._progress
        self._update(updates)

    def _made(self) -> Worker:
        if self._worker is None:
            raise RuntimeError("The worker was closed, or has not been made yet.")
        return self._worker

    def _update(self, updates: tuple[list, list]) -> None:
        agent_updates, env_updates = updates
        for update in agent_updates:
            if update is not None:
                self._made().update_agent(cloudpickle.loads(import_ray().get(update[0])))
        for update in env_updates:
            if update is not None:
                self._made().update_env(cloudpickle.loads(update))

    def _do(self, name: str, argument: Any, parameters: Any) -> tuple[Any, dict | None]:
        if name == "renew":
            self._renew(*argument)
            return None, None
        if name == "state":
            return self._made().state_dict(), None
        if name == "restore":
            return self._made().load_state_dict(argument[self._number]), None
        itr, what, amounts, unbiased, updates = argument
        self._update(updates[self._number])
        played = play(self._made(), itr, what, amounts[self._number], unbiased)
        if not played.episodes:
            return None, None
        layout = played.layout()
        return (layout, played.env_spec), played.packed(layout)

    def _close(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.shutdown()
