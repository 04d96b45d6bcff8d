"""Statistics of the running episodes of several environments."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from rlpyt.types import TrajInfo
from rlpyt.utils.buffer import buffer_func
from rlpyt.utils.collections import AttrDict
from rlpyt.utils.lazy import LazyModule

kernels: Any = LazyModule("rlpyt.samplers.vector_kernels")


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
    """Computes the sums of `TrajInfo.step` from the batch: over the rows of an episode, when the episode or the batch ends.

    Columns are summed one by one, so that the result does not depend on which environments share a process.
    """

    reads_outcomes = False

    def __init__(self, TrajInfoCls: type, traj_infos: list) -> None:
        self.TrajInfoCls = TrajInfoCls
        self.traj_infos = traj_infos  # They hold the sums so far.
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

    def store(self) -> None:
        """Nothing to do: the TrajInfos have what is summed up so far."""

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
        """Do nothing: an idle environment has no outcome."""

    def end_batch(self, samples: Any, completed: list) -> list:
        """Return the TrajInfos `completed` in this batch; the others keep what they need."""
        return completed

    def store(self) -> None:
        """Nothing to do: the TrajInfos have been told about every step."""


class VectorTracker:
    """Computes the sums of `_BatchTracker`, with the same results, for all environments at once when the batch ends.

    Arrays hold the sums so far. `store` writes them into the TrajInfos, from which the next batch reads them again.

    Sums of rewards do not depend on the order, because they add float32 in float64. Sums of discounted rewards and of env_info fields do,
    so their terms are added in the order of `_BatchTracker`. For these, a *part* is the piece of an episode in one batch.

    Attributes:
        looks_at_observations: whether `terminate` of the class reads observations, so that `finish` needs the last one of each episode.
        ends: rows [k] and columns [k] in which the episodes of the latest batch ended, in their order.
    """

    reads_outcomes = False

    def __init__(self, TrajInfoCls: Any, traj_infos: list) -> None:
        self.TrajInfoCls = TrajInfoCls
        self.traj_infos = traj_infos
        self.looks_at_observations = TrajInfoCls.terminate is not TrajInfo.terminate
        self.ends: tuple[np.ndarray, ...] = (np.zeros(0, np.int64), np.zeros(0, np.int64))
        self._finals: list = []  # The last observations of episodes, in order.
        self._is_lazy = TrajInfoCls.__init__ is TrajInfo.__init__ and not self.looks_at_observations
        self._running = np.zeros(len(traj_infos), kernels.SUMS)
        self._sums: dict[str, np.ndarray] = {}  # Other sums of the running episodes, [B].
        self._is_stored = True  # Whether `traj_infos` have the sums, and the arrays do not.
        self._ended = self._running[:0]  # Memory.
        self._powers = np.ones(0)  # Of the discount.

    def finish(self, columns: np.ndarray, observation: Any) -> None:
        """The episodes of environments `columns` [k] ended with these observations, arrays [B,...]; for `looks_at_observations`."""
        final = buffer_func(observation, lambda x: x[columns])
        self._finals += [buffer_func(final, lambda x, i=i: x[i]) for i in range(len(columns))]

    def end_batch(self, samples: Any, completed: list) -> list:
        """Return the TrajInfos of the episodes that ended in this batch, in order; sum up what will be overwritten."""
        env = samples.env
        if self._is_stored:
            self._load()
        if len(self._ended) < env.reward.size:
            self._ended = np.zeros(env.reward.size, kernels.SUMS)
        ended = self._ended[: kernels.sum_up(env.reward, env.done, env.valid, self._running, self._ended)]
        ended = ended.view(np.int64).copy().view(kernels.SUMS)  # numpy copies numbers much faster than structures.
        self.ends = ended["t"], ended["b"]
        if not self._is_lazy:
            return self._finished(env, ended)
        discount = self.TrajInfoCls._discount
        fields = {name: ended[name] for name in _COUNTED}
        if discount == 1:
            fields["DiscountedReturn"], fields["_cur_discount"] = ended["Return"], np.ones(len(ended))
        if discount != 1 or self.TrajInfoCls.env_info_sums:
            fields.update(self._add_parts(env, ended))
        return FinishedInfos(self.TrajInfoCls, fields)

    def store(self) -> None:
        """Write the sums so far into the TrajInfos. Until the next batch ends, they may be changed there."""
        if self._is_stored:
            return
        fields = {**{name: self._running[name] for name in _COUNTED}, **self._sums}
        fields.setdefault("DiscountedReturn", fields["Return"])
        for name, values in fields.items():
            for info, value in zip(self.traj_infos, values.tolist()):
                info[name] = value
        self._is_stored = True

    def _load(self) -> None:
        """Read the sums so far from the TrajInfos. A class with its own constructor keeps its sums, and the arrays start at zero."""
        names = [field for field, _ in self.TrajInfoCls.env_info_sums]
        names += [] if self.TrajInfoCls._discount == 1 else ["DiscountedReturn", "_cur_discount"]
        for name in _COUNTED:
            self._running[name] = [info[name] for info in self.traj_infos] if self._is_lazy else 0
        self._sums = {name: np.array([info[name] for info in self.traj_infos], np.float64) for name in names if self._is_lazy}
        self._is_stored = False

    def _add_parts(self, env: Any, ended: np.ndarray) -> dict[str, np.ndarray]:
        """Add this batch to `_sums`; return those of the episodes that `ended` [k]."""
        k, sums = len(ended), self._sums
        parts = np.concatenate([ended, self._running])
        is_continued, b = parts["is_continued"].astype(bool), parts["b"]
        values = self._of_parts(env, parts)
        before = {name: np.where(is_continued, sums[name][b], float(name == "_cur_discount")) for name in sums}
        after = {name: before[name] + values[name] for name, _ in self.TrajInfoCls.env_info_sums}
        if "_cur_discount" in sums:
            after["DiscountedReturn"] = before["DiscountedReturn"] + before["_cur_discount"] * values["DiscountedReturn"]
            after["_cur_discount"] = before["_cur_discount"] * values["_cur_discount"]
        self._sums = {name: x[k:] for name, x in after.items()}
        return {name: x[:k] for name, x in after.items()}

    def _of_parts(self, env: Any, parts: np.ndarray) -> dict[str, np.ndarray]:
        """Return sums [p] for `parts` (SUMS [p]) of episodes: of fields of env_info, and of discounted rewards; and the discount behind."""
        T, discount = len(env.reward), self.TrajInfoCls._discount
        if len(self._powers) < T:
            self._powers = discount ** np.arange(T)
        lengths = parts["t"] + 1 - parts["start"]
        starts = parts["b"] * T + parts["start"]
        by_length = [(int(n), (lengths == n).nonzero()[0]) for n in np.unique(lengths)]

        def summed(x: np.ndarray, add: Any) -> np.ndarray:
            column_by_column, sums = np.ascontiguousarray(x.T, np.float64).ravel(), np.zeros(len(parts))
            for n, which in by_length:
                sums[which] = add(column_by_column[starts[which, None] + np.arange(n)], n)
            return sums

        values = {
            field: summed(getattr(env.env_info, name), lambda rows, n: np.add.reduce(rows, axis=1))
            for field, name in self.TrajInfoCls.env_info_sums
        }
        values["DiscountedReturn"] = summed(env.reward, lambda rows, n: np.vecdot(rows, self._powers[:n]))
        values["_cur_discount"] = np.concatenate([[1.0], self._powers * discount])[lengths]
        return values

    def _finished(self, env: Any, ended: np.ndarray) -> list:
        """Return the TrajInfos of the episodes that `ended` [k]; their class has its own constructor or its own `terminate`."""
        infos, completed, finals = self.traj_infos, [], self._finals or [None] * len(ended)
        self._finals, self._is_stored = [], True
        parts = np.concatenate([ended, self._running])
        values = {**{name: parts[name] for name in _COUNTED}, **self._of_parts(env, parts)}
        discounted, decay = values.pop("DiscountedReturn").tolist(), values.pop("_cur_discount").tolist()
        lists = {name: x.tolist() for name, x in values.items()}
        for i, b in enumerate(parts["b"].tolist()):
            info = infos[b]
            for name, x in lists.items():
                info[name] += x[i]
            info.DiscountedReturn += info._cur_discount * discounted[i]
            info._cur_discount *= decay[i]
            if i < len(ended):
                infos[b] = self.TrajInfoCls()
                completed.append(info.terminate(finals[i]))
        return completed


_COUNTED = ("Length", "Return", "NonzeroRewards")  # By `kernels.sum_up`.


class FinishedInfos(list):
    """The TrajInfos of episodes that ended in a batch, made when they are asked for: of a thousand episodes, few are looked at.

    Reading by number or by slice makes only those TrajInfos. Every other operation of a list makes all of them.

    Args:
        TrajInfoCls: their class.
        fields: their entries, arrays [k].
    """

    def __init__(self, TrajInfoCls: Any, fields: dict[str, np.ndarray]) -> None:
        super().__init__([None] * len(fields["Length"]))
        self._TrajInfoCls = TrajInfoCls
        self._fields: dict[str, np.ndarray] | None = fields  # None once all are made.
        self._is_untouched = True  # Whether none is made.

    @staticmethod
    def joined(parts: Sequence[FinishedInfos], order: np.ndarray) -> FinishedInfos:
        """Return the TrajInfos of several lists, of which none is made: number `i` is number ``order[i]`` of all."""
        columns: list[dict] = [part._fields or {} for part in parts]
        return FinishedInfos(parts[0]._TrajInfoCls, {name: np.concatenate([c[name] for c in columns])[order] for name in columns[0]})

    def __getitem__(self, k: Any) -> Any:
        if isinstance(k, slice):
            return [self[i] for i in range(len(self))[k]]
        info = super().__getitem__(k)
        if info is None and self._fields is not None:
            info = self._TrajInfoCls()
            info.update({name: values[k].item() for name, values in self._fields.items()})
            super().__setitem__(k, info)
            self._is_untouched = False
        return info

    def __radd__(self, other: list) -> list:
        return other + self.copy()

    def __reduce_ex__(self, protocol: Any) -> tuple:
        if self._is_untouched:
            return FinishedInfos, (self._TrajInfoCls, self._fields)
        return list, (self.copy(),)

    def _make_all(self) -> None:
        if self._fields is not None:
            for k in range(len(self)):
                self[k]
            self._fields = None
            self._is_untouched = False


def _after_making_all(name: str) -> Any:
    """Return the method of lists with this name, for `FinishedInfos`."""
    method = getattr(list, name)

    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        for each in args:
            if isinstance(each, FinishedInfos):
                each._make_all()
        return method(*args, **kwargs)

    return call


# All methods of a list but those that do not look at its entries, and those of the class itself.
_KEPT = {"__new__", "__class_getitem__", "__getattribute__", "__len__", "__sizeof__", "__doc__", "__hash__", *vars(FinishedInfos)}
for _name in vars(list).keys() - _KEPT:
    setattr(FinishedInfos, _name, _after_making_all(_name))
