"""Proposals: a function of what the journal says, so that a search that is launched again goes on as it would have."""

import pytest
from tiers import full

from rlpyt.utils.launching.journal import History
from rlpyt.utils.launching.proposals import OPTUNA_JOURNAL, default_method, make_proposals
from rlpyt.utils.launching.space import Space, choice, integer, log_uniform, uniform

SPACE = Space(dict(a=dict(x=uniform(0, 1), rate=log_uniform(1e-5, 1e-1), n=integer(1, 4)), kind=choice("p", None, [1, 2])))
RUNGS = [10, 30]


def history_of(proposals, n_trials, score=lambda x, *others: -((x - 0.3) ** 2), promote=lambda number: number % 3 == 0, fails=()):
    """A history of trials that have been proposed one after the other, and scored at once."""
    history = History(1, RUNGS, 3)
    history.apply(dict(event="launch", at=0.0, n_slots=1))
    for number in range(n_trials):
        add(history, proposals, score, promote(number), number in fails)
    return history


def add(history, proposals, score=lambda x, *others: x, promote=False, fails=False):
    number, values = len(history.trials), proposals.propose(history)
    history.apply(dict(event="trial", trial=number, values=values))
    proposals.note(history)
    for rung in range(1 + promote):
        if rung:
            history.apply(dict(event="promote", trial=number, rung=rung))
        outcome = dict(outcome="failed", error="ValueError") if fails else {"outcome": "reached", "return": score(*values) + rung}
        history.apply(dict(event="end", trial=number, rung=rung, run=0, at=0.0, steps=RUNGS[rung], **outcome))
        proposals.note(history)


@pytest.mark.parametrize("method", ["random", "optuna"])
def test_proposals_lie_in_the_space_and_are_the_same_for_the_same_history(method, tmp_path):
    if method == "optuna":
        pytest.importorskip("optuna")
    proposals = make_proposals(method, SPACE, 3, tmp_path)
    history = history_of(proposals, 14)
    for trial in history.trials:
        for range_, value in zip(SPACE.ranges.values(), trial.values):
            assert (
                0 <= range_.position(value) <= 1
                and range_.at(range_.position(value)) == pytest.approx(value)
                or value in (None, "p", [1, 2])
            )
    assert len({repr(trial.values) for trial in history.trials}) == 14
    (tmp_path / "other").mkdir()
    again = make_proposals(method, SPACE, 3, tmp_path / "other")
    assert again.propose(history) == proposals.propose(history) == proposals.propose(history)
    assert make_proposals(method, SPACE, 4, tmp_path / "other").propose(History(1, RUNGS, 3)) != history.trials[0].values


@pytest.mark.parametrize(
    "method, space, n",
    [
        *[(method, dict(n=choice(1, 2, 3), kind=choice("a", "b")), 6) for method in ("random", "optuna")],
        ("random", dict(n=integer(1, 40)), 40),
        pytest.param("optuna", dict(n=integer(1, 40)), 40, marks=full),
    ],
)
def test_settings_are_proposed_once(method, space, n, tmp_path):
    """Until there are no others. A search that is launched again proposes the same."""
    if method == "optuna":
        pytest.importorskip("optuna")
    space = Space(space)
    proposals = make_proposals(method, space, 0, tmp_path)
    history = History(1, RUNGS, 3)
    history.apply(dict(event="launch", at=0.0, n_slots=1))
    for _ in range(n):
        add(history, proposals)
    (tmp_path / "again").mkdir()
    again = History(1, RUNGS, 3)
    again.apply(dict(event="launch", at=0.0, n_slots=1))
    for _ in range(n):
        add(again, make_proposals(method, space, 0, tmp_path / "again"))
    assert [trial.values for trial in again.trials] == [trial.values for trial in history.trials]
    assert len({repr(trial.values) for trial in history.trials}) == n


def test_random_proposals_need_no_other_package_and_are_the_default_without_optuna(monkeypatch, tmp_path):
    monkeypatch.setattr("rlpyt.utils.launching.proposals.missing_modules", lambda extra: ["optuna"])
    assert default_method() == "random"
    monkeypatch.setitem(__import__("sys").modules, "optuna", None)
    with pytest.raises(ImportError, match="Proposals by Optuna need"):
        make_proposals("optuna", SPACE, 0, tmp_path)


def test_optuna_learns_from_scores(tmp_path):
    pytest.importorskip("optuna")
    history = history_of(make_proposals("optuna", SPACE, 0, tmp_path), 40)
    first, last = ([abs(trial.values[0] - 0.3) for trial in trials] for trials in (history.trials[:10], history.trials[-10:]))
    assert sum(last) < sum(first) / 2


