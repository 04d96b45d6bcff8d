"""The action server: the agent, in the master process, acting for groups of workers in turn.

`serve` is a loop over groups in lockstep. One group: workers and agent take turns. Two groups: while one steps its environments, the agent
acts for the other. `serve_ready` acts for the workers that are ready, each at its own step. See ``docs/architecture.md`` for a picture.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from rlpyt.samplers.actors import LocalActor
from rlpyt.samplers.signals import GroupSignals
from rlpyt.samplers.workers import WorkerPool
from rlpyt.types import Agent
from rlpyt.utils.packing import to_cpu
from rlpyt.utils.structures import map_structure

EVAL_TRAJ_CHECK = 20  # Unused: episodes of an evaluation are shared out beforehand, so nobody counts them.


class Group:
    """Workers that are served together.

    Args:
        number: 0 or 1.
        actor: the agent, acting for their environments.
        signals: shared with the workers.
        n_workers: how many of them take part: the first ones.
        pool: the workers.
    """

    def __init__(self, number: int, actor: LocalActor, signals: GroupSignals, n_workers: int, pool: WorkerPool) -> None:
        self.number = number
        self.actor = actor
        self.signals = signals
        self.pool = pool
        self.n_workers = n_workers
        self._present: Sequence[int] = range(n_workers)
        self._n_arrived = 0

    def wait(self) -> bool:
        """Wait until all workers have made their request; return False, at once from then on, if all of them have left."""
        while self._n_arrived < len(self._present):
            self.pool.wait_for(self.signals.obs_ready)
            self._n_arrived += len(self.signals.obs_ready.acquire_all())
        if self._n_arrived:  # All have said by now whether they stay.
            self._n_arrived = 0
            self._present = [i for i in range(self.n_workers) if not self.signals.left[i]]
        return len(self._present) > 0

    def release(self) -> None:
        """Let the workers continue."""
        for i in self._present:
            self.signals.act_ready[i].release()


def serve(agent: Agent, groups: Sequence[Group], n_steps: int, overlap: bool = True, actions_first: bool = True) -> None:
    """Act for `groups` in turn, `n_steps` times each, and take in what the last actions led to.

    Args:
        agent: the agent.
        groups: one, or two of which one steps its environments while the agent acts for the other.
        n_steps: steps; fewer if all workers leave.
        overlap: whether a group may start to step while the other one still does.
        actions_first: whether agent_info is recorded while the group is stepping already; False if its workers read it.
    """
    pending = None  # The group whose actions wait for the other group.
    for t in range(n_steps + 1):
        here = False
        for group in groups:
            present = group.wait()
            if pending is not None:
                pending.release()
                pending = None
            if not present:
                continue
            here = True
            turn_to(agent, group.number)
            group.actor.request(t)
            if t == n_steps:
                group.release()  # No more actions: the workers finish their batch.
                continue
            group.actor.act(t, agent_info_too=not actions_first)
            if overlap:
                group.release()
            else:
                pending = group
            if actions_first:
                group.actor.record(t)
        if not here:
            return


class Crowd:
    """Workers that are served as they are ready, each at its own step.

    Args:
        actors: the agent; number `i` acts for the environments of worker `i`. Each actor has a share.
        signals: shared with the workers.
        pool: the workers.
        fraction: serve as soon as workers with this part of the environments that are still stepped are ready.
    """

    def __init__(self, actors: Sequence[LocalActor], signals: GroupSignals, pool: WorkerPool, fraction: float) -> None:
        self.actors = actors
        self.signals = signals
        self.pool = pool
        self.fraction = fraction
        self.t = [0] * len(actors)  # The step at which each worker is.
        self.present = list(range(len(actors)))
        self._n_envs = [len(actor.prev_reward) for actor in actors]

    def wait(self) -> list[int]:
        """Wait until enough workers have made a request. Return those that have and stay; workers that left are no longer present."""
        enough = self.fraction * sum(self._n_envs[i] for i in self.present) - 1e-6  # 0.07 * 100 is a little above 7.
        ready: list[int] = []
        while sum(self._n_envs[i] for i in ready) < enough:
            self.pool.wait_for(self.signals.obs_ready)
            ready += self.signals.obs_ready.acquire_all()
        left = [i for i in ready if self.signals.left[i]]
        self.present = [i for i in self.present if i not in left]
        return sorted(i for i in ready if i not in left)

    def release(self, i: int) -> None:
        """Let worker `i` continue."""
        self.signals.act_ready[i].release()


def serve_ready(agent: Agent, crowd: Crowd, n_steps: int, actions_first: bool = True) -> None:
    """Act for the workers of `crowd` as they are ready, `n_steps` times for each, and take in what the last actions led to.

    Args:
        agent: the agent.
        crowd: the workers.
        n_steps: steps of each worker; fewer for one that leaves.
        actions_first: whether agent_info is recorded while workers are stepping already; False if they read it.
    """
    while crowd.present:
        acting = []
        for i in crowd.wait():
            crowd.actors[i].request(crowd.t[i])
            if crowd.t[i] < n_steps:
                acting.append(i)
            else:
                crowd.present.remove(i)
                crowd.release(i)  # No more actions: the worker finishes its batch.
        if not acting:
            continue
        turns = [(crowd.actors[i], crowd.t[i]) for i in acting]
        act_together(agent, turns)
        if not actions_first:
            _record(turns)
        for i in acting:
            crowd.t[i] += 1
            crowd.release(i)
        if actions_first:
            _record(turns)


def act_together(agent: Agent, turns: Sequence[tuple[LocalActor, int]]) -> None:
    """Let the agent act once for several actors, each at the step beside it, and write the actions into their rows."""
    shares = [actor.share for actor, _ in turns if actor.share is not None]  # All of them have one.
    inputs = map_structure(lambda *parts: torch.cat(parts), *(actor.agent_inputs(t) for actor, t in turns))
    try:
        with agent.acting_for(torch.cat([share.columns for share in shares]), shares[0].B):
            step = agent.step(*inputs)
    except Exception:
        for actor, t in turns:
            actor.blame_observation(t)
        raise
    step = tuple(to_cpu(tuple(step)))
    if len(turns) == 1:  # Also for one environment, of which an agent may return numbers without dimensions.
        (actor, t), (action, agent_info) = turns[0], step
        actor.take(t, action, agent_info)
        return
    start = 0
    for actor, t in turns:
        stop = start + len(actor.prev_reward)
        actor.take(t, *map_structure(lambda x, rows=slice(start, stop): x[rows] if x.dim() else x, step))
        start = stop


def _record(turns: Sequence[tuple[LocalActor, int]]) -> None:
    for actor, t in turns:
        actor.record(t)


def turn_to(agent: Any, number: int) -> None:
    """Let an agent with a pair of recurrent states use that of the group with this number."""
    if agent.recurrent and agent.alternating and agent.get_alt() != number:
        agent.toggle_alt()


class ActionServer:
    """Serves actions to the workers of a sampler, all of them in one group; see `GpuSamplerBase.serve_actions`.

    Attributes:
        n_groups: groups of workers that are served in turn.
        overlap: whether a group may step its environments while the other one still does.
    """

    n_groups = 1
    overlap = True


class AlternatingActionServer(ActionServer):
    """Two groups: while one steps its environments, the agent acts for the other; both may step at once."""

    n_groups = 2


class NoOverlapAlternatingActionServer(AlternatingActionServer):
    """Two groups that take turns: the actions of one are held back until the other has stepped its environments."""

    overlap = False


@contextmanager
def outputs_on_device(agent: Agent) -> Iterator[None]:
    """Inside this context the agent leaves what it returns on its device. Actors copy it from there, all at once."""
    before, agent.acts_on_device = agent.acts_on_device, True
    try:
        yield
    finally:
        agent.acts_on_device = before
