"""Counters and columns of the log that all runners share."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch

from rlpyt.utils.collections import field_of
from rlpyt.utils.logging import logger
from rlpyt.utils.plain import check_form
from rlpyt.utils.stopwatch import Stopwatch

# Columns, and fields of trajectories and algorithms, that appear on the screen only if everything is shown.
_DETAILS = frozenset(
    "Iteration CumUpdates UpdatesPerSecond ReplayRatio CumReplayRatio "
    "NonzeroRewards DiscountedReturn gradNorm perplexity tdAbsErr priority muGradNorm qGradNorm q1GradNorm q2GradNorm vGradNorm piGradNorm "
    "piMu piLogStd qMeanDiff valueLoss learningRate clipFrac".split()
)
_COUNTERS = ("cum_steps", "cum_completed_trajs", "cum_eval_time", "_last_steps", "_last_updates", "cum_time")  # In snapshots.


class Diagnostics:
    """Counters of a run, and the table logged from them.

    Args:
        opt_info_fields: names of the results of an optimization.
        train_batch_size: samples per gradient update, all processes together.
        waiting_seconds: seconds already spent waiting for the start of workers.
    """

    def __init__(self, opt_info_fields: Iterable[str], train_batch_size: int | None, waiting_seconds: float = 0.0) -> None:
        self.train_batch_size = train_batch_size
        self.opt_infos: dict[str, list] = {name: [] for name in opt_info_fields}
        self.new_completed_trajs = 0
        self.cum_completed_trajs = 0
        self.cum_steps = 0  # env steps, all processes together
        self.cum_eval_time = 0.0  # seconds
        self.sampling, self.optimization = Stopwatch(), Stopwatch()
        self._last_seconds = 0.0, waiting_seconds, 0.0, 0.0
        self._start_time = self._last_time = time.monotonic()
        self._last_steps = 0
        self._last_updates = 0

    def state_dict(self) -> dict[str, Any]:
        """Return the counters. Call this after a row has been recorded."""
        return dict({name: getattr(self, name) for name in _COUNTERS if name != "cum_time"}, cum_time=self.cum_time)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue counting from a `state_dict`."""
        check_form(state, dict.fromkeys(_COUNTERS, (int, float)), "diagnostics")
        counters = {name: state[name] for name in _COUNTERS}
        self._last_time = time.monotonic()
        self._start_time = self._last_time - counters.pop("cum_time")
        vars(self).update(counters)

    def store_opt_info(self, opt_info: Any) -> None:
        """Keep the results of an optimization until the next row is logged."""
        for name, values in self.opt_infos.items():
            new = field_of(opt_info, name)
            if new is None:
                continue
            if isinstance(new, torch.Tensor):
                new = new.detach().cpu().numpy()
            values.extend(new) if isinstance(new, list) or np.ndim(new) else values.append(new)

    def count_trajs(self, n: int) -> None:
        """Count completed trajectories."""
        self.new_completed_trajs += n
        self.cum_completed_trajs += n

    def record(self, itr: int, updates: int, eval_time: float = 0.0, training_pauses: bool = True) -> None:
        """Record the columns that all runners share.

        Args:
            itr: iteration of the runner.
            updates: gradient updates so far.
            eval_time: seconds of evaluation since the last row.
            training_pauses: whether training pauses during an evaluation.
        """
        now = time.monotonic()
        self.cum_eval_time += eval_time
        train_time = now - self._last_time - eval_time * training_pauses
        new_steps = self.cum_steps - self._last_steps
        new_updates = updates - self._last_updates
        timed = new_steps > 0 and train_time > 0
        samples_per_update = self.train_batch_size or math.nan
        for name, value in (
            ("Iteration", itr),
            ("CumTime (s)", now - self._start_time),
            ("CumSteps", self.cum_steps),
            ("CumCompletedTrajs", self.cum_completed_trajs),
            ("CumUpdates", updates),
            ("StepsPerSecond", new_steps / train_time if timed else math.nan),
            ("UpdatesPerSecond", new_updates / train_time if timed else math.nan),
            ("ReplayRatio", new_updates * samples_per_update / new_steps if new_steps else math.nan),
            ("CumReplayRatio", updates * samples_per_update / self.cum_steps if self.cum_steps else math.nan),
        ):
            logger.record_tabular(name, value, detail=name in _DETAILS)
        self._last_time, self._last_steps, self._last_updates = now, self.cum_steps, updates
        self.new_completed_trajs = 0

    def record_times(self, eval_time: float, replay_seconds: float, waiting_seconds: float) -> None:
        """Record how the seconds since the last row were spent.

        Args:
            eval_time: seconds of evaluation since the last row.
            replay_seconds: seconds of optimization spent on replay, since the start of the run.
            waiting_seconds: seconds of sampling and evaluation spent waiting for workers, since the start of the run.
        """
        now = self.sampling.seconds, waiting_seconds, replay_seconds, self.optimization.seconds
        sampling, waiting, replay, optimization = (a - b for a, b in zip(now, self._last_seconds))
        self._last_seconds = now
        for name, seconds in (
            ("SamplingTime (s)", sampling),
            ("WaitingTime (s)", waiting),
            ("ReplayTime (s)", replay),
            ("OptimizationTime (s)", optimization - replay),
            ("EvaluationTime (s)", eval_time),
        ):
            logger.record_tabular(name, seconds, detail=True)

    def record_infos(self, traj_infos: list) -> None:
        """Record statistics of the TrajInfos and of the optimizations since the last row, and forget these optimizations."""
        fields = sorted({name for info in traj_infos for name in info if not name.startswith("_")}, key=_first_seen(traj_infos))
        for name in fields:
            logger.record_tabular_misc_stat(name, [info[name] for info in traj_infos if name in info], detail=name in _DETAILS)
        for name, values in self.opt_infos.items():
            logger.record_tabular_misc_stat(name, values, detail=name in _DETAILS)
            self.opt_infos[name] = []

    @property
    def cum_time(self) -> float:
        """Seconds since the start of the run; setting it moves the start."""
        return time.monotonic() - self._start_time

    @cum_time.setter
    def cum_time(self, seconds: float) -> None:
        self._start_time = time.monotonic() - seconds


def counter(name: str) -> property:
    """Return a property of a runner that reads and writes the attribute `name` of its `diagnostics`."""

    def read(runner: Any) -> Any:
        return getattr(runner.diagnostics, name)

    def write(runner: Any, value: Any) -> None:
        setattr(runner.diagnostics, name, value)

    return property(read, write)


def moment(name: str) -> property:
    """Return a property like `counter` for a time: from ``time.time()`` in the runner, from ``time.monotonic()`` in its `diagnostics`."""

    def read(runner: Any) -> float:
        return getattr(runner.diagnostics, name) + time.time() - time.monotonic()

    def write(runner: Any, value: float) -> None:
        setattr(runner.diagnostics, name, value - time.time() + time.monotonic())

    return property(read, write)


def _first_seen(traj_infos: list) -> Any:
    order: dict[str, int] = {}
    for info in traj_infos:
        for name in info:
            order.setdefault(name, len(order))
    return order.__getitem__
