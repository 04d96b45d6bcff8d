"""The base class of samplers of whole episodes, and functions that they call in their workers."""

from __future__ import annotations

import math
import numbers
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import cloudpickle

from rlpyt.envs.base import close_env
from rlpyt.envs.env_update import (
    EnvUpdate,
    ExistingEnvUpdate,
    NewEnvUpdate,
    apply_env_update,
    check_env_update,
    first_update,
    warn_of_copies,
)
from rlpyt.episodes.batch import EpisodeBatch
from rlpyt.episodes.segments import Episodes, Layout
from rlpyt.samplers.episodic.factory import OF_PROCESS, OF_WORKERS, WorkerFactory
from rlpyt.samplers.episodic.policies import OptionalMethods
from rlpyt.samplers.episodic.workers import DefaultWorker, Worker, as_policy, is_parameters
from rlpyt.utils.logging import logger
from rlpyt.utils.misc import split_evenly
from rlpyt.utils.recipes import Recorded
from rlpyt.utils.seed import generators_in
from rlpyt.utils.settings import checked, has, is_integer, naming

# Arguments of a WorkerFactory that a sampler accepts instead of a factory.
_DEFAULTS = dict(seed=OF_PROCESS, max_episode_length=None, n_workers=None, worker_class=DefaultWorker, worker_args=None)


