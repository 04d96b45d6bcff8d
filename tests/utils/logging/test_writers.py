"""Weights & Biases, by a stand-in for its module, and once by itself, offline, where it is installed."""

import csv
import json
import sys
import time
import types

import pytest
from tiers import full, processes

from rlpyt.utils.logging import logger
from rlpyt.utils.logging.context import logger_context
from rlpyt.utils.logging.writers import Writers


class FakeRun:
    """Records what a run of Weights & Biases is told."""

    def __init__(self, **settings):
        self.settings, self.rows, self.metrics, self.exit_code = settings, [], {}, None

    def define_metric(self, name, step_metric=None):
        self.metrics[name] = step_metric

    def log(self, row):
        self.rows.append(dict(row))

    def finish(self, exit_code=None):
        self.exit_code = exit_code


@pytest.fixture
def wandb_runs(monkeypatch):
    """Runs begun, in a stand-in for the module."""
    module, runs = types.ModuleType("wandb"), []

    def init(**settings):
        runs.append(FakeRun(**settings))
        return runs[-1]

    module.init = init
    monkeypatch.setitem(sys.modules, "wandb", module)
    return runs


def write_rows(n=3):
    for itr in range(n):
        logger.set_iteration(itr)
        logger.record_tabular("Diagnostics/CumSteps", itr * 100)
        logger.record_tabular("Note", "text is not for curves")
        logger.record_tabular_misc_stat("Return", [itr, itr + 2])
        logger.dump_tabular()


@pytest.mark.parametrize("tf_step, steps", [("itr", [0, 1, 2]), ("env_steps", [0, 100, 200])])
def test_every_row_is_sent_at_its_step(tmp_path, wandb_runs, tf_step, steps):
    with logger_context(tmp_path, 4, "ppo", dict(lr=0.5, shape=(1, 2)), use_wandb=True, tf_step=tf_step):
        write_rows()
        assert wandb_runs[0].exit_code is None
    (run,) = wandb_runs
    assert run.settings == dict(dir=str(tmp_path / "run_4"), name="ppo_4", config=dict(lr=0.5, shape=[1, 2], name="ppo", run_ID=4))
    assert run.metrics == {"global_step": None, "*": "global_step"} and run.exit_code == 0
    assert [row["global_step"] for row in run.rows] == steps
    assert [row["Return/Average"] for row in run.rows] == [1, 2, 3] and "Note" not in run.rows[0]


def test_settings_of_its_own_go_before_the_others(tmp_path, wandb_runs):
    with logger_context(tmp_path, 0, "x", use_wandb=dict(project="atari", mode="offline", name="mine")):
        pass
    settings = wandb_runs[0].settings
    assert (settings["project"], settings["mode"], settings["name"]) == ("atari", "offline", "mine")


def test_runs_follow_one_another_without_mixing(tmp_path, wandb_runs):
    for run_ID in range(2):
        with logger_context(tmp_path, run_ID, "x", use_wandb=True):
            write_rows(run_ID + 1)
    with logger_context(tmp_path, 2, "x"):
        write_rows()
    assert [len(run.rows) for run in wandb_runs] == [1, 2]
    assert "ReturnAverage" in (tmp_path / "run_2" / "progress.csv").read_text()


@pytest.mark.parametrize("error, exit_code", [(ValueError, 1), (KeyboardInterrupt, 1), (SystemExit, 0)])
def test_a_run_that_fails_is_ended_as_failed(tmp_path, wandb_runs, error, exit_code):
    with pytest.raises(error), logger_context(tmp_path, 0, "x", use_wandb=True):
        raise error
    assert wandb_runs[0].exit_code == exit_code


def test_tensorboard_and_wandb_get_the_same(tmp_path, wandb_runs):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with logger_context(tmp_path, 0, "x", use_wandb=True, use_summary_writer=True, tf_step="env_steps"):
        write_rows()
    events = EventAccumulator(str(tmp_path / "run_0"))
    events.Reload()
    points = [(event.step, event.value) for event in events.Scalars("Return/Average")]
    assert points == [(row["global_step"], row["Return/Average"]) for row in wandb_runs[0].rows] == [(0, 1), (100, 2), (200, 3)]
    with open(tmp_path / "run_0" / "progress.csv") as file:
        assert [float(row["Return/Average"]) for row in csv.DictReader(file)] == [1, 2, 3]


def test_without_it_the_error_names_the_extra_and_nothing_is_made(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ImportError, match=r'-c constraints.txt -e "\.\[wandb\]"'), logger_context(tmp_path, 0, "x", use_wandb=True):
        pass
    assert not list(tmp_path.iterdir())


def test_writers_hand_on_everything_in_order():
    told = []

    def writer(name):
        return types.SimpleNamespace(
            add_scalar=lambda *args: told.append((name, *args)), flush=lambda: told.append((name,)), close=lambda: told.append(name)
        )

    writers = Writers([writer("a"), writer("b")])
    writers.add_scalar("x", 1.0, 2)
    writers.flush()
    writers.close()
    assert told == [("a", "x", 1.0, 2), ("b", "x", 1.0, 2), ("a",), ("b",), "a", "b"]


@full
@processes
@pytest.mark.timeout(120)
def test_offline_it_writes_into_the_directory_of_the_run(tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_SILENT", "true")
    with logger_context(tmp_path, 0, "x", dict(lr=0.5), use_wandb=dict(project="test", mode="offline")):
        write_rows()
    (file,) = (tmp_path / "run_0" / "wandb").glob("offline-run-*/*.wandb")
    names, end = (b"Return/Average", b"global_step", b"Diagnostics/CumSteps"), time.monotonic() + 60
    while not all(name in file.read_bytes() for name in names):  # Its own process writes, in its own time.
        assert time.monotonic() < end
        time.sleep(0.1)
    assert json.loads((tmp_path / "run_0" / "params.json").read_text())["lr"] == 0.5
