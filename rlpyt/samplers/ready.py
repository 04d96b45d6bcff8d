"""A batch from a vector whose environments are ready one after the other: each column advances at its own pace.

The agent acts for the environments that are ready, `n_ready` at a time, while the others step::

    agent       0 1  2 3  0 1  0 2  1 3  ...
    column 0  ==   ====   ==   ====
    column 1  ==   =====  =====   ==
    column 2  =====   =========   ==
    column 3  =====   ============   ==

A column that is full waits for the others. So the batch is like one that is filled in lockstep; only the order in which the agent acts for
the columns depends on time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rlpyt.samplers.actors import BatchActor, Share
from rlpyt.samplers.rows import Row
from rlpyt.utils.buffer import buffer_func


class ReadyActors:
    """The agent, acting for some of a vector's columns at a time; takes the place of an actor of all columns.

    Args:
        agent: the agent; its memory of environments can be taken by column.
        batch: the batch, as numpy arrays.
        prev_action, prev_reward, null_action, first_env: those of `BatchActor`.
    """

    for_envs: Callable[[Any], Any]

    def __init__(self, agent: Any, batch: Any, prev_action: Any, prev_reward: np.ndarray, null_action: Any, first_env: int) -> None:
        import torch  # Here, because environment workers use this module without torch.

        B = len(prev_reward)
        self.agent, self._action = agent, batch.agent.action
        self.of_columns = [
            BatchActor(
                agent,
                batch[:, b : b + 1],
                prev_action[b : b + 1],
                prev_reward[b : b + 1],
                null_action,
                mid_batch_reset=True,
                first_env=first_env + b,
                share=Share(torch.tensor([b]), B),
            )
            for b in range(B)
        ]

    def begin(self, itr: int) -> None:
        """Get ready for a batch."""
        self.of_columns[0].set_mode(itr)  # For all of them: it is the same agent.
        for actor in self.of_columns:
            actor.prepare(itr)

    def act(self, columns: list[int], t: list[int]) -> Any:
        """Choose the actions of `columns` [k] for their steps `t` [B] and record them; return what environments get, [k,...]."""
        from rlpyt.samplers.parallel.gpu.action_server import act_together  # Here, for the same reason.

        turns = [(self.of_columns[b], t[b]) for b in columns]
        act_together(self.agent, turns)
        for actor, step in turns:
            actor.record(step)
        at = [t[b] for b in columns], columns
        return self.for_envs(buffer_func(self._action, lambda x: x[at]))


def fill_as_ready(collector: Any, rows: list[Row], actors: ReadyActors, completed: list) -> None:
    """Fill a batch; append the TrajInfos of the episodes that end to `completed`. For `TrainingCollector.collect_batch`."""
    calls, tracker, T = collector._calls, collector._tracker, len(rows)
    t = [0] * calls.n
    acting, n_stepping = list(range(calls.n)), 0
    for b in acting:
        actors.of_columns[b].request(0)
    while acting or n_stepping:
        if acting:
            actions = actors.act(acting, t)
            collector.progress[0] += 1  # Odd: inside the environments.
            calls.send(acting, actions, f"batch {collector._itr}")
        else:
            collector.progress[0] += 1
        n_stepping += len(acting)
        received = calls.receive(min(calls.n_ready, n_stepping), rows, t, f"batch {collector._itr}")
        n_stepping -= len(received)
        acting = []
        for b, ended, outcome in received:
            if outcome is not None and tracker.reads_outcomes:
                tracker.step(t[b], collector.samples_np, [outcome])
            if ended:
                collector._end_episodes(t[b], rows[t[b]], [b], completed)
            t[b] += 1
        collector.progress[0] += 1
        for b, _, _ in received:
            actors.of_columns[b].request(t[b])
            if t[b] < T:
                acting.append(b)
    completed[:] = [completed[i] for i in sorted(range(len(completed)), key=collector._ends.__getitem__)]
    collector._ends.sort()
