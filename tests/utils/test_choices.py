"""Choices between equal computations: how they are measured, and how a machine's file keeps them. Clocks are pretended."""

import json
import multiprocessing
import os
from contextlib import contextmanager
from pathlib import Path

import pytest

from rlpyt.utils import choices
from rlpyt.utils.choices import MARGIN, ROUNDS, Comparison, adopt, chosen, compare, current, settle, trying


class Pretended:
    """A clock, and computations that take as long as a script says: milliseconds per call of each alternative, the last again and again."""

    def __init__(self, **milliseconds):
        self.now, self.using, self.n_calls = 0.0, None, 0
        self.script = {name: iter(times) if isinstance(times, list) else None for name, times in milliseconds.items()}
        self.last = {name: None if isinstance(times, list) else times for name, times in milliseconds.items()}

    def clock(self):
        return self.now

    def compute(self):
        times = self.script[self.using]
        self.last[self.using] = self.last[self.using] if times is None else next(times, self.last[self.using])
        self.now += 1e-3 * self.last[self.using]
        self.n_calls += 1

    @contextmanager
    def use(self, answer):
        before, self.using = self.using, answer
        yield
        self.using = before

    def comparison(self, *question, alternatives=("a", "b"), conditions=""):
        return Comparison(question or ("q", 1), alternatives, self.prepare, self.use, conditions)

    def prepare(self):
        return self.compute

    def compare(self, seconds=1.0, **kwargs):
        return compare(self.comparison(**kwargs), seconds, self.clock)


@pytest.fixture(autouse=True)
def nothing_is_chosen():
    before = current()
    adopt({})
    yield
    adopt(before)


# --- Measuring --------------------------------------------------------------------------------------------------------
def test_what_is_faster_in_every_round_is_chosen():
    verdict = Pretended(a=2.0, b=1.0).compare()
    assert verdict.answer == "b" and "2.00 to 2.00 times as fast as a" in verdict.why


@pytest.mark.parametrize("ratio, answer", [(MARGIN + 0.01, "b"), (MARGIN - 0.01, "a"), (1.0, "a"), (0.5, "a")])
def test_the_default_stays_unless_another_is_faster_by_the_margin(ratio, answer):
    assert Pretended(a=ratio, b=1.0).compare().answer == answer


def test_the_default_stays_if_another_is_not_faster_in_one_of_the_rounds():
    one_call_per_round = dict(seconds=6e-3 + ROUNDS * 4e-3 / (1 - choices._SPARE))
    slow_once = [1.0] * 4 + [2.0] + [1.0] * 9
    assert Pretended(a=2.0, b=slow_once).compare(**one_call_per_round).answer == "a"
    assert Pretended(a=2.0, b=[1.0] * 14).compare(**one_call_per_round).answer == "b"


def test_outliers_within_a_round_do_not_count():
    outliers = ([1.0] * 6 + [4.0]) * 100
    assert Pretended(a=2.0, b=outliers).compare(seconds=1.0).answer == "b"


def test_of_several_the_fastest_is_chosen():
    assert Pretended(a=4.0, b=2.0, c=1.0, d=3.0).compare(alternatives=("a", "b", "c", "d")).answer == "c"


def test_measuring_takes_no_longer_than_it_may():
    pretended = Pretended(a=2.0, b=1.0)
    pretended.compare(seconds=0.1)
    assert pretended.now <= 0.1 and pretended.n_calls > 2 * ROUNDS


def test_what_takes_too_long_is_not_measured():
    pretended = Pretended(a=200.0, b=100.0)
    verdict = pretended.compare(seconds=0.3)
    assert verdict.answer == "a" and pretended.n_calls == 2 and "did not suffice" in verdict.why
    assert Pretended(a=20.0, b=10.0).compare(seconds=0.1).answer == "a"


def test_measuring_ends_if_calls_suddenly_take_longer():
    pretended = Pretended(a=1.0, b=[0.5] * 10 + [60.0])
    assert pretended.compare(seconds=0.1).answer == "a" and pretended.now < 0.2


def test_nothing_begins_without_time():
    pretended = Pretended(a=2.0, b=1.0)
    assert pretended.compare(seconds=0.0).answer == "a" == pretended.compare(seconds=-1.0).answer and pretended.n_calls == 0


# --- The file ---------------------------------------------------------------------------------------------------------
def settled(tmp_path, pretended, *questions, machine="a machine", **kwargs):
    comparisons = [pretended.comparison(*question, **kwargs) for question in questions or [("q", 1)]]
    return settle(comparisons, machine, tmp_path, clock=pretended.clock)


def test_answers_are_kept_and_repeated_whatever_would_be_measured_later(tmp_path):
    first = settled(tmp_path, Pretended(a=2.0, b=1.0))
    later = Pretended(a=1.0, b=2.0)
    again = settled(tmp_path, later)
    assert first.answers == again.answers == {"q 1": "b"} and later.n_calls == 0
    assert "kept in" in again.lines["q 1"] and "kept in" not in first.lines["q 1"]


def test_so_are_answers_that_remained_the_default(tmp_path):
    settled(tmp_path, Pretended(a=500.0, b=1.0))
    assert settled(tmp_path, Pretended(a=2.0, b=1.0)).answers == {"q 1": "a"}


