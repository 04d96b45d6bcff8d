"""rlpyt results."""

import errno
import os
import shutil
from pathlib import Path

import pytest
from tiers import full

from rlpyt.experiments.results.table import read_table
from rlpyt.utils.logging.context import reader, sole_writer

DOCS = Path(__file__).parents[2] / "docs"
PAGE = "# Mine\n\n<!-- table results -->\n<!-- end of table -->\n\nText.\n"


@pytest.fixture
def page(tmp_path):
    path = tmp_path / "page.md"
    path.write_text(PAGE)
    return path


def test_runs_are_added_to_a_table_and_its_page(trained, page, tmp_path, rlpyt):
    run_dir, table = trained("cartpole", "ppo"), tmp_path / "table" / "results.json"
    table.parent.mkdir()
    code, out, err = rlpyt("results", "--add", run_dir, "--table", table, "--page", page)
    assert (code, out.split(), err) == (0, [str(page)], "")
    text = page.read_text()
    assert text.startswith("# Mine\n") and text.endswith("Text.\n") and "| CartPole-v1 | PPO" in text and "1 (few)" in text
    page.write_text(PAGE)
    assert rlpyt("results", "--table", table, "--page", page)[0] == 0
    assert page.read_text() == text


def test_another_table_has_no_page_but_the_one_that_is_named(trained, tmp_path, rlpyt):
    table, published = tmp_path / "results.json", (DOCS / "learning.md").read_text()
    code, out, err = rlpyt("results", "--add", trained("cartpole", "ppo"), "--table", table)
    assert (code, out.split(), err) == (0, [str(table)], "") and table.is_file()
    assert (DOCS / "learning.md").read_text() == published
    code, _, err = rlpyt("results", "--table", table)
    assert code == 2 and "Nothing was asked for" in err


@pytest.mark.parametrize("other", [sole_writer, reader])
def test_one_command_at_a_time_writes_a_table(other, trained, page, tmp_path, rlpyt):
    with other(tmp_path, "this test"):
        code, _, err = rlpyt("results", "--add", trained("cartpole", "ppo"), "--table", tmp_path / "results.json", "--page", page)
    assert code != 0 and f"Another process uses the table of {tmp_path}" in err
    assert page.read_text() == PAGE and not (tmp_path / "results.json").exists()


def test_several_commands_at_a_time_make_pages_but_not_while_one_writes(trained, page, tmp_path, rlpyt):
    table = tmp_path / "results.json"
    assert rlpyt("results", "--add", trained("cartpole", "ppo"), "--table", table)[0] == 0
    with sole_writer(tmp_path, "this test"):
        for options in (["--page", page], ["--compare", trained("cartpole", "ppo")]):
            code, _, err = rlpyt("results", "--table", table, *options)
            assert code != 0 and f"Another process is writing to {tmp_path}" in err
    assert page.read_text() == PAGE
    with reader(tmp_path, "this test"):
        assert rlpyt("results", "--table", table, "--page", page)[0] == 0
    assert "| CartPole-v1 | PPO" in page.read_text()


def test_a_page_that_cannot_be_written_stays_as_it_was(trained, page, tmp_path, rlpyt, monkeypatch):
    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    code, _, _ = rlpyt("results", "--add", trained("cartpole", "ppo"), "--table", tmp_path / "results.json", "--page", page)
    assert code == 2
    assert page.read_text() == PAGE and sorted(path.name for path in tmp_path.iterdir()) == ["page.md"]


def test_the_published_page_stays_as_it_is(tmp_path, rlpyt):
    shutil.copy(DOCS / "learning.md", tmp_path)
    assert rlpyt("results", "--page", tmp_path / "learning.md")[0] == 0
    assert (tmp_path / "learning.md").read_text() == (DOCS / "learning.md").read_text()


@full
def test_all_curves_are_drawn_in_a_panel_for_each_task(page, tmp_path, rlpyt):
    pytest.importorskip("matplotlib")
    code, out, _ = rlpyt("results", "--page", page, "--picture", tmp_path / "curves.png")
    assert code == 0 and out.split() == [str(page), str(tmp_path / "curves.png")]
    assert (tmp_path / "curves.png").read_bytes()[:4] == b"\x89PNG"


