"""Statistics of the running episodes of several environments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlpyt.types import TrajInfo
from rlpyt.utils.buffer import buffer_func
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

    def end_batch(self, samples: Any, completed: list) -> list:
        """Sum up what will be overwritten; return the TrajInfos `completed` in this batch."""
        T = len(samples.env.reward)
        for b in range(len(self.traj_infos)):
            self._sum_up(b, T, samples)
            self._first[b] = 0
        return completed

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

    def end_batch(self, samples: Any, completed: list) -> list:
        """Return the TrajInfos `completed` in this batch; the others keep what they need."""
        return completed


class VectorTracker:
    """Does what `_BatchTracker` does, for all environments at once when the batch ends; with the same results.

    Written one after the other, the columns of a batch are one array [B*T]. A part of it is an episode, as far as it lies in this batch:
    parts begin with a column, and after the end of an episode.

    Rewards are float32, so that their sums in float64 do not depend on the order. Those of fields of env_info that are float64 do.

    Attributes:
        looks_at_observations: whether `terminate` of the class does, so that `finish` must be told the last ones of episodes.
        ends: rows [k] and columns [k] in which the episodes of the latest batch ended, in their order.
    """

    reads_outcomes = False

    def __init__(self, TrajInfoCls: Any, traj_infos: list) -> None:
        self.TrajInfoCls = TrajInfoCls
        self.traj_infos = traj_infos  # What is summed up so far.
        self.looks_at_observations = TrajInfoCls.terminate is not TrajInfo.terminate
        self.ends: tuple[np.ndarray, ...] = (np.zeros(0, np.int64), np.zeros(0, np.int64))
        self._finals: list = []  # The last observations of episodes, in order.
        self._has_own_init = TrajInfoCls.__init__ is not TrajInfo.__init__
        self._powers = np.ones(0)  # Of the discount.
        self._memory: Any = None  # For rewards of a batch.

    def finish(self, columns: np.ndarray, observation: Any) -> None:
        """The episodes of environments `columns` [k] ended with these observations, arrays [B,...]; for `looks_at_observations`."""
        final = buffer_func(observation, lambda x: x[columns])
        self._finals += [buffer_func(final, lambda x, i=i: x[i]) for i in range(len(columns))]

    def end_batch(self, samples: Any, completed: list) -> Sequence:
        """Return the TrajInfos of the episodes that ended in this batch, in order; sum up what will be overwritten."""
        env = samples.env
        T, B = env.reward.shape
        self.ends = rows, columns = (env.done if env.valid is None else env.done & env.valid).nonzero()
        is_end = np.zeros(B * T + 1, bool)  # Before which elements an episode has ended.
        is_end[columns * T + rows + 1] = True
        is_start = is_end.copy()
        is_start[::T] = True
        (bounds,) = is_start.nonzero()
        starts, stops = bounds[:-1], bounds[1:]
        has_ended = is_end[stops]
        (ended,), (running,) = has_ended.nonzero(), (~has_ended).nonzero()
        by_column = np.argsort(columns.astype(np.uint16 if B < 2**16 else np.int64), kind="stable")  # Short numbers are sorted by radix.
        ended[by_column] = ended.copy()  # In the order of time.
        parts, columns = self._sum_up(env, starts, stops), starts // T
        if self._has_own_init or self.looks_at_observations:
            return self._finished(parts, columns, ended, running)
        self._go_on(parts, (starts % T == 0).nonzero()[0])
        self._store(parts, columns[running], running)
        return FinishedInfos(self.TrajInfoCls, parts, ended)

    def _sum_up(self, env: Any, starts: np.ndarray, stops: np.ndarray) -> _Parts:
        """Return the sums over parts of columns, which begin and end at these elements."""
        T = len(env.reward)
        first = starts if env.valid is None else starts + ~env.valid[starts % T, starts // T]  # An episode begins after a blank row.
        lengths, discount = stops - first, self.TrajInfoCls._discount
        longest = int(lengths.max())
        if len(self._powers) < longest:
            self._powers = discount ** np.arange(longest)
        reward = self._memory = _by_column(env.reward, self._memory if discount == 1 else None)  # Else TrajInfos read it later.
        returns, is_nonzero = np.add.reduceat(reward, starts), reward != 0
        n_nonzero = stops - starts if is_nonzero.all() else np.add.reduceat(is_nonzero.astype(np.int64), starts)
        fields = dict(Length=lengths, Return=returns, NonzeroRewards=n_nonzero)
        for field, name in self.TrajInfoCls.env_info_sums:
            x = getattr(env.env_info, name)
            in_order = x.dtype == np.float64
            fields[field] = _sums_in_order(_by_column(x), first, lengths) if in_order else np.add.reduceat(_by_column(x), starts)
        decay = np.concatenate([[1.0], self._powers * discount])[lengths]
        return _Parts(fields, returns, reward, first, None if discount == 1 else self._powers, decay)

    def _go_on(self, parts: _Parts, first: np.ndarray) -> None:
        """Add what is summed up so far to the `first` [B] part of each column."""
        for name, values in (*parts.fields.items(), ("DiscountedReturn", parts.discounted_before)):
            values[first] += [info[name] for info in self.traj_infos]
        parts.discount_before[first] = [info["_cur_discount"] for info in self.traj_infos]

    def _store(self, parts: _Parts, columns: np.ndarray, running: np.ndarray) -> None:
        """Store the sums of `running` [k] parts in the TrajInfos of `columns` [k]; those of others are as new."""
        new = self.TrajInfoCls()
        fields = {name: values[running] for name, values in parts.fields.items()}
        fields["DiscountedReturn"] = parts.discounted(running)
        fields["_cur_discount"] = parts.discount_before[running] * parts.decay[running]
        for name, values in fields.items():
            of_all = np.full(len(self.traj_infos), new[name], values.dtype)
            of_all[columns] = values
            for info, value in zip(self.traj_infos, of_all.tolist()):
                info[name] = value

    def _finished(self, parts: _Parts, columns: np.ndarray, ended: np.ndarray, running: np.ndarray) -> list:
        """Return the TrajInfos of the parts that have `ended` [k]; add the sums of those `running` to theirs."""
        infos, completed, finals = self.traj_infos, [], self._finals or [None] * len(ended)
        self._finals = []
        for k, i in enumerate([*ended.tolist(), *running.tolist()]):
            b = columns[i]
            info = infos[b]
            for name, values in parts.fields.items():
                info[name] += values[i].item()
            info.DiscountedReturn += info._cur_discount * parts.own_discounted(i)
            info._cur_discount *= parts.decay[i].item()
            if k < len(ended):
                infos[b] = self.TrajInfoCls()
                completed.append(info.terminate(finals[k]))
        return completed


class _Parts:
    """Statistics of parts of columns, arrays [k].

    Args:
        fields: those of TrajInfo that are sums.
        returns: sums of rewards.
        reward: of all columns [B*T].
        first: where in `reward` each part begins.
        powers: of the discount; None for a discount of 1.
        decay: power of the discount after the part.

    Attributes:
        discounted_before, discount_before: discounted return of the episode before the part, and the power of the discount there.
    """

    def __init__(
        self,
        fields: dict[str, np.ndarray],
        returns: np.ndarray,
        reward: np.ndarray,
        first: np.ndarray,
        powers: np.ndarray | None,
        decay: np.ndarray,
    ) -> None:
        self.fields, self.returns, self.reward, self.first, self.powers, self.decay = fields, returns.copy(), reward, first, powers, decay
        self.lengths = fields["Length"].copy()
        self.discounted_before, self.discount_before = np.zeros(len(first)), np.ones(len(first))

    def own_discounted(self, i: int) -> float:
        """Return the discounted sum of the rewards of part `i`."""
        if self.powers is None:
            return float(self.returns[i])
        start, n = self.first[i], self.lengths[i]
        return float(self.powers[:n].dot(self.reward[start : start + n]))

    def discounted(self, which: np.ndarray) -> np.ndarray:
        """Return the discounted returns [k] of episodes up to the end of parts `which` [k]."""
        own = self.returns[which] if self.powers is None else np.array([self.own_discounted(i) for i in which.tolist()])
        return self.discounted_before[which] + self.discount_before[which] * own


class FinishedInfos(Sequence):
    """The TrajInfos of episodes that ended in a batch, made when they are asked for: of a thousand episodes, few are looked at.

    Args:
        TrajInfoCls: their class.
        parts: what they say.
        which: [k], the parts that they are about.
    """

    def __init__(self, TrajInfoCls: Any, parts: _Parts, which: np.ndarray) -> None:
        self._TrajInfoCls, self._parts, self._which = TrajInfoCls, parts, which
        self._infos: list = [None] * len(which)

    def __len__(self) -> int:
        return len(self._infos)

    def __getitem__(self, k: Any) -> Any:
        if isinstance(k, slice):
            return [self[i] for i in range(len(self))[k]]
        if self._infos[k] is None:
            self._infos[k] = info = self._TrajInfoCls()
            i, parts = self._which[k], self._parts
            info.update({name: values[i].item() for name, values in parts.fields.items()})
            info["DiscountedReturn"] = float(parts.discounted_before[i] + parts.discount_before[i] * parts.own_discounted(i))
            info["_cur_discount"] = float(parts.discount_before[i] * parts.decay[i])
        return self._infos[k]

    def __eq__(self, other: object) -> bool:
        return list(self) == list(other) if isinstance(other, (list, FinishedInfos)) else NotImplemented

    def __add__(self, other: Any) -> list:
        return [*self, *other]

    def __radd__(self, other: Any) -> list:
        return [*other, *self]

    def __repr__(self) -> str:
        return repr(list(self))

    def __reduce__(self) -> tuple:
        return list, (list(self),)


def _by_column(x: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """Return an array [T,B] as float64, column by column: [B*T]; in the memory `out`, if given."""
    out = np.empty(x.size) if out is None else out
    out.reshape(x.T.shape)[...] = x.T
    return out


def _sums_in_order(x: np.ndarray, start: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return the sums [k] of parts of `x`, each added up in the order of `np.add.reduce`, which `np.add.reduceat` does not keep."""
    return np.array([np.add.reduce(x[s : s + n]) for s, n in zip(start.tolist(), lengths.tolist())])
