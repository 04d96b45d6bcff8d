"""Statistics of the running episodes of several environments."""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from rlpyt.types import EnvSamples, Samples, TrajInfo
from rlpyt.utils.buffer import buffer_func
from rlpyt.utils.collections import AttrDict, field_of
from rlpyt.utils.lazy import LazyModule

kernels: Any = LazyModule("rlpyt.samplers.kernels")


def has_own_step(TrajInfoCls: Any) -> bool:
    """Return whether `TrajInfoCls` overrides `step`, which must be called for every step of an environment."""
    return not (isinstance(TrajInfoCls, type) and issubclass(TrajInfoCls, TrajInfo) and TrajInfoCls.step is TrajInfo.step)


_NEVER_BLANK = np.zeros((0, 0), bool)  # In the place of `valid` for `kernels.sum_up`.
FEW = 64  # Environment steps: with fewer in a batch, its statistics take less time one by one.


def pays_at_once(TrajInfoCls: Any, n_envs: int, batch_T: int) -> bool:
    """Return whether to finish all episodes of a batch of single environments together, by a compiled loop.

    TrajInfos are then made later, or never, so that the class must override nothing.
    """
    is_plain = not has_own_step(TrajInfoCls) and not _looks_at_observations(TrajInfoCls) and _has_plain_sums(TrajInfoCls)
    return is_plain and n_envs * batch_T >= FEW


def finishes_at_once(TrajInfoCls: Any, n_envs: int, batch_T: int) -> bool:
    """Return whether `pays_at_once`, and this process has loaded the compiled loop, since a batch should not wait for an import."""
    return pays_at_once(TrajInfoCls, n_envs, batch_T) and "rlpyt.samplers.kernels" in sys.modules


def load_compiled() -> None:
    """Compile the loop of `BatchTracker`, or load its code, for this process and for those that are forked from it."""
    env = EnvSamples(None, np.zeros((1, 1), np.float32), None, np.zeros((1, 1), bool), None)
    BatchTracker(TrajInfo, [TrajInfo()]).end_batch(Samples(None, env), [])


def _looks_at_observations(TrajInfoCls: Any) -> bool:
    """Return whether `terminate` of the class may read the last observation of an episode."""
    return TrajInfoCls.terminate is not TrajInfo.terminate


def _has_plain_sums(TrajInfoCls: Any) -> bool:
    """Return whether all counts and sums of the class start at zero, and no other sum is added to a count."""
    is_plain = TrajInfoCls.__init__ is TrajInfo.__init__
    return is_plain and not any(field in ("Length", "NonzeroRewards") for field, _ in TrajInfoCls.env_info_sums)


def episode_tracker(
    TrajInfoCls: Any, traj_infos: list, at_once: bool = False, waits: bool = False
) -> EpisodeTracker | StepTracker | BatchTracker:
    """Return a tracker of running episodes: from the batch, unless `TrajInfoCls` overrides `step`, which must be called.

    Args:
        TrajInfoCls: makes the statistics of an episode.
        traj_infos: one running TrajInfo per environment; the tracker keeps the list up to date.
        at_once: whether to finish all episodes of a batch together, by a compiled loop, if the class allows it.
        waits: whether environments are idle after ``done`` until the batch is full.
    """
    if has_own_step(TrajInfoCls):
        return StepTracker(TrajInfoCls, traj_infos)
    is_whole = at_once and _has_plain_sums(TrajInfoCls)
    return BatchTracker(TrajInfoCls, traj_infos, waits) if is_whole else EpisodeTracker(TrajInfoCls, traj_infos)


def _terms(entries: np.ndarray, n_dims: int) -> np.ndarray:
    """Return entries of env_info as float64 with `n_dims` dimensions: those of one step are added up."""
    if entries.ndim == n_dims:
        return entries.astype(np.float64)
    return entries.reshape(*entries.shape[:n_dims], -1).sum(axis=-1, dtype=np.float64)


def _number(x: Any) -> float | int:
    """Return a count or sum so far as a Python number: `TrajInfo.step` may have added numbers or arrays of numpy."""
    return x if type(x) in (float, int) else float(np.sum(x))


