"""Episodes from workers in this process."""

from __future__ import annotations

import copy
from typing import Any

from rlpyt.episodes.batch import EpisodeBatch
from rlpyt.samplers.episodic.recorder import Episodes
from rlpyt.samplers.episodic.sampler import Sampler, play
from rlpyt.samplers.episodic.workers import Worker, copied, for_worker


class LocalSampler(Sampler):
    """Runs the workers in the process and thread that it is called from: the simplest sampler, where ``breakpoint()`` works.

    Workers have copies of the environments, and share the policy, until each is given an update of its own: from then on they have copies.
    The process's random numbers are left alone: workers have their own.
    """

    _shares_policy = True

    def _start(self) -> None:
        self._workers: list[Worker] | None = [self._factory(i) for i in range(self._factory.n_workers)]
        self._update(self._agents, self._envs)

    def _update(self, agent_updates: list, env_updates: list) -> None:
        if self._shares_policy and any(update is not agent_updates[0] for update in agent_updates):
            self._shares_policy = False
            for worker in self._workers:
                if getattr(worker, "agent", None) is not None:
                    worker.agent = copy.deepcopy(worker.agent)
        for worker, agent_update, env_update in zip(self._workers, agent_updates, env_updates):
            worker.update_agent(for_worker(agent_update))
            worker.update_env(_copies(env_update))

    def _play(self, what: str, amounts: list[int], agent_updates: list, env_updates: list) -> EpisodeBatch:
        if self._workers is None:
            raise RuntimeError("The sampler was shut down: make a new one.")
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
