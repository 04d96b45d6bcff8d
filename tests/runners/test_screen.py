"""What a run says on the screen: its settings, short tables, how far it is, and what can be done next."""

import functools
import shlex
from pathlib import Path

import pytest
import torch
from envs import CountingEnv
from tiers import full, processes

from rlpyt.agents.dqn.mlp_dqn_agent import MlpDqnAgent
from rlpyt.agents.pg.mlp import MlpFfAgent
from rlpyt.algos.dqn.dqn import DQN
from rlpyt.algos.pg.a2c import A2C
from rlpyt.envs.atari.atari_env import AtariEnv
from rlpyt.envs.gym import make
from rlpyt.experiment import SnapshotConfig
from rlpyt.runners import screen
from rlpyt.runners.async_rl import AsyncRl
from rlpyt.runners.minibatch_rl import MinibatchRl, MinibatchRlEval
from rlpyt.runners.screen import env_name, said_affinity
from rlpyt.runners.sync_rl import SyncRl
from rlpyt.runners.trainer import Trainer
from rlpyt.samplers.async_.serial_sampler import AsyncSerialSampler
from rlpyt.samplers.serial.sampler import SerialSampler
from rlpyt.utils.logging import logger
from rlpyt.utils.logging.context import logger_context

ONE = dict(master_torch_threads=1, workers_cpus=[0], set_affinity=False)


def sampler(SamplerCls=SerialSampler, **settings):
    return SamplerCls(CountingEnv, dict(episode_length=5), batch_T=5, batch_B=4, max_decorrelation_steps=0, **settings)


def build(RunnerCls=MinibatchRl, algo=None, agent=None, **settings):
    """A runner with 20 steps per iteration, and a row after each 100."""
    eval_settings = dict(eval_n_envs=2, eval_max_steps=20) if issubclass(RunnerCls, MinibatchRlEval) else {}
    settings = {**dict(sampler=sampler(**eval_settings), n_steps=300, seed=7, log_interval_steps=100, affinity=ONE), **settings}
    return RunnerCls(algo=algo or A2C(), agent=agent or MlpFfAgent(), **settings)


def train(runner, log_dir, snapshot_mode="last"):
    with logger_context(str(log_dir), 0, "test", snapshot_mode=snapshot_mode, override_prefix=True) as run_dir:
        runner.train()
    return str(run_dir)


def lines(text):
    """Lines of the log, without times and titles; and others as they are."""
    return [line.partition("test_0 ")[2] or line for line in text.splitlines()]


def next_commands(text):
    """Commands, split as a shell does."""
    _, _, commands = text.partition("Next:\n")
    return [shlex.split(line) for line in commands.splitlines()]


# --- At the start -----------------------------------------------------------------------------------------------------
def test_a_run_tells_its_settings_once(tmp_path, capsys):
    train(build(), tmp_path)
    said = lines(capsys.readouterr().out)
    assert said[1:4] == [
        "A2C with MlpFfAgent, SerialSampler of CountingEnv, T x B = 5 x 4.",
        "MinibatchRl: seed 7, n_steps 300, 1 torch thread in this process, affinity master_torch_threads=1, workers_cpus=[0], "
        "set_affinity=False.",
        "Running 15 iterations of 20 environment steps, 300 in all, with a row of the log after every 5.",
    ]
    assert sum("seed 7" in line for line in said) == 1


@pytest.mark.parametrize("n_steps, why", [(290, ""), (250, " (n_steps=250 rounded up to whole logging intervals of 100 steps)")])
def test_a_run_that_takes_more_steps_than_it_was_given_says_why(n_steps, why, capsys):
    build(n_steps=n_steps).train()
    assert f"Running 15 iterations of 20 environment steps, 300 in all{why}, with a row" in capsys.readouterr().out


def test_a_run_that_was_interrupted_and_begins_anew_says_how_it_would_go_on(tmp_path, capsys, monkeypatch):
    run_dir = train(build(), tmp_path / "before")
    monkeypatch.setenv("RLPYT_RESUME_FROM", run_dir)
    capsys.readouterr()
    train(build(), tmp_path / "anew")
    assert f"it starts from the beginning. It would resume from the snapshot in {run_dir} if the script gave" in capsys.readouterr().out
    train(build(n_steps=400, resume_from=run_dir), tmp_path / "on")
    assert "starts from the beginning" not in capsys.readouterr().out


@pytest.mark.parametrize(
    "EnvCls, env_kwargs, name",
    [
        (make, dict(id="CartPole-v1"), "CartPole-v1"),
        (AtariEnv, dict(game="pong"), "pong"),
        (CountingEnv, dict(id=3), "CountingEnv"),
        (functools.partial(functools.partial(CountingEnv, end="timeout")), {}, "CountingEnv"),
        ([make, make], [dict(id="A-v0"), dict(id="B-v0")], "A-v0 and others (a list of 2)"),
        (CountingEnv, [{}, {}, {}], "CountingEnv and others (a list of 3)"),
        (make, dict(id="a\x1b[2J"), r"a\x1b[2J"),
        (None, None, "an environment"),
    ],
)
def test_environments_are_called_by_their_ids_or_else_by_what_makes_them(EnvCls, env_kwargs, name):
    class Anything:
        pass

    holder = Anything()
    holder.EnvCls, holder.env_kwargs = EnvCls, env_kwargs
    assert env_name(holder) == name