class EpisodeTracker:
    """Computes the sums of `TrajInfo.step` from the batch: over the rows of an episode, when the episode or the batch ends."""

    reads_outcomes = False

    def __init__(self, TrajInfoCls: type, traj_infos: list) -> None:
        self.TrajInfoCls = TrajInfoCls
        self.traj_infos = traj_infos  # They hold the sums so far.
        self._first = [0] * len(traj_infos)  # First row of each environment's episode that is not summed up yet.

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
        env, first, info = samples.env, self._first[b], self.traj_infos[b]
        self._first[b] = end
        if first < end and env.valid is not None and not env.valid[first, b]:
            first += 1  # The episode begins after a blank row.
        rewards = env.reward[first:end, b].tolist()
        if not rewards:
            return
        terms = [(field, _terms(getattr(env.env_info, name)[first:end, b], 1).tolist()) for field, name in info.env_info_sums]
        sums = {field: _number(info[field]) for field in ("Return", "DiscountedReturn", "_cur_discount", *(field for field, _ in terms))}
        for i, reward in enumerate(rewards):
            sums["Return"] += reward
            sums["DiscountedReturn"] += sums["_cur_discount"] * reward
            sums["_cur_discount"] *= info._discount
            for field, values in terms:
                sums[field] += values[i]
        info.update(sums)
        info.Length += len(rewards)
        info.NonzeroRewards += len(rewards) - rewards.count(0)


class StepTracker:
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


class BatchTracker:
    """Computes the sums of `EpisodeTracker`, with the same results, for all environments when the batch ends, by a compiled loop.

    Arrays hold the sums so far. `store` writes them into the TrajInfos, from which the next batch reads them again.

    Args:
        TrajInfoCls: makes the statistics of an episode; its counts and sums start at zero.
        traj_infos: one running TrajInfo per environment.
        waits: whether environments are idle after ``done`` until the batch is full.

    Attributes:
        looks_at_observations: whether `terminate` of the class reads observations, so that `finish` needs the last one of each episode.
        ends: rows [k] and columns [k] in which the episodes of the latest batch ended, in their order.
    """

    reads_outcomes = False

    def __init__(self, TrajInfoCls: Any, traj_infos: list, waits: bool = False) -> None:
        self.TrajInfoCls = TrajInfoCls
        self.traj_infos = traj_infos
        self.looks_at_observations = _looks_at_observations(TrajInfoCls)
        self.ends = np.zeros((2, 0), np.int64)
        self._waits = waits
        self._finals: list = []  # The last observations of episodes, in order.
        sums = list(dict.fromkeys([*kernels.SUMS, *(field for field, _ in TrajInfoCls.env_info_sums)]))
        self._into = np.array([sums.index(field) for field, _ in TrajInfoCls.env_info_sums], np.int64)
        self._names = [*kernels.COUNTS, *sums]
        B = len(traj_infos)
        self._running = np.zeros((len(kernels.COUNTS), B), np.int64), np.zeros((len(sums), B))  # Of the running episodes.
        self._is_stored = True  # Whether `traj_infos` have them, and the arrays do not.
        self._has_more = False  # Whether somebody has written other fields into `traj_infos`.
        self._memory: list[np.ndarray] = []  # For `ends`, and for counts and sums of the episodes that end in a batch.
        self._summed = np.zeros((0, 0, 0))  # Memory for the entries of env_info that are summed up.

    def finish(self, columns: np.ndarray, observation: Any) -> None:
        """The episodes of environments `columns` [k] ended with these observations, arrays [B,...]; for `looks_at_observations`."""
        final = buffer_func(observation, lambda x: x[columns])
        self._finals += [buffer_func(final, lambda x, i=i: x[i]) for i in range(len(columns))]

    def stand_still(self, b: int, t: int, samples: Any) -> None:
        """Do nothing: the rows of an idle environment are recognized."""

    def end_batch(self, samples: Any, completed: list) -> list:
        """Return the TrajInfos of the episodes that ended in this batch, in order; sum up what will be overwritten."""
        env = samples.env
        if self._is_stored:
            self._load()
        if self._summed.shape[1:] != env.reward.shape:
            self._allocate(env.reward.shape)
        for k, (_, name) in enumerate(self.TrajInfoCls.env_info_sums):
            self._summed[k] = _terms(getattr(env.env_info, name), 2)
        over, valid = field_of(env.env_info, "traj_done", env.done), _NEVER_BLANK if env.valid is None else env.valid
        # The loop is compiled for these types and contiguous arrays only.
        rows = [np.ascontiguousarray(x) for x in (env.reward, env.done, over, valid)]
        discount = float(self.traj_infos[0]._discount)
        n = kernels.sum_up(*rows, self._summed, self._into, discount, self._waits, *self._running, *self._memory)
        self.ends, counts, sums = (memory[:, :n].copy() for memory in self._memory)
        if self.looks_at_observations or self._has_more:
            return self._finished([*counts.tolist(), *sums.tolist()])
        return FinishedInfos(self.TrajInfoCls, self._names, counts, sums)

    def store(self) -> None:
        """Write the sums so far into the TrajInfos. Until the next batch ends, they may be changed there."""
        if not self._is_stored:
            counts, sums = self._running
            for name, values in zip(self._names, [*counts, *sums]):
                for info, value in zip(self.traj_infos, values.tolist()):
                    info[name] = value
        self._is_stored = True

    def _load(self) -> None:
        """Read the sums so far from the TrajInfos."""
        counts, sums = self._running
        for name, values in zip(self._names, [*counts, *sums]):
            values[:] = [_number(info[name]) for info in self.traj_infos]
        self._has_more = any(len(info) > len(self._names) for info in self.traj_infos)
        self._is_stored = False

    def _allocate(self, shape: tuple[int, int]) -> None:
        self._summed = np.zeros((len(self._into), *shape))
        n = shape[0] * shape[1]
        self._memory = [np.zeros((2, n), np.int64), *(np.zeros((len(x), n), x.dtype) for x in self._running)]

    def _finished(self, table: list[list]) -> list:
        """Return the TrajInfos of the episodes that ended, made now; `table` has a row of k entries for each name."""
        finals, completed = self._finals or [None] * self.ends.shape[1], []
        for b, final, *entries in zip(self.ends[1].tolist(), finals, *table, strict=True):
            info, self.traj_infos[b] = self.traj_infos[b], self.TrajInfoCls()
            info.update(zip(self._names, entries))
            completed.append(info.terminate(final))
        self._finals = []
        return completed


