"""Statistics of several runs: means, performance profiles and probabilities of improvement, with confidence intervals.

Arrays in, arrays out. Source: Agarwal et al. 2021, "Deep reinforcement learning at the edge of the statistical precipice",
arXiv:2108.13264.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

_LARGEST_CHUNK = 2_000_000  # resampled numbers in memory at once


class Band(NamedTuple):
    """A curve with a confidence interval, all of shape [G].

    `n_runs` is the number of runs behind each point; `low` and `high` are NaN at points of only one run.
    """

    center: np.ndarray
    low: np.ndarray
    high: np.ndarray
    n_runs: np.ndarray


def mean(values: np.ndarray, axis: int = 0) -> np.ndarray:
    """Return the arithmetic mean along an axis."""
    return np.mean(values, axis=axis)


def interquartile_mean(values: np.ndarray, axis: int = 0) -> np.ndarray:
    """Return the mean along an axis without the lowest and the highest quarter of the values, a quarter of n being ``n // 4`` of them.

    It needs fewer runs than the median, and outliers weigh less than in the mean. Of fewer than four values it is the mean. It equals that
    of rliable, which is ``scipy.stats.trim_mean(values, 0.25)``.
    """
    n = values.shape[axis]
    middle = np.sort(values, axis=axis).take(range(n // 4, n - n // 4), axis=axis)
    return np.mean(middle, axis=axis)


STATISTICS: dict[str, Callable] = {"mean": mean, "IQM": interquartile_mean}


def on_common_grid(curves: Sequence[tuple[ArrayLike, ArrayLike]], n_max: int = 500) -> tuple[np.ndarray, np.ndarray]:
    """Interpolate several curves linearly at the same x values.

    The x values are those of all curves, if at most `n_max`; otherwise `n_max` values at equal distances, and both ends of each curve.

    Args:
        curves: (x, y) of each, of any length. Points that are not finite are left out; of points with equal x the last one counts.

    Returns:
        The x values [G], and y [n_curves,G], which is NaN before a curve's first point and after its last one.
    """
    cleaned = [_cleaned(np.asarray(x, float), np.asarray(y, float)) for x, y in curves]
    grid = np.unique(np.concatenate([x for x, _ in cleaned])) if cleaned else np.zeros(0)
    if len(grid) > n_max:
        ends = [x[[0, -1]] for x, _ in cleaned if len(x)]
        grid = np.unique(np.concatenate([np.linspace(grid[0], grid[-1], n_max), *ends]))
    values = np.full((len(cleaned), len(grid)), np.nan)
    for row, (x, y) in zip(values, cleaned, strict=True):
        if len(x):
            row[:] = np.interp(grid, x, y, left=np.nan, right=np.nan)
    return grid, values


def _cleaned(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Finite points by increasing x, each x once: its last point."""
    is_finite = np.isfinite(x) & np.isfinite(y)
    x, y = x[is_finite][::-1], y[is_finite][::-1]
    x, first = np.unique(x, return_index=True)  # The first in reversed order is the last.
    return x, y[first]


def bootstrap(values: np.ndarray, statistic: Callable = mean, n_resamples: int = 2000, confidence: float = 0.95, seed: int = 0) -> Band:
    """Return a statistic over runs, with percentile bootstrap intervals: whole runs are resampled with replacement.

    Intervals of fewer than about five runs are too narrow.

    Args:
        values: [n_runs,G], NaN where a run has no value.
        statistic: function of an array and an axis, such as `mean` and `interquartile_mean`; called as ``statistic(array, axis=...)``.
        n_resamples: number of resamples.
        confidence: confidence level of the interval, between 0 and 1.
        seed: seed of the resampling.

    Raises:
        ValueError: `n_resamples` or `confidence` is out of range.
    """
    if n_resamples < 1 or not 0 < confidence < 1:
        raise ValueError(f"n_resamples={n_resamples} must be at least 1, and confidence={confidence} between 0 and 1.")
    there = np.isfinite(values)  # [n_runs,G]
    low, center, high = np.full((3, values.shape[1]), np.nan)
    band = Band(low, center, high, there.sum(axis=0))
    for runs in np.unique(there, axis=1).T:  # [n_runs] bool: each set of runs that have values at the same points
        columns, n = np.flatnonzero((there == runs[:, None]).all(axis=0)), runs.sum()
        if n == 0:
            continue
        some = values[np.ix_(runs, columns)]
        band.center[columns] = statistic(some, axis=0)
        if n > 1:
            draws = np.random.default_rng(seed).integers(n, size=(n_resamples, n))
            band.low[columns], band.high[columns] = _percentiles(some, draws, statistic, confidence)
    return band


