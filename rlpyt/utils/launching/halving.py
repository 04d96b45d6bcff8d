"""Asynchronous successive halving (ASHA), without processes and files: who is promoted, and who is the best.

Li et al. 2020, "A System for Massively Parallel Hyperparameter Tuning". A trial trains up to the first rung. Of those that have reached a
rung, the best 1/eta train on to the next one. A trial is promoted as soon as it is among these, without waiting for the others.

A trial is one set of settings, trained with several seeds. Its score at a rung is the interquartile mean of their returns there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rlpyt.utils.aggregate import interquartile_mean

WORST = -math.inf


@dataclass
class Trial:
    """One set of settings.

    Attributes:
        number: from 0, in the order of proposals.
        values: values of the settings that have ranges, in the order of the search space.
        rung: the rung up to which it trains, from 0.
        returns: for each rung, the return there of each run that has reached it, by run_ID; None if no episode had ended.
        steps: environment steps that each run has trained, by run_ID.
        error: why a run failed, in one line; None otherwise.
    """

    number: int
    values: list
    rung: int = 0
    returns: list[dict[int, float | None]] = field(default_factory=lambda: [{}])
    steps: dict[int, int] = field(default_factory=dict)
    error: str | None = None

    def promote(self) -> None:
        """Train on to the next rung."""
        self.rung += 1
        self.returns.append({})

    def scores(self, n_runs: int) -> list[float]:
        """Return the score at each rung that all runs have reached; WORST if a run had no return there."""
        return [score(list(returns.values())) for returns in self.returns if len(returns) == n_runs]


def score(returns: Sequence[float | None]) -> float:
    """Return the interquartile mean of the returns of all runs; WORST if one is missing or no number."""
    if any(return_ is None or not math.isfinite(return_) for return_ in returns):
        return WORST
    return float(interquartile_mean(np.array(returns, float)))


def rungs(max_steps: int, min_steps: int, eta: float) -> list[int]:
    """Return the environment steps of the rungs: `max_steps`, a fraction 1/eta of it, and so on, down to at least `min_steps`.

    Raises:
        ValueError: `min_steps` is more than `max_steps`.
    """
    if not min_steps <= max_steps:
        raise ValueError(f"min_steps={min_steps:,}, of the first rung, must be at most max_steps={max_steps:,}, of the last one.")
    steps: list[int] = []
    while (at := math.ceil(max_steps / eta ** len(steps))) >= min_steps and (not steps or at < steps[-1]):
        steps.append(at)
    return steps[::-1]


def promoted(trials: Sequence[Trial], n_rungs: int, n_runs: int, eta: float, at_least: int = 0) -> Trial | None:
    """Return the trial to promote now: the best of those that have reached the highest possible rung; None without one.

    While a search still proposes trials, the best ⌊n/eta⌋ of the n trials at a rung are promoted. The n trials are those that have reached
    it, and those that failed on the way to it, which count as worst. Once the search proposes no more, `at_least` is 1: the best trial
    trains up to the last rung, also if there are fewer than eta. If it fails on its way, the next best takes its place.
    """
    scores = {trial.number: trial.scores(n_runs) for trial in trials}
    for rung in reversed(range(n_rungs - 1)):
        there = [trial for trial in trials if len(scores[trial.number]) > rung or (trial.error is not None and trial.rung == rung)]
        best_first = sorted(there, key=lambda trial: (-_at(scores[trial.number], rung), trial.number))
        waiting = [trial for trial in best_first if trial.rung == rung and _at(scores[trial.number], rung) > WORST]
        chosen = best_first[: max(int(len(there) / eta), at_least)]
        n_beyond = sum(trial.rung > rung and trial.error is None and WORST not in scores[trial.number] for trial in trials)
        for trial in waiting:
            if trial in chosen or n_beyond < at_least:
                return trial
    return None


def _at(scores: Sequence[float], rung: int) -> float:
    return scores[rung] if rung < len(scores) else WORST


def ranked(trials: Sequence[Trial], n_runs: int) -> list[Trial]:
    """Return the trials from best to worst: those that have reached a higher rung first, then by score there.

    Those without a return at their highest rung come next, and failed ones last.
    """

    def key(trial: Trial) -> tuple:
        scores = trial.scores(n_runs)
        return trial.error is not None, scores[-1:] == [WORST], -len(scores), -(scores[-1] if scores else WORST), trial.number

    return sorted(trials, key=key)


def importance(positions: Sequence[float], scores: Sequence[float], is_choice: bool) -> float:
    """Return how much of the score one setting alone explains, from 0 (nothing) to 1 (all).

    This is the adjusted R² of a least-squares fit to the ranks of the scores: a parabola in the position of the value in its range, or the
    mean of each value of a choice. It sees no interactions of settings. Of fewer values than the fit needs, it is NaN.

    Args:
        positions: position of each trial's value in its range, from 0 to 1.
        scores: score of each trial, at the same rung.
        is_choice: whether the values have no order.
    """
    if len(positions) == 0:
        return math.nan
    x = np.asarray(positions, float)  # [n]
    ranks = _ranks(np.asarray(scores, float))  # [n]
    groups = np.unique(x)
    columns = [x == group for group in groups] if is_choice or len(groups) < 3 else [np.ones_like(x), x, x**2]
    design = np.stack(columns, axis=1).astype(float)  # [n,p]
    n, p = design.shape
    total = float(((ranks - ranks.mean()) ** 2).sum())
    if n <= p or p < 2 or total == 0.0:
        return math.nan
    residual = ranks - design @ np.linalg.lstsq(design, ranks, rcond=None)[0]
    return max(1.0 - float((residual**2).sum()) / (n - p) / (total / (n - 1)), 0.0)


def _ranks(values: np.ndarray) -> np.ndarray:
    """Ranks from 0; equal values share their mean rank."""
    return np.array([(np.sum(values < value) + np.sum(values <= value) - 1) / 2 for value in values], float)


def steps_taken(trials: Sequence[Trial]) -> int:
    """Return the environment steps of all runs so far."""
    return sum(sum(trial.steps.values()) for trial in trials)


def steps_restarting(trials: Sequence[Trial], rung_steps: Sequence[int]) -> int:
    """Return the environment steps that the same search would take if promoted trials restarted instead of resuming."""
    again = sum(
        rung_steps[rung]
        for trial in trials
        for rung in range(trial.rung)
        for run in trial.returns[rung + 1]
        if trial.steps.get(run, 0) > rung_steps[rung]  # A run that was solved before does not train again.
    )
    return steps_taken(trials) + again


def best_so_far(history: Sequence[tuple[int, Any]]) -> list[tuple[int, Any]]:
    """Return (steps, value) of each improvement, from (steps, value) in the order of time; a value is a score, or (rung, score)."""
    best: list[tuple[int, Any]] = []
    for steps, value in history:
        if not best or value > best[-1][1]:
            best.append((steps, value))
    return best


def plain_number(value: float | None) -> float | None:
    """Return a finite number, or None: what JSON can hold."""
    return None if value is None or not math.isfinite(value) else float(value)


def as_row(values: Sequence[Any]) -> list[str]:
    """Return values as short texts."""
    return [f"{value:.4g}" if isinstance(value, float) else str(value) for value in values]
