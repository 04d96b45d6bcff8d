import csv
import io
import json
import math
import os
import re
import resource
import signal
import subprocess
import sys
import time
from argparse import Namespace
from collections import namedtuple
from pathlib import Path

import numpy as np
import pytest
import torch
from tiers import full, processes

from rlpyt.utils.logging import logger
from rlpyt.utils.misc import atomic_write


@pytest.fixture(autouse=True)
def own_log():
    with logger.new_run():
        yield


def read(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


# ---------------------------------------------------------------- text


def test_a_line_has_a_time_and_prefixes_on_stdout_and_in_the_file(tmp_path, capsys):
    logger.add_text_output(tmp_path / "sub" / "debug.log")
    logger.push_prefix("run_0 ")
    with logger.prefix("itr #3 "):
        logger.log("hello")
    logger.log("bare", with_prefix=False, with_timestamp=False)
    logger.pop_prefix()
    logger.log(5, with_timestamp=False)
    lines = (tmp_path / "sub" / "debug.log").read_text().splitlines()
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} \| run_0 itr #3 hello", lines[0])
    assert lines[1:] == ["bare", "5"] and capsys.readouterr().out.splitlines() == lines


def test_prefixes_can_be_disabled_and_popped_only_as_often_as_pushed(capsys):
    logger.push_prefix("x ")
    logger.set_disable_prefix(True)
    logger.log("y", with_timestamp=False)
    assert logger.get_disable_prefix() and capsys.readouterr().out == "y\n"
    logger.pop_prefix()
    with pytest.raises(IndexError, match="push_prefix"):
        logger.pop_prefix()
    with pytest.raises(IndexError, match="push_tabular_prefix"):
        logger.pop_tabular_prefix()


def test_prefixes_end_with_their_block_even_if_it_raises(capsys):
    with pytest.raises(KeyError):
        with logger.prefix("a "), logger.tabular_prefix("a/"):
            raise KeyError
    logger.log("b", with_timestamp=False)
    logger.record_tabular("c", 1)
    logger.dump_tabular()
    assert capsys.readouterr().out.startswith("b\n") and "a/" not in capsys.readouterr().out


def test_outputs_can_be_removed_and_added_twice(tmp_path):
    file = tmp_path / "debug.log"
    for _ in range(2):
        logger.add_text_output(file)
    logger.log("once", with_timestamp=False)
    logger.remove_text_output(file)
    logger.log("not in the file")
    assert file.read_text() == "once\n"
    with pytest.raises(ValueError, match="not a text output"):
        logger.remove_text_output(file)
    with pytest.raises(ValueError, match="not a tabular output"):
        logger.remove_tabular_output(file)


def test_disable_and_enable(tmp_path, capsys):
    logger.add_text_output(tmp_path / "debug.log")
    logger.add_tabular_output(tmp_path / "progress.csv")
    logger.disable()
    logger.disable_tabular()
    logger.log("unheard")
    logger.record_tabular("a", 1)
    logger.dump_tabular()
    assert capsys.readouterr().out == (tmp_path / "debug.log").read_text() == ""
    logger.enable()
    logger.enable_tabular()
    logger.log("heard")
    logger.record_tabular("a", 2)
    logger.dump_tabular()
    assert "heard" in capsys.readouterr().out and read(tmp_path / "progress.csv") == [{"a": "2"}]


def test_color_is_for_terminals_only(tmp_path, monkeypatch):
    import io

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    logger.add_text_output(tmp_path / "debug.log")
    monkeypatch.setattr(sys, "stdout", Terminal())
    logger.log("red", with_timestamp=False, color="red")
    assert "\x1b[31mred\x1b[0m" in sys.stdout.getvalue()
    assert (tmp_path / "debug.log").read_text() == "red\n"


# ---------------------------------------------------------------- tables


