import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlpyt.utils.aggregate import bootstrap, interquartile_mean, mean, on_common_grid

numbers = st.floats(-1e6, 1e6)


@given(st.lists(numbers, min_size=1, max_size=12))
def test_the_interquartile_mean_is_that_of_the_middle_half(values):
    four_times = sorted(values * 4)  # Then a quarter is a whole number of values.
    n = len(values)
    assert interquartile_mean(np.array(values)) == pytest.approx(np.mean(four_times[n:-n]), rel=1e-9, abs=1e-6)


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
