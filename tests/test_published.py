"""A published row is still true: each day another one is trained again, with new seeds.

A new run is conspicuous if it is below the worst of the old ones that reach the goal of the row, less a margin that does not reach below
the goal. If nothing has changed, the n runs of the row, of which m miss the goal, and k new ones are drawn alike, and each set of k among
the n + k is as probable to be the new ones. So all k are among the m + k worst with probability C(m + k, k) / C(n + k, k), whatever the
distribution. The test asks for as many as make this less than 1 in 1000: 4 beside 10 old runs that all reach the goal, 8 beside 5. The
margin makes it rarer. Usually the first new run is good, and ends the test.
"""

import dataclasses
import itertools
import math
import random
import re
import shlex
from datetime import date
from fractions import Fraction
from pathlib import Path

import pytest
from tiers import full, learning

from rlpyt.experiments import train
from rlpyt.experiments.results.pages import ENOUGH
from rlpyt.experiments.results.runs import read_runs
from rlpyt.experiments.results.table import OURS, Row, Run, Table, read_table

TABLE = read_table(Path(__file__).parents[1] / "docs" / "learning" / "results.json")
CHEAP = 90  # seconds of the fastest run of a row; those of the table were measured while other programs ran
CHANCE = 1e-3  # of failing without a reason
MARGIN = 0.05  # of the scale of a task


def cheap_rows(table):
    """The rows of rlpyt that a test can afford, with runs enough to compare with, and that a run without learning would not pass."""
    rows = [row for row in table.rows_of(OURS) if len(row.scores) >= ENOUGH and row.task in table.scales]
    rows = [row for row in rows if row.goal is not None and row.scores.max() >= row.goal]
    rows = [row for row in rows if lowest(row, table.scales) >= table.scales[row.task][0]]
    return [row for row in rows if min((run.seconds for run in row.runs if run.seconds is not None), default=math.inf) < CHEAP]


def draw(table, day):
    """The row of a day, and its first seed, which no one has tried."""
    rng = random.Random(day)
    return rng.choice(sorted(cheap_rows(table), key=lambda row: row.key)), rng.randrange(1_000, 1_000_000)


def goal_of(row):
    """The goal of a row; -inf without one."""
    return -math.inf if row.goal is None else row.goal


def lowest(row, scales):
    """The return below which a new run is conspicuous: never one below the goal."""
    low, high = scales[row.task]
    return max(float(row.scores[row.scores >= goal_of(row)].min()) - MARGIN * (high - low), goal_of(row))


def n_attempts(n_runs, n_below=0, chance=CHANCE):
    """How many new runs must all be conspicuous beside `n_runs` old ones, of which `n_below` are below the goal."""
    return next(k for k in itertools.count(1) if math.comb(n_runs + k, k) * chance > math.comb(n_below + k, k))


def attempts_of(row):
    """How many new runs of a row must all be conspicuous."""
    return n_attempts(len(row.scores), int((row.scores < goal_of(row)).sum()))


def scores_again(row, scales, score_of, seed):
    """Scores of new runs, until one is not conspicuous, or all attempts are made."""
    scores = [score_of(seed)]
    while scores[-1] < lowest(row, scales) and len(scores) < attempts_of(row):
        scores.append(score_of(seed + len(scores)))
    return scores


@full
@learning
@pytest.mark.timeout(1800)
def test_the_row_of_the_day_is_still_true(tmp_path, capsys):
    row, seed = draw(TABLE, date.today().isoformat())
    module, key, *options = shlex.split(row.command)[2:]
    settings = options[options.index("--set") + 1 :] if "--set" in options else []

    def score_of(seed):
        run_dir = train.build_and_train(module, key, log_dir=str(tmp_path), run_ID=seed, seed=seed, settings=settings)
        return read_runs([run_dir], TABLE).rows[row.key].scores[-1]

    scores = scores_again(row, TABLE.scales, score_of, seed)
    said = f"{row.command} --seed {seed} and the following: {', '.join(f'{score:.1f}' for score in scores)}"
    with capsys.disabled():
        print(f"\n{said}; at least {lowest(row, TABLE.scales):.1f} is expected")
    assert scores[-1] >= lowest(row, TABLE.scales), said