class Sampler(Recorded, ABC):
    """Plays episodes with several workers, and returns them as an EpisodeBatch.

    There are two ways to make one::

        LocalSampler(agents, envs, max_episode_length=100, n_workers=4)
        LocalSampler(WorkerFactory(max_episode_length=100, n_workers=4), agents, envs)

    Agents, environments and their updates are one for all workers, or a list with one for each worker. The entry of a `VecWorker` may be a
    list, with one environment for each of its `n_envs`. An environment may be replaced by a function or class without arguments that makes
    one, which is necessary if it cannot be copied or pickled.

    Every worker plays an equal share of the steps or episodes. Therefore the samples depend neither on the speed of the workers nor on the
    kind of sampler: with the same seed all samplers return the same.

    Args:
        worker_factory: makes the workers; replaces the arguments of a `WorkerFactory`. May also be the first argument.
        agents: policies, or agents of rlpyt.
        envs: environments of any kind.
        max_episode_length, seed, n_workers, worker_class, worker_args: see `WorkerFactory`.
        unbiased: whether `obtain_samples` finishes every episode that it starts. Otherwise it returns as soon as there are enough steps.
            The next call continues episodes in progress, but drops them if the policy has changed: short episodes are too frequent then.

    Raises:
        TypeError: both or neither of `worker_factory` and `max_episode_length` are given, or an entry of `envs` is no environment.
        ValueError: a list is not of length `n_workers`.

    Attributes:
        total_env_steps: steps of all environments returned so far.
    """

    @checked(OF_WORKERS, worker_factory=has("a WorkerFactory", "prepare_worker_messages"))
    def __init__(
        self,
        *args: Any,
        agents: Any = None,
        envs: Any = None,
        worker_factory: WorkerFactory | None = None,
        max_episode_length: float | None = None,
        seed: Any = OF_PROCESS,
        n_workers: int | None = None,
        worker_class: Callable[..., Worker] = DefaultWorker,
        worker_args: dict | None = None,
        unbiased: bool = True,
    ) -> None:
        worker_factory, agents, envs = _positional(type(self).__name__, args, worker_factory, agents, envs)
        settings = dict(
            seed=seed, max_episode_length=max_episode_length, n_workers=n_workers, worker_class=worker_class, worker_args=worker_args
        )
        if worker_factory is not None:
            ignored = [name for name, value in settings.items() if value is not _DEFAULTS[name]]
            if ignored:
                raise TypeError(
                    f"{type(self).__name__} got a worker_factory, so {', '.join(ignored)} must be given to the WorkerFactory instead."
                )
        else:
            if max_episode_length is None:
                raise TypeError(f"Must construct a sampler from worker_factory or max_episode_length: {type(self).__name__} got neither.")
            worker_factory = WorkerFactory(**settings)
        self._factory = worker_factory
        self._unbiased = unbiased
        self._given = agents, envs
        self.total_env_steps = 0
        with naming(self, "envs"):
            self._envs = self._env_updates(envs)
        with naming(self, "agents"):
            self._agents = once(as_policy, worker_factory.prepare_worker_messages(agents))  # the last policy given to each worker
        self._itr = max(OptionalMethods(policy).exploration_itr() for policy in self._agents)
        self._prepare(self._agents)
        self._warn_of_generators(self._agents)
        self._start()

    @property
    def given_envs(self) -> Any:
        """The environments, or their constructors, given to the sampler: one for all workers, or a list with one for each."""
        return self._given[1]

    @classmethod
    def from_worker_factory(cls, worker_factory: WorkerFactory, agents: Any, envs: Any) -> Sampler:
        """Make a sampler.

        Args:
            worker_factory: makes the workers.
            agents, envs: one for all workers, or a list with one for each.
        """
        return cls(agents, envs, worker_factory=worker_factory)

    def start_worker(self) -> None:  # noqa: B027  (part of the interface; subclasses need not define it)
        """Do nothing: workers start with the sampler. Deprecated."""

    def obtain_samples(self, itr: int, num_samples: int, agent_update: Any, env_update: Any = None) -> EpisodeBatch:
        """Play at least `num_samples` steps.

        Args:
            itr: number of the iteration; agents of rlpyt schedule their exploration by it.
            num_samples: env steps of all workers together. Each worker plays whole episodes until it has its share of the steps. The
                result exceeds `num_samples` by less than one episode per environment.
            agent_update: parameters of the policy, or a policy; None for no change. A list has one for each worker.
            env_update: an `EnvUpdate`, an environment or its constructor; None for no change. A list has one for each worker.

        Returns:
            The episodes, of one worker after the other.

        Raises:
            ValueError: `num_samples` is not finite.
        """
        if not isinstance(num_samples, numbers.Real) or not math.isfinite(num_samples):
            raise ValueError(f"num_samples={num_samples!r} must be a finite number of environment steps.")
        self._check_running()
        self._itr = itr
        n_workers = self._factory.n_workers
        shares = [len(part) for part in split_evenly(max(int(num_samples), 1), n_workers)]
        return self._counted(self._play("steps", shares, *self._messages(agent_update, env_update)))

    def obtain_exact_episodes(
        self, n_eps_per_worker: int, agent_update: Any, env_update: Any = None, itr: int | None = None
    ) -> EpisodeBatch:
        """Play exactly `n_eps_per_worker` episodes in each worker.

        Args:
            n_eps_per_worker: episodes of each worker.
            agent_update, env_update: see `obtain_samples`.
            itr: number of the iteration; None for that of the last call, or, in the first one, for the last in which the agent has sampled.

        Returns:
            The episodes: all of the first worker, then all of the second, and so on.

        Raises:
            ValueError: `n_eps_per_worker` is not an integer of at least 1.
        """
        if not is_integer(n_eps_per_worker, lowest=1):
            raise ValueError(f"n_eps_per_worker={n_eps_per_worker!r} must be a whole number of episodes, at least 1.")
        self._check_running()
        self._itr = self._itr if itr is None else itr
        amounts = [int(n_eps_per_worker)] * self._factory.n_workers
        return self._counted(self._play("episodes", amounts, *self._messages(agent_update, env_update)))

    def state_dict(self) -> dict:
        """Return the state of sampling: plain data, arrays and tensors.

        It includes the episodes in progress of a `FragmentWorker`, but no episodes with steps that have not been returned yet (if not
        `unbiased`).
        """
        return dict(itr=self._itr, total_env_steps=self.total_env_steps, workers=self._worker_states())

    def load_state_dict(self, state: dict) -> None:
        """Resume from the `state_dict` of a sampler made with the same arguments.

        Raises:
            ValueError: that sampler had another number of workers. RuntimeError: the workers have ended.
        """
        self._check_running()
        n_workers, workers = self._factory.n_workers, state["workers"]
        if workers is not None and len(workers) != n_workers:
            raise ValueError(f"The state is of a sampler with n_workers={len(workers)}, not n_workers={n_workers}.")
        self._itr, self.total_env_steps = state["itr"], state["total_env_steps"]
        unknown = None if workers is None else self._set_worker_states(workers)
        if unknown != 0:
            which = "All" if unknown is None else unknown
            are_replaced = any(worker.get("are_replaced") for worker in workers or ())
            hint = " An env_update had replaced some of them: give it again." if are_replaced else ""
            logger.log(f"{which} environments begin new episodes, because their states are unknown.{hint}")

    _copies_policies = True  # Whether every worker has a copy of its policy.

    def _warn_of_generators(self, policies: list) -> None:
        """Warn of policies whose copies would all draw the same random numbers."""
        shared = {id(policy): policy for policy in policies if sum(other is policy for other in policies) > 1 and policy is not None}
        for policy in shared.values() if self._copies_policies else ():
            if not (is_parameters(policy) or "copy_for_worker" in OptionalMethods(policy)) and generators_in(policy):
                name = type(policy).__name__
                warnings.warn(
                    f"{name} holds a random generator, so its copies in all {self._factory.n_workers} workers draw the same "
                    "random numbers: let it draw from the generators of numpy, Python or torch, which differ between workers, or give a "
                    "list of policies.",
                    stacklevel=4,
                )

    @property
    def _is_running(self) -> bool:
        """Whether the workers are running."""
        return True

    def _check_running(self) -> None:
        if not self._is_running:
            raise RuntimeError("The sampler was shut down, or one of its workers has failed: make a new one.")

    def _worker_states(self) -> list[dict] | None:
        """Return the states of all workers, or None if they are unknown."""
        return None

    def _set_worker_states(self, states: list[dict]) -> int | None:
        """Put all workers into these states; return how many environments restart instead, None for all."""
        return None

    @abstractmethod
    def shutdown_worker(self) -> None:
        """Close the environments and end the workers. May be called twice."""

    @abstractmethod
    def _start(self) -> None:
        """Make the workers."""

    @abstractmethod
    def _play(self, what: str, amounts: list[int], agent_updates: list, env_updates: list) -> EpisodeBatch:
        """Update each worker, then let it play its amount of `what` ("steps" or "episodes")."""

    def _messages(self, agent_update: Any, env_update: Any) -> tuple[list, list]:
        prepare = self._factory.prepare_worker_messages
        return self._agent_updates(prepare(agent_update)), self._env_updates(env_update)

    def _env_updates(self, env_update: Any) -> list:
        """Return one update per worker."""
        updates = self._factory.prepare_worker_messages(env_update, _checked_env)
        if self._factory.n_workers > 1 or self._factory.worker_class is not DefaultWorker:
            warn_of_copies(each for update in updates for each in (update if isinstance(update, list) else [update]))
        return updates

    def _agent_updates(self, agent_updates: list) -> list:
        """Return the updates as policies and parameters. A worker that already has the agent gets only the parameters."""
        updates = once(lambda update: update if is_parameters(update) else as_policy(update), agent_updates)
        self._warn_of_generators(updates)
        parameters: dict[int, Any] = {}  # one object per agent, for all workers
        for i, update in enumerate(updates):
            if update is None or is_parameters(update):
                continue
            if hasattr(update, "agent") and update.agent is origin(self._agents[i]):
                if id(update.agent) not in parameters:
                    parameters[id(update.agent)] = update.get_param_values()
                updates[i] = parameters[id(update.agent)]
            else:
                self._agents[i] = update
        self._prepare([policy for policy in self._agents if getattr(origin(policy), "env_spaces", True) is None])
        return updates

    def _counted(self, batch: EpisodeBatch) -> EpisodeBatch:
        self.total_env_steps += int(batch.lengths.sum())
        return batch

    def _prepare(self, policies: list) -> None:
        """Let policies that need to know the environment make their models here, so that all workers start with the same parameters."""
        policies = list({id(policy): policy for policy in policies if "prepare" in OptionalMethods(policy)}.values())
        if not policies:
            return
        update = first_update(self._envs)
        is_made_here = not _is_instance(update) and not isinstance(update, ExistingEnvUpdate)
        env = apply_env_update(None, update)
        try:
            for policy in policies:
                policy.prepare(env)
        finally:
            if is_made_here:
                close_env(env)

    def __getstate__(self) -> dict:
        """Return the arguments with which a copy makes its workers."""
        options = dict(worker_factory=self._factory, unbiased=self._unbiased, **self._options())
        return dict(pickled=cloudpickle.dumps((self._given, options)), total_env_steps=self.total_env_steps)

    def __setstate__(self, state: dict) -> None:
        given, options = cloudpickle.loads(state["pickled"])
        self.__init__(*given, **options)  # type: ignore[misc]
        self.total_env_steps = state["total_env_steps"]

    def _options(self) -> dict:
        """Return further arguments of the constructor."""
        return {}