def test_rows_go_to_the_csv_file_and_to_the_text_outputs(tmp_path, capsys):
    logger.add_tabular_output(tmp_path / "progress.csv")
    logger.add_text_output(tmp_path / "debug.log")
    with logger.tabular_prefix("Diagnostics/"):
        logger.record_tabular("CumSteps", 1000)
    logger.record_tabular("tensor", torch.tensor([0.5]))
    logger.record_tabular("numpy", np.float32(0.25))
    logger.record_tabular("none", None)
    logger.record_tabular("text", "abc", "ignored", also="ignored")
    logger.dump_tabular(with_prefix=False)
    assert read(tmp_path / "progress.csv") == [
        {"Diagnostics/CumSteps": "1000", "tensor": "0.5", "numpy": "0.25", "none": "nan", "text": "abc"}
    ]
    out = capsys.readouterr().out
    assert "CumSteps" in out and "1,000" in out and out == (tmp_path / "debug.log").read_text()


def test_a_row_without_values_is_none(tmp_path, capsys):
    logger.add_tabular_output(tmp_path / "progress.csv")
    logger.dump_tabular()
    assert not (tmp_path / "progress.csv").exists() and capsys.readouterr().out == ""


def test_many_values_need_the_statistics_function():
    with pytest.raises(ValueError, match=r"Return has shape \(3,\).*record_tabular_misc_stat"):
        logger.record_tabular("Return", np.zeros(3))


def row_of(tmp_path):
    path = tmp_path / "row.csv"
    logger.add_tabular_output(path)
    logger.dump_tabular()
    logger.remove_tabular_output(path)
    return {key: float(value) for key, value in read(path)[0].items()}


def test_statistics_by_name_and_placement(tmp_path):
    logger.record_tabular_misc_stat("Return", [1, 2, 6])
    logger.record_tabular_misc_stat("Loss", np.array([[1.0, 2.0], [6.0, 3.0]]), placement="front")
    assert row_of(tmp_path) == {
        "ReturnAverage": 3,
        "ReturnStd": np.std([1, 2, 6]),
        "ReturnMedian": 2,
        "ReturnMin": 1,
        "ReturnMax": 6,
        "AverageLoss": 3,
        "StdLoss": np.std([1, 2, 6, 3]),
        "MedianLoss": 2.5,
        "MinLoss": 1,
        "MaxLoss": 6,
    }
    with pytest.raises(ValueError, match="placement='middle'"):
        logger.record_tabular_misc_stat("Return", [1], placement="middle")


@pytest.mark.parametrize("values", [[], (), None, np.zeros((0, 3)), [None], [[]]])
def test_statistics_of_nothing_are_nan_without_a_warning(tmp_path, recwarn, values):
    logger.record_tabular_misc_stat("Return", values)
    assert all(np.isnan(value) for value in row_of(tmp_path).values()) and not recwarn.list


@pytest.mark.parametrize(
    "values", [7, np.float32(7), torch.tensor(7.0), [7], [torch.tensor(7.0)], [[7, 7], np.array([7])], (value for value in [7]).__next__()]
)
def test_statistics_take_numbers_arrays_and_lists_of_either(tmp_path, values):
    logger.record_tabular_misc_stat("x", values)
    assert row_of(tmp_path) == {"xAverage": 7, "xStd": 0, "xMedian": 7, "xMin": 7, "xMax": 7}


def test_statistics_of_infinite_values_do_not_warn(tmp_path, recwarn):
    logger.record_tabular_misc_stat("x", [1, float("inf")])
    row = row_of(tmp_path)
    assert row["xMax"] == float("inf") and np.isnan(row["xStd"]) and not recwarn.list


def test_a_file_that_exists_is_moved_aside(tmp_path):
    for i in range(3):
        with logger.new_run():
            logger.add_tabular_output(tmp_path / "progress.csv")
            logger.record_tabular("run", i)
            logger.dump_tabular()
    assert [read(tmp_path / name)[0]["run"] for name in ("progress.1.csv", "progress.2.csv", "progress.csv")] == ["0", "1", "2"]


