"""rlpyt tune, and what the other commands say about a search."""

import json

import pytest

from rlpyt.utils.launching.search_dir import Search
from rlpyt.utils.launching.space import Space, choice, log_uniform


@pytest.fixture
def search_dir(tmp_path):
    """The directory of a search with five trials of two runs: trial 4 has failed, trial 1 has reached the last rung, trial 3 is running."""
    exp_dir = tmp_path / "my_search"
    exp_dir.mkdir()
    space = Space(dict(algo=dict(learning_rate=log_uniform(1e-4, 1e-2), epochs=choice(4, 10))))
    settings = dict(script="train.py", affinity_code="2cpu", space=space.as_saved(), n_trials=9, rungs=[100, 300], eta=3, runs_per_trial=2)
    settings.update(
        common_args=[], seed=0, proposals="random", set_egl_device=False, cwd="/", train_command=["rlpyt", "train", "a", "b", "--set"]
    )
    (exp_dir / "search.json").write_text(json.dumps(settings))
    events = [dict(event="launch", at=0.0, n_slots=2)]
    for trial, values in enumerate([[1e-4, 4], [1e-3, 10], [1e-2, 4], [2e-3, 10], [5e-3, 10]]):
        events.append(dict(event="trial", trial=trial, values=values))
        for run in range(2 if trial < 3 else 1):
            events.append(dict(event="begin", trial=trial, rung=0, run=run, slot=run, at=10.0 * trial))
            if trial < 3:
                events.append(end(trial, 0, run, 10.0 * trial + 10, 100, [5.0, 30.0, 1.0][trial] + run))
    events.append(dict(end(4, 0, 0, 45.0, None, None), outcome="failed", error="ValueError: \x1b[31mtoo high"))
    events.append(dict(event="promote", trial=1, rung=1))
    events += [dict(event="begin", trial=1, rung=1, run=run, slot=run, at=45.0) for run in range(2)]
    events += [end(1, 1, run, 60.0, 300, 70.0) for run in range(2)]
    (exp_dir / "search.jsonl").write_text("".join(f"{json.dumps(event)}\n" for event in events) + '{"event": "beg')  # It is being written.
    return exp_dir


def end(trial, rung, run, at, steps, return_):
    return {"event": "end", "trial": trial, "rung": rung, "run": run, "at": at, "outcome": "reached", "steps": steps, "return": return_}


def test_status_shows_rungs_the_best_trials_and_what_it_cost(rlpyt, search_dir):
    code, out, err = rlpyt("status", search_dir)
    assert (code, err) == (0, "")
    lines = [line.split() for line in out.splitlines()]
    assert ["0", "100", "3", "1", "30.5"] in lines and ["1", "300", "1", "70"] in lines
    assert ["trial_1", "300", "70", "0.001", "10"] in lines and ["trial_0", "100", "5.5", "0.0001", "4"] in lines
    assert "failed: trial_4: ValueError: " in out and "too high" in out and "\x1b" not in out
    assert "5 of 9 trials begun, 1,000 environment steps. Restarting promoted trials would take 1,200: 17% saved." in out
    assert out.rstrip().endswith("rlpyt train a b --set algo.learning_rate=0.001 algo.epochs=10")


def with_trials(search_dir, n_trials):
    """Write a journal of trials with one run: those with 10 epochs fail, some of them after the first rung; one has no return."""
    settings = json.loads((search_dir / "search.json").read_text())
    (search_dir / "search.json").write_text(json.dumps(dict(settings, n_trials=12, runs_per_trial=1)))
    events = [dict(event="launch", at=0.0, n_slots=1)]
    for trial in range(n_trials):
        events.append(dict(event="trial", trial=trial, values=[1e-4 * (1 + 7 * trial % 11), (4, 10)[trial % 2]]))
        events.append(dict(event="begin", trial=trial, rung=0, run=0, slot=0, at=float(trial)))
        reached = end(trial, 0, 0, trial + 0.5, 100, None if trial == 5 else 10.0 + trial)
        events.append(reached if trial % 2 == 0 or trial == 5 else dict(reached, outcome="failed", error="ValueError"))
    events.append(dict(event="trial", trial=n_trials, values=[1e-2, 4]))  # It is running.
    (search_dir / "search.jsonl").write_text("".join(f"{json.dumps(event)}\n" for event in events))


def test_importance_counts_failed_trials_and_those_without_a_return_as_the_worst(rlpyt, search_dir):
    with_trials(search_dir, 10)
    found = json.loads(rlpyt("status", search_dir, "--json")[1])["search"]["importance"]
    ranks = [2 if trial % 2 else 5 + trial / 2 for trial in range(10)]  # By hand: the five worst share the ranks 0 to 4.
    variance = sum((rank - 4.5) ** 2 for rank in ranks) / 9
    assert found["algo.epochs"] == pytest.approx(1 - (10 / 8) / variance) and list(found) == ["algo.epochs", "algo.learning_rate"]
    assert f"alone): algo.epochs {found['algo.epochs']:.2f}" in rlpyt("status", search_dir)[1]


