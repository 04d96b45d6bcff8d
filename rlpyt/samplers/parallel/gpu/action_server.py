"""The action server: the agent, in the master process, acting for groups of workers in turn.

All variants are one loop over groups. One group: workers and agent take turns. Two groups: while one steps its environments, the agent acts
for the other. See ``docs/architecture.md`` for a picture.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rlpyt.samplers.actors import LocalActor
from rlpyt.samplers.signals import GroupSignals
from rlpyt.samplers.workers import WorkerPool
from rlpyt.types import Agent

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
            self._n_arrived += self.signals.obs_ready.acquire_all()
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
