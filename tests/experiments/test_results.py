"""The page of results is what its table says, and a table is what its runs say."""

import csv
import itertools
import json
import os
import random
import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from rlpyt.experiments import configs
from rlpyt.experiments.results import pages
from rlpyt.experiments.results.runs import changes_of, read_runs
from rlpyt.experiments.results.table import Row, Run, Table, read_table, write_table
from rlpyt.experiments.train import build_runner
from rlpyt.utils.launching.status import identity, mark
from rlpyt.utils.logging.logger import log_variant

DOCS = Path(__file__).parents[2] / "docs"


def run_of(seed, *returns, n_steps=100, **kwargs):
    """A complete run of `n_steps`."""
    return Run(seed, [n_steps * (i + 1) // len(returns) for i in range(len(returns))], list(returns), **kwargs)


def row_of(name, *scores, task="Task", algorithm="PPO", library="rlpyt", n_steps=100):
    runs = [run_of(seed, 0.0, float(score), n_steps=n_steps) for seed, score in enumerate(scores)]
    return Row(name, task, algorithm, n_steps, f"rlpyt train {name}", library, runs=runs)


def table_of(*rows, **scales):
    return Table({row.key: row for row in rows}, scales)


def cells(text, first):
    """The cells of the line that begins with these cells."""
    for line in text.splitlines():
        found = [cell.strip() for cell in line.strip("|").split("|")]
        if found[: len(first)] == list(first):
            return found
    raise AssertionError(f"no line begins with {first}:\n{text}")


def write_run(run_dir, returns, params=None, seconds=1.5, step=50_000):
    run_dir.mkdir(parents=True)
    with open(run_dir / "progress.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["Diagnostics/CumSteps", "ReturnAverage", "Diagnostics/CumTime (s)"])
        writer.writerows([i * step, value, seconds * i] for i, value in enumerate(returns))
    (run_dir / "params.json").write_text(json.dumps(params or {}))
    return run_dir


def params_of(configuration="cartpole:ppo", seed=0, n_steps=100_000, **changes):
    module, key = configuration.split(":")
    sections = configs.variant(configs.load(module).configs[key], **changes)
    record = dict(seed=seed, n_steps=n_steps, githash="0123456789abcdef", python="3.11", packages=dict(rlpyt="1", torch="2"))
    return json.loads(json.dumps(dict(sections, configuration=configuration, seed=seed, name="run", run_ID=seed, rlpyt=record)))


# --- The page ---------------------------------------------------------------------------------------------------------
def test_the_page_is_what_the_command_makes_of_the_table():
    page = (DOCS / "learning.md").read_text()
    table = read_table(DOCS / "learning" / "results.json")
    assert pages.filled(page, table) == page, "rlpyt results"
    assert all(f"<!-- table {name} -->" in page for name in pages.SECTIONS)


def test_the_published_table_has_the_configurations_with_all_their_steps():
    table = read_table(DOCS / "learning" / "results.json")
    for row in table.rows.values():
        module, key = row.name.split()[0].split(":")
        n_steps = re.search(r" runner\.n_steps=(\S+)", row.name)
        assert row.n_steps == float(n_steps[1] if n_steps else configs.load(module).configs[key]["runner"]["n_steps"]), row.key
        assert row.runs and all(run.steps for run in row.runs), row.key
        assert row.task in table.scales
        assert row.library != "rlpyt" or row.command.startswith(f"rlpyt train {module} {key}")


def test_a_table_is_read_as_it_was_written(tmp_path):
    made = dict(commit="abc", torch="2")
    row = row_of("cartpole:ppo", 1, 2.5)
    row.goal, row.reference, row.runs[1].made, row.runs[1].seconds = 475, "500", made, 3.5
    row.put(Run(2, [50], [3.0], end=100))
    table = table_of(row, row_of("a", 1, library="other"), Task=(0, 1))
    write_table(table, tmp_path / "results.json")
    assert read_table(tmp_path / "results.json") == table


def test_the_commands_of_the_documentations_table_make_their_runs():
    """Also of rows whose settings are entries of dictionaries."""
    rows = read_table(DOCS / "learning" / "results.json").rows.values()
    commands = [shlex.split(row.command) for row in rows if row.command.startswith("rlpyt train ")]
    assert len(commands) > 40
    for _, _, module, key, *options in commands:
        settings = options[options.index("--set") + 1 :] if "--set" in options else []
        build_runner(module, key, None, settings=settings)  # It raises if a setting is not possible.


def test_a_table_without_its_curves_says_that_it_is_two_files(tmp_path):
    write_table(table_of(row_of("a", 1)), tmp_path / "results.json")
    (tmp_path / "curves.csv").unlink()
    with pytest.raises(FileNotFoundError, match="curves.csv is missing: a table is two files"):
        read_table(tmp_path / "results.json")


@pytest.mark.parametrize("contents", ["[]", "{}", '{"format": 99}', "no JSON", '{"format": 1, "scales": {}, "rows": [{}], "origins": []}'])
def test_what_is_no_table_is_refused_by_name(contents, tmp_path):
    path = tmp_path / "results.json"
    path.write_text(contents)
    path.with_name("curves.csv").write_text("row,seed,environment steps,mean return\n")
    with pytest.raises(ValueError, match="results.json is no table of results"):
        read_table(path)


@pytest.mark.parametrize(
    "old, new, said",
    [
        ('"name": "cartpole:ppo"', '"name": "cartpole:renamed"', "no row 'cartpole:ppo.*with seed 0, but curves.csv"),
        ('"seed": 1', '"seed": 2', "no row 'cartpole:ppo.*with seed 1, but curves.csv"),
        ('"seed": 1', '"seed": 0', "one of its seeds, twice"),
        ('"name": "cartpole:a2c"', '"name": "cartpole:ppo"', "twice"),
    ],
)
def test_a_table_that_was_edited_loses_no_curves(old, new, said, tmp_path):
    path = tmp_path / "results.json"
    write_table(table_of(row_of("cartpole:ppo", 1, 2.5), row_of("cartpole:a2c", 3)), path)
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(ValueError, match=said):
        read_table(path)


def test_a_full_disk_leaves_table_and_curves_as_they_were(tmp_path, monkeypatch):
    path = tmp_path / "results.json"
    write_table(table_of(row_of("a", 1)), path)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    monkeypatch.setattr(csv, "writer", lambda *args, **kwargs: pytest.fail("No space left on device"))
    with pytest.raises(pytest.fail.Exception):
        write_table(table_of(row_of("a", 2)), path)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


@pytest.mark.parametrize("page, said", [("no", "no place for a table"), ("<!-- table x -->\n<!-- end of table -->", "'x', which is none")])
def test_pages_without_a_place_for_tables_are_refused(page, said):
    with pytest.raises(ValueError, match=said):
        pages.filled(page, Table())


def test_a_row_has_the_interquartile_mean_with_an_interval_and_the_range():
    line = cells(pages.results(table_of(row_of("name", 0, 10, 20, 1000))), ["Task"])
    interval = line[4]
    assert line[:4] == ["Task", "PPO, 100", "`rlpyt train name`", "4"] and interval.startswith("15.0 (") and line[5] == "0.0 to 1,000"
    low, high = (float(number.replace(",", "")) for number in interval.partition("(")[2].strip(")").split(" to "))
    assert 0 <= low < 15 < high <= 1000


def test_rows_of_fewer_than_three_seeds_are_marked_and_have_no_interval():
    text = pages.results(table_of(row_of("few", 10, 20), row_of("more", 10, 20, 30, task="Other")))
    assert cells(text, ["Task"])[3:6] == ["2 (few)", "15.0", "10.0 to 20.0"]
    assert cells(text, ["Other"])[3] == "3"


def test_a_run_that_stopped_early_is_listed_with_what_it_reached_and_counts_for_nothing():
    row = row_of("name", 10, 10, 10)
    row.put(Run(7, [25_000], [-300.0]))
    row.n_steps = 100_000
    for run in row.runs[:3]:
        run.steps[-1] = 100_352
    row.put(Run(8, [], []))
    line = cells(pages.results(table_of(row)), ["Task"])
    assert line[1] == "PPO, 100k" and line[4:6] == ["10.0 (10.0)", "10.0"]
    assert line[3] == "3; seed 7 incomplete: -300 at 25k; seed 8 incomplete: nothing yet"


def test_runs_whose_last_rows_have_no_return_count_with_their_last_one_and_are_marked(tmp_path):
    for seed, last in enumerate([500, 500, 500, 500, "nan", "nan"]):
        write_run(tmp_path / f"run_{seed}", [20, 30 + seed, last], params_of(seed=seed))
    (row,) = read_runs([tmp_path]).rows.values()
    assert list(row.scores) == [500] * 4 + [34, 35]
    line = cells(pages.results(table_of(row)), ["CartPole-v1"])
    assert line[3] == "6; seed 4 ended without a return: 34.0 at 50k; seed 5 ended without a return: 35.0 at 50k"
    assert line[4].startswith("384 (") and line[5] == "34.0 to 500"


def test_a_run_that_stopped_after_rows_without_a_return_is_no_complete_one(tmp_path):
    write_run(tmp_path / "run_0", [20, 30, "nan"], params_of(), step=40_000)
    (row,) = read_runs([tmp_path]).rows.values()
    assert not len(row.scores) and "seed 0 incomplete: 30.0 at 40k" in pages.results(table_of(row))


def test_a_run_that_took_all_steps_without_a_return_is_listed_as_such(tmp_path):
    write_run(tmp_path / "run_0", ["nan", "nan", "nan"], params_of())
    assert "| 0 (few); seed 0 has no return at all |" in pages.results(read_runs([tmp_path]))


def test_a_run_takes_the_place_of_one_that_got_less_far_also_if_its_last_rows_have_no_return():
    row = row_of("name", 1)
    row.put(Run(0, [50], [9.0], end=100))
    row.put(Run(0, [75], [8.0]))
    assert list(row.scores) == [9]
    row.put(Run(0, [], [], end=100))
    assert list(row.scores) == [9], "one that has no return at all"


def test_a_row_tells_the_seconds_of_its_fastest_complete_run():
    row = row_of("name", 1, 2, 3)
    for run, row_seconds in zip(row.runs, (9.0, 4.4, None)):
        run.seconds = row_seconds
    row.put(Run(3, [1], [0.0], seconds=1.0))
    assert cells(pages.results(table_of(row)), ["Task"])[-2] == "4"


def test_rows_name_what_they_were_made_with_by_a_letter():
    row, other = row_of("a", 1, 2, 3), row_of("b", 1, task="Other")
    row.runs[0].made, row.runs[2].made = dict(commit="abc", torch="2"), dict(torch="3")
    text = pages.results(table_of(row, other))
    assert cells(text, ["Task"])[-1] == "a, b, older" and cells(text, ["Other"])[-1] == "older"
    assert pages.origins(table_of(row, other)).splitlines() == ["* **a**: commit abc, torch 2.", "* **b**: torch 3."]


# --- Comparisons ------------------------------------------------------------------------------------------------------
def test_rows_with_the_same_task_and_steps_are_compared_with_the_probability_of_improvement():
    ours, theirs = row_of("a", 2, 2, 2, 2, 2), row_of("b", 1, 1, 1, 2, 3, library="X", algorithm="PPO")
    others = [row_of("c", *range(5), library="X", n_steps=200), row_of("d", *range(5), library="X", task="Other")]
    text = pages.against(table_of(ours, theirs, *others))
    line = cells(text, ["Task"])
    assert line[:5] == ["Task", "100", "PPO", "PPO, X", "2.0 (2.0)"] and line[6].startswith("0.70 (")
    assert len(text.splitlines()) == 3 and "| rlpyt | X |" in text


def test_rows_are_compared_with_their_own_algorithm_if_it_is_there_and_else_with_all():
    mine = [row_of("a", *range(5), algorithm="PPO"), row_of("b", *range(5), algorithm="Mine")]
    there = [row_of("c", *range(5), algorithm="PPO"), row_of("d", *range(5), algorithm="DQN")]
    text = pages.comparison(mine, there, {}, ("here", "there"))
    assert [line.split(" | ")[2:4] for line in text.splitlines()[2:]] == [["PPO", "PPO"], ["Mine", "PPO"], ["Mine", "DQN"]]


def test_pairs_of_one_algorithm_come_first():
    mine = [row_of("b", *range(5), algorithm="Mine"), row_of("a", *range(5), algorithm="PPO")]
    text = pages.comparison(mine, [row_of("c", *range(5), algorithm="PPO")], {}, ("here", "there"))
    assert [line.split(" | ")[2:4] for line in text.splitlines()[2:]] == [["PPO", "PPO"], ["Mine", "PPO"]]


def test_rows_of_few_runs_are_not_compared():
    assert "No pair" in pages.comparison([row_of("a", *range(4))], [row_of("b", *range(5))], {}, ("here", "there"))
    assert "no runs of another library" in pages.against(table_of(row_of("a", *range(5))))


def test_all_tasks_together_are_compared_by_normalized_scores():
    ours = [row_of("a", *[5] * 5), row_of("b", *[-50] * 5, task="Other")]
    theirs = [row_of("a", *[0] * 5, library="X"), row_of("b", *[-50] * 5, library="X", task="Other")]
    text = pages.against(table_of(*ours, *theirs, Task=(0, 10), Other=(-100, -50)))
    assert cells(text, ["all 2, normalized"])[4:] == ["0.75 (0.75)", "0.50 (0.50)", "0.75 (0.75)"]
    assert cells(text, ["rlpyt"])[1:] == ["0.50 (0.50)"] * 5 and cells(text, ["runs that score"])[1] == "> 0.5"


def test_all_tasks_together_count_a_task_once_however_many_runs_it_has():
    good, bad = [90, 92, 94, 96, 98], [10, 12, 14, 16, 18]
    ours = [row_of("a", *good, *good), row_of("b", *bad, task="Other")]
    theirs = [row_of("a", *good, library="X"), row_of("b", *bad, *bad, library="X", task="Other")]
    line = cells(pages.against(table_of(*ours, *theirs, Task=(0, 100), Other=(0, 100))), ["all 2, normalized"])
    assert [cell.split()[0] for cell in line[4:]] == ["0.54", "0.54", "0.50"]


def width(text):
    """The width of an interval such as "0.50 (0.40 to 0.60)"; 0 for "0.50 (0.50)"."""
    low, _, high = text.partition("(")[2].strip(")").partition(" to ")
    return float(high) - float(low) if high else 0.0


def test_rows_of_the_same_task_and_seeds_are_resampled_together():
    luck, algorithms = [0, 30, 50, 60, 100], ("DDPG", "TD3", "SAC")
    ours = [row_of(name, *luck, algorithm=name) for name in algorithms]
    theirs = [row_of(name, *luck[::-1], algorithm=name, library="X") for name in algorithms]
    text = pages.against(table_of(*ours, *theirs, Task=(0, 100)))
    of_one_row, of_all = (text.splitlines()[i].split("|")[-2].strip() for i in (2, 5))
    assert "all 3" in text.splitlines()[5] and width(of_all) > 0.9 * width(of_one_row), "no narrower, since they share their luck"


def test_both_rows_of_a_single_pair_are_drawn_apart_unless_they_share_their_luck():
    """Two rows of a library share their seeds, those of two libraries do not: by hand, over 5 draws of 5 runs."""
    luck = [0, 25, 50, 75, 100]
    ours, same, theirs = row_of("a", *luck), row_of("b", *luck, algorithm="SAC"), row_of("c", *luck, library="X")
    with_same, with_theirs = (cells(pages.comparison([ours], [other], {}, ("here", "there")), ["Task"])[-1] for other in (same, theirs))
    assert with_same == "0.50 (0.50)", "a run is as lucky as the other with its seed"
    assert with_theirs.startswith("0.50 (") and width(with_theirs) > 0.5


def test_a_block_is_made_of_library_task_and_seeds_of_complete_runs():
    row = row_of("a", 1, 2)
    assert row.block == row_of("b", 3, 4, algorithm="SAC", n_steps=200).block
    others = [row_of("a", 1, 2, library="X"), row_of("a", 1, 2, task="Other"), row_of("a", 1, 2, 3), row_of("a", 1)]
    assert row.block not in [other.block for other in others]
    row.put(Run(2, [50], [3.0]))
    assert row.block == row_of("a", 1, 2).block


def names_of(pairs):
    return ["".join(row.name for row in pair) for pair in pairs]


@pytest.mark.parametrize(
    "mine, there, together",
    [
        (dict(a="PPO", b="Mine"), dict(c="PPO", d="DQN"), ["ac"]),  # b has two pairs, and none of its own algorithm.
        (dict(a="Mine"), dict(c="PPO"), ["ac"]),
        (dict(a="PPO", b="Mine"), dict(c="PPO"), ["ac"]),
        (dict(a="Mine", b="Other"), dict(c="PPO"), []),
        (dict(a="PPO"), dict(c="PPO", d="PPO"), []),
    ],
)
def test_in_all_pairs_together_no_row_counts_twice(mine, there, together):
    mine, there = (
        [row_of(name, *range(5), task=task, algorithm=algorithm) for task in ("Task", "Other") for name, algorithm in rows.items()]
        for rows in (mine, there)
    )
    text = pages.comparison(mine, there, dict(Task=(0, 5), Other=(0, 5)), ("here", "there"))
    assert f"all {2 * len(together)}, normalized" in text if together else "normalized" not in text
    pairs = [pair for row in mine for pair in pages._pairs(row, there)]
    assert names_of(pages._once(pairs)) == together * 2


def test_the_profile_is_of_rows_with_enough_runs_and_a_scale():
    rows = [row_of("a", 6, 6, 8, 8, 10), row_of("b", 1, 2), row_of("c", *range(5), task="no scale")]
    line = cells(pages.profile(table_of(*rows, Task=(0, 10))), ["rlpyt"])
    assert line[1] == "1" and [cell.split()[0] for cell in line[2:]] == ["1.00", "0.60", "0.20", "0.20", "0.20"]
    assert "No row" in pages.profile(table_of(*rows))


def test_a_page_of_own_runs_has_a_profile_and_says_what_counts_as_0_and_1():
    table = table_of(row_of("a", 6, 6, 8, 8, 10), Task=(0, 10))
    for text in (pages.written(table), pages.written(table, table_of(row_of("b", *range(5))), shows_other=False)):
        assert pages.profile(table) in text and "0 and 1 are returns of 0 and 10 on Task" in text
    both = pages.written(table, table_of(row_of("b", *[9] * 5, task="Other"), Other=(5, 9)), ("mine", "theirs"))
    assert cells(both, ["mine", "1"])[2:4] == ["1.00 (1.00)", "0.60 (0.20 to 1.00)"] and cells(both, ["theirs", "1"])[-1] == "1.00 (1.00)"
    assert "0 and 10 on Task, 5 and 9 on Other" in both and "without a scale" not in both


def test_a_page_says_how_to_give_a_scale_that_is_missing():
    text = pages.written(table_of(row_of("a", *range(5), task="My task"), row_of("b", *range(5)), row_of("c", 1, task="few"), Task=(0, 10)))
    assert "`--scale 'My task' LOW HIGH`" in text and cells(text, ["rlpyt", "1"])
    assert "--scale" not in pages.written(table_of(row_of("c", 1, task="few")))


def test_a_page_explains_its_words_and_no_others():
    plain = row_of("a", *range(1, 6))
    for run in plain.runs:
        run.made = dict(torch="2")
    text = pages.written(table_of(plain))
    assert "* **IQM**" in text and not any(
        f"* **{word}**" in text for word in ("Few", "Goal", "Older", "Incomplete", "Published", "Seconds")
    )
    other = row_of("b", 1, task="Other")
    other.goal, other.reference, other.runs[0].seconds = 3, "by others", 2.0
    other.put(Run(7, [50], [1.0]))
    text = pages.written(table_of(plain, other))
    assert all(f"* **{word}**" in text for word in ("IQM", "Few", "Goal", "Older", "Incomplete", "Published", "Seconds"))
    assert "probability" not in text, "nothing is compared"
    pairs = pages.written(table_of(plain), table_of(row_of("b", *range(5), library="X")), ("mine", "theirs"))
    assert (
        "The probability is that of a run of mine to have a higher return than one of theirs" in pairs
        and "no row counts twice" not in pairs
    )


# --- Runs -------------------------------------------------------------------------------------------------------------
def test_runs_of_a_configuration_make_a_row_which_is_called_as_in_the_published_table(tmp_path):
    labels = table_of(Row("cartpole:ppo", "CartPole", "PPO (published)", 100, "rlpyt train cartpole ppo", goal=475, reference="500"))
    for seed in range(2):
        write_run(tmp_path / str(seed) / "run_0", ["nan", 10 + seed, 20 + seed], params_of(seed=seed))
    ((key, row),) = read_runs([tmp_path], labels).rows.items()
    assert key == "cartpole:ppo"
    assert (row.task, row.algorithm, row.goal, row.reference) == ("CartPole", "PPO (published)", 475, "500")
    made = dict(commit="0123456", Python="3.11", torch="2")
    assert row.runs == [Run(seed, [50_000, 100_000], [10.0 + seed, 20.0 + seed], 3.0, made) for seed in range(2)]
    assert list(row.scores) == [20, 21]


def test_changes_of_a_configuration_are_part_of_the_row_and_of_its_command(tmp_path):
    write_run(tmp_path / "run_0", [1, 2], params_of(algo=dict(learning_rate=0.5), model=dict(hidden_sizes=[8])))
    ((key, row),) = read_runs([tmp_path]).rows.items()
    changes = "algo.learning_rate=0.5 model.hidden_sizes=[8]"
    assert key == f"cartpole:ppo {changes}" and row.task == "CartPole-v1"
    assert row.command == "rlpyt train cartpole ppo --set algo.learning_rate=0.5 'model.hidden_sizes=[8]'"


def test_a_run_resumed_for_more_steps_is_a_row_of_its_own(tmp_path):
    planned = int(configs.load("cartpole").configs["ppo"]["runner"]["n_steps"])
    for seed, n_steps in enumerate([planned, 2 * planned, planned]):
        write_run(tmp_path / f"run_{seed}", [1.0, 2.0], params_of(seed=seed, n_steps=n_steps), step=n_steps)
    rows = {row.name: row for row in read_runs([tmp_path]).rows.values()}
    longer = f"cartpole:ppo runner.n_steps={2 * planned}"
    assert {name: ([run.seed for run in row.complete], row.n_steps) for name, row in rows.items()} == {
        "cartpole:ppo": ([0, 2], planned),
        longer: ([1], 2 * planned),
    }
    assert rows[longer].command == f"rlpyt train cartpole ppo --set runner.n_steps={2 * planned}"


def test_a_run_resumed_for_fewer_steps_is_a_row_of_its_own_and_counts_for_no_longer_one(tmp_path):
    write_run(tmp_path / "run_0", [1, 2], params_of(n_steps=50_000, seed=0))
    write_run(tmp_path / "run_1", [1, 2, 3], params_of(seed=1))
    rows = {row.name: ([run.seed for run in row.complete], row.n_steps) for row in read_runs([tmp_path]).rows.values()}
    assert rows == {"cartpole:ppo runner.n_steps=50000": ([0], 50_000), "cartpole:ppo": ([1], 100_000)}


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_script_runs_of_different_lengths_in_one_directory_are_different_rows(order, tmp_path):
    lengths = (50, 100)
    for i in order:
        params = dict(name="mine", rlpyt=dict(n_steps=lengths[i], seed=i), env=dict(id="CartPole-v1"))
        write_run(tmp_path / "mine" / f"run_{order.index(i)}", range(2 + i), params, step=50)
    table = Table()
    for _ in range(2):  # Once more, they find their rows.
        table.add(read_runs([tmp_path / "mine"]))
        write_table(table, tmp_path / "results.json")
        table = read_table(tmp_path / "results.json")
        assert table.left_out == []
        rows = {row.n_steps: [run.seed for run in row.complete] for row in table.rows.values()}
        assert rows == {50: [0], 100: [1]}
    first, second = table.rows
    assert (first, second) == ("mine", f"mine, {lengths[order[1]]} steps")
    write_run(tmp_path / "other" / "run_0", range(3), params, step=50)
    table.add(read_runs([tmp_path / "other", tmp_path / "mine"]))
    assert list(table.rows)[2:] == [f"mine in {tmp_path / 'other'}"] and len(table.rows) == 3


def test_a_configuration_that_has_become_longer_is_another_row_and_the_old_one_stays_complete(tmp_path):
    table = table_of(row_of("cartpole:ppo", 1, 2, 3, n_steps=200))
    table.rows["cartpole:ppo"].goal = 7
    write_run(tmp_path / "run_0", [1, 2, 3], params_of())
    for _ in range(2):
        table.add(read_runs([tmp_path], table))
    assert [(key, row.n_steps, list(row.scores), row.goal) for key, row in table.rows.items()] == [
        ("cartpole:ppo", 200, [1, 2, 3], 7),
        ("cartpole:ppo, 100000 steps", 100_000, [3], 7),
    ]


@pytest.mark.parametrize(
    "began, resumed, said",
    [
        (50_000, [dict(steps=50_000, planned=50_000)], "; seed 0 planned for 50k before it was resumed"),
        (50_000, [dict(steps=50_000)], "; seed 0 planned for 50k before it was resumed"),  # As earlier versions recorded it.
        (50_000, [dict(planned=50_000), dict(planned=80_000)], "; seed 0 planned for 50k and 80k before it was resumed"),
        (100_000, [dict(planned=100_000), dict(planned=200_000)], "; seed 0 planned for 200k before it was resumed"),
        (100_000, [dict(planned=100_000), {}, dict(planned="x")], ""),
        (None, [dict(steps=50_000)], ""),
    ],
)
def test_a_run_that_was_planned_for_other_steps_is_told_apart_from_those_of_its_row(began, resumed, said, tmp_path):
    """Schedules, such as that of the learning rate, may depend on the planned steps."""
    params = params_of(seed=0, runner=dict(n_steps=began))
    params["rlpyt"]["resumed"] = resumed
    if began is None:
        del params["runner"]["n_steps"]
    write_run(tmp_path / "run_0", [1, 2, 3], params)
    write_run(tmp_path / "run_1", [1, 2, 3], params_of(seed=1))
    table = read_runs([tmp_path])
    write_table(table, tmp_path / "results.json")
    for each in (table, read_table(tmp_path / "results.json")):
        assert cells(pages.results(each), ["CartPole-v1"])[3] == f"2 (few){said}" and list(each.rows) == ["cartpole:ppo"]


@pytest.mark.parametrize("n_steps, goal", [(100_000, 475), (18_000, None), (200_000, None)])
def test_a_row_has_the_goal_of_its_configuration_only_for_as_many_steps(n_steps, goal, tmp_path):
    labels = table_of(Row("cartpole:ppo", "CartPole", "PPO", 100_000, "rlpyt train cartpole ppo", goal=475, reference="500"))
    write_run(tmp_path / "run_0", [1, 2], params_of(n_steps=n_steps, algo=dict(discount=0.5)))
    (row,) = read_runs([tmp_path], labels).rows.values()
    assert (row.task, row.n_steps, row.goal) == ("CartPole", n_steps, goal)


def test_a_row_of_another_environment_has_its_own_task(tmp_path):
    labels = table_of(Row("cartpole:ppo", "CartPole", "PPO (published)", 100, "rlpyt train cartpole ppo", goal=475, reference="500"))
    write_run(tmp_path / "run_0", [1, 2], params_of(env=dict(id="Acrobot-v1"), algo=dict(discount=0.5)))
    ((key, row),) = read_runs([tmp_path], labels).rows.items()
    assert key == "cartpole:ppo algo.discount=0.5 env.id=Acrobot-v1"
    assert (row.task, row.algorithm, row.goal, row.reference) == ("Acrobot-v1", "PPO (published), algo.discount=0.5", None, "")
    assert row.command == "rlpyt train cartpole ppo --set algo.discount=0.5 env.id=Acrobot-v1"


@pytest.mark.parametrize("library", ["rlpyt", "X"])
def test_the_words_of_a_row_with_changes_are_those_of_the_table(library, tmp_path):
    name = "cartpole:ppo env.id=Acrobot-v1"
    labels = table_of(Row(name, "Acrobot", "PPO", 100, "rlpyt train it", goal=-100, reference="by others"))
    write_run(tmp_path / "run_0", [1, 2, 3], dict(params_of(env=dict(id="Acrobot-v1")), library=library, command="python theirs.py"))
    (row,) = read_runs([tmp_path], labels).rows.values()
    assert (row.name, row.task, row.algorithm, row.goal) == (name, "Acrobot", "PPO", -100)
    assert (row.command, row.reference) == (("rlpyt train it", "by others") if library == "rlpyt" else ("python theirs.py", ""))


def test_rows_of_one_algorithm_are_lines_of_their_own():
    rows = [row_of("a", 1), row_of("b", 1, n_steps=2000), row_of("c", 1, algorithm="A2C")]
    assert list(pages.curves(table_of(*rows))["Task"]) == ["PPO, 100", "PPO, 2k", "A2C"]
    panel = pages.curves(table_of(*rows, row_of("d", 1, 2, 3)))["Task"]
    assert {label: len(runs) for label, runs in panel.items()} == {"PPO, 100, a": 1, "PPO, 2k": 1, "A2C": 1, "PPO, 100, d": 3}


def recorded(**classes):
    """The record of a run with other classes than those of the configuration cartpole:ppo, by part and argument."""
    record = {part: dict({"class": {"$name": f"rlpyt:{name}"}}, arguments={}) for part, name in PPO_CLASSES.items()}
    for name, path in classes.items():
        part, _, argument = name.partition("_")
        if argument:
            record[part]["arguments"][argument] = {"$name": path}
        else:
            record[part]["class"] = {"$name": path}
    return record


PPO_CLASSES = dict(runner="MinibatchRlEval", algo="PPO", agent="MlpFfAgent", sampler="SerialSampler")
LEAVES_RESULTS_AS_THEY_ARE = [
    dict(runner=dict(digest=True, save_replay=True, verbose=0, calibrate=False, affinity=dict(master_torch_threads=2))),
    dict(accelerate=dict(compile_models=True), affinity=dict(cuda_idx=0), sampler=dict(start_method="spawn")),
    recorded(sampler="rlpyt.samplers.parallel.gpu.alternating_sampler:AlternatingSampler"),
    recorded(sampler_EnvCls="rlpyt.envs.gym:make"),
]
CHANGES_RESULTS = {
    "runner.log_interval_steps=7": dict(runner=dict(log_interval_steps=7)),
    "accelerate.bf16=True": dict(accelerate=dict(bf16=True)),
    "sampler.batch_B=3": dict(sampler=dict(batch_B=3)),
    "class of runner=AsyncRl": recorded(runner="rlpyt.runners.async_rl:AsyncRlEval", sampler="rlpyt.x:AsyncCpuSampler"),
    "class of runner=SyncRl": recorded(runner="rlpyt.runners.sync_rl:SyncRlEval"),
    "class of agent=Mine": recorded(agent="mine:Mine"),
    "class of algo=Mine": recorded(algo="mine:Mine"),
    "class of collector=CpuWaitResetCollector": recorded(sampler_CollectorCls="rlpyt.x:CpuWaitResetCollector"),
    "class of env=make_mine": recorded(sampler_EnvCls="mine:make_mine"),
}


def with_changes(changes):
    """The params of a run of cartpole:ppo, with changes of settings, or with a record that names classes."""
    if "sampler" in changes and "arguments" in changes["sampler"]:
        params = params_of()
        return dict(params, rlpyt={**params["rlpyt"], **changes})
    return params_of(**changes)


@pytest.mark.parametrize("changes", LEAVES_RESULTS_AS_THEY_ARE, ids=str)
def test_runs_belong_to_one_row_if_only_where_how_fast_and_what_is_recorded_differs(changes):
    assert changes_of(with_changes(changes)) == []


@pytest.mark.parametrize("said, changes", CHANGES_RESULTS.items())
def test_runs_of_other_settings_or_classes_are_another_row(said, changes):
    assert changes_of(with_changes(changes)) == [said]


def test_a_run_of_any_configuration_is_one_of_its_row(tmp_path):
    for module in map(configs.load, configs.config_modules()):
        for key, config in vars(module).get("configs", {}).items():
            name = f"{module.__name__.rpartition('.')[2]}:{key}"
            log_variant(tmp_path / "params.json", dict(config, configuration=name))
            assert changes_of(json.loads((tmp_path / "params.json").read_text())) == [], name


def test_the_command_of_a_row_with_other_classes_is_the_one_that_made_a_run(tmp_path):
    params = with_changes(CHANGES_RESULTS["class of runner=AsyncRl"])
    params["rlpyt"]["command"] = ["rlpyt", "train", "cartpole", "ppo", "--sampler", "async_cpu"]
    write_run(tmp_path / "run_0", [1, 2], params)
    (row,) = read_runs([tmp_path]).rows.values()
    assert (row.name, row.command) == ("cartpole:ppo class of runner=AsyncRl", "rlpyt train cartpole ppo --sampler async_cpu")


def test_runs_of_other_scripts_make_a_row_for_each_directory(tmp_path):
    for variant, seed in itertools.product(("a", "b"), range(2)):
        params = dict(name="mine", run_ID=seed, rlpyt=dict(n_steps=50, command=["python", "mine.py"]), env=dict(game="pong", frame_skip=4))
        write_run(tmp_path / variant / f"run_{seed}", [1, 2 + seed], params, step=50)
    first, second = read_runs([tmp_path]).rows.values()
    assert first.name == "mine" and second.name == f"mine in {(tmp_path / 'b').resolve()}"
    assert [len(row.scores) for row in (first, second)] == [2, 2]
    assert (first.task, first.command) == ("pong, frame_skip=4", "python mine.py")


def script_runs(directory, *returns, n_seeds=2, **record):
    """Runs of a train script, with seeds from 0."""
    for seed in range(n_seeds):
        params = dict(name="mine", run_ID=seed, seed=seed, rlpyt=dict(dict(n_steps=50), **record), env=dict(id="CartPole-v1"))
        write_run(directory / f"run_{seed}", returns, params, step=50)
    return read_runs([directory])


def test_runs_of_a_script_take_no_place_of_others_with_the_same_name(tmp_path):
    table = Table()
    table.add(script_runs(tmp_path / "a", 1, 2))
    table.add(script_runs(tmp_path / "b", 1, 7, n_steps=1000, n_seeds=1))
    table.add(read_runs([tmp_path / "a"]))
    write_table(table, tmp_path / "results.json")
    table = read_table(tmp_path / "results.json")
    table.add(read_runs([tmp_path / "b", tmp_path / "a"]))
    first, second = table.rows.values()
    assert (first.name, list(first.scores), first.n_steps) == ("mine", [2, 2], 50)
    assert (second.name, len(second.runs), second.n_steps) == (f"mine in {(tmp_path / 'b').resolve()}", 1, 1000)


def test_environments_without_a_name_in_their_arguments_are_told_apart_by_their_classes(tmp_path):
    def task(directory, env_class, **env):
        sampler = dict(arguments=dict(EnvCls=env_class, env_kwargs=env))
        params = dict(name="mine", run_ID=0, seed=0, rlpyt=dict(n_steps=50, sampler=sampler))
        write_run(tmp_path / directory / "run_0", [1], params, step=50)
        return [row.task for row in read_runs([tmp_path / directory]).rows.values()]

    assert task("a", {"$script": "Maze"}, length=8) == ["Maze, length=8"]
    assert task("b", {"$script": "Corridor"}) == ["Corridor"]
    assert task("c", {"$name": "rlpyt.envs.gym:make"}, id="CartPole-v1", length=8) == ["CartPole-v1, length=8"]


def test_a_row_without_directory_of_an_earlier_version_gets_it(tmp_path):
    table = script_runs(tmp_path / "a", 1, 2)
    (row,) = table.rows.values()
    row.directory, row.goal = "", 3
    table.add(read_runs([tmp_path / "a"]))
    (row,) = table.rows.values()
    assert row.goal == 3 and row.directory == str((tmp_path / "a").resolve())
    script_runs(tmp_path / "b", 5, 6)
    row.directory = ""
    table.add(read_runs([tmp_path / "b"]))
    assert [list(row.scores) for row in table.rows.values()] == [[2, 2], [6, 6]], "other runs of the same name are another row"


def test_rows_of_variants_of_a_script_are_told_apart_and_compared_with_their_like(tmp_path):
    tables = []
    for i, made in enumerate(("before", "after")):
        for j, variant in enumerate(("lr_1", "lr_2")):
            script_runs(tmp_path / made / "mine" / variant, 1, 10 * j + i, n_seeds=5)
        tables.append(Table())
        for variant in ("lr_1", "lr_2"):  # One after the other.
            tables[-1].add(read_runs([tmp_path / made / "mine" / variant]))
    rows = [list(table.rows.values()) for table in tables]
    assert [row.label for row in rows[0]] == [row.label for row in rows[1]] == ["unknown, lr_1", "unknown, lr_2"]
    compared = pages.comparison(*rows, {"CartPole-v1": (0, 1)}, ("before", "after"))
    assert len([line for line in compared.splitlines() if "CartPole" in line]) == 2 and "all 2, normalized" in compared


def test_runs_that_were_solved_count_and_say_so(tmp_path):
    for seed, returns in enumerate([(1, 480), (1, 3, 5), (1, 7)]):
        params = dict(params_of(seed=seed), rlpyt=dict(n_steps=100_000, stop_return=475, seed=seed))
        write_run(tmp_path / f"run_{seed}", returns, params)
    (row,) = read_runs([tmp_path]).rows.values()
    assert list(row.scores) == [5], "the first may still be running, or was killed"
    (tmp_path / "run_0" / "debug.log").write_text("2026-01-01 00:00:00.000 | run_0 Training complete.\n")
    (row,) = read_runs([tmp_path]).rows.values()
    assert list(row.scores) == [480, 5]
    text = pages.results(table_of(row))
    assert "2 (few); seed 0 solved: 480 at 50k; seed 2 incomplete: 7.0 at 50k" in text
    write_table(table_of(row), tmp_path / "results.json")
    assert read_table(tmp_path / "results.json").rows[row.key].runs == row.runs


def test_runs_whose_steps_are_unknown_count_if_they_finished_and_are_not_compared(tmp_path):
    for seed, returns in enumerate([(1, 2), (1, 2, 3), (1, 2, 3, 4)]):
        write_run(tmp_path / f"run_{seed}", returns, dict(seed=seed, name="mine"))
        if seed:
            mark(tmp_path / f"run_{seed}", "finished" if seed == 1 else "failed")
    (row,) = read_runs([tmp_path]).rows.values()
    assert row.n_steps == 0 and list(row.scores) == [3]
    text = pages.results(table_of(row))
    assert "unknown steps" in text and "1 (few); seed 0 incomplete: 2.0 at 50k; seed 2 incomplete: 4.0 at 150k" in text
    rows = [row_of(name, 1, 2, 3, 4, 5, library=name, n_steps=0) for name in ("rlpyt", "other")]
    for each in (run for row in rows for run in row.runs):
        each.solved = True
    assert "No pair of rows" in pages.comparison(rows[:1], rows[1:], {}, ("ours", "theirs"))


def test_the_environment_of_a_script_may_be_a_text(tmp_path):
    write_run(tmp_path / "run_0", [1, 2], dict(seed=0, env="Tank", rlpyt=dict(n_steps=50_000)))
    (row,) = read_runs([tmp_path]).rows.values()
    assert row.task == "Tank"


def test_what_a_run_was_resumed_with_is_named_if_it_is_something_else(tmp_path):
    params = params_of()
    first = dict(githash=params["rlpyt"]["githash"], python="3.11", packages=dict(rlpyt="1", torch="2"))
    others = [dict(first, githash="fedcba987"), dict(first, packages=dict(torch="3")), dict(first, packages=dict(torch="4"))]
    params["rlpyt"]["resumed"] = [first, *others]
    write_run(tmp_path / "run_0", [1, 2], params)
    (row,) = read_runs([tmp_path]).rows.values()
    assert "* **a**: commit 0123456, Python 3.11, torch 2, resumed with commit fedcba9, resumed with torch 3 and 4." in pages.origins(
        table_of(row)
    )


@pytest.mark.parametrize(
    "algo, runner, said",
    [
        (dict(replay_size=1), dict(save_replay=False), "1 (few); seed 0 resumed at 60k and an unknown step without its replay buffer"),
        (dict(replay_size=1), dict(save_replay=True), "1 (few)"),
        (dict(replay_size=1), dict(save_replay=False, dataset="cartpole/random-v0"), "1 (few)"),
        ({}, dict(save_replay=False), "1 (few)"),
    ],
)
def test_a_run_that_was_resumed_without_its_replay_buffer_is_marked(algo, runner, said, tmp_path):
    params = params_of()
    parts = dict(algo=dict(arguments=algo), runner=dict(arguments=runner))
    params["rlpyt"].update(parts, resumed=[dict(steps=60_000), {}, "?"])
    write_run(tmp_path / "run_0", [0, 1, 2], params)
    table = read_runs([tmp_path])
    write_table(table, tmp_path / "results.json")
    for each in (table, read_table(tmp_path / "results.json")):
        assert cells(pages.results(each), ["CartPole-v1"])[3] == said


def test_scores_between_0_and_1_have_three_digits():
    text = pages.results(table_of(row_of("small", 0.7012, 0.7049, 0.71234), row_of("none", 0, 0, 0)))
    assert "| 0.706 (0.701 to 0.712) | 0.701 to 0.712 |" in text and "| 0.0 (0.0) | 0.0 |" in text


def test_runs_of_another_library_are_rows_with_the_same_task(tmp_path):
    labels = table_of(Row("cartpole:ppo", "CartPole", "PPO", 100, "rlpyt train cartpole ppo"))
    params = dict(params_of(), library="X", command="python theirs.py", algorithm="PPO")
    write_run(tmp_path / "run_0", [1, 2, 3], params)
    ((key, row),) = read_runs([tmp_path], labels).rows.items()
    assert (key, row.task, row.algorithm, row.library, row.command) == ("X cartpole:ppo", "CartPole", "PPO", "X", "python theirs.py")


def test_a_run_takes_the_place_of_an_earlier_one_with_its_seed_that_got_no_further():
    row = row_of("name", 1, 2)
    row.put(run_of(0, 5.0))
    row.put(Run(1, [50], [9.0]))
    row.put(run_of(2, 7.0))
    assert list(row.scores) == [5, 2, 7]
    table = table_of(row_of("name", 1))
    table.rows["name"].reference = "by hand"
    table.add(table_of(row, row_of("new", 3)))
    assert list(table.rows) == ["name", "new"] and list(table.rows["name"].scores) == [5, 2, 7]
    assert table.rows["name"].reference == "by hand"


def test_which_of_two_runs_with_the_same_seed_counts_is_said(tmp_path):
    for name, returns in (("a", [1, 2]), ("b", [3]), ("c", [4, 5]), ("d", [6, 7])):
        write_run(tmp_path / name / "run_0", returns, params_of(seed=int(name == "d")))
    table = read_runs([tmp_path])
    (row,) = table.rows.values()
    assert [run.returns[-1] for run in row.runs] == [5, 7]
    a, b, c = (str(tmp_path / name / "run_0") for name in "abc")
    because = "with the same settings and the same seed, 0, got as far or further."
    assert table.left_out == [f"{b} is left out: {a}, {because}", f"{a} is left out: {c}, {because}"]
    published = read_runs([tmp_path / "c"])
    published.add(read_runs([tmp_path / "b"]))
    assert published.left_out == [f"The run of {row.name} with seed 0 is left out: that of the table got further."]
    assert read_runs([tmp_path / "c", tmp_path / "d"]).left_out == []


def test_what_is_replaced_in_a_table_is_said_and_a_complete_run_makes_no_room_for_an_incomplete_one():
    table = table_of(row_of("name", 480, 2))
    table.add(table_of(row_of("name", 480.0000001, 2)))
    assert table.left_out == [], "the same run"
    table.add(table_of(row_of("name", 475)))
    (said,) = table.left_out
    assert (
        "name with seed 0 that was in the table, 100 steps with a return of 480, is replaced by one of 100 steps with a return of 475."
        in said
    )
    table.add(table_of(Row("name", "Task", "PPO", 100, "", runs=[Run(0, [99], [999.0]), Run(1, [], [], end=100), Run(2, [9], [9.0])])))
    assert [f"The run of name with seed {seed} is left out: that of the table got further." for seed in range(2)] == table.left_out[1:]
    assert list(table.rows["name"].scores) == [475, 2]
    table.add(table_of(Row("name", "Task", "PPO", 100, "", runs=[Run(2, [], [], end=99), Run(2, [10], [8.0])])))
    assert "with seed 2 that was in the table, 9 steps with a return of 9, is replaced by one of 10 steps with" in table.left_out[-1]


def test_runs_without_params_or_seed_are_numbered(tmp_path):
    for name in "ab":
        (write_run(tmp_path / f"run_{name}", [1, 2]) / "params.json").unlink()
    (row,) = read_runs([tmp_path]).rows.values()
    assert [run.seed for run in row.runs] == [0, 1]


def test_a_run_without_a_seed_takes_no_place_of_one_with_a_seed(tmp_path):
    write_run(tmp_path / "a" / "run_0", [1, 2], params_of(seed=None))
    write_run(tmp_path / "b" / "run_0", [3, 4], params_of(seed=0))
    table = read_runs([tmp_path])
    (row,) = table.rows.values()
    assert [(run.seed, run.returns[-1]) for run in row.runs] == [(0, 4), (1, 2)] and table.left_out == []


def test_a_run_without_a_return_replaces_none_that_has_some():
    row = row_of("name")
    row.put(Run(0, [25], [9.0]))
    row.put(Run(0, [], [], end=50))
    assert [run.returns for run in row.runs] == [[9]]


@pytest.mark.parametrize("params", [dict(rlpyt=[1]), dict(rlpyt=dict(n_steps="many")), dict(seed="x"), dict(rlpyt=dict(packages=3))])
def test_a_damaged_run_is_named(params, tmp_path):
    run_dir = write_run(tmp_path / "run_0", [1, 2], params)
    with pytest.raises(ValueError, match=f"{run_dir} is no run whose results can be read"):
        read_runs([tmp_path])


@pytest.mark.parametrize(
    "file, contents, said",
    [
        ("params.json", b'{"a', "is no run whose results can be read: {path} is damaged"),
        ("params.json", b'{"seed": "x"}', "is no run whose results can be read: "),
        ("progress.csv", random.Random(0).randbytes(3000), "is no run whose results can be read: {path} "),
    ],
    ids=["no JSON", "no seed", "random bytes"],
)
def test_a_damaged_run_is_named_and_the_others_count(file, contents, said, tmp_path):
    for seed in range(3):
        write_run(tmp_path / f"run_{seed}", [1, 2, 3], params_of(seed=seed))
    path = tmp_path / "run_1" / file
    path.write_bytes(contents)
    table = read_runs([tmp_path])
    assert [[run.seed for run in row.complete] for row in table.rows.values()] == [[0, 2]]
    (sentence,) = table.left_out
    assert sentence.startswith(f"{path.parent} {said.format(path=path)}")
    (tmp_path / "run_0" / file).write_bytes(contents)
    (tmp_path / "run_2" / file).write_bytes(contents)
    with pytest.raises(ValueError, match=r"run_0 is no run whose .* Neither can those of 2 other runs\.$"):
        read_runs([tmp_path])


def test_rows_that_cannot_be_read_are_named_and_the_others_count(tmp_path):
    progress = write_run(tmp_path / "run_0", [1, 2, 3], params_of()) / "progress.csv"
    lines = progress.read_text().splitlines()
    progress.write_text("\n".join([lines[0], "\x02?,#", *lines[1:], ""]))
    table = read_runs([tmp_path])
    assert [list(row.scores) for row in table.rows.values()] == [[3]]
    assert table.left_out == [f"{progress} is damaged: 1 row without a number of environment steps left out."]


@pytest.mark.parametrize("kept_lines", [0, 1])
@pytest.mark.parametrize("state, is_named", [("finished", True), ("failed", True), ("running", False), ("paused", False)])
def test_a_run_that_ended_with_an_empty_log_is_named(state, is_named, kept_lines, tmp_path):
    run_dir = write_run(tmp_path / "run_0", [1, 2, 3], params_of())
    lines = (run_dir / "progress.csv").read_text().splitlines(keepends=True)
    (run_dir / "progress.csv").write_text("".join(lines[:kept_lines]))
    mark(run_dir, state, **(identity(os.getpid()) if state == "running" else {}))
    table = read_runs([tmp_path])
    assert "seed 0 incomplete: nothing yet" in pages.results(table)
    assert table.left_out == ([f"{run_dir} has no row in its log ({state})."] if is_named else [])


def test_names_of_others_do_not_break_the_table(tmp_path):
    write_run(tmp_path / "run_0", [1, 2], dict(name="a", command="x|\n\x1b[2J", algorithm="c.d\n"))
    text = pages.results(read_runs([tmp_path]))
    assert "\x1b" not in text and "x&#124;" in text and [line.count("|") for line in text.splitlines()] == [11] * 3


@pytest.mark.parametrize("returns, said", [([], "nothing yet"), (["nan", "nan"], "no return up to 50k")])
def test_a_run_without_a_return_is_listed(returns, said, tmp_path):
    write_run(tmp_path / "run_0", returns, params_of())
    table = read_runs([tmp_path])
    assert f"seed 0 incomplete: {said}" in pages.results(table)


@pytest.mark.parametrize(
    "n_rows, n_steps, said",
    [(3, 100_000, "has no return at all"), (2, 100_000, "incomplete: no return up to 50k"), (3, None, "has no return at all")],
)
def test_a_run_without_a_column_of_returns_has_no_return_and_is_incomplete_only_if_steps_are_missing(n_rows, n_steps, said, tmp_path):
    params = params_of(n_steps=n_steps)
    if n_steps is None:
        params = dict(name="mine", rlpyt={})
    run_dir = write_run(tmp_path / "run_0", [], params)
    lines = ["Diagnostics/CumSteps,loss", *(f"{i * 50_000},0.5" for i in range(n_rows))]
    (run_dir / "progress.csv").write_text("\n".join(lines) + "\n")
    table = read_runs([tmp_path])
    write_table(table, tmp_path / "results.json")
    for each in (table, read_table(tmp_path / "results.json")):
        assert f"| 0 (few); seed 0 {said} |" in pages.results(each)


def test_runs_that_failed_before_their_first_row_are_named_and_listed(tmp_path):
    for seed in range(4):
        write_run(tmp_path / f"run_{seed}", [1, 2, 3], params_of(seed=seed))
    for seed in (1, 3):
        (tmp_path / f"run_{seed}" / "progress.csv").unlink()
    (tmp_path / "run_3" / "params.json").unlink()
    for seed, error in ((1, "ValueError: too wide"), (3, "ImportError: no module")):
        mark(tmp_path / f"run_{seed}", "failed", exit_code=1, error=error)
    (tmp_path / "run_4").mkdir()  # It has not begun.
    table = read_runs([tmp_path])
    assert "| 2 (few); seed 1 incomplete: nothing yet |" in pages.results(table)
    assert table.left_out == [
        f"{tmp_path / 'run_1'} has no row in its log (failed: ValueError: too wide).",
        f"{tmp_path / 'run_3'} has no row in its log (failed: ImportError: no module).",
    ]
    write_table(table, tmp_path / "results.json")
    assert read_table(tmp_path / "results.json").rows == table.rows
    table.add(read_runs([tmp_path / "run_0"]))
    assert [run.seed for run in table.rows["cartpole:ppo"].runs] == [0, 1, 2]


def test_scores_are_last_returns():
    np.testing.assert_array_equal(row_of("name", 3, 4).scores, [3, 4])
