"""Episodes from workers in this process."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import torch

from rlpyt.envs.env_update import copied_update
from rlpyt.episodes.batch import EpisodeBatch
from rlpyt.episodes.segments import Episodes
from rlpyt.samplers.episodic.policies import OptionalMethods
from rlpyt.samplers.episodic.sampler import Sampler, origin, play
from rlpyt.samplers.episodic.workers import Worker, for_worker, is_parameters
from rlpyt.utils.seed import all_parts


class LocalSampler(Sampler):
    """Runs the workers in the calling process and thread: the simplest sampler, in which ``breakpoint()`` works.

    Workers have copies of the environments. They share one policy; a worker that gets other parameters than the rest also gets a copy of
    the policy. If episodes continue between two calls (with a `FragmentWorker`, or if not `unbiased`), each worker has a copy from the
    start, because the policy may remember its episodes. These copies share the tensors of the parameters.
    Workers have separate random numbers, and leave those of the process unchanged.
    """

    _copies_policies = False

    def _start(self) -> None:
        self._workers: list[Worker] = []  # Empty after the end.
        self._has_copy = [False] * self._factory.n_workers  # Whether each worker's policy is its private copy.
        try:
            for i in range(self._factory.n_workers):
                self._workers.append(self._factory(i))
            self._update(self._agents, self._envs)
        except BaseException:
            self.shutdown_worker()
            raise

    @property
    def _is_running(self) -> bool:
        return bool(self._workers)

    def _update(self, agent_updates: list, env_updates: list) -> None:
        sharing = [i for i in range(len(self._workers)) if self._shares_what_changes(i, agent_updates)]
        for i in sharing:
            sharer: Any = self._workers[i]
            sharer.agent, self._has_copy[i] = copy.deepcopy(sharer.agent), True
        for i, (worker, update) in enumerate(zip(self._workers, agent_updates)):
            worker.update_agent(self._own(i, update))
            self._has_copy[i] &= update is None or is_parameters(update)
        for worker, update in zip(self._workers, env_updates):
            worker.update_env(_copies(update))

    def _shares_what_changes(self, i: int, agent_updates: list) -> bool:
        """Return whether worker `i` shares models with another worker, but gets parameters that the other does not get."""
        return is_parameters(agent_updates[i]) and any(
            origin(self._agents[i]) is origin(other) and not self._has_copy[i] and not self._has_copy[j] and update is not agent_updates[i]
            for j, (other, update) in enumerate(zip(self._agents, agent_updates))
        )

    def _own(self, i: int, update: Any) -> Any:
        """Return an update of the policy for worker `i`. A shared policy is copied if it may remember episodes."""
        policy = for_worker(update)
        if policy is None or is_parameters(policy) or "copy_for_worker" in OptionalMethods(policy):  # `for_worker` has called it.
            return policy
        is_shared = any(other is self._agents[i] for j, other in enumerate(self._agents) if j != i)
        goes_on = getattr(self._workers[i], "episodes_go_on", False) or not self._unbiased
        return _copy_with_same_parameters(policy) if is_shared and goes_on else policy

    def _play(self, what: str, amounts: list[int], agent_updates: list, env_updates: list) -> EpisodeBatch:
        self._update(agent_updates, env_updates)
        played = Episodes()
        for worker, amount in zip(self._workers, amounts):
            played.extend(play(worker, self._itr, what, amount, self._unbiased))
        return played.to_batch()

    def _worker_states(self) -> list[dict] | None:
        return [worker.state_dict() for worker in self._workers] or None

    def _set_worker_states(self, states: list[dict]) -> int:
        return sum(worker.load_state_dict(state) for worker, state in zip(self._workers, states))

    def shutdown_worker(self) -> None:
        """Close the environments. May be called twice."""
        workers, self._workers = self._workers, []
        for worker in workers:
            worker.shutdown()


def _copy_with_same_parameters(policy: Any) -> Any:
    """Return a copy that shares the tensors of parameters. If the policy cannot be copied, warn and return it unchanged."""
    parameters = [part for part in all_parts(policy) if isinstance(part, torch.Tensor) and _is_parameter(part)]
    try:
        return copy.deepcopy(policy, {id(parameter): parameter for parameter in parameters})
    except Exception as error:  # Copying users' parts may raise anything.
        warnings.warn(
            f"{type(policy).__name__} cannot be copied ({error}), so all workers share it. If it remembers episodes, give a list with "
            "a policy for each worker.",
            stacklevel=2,
        )
        return policy


def _is_parameter(tensor: torch.Tensor) -> bool:
    return isinstance(tensor, torch.nn.Parameter) or (tensor.requires_grad and tensor.is_leaf)


def _copies(env_update: Any) -> Any:
    return [copied_update(each) for each in env_update] if isinstance(env_update, list) else copied_update(env_update)