def test_a_file_on_hold_is_continued(tmp_path):
    path = tmp_path / "progress.csv"
    logger.add_tabular_output(path)
    for i in range(4):
        if i == 1:
            logger.hold_tabular_output(path)
        if i == 3:
            logger.add_tabular_output(path)
        logger.record_tabular("a", i)
        logger.dump_tabular()
    assert [row["a"] for row in read(path)] == ["0", "3"]


def test_in_tabular_only_mode_stdout_gets_one_compact_table(tmp_path, capsys):
    logger.add_text_output(tmp_path / "debug.log")
    logger.set_log_tabular_only(True)
    logger.log("not shown")
    for i in range(2):
        logger.record_tabular("a", i)
        logger.dump_tabular()
    assert logger.get_log_tabular_only()
    assert [line.strip() for line in capsys.readouterr().out.splitlines()] == ["a", "0", "1"]
    assert "not shown" in (tmp_path / "debug.log").read_text()
    assert len(logger.table_printer.rows) == 2


@processes
def test_output_to_a_pipe_or_file_has_no_carriage_returns(tmp_path):
    code = f"""
from rlpyt.utils.logging import logger
from rlpyt.utils.logging.context import logger_context
from rlpyt.utils.prog_bar import ProgBarCounter
with logger_context({str(tmp_path)!r}, 0, "name"):
    for itr in range(3):
        bar = ProgBarCounter(5)
        for i in range(5):
            bar.update(i)
        logger.log("text", color="red")
        bar.stop()
        logger.record_tabular_misc_stat("Return", [itr])
        logger.dump_tabular()
        if itr == 1:
            logger.set_log_tabular_only(True)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    written = result.stdout + result.stderr + b"".join(path.read_bytes() for path in tmp_path.rglob("*.*") if path.is_file())
    assert b"Return" in result.stdout and b"\r" not in written and b"\x1b" not in written and result.stderr == b""


# ---------------------------------------------------------------- TensorBoard


class Writer:
    def __init__(self):
        self.points = []

    def add_scalar(self, *point):
        self.points.append(point)


@pytest.mark.parametrize("step, expected", [("itr", 7), ("env_steps", 700)])
def test_tensorboard_gets_the_numbers_at_the_chosen_step(tmp_path, step, expected):
    writer = Writer()
    logger.set_tf_summary_writer(writer)
    logger.set_tf_step(step)
    logger.set_iteration(7)
    logger.record_tabular("note", "text")
    logger.record_tabular_misc_stat("Return", [1, 3])
    logger.record_tabular("Diagnostics/CumSteps", 700)
    row = row_of_text(tmp_path)
    assert logger.get_tf_summary_writer() is writer and logger.get_tf_step() == step
    assert ("Return/Average", 2.0, expected) in writer.points and ("Diagnostics/CumSteps", 700, expected) in writer.points
    assert len(writer.points) == 6 and "Return/Average" in row
    logger.record_tabular("later", 1)  # a row without CumSteps
    logger.dump_tabular()
    assert writer.points[-1] == ("later", 1, expected)


def row_of_text(tmp_path):
    logger.add_tabular_output(tmp_path / "row.csv")
    logger.dump_tabular()
    return read(tmp_path / "row.csv")[0]


def test_counting_environment_steps_without_any_warns_once(capsys):
    writer = Writer()
    logger.set_tf_summary_writer(writer)
    logger.set_tf_step("env_steps")
    for _ in range(3):
        logger.record_tabular("a", 1)
        logger.dump_tabular()
    assert capsys.readouterr().out.count("WARNING") == 1 and writer.points == []


def test_an_unknown_step_is_refused(tmp_path):
    with pytest.raises(ValueError, match="tf_step='steps'.*env_steps"):
        logger.set_tf_step("steps")
    logger.set_tf_summary_dir(tmp_path)
    assert logger.get_tf_summary_dir() == str(tmp_path)


# ---------------------------------------------------------------- snapshots


@pytest.mark.parametrize(
    "mode, names",
    [
        ("none", []),
        ("last", ["params.pkl", "params_previous.pkl"]),
        ("all", [f"itr_{i}.pkl" for i in range(10)]),
        ("gap", ["itr_0.pkl", "itr_3.pkl", "itr_7.pkl"]),
        ("last+gap", ["itr_0.pkl", "itr_3.pkl", "itr_7.pkl", "params.pkl", "params_previous.pkl"]),
    ],
)
def test_snapshot_modes(tmp_path, mode, names):
    logger.set_snapshot_dir(tmp_path)
    logger.set_snapshot_mode(mode)
    logger.set_snapshot_gap(4)
    for itr in range(10):
        logger.save_itr_params(itr, {"itr": itr})
    assert sorted(os.listdir(tmp_path)) == names
    for name in names:
        itr = {"params.pkl": 9, "params_previous.pkl": 8}.get(name) or int(re.findall(r"\d+|$", name)[0] or 0)
        assert torch.load(tmp_path / name, weights_only=True) == {"itr": itr}
    assert (logger.get_snapshot_mode(), logger.get_snapshot_gap(), logger.get_snapshot_dir()) == (mode, 4, str(tmp_path))


def test_a_gap_is_kept_as_well_as_possible_if_not_every_iteration_is_saved(tmp_path):
    logger.set_snapshot_dir(tmp_path)
    logger.set_snapshot_mode("gap")
    logger.set_snapshot_gap(100)
    for itr in range(0, 500, 30):
        logger.save_itr_params(itr, {})
    assert sorted(int(name[4:-4]) for name in os.listdir(tmp_path)) == [0, 120, 210, 300, 420]


@pytest.mark.parametrize("mode, itr, names", [("best", 0, {"best.pkl", "params.pkl"}), ("gap", 9, {"itr_9.pkl"})])
def test_each_directory_has_snapshots_as_if_it_were_the_first(mode, itr, names, tmp_path):
    logger.set_snapshot_mode(mode)
    logger.set_snapshot_gap(5)
    for directory, score in ((tmp_path / "a", 100.0), (tmp_path / "b", 50.0)):
        logger.set_snapshot_dir(directory)
        logger.save_itr_params(itr, {}, score=score)
        assert set(os.listdir(directory)) == names and logger.best_score() == (score if mode == "best" else -math.inf)


def test_a_misspelt_mode_is_refused_with_those_there_are():
    with pytest.raises(ValueError, match="snapshot_mode='lats'.*none, last, all, gap, last\\+gap"):
        logger.set_snapshot_mode("lats")
    with pytest.raises(ValueError, match="snapshot_gap=0"):
        logger.set_snapshot_gap(0)


def test_without_a_directory_nothing_is_saved():
    logger.set_snapshot_dir(None)
    logger.save_itr_params(0, {"not": object()})


def test_what_cannot_be_loaded_is_refused_and_the_old_snapshot_stays(tmp_path):
    logger.set_snapshot_dir(tmp_path)
    logger.save_itr_params(0, {"a": 1})
    with pytest.raises(TypeError, match=r"params\['b'\]"):
        logger.save_itr_params(1, {"b": object()})
    assert torch.load(tmp_path / "params.pkl", weights_only=True) == {"a": 1} and os.listdir(tmp_path) == ["params.pkl"]


@full
@processes
def test_killed_at_any_moment_a_loadable_snapshot_remains_and_the_rest_is_swept(tmp_path):
    rng = np.random.default_rng(0)
    for _ in range(20):
        saved, saving = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                logger.set_snapshot_dir(tmp_path)
                for itr in range(10**9):
                    logger.save_itr_params(itr, {"itr": itr, "weights": torch.full((20000,), float(itr))})
                    os.write(saving, b".")
            finally:
                os._exit(1)
        for _ in range(2):
            assert os.read(saved, 1) == b"."
        time.sleep(rng.uniform(0, 0.05))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(saved), os.close(saving)
        for file in (tmp_path / "params.pkl", tmp_path / "params_previous.pkl"):
            snapshot = torch.load(file, weights_only=True)
            assert torch.equal(snapshot["weights"], torch.full((20000,), float(snapshot["itr"])))
    atomic_write(tmp_path / "params.pkl").__enter__()  # in case all kills came at harmless moments
    logger.set_snapshot_dir(tmp_path)
    assert sorted(os.listdir(tmp_path)) == ["params.pkl", "params_previous.pkl"]


@pytest.fixture
def disk_limit():
    """Files may grow up to so many bytes: a write is cut short there, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda n_bytes: resource.setrlimit(resource.RLIMIT_FSIZE, (soft if n_bytes is None else n_bytes, hard))
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_costs_a_warning_and_the_old_snapshot_stays(tmp_path, disk_limit, capsys):
    logger.set_snapshot_dir(tmp_path)
    logger.set_snapshot_mode("last+gap")
    logger.save_itr_params(0, {"itr": 0})
    disk_limit(10**6)
    large = torch.zeros(10**6)
    for itr in (1, 2):
        logger.save_itr_params(itr, {"itr": itr, "large": large})
    assert capsys.readouterr().out.count("WARNING") == 3  # for params.pkl, itr_1.pkl, itr_2.pkl
    assert sorted(os.listdir(tmp_path)) == ["itr_0.pkl", "params.pkl"]
    assert torch.load(tmp_path / "params.pkl", weights_only=True) == {"itr": 0}
    disk_limit(None)
    logger.save_itr_params(3, {"itr": 3, "large": large})
    assert torch.load(tmp_path / "params.pkl", weights_only=True)["itr"] == 3


