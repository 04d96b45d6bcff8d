import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlpyt.utils.aggregate import (
    bootstrap,
    interquartile_mean,
    interquartile_mean_of_all,
    mean,
    on_common_grid,
    performance_profile,
    probability_of_improvement,
    stratified_bootstrap,
)

numbers = st.floats(-1e6, 1e6)


@given(st.lists(numbers, min_size=1, max_size=13))
def test_the_interquartile_mean_leaves_out_a_quarter_of_the_values_at_each_end_rounded_down(values):
    left = sorted(values)
    for _ in range(math.floor(0.25 * len(values))):
        left.remove(min(left))
        left.remove(max(left))
    assert interquartile_mean(np.array(values)) == pytest.approx(sum(left) / len(left), rel=1e-9, abs=1e-6)


def test_statistics_are_along_the_axis_asked_for():
    values = np.random.default_rng(0).normal(size=(5, 4, 3))
    for axis, statistic in itertools.product((0, 1), (mean, interquartile_mean)):
        slices = np.moveaxis(values, axis, 0).reshape(values.shape[axis], -1)
        expected = [statistic(slices[:, i]) for i in range(slices.shape[1])]
        np.testing.assert_allclose(statistic(values, axis=axis).ravel(), expected)


@given(st.lists(st.lists(st.tuples(st.integers(0, 20), numbers), max_size=8), min_size=1, max_size=4))
def test_curves_are_interpolated_within_their_own_range(curves):
    grid, values = on_common_grid([tuple(zip(*curve, strict=True)) if curve else ((), ()) for curve in curves])
    assert list(grid) == sorted({x for curve in curves for x, _ in curve})
    for curve, row in zip(curves, values, strict=True):
        points = dict(curve)  # The last one counts.
        for x, value in zip(grid, row, strict=True):
            below, above = [a for a in points if a <= x], [a for a in points if a >= x]
            if not (below and above):
                assert np.isnan(value)
                continue
            a, b = max(below), min(above)
            part = (x - a) / (b - a) if b > a else 0
            assert value == pytest.approx(points[a] * (1 - part) + points[b] * part, rel=1e-9, abs=1e-6)


def test_nans_are_left_out_and_long_curves_get_a_grid_of_equal_distances():
    grid, values = on_common_grid([([0, 1, 2, np.nan], [0, np.nan, 4, 5])])
    assert list(grid) == [0, 2] and values.tolist() == [[0, 4]]
    grid, values = on_common_grid([(np.arange(1000), np.arange(1000) * 2.0)], n_max=100)
    assert len(grid) == 100 and (grid[0], grid[-1]) == (0, 999)
    np.testing.assert_allclose(values[0], grid * 2)


def test_a_curve_that_is_shorter_than_the_distances_of_the_grid_is_on_it():
    short = np.array([533.3, 533.4]), np.array([5.0, 7.0])
    grid, values = on_common_grid([(np.arange(1000), np.arange(1000) * 2.0), short], n_max=100)
    assert len(grid) == 102 and grid[np.isfinite(values[1])].tolist() == [533.3, 533.4]
    np.testing.assert_allclose(values[1][np.isfinite(values[1])], [5.0, 7.0])
    np.testing.assert_allclose(values[0], grid * 2)


@pytest.mark.parametrize("statistic", [mean, interquartile_mean])
def test_the_band_is_made_of_percentiles_over_resampled_runs(statistic):
    values = np.random.default_rng(1).normal(size=(4, 7)) * np.arange(1, 8)
    band = bootstrap(values, statistic, n_resamples=500, confidence=0.8, seed=3)
    draws = np.random.default_rng(3).integers(4, size=(500, 4))
    for g in range(7):
        estimates = [statistic(np.array([values[run, g] for run in draw])) for draw in draws]
        assert band.center[g] == pytest.approx(statistic(values[:, g]))
        assert band.low[g] == pytest.approx(np.percentile(estimates, 10)) and band.high[g] == pytest.approx(np.percentile(estimates, 90))


@settings(max_examples=30)
@given(st.lists(st.lists(st.one_of(st.just(float("nan")), st.floats(-10, 10)), min_size=3, max_size=3), min_size=1, max_size=5))
def test_each_point_is_made_of_the_runs_that_are_there(values):
    values = np.array(values)
    band = bootstrap(values, n_resamples=50)
    for g in range(3):
        there = values[np.isfinite(values[:, g]), g]
        assert band.n_runs[g] == len(there)
        if len(there) == 0:
            assert np.isnan(band.center[g])
        else:
            assert band.center[g] == pytest.approx(there.mean(), abs=1e-9)
        if len(there) > 1:
            assert there.min() - 1e-9 <= band.low[g] <= band.high[g] <= there.max() + 1e-9
        else:
            assert np.isnan(band.low[g]) and np.isnan(band.high[g])


def test_bands_of_many_columns_are_the_same_in_pieces(monkeypatch):
    values = np.random.default_rng(2).normal(size=(3, 50))
    whole = bootstrap(values, interquartile_mean, n_resamples=100)
    monkeypatch.setattr("rlpyt.utils.aggregate._LARGEST_CHUNK", 1000)
    for a, b in zip(whole, bootstrap(values, interquartile_mean, n_resamples=100), strict=True):
        np.testing.assert_array_equal(a, b)


def test_the_interval_holds_the_mean_about_as_often_as_it_says():
    rng = np.random.default_rng(4)
    values = rng.normal(size=(30, 400))  # 400 independent samples of 30 runs
    band = bootstrap(values, n_resamples=400, confidence=0.9)
    assert 0.82 < np.mean((band.low < 0) & (0 < band.high)) < 0.95