def _percentiles(values: np.ndarray, draws: np.ndarray, statistic: Callable, confidence: float) -> np.ndarray:
    """Lower and upper end [2,G] of the middle `confidence` of a statistic of `values` [n,G] over draws [n_resamples,n]."""
    percents = 50 * (1 - confidence), 50 * (1 + confidence)
    width = max(_LARGEST_CHUNK // draws.size, 1)
    chunks = [values[:, start : start + width] for start in range(0, values.shape[1], width)]
    return np.concatenate([np.percentile(statistic(chunk[draws], axis=1), percents, axis=0) for chunk in chunks], axis=1)


class Interval(NamedTuple):
    """A statistic with its confidence interval, each of the statistic's shape."""

    center: np.ndarray
    low: np.ndarray
    high: np.ndarray


def stratified_bootstrap(
    strata: Sequence[np.ndarray],
    statistic: Callable[[Sequence[np.ndarray]], np.ndarray],
    n_resamples: int = 2000,
    confidence: float = 0.95,
    seed: int = 0,
    blocks: Sequence[Hashable] | None = None,
) -> Interval:
    """Return a statistic of several groups of runs with its percentile bootstrap interval: runs are resampled within their group.

    Args:
        strata: a score for each run, [n_runs] of each group, such as a task or a task and algorithm; their numbers may differ.
        statistic: function of the groups as a list of arrays [R,n_runs], which returns [R,...].
        n_resamples: number of resamples.
        confidence: confidence level of the interval, between 0 and 1.
        seed: seed of the resampling.
        blocks: a label for each group. Groups with the same label have the same n_runs, and are drawn together: where a resample
            has run i of one, it has run i of the others. So it is for groups whose runs i are alike by more than their group, such
            as by what they are evaluated on. By default all groups are drawn independently.
    """
    rng = np.random.default_rng(seed)
    blocks = range(len(strata)) if blocks is None else blocks
    n_runs = {block: len(stratum) for block, stratum in zip(blocks, strata, strict=True)}
    idxs = {block: rng.integers(n, size=(n_resamples, n)) for block, n in n_runs.items()}
    draws = [stratum[idxs[block]] for block, stratum in zip(blocks, strata, strict=True)]
    low, high = np.percentile(statistic(draws), (50 * (1 - confidence), 50 * (1 + confidence)), axis=0)
    return Interval(statistic([stratum[None] for stratum in strata])[0], low, high)


def interquartile_mean_of_all(strata: Sequence[np.ndarray]) -> np.ndarray:
    """Return the interquartile mean [R] of all groups together, each [R,n_runs]. All groups count the same, however many runs they have.

    It is the `interquartile_mean` of the runs if each run is repeated until all groups have as many. So a run weighs 1 / n_runs, and
    the runs at both edges of the middle may count in part. Of groups with equally many runs it is the `interquartile_mean` of the runs.
    """
    n_runs = [stratum.shape[-1] for stratum in strata]
    n_repeated = math.lcm(*n_runs)  # of each group
    n_all = n_repeated * len(strata)
    repeats = np.concatenate([np.full(n, n_repeated // n, float) for n in n_runs])  # [N]
    runs = np.concatenate(list(strata), axis=-1)  # [R,N]
    order = np.argsort(runs, axis=-1)
    ends = np.cumsum(repeats[order], axis=-1)  # Repeated and sorted, a run is in the places `starts` to `ends`.
    starts = ends - repeats[order]
    first, last = n_all // 4, n_all - n_all // 4  # The places of the middle.
    weights = np.maximum(np.minimum(ends, last) - np.maximum(starts, first), 0)
    return np.sum(weights * np.take_along_axis(runs, order, axis=-1), axis=-1) / np.sum(weights, axis=-1)


def performance_profile(strata: Sequence[np.ndarray], thresholds: ArrayLike) -> np.ndarray:
    """Return which part of the runs scores more than each threshold: ``F(τ) = mean over groups of the mean over runs of 1[score > τ]``.

    Args:
        strata: scores of each group, [R,n_runs].
        thresholds: values of τ, [K].

    Returns:
        F, [R,K].
    """
    over = [(stratum[..., None] > np.asarray(thresholds)).mean(axis=-2) for stratum in strata]  # [R,K] each
    return np.mean(over, axis=0)


def probability_of_improvement(pairs: Sequence[np.ndarray]) -> np.ndarray:
    """Return how probably a run of X scores more than a run of Y: ``P(X > Y) + P(X = Y) / 2``, over all pairs of runs
    of a task, averaged over tasks.

    Args:
        pairs: scores of X and of Y in turn, for each task: X_1 [R,n_1], Y_1 [R,m_1], X_2 [R,n_2], ...

    Returns:
        Probabilities [R].
    """
    compared = [np.sign(x[..., :, None] - y[..., None, :]).mean(axis=(-2, -1)) for x, y in zip(pairs[::2], pairs[1::2], strict=True)]
    return (1 + np.mean(compared, axis=0)) / 2