class FinishedInfos(list):
    """The TrajInfos of episodes that ended in a batch, made when they are asked for: of a thousand episodes, few are looked at.

    Reading by number or by slice makes only those TrajInfos. Every other operation of a list makes all of them.

    Args:
        TrajInfoCls: their class.
        names: of their entries.
        tables: arrays [n,k] with the entries of k TrajInfos; their rows, one table after the other, have these names.

    Attributes:
        is_untouched: whether no TrajInfo is made yet, which somebody might have changed.
    """

    def __init__(self, TrajInfoCls: Any, names: Sequence[str], *tables: np.ndarray) -> None:
        super().__init__([None] * tables[0].shape[1])
        self._TrajInfoCls, self._names = TrajInfoCls, names
        self._tables: tuple[np.ndarray, ...] = tables  # Empty once all are made.
        self.is_untouched = True

    @staticmethod
    def joined(parts: Sequence[FinishedInfos], order: np.ndarray) -> FinishedInfos:
        """Return the TrajInfos of several lists, of which none is made: number `i` is number ``order[i]`` of all."""
        tables = [np.concatenate(tables, axis=1)[:, order] for tables in zip(*(part._tables for part in parts))]
        return FinishedInfos(parts[0]._TrajInfoCls, parts[0]._names, *tables)

    def __getitem__(self, k: Any) -> Any:
        if isinstance(k, slice):
            return [self[i] for i in range(len(self))[k]]
        info = super().__getitem__(k)
        if info is None and self._tables:
            info = self._TrajInfoCls()
            info.update(zip(self._names, [entry for table in self._tables for entry in table[:, k].tolist()]))
            super().__setitem__(k, info)
            self.is_untouched = False
        return info

    def __radd__(self, other: list) -> list:
        return other + self.copy()

    def __reduce_ex__(self, protocol: Any) -> tuple:
        if self.is_untouched:
            return FinishedInfos, (self._TrajInfoCls, self._names, *self._tables)
        return list, (self.copy(),)

    def _make_all(self) -> None:
        if self._tables:
            for k in range(len(self)):
                self[k]
            self._tables = ()
            self.is_untouched = False


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
