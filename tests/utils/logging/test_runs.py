"""Reading the directories of runs."""

import json
import math
from pathlib import Path

import pytest

from rlpyt.utils.launching.status import experiment_status
from rlpyt.utils.logging.runs import (
    directory_labels,
    find_column,
    find_runs,
    has_column,
    natural,
    read_columns,
    read_params,
    read_settings,
    variant_dir,
)


def touch(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return path


def test_runs_are_found_at_any_depth_each_once_in_the_order_of_their_numbers(tmp_path):
    for name in ("b/run_10", "b/run_9", "a2/run_0", "a/x/y/run_0"):
        touch(tmp_path / name / "progress.csv")
    touch(tmp_path / "b" / "params.json")
    touch(tmp_path / "b" / "run_9" / "wandb" / "logs" / "progress.csv")  # not a run's
    touch(tmp_path / "c" / "run_0" / "debug.log")  # one that has logged no row
    found = [str(path.relative_to(tmp_path)) for path in find_runs([tmp_path, tmp_path / "b"])]
    assert found == ["a/x/y/run_0", "a2/run_0", "b/run_9", "b/run_10"]
    assert find_runs([tmp_path / "b" / "run_9"]) == [tmp_path / "b" / "run_9"]
    assert find_runs([tmp_path / "b" / "run_9" / "progress.csv"]) == [tmp_path / "b" / "run_9"]


def test_runs_are_found_behind_links_each_once_and_links_in_a_circle_end(tmp_path):
    for name in ("elsewhere/run_0", "elsewhere/run_1", "here/run_5"):
        touch(tmp_path / name / "progress.csv")
    here = tmp_path / "here"
    (here / "circle").symlink_to(here)
    (here / "a_link").symlink_to(here / "run_5")
    (here / "run_1").symlink_to(tmp_path / "elsewhere" / "run_1")
    (here / "sweep").symlink_to(tmp_path / "elsewhere")
    (here / "broken").symlink_to(tmp_path / "none")
    expected = ["run_1", "run_5", "sweep/run_0"]
    assert [str(path.relative_to(here)) for path in find_runs([here])] == expected
    assert sorted(run.name for run in experiment_status(here)) == expected


def test_the_label_of_the_current_directory_is_its_name(tmp_path, monkeypatch):
    (tmp_path / "run_0").mkdir()
    monkeypatch.chdir(tmp_path / "run_0")
    assert directory_labels([Path(".")]) == {Path("."): "run_0"}


def test_where_there_are_none_it_is_said(tmp_path):
    with pytest.raises(FileNotFoundError, match="There is no run in .*: no directory with a progress.csv"):
        find_runs([tmp_path])
    with pytest.raises(FileNotFoundError, match="There is no directory"):
        find_runs([tmp_path / "nowhere"])


def test_the_directory_of_a_variant_is_that_of_its_runs(tmp_path):
    assert variant_dir(tmp_path / "lr1" / "run_3") == tmp_path.resolve() / "lr1" and variant_dir(tmp_path) == tmp_path.resolve()
    assert variant_dir(tmp_path / "lr1" / "run_a-3.x") == tmp_path.resolve() / "lr1"


def test_paths_are_in_the_order_of_the_numbers_in_them():
    names = ["10²/run_1", "a/run_2", "a/run_10", "a/run_x", "b/run_01"]
    assert sorted(map(Path, names[::-1]), key=natural) == sorted(map(Path, names), key=natural)
    assert sorted(map(Path, ["a/run_10", "a/run_2"]), key=natural) == [Path("a/run_2"), Path("a/run_10")]


def test_settings_have_dotted_names_and_those_of_a_variant_win(tmp_path):
    run_dir = tmp_path / "run_0"
    touch(run_dir / "progress.csv")
    assert read_settings(run_dir) == {}
    (run_dir / "params.json").write_text(json.dumps(dict(algo=dict(lr=1, optim={}), seed=3)))
    assert read_settings(run_dir) == {"algo.lr": 1, "algo.optim": {}, "seed": 3}
    (tmp_path / "variant_config.json").write_text(json.dumps(dict(algo=dict(lr=2))))
    assert read_settings(run_dir)["algo.lr"] == 2


@pytest.mark.parametrize("text", ["", "{", "[1]"])
def test_damaged_parameters_are_an_error_that_names_the_file(tmp_path, text):
    (tmp_path / "params.json").write_text(text)
    with pytest.raises(ValueError, match="params.json is damaged"):
        read_params(tmp_path / "params.json")


def test_rows_that_are_not_complete_are_nan_to_the_end(tmp_path):
    (tmp_path / "progress.csv").write_text("a,b\n1,2\n3,x\n4\n")
    columns = read_columns(tmp_path / "progress.csv")
    assert set(read_columns(str(tmp_path))) == set(read_columns(tmp_path)) == {"a", "b"}  # The directory of the run will do.
    assert columns["a"] == [1, 3, 4] and columns["b"][0] == 2 and all(map(math.isnan, columns["b"][1:]))


@pytest.mark.parametrize("half", ["1", "100", "100,", "100,4"])  # of the row 100,487.3
def test_a_last_line_without_its_end_is_no_row(tmp_path, half):
    (tmp_path / "progress.csv").write_text(f"a,b\n50,2\n{half}")
    assert read_columns(tmp_path / "progress.csv") == dict(a=[50], b=[2])


def test_columns_are_found_by_their_last_name_and_without_slashes():
    columns = ["Diagnostics/CumSteps", "Return/Average", "lossAverage", "Diagnostics/CumTime (s)"]
    assert find_column(columns, "CumTime") == find_column(columns, "CumTime (s)") == "Diagnostics/CumTime (s)"
    assert find_column(columns, "CumSteps") == "Diagnostics/CumSteps" and find_column(columns, "ReturnAverage") == "Return/Average"
    assert find_column(["a", "ReturnAverage"], "Return/Average") == "ReturnAverage"
    assert find_column(columns, "GameScoreAverage", "lossAverage") == "lossAverage"
    assert has_column(columns, "CumSteps") and not has_column(columns, "Steps")
