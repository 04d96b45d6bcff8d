import csv
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import warnings
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from absent import make_absent
from tiers import processes

from rlpyt.utils.launching.status import run_status
from rlpyt.utils.logging import context, logger
from rlpyt.utils.logging.context import add_exp_param, check_progress, get_log_dir, logger_context


def read(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def log_row(**values):
    for key, value in values.items():
        logger.record_tabular(key, value)
    logger.dump_tabular()


def test_the_directory_of_a_run_gets_all_its_files(tmp_path, capsys):
    config = dict(lr=0.1)
    with logger_context(tmp_path, 3, "ppo", config, override_prefix=True) as run_dir:
        assert run_dir == str(tmp_path / "run_3")
        logger.log("hello")
        log_row(a=1)
        logger.save_itr_params(0, {"itr": 0})
    assert sorted(os.listdir(run_dir)) == ["debug.log", "params.json", "params.pkl", "progress.csv"]
    assert json.load(open(f"{run_dir}/params.json")) == {"lr": 0.1, "name": "ppo", "run_ID": 3} and config == {"lr": 0.1}
    text = open(f"{run_dir}/debug.log").read()
    assert re.search(r"\| ppo_3 hello\n", text) and f"Logging to {run_dir}" in text
    assert text.splitlines()[-1] == "Run complete." and text.removesuffix("Run complete.\n") in capsys.readouterr().out
    assert read(f"{run_dir}/progress.csv") == [{"a": "1"}]
    assert torch.load(f"{run_dir}/params.pkl", weights_only=True) == {"itr": 0}


def test_a_relative_directory_is_put_under_data_with_the_time(tmp_path, monkeypatch):
    monkeypatch.setattr(context, "LOG_DIR", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    with logger_context("my/exp", 0, "x", snapshot_mode="none") as run_dir:
        pass
    assert re.fullmatch(r"data/local/\d{8}/\d{6}/my/exp/run_0", os.path.relpath(run_dir, tmp_path))
    with logger_context(os.path.dirname(run_dir), 1, "x") as second:
        assert second == os.path.join(os.path.dirname(run_dir), "run_1")
    with logger_context("data/local/here", 0, "x") as under_data:
        assert under_data == str(tmp_path / "data/local/here/run_0")
    with logger_context("here", 0, "x", override_prefix=True) as overridden:
        assert overridden == str(tmp_path / "here/run_0")


def test_runs_of_the_same_second_get_directories_of_their_own(tmp_path, monkeypatch):
    monkeypatch.setattr(context, "LOG_DIR", str(tmp_path))
    monkeypatch.setattr(context, "datetime", SimpleNamespace(now=lambda: datetime(2026, 12, 31, 23, 59, 59)))
    with logger_context("exp", 0, "x") as first:
        log_row(a=1)
        with logger_context("exp", 0, "x") as second, logger_context("exp", 1, "x") as of_another_number:
            log_row(a=2)
    with logger_context("exp", 0, "x") as third:
        log_row(a=3)
    run_dirs = ["20261231/235959/exp/run_0", "20270101/000000/exp/run_0", "20261231/235959/exp/run_1", "20270101/000001/exp/run_0"]
    assert [os.path.relpath(run_dir, tmp_path / "local") for run_dir in (first, second, of_another_number, third)] == run_dirs
    assert [read(f"{run_dir}/progress.csv") for run_dir in (first, third)] == [[{"a": "1"}], [{"a": "3"}]]


def test_get_log_dir_has_its_root_and_date_optional(tmp_path, monkeypatch):
    monkeypatch.setattr(context, "LOG_DIR", "/data")
    assert re.fullmatch(r"/data/local/\d{8}/\d{6}/exp", get_log_dir("exp"))
    assert get_log_dir("exp", root_log_dir=str(tmp_path), date=False) == str(tmp_path / "local" / "exp")


@processes
def test_in_a_clone_the_logs_are_beside_the_code_and_otherwise_where_one_works(tmp_path):
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(context.__file__)))))
    code = "from rlpyt.utils.logging import context; print(context.LOG_DIR)"

    def log_dir(package_root):
        environment = dict(os.environ, PYTHONPATH=str(package_root))
        return subprocess.run(
            [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
        ).stdout.strip()

    assert log_dir(root) == os.path.join(root, "data")
    shutil.copytree(os.path.join(root, "rlpyt"), tmp_path / "site-packages" / "rlpyt")
    assert log_dir(tmp_path / "site-packages") == str(tmp_path / "data")


def test_an_exception_leaves_nothing_behind_and_is_noted(tmp_path, capsys):
    descriptors = set(os.listdir("/proc/self/fd"))
    with pytest.raises(KeyError):
        with logger_context(tmp_path, 0, "x") as run_dir:
            logger.push_prefix("itr #0 ")
            logger.push_tabular_prefix("Diagnostics/")
            logger.record_tabular("half", 1)
            raise KeyError("lost key")
    assert set(os.listdir("/proc/self/fd")) == descriptors
    assert "KeyError: 'lost key'" in open(f"{run_dir}/debug.log").read()
    capsys.readouterr()
    size = os.path.getsize(f"{run_dir}/debug.log")
    logger.log("after", with_timestamp=False)
    logger.record_tabular("b", 1)
    logger.dump_tabular()
    out = capsys.readouterr().out
    assert out.startswith("after\n") and "half" not in out and "Diagnostics" not in out
    assert os.path.getsize(f"{run_dir}/debug.log") == size and logger.get_snapshot_dir() is None


def test_a_run_that_ends_by_ctrl_c_is_interrupted_and_has_not_failed(tmp_path):
    with pytest.raises(KeyboardInterrupt), logger_context(tmp_path, 0, "x") as run_dir:
        log_row(a=1)
        raise KeyboardInterrupt("The run has ended by Ctrl-C.")
    assert run_status(Path(run_dir)).state == "interrupted"
    with pytest.raises(KeyError), logger_context(tmp_path, 1, "x") as run_dir:
        raise KeyError("lost key")
    assert run_status(Path(run_dir)).state == "failed"


def test_runs_follow_one_another_and_nest(tmp_path):
    with logger_context(tmp_path, 0, "outer") as outer:
        log_row(a=1)
        with logger_context(tmp_path, 1, "inner", snapshot_mode="all") as inner:
            logger.log("from the inner run")
            log_row(b=1)
            logger.save_itr_params(0, {})
        logger.log("from the outer run")
        log_row(a=2)
        logger.save_itr_params(0, {})
    with logger_context(tmp_path, 2, "next") as last:
        log_row(c=1)
    assert read(f"{outer}/progress.csv") == [{"a": "1"}, {"a": "2"}]
    assert read(f"{inner}/progress.csv") == [{"b": "1"}] and read(f"{last}/progress.csv") == [{"c": "1"}]
    assert "inner run" not in open(f"{outer}/debug.log").read() and "outer run" not in open(f"{inner}/debug.log").read()
    assert os.path.exists(f"{outer}/params.pkl") and os.path.exists(f"{inner}/itr_0.pkl")


def test_outputs_added_by_hand_stay_for_all_runs(tmp_path):
    with logger.new_run():  # keeps what this test does to itself; the runs below shall see no enclosing run
        logger._state.in_run = False
        logger.add_text_output(tmp_path / "all.log")
        logger.add_tabular_output(tmp_path / "all.csv")
        for i in range(2):
            with logger_context(tmp_path, i, "x"):
                logger.log(f"run {i}")
                log_row(a=i)
    text = (tmp_path / "all.log").read_text()
    assert "run 0" in text and "run 1" in text and [row["a"] for row in read(tmp_path / "all.csv")] == ["0", "1"]


def test_a_resumed_run_leaves_tables_alone_that_have_rows_of_other_runs(tmp_path):
    with logger.new_run():
        logger._state.in_run = False
        logger.add_tabular_output(tmp_path / "all.csv")
        for run_ID in (0, 1):
            with logger_context(tmp_path, run_ID, "x"):
                for a in range(3 - run_ID):
                    log_row(a=a)
                assert logger.n_rows() == 3 - run_ID
        with logger_context(tmp_path, 2, "x") as run_dir:
            logger.continue_rows(tmp_path / "run_1" / "progress.csv", 1)
            assert logger.n_rows() == 1
            log_row(a=9)
    assert [row["a"] for row in read(tmp_path / "all.csv")] == ["0", "1", "2", "0", "1", "9"]
    assert [row["a"] for row in read(f"{run_dir}/progress.csv")] == ["0", "9"]


@pytest.mark.parametrize("first", ["ReturnAverage", "Return/Average", "Diagnostics/Return/Average"])
@pytest.mark.parametrize("then", ["ReturnAverage", "Return/Average"])
def test_a_resumed_run_continues_columns_whether_it_writes_for_tensorboard_or_not(first, then, tmp_path):
    prefix = first.removesuffix("Return/Average").removesuffix("ReturnAverage")
    with logger_context(tmp_path, 0, "x") as earlier:
        log_row(**{first: 1})
    with logger_context(tmp_path, 1, "x") as run_dir:
        logger.continue_rows(f"{earlier}/progress.csv", 1)
        log_row(**{prefix + then: 2, "Loss": 3})
        log_row(**{prefix + then: 4, "Loss": 5})
    assert read(f"{run_dir}/progress.csv") == [
        {first: "1", "Loss": "nan"},
        {first: "2", "Loss": "3"},
        {first: "4", "Loss": "5"},
    ]


def test_columns_that_differ_by_a_slash_alone_stay_apart(tmp_path):
    with logger_context(tmp_path, 0, "x") as earlier:
        log_row(**{"Loss/Q": 1})
    with logger_context(tmp_path, 1, "x") as run_dir:
        logger.continue_rows(f"{earlier}/progress.csv", 1)
        log_row(**{"Loss/Q": 2, "LossQ": 20})
    assert read(f"{run_dir}/progress.csv") == [{"Loss/Q": "1", "LossQ": "nan"}, {"Loss/Q": "2", "LossQ": "20"}]


def test_files_of_an_earlier_run_are_kept_under_another_name(tmp_path, capsys):
    for i in range(3):
        with logger_context(tmp_path, 0, "x", dict(i=i), snapshot_mode="last+gap") as run_dir:
            log_row(a=i)
            logger.save_itr_params(0, {"i": i})
            (tmp_path / "run_0" / "notes.txt").write_text("of the user")
    for i, number in enumerate((".1", ".2", "")):
        assert read(f"{run_dir}/progress{number}.csv") == [{"a": str(i)}]
        assert json.load(open(f"{run_dir}/params{number}.json"))["i"] == i
        for name in (f"params{number}.pkl", f"itr_0{number}.pkl"):
            assert torch.load(f"{run_dir}/{name}", weights_only=True) == {"i": i}
        assert os.path.exists(f"{run_dir}/debug{number}.log")
    assert "progress.1.csv" in capsys.readouterr().out and len(os.listdir(run_dir)) == 16


def test_a_directory_in_use_is_refused(tmp_path):
    with logger_context(tmp_path, 0, "x") as run_dir:
        log_row(a=1)
        with pytest.raises(RuntimeError, match="Another run is writing to .*run_0: give this one another run_ID"):
            with logger_context(tmp_path, 0, "x"):
                pass
        log_row(a=2)
    assert len(read(f"{run_dir}/progress.csv")) == 2
    with logger_context(tmp_path, 0, "x"):
        pass


@processes
def test_a_forked_process_that_outlives_the_run_does_not_block_the_directory(tmp_path):
    receiver, sender = os.pipe()
    with logger_context(tmp_path, 0, "x"):
        child = os.fork()
        if child == 0:
            os.read(receiver, 1)
            os._exit(0)
    with logger_context(tmp_path, 0, "x"):
        pass
    os.write(sender, b".")
    os.waitpid(child, 0)
    os.close(receiver)
    os.close(sender)


def test_settings_are_checked_before_anything_is_made(tmp_path):
    for settings in (dict(snapshot_mode="lats"), dict(tf_step="steps"), dict(snapshot_gap=0)):
        with pytest.raises(ValueError, match=next(iter(settings))):
            with logger_context(tmp_path, 0, "x", **settings):
                pass
    assert os.listdir(tmp_path) == []


def test_the_gap_can_be_given_or_set_before(tmp_path):
    with logger.new_run():
        logger.set_snapshot_gap(7)
        with logger_context(tmp_path, 0, "x", snapshot_mode="gap"):
            assert logger.get_snapshot_gap() == 7
        with logger_context(tmp_path, 0, "x", snapshot_mode="gap", snapshot_gap=3):
            assert logger.get_snapshot_gap() == 3
        assert logger.get_snapshot_gap() == 7


@pytest.mark.parametrize("tf_step, step", [("itr", 4), ("env_steps", 400)])
def test_tensorboard_files_are_written_into_the_same_directory(tmp_path, tf_step, step):
    event_accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    with logger_context(tmp_path, 0, "x", use_summary_writer=True, tf_step=tf_step) as run_dir:
        logger.set_iteration(4)
        logger.record_tabular_misc_stat("Return", [1, 3])
        log_row(**{"Diagnostics/CumSteps": 400})
        assert logger.get_tf_summary_dir() == run_dir
    assert logger.get_tf_summary_writer() is None
    events = event_accumulator.EventAccumulator(run_dir).Reload()
    assert [(event.step, event.value) for event in events.Scalars("Return/Average")] == [(step, 2.0)]
    assert "Return/Average" in read(f"{run_dir}/progress.csv")[0]


def test_without_tensorboard_the_error_says_what_to_install(tmp_path, monkeypatch):
    make_absent(monkeypatch, "tensorboard")
    monkeypatch.delitem(sys.modules, "torch.utils.tensorboard", raising=False)
    with pytest.raises(ImportError, match=r"\(tensorboard\).* pip install -c constraints.txt -e \.$"):
        with logger_context(tmp_path, 0, "x", use_summary_writer=True):
            pass
    assert os.listdir(tmp_path) == []


def test_a_parameter_can_be_added_to_finished_experiments(tmp_path, capsys):
    for i in range(2):
        with logger_context(tmp_path, i, "x", dict(lr=i)):
            pass
    add_exp_param("group", "a", tmp_path)
    add_exp_param("lr", 5, tmp_path)

    def params():
        return [json.load(open(tmp_path / f"run_{i}" / "params.json")) for i in range(2)]

    assert [(p["group"], p["lr"]) for p in params()] == [("a", 0), ("a", 1)] and "lr=0 stays" in capsys.readouterr().out
    add_exp_param("lr", 5, tmp_path, overwrite=True)
    assert [p["lr"] for p in params()] == [5, 5]


def test_progress_is_the_number_of_lines(tmp_path, capsys, monkeypatch):
    with logger_context(tmp_path / "exp", 0, "x") as run_dir:
        log_row(a=1)
        log_row(a=2)
    capsys.readouterr()
    check_progress(tmp_path)
    assert capsys.readouterr().out.split() == ["3", f"{run_dir}/progress.csv"]
    monkeypatch.chdir(tmp_path)
    check_progress()
    assert capsys.readouterr().out.split() == ["3", "exp/run_0/progress.csv"]


# ---------------------------------------------------------------------------------------------------------------------
# Names that lead elsewhere
# ---------------------------------------------------------------------------------------------------------------------
@pytest.fixture
def in_data(tmp_path, monkeypatch):
    """The current directory, with LOG_DIR in it."""
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setattr(context, "LOG_DIR", str(here / "data"))
    return here


@pytest.mark.parametrize("run_ID", ["", "..", "../x", "../../x", "/x", "a/b", "a\0b", "\ud800", "x" * 300])
def test_a_run_ID_is_part_of_one_name(run_ID, in_data, tmp_path):
    with pytest.raises(ValueError, match="run_ID=.* cannot be part of the directory's name"):
        with logger_context("exp", run_ID, "x"):
            pass
    assert os.listdir(tmp_path) == ["here"] and os.listdir(in_data) == [], "nothing has been made"


@pytest.mark.parametrize("run_ID", [0, 12, "a", "seed=3", "..b", "a b", torch.tensor(3).item()])
def test_a_run_ID_is_a_number_or_a_word(run_ID, in_data):
    with logger_context("exp", run_ID, "x") as run_dir:
        assert os.path.basename(run_dir) == f"run_{run_ID}"


@pytest.mark.parametrize("log_dir", ["..", "../..", "../x", "a/../../../x", "../../../../../../x"])
def test_a_relative_directory_stays_where_logs_are(log_dir, in_data, tmp_path):
    with pytest.raises(ValueError, match="log_dir=.* leads out of .*data/local"):
        with logger_context(log_dir, 0, "x"):
            pass
    with pytest.raises(ValueError, match="log_dir=.* leads out of .*data/local"):
        get_log_dir(log_dir)
    assert os.listdir(tmp_path) == ["here"] and os.listdir(in_data) == []


def test_an_empty_directory_is_refused(in_data):
    """As a variable of the shell is that is not set: `--log_dir "$DIR"`."""
    makes = [lambda log_dir, whole=whole: logger_context(log_dir, 0, "x", override_prefix=whole).__enter__() for whole in (False, True)]
    for make in (get_log_dir, *makes):
        with pytest.raises(ValueError, match="log_dir is empty"):
            make("")
    assert os.listdir(in_data) == []


@pytest.mark.parametrize("log_dir", ["a\0b", "\ud800", "x" * 300])
def test_a_directory_that_cannot_be_is_refused(log_dir, in_data):
    for override in (False, True):
        with pytest.raises(ValueError, match="log_dir=.* cannot be the name of a directory"):
            with logger_context(log_dir, 0, "x", override_prefix=override):
                pass
    assert os.listdir(in_data) == []


@pytest.mark.parametrize("error", [NotADirectoryError, PermissionError])
def test_a_directory_that_cannot_be_made_is_refused_in_a_sentence(error, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    if error is PermissionError:
        monkeypatch.setattr(os, "makedirs", raises(PermissionError(13, "Permission denied", "somewhere")))
    sentence = re.escape(f"The log directory {tmp_path / 'file' / 'x' / 'run_0'} cannot be made (")
    with pytest.raises(error, match=rf"^{sentence}(Not a directory|Permission denied)\): give another log_dir\.$"):
        with logger_context(str(tmp_path / "file" / "x"), 0, "test"):
            pass


def raises(error):
    def function(*args, **kwargs):
        raise error

    return function


def test_who_means_another_directory_gives_it_absolutely_or_overrides(in_data, tmp_path):
    with logger_context(str(tmp_path / "other"), 0, "x") as run_dir:
        assert run_dir == str(tmp_path / "other" / "run_0")
    with logger_context("../third", 0, "x", override_prefix=True) as run_dir:
        assert run_dir == str(tmp_path / "third" / "run_0")
    with logger_context("a/../b", 0, "x") as run_dir:
        assert os.path.relpath(run_dir, in_data).startswith("data/local/") and run_dir.endswith("/b/run_0")


def test_names_are_shown_escaped_in_the_lines_of_a_log(tmp_path, capsys):
    with logger_context(str(tmp_path / "d\x1b[2J"), "a\x1b[2J", "n\x1b[2J"):
        logger.log("hello")
    out = capsys.readouterr().out
    assert "\x1b" not in out and r"d\x1b[2J/run_a\x1b[2J" in out and r"n\x1b[2J_a\x1b[2J hello" in out


def test_warnings_that_are_shown_are_in_the_log_of_the_run_too(tmp_path, capsys):
    shown = []
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = before = lambda message, *args: shown.append(str(message))
        with logger_context(str(tmp_path), 0, "outer"):
            warnings.warn("of the outer run", stacklevel=1)
            with pytest.warns(UserWarning, match="expected"):
                warnings.warn("expected", stacklevel=1)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                warnings.warn("ignored", stacklevel=1)
            with logger_context(str(tmp_path), 1, "inner"):
                thread = threading.Thread(target=lambda: warnings.warn("of the inner run", stacklevel=1))
                thread.start()
                thread.join()
            warnings.warn("of the outer run again", stacklevel=1)
        assert warnings.showwarning is before
        warnings.warn("after both", stacklevel=1)
    assert shown == ["of the outer run", "of the inner run", "of the outer run again", "after both"]
    outer, inner = ((tmp_path / f"run_{i}" / "debug.log").read_text() for i in range(2))
    assert outer.count("test_context.py") == 2 and outer.count("UserWarning: of the outer run") == 2 and "again" in outer
    assert inner.count("UserWarning: of the inner run") == 1 and inner.splitlines()[-1] == outer.splitlines()[-1] == "Run complete."
    assert "expected" not in outer and "ignored" not in outer and "after both" not in outer + inner


def test_who_takes_the_place_of_what_shows_warnings_keeps_it(tmp_path):
    shown = []
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        with logger_context(str(tmp_path), 0, "test") as run_dir:
            before = warnings.showwarning

            def replacement(*args):
                shown.append(str(args[0]))
                before(*args)

            warnings.showwarning = replacement
            warnings.warn("inside", stacklevel=1)
        assert warnings.showwarning is replacement
        warnings.warn("outside", stacklevel=1)
    text = Path(run_dir, "debug.log").read_text()
    assert shown == ["inside", "outside"] and "UserWarning: inside" in text and "outside" not in text