# ------------------------------------------------------------------------------------------------------------------
# Whether it can fail, and how seldom it does without a reason
# ------------------------------------------------------------------------------------------------------------------
ROW = Row("name", "Task", "PPO", 10, "", runs=[Run(seed, [10], [float(score)]) for seed, score in enumerate([30, 50, 40, 60, 70])])
SCALES = dict(Task=(0, 100))


@pytest.mark.parametrize("new, n", [([25.0], 1), ([24.9, 90.0], 2), ([24.9] * 20, 8)])
def test_new_runs_are_made_until_one_is_as_good_as_the_worst_of_the_row(new, n):
    scores = scores_again(ROW, SCALES, lambda seed: new[seed - 7], seed=7)
    assert scores == new[:n] and (scores[-1] >= lowest(ROW, SCALES)) == (n < 8)


@pytest.mark.parametrize("goal, at_least", [(None, 25), (20, 25), (28, 28), (30, 30), (35, 35), (50, 50), (70, 70)])
def test_the_band_does_not_reach_below_the_goal(goal, at_least):
    assert lowest(dataclasses.replace(ROW, goal=goal), SCALES) == at_least
    assert all(lowest(row, TABLE.scales) >= goal_of(row) for row in cheap_rows(TABLE))
    assert cheap_rows(Table({"name": dataclasses.replace(ROW, goal=71)}, SCALES)) == []


@pytest.mark.parametrize("goal, low, is_drawn", [(30, 0, True), (None, 0, False), (25, 24, True), (25, 30, False)])
def test_a_row_is_drawn_only_if_a_run_that_learns_nothing_would_fail(goal, low, is_drawn):
    row = dataclasses.replace(ROW, goal=goal, runs=[dataclasses.replace(run, seconds=1.0) for run in ROW.runs])
    assert cheap_rows(Table({"name": row}, dict(Task=(low, 100)))) == [row] * is_drawn
    assert all(lowest(row, TABLE.scales) >= TABLE.scales[row.task][0] for row in cheap_rows(TABLE))


@pytest.mark.parametrize("n, m, chance", [(1, 0, Fraction(1, 4)), (2, 0, Fraction(1, 10)), (3, 0, Fraction(1, 10)), (3, 1, Fraction(1, 4))])
def test_attempts_are_as_many_as_chance_asks_for(n, m, chance):
    def chance_of(k):
        orders = list(itertools.permutations(range(n + k)))  # All are equally probable.
        return Fraction(sum(max(order[n:]) < sorted(order[:n])[m] for order in orders), len(orders))

    k = n_attempts(n, m, chance)
    assert chance_of(k) < chance <= chance_of(k - 1)


def test_ten_runs_ask_for_four_attempts_and_for_more_if_some_miss_the_goal():
    assert [n_attempts(n) for n in (5, 10)] == [8, 4]
    assert attempts_of(ROW) == 8 and attempts_of(dataclasses.replace(ROW, goal=35)) == n_attempts(5, 1) > 8


def test_a_row_is_trained_again_each_day():
    workflow = (Path(__file__).parents[1] / ".github" / "workflows" / "checks.yml").read_text()
    assert re.search(r'schedule:\n +- cron: "\d+ \d+ \* \* \*"', workflow)


def test_the_row_of_a_day_is_cheap_and_a_year_draws_them_all():
    days = [date.fromordinal(date(2026, 1, 1).toordinal() + i).isoformat() for i in range(365)]
    assert {draw(TABLE, day)[0].key for day in days} == {row.key for row in cheap_rows(TABLE)} != set()
    assert draw(TABLE, days[0]) == draw(TABLE, days[0])