def test_affinities_are_told_in_few_words():
    assert said_affinity([{}]) == "{}"
    assert said_affinity([dict(workers_cpus=list(range(12)) + [20], cuda_idx=0)]) == "workers_cpus=[0-11 20], cuda_idx=0"
    assert said_affinity([dict(workers_cpus=[[0, 1], [2, 3]])]) == "workers_cpus=[[0-1] [2-3]]"
    assert said_affinity([dict(cuda_idx=0), dict(cuda_idx=1), dict(cuda_idx=0)]) == "cuda_idx=0 | cuda_idx=1"


NOTHING_KEPT = "nothing of this run will be kept"


def test_a_long_run_without_a_log_says_once_that_it_keeps_nothing(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("rlpyt.runners.screen.LONG", 100)
    build(n_steps=100).train()
    said = capsys.readouterr().out
    assert said.count(NOTHING_KEPT) == 1 and "saving snapshot" not in said and "Next:" not in said
    build(n_steps=80).train()
    train(build(n_steps=100), tmp_path, snapshot_mode="none")
    with logger.new_run():
        logger.add_tabular_output(tmp_path / "mine.csv")
        build(n_steps=100).train()
    assert NOTHING_KEPT not in capsys.readouterr().out


# --- Tables and how far it is -----------------------------------------------------------------------------------------
def test_the_table_is_half_as_long_and_the_whole_run_has_one_line_after_each(tmp_path, capsys):
    run_dir = train(build(), tmp_path)
    said = lines(capsys.readouterr().out)
    rules = [i for i, line in enumerate(said) if line and set(line) == {"-"}]
    names = [line.split()[0] for line in said[rules[0] + 1 : rules[1]]]
    assert names == ["Diagnostics", "CumTime", "CumSteps", "Average", "Length", "Return", "loss", "entropy", "piLoss", "explainedVariance"]
    how_far = [line for line in said if " of 300 steps" in line]
    assert [line.partition(" of ")[0] for line in how_far] == ["itr #4 33%", "itr #9 66%", "itr #14 100%"]
    assert all("steps/s" in line and "return 15.0" in line for line in how_far) and " left" in how_far[0] and "after" in how_far[-1]
    assert all(line in lines(Path(run_dir, "debug.log").read_text()) for line in how_far)
    assert len(Path(run_dir, "progress.csv").read_text().splitlines()[0].split(",")) > 50


@pytest.mark.parametrize("verbose", [0, 2])
def test_a_run_shows_as_much_as_it_is_told_and_what_comes_after_it_as_before(verbose, tmp_path, capsys):
    runner = build(verbose=verbose)
    with logger_context(str(tmp_path), 0, "test", override_prefix=True):
        capsys.readouterr()
        runner.train()
        assert logger.get_verbose() == 1
    said = lines(capsys.readouterr().out)
    if verbose == 0:
        assert len(said) == 3 and all(" of 300 steps" in line for line in said)
    else:
        assert any("gradNorm" in line for line in said) and "itr #4 saved" in said
    assert "Training complete." in (tmp_path / "run_0" / "debug.log").read_text()


def test_a_quiet_run_says_why_it_stops(tmp_path, capsys):
    runner = build(verbose=0, stop_return=15, log_traj_window=8, n_steps=1000)
    train(runner, tmp_path)
    said = lines(capsys.readouterr().out)
    assert said[-1] == runner.stop_reason and "stops at 15" not in said[-1] and not any("left" in line for line in said)


def test_a_run_that_may_stop_before_its_end_says_at_what(tmp_path, capsys):
    train(build(stop_return=16), tmp_path)
    assert "at most" in (said := capsys.readouterr().out) and "return 15.0 (stops at 16)" in said


def test_a_resumed_run_counts_from_where_it_goes_on(tmp_path, capsys):
    run_dir = train(build(), tmp_path / "first")
    capsys.readouterr()
    runner = build(n_steps=500, resume_from=run_dir)
    begun = []
    runner.hooks = [lambda runner, row: begun.append(runner.progress._rows[0][1])]
    train(runner, tmp_path / "second")
    assert begun == [300, 300], "The speed is that of this process."
    how_far = [line.partition(" of ")[0] for line in lines(capsys.readouterr().out) if " of 500 steps" in line]
    assert how_far == ["itr #19 80%", "itr #24 100%"]


def test_a_runner_trains_twice_with_a_line_for_each(tmp_path, capsys):
    runner = build()
    for name in "ab":
        train(runner, tmp_path / name)
        assert capsys.readouterr().out.count("100% of 300 steps") == 1
    assert "progress" not in vars(runner)


def dqn():
    return DQN(min_steps_learn=20, replay_size=1000, batch_size=8, replay_ratio=0.1)


@pytest.mark.parametrize(
    "RunnerCls, more",
    [
        (MinibatchRlEval, {}),
        pytest.param(SyncRl, dict(affinity=[ONE, ONE], n_steps=600, log_interval_steps=200), marks=[processes, full]),
        pytest.param(AsyncRl, dict(algo=dqn(), agent=MlpDqnAgent(), sampler=sampler(AsyncSerialSampler)), marks=[processes, full]),
    ],
)
@pytest.mark.timeout(100)
def test_every_runner_tells_how_far_it_is_and_what_comes_next(RunnerCls, more, tmp_path, capfd):
    run_dir = train(build(RunnerCls, **more), tmp_path)
    said = capfd.readouterr().out
    n_steps = more.get("n_steps", 300)
    assert said.count(f"{RunnerCls.__name__}: seed 7, n_steps {n_steps}") == 1
    assert said.count(f"100% of {n_steps} steps") == 1 and said.count(f" of {n_steps} steps") == 3 + (RunnerCls is MinibatchRlEval)
    assert next_commands(said)[-1] == ["rlpyt", "resume", run_dir, "--n_steps", str(2 * n_steps)]


class CountingAlgo:
    """Has a loop of its own, without sampling."""

    def train(self, trainer):
        for epoch in trainer.step_epochs():
            trainer.total_env_steps += 50
            logger.record_tabular("AverageReturn", epoch)

    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        pass


@pytest.mark.parametrize("verbose", [None, 0])
def test_a_trainer_counts_epochs(verbose, tmp_path, capsys):
    with logger.new_run():
        logger.add_tabular_output(tmp_path / "progress.csv")
        trainer = Trainer(SnapshotConfig(str(tmp_path)), verbose=verbose)
        trainer.setup(CountingAlgo())
        trainer.train(n_epochs=4, batch_size=50)
    said = capsys.readouterr().out
    how_far = [line.rpartition("| ")[2] for line in said.splitlines() if " of 4 epochs" in line]
    assert [line.split()[2] for line in how_far] == ["25%", "50%", "75%", "100%"] and how_far[0].endswith("return 0.00")
    assert ("CountingAlgo: seed" in said) == ("TotalEnvSteps" in said) == (verbose is None)
    assert next_commands(said) == ([["rlpyt", "plot", str(tmp_path)]] if verbose is None else [])


# --- At the end -------------------------------------------------------------------------------------------------------
def test_the_commands_for_what_is_left_are_shown_with_the_directory_as_a_shell_takes_it(tmp_path, capsys):
    run_dir = train(build(), tmp_path / "it's mine")
    said = capsys.readouterr().out
    assert next_commands(said) == [
        ["rlpyt", "plot", run_dir],
        ["rlpyt", "video", run_dir],
        ["rlpyt", "resume", run_dir, "--n_steps", "600"],
    ]
    assert "Next:" not in Path(run_dir, "debug.log").read_text(), "whose last line says how the run ended"


def test_a_run_that_was_stopped_goes_on_without_what_stopped_it(tmp_path, capsys):
    run_dir = train(build(stop_return=15, log_traj_window=8), tmp_path / "solved")
    assert next_commands(capsys.readouterr().out)[-1] == ["rlpyt", "resume", run_dir, "--stop_return", "none"]
    run_dir = train(build(hooks=[stop_at_once]), tmp_path / "hook")
    assert next_commands(capsys.readouterr().out)[1:] == [["rlpyt", "video", run_dir], ["rlpyt", "resume", run_dir]]


def stop_at_once(runner, row):
    return True


def test_commands_that_would_not_work_are_left_out(tmp_path, capsys):
    train(build(), tmp_path / "no snapshot", snapshot_mode="none")
    assert next_commands(capsys.readouterr().out) == []
    run_dir = train(build(hooks=[lambda runner, row: True]), tmp_path / "not data")
    assert [command[1] for command in next_commands(capsys.readouterr().out)] == ["plot", "video"], run_dir
    with logger.new_run():
        logger.add_tabular_output(tmp_path / "mine" / "progress.csv")
        logger.set_snapshot_dir(tmp_path / "mine")
        build().train()
    assert [command[1] for command in next_commands(capsys.readouterr().out)] == ["plot", "video"], "The directory is no run_<ID>."


@pytest.mark.parametrize("n_threads, busy, said", [(4, 0.4, None), (2, 2.1, None), (4, 1.4, "=3)"), (4, 3.6, "=1)")])
def test_other_programs_that_hold_up_threads_are_said(capsys, monkeypatch, n_threads, busy, said):
    monkeypatch.setattr(screen, "allowed_cpus", lambda: [0, 1, 2, 3])
    monkeypatch.setattr(screen, "busy_processors", lambda: busy)
    monkeypatch.setattr(torch, "get_num_threads", lambda: n_threads)
    screen.tell_of_busy_processors()
    out = capsys.readouterr().out
    assert (said is None and not out) or f"affinity=dict(master_torch_threads{said} is faster while they run." in out
