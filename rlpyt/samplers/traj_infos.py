"""Statistics of the running episodes of several environments."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from rlpyt.types import TrajInfo
from rlpyt.utils.buffer import buffer_func
from rlpyt.utils.collections import AttrDict


def has_own_step(TrajInfoCls: Any) -> bool:
    """Return whether `TrajInfoCls` overrides `step`, which must be called for every step of an environment."""
    return not (isinstance(TrajInfoCls, type) and issubclass(TrajInfoCls, TrajInfo) and TrajInfoCls.step is TrajInfo.step)


def episode_tracker(TrajInfoCls: Any, traj_infos: list) -> _BatchTracker | _StepTracker:
    """Return a tracker of running episodes: from the batch, unless `TrajInfoCls` overrides `step`, which must be called.

    Args:
        TrajInfoCls: makes the statistics of an episode.
        traj_infos: one running TrajInfo per environment; the tracker keeps the list up to date.
    """
    return (_StepTracker if has_own_step(TrajInfoCls) else _BatchTracker)(TrajInfoCls, traj_infos)


class _BatchTracker:
    """What `TrajInfo.step` does, from the batch: sums over the rows of an episode, when it ends and when the batch does.

    Columns are summed one by one, so that the result does not depend on which environments share a process.
    """

    reads_outcomes = False

    def __init__(self, TrajInfoCls: type, traj_infos: list) -> None:
        self.TrajInfoCls = TrajInfoCls
        self.traj_infos = traj_infos  # What is summed up so far.
        self._first = [0] * len(traj_infos)  # First row of each environment's episode that is not summed up yet.
        self._powers = np.ones(0)  # Of the discount.

    def step(self, t: int, samples: Any, outcomes: list) -> None:
        """Nothing to do before an episode or the batch ends."""

    def finish(self, b: int, t: int, samples: Any, observation: Any) -> TrajInfo:
        """Return the TrajInfo of environment `b`, whose episode ended in row `t` with `observation`, and start a new one."""
        self._sum_up(b, t + 1, samples)
        info, self.traj_infos[b] = self.traj_infos[b], self.TrajInfoCls()
        return info.terminate(observation)

    def stand_still(self, b: int, t: int, samples: Any) -> None:
        """Environment `b` takes no steps after row `t` until the end of the batch."""
        self._sum_up(b, t + 1, samples)
        self._first[b] = len(samples.env.reward)

    def leave_out(self, columns: Iterable[int], t: int) -> None:
        """Environments `columns` took no step in row `t`, the first one after an episode's end."""
        for b in columns:
            self._first[b] = t + 1

    def end_batch(self, samples: Any) -> None:
        """Sum up what will be overwritten."""
        T = len(samples.env.reward)
        for b in range(len(self.traj_infos)):
            self._sum_up(b, T, samples)
            self._first[b] = 0

    def _sum_up(self, b: int, end: int, samples: Any) -> None:
        rows, info = slice(self._first[b], end), self.traj_infos[b]
        n = end - self._first[b]
        self._first[b] = end
        if n == 0:
            return
        if len(self._powers) < n:
            self._powers = info._discount ** np.arange(n)
        reward = samples.env.reward[rows, b].astype(np.float64)
        info.Length += n
        info.Return += float(np.add.reduce(reward))
        info.NonzeroRewards += int(np.count_nonzero(reward))
        info.DiscountedReturn += info._cur_discount * float(self._powers[:n].dot(reward))
        info._cur_discount *= float(self._powers[n - 1] * info._discount)
        for field, name in info.env_info_sums:
            info[field] += float(getattr(samples.env.env_info, name)[rows, b].sum(dtype=np.float64))


class _StepTracker:
    """One object of the user's class per environment, told about every step."""

    reads_outcomes = True

    def __init__(self, TrajInfoCls: Any, traj_infos: list) -> None:
        self.TrajInfoCls = TrajInfoCls
        self.traj_infos = traj_infos

    def step(self, t: int, samples: Any, outcomes: list) -> None:
        """Take in step `t` of every environment: `samples` is the batch, `outcomes` a list of ``(b, reward, done, env_info)``."""
        for b, reward, done, env_info in outcomes:
            observation = buffer_func(samples.env.observation[t, b], np.copy)  # The batch's memory is overwritten later.
            action = buffer_func(samples.agent.action[t, b], np.copy)
            agent_info = None if samples.agent.agent_info is None else buffer_func(samples.agent.agent_info[t, b], np.copy)
            self.traj_infos[b].step(observation, action, reward, done, agent_info, env_info)

    def finish(self, b: int, t: int, samples: Any, observation: Any) -> AttrDict:
        """Return the TrajInfo of environment `b`, whose episode ended in row `t` with `observation`, and start a new one."""
        info, self.traj_infos[b] = self.traj_infos[b], self.TrajInfoCls()
        return info.terminate(observation)

    def stand_still(self, b: int, t: int, samples: Any) -> None:
        """Nothing to do: there are no outcomes to be told about."""

    def leave_out(self, columns: Iterable[int], t: int) -> None:
        """Nothing to do: there are no outcomes to be told about."""

    def end_batch(self, samples: Any) -> None:
        """Nothing to do: the objects keep what they need."""
