"""A run stops when it is solved, or when a hook says so: at a row of the log, with a snapshot, and as a run that has finished."""

import csv
import functools
import os
import pickle
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from envs import CountingEnv
from tiers import full, thinned

from rlpyt.agents.dqn.mlp_dqn_agent import MlpDqnAgent
from rlpyt.agents.pg.mlp import MlpFfAgent
from rlpyt.algos.dqn.dqn import DQN
from rlpyt.algos.pg.a2c import A2C
from rlpyt.envs.gym import make
from rlpyt.experiment import SnapshotConfig
from rlpyt.runners import sync_rl
from rlpyt.runners.async_rl import AsyncRl, AsyncRlEval
from rlpyt.runners.minibatch_rl import MinibatchRl, MinibatchRlEval
from rlpyt.runners.sync_rl import SyncRl, SyncRlEval
from rlpyt.runners.trainer import Trainer
from rlpyt.samplers.async_.serial_sampler import AsyncSerialSampler
from rlpyt.samplers.serial.sampler import SerialSampler
from rlpyt.utils.launching.status import run_status
from rlpyt.utils.logging import logger
from rlpyt.utils.logging.context import logger_context

ONE = dict(master_torch_threads=1, workers_cpus=[0], set_affinity=False)
# Each environment plays 10 episodes with return 1 + ... + 5 = 15, which takes 50 steps, then episodes with return 1 + ... + 10 = 55.
IMPROVING = [5] * 10 + [10] * 10**4


def sampler(EnvCls=CountingEnv, SamplerCls=SerialSampler, env_kwargs=None, B=4, **settings):
    env_kwargs = dict(episode_length=IMPROVING) if env_kwargs is None else env_kwargs
    return SamplerCls(EnvCls, env_kwargs, batch_T=5, batch_B=B, max_decorrelation_steps=0, **settings)


def build(RunnerCls=MinibatchRl, algo=None, agent=None, sampler=sampler, n_steps=1000, **settings):
    """A runner with a row of the log every 100 steps; with `MinibatchRl`, of the last 8 trajectories."""
    window = dict(log_traj_window=8) if issubclass(RunnerCls, MinibatchRl) else {}
    settings = {**dict(seed=0, log_interval_steps=100, affinity=ONE), **window, **settings}
    return RunnerCls(algo=algo or A2C(), agent=agent or MlpFfAgent(), sampler=sampler(), n_steps=n_steps, **settings)


def train(runner, log_dir, snapshot_mode="last"):
    with logger_context(str(log_dir), 0, "test", snapshot_mode=snapshot_mode) as run_dir:
        runner.train()
    return Path(run_dir)


def rows(run_dir):
    with open(run_dir / "progress.csv") as file:
        return list(csv.DictReader(file))


def steps(run_dir):
    return [int(row["Diagnostics/CumSteps"]) for row in rows(run_dir)]


def snapshot(run_dir, name="params.pkl"):
    return torch.load(run_dir / name, weights_only=True)


def last_words(run_dir, n=2):
    """The last lines of the log, without their times and titles."""
    return [line.split("test_0 ")[1] for line in (run_dir / "debug.log").read_text().splitlines() if "test_0 " in line][-n:]


# --- stop_return ------------------------------------------------------------------------------------------------------
def test_a_run_stops_at_the_first_row_with_that_mean_return_and_has_finished(tmp_path):
    runner = build(stop_return=55)
    run_dir = train(runner, tmp_path)
    assert steps(run_dir) == [100, 200, 300]
    assert [float(row["ReturnAverage"]) for row in rows(run_dir)] == [15, 15, 55]
    assert runner.stop_reason == "Solved: mean return 55.0 over the last 8 trajectories (stop_return=55), after 300 steps."
    assert last_words(run_dir) == [runner.stop_reason, "Training complete."]
    assert snapshot(run_dir)["cum_steps"] == 300 and run_status(run_dir).state == "finished"
    log = (run_dir / "debug.log").read_text()
    assert "itr #9 20% of 1,000 steps" in log and "itr #14 30%" not in log, "announces iterations that do not come"