def test_unwritable_text_and_table_files_do_not_end_the_run_and_rows_come_later(tmp_path, capsys):
    directory, away = tmp_path / "run", tmp_path / "away"
    logger.add_text_output(directory / "debug.log")
    logger.add_tabular_output(directory / "progress.csv")
    logger.record_tabular("a", 0)
    logger.dump_tabular()
    os.rename(directory, away)
    for i in (1, 2):
        logger.log("still here")
        logger.record_tabular("a", i)
        logger.dump_tabular()
    out = capsys.readouterr().out
    assert out.count("still here") == 2 and out.count("WARNING") == 2
    os.rename(away, directory)
    logger.record_tabular("a", 3)
    logger.dump_tabular()
    assert [row["a"] for row in read(directory / "progress.csv")] == ["0", "1", "2", "3"]


def test_a_closed_terminal_does_not_end_the_run(tmp_path, monkeypatch):
    class Gone:
        def isatty(self):
            return False

        def write(self, text):
            raise OSError(5, "Input/output error")

    logger.add_text_output(tmp_path / "debug.log")
    monkeypatch.setattr(sys, "stdout", Gone())
    for _ in range(2):
        logger.log("into the void")
    text = (tmp_path / "debug.log").read_text()
    assert text.count("void") == 2 and text.count("WARNING: stdout could not be written") == 1


