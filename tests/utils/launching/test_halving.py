"""Who is promoted, who is best, and which settings matter."""

import math

import numpy as np
import pytest

from rlpyt.utils.aggregate import interquartile_mean
from rlpyt.utils.launching.halving import (
    WORST,
    Trial,
    best_so_far,
    importance,
    promoted,
    ranked,
    rungs,
    score,
    steps_restarting,
    steps_taken,
)


def trial(number, *scores, error=None, rung=None, n_runs=1):
    """A trial with these scores at the first rungs."""
    made = Trial(number, [0.5])
    for each in scores:
        made.returns[-1] = dict.fromkeys(range(n_runs), each)
        made.promote()
    made.rung = len(scores) - 1 if rung is None else rung
    made.returns = made.returns[: made.rung + 1] if made.rung < len(scores) else made.returns
    made.error = error
    return made


@pytest.mark.parametrize(
    "max_steps, min_steps, eta, expected",
    [
        (27000, 1000, 3, [1000, 3000, 9000, 27000]),
        (27000, 1001, 3, [3000, 9000, 27000]),
        (100, 100, 3, [100]),
        (100, 1, 2, [1, 2, 4, 7, 13, 25, 50, 100]),
        (1000, 100, 4, [250, 1000]),
    ],
)
def test_rungs_are_fractions_of_the_last_one_down_to_the_first(max_steps, min_steps, eta, expected):
    assert rungs(max_steps, min_steps, eta) == expected


def test_the_first_rung_cannot_be_above_the_last_one():
    with pytest.raises(ValueError, match="min_steps=200, of the first rung, must be at most max_steps=100"):
        rungs(100, 200, 3)


def test_the_score_is_the_interquartile_mean_and_the_worst_if_a_run_has_no_return():
    returns = [3.0, 1.0, 100.0, 2.0]
    assert score(returns) == interquartile_mean(np.array(returns)) == 2.5
    assert score([1.0, None]) == score([1.0, math.nan]) == score([math.inf, 1.0]) == WORST


def test_the_best_third_is_promoted_as_soon_as_there_is_one():
    trials = [trial(0, 5.0), trial(1, 7.0)]
    assert promoted(trials, 3, 1, 3) is None
    trials.append(trial(2, 1.0))
    assert promoted(trials, 3, 1, 3) is trials[1]
    trials[1].promote()
    assert promoted(trials, 3, 1, 3) is None  # The others are not among the best third.
    trials += [trial(3, 9.0), trial(4, 8.0), trial(5, 2.0)]
    assert promoted(trials, 3, 1, 3) is trials[3]


def test_higher_rungs_come_first():
    trials = [trial(i, float(i), float(i)) for i in range(3)] + [trial(i, float(i)) for i in range(3, 12)]
    assert promoted(trials, 3, 1, 3) is trials[2]  # Of rung 1, although trial 11 is the best of rung 0.


def test_nobody_is_promoted_from_the_last_rung():
    assert promoted([trial(i, 1.0, 1.0) for i in range(9)], 2, 1, 3) is None


def test_failed_trials_count_as_worst_and_are_never_promoted():
    failed = [trial(i, rung=0, error="ValueError") for i in range(2)]
    trials = [*failed, trial(2, 1.0)]
    assert promoted(trials, 2, 1, 3) is trials[2]
    assert promoted(failed * 3, 2, 1, 3) is None
    assert promoted([trial(i, WORST) for i in range(3)], 2, 1, 3) is None


def test_a_trial_waits_for_all_its_runs():
    trials = [trial(i, float(i), n_runs=2) for i in range(3)]
    del trials[2].returns[0][1]
    assert trials[2].scores(2) == [] and promoted(trials, 2, 2, 3) is None