def test_importance_of_fewer_than_ten_trials_is_said_to_be_noise(rlpyt, search_dir, tmp_path, monkeypatch):
    with_trials(search_dir, 9)
    assert set(json.loads(rlpyt("status", search_dir, "--json")[1])["search"]["importance"].values()) == {None}
    _, out, _ = rlpyt("status", search_dir)
    assert "Importance: 9 trials at the first rung, failed ones included, would tell only noise; 10 are needed." in out
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure

    saved = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *args, **kwargs: saved.append(figure))
    assert rlpyt("plot", search_dir, "--out", tmp_path / "picture.png")[0] == 0
    assert saved[0].axes[2].get_title() == "importance: unknown, it takes 10 trials and different scores"


def test_status_as_json_has_the_search_and_its_runs(rlpyt, search_dir):
    code, out, _ = rlpyt("status", search_dir, "--json")
    told = json.loads(out)["search"]
    assert code == 0 and told["best"] == 1 and told["trials"][4]["error"] and told["trials"][1]["scores"] == [30.5, 70.0]
    assert told["steps_taken"] == 1000 and told["steps_if_restarting"] == 1200


def test_the_busy_share_is_the_time_that_slots_had_runs(search_dir):
    """By hand: trials 0 to 2 keep two slots busy until 30, trial 3 one from 30, trial 4 one from 40 to 45, then trial 1 two until 60."""
    history = Search(search_dir).history
    assert history.busy_share() == pytest.approx((60 + 30 + 5 + 30) / 120)
    assert history.busy_share(until_last_begin=True) == pytest.approx((60 + 15 + 5) / 90)


@pytest.mark.parametrize("ends, said", [([], "Slots were busy 100% of all"), ([8.0], "Slots were busy 96% of the time until the last run")])
def test_how_busy_slots_were_until_the_last_run_is_told_when_one_has_had_a_second_run(rlpyt, search_dir, ends, said):
    """Before that, it would be the time that the first starts took."""
    events = [dict(event="launch", at=0.0, n_slots=2)]
    for trial, at in enumerate([0.1, 0.3, 8.3][: 2 + len(ends)]):
        events += [end(trial - 2, 0, 0, ends[trial - 2], 100, 1.0)] if trial >= 2 else []
        events.append(dict(event="trial", trial=trial, values=[1e-3, 4]))
        events.append(dict(event="begin", trial=trial, rung=0, run=0, slot=trial % 2, at=at))
    events.append(dict(end(1, 0, 0, 60.0, None, None), outcome="interrupted"))
    (search_dir / "search.jsonl").write_text("".join(f"{json.dumps(event)}\n" for event in events))
    _, out, _ = rlpyt("status", search_dir)
    told = json.loads(rlpyt("status", search_dir, "--json")[1])["search"]
    assert said in out and (told["busy_share_until_last_begin"] is None) == (not ends) and told["busy_share"] > 0.8


def test_plot_draws_a_search(rlpyt, search_dir, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure

    saved = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *args, **kwargs: saved.append(figure))
    code, out, err = rlpyt("plot", search_dir, "--out", tmp_path / "picture.png")
    assert (code, err) == (0, "") and out.strip() == str(tmp_path / "picture.png")
    rungs, best, importance, parallel = saved[0].axes
    assert [list(line.get_ydata()) for line in rungs.lines][-1] == [30.5, 70.0] and len(rungs.lines) == 3
    assert list(best.lines[0].get_ydata()) == [5.5, 30.5, 70.0, 70.0]
    assert [text.get_text() for text in importance.get_yticklabels()] == ["algo.epochs", "algo.learning_rate"]  # from below
    failed, *scored = (list(line.get_ydata()) for line in parallel.lines)  # Trial 3 is still running.
    assert len(scored) == 3 and scored[-1] == [pytest.approx(0.5), 1.0, 1.0]
    assert failed == [pytest.approx(0.85, abs=0.01), 1.0, 0.0] and "failed or without return in grey" in parallel.get_title()