def test_a_run_that_is_not_solved_takes_all_its_steps(tmp_path):
    runner = build(stop_return=55.1, n_steps=400)
    assert steps(train(runner, tmp_path)) == [100, 200, 300, 400] and runner.stop_reason is None


def test_a_window_that_is_not_full_stops_no_run(tmp_path):
    """There are 20 trajectories with a return of 15 per row."""
    runner = build(stop_return=15, log_traj_window=21)
    assert steps(train(runner, tmp_path)) == [100, 200]
    assert "over the last 21 trajectories" in runner.stop_reason


def test_the_snapshot_is_saved_also_where_none_is_due(tmp_path):
    runner = build(stop_return=55)
    with logger_context(str(tmp_path), 0, "test", snapshot_mode="gap", snapshot_gap=1000) as run_dir:
        runner.train()
    names = sorted(path.name for path in Path(run_dir).glob("*.pkl"))
    assert names == ["itr_14.pkl"] and snapshot(Path(run_dir), names[0])["cum_steps"] == 300


def evaluating(lengths, eval_max_steps, **settings):
    env_kwargs = [dict(episode_length=length) for length in lengths]
    return functools.partial(sampler, eval_n_envs=len(lengths), eval_env_kwargs=env_kwargs, eval_max_steps=eval_max_steps, **settings)


def test_an_evaluating_run_stops_at_the_mean_return_of_an_evaluation(tmp_path):
    """Also at the one before training, whose snapshot is saved although learning has not begun."""
    algo = DQN(min_steps_learn=200, replay_size=1000, batch_size=8, replay_ratio=1)
    runner = build(MinibatchRlEval, algo, MlpDqnAgent(), evaluating([5, 10], 40), stop_return=28)
    run_dir = train(runner, tmp_path)
    assert steps(run_dir) == [0] and snapshot(run_dir)["cum_steps"] == 0 and run_status(run_dir).state == "finished"
    words = "Solved: mean return 28.3 over the 6 trajectories of the evaluation (stop_return=28), after 0 steps."
    assert runner.stop_reason == last_words(run_dir)[0] == words


def test_a_run_that_is_solved_before_learning_has_begun_is_saved(tmp_path):
    algo = DQN(min_steps_learn=200, replay_size=1000, batch_size=8, replay_ratio=1)
    run_dir = train(build(algo=algo, agent=MlpDqnAgent(), stop_return=15), tmp_path)
    assert steps(run_dir) == [100] and snapshot(run_dir)["cum_steps"] == 100


@pytest.mark.parametrize("limit, is_enough", [({}, False), (dict(eval_max_trajectories=1), True)])
def test_an_evaluation_with_fewer_trajectories_than_environments_stops_no_run(limit, is_enough, tmp_path):
    """Unless there are to be fewer."""
    runner = build(MinibatchRlEval, sampler=evaluating([5, 1000], 10, **limit), stop_return=15, n_steps=100)
    run_dir = train(runner, tmp_path)
    assert [row["Diagnostics/TrajsInEval"] for row in rows(run_dir)] == (["1"] if is_enough else ["1", "1"])
    assert (runner.stop_reason is not None) == is_enough


@pytest.mark.parametrize("bad", [float("inf"), float("nan"), "475", True, [475]])
def test_a_stop_return_that_is_no_number_is_refused(bad):
    with pytest.raises(ValueError, match="stop_return=.* must be a finite number"):
        build(stop_return=bad)