def once(func: Callable[[Any], Any], updates: list) -> list:
    """Return ``func(update)`` for each update, and None for None; call `func` once per object, even if several workers get it."""
    different = {id(update): update for update in updates}
    results = {key: None if update is None else func(update) for key, update in different.items()}
    return [results[id(update)] for update in updates]


def origin(policy: Any) -> Any:
    """Return the owner of a policy's models: the agent of an `AgentPolicy`, or the policy itself."""
    return getattr(policy, "agent", policy)


def put_together(replies: list, have_written: Callable[[Layout, list], tuple[dict, dict]] | None = None) -> EpisodeBatch:
    """Return the batch of the episodes of all workers.

    Args:
        replies: for each worker the layout of its episodes, the environments' specification, and the arrays; None for no episodes.
        have_written: called with the layout of the batch and the `places_of` each worker, if a worker has not sent its arrays. It lets all
            workers write their arrays; returns those of the batch, and for each worker the arrays that it sent instead.
    """
    played = {i: reply for i, reply in enumerate(replies) if reply is not None}
    layouts = {i: layout for i, (layout, _, _) in played.items()}
    merged, places = Layout.merge(list(layouts.values())), places_of(layouts, len(replies))
    if have_written is None or all(arrays for _, _, arrays in played.values()):
        batch, parts = merged.allocate(), {i: arrays for i, (_, _, arrays) in played.items()}
    else:
        batch, parts = have_written(merged, places)
    for i, arrays in parts.items():
        for path, array in arrays.items():
            batch[path][places[i][path in merged.last]] = array
    return merged.batch(next(iter(played.values()))[1], batch)