def test_optuna_is_told_how_far_each_trial_has_come(tmp_path):
    """A trial that has paused is one that was pruned, with its scores by environment steps: without them it would count as the worst."""
    optuna = pytest.importorskip("optuna")
    proposals = make_proposals("optuna", SPACE, 0, tmp_path)
    history = history_of(proposals, 5, fails=[1])
    history.apply(dict(event="trial", trial=5, values=proposals.propose(history)))  # It is running.
    asked = []
    ask = optuna.Study.ask
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(optuna.Study, "ask", lambda study, *args: (asked.append(study.get_trials()), ask(study, *args))[1])
        proposals.propose(history)
    seen = asked[0]
    assert [each.state.name for each in seen] == ["COMPLETE", "PRUNED", "PRUNED", "COMPLETE", "PRUNED", "RUNNING"]
    scores = [{} if trial.error else dict(zip(RUNGS, trial.scores(1))) for trial in history.trials]
    assert [each.intermediate_values for each in seen] == scores and [len(each) for each in scores] == [2, 0, 1, 2, 1, 0]
    assert [each.value for each in seen if each.state.name == "COMPLETE"] == [scores[0][30], scores[3][30]]


@full
def test_optuna_learns_from_trials_that_have_paused(tmp_path):
    pytest.importorskip("optuna")
    history = history_of(make_proposals("optuna", SPACE, 0, tmp_path), 40, promote=lambda number: False)
    first, last = ([abs(trial.values[0] - 0.3) for trial in trials] for trials in (history.trials[:10], history.trials[-10:]))
    assert sum(last) < sum(first) / 2


def test_the_study_in_the_directory_tells_scores_and_ends(tmp_path):
    optuna = pytest.importorskip("optuna")
    proposals = make_proposals("optuna", SPACE, 0, tmp_path)
    history = history_of(proposals, 6, fails=[1])

    def trials():
        storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(tmp_path / OPTUNA_JOURNAL)))
        return optuna.load_study(study_name=tmp_path.name, storage=storage).trials

    there = trials()
    assert [each.state.name for each in there] == ["RUNNING", "FAIL"] + ["RUNNING"] * 4
    assert there[0].intermediate_values == dict(zip(RUNGS, history.trials[0].scores(1)))
    assert there[2].params == {"a.x": history.trials[2].values[0], "a.rate": history.trials[2].values[1], "a.n": there[2].params["a.n"],
                               "kind": there[2].params["kind"]}  # fmt: skip
    make_proposals("optuna", SPACE, 0, tmp_path).note(history)  # Launched again: nothing comes twice.
    assert len(trials()) == 6
    proposals = make_proposals("optuna", SPACE, 0, tmp_path)
    add(history, proposals)
    proposals.close(history)
    assert [each.state.name for each in trials()] == ["COMPLETE", "FAIL", "PRUNED", "COMPLETE", "PRUNED", "PRUNED", "PRUNED"]


def test_a_trial_that_goes_on_after_the_end_of_the_search_goes_on_in_the_study(tmp_path):
    optuna = pytest.importorskip("optuna")
    proposals = make_proposals("optuna", SPACE, 0, tmp_path)
    history = history_of(proposals, 3, promote=lambda number: False)
    proposals.close(history)
    proposals = make_proposals("optuna", SPACE, 0, tmp_path)  # Launched again, with more trials.
    add(history, proposals)
    history.apply(dict(event="promote", trial=1, rung=1))
    history.apply({"event": "end", "trial": 1, "rung": 1, "run": 0, "at": 0.0, "steps": 30, "outcome": "reached", "return": 7.0})
    history.apply(dict(event="promote", trial=2, rung=1))
    history.apply(dict(event="end", trial=2, rung=1, run=0, at=0.0, steps=30, outcome="failed", error="ValueError"))
    proposals.note(history)
    proposals.close(history)
    storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(tmp_path / OPTUNA_JOURNAL)))
    there = optuna.load_study(study_name=tmp_path.name, storage=storage).trials
    assert [each.state.name for each in there] == ["PRUNED", "COMPLETE", "FAIL", "PRUNED"]
    assert there[1].value == 7.0 and there[1].intermediate_values == dict(zip(RUNGS, history.trials[1].scores(1)))


@pytest.mark.parametrize(
    "damage", [lambda text: text[: len(text) // 2 + 3], lambda text: "{}\n" + text, lambda text: text + '{"op_code"', lambda text: ""]
)
def test_a_damaged_study_is_made_again_from_the_journal(tmp_path, damage):
    optuna = pytest.importorskip("optuna")
    history = history_of(make_proposals("optuna", SPACE, 0, tmp_path), 4)
    path = tmp_path / OPTUNA_JOURNAL
    path.write_text(damage(path.read_text()))
    (tmp_path / f"{OPTUNA_JOURNAL}.lock").touch()  # Of a launcher that was killed.
    proposals = make_proposals("optuna", SPACE, 0, tmp_path)
    proposals.note(history)
    add(history, proposals)
    storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(path)))
    assert [len(each.intermediate_values) for each in optuna.load_study(study_name=None, storage=storage).trials] == [2, 1, 1, 2, 1]
