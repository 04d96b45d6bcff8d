"""Episodes from workers in this process."""

from __future__ import annotations

import copy
from typing import Any

from rlpyt.episodes.batch import EpisodeBatch
from rlpyt.samplers.episodic.recorder import Episodes
from rlpyt.samplers.episodic.sampler import Sampler, origin, play
from rlpyt.samplers.episodic.workers import Worker, copied, for_worker, is_parameters


class LocalSampler(Sampler):
    """Runs the workers in the process and thread that it is called from: the simplest sampler, where ``breakpoint()`` works.

    Workers have copies of the environments, and share a policy that is given to all of them, until one is given parameters of its own, for
    which it then has a copy.
    The process's random numbers are left alone: workers have their own.
    """

    def _start(self) -> None:
        self._workers: list[Worker] | None = []
        self._has_copy = [False] * self._factory.n_workers  # Whose policy is a copy that no other worker has.
        try:
            for i in range(self._factory.n_workers):
                self._workers.append(self._factory(i))
            self._update(self._agents, self._envs)
        except BaseException:
            self.shutdown_worker()
            raise

    @property
    def _is_running(self) -> bool:
        return self._workers is not None

    def _update(self, agent_updates: list, env_updates: list) -> None:
        sharing = [i for i in range(len(self._workers)) if self._shares_what_changes(i, agent_updates)]
        for i in sharing:
            self._workers[i].agent, self._has_copy[i] = copy.deepcopy(self._workers[i].agent), True
        for i, (worker, update) in enumerate(zip(self._workers, agent_updates)):
            worker.update_agent(for_worker(update))
            self._has_copy[i] &= update is None or is_parameters(update)
        for worker, update in zip(self._workers, env_updates):
            worker.update_env(_copies(update))

    def _shares_what_changes(self, i: int, agent_updates: list) -> bool:
        """Whether worker `i` has the same models as another one, and is given parameters that the other is not given."""
        return is_parameters(agent_updates[i]) and any(
            origin(self._agents[i]) is origin(other) and not self._has_copy[i] and not self._has_copy[j] and update is not agent_updates[i]
            for j, (other, update) in enumerate(zip(self._agents, agent_updates))
        )

    def _play(self, what: str, amounts: list[int], agent_updates: list, env_updates: list) -> EpisodeBatch:
        self._update(agent_updates, env_updates)
        played = Episodes()
        for worker, amount in zip(self._workers, amounts):
            played.extend(play(worker, self._itr, what, amount, self._unbiased))
        return played.to_batch()

    def _worker_states(self) -> list[dict] | None:
        return None if self._workers is None else [worker.state_dict() for worker in self._workers]

    def _set_worker_states(self, states: list[dict]) -> int:
        return sum(worker.load_state_dict(state) for worker, state in zip(self._workers, states))

    def shutdown_worker(self) -> None:
        """Close the environments. May be called twice."""
        workers, self._workers = self._workers or [], None
        for worker in workers:
            worker.shutdown()


def _copies(env_update: Any) -> Any:
    return [copied(each) for each in env_update] if isinstance(env_update, list) else copied(env_update)