class Tee:
    """What users put in place of stdout: it writes to several streams."""

    def __init__(self, *streams):
        self.streams = streams

    def write(self, text):
        for stream in self.streams:
            stream.write(text)


@pytest.mark.parametrize("only_tables", [False, True])
@pytest.mark.parametrize("is_there", [True, False])
def test_stdout_may_be_any_stream_or_none(tmp_path, monkeypatch, only_tables, is_there):
    shown = io.StringIO()
    monkeypatch.setattr(sys, "stdout", Tee(shown) if is_there else None)
    logger.set_log_tabular_only(only_tables)
    logger.add_text_output(tmp_path / "debug.log")
    logger.warn("heard")
    logger.record_tabular("column", 1)
    logger.dump_tabular()
    assert ("column" in shown.getvalue()) is is_there and ("heard" in shown.getvalue()) is (is_there and not only_tables)
    assert "heard" in (tmp_path / "debug.log").read_text()


# ---------------------------------------------------------------- parameters


class Thing:
    pass


def test_parameters_are_written_readably(tmp_path):
    Point = namedtuple("Point", ["x", "y"])
    config = dict(
        lr=np.float32(0.5),
        n=np.int64(3),
        flag=np.bool_(True),
        OptimCls=torch.optim.Adam,
        thing=Thing(),
        array=np.arange(3),
        weights=torch.zeros(20, 30),
        tensor=torch.tensor(1.5),
        path=Path("a/b"),
        none=None,
        nested={1: (1, 2), "point": Point(1, Thing)},
        function=np.mean,
        method="text",
        values={5},
    )
    logger.log_parameters_lite(tmp_path / "new" / "params.json", config)
    here = Thing.__module__
    assert json.loads((tmp_path / "new" / "params.json").read_text()) == dict(
        lr=0.5,
        n=3,
        flag=True,
        OptimCls="torch.optim.adam.Adam",
        thing=f"{here}.Thing",
        array=[0, 1, 2],
        weights="torch.Tensor of shape (20, 30)",
        tensor=1.5,
        path="a/b",
        none=None,
        nested={"1": [1, 2], "point": {"x": 1, "y": f"{here}.Thing"}},
        function="numpy.mean",
        method="text",
        values=[5],
    )