@pytest.mark.parametrize(
    "last_event, curve",
    [
        (end(1, 1, 1, 60.0, 300, 10.0), [5.5, 30.5, 20.0, 20.0]),
        (end(1, 1, 1, 60.0, 300, None), [5.5, 5.5]),
        (dict(end(1, 1, 1, 60.0, 300, None), outcome="failed", error="ValueError"), [5.5, 5.5]),
    ],
)
def test_the_picture_and_the_table_have_the_same_best_trial(rlpyt, search_dir, tmp_path, monkeypatch, last_event, curve):
    """Trial 1 is the best at the first rung; at the last one it scores less, has no return, or fails."""
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure

    lines = (search_dir / "search.jsonl").read_text().splitlines()[:-2]
    lines[-1] = json.dumps(end(1, 1, 0, 60.0, 300, 30.0))
    (search_dir / "search.jsonl").write_text("".join(f"{line}\n" for line in [*lines, json.dumps(last_event)]))
    saved = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *args, **kwargs: saved.append(figure))
    assert rlpyt("plot", search_dir, "--out", tmp_path / "picture.png")[0] == 0
    search = Search(search_dir)
    drawn = list(saved[0].axes[1].lines[0].get_ydata())
    assert drawn == curve and drawn[-1] == search.score(search.best)


@pytest.mark.parametrize("words", [["--iqm"], ["--group-by", "learning_rate"], ["--x", "CumTime"], ["--group-by", "directory"]])
def test_plot_draws_learning_curves_of_a_search_with_an_option_of_them(rlpyt, search_dir, words):
    pytest.importorskip("matplotlib")
    code, _, err = rlpyt("plot", search_dir, *words)  # Its runs have no logs here.
    assert code == 2 and "There is no run in" in err


def test_nothing_can_be_drawn_before_the_first_score(rlpyt, search_dir):
    pytest.importorskip("matplotlib")
    (search_dir / "search.jsonl").write_text("")
    code, _, err = rlpyt("plot", search_dir)
    assert code == 2 and "No trial of" in err and "has a score yet" in err


@pytest.mark.parametrize(
    "words, message",
    [
        (["cartpole"], "rlpyt tune: give module and key of one configuration, not cartpole. (rlpyt train lists them.)"),
        (["cartpole", "ppo", "more"], "give module and key of one configuration, not cartpole ppo more"),
        (["cartpole", "pp"], "cartpole has no configuration 'pp'. Did you mean 'ppo'"),
        (["cartpole", "ppo", "--sampler", "seriel"], "Did you mean 'serial'"),
        (["cartpole", "ppo"], "The search space has no range"),
        (["cartpole", "ppo", "--set", "algo.learning_rate=log_uniform(1e-4,1e-2"], "'log_uniform(1e-4,1e-2' is no range"),
        (["cartpole", "ppo", "--set", "algo.learning_rat=uniform(0,1)"], "Did you mean 'learning_rate'"),
    ],
)
def test_wrong_commands_say_what_to_write(rlpyt, tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    code, _, err = rlpyt("tune", *words, "--log_dir", tmp_path / "exp")
    assert code == 2 and message in err and not (tmp_path / "exp").exists()


@pytest.mark.parametrize(
    "option, text, message",
    [
        ("--trials", "0", "argument --trials: must be an integer of at least 1, not '0'."),
        ("--runs", "0", "argument --runs: must be an integer of at least 1, not '0'."),
        ("--runs", "x", "argument --runs: must be an integer of at least 1, not 'x'."),
        ("--seed", "-1", "argument --seed: must be an integer of at least 0, not '-1'."),
        ("--eta", "1", "argument --eta: must be a number of at least 2 and at most 1000, not '1'."),
        ("--eta", "nan", "argument --eta: must be a number of at least 2 and at most 1000, not 'nan'."),
        ("--min_steps", "0", "argument --min_steps: must be a number of at least 1, not '0'."),
        ("--min_steps", "inf", "argument --min_steps: must be a number of at least 1, not 'inf'."),
        ("--min_steps", "1e9", "min_steps=1,000,000,000, of the first rung, must be at most runner.n_steps=100,000, of the last one."),
    ],
)
def test_numbers_that_are_not_possible_are_refused_by_the_names_of_their_options(rlpyt, tmp_path, option, text, message):
    words = ["cartpole", "ppo", "--set", "algo.learning_rate=uniform(1e-3,1e-2)", "--log_dir", tmp_path / "exp"]
    code, _, err = rlpyt("tune", *words, option, text)
    assert code == 2 and message in err and not (tmp_path / "exp").exists()


@pytest.mark.parametrize("below", [(), ("below",)])
def test_a_file_in_place_of_the_directory_is_refused(rlpyt, tmp_path, below):
    (tmp_path / "best.json").touch()
    place = tmp_path.joinpath("best.json", *below)
    words = ["--set", "algo.learning_rate=uniform(1e-3,1e-2)", "--proposals", "random"]
    code, _, err = rlpyt("tune", "cartpole", "ppo", *words, "--log_dir", place)
    assert code == 2 and f"{place} cannot be made (it, or what it should be in, is a file): give the search another one." in err
    assert "Errno" not in err