def test_other_sizes_conditions_alternatives_and_machines_are_measured_anew(tmp_path):
    settled(tmp_path, Pretended(a=2.0, b=1.0))
    faster = dict(a=1.0, b=2.0)
    assert settled(tmp_path, Pretended(**faster), ("q", 2)).answers == {"q 2": "a"}
    assert settled(tmp_path, Pretended(**faster), conditions="2 threads").answers == {"q 1": "a"}
    assert settled(tmp_path, Pretended(**faster, c=3.0), alternatives=("a", "b", "c")).answers == {"q 1": "a"}
    assert settled(tmp_path, Pretended(**faster), machine="another").answers == {"q 1": "a"}
    assert settled(tmp_path, Pretended(**faster)).answers == {"q 1": "b"}, "the first answer stays"


def test_all_questions_of_a_run_share_the_time(tmp_path):
    pretended = Pretended(a=2.0, b=1.0)
    result = settled(tmp_path, pretended, *[("q", i) for i in range(40)])
    assert pretended.now < 1.1 * choices.BUDGET and len(result.answers) == 40


@pytest.mark.parametrize(
    "content",
    [b"", b"\xff\xfe", b"{", b"[]", b'{"format": 1}', b'{"format": 99, "machine": "a machine", "answers": {}}', "answers", "answer"],
)
def test_a_damaged_file_is_measured_anew_and_replaced(content, tmp_path):
    settled(tmp_path, Pretended(a=2.0, b=1.0))
    (path,) = tmp_path.glob("*.json")
    good = json.loads(path.read_text())
    if content == "answers":
        content = json.dumps(dict(good, answers=[1])).encode()
    elif content == "answer":
        content = json.dumps(dict(good, answers={key: dict(answer="z", why="?") for key in good["answers"]})).encode()
    path.write_bytes(content)
    assert settled(tmp_path, Pretended(a=2.0, b=1.0)).answers == {"q 1": "b"}
    assert json.loads(path.read_text())["answers"] == good["answers"]


def test_where_nothing_can_be_kept_nothing_is_measured(tmp_path):
    (tmp_path / "a file").write_text("")
    pretended = Pretended(a=2.0, b=1.0)
    result = settled(tmp_path / "a file", pretended)
    assert result.answers == {"q 1": "a"} and pretended.n_calls == 0 and "cannot hold" in result.lines["q 1"]


@pytest.mark.parametrize("keeps_defaults, later", [(True, "a"), (False, "b")])
def test_what_cannot_be_measured_now_is_the_default(keeps_defaults, later, tmp_path):
    pretended = Pretended(a=2.0, b=1.0)
    kwargs = dict(obstacle=lambda: "too busy", keeps_defaults=keeps_defaults)
    result = settle([pretended.comparison()], "a machine", tmp_path, clock=pretended.clock, **kwargs)
    assert result.answers == {"q 1": "a"} and "too busy" in result.lines["q 1"] and pretended.n_calls == 0
    assert ("is deleted: then later runs measure" in result.lines["q 1"]) == keeps_defaults
    assert settled(tmp_path, pretended).answers == {"q 1": later}


def test_an_alternative_that_raises_is_not_chosen(tmp_path):
    pretended = Pretended(a=2.0, b=1.0)

    def compute():
        if pretended.using == "b":
            raise RuntimeError("not on this machine")

    result = settle([pretended.comparison()._replace(prepare=lambda: compute)], "a machine", tmp_path)
    assert result.answers == {"q 1": "a"} and "not on this machine" in result.lines["q 1"]


@pytest.mark.processes
def test_of_two_processes_one_measures_and_the_other_reads(tmp_path):
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    processes = [context.Process(target=_settle_in_process, args=(tmp_path, i, results)) for i in range(2)]
    for process in processes:
        process.start()
    answers = [results.get(timeout=30) for _ in processes]
    for process in processes:
        process.join(30)
    assert sorted(n_calls > 0 for _, n_calls in answers) == [False, True]
    assert len({answer for answer, _ in answers}) == 1, "although their clocks disagree"


def _settle_in_process(tmp_path, i, results):
    pretended = Pretended(a=2.0 - i, b=1.0 + i)
    results.put((settled(tmp_path, pretended).answers["q 1"], pretended.n_calls))


def test_files_are_in_the_users_directory_of_caches(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert choices.cache_directory() == tmp_path / "rlpyt" / "choices"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert choices.cache_directory() == Path(os.path.expanduser("~/.cache")) / "rlpyt" / "choices"


# --- What is chosen ---------------------------------------------------------------------------------------------------
def test_answers_are_adopted_and_returned_as_data():
    assert chosen(("linear", 256, 17, 6)) is None
    answers = {"linear 256 17 6": "onednn", "threads": 2}
    adopt(answers)
    assert chosen(("linear", 256, 17, 6)) == "onednn" and chosen(("threads",)) == 2 and current() == answers
    with trying(("threads",), 1):
        assert chosen(("threads",)) == 1
    assert current() == answers
    adopt({})
    assert current() == {}


@pytest.mark.parametrize("value", [None, [], {"threads": 0}, {"threads": True}, {"threads": 1.5}, {"x": None}, {1: "a"}])
def test_only_words_and_numbers_are_answers(value):
    assert not choices.are_answers(value)


def test_whether_runs_measure_can_be_said_for_all(monkeypatch):
    monkeypatch.delenv("RLPYT_CALIBRATE")
    assert choices.is_calibrated()
    monkeypatch.setenv("RLPYT_CALIBRATE", "0")
    assert not choices.is_calibrated()
    for on in (True, False):
        choices.set_calibration(on)
        assert choices.is_calibrated() is on
    choices.set_calibration(None)
    assert not choices.is_calibrated()


def test_who_waits_for_models_is_called_once():
    calls = []
    with choices.once_models_exist(calls.append):
        choices.models_exist("agent")
        choices.models_exist("again")
    with choices.once_models_exist(calls.append):
        pass
    choices.models_exist("late")
    assert calls == ["agent"]