def places_of(layouts: dict[int, Layout], n_workers: int) -> list:
    """Return for each worker its rows in arrays with a row per step, and in arrays with a row per episode."""
    places, step, episode = [], 0, 0
    for i in range(n_workers):
        n_steps, n_episodes = (sum(layouts[i].lengths), len(layouts[i].lengths)) if i in layouts else (0, 0)
        places.append((slice(step, step + n_steps), slice(episode, episode + n_episodes)))
        step, episode = step + n_steps, episode + n_episodes
    return places


def play(worker: Worker, itr: int, what: str, amount: int, unbiased: bool) -> Episodes:
    """Let `worker` play in its process.

    Args:
        itr: number of the iteration.
        what: "steps" or "episodes".
        amount: number of them.
        unbiased: see `Sampler`.
    """
    if amount == 0:
        return Episodes()
    agent = getattr(worker, "agent", None)
    if agent is not None and hasattr(agent, "sample_mode"):
        agent.sample_mode(itr)
    return worker.play_steps(amount, unbiased) if what == "steps" else worker.play_episodes(amount)


def _positional(name: str, args: tuple, worker_factory: Any, agents: Any, envs: Any) -> tuple:
    """Return worker_factory, agents and envs from positional arguments in either order, and keywords."""
    given = dict(worker_factory=worker_factory, agents=agents, envs=envs)
    order = ("worker_factory", "agents", "envs") if args and hasattr(args[0], "prepare_worker_messages") else ("agents", "envs")
    if len(args) > len(order):
        raise TypeError(f"{name} takes (agents, envs) or (worker_factory, agents, envs), got {len(args)} positional arguments.")
    for key, value in zip(order, args):
        if given[key] is not None:
            raise TypeError(f"{name} got two values for {key}.")
        given[key] = value
    missing = [key for key in ("agents", "envs") if given[key] is None]
    if missing:
        raise TypeError(f"{name} needs {' and '.join(missing)}.")
    return tuple(given.values())


def _checked_env(update: Any) -> Any:
    """Return `update`, or a NewEnvUpdate for a function or class that makes environments. Raise TypeError if it is no update."""
    if isinstance(update, list):
        return [_checked_env(each) for each in update]
    check_env_update(update)
    return NewEnvUpdate(update) if callable(update) and not isinstance(update, EnvUpdate) and not _is_instance(update) else update


def _is_instance(value: Any) -> bool:
    """Return whether `value` is an environment itself, not an update or a constructor."""
    return not isinstance(value, type) and hasattr(value, "step") and hasattr(value, "reset")