def test_other_ways_to_write_parameters(tmp_path):
    logger.log_parameters_lite(tmp_path / "a", Namespace(seed=3))
    logger.log_parameters(tmp_path / "b", Namespace(seed=3), {"algo": Thing})
    logger.log_variant(tmp_path / "c", {"seed": np.int64(3)})
    read_json = [json.loads((tmp_path / name).read_text()) for name in "abc"]
    assert read_json == [{"seed": 3}, {"seed": 3, "algo": f"{Thing.__module__}.Thing"}, {"seed": 3}]
    assert json.loads(json.dumps({"thing": Thing()}, cls=logger.MyEncoder)) == {"thing": f"{Thing.__module__}.Thing"}


# ---------------------------------------------------------------- one run after another


def test_a_new_run_takes_settings_along_but_no_records_and_gives_them_back(capsys):
    logger.set_snapshot_gap(5)
    logger.push_prefix("outer ")
    logger.record_tabular("outer", 1)
    with logger.new_run():
        assert logger.get_snapshot_gap() == 5
        logger.set_snapshot_gap(6)
        logger.push_prefix("inner ")
        logger.log("x", with_timestamp=False)
        logger.record_tabular("inner", 1)
    logger.log("y", with_timestamp=False)
    assert logger.get_snapshot_gap() == 5 and capsys.readouterr().out == "outer inner x\nouter y\n"
    logger.dump_tabular()
    out = capsys.readouterr().out
    assert "outer" in out and "inner" not in out


def test_no_file_stays_open(tmp_path):
    before = set(os.listdir("/proc/self/fd"))
    logger.add_text_output(tmp_path / "debug.log")
    logger.add_tabular_output(tmp_path / "progress.csv")
    logger.set_snapshot_dir(tmp_path)
    logger.log("a")
    logger.record_tabular("a", 1)
    logger.dump_tabular()
    logger.save_itr_params(0, {})
    assert set(os.listdir("/proc/self/fd")) == before


# ---------------------------------------------------------------------------------------------------------------------
# Characters that cannot be encoded
# ---------------------------------------------------------------------------------------------------------------------
def test_what_cannot_be_encoded_is_escaped_in_all_outputs(tmp_path, monkeypatch):
    terminal = io.TextIOWrapper(io.BytesIO(), "ascii")
    monkeypatch.setattr(sys, "stdout", terminal)
    log, table = tmp_path / "debug.log", tmp_path / "progress.csv"
    logger.add_text_output(log)
    logger.add_tabular_output(table)
    logger.log("bad \udcff → ç")
    for values in ({"a": 1, "c\udcff": "v\ud800"}, {"a": 2, "d": 1}):
        for key, value in values.items():
            logger.record_tabular(key, value)
        logger.dump_tabular()
    logger.set_log_tabular_only(True)
    logger.record_tabular("c\udcff", "→")
    logger.dump_tabular()
    terminal.flush()
    shown = terminal.buffer.getvalue().decode("ascii")
    assert r"bad \udcff \u2192 \xe7" in shown and r"c\udcff" in shown
    assert r"bad \udcff → ç" in log.read_text(encoding="utf-8")
    assert [row.get(r"c\udcff") for row in read(table)] == [r"v\ud800", "nan", "→"]


