"""Statistics of the running episodes of several environments."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlpyt.samplers.collections import TrajInfo
from rlpyt.utils.buffer import buffer_func
from rlpyt.utils.collections import AttrDict


def episode_tracker(TrajInfoCls: Any, B: int) -> _ArrayTracker | _ObjectTracker:
    """Return a tracker of `B` episodes: in arrays, unless `TrajInfoCls` has a `step` of its own that must be called."""
    if isinstance(TrajInfoCls, type) and issubclass(TrajInfoCls, TrajInfo) and TrajInfoCls.step is TrajInfo.step:
        return _ArrayTracker(TrajInfoCls, B)
    return _ObjectTracker(TrajInfoCls, B)


class _ArrayTracker:
    """What `TrajInfo.step` does, for all environments at once; a TrajInfo object is built when an episode ends."""

    def __init__(self, TrajInfoCls: type, B: int) -> None:
        self.TrajInfoCls = TrajInfoCls
        self.length = np.zeros(B, np.int64)  # [B]
        self.return_ = np.zeros(B)  # [B]
        self.nonzero = np.zeros(B, np.int64)  # [B]
        self.discounted = np.zeros(B)  # [B]
        self.cur_discount = np.ones(B)  # [B]
        self.sums = {field: np.zeros(B) for field, _ in TrajInfoCls.env_info_sums}  # each [B]

    def step(self, t: int, row: Any, samples: Any, outcomes: list) -> None:
        """Take in step `t` of every environment: `row` is where its outcomes went."""
        reward = row.reward  # [B]
        self.length += 1
        self.return_ += reward
        self.nonzero += reward != 0
        self.discounted += self.cur_discount * reward
        self.cur_discount *= self.TrajInfoCls._discount
        for field, name in self.TrajInfoCls.env_info_sums:
            self.sums[field] += getattr(row.env_info, name)

    def finish(self, b: int, observation: Any) -> TrajInfo:
        """Return the TrajInfo of environment `b`, whose episode ended with `observation`, and start a new one."""
        info = self.TrajInfoCls()
        info.update(
            Length=int(self.length[b]),
            Return=float(self.return_[b]),
            NonzeroRewards=int(self.nonzero[b]),
            DiscountedReturn=float(self.discounted[b]),
            _cur_discount=float(self.cur_discount[b]),
            **{field: float(total[b]) for field, total in self.sums.items()},
        )
        for total in (self.length, self.return_, self.nonzero, self.discounted, *self.sums.values()):
            total[b] = 0
        self.cur_discount[b] = 1
        return info.terminate(observation)

    def load(self, traj_infos: list) -> None:
        """Go on from episodes that were begun as TrajInfo objects."""
        for b, info in enumerate(traj_infos):
            self.length[b], self.return_[b], self.nonzero[b] = info.Length, info.Return, info.NonzeroRewards
            self.discounted[b], self.cur_discount[b] = info.DiscountedReturn, info._cur_discount
            for field, total in self.sums.items():
                total[b] = info[field]


class _ObjectTracker:
    """One object of the user's class per environment, told about every step."""

    def __init__(self, TrajInfoCls: Any, B: int) -> None:
        self.TrajInfoCls = TrajInfoCls
        self.traj_infos = [TrajInfoCls() for _ in range(B)]

    def step(self, t: int, row: Any, samples: Any, outcomes: list) -> None:
        """Take in step `t` of every environment: `samples` is the batch, `outcomes` a list of ``(reward, done, env_info)``."""
        for b, (reward, done, env_info) in enumerate(outcomes):
            observation = buffer_func(samples.env.observation[t, b], np.copy)  # The batch's memory is overwritten later.
            agent_info = None if samples.agent.agent_info is None else samples.agent.agent_info[t, b]
            self.traj_infos[b].step(observation, samples.agent.action[t, b], reward, done, agent_info, env_info)

    def finish(self, b: int, observation: Any) -> AttrDict:
        """Return the TrajInfo of environment `b`, whose episode ended with `observation`, and start a new one."""
        info = self.traj_infos[b].terminate(observation)
        self.traj_infos[b] = self.TrajInfoCls()
        return info

    def load(self, traj_infos: list) -> None:
        """Go on from episodes that were begun as TrajInfo objects."""
        self.traj_infos = list(traj_infos)