def test_a_trainer_trains_until_solved_with_a_runner_that_does(tmp_path):
    runner_of = functools.partial(MinibatchRl, stop_return=55, log_traj_window=8)
    with logger_context(str(tmp_path), 0, "test") as run_dir:
        trainer = Trainer(SnapshotConfig(run_dir))
        trainer.setup(A2C(), agent=MlpFfAgent(), sampler=sampler(), seed=0, affinity=ONE, RunnerCls=runner_of)
        assert trainer.train(n_epochs=10, batch_size=100) == 55
    assert steps(Path(run_dir)) == [100, 200, 300] and snapshot(Path(run_dir))["cum_steps"] == 300


# --- Resuming ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("RunnerCls", [MinibatchRl, MinibatchRlEval])
def test_a_solved_run_that_is_resumed_trains_no_further(RunnerCls, tmp_path):
    settings = dict(RunnerCls=RunnerCls, sampler=evaluating([5], 20, env_kwargs=dict(episode_length=5)), stop_return=15)
    run_dir = train(build(**settings), tmp_path)
    before = rows(run_dir)
    resumed = build(**settings, resume_from=run_dir)
    resumed.run_iteration = None
    train(resumed, tmp_path)
    assert rows(run_dir) == before and run_status(run_dir).state == "finished"
    assert (run_dir / "params.pkl").is_file(), "only the one that the second run has put aside is there"
    assert "Solved: mean return 15.0" in last_words(run_dir)[0] and "to train on, change stop_return" in last_words(run_dir)[0]
    again = build(**settings, resume_from=run_dir)
    again.run_iteration = None
    assert rows(train(again, tmp_path)) == before


@pytest.mark.parametrize("stop_return, n_rows", [pytest.param(None, 5, marks=full), (55.5, 5), (15, 1)])
def test_with_another_stop_return_a_solved_run_goes_on_until_that_is_reached(stop_return, n_rows, tmp_path):
    run_dir = train(build(stop_return=15), tmp_path)
    assert steps(run_dir) == [100]
    train(build(stop_return=stop_return, n_steps=500, resume_from=run_dir), tmp_path)
    assert len(rows(run_dir)) == n_rows


@full
def test_a_runner_that_trains_anew_does_not_stop_because_it_did_before(tmp_path):
    runner = build(stop_return=55)
    train(runner, tmp_path / "a")
    runner.stop_return = None
    assert steps(train(runner, tmp_path / "b"))[-1] == 1000


# --- Hooks ------------------------------------------------------------------------------------------------------------
def test_hooks_are_called_in_order_with_the_runner_and_what_the_row_holds(tmp_path):
    seen = []
    runner = build(n_steps=200, hooks=[lambda *args: seen.append((1, *args)), lambda *args: seen.append((2, *args))])
    table = rows(train(runner, tmp_path))
    assert [number for number, _, _ in seen] == [1, 2, 1, 2] and all(each is runner for _, each, _ in seen)
    for (_, _, row), written in zip(seen[::2], table, strict=True):
        assert list(row) == list(written)
        np.testing.assert_equal([float(value) for value in row.values()], [float(text) for text in written.values()])


def enough(runner, row):
    return row["Diagnostics/CumSteps"] >= 200


@pytest.mark.parametrize("hook", [enough, lambda runner, row: np.bool_(enough(runner, row))])
def test_a_hook_stops_the_run_which_has_finished_then(hook, tmp_path):
    seen = []
    runner = build(hooks=[hook, lambda runner, row: seen.append(row)], stop_return=1000)
    run_dir = train(runner, tmp_path)
    assert steps(run_dir) == [100, 200] and len(seen) == 2, "all hooks see the last row"
    assert snapshot(run_dir)["cum_steps"] == 200 and run_status(run_dir).state == "finished"
    name = "enough" if hook is enough else "<lambda>"
    assert last_words(run_dir) == [f"Stopped by the hook {name}, after 200 steps.", "Training complete."]


@pytest.mark.parametrize("answer", thinned([1, "yes", [True], None, False], quick=[[True], None]))
def test_what_is_not_true_itself_does_not_stop_a_run(answer, tmp_path):
    calls = []
    assert steps(train(build(n_steps=200, hooks=[lambda *_: calls.append(0) or answer]), tmp_path)) == [100, 200]
    assert len(calls) == 2