def test_a_writer_gets_names_that_can_be_encoded():
    class Writer:
        names = []

        def add_scalar(self, name, value, step):
            self.names.append(name.encode())

    logger.set_tf_summary_writer(Writer())
    logger.record_tabular("a\udcff", 1)
    logger.dump_tabular()
    assert Writer.names == [rb"a\udcff"]


def test_the_table_of_others_may_have_any_bytes(tmp_path):
    (tmp_path / "old.csv").write_bytes(b"a,b\xff\n1,2\n3,4\n")
    logger.add_tabular_output(tmp_path / "progress.csv")
    logger.continue_rows(tmp_path / "old.csv", 1)
    logger.record_tabular("a", 5)
    logger.dump_tabular()
    assert (tmp_path / "progress.csv").read_text() == "a,b\\xff\n1,2\n5,nan\n"


# ---------------------------------------------------------------- how much is shown


@pytest.mark.parametrize("verbose, expected", [(0, ["careful"]), (1, ["careful", "what happens"]), (2, ["careful", "what happens", "all"])])
def test_the_screen_shows_as_much_as_was_chosen_and_files_get_every_line(verbose, expected, tmp_path, capsys):
    logger.add_text_output(tmp_path / "debug.log")
    logger.set_verbose(verbose)
    logger.warn("careful")
    logger.log("what happens")
    logger.log("all", level=2)
    shown = [line.split(" | ")[1].removeprefix("WARNING: ") for line in capsys.readouterr().out.splitlines()]
    assert shown == expected and logger.get_verbose() == verbose
    assert (tmp_path / "debug.log").read_text().count("\n") == 3


@pytest.mark.parametrize("verbose", [0, 1, 2])
def test_the_table_leaves_out_details_unless_all_is_shown_and_the_csv_file_has_everything(verbose, tmp_path, capsys):
    logger.add_tabular_output(tmp_path / "progress.csv")
    logger.set_verbose(verbose)
    with logger.tabular_prefix("Diagnostics/"):
        logger.record_tabular("CumSteps", 100)
        logger.record_tabular("WaitingTime (s)", 1.5, detail=True)
    logger.record_tabular_misc_stat("gradNorm", [1, 2], detail=True)
    logger.record_tabular_misc_stat("mine", [1, 2])
    row = logger.dump_tabular()
    shown = capsys.readouterr().out
    assert [name in shown for name in ("CumSteps", "mine", "WaitingTime", "gradNorm")] == [verbose >= 1] * 2 + [verbose == 2] * 2
    assert len(row) == len(read(tmp_path / "progress.csv")[0]) == 12


def test_a_column_is_what_it_was_recorded_as_last_and_for_one_row(capsys):
    logger.record_tabular("a", 1, detail=True)
    logger.dump_tabular()
    assert capsys.readouterr().out == "", "A table of details only is none."
    logger.record_tabular("a", 2)
    logger.record_tabular("b", 1, detail=True)
    logger.record_tabular("b", 2)
    logger.dump_tabular()
    shown = capsys.readouterr().out
    assert "a  2" in shown and "b  2" in shown


def test_verbosity_is_for_a_block_and_reaches_the_runs_inside(capsys):
    with logger.verbosity(0):
        with logger.new_run():
            assert logger.get_verbose() == 0
        logger.log("not shown")
        with logger.verbosity(None):
            logger.show("neither")
    logger.show("as it is")
    assert logger.get_verbose() == 1 and capsys.readouterr().out == "as it is\n"
    for wrong in (3, -1, True, "2", 1.5):
        with pytest.raises(ValueError, match="verbose="):
            logger.set_verbose(wrong)