# ------------------------------------------------------------------------------------------------------------------
# Scores of several tasks
# ------------------------------------------------------------------------------------------------------------------
def batches(strata):
    """As the statistics take them: [1,n_runs] of each group."""
    return [np.array(stratum, float)[None] for stratum in strata]


scores = st.lists(st.integers(-3, 3), min_size=1, max_size=6)  # Few values, so that ties occur.


@given(st.lists(st.tuples(scores, scores), min_size=1, max_size=3))
def test_the_probability_of_improvement_counts_pairs_of_runs_and_ties_half(tasks):
    by_task = []
    for xs, ys in tasks:
        points = [1 if x > y else 0.5 if x == y else 0 for x in xs for y in ys]
        by_task.append(sum(points) / len(points))
    pairs = batches(scores for task in tasks for scores in task)
    assert probability_of_improvement(pairs)[0] == pytest.approx(sum(by_task) / len(by_task))


@given(st.lists(scores, min_size=1, max_size=3), st.lists(st.integers(-4, 4), min_size=1, max_size=4))
def test_the_performance_profile_counts_runs_that_score_more_and_weighs_tasks_equally(strata, thresholds):
    expected = [sum(sum(x > tau for x in xs) / len(xs) for xs in strata) / len(strata) for tau in thresholds]
    assert performance_profile(batches(strata), thresholds)[0] == pytest.approx(expected)


@pytest.mark.parametrize("statistic", [interquartile_mean_of_all, lambda strata: performance_profile(strata, [-0.5, 0.5])])
def test_the_stratified_bootstrap_resamples_the_runs_of_each_group(statistic):
    rng = np.random.default_rng(1)
    strata = [rng.normal(size=4), rng.normal(5, size=7)]
    interval = stratified_bootstrap(strata, statistic, n_resamples=300, confidence=0.8, seed=3)
    rng = np.random.default_rng(3)
    draws = [rng.integers(len(stratum), size=(300, len(stratum))) for stratum in strata]
    estimates = [statistic(batches([stratum[draw[i]] for stratum, draw in zip(strata, draws)]))[0] for i in range(300)]
    np.testing.assert_allclose(interval.center, statistic(batches(strata))[0])
    np.testing.assert_allclose(interval.low, np.percentile(estimates, 10, axis=0))
    np.testing.assert_allclose(interval.high, np.percentile(estimates, 90, axis=0))


@given(st.lists(scores, min_size=1, max_size=4))
def test_in_the_interquartile_mean_of_all_each_group_counts_the_same(strata):
    n = math.lcm(*map(len, strata))
    repeated = [score for stratum in strata for score in stratum for _ in range(n // len(stratum))]  # Each group has n.
    assert interquartile_mean_of_all(batches(strata))[0] == pytest.approx(interquartile_mean(np.array(repeated, float)))


@given(st.integers(1, 6), st.lists(st.lists(numbers, min_size=6, max_size=6), min_size=1, max_size=4))
def test_the_interquartile_mean_of_groups_of_equally_many_runs_is_that_of_the_runs(n, strata):
    runs = np.array([stratum[:n] for stratum in strata])
    assert interquartile_mean_of_all(batches(runs))[0] == pytest.approx(interquartile_mean(runs.ravel()), rel=1e-9, abs=1e-6)


def test_more_runs_of_a_task_do_not_shift_the_interquartile_mean_of_all():
    good, bad = np.linspace(0.9, 1, 5), np.linspace(0.1, 0.2, 5)
    mine = stratified_bootstrap([np.repeat(good, 2), bad], interquartile_mean_of_all)
    theirs = stratified_bootstrap([good, np.repeat(bad, 2)], interquartile_mean_of_all)
    assert mine.center == pytest.approx(0.55) == theirs.center
    np.testing.assert_allclose(mine, theirs, atol=0.02)


def test_the_interquartile_mean_of_all_takes_numbers_of_runs_without_common_factors():
    strata = [np.full((1, n), n % 2) for n in (97, 98, 99, 101, 103, 107, 109, 113, 127, 131, 137, 139)]
    assert interquartile_mean_of_all(strata)[0] == 1


def test_groups_of_a_block_are_drawn_together():
    drawn = []
    strata = [np.arange(5), np.arange(5) + 10, np.arange(5) + 20]
    stratified_bootstrap(strata, lambda draws: drawn.append(draws) or draws[0].mean(axis=-1), blocks=["a", "b", "a"])
    a, b, a_too = drawn[0]
    np.testing.assert_array_equal(a_too, a + 20)
    assert (b != a + 10).any()


def test_groups_that_share_their_luck_have_the_wider_interval_of_one_group():
    def mean_of_all(draws):
        return np.mean([draw.mean(axis=-1) for draw in draws], axis=0)

    luck = np.random.default_rng(5).normal(size=8)
    strata = [luck, luck, luck]
    one = stratified_bootstrap([luck], mean_of_all)
    together = stratified_bootstrap(strata, mean_of_all, blocks=["task"] * 3)
    apart = stratified_bootstrap(strata, mean_of_all)
    np.testing.assert_allclose(together, one)
    assert (apart.high - apart.low) < 0.7 * (one.high - one.low)


def test_statistics_are_those_of_rliable():
    metrics = pytest.importorskip("rliable.metrics")
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(8, 3)), rng.normal(0.3, size=(12, 3))  # [n_runs,n_tasks]
    x[0] = y[0]
    for n in range(1, 9):
        assert interquartile_mean_of_all([column[None] for column in x[:n].T])[0] == pytest.approx(metrics.aggregate_iqm(x[:n]))
    pairs = [column[None] for task in range(3) for column in (x[:, task], y[:, task])]
    assert probability_of_improvement(pairs)[0] == pytest.approx(metrics.probability_of_improvement(x, y))