def test_nothing_is_written_if_the_picture_has_a_wrong_extension(trained, page, tmp_path, rlpyt):
    table = tmp_path / "results.json"
    code, _, err = rlpyt("results", "--add", trained("cartpole", "ppo"), "--table", table, "--page", page, "--picture", tmp_path / "a.pgn")
    assert code == 2 and "a.pgn is no picture. Did you mean '.png'?" in err
    assert page.read_text() == PAGE and not table.exists()


def test_runs_are_compared_with_the_published_table_or_with_other_runs(trained, rlpyt):
    mine, theirs = trained("cartpole", "ppo"), trained("cartpole", "dqn")
    for others, name in (([], "the published table"), ([theirs], str(theirs)), ([DOCS / "learning" / "results.json"], "results.json")):
        code, out, err = rlpyt("results", "--compare", mine, *others)
        assert (code, err) == (0, "") and "| CartPole-v1 | PPO" in out and "compared with" in out and name in out


def test_a_comparison_shows_the_rows_of_both(trained, tmp_path, rlpyt):
    mine, theirs = trained("cartpole", "ppo"), trained("cartpole", "dqn")
    code, out, _ = rlpyt("results", "--compare", mine, theirs)
    first, second, _ = (part.partition("\n")[2] for part in out.split("\n## ")[1:])
    assert code == 0 and out.split("\n## ")[1:3] == [f"{mine}\n{first}", f"{theirs}\n{second}"]
    assert "train cartpole ppo" in first and "train cartpole dqn" in second and "dqn" not in first and "**a**: " in second
    _, out, _ = rlpyt("results", "--compare", mine)
    assert "train cartpole ppo" in out and "train cartpole dqn" not in out, "the published table has its own page"


def test_what_a_run_replaces_in_a_table_is_said(trained, page, tmp_path, rlpyt):
    run_dir, table = trained("cartpole", "ppo"), tmp_path / "results.json"
    assert rlpyt("results", "--add", run_dir, "--table", table)[0] == 0
    assert rlpyt("results", "--add", run_dir, "--table", table)[2] == "", "the same run"
    curves = (tmp_path / "curves.csv").read_text().splitlines()
    (tmp_path / "curves.csv").write_text("\n".join([*curves[:-1], curves[-1].rpartition(",")[0] + ",12345"]) + "\n")
    code, _, err = rlpyt("results", "--add", run_dir, "--table", table)
    assert code == 0 and "with a return of 12345, is replaced by one of " in err


def test_a_scale_is_given_for_a_comparison_or_kept_in_a_table(trained, page, tmp_path, rlpyt):
    run_dir, table = trained("cartpole", "ppo"), tmp_path / "results.json"
    assert rlpyt("results", "--add", run_dir, "--table", table)[0] == 0
    scale = ["--scale", "CartPole-v1", "-5", "1e3"]
    code, _, err = rlpyt("results", "--compare", run_dir, "--table", table, *scale)
    assert (code, err, read_table(table).scales) == (0, "", {})
    assert rlpyt("results", "--table", table, "--page", page, *scale)[0] == 0
    assert read_table(table).scales == {"CartPole-v1": (-5, 1000)}
    with reader(tmp_path, "this test"):
        assert "Another process uses the table" in rlpyt("results", "--table", table, *scale)[2]
    for wrong, said in [
        (["CartPole-v0", "0", "1"], "no row has this task. Did you mean 'CartPole-v1'?"),
        (["CartPole-v1", "1", "0"], "takes two numbers, the lower one first, not 1 and 0."),
        (["CartPole-v1", "1", "much"], "takes two numbers, the lower one first, not 1 and much."),
        (["CartPole-v1", "0", "inf"], "takes two numbers"),
    ]:
        code, _, err = rlpyt("results", "--table", table, "--scale", *wrong)
        assert code == 2 and said in err and err.count("\n") == 1
    assert read_table(table).scales == {"CartPole-v1": (-5, 1000)}


@pytest.mark.parametrize(
    "options, said",
    [
        (["--table", "nowhere.json"], "nowhere.json. It is part of a clone of rlpyt; without one, give another file with --table"),
        (["--page", "nowhere.md"], "give another file with --page"),
        (["--table", "nowhere/results.json"], "There is no directory nowhere for the table"),
        (["--compare", "a", "b", "c"], "one directory or two, not 3"),
        (["--compare", "nowhere"], "There is no directory nowhere"),
        (["--compare", __file__], "is a file: give a directory of runs"),
    ],
)
def test_what_is_missing_is_a_sentence(options, said, rlpyt):
    code, _, err = rlpyt("results", *options)
    assert code == 2 and said in err and err.count("\n") == 1