def test_at_the_end_the_best_one_trains_on_even_if_there_are_few():
    trials = [trial(0, 5.0), trial(1, 7.0)]
    assert promoted(trials, 3, 1, 3, at_least=1) is trials[1]
    trials[1] = trial(1, 7.0, 6.0)
    assert promoted(trials, 3, 1, 3, at_least=1) is trials[1]  # To the last rung.
    trials[1] = trial(1, 7.0, 6.0, 8.0)
    assert promoted(trials, 3, 1, 3, at_least=1) is None


@pytest.mark.parametrize("stuck", [trial(1, 7.0, rung=1, error="ValueError"), trial(1, 7.0, WORST)])
def test_at_the_end_the_next_best_takes_the_place_of_one_that_cannot_train_on(stuck):
    trials = [trial(0, 5.0), stuck, trial(2, 6.0), trial(3, 4.0)]
    assert promoted(trials, 3, 1, 3) is None
    assert promoted(trials, 3, 1, 3, at_least=1) is trials[2]
    trials[2] = trial(2, 6.0, 8.0)
    assert promoted(trials, 3, 1, 3, at_least=1) is trials[2]
    trials[2] = trial(2, 6.0, 8.0, 9.0)
    assert promoted(trials, 3, 1, 3, at_least=1) is None


def test_the_best_trial_is_the_best_at_the_highest_rung():
    trials = [trial(0, 9.0), trial(1, 8.0, 2.0), trial(2, 7.0, 3.0), trial(3, 9.0, rung=1, error="late")]
    assert [each.number for each in ranked(trials, 1)] == [2, 1, 0, 3]


def test_what_restarting_would_cost_is_counted_per_promoted_run():
    a, b = trial(0, 1.0, 2.0, n_runs=2), trial(1, 1.0, n_runs=2)
    a.steps, b.steps = {0: 300, 1: 300}, {0: 100, 1: 100}
    assert steps_taken([a, b]) == 800
    assert steps_restarting([a, b], [100, 300]) == 800 + 2 * 100
    a.steps[1] = 60  # It was solved there.
    assert steps_restarting([a, b], [100, 300]) == 560 + 100


@pytest.mark.parametrize("is_choice", [False, True])
def test_a_setting_that_decides_is_important_and_one_that_does_not_is_not(is_choice):
    generator = np.random.default_rng(0)
    deciding, other = generator.integers(0, 4, 200) / 3, generator.integers(0, 4, 200) / 3
    scores = (deciding - 0.5) ** 2 + 0.01 * generator.normal(size=200)
    assert importance(deciding, scores, is_choice) > 0.7 and importance(other, scores, is_choice) < 0.1


def test_importance_is_adjusted_for_the_parameters_of_the_fit():
    """By hand. Two means of two ranks: R² = 1 - 1/5, of which 2 of 4 - 1 degrees of freedom remain. A parabola through three: 1 - 1/10."""
    assert importance([0, 0, 1, 1], [1.0, 2.0, 3.0, 4.0], True) == pytest.approx(1 - (1 / 2) / (5 / 3))
    assert importance([0, 0, 0.5, 1, 1], [1.0, 2.0, 3.0, 4.0, 5.0], False) == pytest.approx(1 - (1 / 2) / (10 / 4))


def test_a_score_that_is_missing_is_the_worst_rank():
    assert importance([0, 0, 1, 1], [WORST, WORST, 3.0, 4.0], True) == importance([0, 0, 1, 1], [-5.0, -5.0, 3.0, 4.0], True) > 0.8


def test_too_few_trials_tell_nothing_about_importance():
    assert math.isnan(importance([0.1, 0.9], [1.0, 2.0], False))
    assert math.isnan(importance([], [], True))
    assert math.isnan(importance([0.1, 0.2, 0.5, 0.9], [1.0] * 4, False))  # All are equally good.


def test_only_improvements_are_among_the_best_so_far():
    assert best_so_far([(10, 1.0), (20, 0.5), (30, 2.0), (40, 2.0)]) == [(10, 1.0), (30, 2.0)]
    assert best_so_far([(10, (0, 5.0)), (20, (1, 2.0)), (30, (0, 9.0))]) == [(10, (0, 5.0)), (20, (1, 2.0))]
