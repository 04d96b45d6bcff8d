"""Statistics of the running episodes of several environments."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlpyt.types import TrajInfo
from rlpyt.utils.buffer import buffer_func, buffer_leaves
from rlpyt.utils.collections import AttrDict


def has_own_step(TrajInfoCls: Any) -> bool:
    """Return whether `TrajInfoCls` overrides `step`, which must be called for every step of an environment."""
    return not (isinstance(TrajInfoCls, type) and issubclass(TrajInfoCls, TrajInfo) and TrajInfoCls.step is TrajInfo.step)


def episode_tracker(TrajInfoCls: Any, traj_infos: list, at_once: bool = False) -> _BatchTracker | _StepTracker | VectorTracker:
    """Return a tracker of running episodes: from the batch, unless `TrajInfoCls` overrides `step`, which must be called.

    Args:
        TrajInfoCls: makes the statistics of an episode.
        traj_infos: one running TrajInfo per environment; the tracker keeps the list up to date.
        at_once: whether to finish all episodes of a batch together, for many environments.
    """
    if has_own_step(TrajInfoCls):
        return _StepTracker(TrajInfoCls, traj_infos)
    return (VectorTracker if at_once else _BatchTracker)(TrajInfoCls, traj_infos)


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

    def end_batch(self, samples: Any) -> list:
        """Sum up what will be overwritten; return no further completed TrajInfos."""
        T = len(samples.env.reward)
        for b in range(len(self.traj_infos)):
            self._sum_up(b, T, samples)
            self._first[b] = 0
        return []

    def _sum_up(self, b: int, end: int, samples: Any) -> None:
        first, info = self._first[b], self.traj_infos[b]
        self._first[b] = end
        if first < end and samples.env.valid is not None and not samples.env.valid[first, b]:
            first += 1  # The episode begins after a blank row.
        rows, n = slice(first, end), end - first
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

    def end_batch(self, samples: Any) -> list:
        """Nothing to do: the objects keep what they need."""
        return []


class VectorTracker:
    """Does what `_BatchTracker` does, for all environments at once when the batch ends; with the same results.

    Rewards are float32, so that their sums in float64 do not depend on the order. Those of fields of env_info that are float64 do.
    """

    reads_outcomes = False

    def __init__(self, TrajInfoCls: Any, traj_infos: list) -> None:
        self.TrajInfoCls = TrajInfoCls
        self.traj_infos = traj_infos  # What is summed up so far.
        self._first = np.zeros(len(traj_infos), np.int64)  # First row of each environment's episode in this batch.
        self._ended: list[tuple] = []  # (environments [k], their first rows [k], end, final observations [k,...] or None)
        self._decay: list[float] = []
        self._weights: list | None = None
        has_own_init = TrajInfoCls.__init__ is not TrajInfo.__init__
        self._example = None if has_own_init else dict(TrajInfoCls())
        self._looks_at_observation = TrajInfoCls.terminate is not TrajInfo.terminate

    def finish(self, columns: np.ndarray, t: int, observation: Any) -> None:
        """The episodes of environments `columns` [k] ended in row `t`, with these observations [B,...]."""
        final = buffer_func(observation, lambda x: x[columns]) if self._looks_at_observation else None
        self._ended.append((columns, self._first[columns], t + 1, final))
        self._first[columns] = t + 1

    def end_batch(self, samples: Any) -> list:
        """Return the TrajInfos of the episodes that ended in this batch, in order; sum up what will be overwritten."""
        T, B = samples.env.reward.shape
        parts, rest = self._ended, np.flatnonzero(self._first < T)
        columns = np.concatenate([*(part[0] for part in parts), rest])
        first = np.concatenate([*(part[1] for part in parts), self._first[rest]])
        end = np.repeat([*(part[2] for part in parts), T], [*(len(part[0]) for part in parts), len(rest)])
        finals = [final[i] for _, _, _, final in parts if final is not None for i in range(len(buffer_leaves(final)[0]))]
        if samples.env.valid is not None:
            first += ~samples.env.valid[first, columns]  # The episode begins after a blank row,
            has_steps = first < end  # which may be the last one of the batch.
            columns, first, end, rest = columns[has_steps], first[has_steps], end[has_steps], rest[has_steps[len(columns) - len(rest) :]]
        n_ended = len(columns) - len(rest)
        self._first[:] = 0
        self._ended = []
        if not len(columns):
            return []
        start, lengths = columns * T + first, end - first
        reward = _by_column(samples.env.reward)  # [B*T+1]
        fields = [name for name, _ in self.TrajInfoCls.env_info_sums]
        returns, n_nonzero = (_sums(x, start, lengths).tolist() for x in (reward, reward != 0))
        sums = []
        for _, name in self.TrajInfoCls.env_info_sums:
            x = getattr(samples.env.env_info, name)
            sums.append((_sums_in_order if x.dtype == np.float64 else _sums)(_by_column(x), start, lengths).tolist())
        self._prepare_powers(lengths.max())
        weights, decay, infos, is_fresh = self._weights, self._decay, self.traj_infos, [False] * B
        completed = []
        for i, (b, s, n) in enumerate(zip(columns.tolist(), start.tolist(), lengths.tolist())):
            discounted = returns[i] if weights is None else float(weights[n].dot(reward[s : s + n]))
            if is_fresh[b]:
                info = self._new()
                info["Length"], info["Return"], info["NonzeroRewards"] = n, returns[i], int(n_nonzero[i])
                info["DiscountedReturn"], info["_cur_discount"] = discounted, decay[n]
            else:
                info = infos[b]
                info.Length += n
                info.Return += returns[i]
                info.NonzeroRewards += int(n_nonzero[i])
                info.DiscountedReturn += info._cur_discount * discounted
                info._cur_discount *= decay[n]
            for field, values in zip(fields, sums):
                info[field] += values[i]
            if i < n_ended:
                completed.append(info.terminate(finals[i]) if finals else info)
                is_fresh[b] = True
            else:
                infos[b], is_fresh[b] = info, False
        for b, fresh in enumerate(is_fresh):
            if fresh:  # The episode of this environment begins with the next batch.
                infos[b] = self._new()
        return completed

    def _new(self) -> Any:
        """Return a new TrajInfo; more quickly if its constructor is that of the base class."""
        if self._example is None:
            return self.TrajInfoCls()
        info = self.TrajInfoCls.__new__(self.TrajInfoCls)
        AttrDict.__init__(info, self._example)
        return info

    def _prepare_powers(self, longest: int) -> None:
        """Get powers of the discount ready for `longest` steps: the weights of rewards, and that of what follows, by number of steps."""
        if len(self._decay) <= longest:
            discount = self.TrajInfoCls._discount
            powers = discount ** np.arange(longest)
            self._decay = [1.0, *(powers * discount).tolist()]
            self._weights = None if discount == 1 else [powers[:n] for n in range(longest + 1)]


def _by_column(x: np.ndarray) -> np.ndarray:
    """Return an array [T,B] as float64, column by column, and a zero: [B*T+1]."""
    T, B = x.shape
    out = np.zeros(B * T + 1)
    out[:-1].reshape(B, T)[...] = x.T
    return out


def _sums(x: np.ndarray, start: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return the sums [k] of parts of `x` that do not overlap."""
    order = np.argsort(start)
    bounds = np.stack([start, start + lengths], axis=1)[order].reshape(-1)  # Sums of the gaps between are computed as well.
    sums = np.empty(len(start))
    sums[order] = np.add.reduceat(x.astype(np.float64, copy=False), bounds)[::2]
    return sums


def _sums_in_order(x: np.ndarray, start: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return the sums [k] of parts of `x`, each added up in the order of `np.add.reduce`, which `np.add.reduceat` does not keep."""
    return np.array([np.add.reduce(x[s : s + n]) for s, n in zip(start.tolist(), lengths.tolist())])
