"""Searches are possible, and studies whose settings fail to train are no less bad for that."""

import sys
from pathlib import Path

import pytest
from tiers import full

from rlpyt.cli import main
from rlpyt.experiments import tune

sys.path.append(str(Path(__file__).parent / "benchmarks"))
pytest.importorskip("psutil")

import bench_tune  # noqa: E402


def study(who, *scores, task="cartpole_ppo"):
    return dict(who=who, task=task, seed=0, scores=list(scores), seconds=300, trials=10)


@pytest.mark.parametrize("task", bench_tune.TASKS)
def test_each_search_would_be_launched(task, tmp_path, monkeypatch):
    launched = {}
    monkeypatch.setattr(tune, "run_search", lambda **kwargs: launched.update(kwargs))
    command = bench_tune.search_of_ours(task, 0, bench_tune.TASKS[task]["steps"], tmp_path / "search")
    assert main(command[3:]) == 0  # But for the Python, -m and rlpyt.
    assert launched["max_steps"] == bench_tune.TASKS[task]["steps"]


@full
def test_a_search_that_fails_says_why(tmp_path):
    with pytest.raises(RuntimeError, match="has no configuration 'nothing'"):
        bench_tune.run_for(bench_tune.rlpyt("tune", "cartpole", "nothing"), 100, tmp_path / "log.txt")


@pytest.mark.parametrize("scores, expected", [((400, 500), 450), ((400, None), 200), ((None,), 0), ((), 0)])
def test_a_failed_training_counts_as_the_worst_return(scores, expected):
    assert bench_tune.score_of(study(bench_tune.OURS, *scores), worst=0) == expected


def test_studies_that_found_nothing_that_trains_count_in_the_summary(capsys):
    ours = [study(bench_tune.OURS, 500) for _ in range(2)] + [study(bench_tune.OURS, None), study(bench_tune.OURS)]
    theirs = [study(bench_tune.THEIRS, 400) for _ in range(4)]
    bench_tune.summary("cartpole_ppo", ours + theirs)
    _, _, mine, others, compared = capsys.readouterr().out.splitlines()
    assert " 250.0 (" in mine and "2 of 4 failed to train and count as the worst" in mine
    assert " 400.0 (" in others and "failed" not in others
    assert "probability 0.50" in compared


def test_no_return_of_a_task_is_below_its_worst(capsys):
    studies = [study(bench_tune.THEIRS, -1600, task="pendulum_sac"), study(bench_tune.THEIRS, task="pendulum_sac")]
    bench_tune.summary("pendulum_sac", studies)
    assert "-2427.5" in capsys.readouterr().out


def test_the_summary_tells_what_resuming_saved(capsys):
    costs = dict(busy_share=0.96, steps_taken=60, steps_if_restarting=80)
    without_a_run = dict(busy_share=None, steps_taken=0, steps_if_restarting=0)
    bench_tune.summary("cartpole_ppo", [study(bench_tune.OURS, 500) | costs | more for more in ({}, dict(steps_taken=20), without_a_run)])
    out = capsys.readouterr().out
    assert "slots busy 96% to 96% of the time" in out and "80 environment steps, 25% to 75% fewer than" in out