def test_a_run_that_a_hook_stopped_goes_on_when_it_is_resumed(tmp_path):
    run_dir = train(build(hooks=[enough]), tmp_path)
    train(build(n_steps=400, resume_from=run_dir), tmp_path)
    assert steps(run_dir) == [100, 200, 300, 400]


def test_what_hooks_change_is_in_the_snapshot_so_that_a_resumed_run_is_the_same(tmp_path):
    def run(log_dir, **settings):
        cartpole = functools.partial(sampler, make, env_kwargs=dict(id="CartPole-v1"))
        runner = build(sampler=cartpole, hooks=[lambda *_: torch.rand(7) is None], **settings)
        return runner.agent, train(runner, log_dir)

    whole, _ = run(tmp_path / "whole", n_steps=400)
    _, run_dir = run(tmp_path / "parts", n_steps=200)
    resumed, _ = run(tmp_path / "parts", n_steps=400, resume_from=run_dir)
    torch.testing.assert_close(resumed.state_dict(), whole.state_dict(), rtol=0, atol=0)


class Pruned(Exception):
    pass


def prune(runner, row):
    if enough(runner, row):
        raise Pruned("not promising")


def test_what_a_hook_raises_ends_the_run_with_its_snapshot_and_the_hook_is_named(tmp_path):
    with pytest.raises(Pruned, match="not promising"):
        train(build(hooks=[functools.partial(prune)]), tmp_path)
    run_dir = tmp_path / "run_0"
    log = (run_dir / "debug.log").read_text()
    assert "ERROR: the run ends, because the hook prune raised Pruned: not promising" in log
    assert steps(run_dir) == [100, 200] and snapshot(run_dir)["cum_steps"] == 200 and run_status(run_dir).state == "failed"


@pytest.mark.parametrize(
    "bad, said",
    [
        (enough, "must be a list of functions"),
        ("enough", "must be a list of functions"),
        ([enough, 3], r"hooks\[1\]=3 must be callable as hook\(runner, row\)"),
        ([lambda row: None], r"hooks\[0\]=.* must be callable as hook\(runner, row\)"),
        ([lambda runner, row, more: None], r"hooks\[0\]=.* must be callable as hook\(runner, row\)"),
    ],
)
def test_hooks_that_cannot_be_called_are_refused(bad, said):
    with pytest.raises(ValueError, match=said):
        build(hooks=bad)


def test_other_ranks_start_without_the_hooks_which_may_be_something_that_no_pipe_takes(monkeypatch):
    started = []
    monkeypatch.setattr(sync_rl, "WorkerPool", lambda work, kwargs, *args, **settings: started.extend(kwargs) or sys.exit())
    runner = build(SyncRl, affinity=[ONE] * 3, hooks=[lambda *_: None])
    with pytest.raises(SystemExit):
        runner.launch_workers()
    assert len(started) == 2 and all(not each["runner"].hooks for each in started) and len(runner.hooks) == 1
    pickle.dumps(started)


# --- Runners of one's own ---------------------------------------------------------------------------------------------
class OwnLoop(MinibatchRl):
    """With a loop and a row of its own, as programs have that came with a changed copy of them."""

    def train(self):
        n_itr = self.startup()
        for itr in range(n_itr):
            self.run_iteration(itr)
            if (itr + 1) % self.log_interval_itrs == 0:
                self.log_diagnostics(itr)
            if self.stop_reason is not None:
                break
        self.shutdown()


class OwnRow(MinibatchRl):
    def log_diagnostics(self, itr, prefix="Diagnostics/"):
        logger.record_tabular(prefix + "CumSteps", (itr + 1) * self.itr_batch_size)
        self._log_infos()
        self.after_row(logger.dump_tabular(with_prefix=False))


