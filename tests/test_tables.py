"""Tables of the pages are made from what was measured, and claim no more."""

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "tests" / "benchmarks"))

import common  # noqa: E402
import tables  # noqa: E402
from tables import Row, Table  # noqa: E402


def record(title, **rows):
    """Rows -> figures of a benchmark "qpg"; a figure is a median, or (low, median, high)."""

    def figure(value):
        low, middle, high = value if isinstance(value, tuple) else (None, value, None)
        return dict(median=middle) if low is None else dict(median=middle, low=low, high=high)

    told = {row: {name: figure(value) for name, value in figures.items()} for row, figures in rows.items()}
    entry = dict(when="2026-01-01", load="quiet", versions=dict(torch="2.13"), rows=told)
    return dict(format=1, title=title, processor=dict(model=title, cores=2, caches="L2 4 MiB"), benchmarks=dict(qpg=entry))


RECORDS = [
    record("A", sac=dict(to_sb3=(1.0, 1.25, 1.5), steps=1234.4), td3=dict(to_sb3=1.1)),
    record("B", sac=dict(to_sb3=1.7)),
    record("C", other=dict(to_sb3=1.0)),
]
ROWS = [Row("SAC", "sac", "to_sb3", steps=True), Row("TD3", "td3", "to_sb3"), Row("none", "none", "to_sb3")]


@pytest.mark.parametrize("page", tables.PAGES)
def test_pages_have_the_tables_of_what_was_measured(page):
    text = (ROOT / page).read_text()
    assert "<!-- table " in text
    assert tables.filled(text, tables.read_records()) == text, "python tests/benchmarks/tables.py --write"


def test_each_kind_of_processor_has_a_column_and_their_range_is_the_last():
    assert tables.written(Table("qpg", ROWS, "faster"), RECORDS).splitlines() == [
        "| faster | A | B | range of the medians |",
        "|---|---|---|---|",
        "| SAC | 1.25 (1.00 to 1.50), 1,234 steps/s | 1.70 | 1.25 to 1.70 |",
        "| TD3 | 1.10 | | |",
    ]


def test_what_was_measured_on_one_kind_of_processor_only_is_not_claimed():
    claims = Table("qpg", ROWS, "faster", is_claim=True)
    assert tables.written(claims, RECORDS).splitlines()[2:] == ["| SAC | 1.25 to 1.70 |"]
    assert "fewer than two kinds" in tables.written(claims, RECORDS[:1])


def test_pages_say_where_when_and_how_it_was_measured():
    text = tables.origins(RECORDS[:1])
    assert text.splitlines() == ["* **A**: A, 2 cores; caches: L2 4 MiB.", "    * qpg: 2026-01-01; load: quiet; torch 2.13."]


def test_benchmarks_tell_their_results(tmp_path, monkeypatch):
    path = tmp_path / "results"
    monkeypatch.setenv(common.JSON, str(path))
    common.tell("a row", steps=[3.0, 1.0, 2.0])
    common.tell("another", of_limit=[0.5])
    told = [json.loads(line) for line in path.read_text().splitlines()]
    assert told[0] == dict(row="a row", figures=dict(steps=dict(median=2.0, low=1.0, high=3.0, rounds=3)))
    assert [each["row"] for each in told] == ["a row", "another"]


def test_new_figures_replace_the_old_ones_of_this_kind_of_processor_and_leave_others(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "kind_of_processor", lambda: ("a", "A"))
    monkeypatch.setattr(tables, "describe_processor", lambda: dict(model="A", cores=2, caches=""))
    (tmp_path / "a.json").write_text(json.dumps(RECORDS[0]))
    tables.add(dict(qpg=dict(when="now", rows=dict(sac=dict(steps=dict(median=7)))), load=dict(rows=dict(x={}))), tmp_path)
    (kept,) = tables.read_records(tmp_path)
    before = RECORDS[0]["benchmarks"]["qpg"]["rows"]
    day = dict(when=RECORDS[0]["benchmarks"]["qpg"]["when"])
    earlier = {row: {name: dict(figure, **day) for name, figure in figures.items()} for row, figures in before.items()}
    rows = dict(sac=dict(to_sb3=earlier["sac"]["to_sb3"], steps=dict(median=7)), td3=earlier["td3"])
    assert kept["title"] == "A" and kept["benchmarks"] == dict(qpg=dict(when="now", rows=rows), load=dict(rows=dict(x={})))
    assert f"now; some figures are of {day['when']}" in tables.origins([kept])


def test_all_figures_that_were_measured_have_a_known_benchmark():
    for kept in tables.read_records():
        assert set(kept["benchmarks"]) <= set(tables.BENCHMARKS) and kept["format"] == tables.FORMAT
    assert all((ROOT / "tests" / "benchmarks" / each.script).exists() for each in tables.BENCHMARKS.values())
    assert {each.benchmark for each in tables.TABLES.values()} <= set(tables.BENCHMARKS)


def test_what_has_no_table_is_in_a_common_one():
    more = record("D")
    more["benchmarks"]["frames"] = dict(rows={"batch 32": {"of memcpy": dict(median=1.2, low=1.1, high=1.3)}})
    assert tables.others([RECORDS[0], more]).splitlines()[0::2] == ["| | D |", "| batch 32: of memcpy | 1.20 (1.10 to 1.30) |"]
    assert "No other" in tables.others(RECORDS)