@pytest.mark.parametrize("RunnerCls", [OwnLoop, OwnRow])
def test_a_loop_or_a_row_of_ones_own_takes_part_with_one_line(RunnerCls, tmp_path):
    seen = []
    run_dir = train(build(RunnerCls, stop_return=55, hooks=[lambda runner, row: seen.append(row)]), tmp_path)
    assert steps(run_dir) == [row["Diagnostics/CumSteps"] for row in seen] == [100, 200, 300]


# --- Processes --------------------------------------------------------------------------------------------------------
@full
@pytest.mark.processes
@pytest.mark.timeout(120)
def test_all_ranks_stop_after_the_row_that_says_so(tmp_path, nothing_is_left_behind):
    """Also where that row is the last one anyway, or the run is resumed; only rank 0 calls hooks."""
    pids = []
    settings = dict(RunnerCls=SyncRl, affinity=[ONE] * 2, sampler=functools.partial(sampler, B=2), stop_return=55)
    run_dir = train(build(**settings, n_steps=300, hooks=[lambda runner, row: pids.append(os.getpid())]), tmp_path, "gap")
    assert steps(run_dir) == [100, 200, 300] and pids == [os.getpid()] * 3
    assert snapshot(run_dir, "itr_14.pkl")["cum_steps"] == 300 and last_words(run_dir)[0].startswith("Solved: mean return 55.0")
    longer = build(**settings, resume_from=run_dir)
    assert steps(train(longer, tmp_path)) == [100, 200, 300] and longer.stop_reason.startswith("Solved: mean return 55.0")
    evaluated = build(SyncRlEval, affinity=[ONE] * 2, sampler=evaluating([5], 20, B=2), hooks=[enough])
    assert steps(train(evaluated, tmp_path / "evaluated")) == [0, 100, 200]
    assert run_status(tmp_path / "evaluated" / "run_0").state == "finished"


def lag(runner, row):
    """Lets sampling get far ahead, so that later rows are due as soon as the hook returns."""
    time.sleep(0.3)


def async_run(RunnerCls, log_dir, **settings):
    algo = DQN(min_steps_learn=100, replay_size=2000, batch_size=8, replay_ratio=1)
    affinity = dict(optimizer=[dict(torch_threads=1, set_affinity=False)], sampler=dict(workers_cpus=[0], set_affinity=False))
    make_sampler = settings.pop("sampler", functools.partial(sampler, SamplerCls=AsyncSerialSampler))
    runner = build(RunnerCls, algo, MlpDqnAgent(), make_sampler, n_steps=10**7, affinity=affinity, **settings)
    return runner, train(runner, log_dir)


@full
@pytest.mark.processes
@pytest.mark.timeout(120)
def test_an_asynchronous_run_stops_at_the_row_that_says_so_and_its_samplers_end(tmp_path, nothing_is_left_behind):
    runner, run_dir = async_run(AsyncRl, tmp_path, stop_return=55)
    assert steps(run_dir) == [100, 200, 300] and snapshot(run_dir)["cum_steps"] == 300
    assert last_words(run_dir) == [runner.stop_reason, "Training complete."] and runner.n_copied >= 15
    before, updates = rows(run_dir), runner.algo.update_counter
    assert snapshot(run_dir)["cum_updates"] == updates, "trains after the run has stopped"
    resumed, _ = async_run(AsyncRl, tmp_path, stop_return=55, resume_from=run_dir)
    assert rows(run_dir) == before and snapshot(run_dir)["cum_steps"] == 300 and resumed.algo.update_counter == updates
    assert resumed.n_copied == 15, "samples what nobody trains on"
    make_sampler = functools.partial(evaluating([5], 20), SamplerCls=AsyncSerialSampler)
    runner, run_dir = async_run(AsyncRlEval, tmp_path / "evaluated", sampler=make_sampler, hooks=[lag, enough])
    assert steps(run_dir) == [0, 100, 200] and runner.stop_reason == "Stopped by the hook enough, after 200 steps."
