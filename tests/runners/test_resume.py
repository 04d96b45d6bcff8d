"""A run that stops and is resumed is the run that never stopped, bit for bit."""

import csv
import functools
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from envs import CountingEnv
from tiers import full, processes, thinned

from rlpyt.agents.dqn.atari.atari_dqn_agent import AtariDqnAgent
from rlpyt.agents.dqn.mlp_dqn_agent import MlpDqnAgent
from rlpyt.agents.pg.mlp import MlpFfAgent
from rlpyt.agents.qpg.sac_agent import SacAgent
from rlpyt.algos.dqn.dqn import DQN
from rlpyt.algos.pg.a2c import A2C
from rlpyt.algos.pg.ppo import PPO
from rlpyt.algos.qpg.sac import SAC
from rlpyt.envs import gym
from rlpyt.envs.atari.atari_env import AtariEnv
from rlpyt.experiments import train
from rlpyt.experiments.configs import classes_of, load, variant
from rlpyt.runners import async_rl, checkpoint, sync_rl
from rlpyt.runners.async_rl import AsyncRl
from rlpyt.runners.minibatch_rl import MinibatchRl, MinibatchRlEval
from rlpyt.runners.snapshots import load_snapshot, newest_first
from rlpyt.runners.sync_rl import SyncRl
from rlpyt.samplers import columns
from rlpyt.samplers.async_.serial_sampler import AsyncSerialSampler
from rlpyt.samplers.parallel.cpu.sampler import CpuSampler
from rlpyt.samplers.serial.sampler import SerialSampler
from rlpyt.utils.logging import logger
from rlpyt.utils.logging.context import logger_context
from rlpyt.utils.logging.store import snapshot_files

small_replay = dict(min_steps_learn=64, replay_size=400, batch_size=16)
few_updates = dict(small_replay, replay_ratio=8)
small_networks = dict(model_kwargs=dict(hidden_sizes=[16, 16]), q_model_kwargs=dict(hidden_sizes=[16, 16]))
few_sequences = dict(
    algo=dict(min_steps_learn=64, replay_size=400, batch_T=6, batch_B=4, replay_ratio=10),
    agent=dict.fromkeys(("model_kwargs", "q_model_kwargs"), dict(lstm_size=8, head_size=[16])),
    sampler=dict(batch_B=2),
)
CASES = {
    "a2c": ("cartpole", "a2c", {}),
    "ppo": ("cartpole", "ppo", dict(algo=dict(epochs=3), sampler=dict(batch_T=16))),
    "ppo_lstm": ("cartpole_without_velocities", "ppo_lstm", dict(algo=dict(epochs=2, minibatches=2), sampler=dict(batch_T=16, batch_B=8))),
    "dqn": ("cartpole", "dqn", dict(algo=dict(small_replay, eps_steps=300))),
    "dqn_prioritized": ("cartpole", "dqn", dict(algo=dict(small_replay, prioritized_replay=True, prefetch_batches=True))),
    "catdqn": ("cartpole", "catdqn", dict(algo=small_replay)),
    "r2d1": (
        "cartpole_without_velocities", "r2d1",
        dict(
            algo=dict(min_steps_learn=128, replay_size=1600, batch_B=4, batch_T=8, replay_ratio=8, target_update_interval=10),
            sampler=dict(batch_T=4, batch_B=4),
        ),
    ),
    "ddpg": ("pendulum", "ddpg", dict(algo=few_updates, agent=small_networks)),
    "td3": ("pendulum", "td3", dict(algo=few_updates, agent=small_networks)),
    "sac": ("pendulum", "sac", dict(algo=few_updates, agent=small_networks)),
    "iqn": ("cartpole", "iqn", dict(algo=dict(small_replay, prioritized_replay=True))),
    "m_dqn": ("cartpole", "m_dqn", dict(algo=dict(small_replay, eps_steps=300))),
    "crossq": ("pendulum", "crossq", dict(algo=few_updates)),
    "tqc": ("pendulum", "tqc", dict(algo=few_updates)),
    "redq": ("pendulum", "redq", dict(algo=dict(small_replay, replay_ratio=8, policy_update_interval=2))),
    "discrete_sac": ("cartpole", "sac", dict(algo=small_replay)),
    "sac_lstm": ("pendulum_without_velocities", "sac_lstm", few_sequences),
    "td3_lstm": ("pendulum_without_velocities", "td3_lstm", few_sequences),
    "dqn_box2d": ("lunarlander", "dqn", dict(algo=small_replay)),
    "ppo_adaptive": ("cartpole", "ppo", dict(algo=dict(epochs=3, lr_schedule="adaptive", desired_kl=1e-3, normalize_reward=True))),
    "sac_mujoco": ("halfcheetah", "sac_100k", dict(algo=few_updates, agent=small_networks)),
}  # fmt: skip


class Killed(Exception):
    pass


def stopping(RunnerCls, stop_at):
    """The runner, which is killed in the middle of an iteration."""

    class Stopping(RunnerCls):
        def run_iteration(self, itr):
            if itr * self.itr_batch_size >= stop_at * max(16, self.itr_batch_size):
                raise Killed
            super().run_iteration(itr)

    return Stopping


def make(case, evaluate, stop_at=None, sampler_path=None, n_units=24, **settings):
    module, key, changes = CASES[case]
    module = load(module)
    config = variant(module.configs[key], **changes)
    B, T = config["sampler"]["batch_B"], config["sampler"]["batch_T"]
    unit = max(16, B * T)
    runner = dict(dict(n_steps=n_units * unit, log_interval_steps=6 * unit, save_replay=True, digest=True), **settings)
    sampler = dict(eval_n_envs=2, eval_max_steps=100, eval_max_trajectories=4) if evaluate else dict(eval_n_envs=0)
    config = variant(config, runner=runner, sampler=dict(sampler, max_decorrelation_steps=20))
    RunnerCls = MinibatchRlEval if evaluate else MinibatchRl
    if stop_at is not None:
        RunnerCls = stopping(RunnerCls, stop_at)
    paths = classes_of(module, key)
    paths["sampler"] = sampler_path or paths["sampler"]
    affinity = dict(master_torch_threads=1, workers_cpus=[0, 1], set_affinity=False)
    return train.build(config, paths, affinity, seed=3, RunnerCls=RunnerCls)


def run(case, log_dir, evaluate, *args, **settings):
    runner = make(case, evaluate, *args, **settings)
    with logger_context(str(log_dir), 0, "test"):
        runner.train()
    return runner


def rows(log_dir):
    """The table without what is measured in seconds."""
    with open(log_dir / "run_0" / "progress.csv") as file:
        return [{k: v for k, v in row.items() if "Time" not in k and "PerSecond" not in k} for row in csv.DictReader(file)]


def final(runner):
    return runner.agent.state_dict(), runner.algo.optim_state_dict()


# What evaluation adds does not depend on the algorithm: without it, one with and one without replay.
SERIAL = [*((case, True) for case in CASES), ("ppo", False), ("dqn_prioritized", False)]
WORKERS = [
    *((case, sampler) for case in ("ppo_lstm", "r2d1") for sampler in ("cpu", "gpu", "alternating")),
    ("a2c", "cpu"),
    ("dqn_prioritized", "gpu"),
    ("sac_lstm", "cpu"),
    ("sac_lstm", "alternating"),
]


@pytest.mark.parametrize("case, evaluate", thinned(SERIAL, quick=[("r2d1", True)]))
def test_a_resumed_run_is_the_uninterrupted_one(case, evaluate, tmp_path):
    expected = final(run(case, tmp_path / "whole", evaluate, n_units=18))
    with pytest.raises(Killed):
        run(case, tmp_path / "parts", evaluate, stop_at=15, n_units=18)
    resumed = run(case, tmp_path / "parts", evaluate, resume_from=tmp_path / "parts" / "run_0", n_units=18)
    assert resumed.first_itr * resumed.itr_batch_size == 12 * max(16, resumed.itr_batch_size)
    torch.testing.assert_close(final(resumed), expected, rtol=0, atol=0, equal_nan=True)
    assert rows(tmp_path / "parts") == rows(tmp_path / "whole")


@pytest.mark.parametrize("case", thinned(CASES, quick=["r2d1"]))
def test_an_algorithm_and_an_agent_that_have_trained_before_train_like_new_ones(case, tmp_path):
    expected = run(case, tmp_path / "new", False, n_units=12)
    used = run(case, tmp_path / "before", False, n_units=12)
    if hasattr(used.algo, "start_with_empty_replay"):
        used.algo.start_with_empty_replay(10**6)  # As if that run had been resumed so.
    again = make(case, False, n_units=12)
    again.algo, again.agent = used.algo, used.agent
    with logger_context(str(tmp_path / "again"), 0, "test"):
        again.train()
    torch.testing.assert_close(final(again), final(expected), rtol=0, atol=0, equal_nan=True)
    assert rows(tmp_path / "again") == rows(tmp_path / "new")


@processes
@pytest.mark.parametrize("case, sampler", thinned(WORKERS, quick=[("ppo_lstm", "gpu")]))
def test_so_is_a_synchronous_run_with_workers(case, sampler, tmp_path):
    settings = dict(evaluate=True, sampler_path=train.SAMPLERS[sampler], n_units=18)
    expected = final(run(case, tmp_path / "whole", **settings))
    with pytest.raises(Killed):
        run(case, tmp_path / "parts", stop_at=15, **settings)
    resumed = run(case, tmp_path / "parts", resume_from=tmp_path / "parts" / "run_0", **settings)
    torch.testing.assert_close(final(resumed), expected, rtol=0, atol=0, equal_nan=True)
    assert rows(tmp_path / "parts") == rows(tmp_path / "whole")


@pytest.mark.parametrize("case", thinned(["ppo", "dqn_prioritized", "r2d1", "sac"], quick=["dqn_prioritized"]))
def test_so_is_a_run_that_a_search_pauses_twice(case, tmp_path, monkeypatch):
    """The first time before it learns, so that no snapshot would be due; each time at the first row that is late enough."""
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    expected = final(run(case, whole, True))
    steps = [int(float(row["Diagnostics/CumSteps"])) for row in rows(whole)]
    resume_from = None
    for at, n_rows in ((steps[0], 1 if steps[0] else 2), (steps[-2] - 1, len(steps) - 1)):
        monkeypatch.setenv("RLPYT_PAUSE_AT", str(max(at, 1)))
        paused = run(case, parts, True, resume_from=resume_from)
        assert "Paused after" in paused.stop_reason and len(rows(parts)) == n_rows
        resume_from = parts / "run_0"
        again = run(case, parts, True, resume_from=resume_from)  # As after a launcher that was killed: nothing is left to do.
        assert again.stop_reason == paused.stop_reason and len(rows(parts)) == n_rows
    monkeypatch.setenv("RLPYT_PAUSE_AT", str(steps[-1]))  # Its end is no pause.
    resumed = run(case, parts, True, resume_from=resume_from)
    assert resumed.stop_reason is None
    torch.testing.assert_close(final(resumed), expected, rtol=0, atol=0, equal_nan=True)
    assert rows(parts) == rows(whole)


# --- Files ------------------------------------------------------------------------------------------------------------
def run_dir(tmp_path, **settings):
    """Train, and return the directory of the run."""
    run("dqn", tmp_path, False, **settings)
    return tmp_path / "run_0"


@functools.cache
def _ended():
    directory = tempfile.TemporaryDirectory()
    run_dir(Path(directory.name))
    return directory


def ended_run(tmp_path):
    """Return a copy of the directory of a run, which all tests that read or damage what a run has left share."""
    shutil.copytree(_ended().name, tmp_path)
    return tmp_path / "run_0"


@full
def test_a_run_that_is_resumed_for_fewer_steps_than_it_has_taken_says_that_nothing_was_left_to_do(tmp_path):
    log_dir = tmp_path / "exp"
    directory = ended_run(log_dir)
    before = rows(log_dir)
    taken = int(float(before[-1]["Diagnostics/CumSteps"]))
    run("dqn", log_dir, False, resume_from=directory, n_steps=96)
    said, complete = (directory / "debug.log").read_text().splitlines()[-3:-1]
    assert f"Nothing was left to do: the run was resumed after {taken:,} steps, and n_steps=96 asks for no more." in said
    assert complete.endswith("Training complete.") and rows(log_dir) == before
    run("dqn", log_dir, False, resume_from=directory, n_steps=taken + 96)
    assert "Nothing was left" not in (directory / "debug.log").read_text() and len(rows(log_dir)) == len(before) + 1


def test_a_resumed_run_may_be_longer_and_in_another_directory(tmp_path):
    first = ended_run(tmp_path / "a")
    resumed = run("dqn", tmp_path / "b", False, resume_from=first / "params.pkl", n_steps=30 * 16)
    assert len(rows(tmp_path / "a")) == 4 and resumed.first_itr == 24
    assert rows(tmp_path / "b")[:4] == rows(tmp_path / "a") and len(rows(tmp_path / "b")) == 5


@pytest.mark.parametrize("damage", thinned(["cut", "flipped", "empty"], quick=["flipped"]))
def test_of_a_damaged_snapshot_the_one_before_is_taken(damage, tmp_path, capsys):
    directory = ended_run(tmp_path / "a")
    file = directory / "params.pkl"
    data = bytearray(file.read_bytes())
    if damage == "flipped":
        data[len(data) // 2] ^= 1
    file.write_bytes(data[: len(data) // 2] if damage == "cut" else data if damage == "flipped" else b"")
    resumed = run("dqn", tmp_path / "b", False, resume_from=directory)
    assert resumed.first_itr == 18
    assert "not a readable snapshot" in capsys.readouterr().out
    with pytest.raises(ValueError, match="params.pkl is not a readable snapshot"):
        run("dqn", tmp_path / "c", False, resume_from=file)


def test_the_newest_snapshot_is_the_newest_whatever_the_times_of_files(tmp_path):
    directory = ended_run(tmp_path / "a")
    for i, name in enumerate(["params.pkl", "params_previous.pkl"]):  # As copies have it.
        os.utime(directory / name, ns=(i, i))
    assert load_snapshot(directory)[0].name == "params.pkl"
    shutil.copy(directory / "params_previous.pkl", directory / "best.pkl")
    assert [file.name for file in newest_first(directory)[1]] == ["params.pkl", "params_previous.pkl", "best.pkl"]
    shutil.copy(directory / "params.pkl", directory / "best.pkl")  # Its networks may be older than its number of steps says.
    assert [file.name for file in newest_first(directory)[1]] == ["params.pkl", "params_previous.pkl", "best.pkl"]
    with pytest.raises(Killed):
        run("dqn", tmp_path / "a", False, stop_at=9)  # A new run in the same directory, which is 6 iterations old.
    os.utime(directory / "params.pkl", ns=(0, 0))
    file, snapshot = load_snapshot(directory)
    assert file.name == "params.pkl" and snapshot["itr"] == 5


def test_other_settings_are_refused_with_each_difference(tmp_path):
    directory = ended_run(tmp_path / "a")
    CASES["other"] = ("cartpole", "dqn", dict(algo=dict(small_replay, eps_steps=300, learning_rate=0.5), sampler=dict(batch_B=8)))
    try:
        with pytest.raises(ValueError) as error:
            run("other", tmp_path / "b", False, resume_from=directory)
    finally:
        del CASES["other"]
    assert "algo.learning_rate: 0.0005 in the snapshot, 0.5 now" in str(error.value)
    assert "sampler.batch_B: 4 in the snapshot, 8 now" in str(error.value) and "eps_steps" not in str(error.value)


def test_settings_that_are_nan_are_the_same_ones_in_the_resumed_run():
    def made(*end):
        return unstarted(PPO(), reward_scale=float("nan"), end=[1, *end])

    saved = json.loads(json.dumps(checkpoint.settings_of(made(float("nan")))))
    checkpoint.check_settings(saved, made(float("nan")), "params.pkl")
    with pytest.raises(ValueError, match=r"settings, .* these\. sampler\.env_kwargs\.end: \[1, nan\] in the snapshot, \[1, 2\] now\. To"):
        checkpoint.check_settings(saved, made(2), "params.pkl")


def unstarted(algo, **env_kwargs):
    sampler = SerialSampler(CountingEnv, env_kwargs, batch_T=2, batch_B=2, max_decorrelation_steps=0)
    return MinibatchRl(algo=algo, agent=MlpFfAgent(), sampler=sampler, n_steps=16, log_interval_steps=8, seed=1)


def test_settings_that_did_not_exist_when_a_snapshot_was_saved_had_their_defaults():
    saved = checkpoint.settings_of(unstarted(PPO()))
    del saved["algo"]["clip_value_loss"], saved["algo"]["normalize_reward"], saved["agent"]["acting_bf16"]
    checkpoint.check_settings(saved, unstarted(PPO()), "params.pkl")
    with pytest.raises(ValueError, match=r"algo\.normalize_reward: False in the snapshot, True now\. To"):
        checkpoint.check_settings(saved, unstarted(PPO(normalize_reward=True)), "params.pkl")
    del saved["sampler"]["batch_T"]
    with pytest.raises(ValueError, match=r"sampler\.batch_T: not given in the snapshot, 2 now"):
        checkpoint.check_settings(saved, unstarted(PPO()), "params.pkl")


@pytest.mark.parametrize("algo", [PPO(linear_lr_schedule=True), A2C(entropy_coeff_schedule="linear")])
def test_a_run_can_be_resumed_with_the_algorithm_whose_schedules_it_has_changed(algo, tmp_path):
    saved = checkpoint.settings_of(unstarted(algo))
    with logger_context(str(tmp_path), 0, "test"):
        unstarted(algo).train()
    checkpoint.check_settings(saved, unstarted(algo), "params.pkl")


def test_a_run_can_be_resumed_with_the_algorithm_whose_target_entropy_it_has_computed(tmp_path):
    def runner():
        sampler = SerialSampler(gym.make, dict(id="Pendulum-v1"), batch_T=2, batch_B=2, max_decorrelation_steps=0)
        return MinibatchRl(algo=algo, agent=SacAgent(), sampler=sampler, n_steps=16, log_interval_steps=8, seed=1)

    algo = SAC(replay_size=100)
    saved = checkpoint.settings_of(runner())
    with logger_context(str(tmp_path), 0, "test"):
        runner().train()
    assert algo.target_entropy == -1
    checkpoint.check_settings(saved, runner(), "params.pkl")


@pytest.mark.parametrize("runner", [MinibatchRl, SyncRl, AsyncRl])
def test_what_cannot_be_resumed_is_refused_before_environments_are_made_and_processes_start(runner, tmp_path, monkeypatch):
    def unmade():
        raise AssertionError("an environment was made")

    def unstarted_pool(*args, **kwargs):
        raise AssertionError("processes were started")

    directory = ended_run(tmp_path / "a")
    for module in (async_rl, sync_rl):
        monkeypatch.setattr(module, "WorkerPool", unstarted_pool)
    one = dict(master_torch_threads=1, workers_cpus=[0], set_affinity=False)
    SamplerCls = AsyncSerialSampler if runner is AsyncRl else SerialSampler
    for path, error, message in [
        (directory, ValueError, "is of a run with other settings, .* sampler.env_kwargs.id: 'CartPole-v1' in the snapshot, not given now"),
        (tmp_path / "nothing", FileNotFoundError, "does not exist"),
    ]:
        parts = dict(algo=DQN(), agent=MlpDqnAgent(), sampler=SamplerCls(unmade, {}, batch_T=4, batch_B=2))
        affinity = [one, one] if runner is SyncRl else one
        with pytest.raises(error, match=message):
            runner(**parts, n_steps=64, log_interval_steps=32, seed=3, affinity=affinity, resume_from=path).train()


def test_what_is_missing_is_said(tmp_path):
    with pytest.raises(FileNotFoundError, match="does not exist"):
        run("dqn", tmp_path / "b", False, resume_from=tmp_path / "nothing")
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match="There is no snapshot in"):
        run("dqn", tmp_path / "b", False, resume_from=tmp_path / "empty")
    directory = ended_run(tmp_path / "a")
    for part in (directory / "replay").iterdir():
        part.unlink()
    with pytest.raises(ValueError, match="No snapshot in .* is readable.*does not exist any more"):
        run("dqn", tmp_path / "b", False, resume_from=directory)
    resumed = run("dqn", tmp_path / "b", False, resume_from=directory, save_replay=False, n_steps=30 * 16)
    assert resumed.first_itr == 24 and resumed.algo.replay_buffer.written == 6 * 4


def test_of_a_damaged_replay_the_one_before_is_taken(tmp_path, capsys):
    directory = ended_run(tmp_path / "a")
    newest = max((directory / "replay").iterdir(), key=lambda file: file.stat().st_mtime_ns)
    data = bytearray(newest.read_bytes())
    data[len(data) // 2] ^= 1
    newest.write_bytes(data)
    assert run("dqn", tmp_path / "b", False, resume_from=directory).first_itr == 18
    assert f"{newest} is not a readable snapshot" in capsys.readouterr().out


def test_a_run_without_a_seed_keeps_the_one_that_it_drew(tmp_path, capsys):
    def run_without_seed(n_steps, **settings):
        sampler = SerialSampler(CountingEnv, batch_T=5, batch_B=4)
        settings = dict(settings, n_steps=n_steps, log_interval_steps=20, affinity=dict(master_torch_threads=1))
        runner = MinibatchRl(algo=A2C(), agent=MlpFfAgent(), sampler=sampler, **settings)
        with logger_context(str(tmp_path), 0, "test", snapshot_mode="last"):
            runner.train()
        return runner.seed, json.loads((tmp_path / "run_0" / "params.json").read_text())["rlpyt"]["seed"]

    seed, recorded = run_without_seed(40)
    capsys.readouterr()
    assert recorded == seed
    assert run_without_seed(80, resume_from=str(tmp_path / "run_0")) == (seed, seed)
    assert f"seed {seed}" in capsys.readouterr().out


@full
def test_a_log_that_has_been_emptied_begins_anew(tmp_path):
    with pytest.raises(Killed):
        run("ppo_lstm", tmp_path, False, stop_at=15)
    (tmp_path / "run_0" / "progress.csv").write_text("")
    resumed = run("ppo_lstm", tmp_path, False, resume_from=tmp_path / "run_0")
    assert len(rows(tmp_path)) == 2 and resumed.diagnostics.cum_steps == resumed.n_itr * resumed.itr_batch_size


def test_a_run_that_ended_before_its_first_snapshot_is_told_from_other_directories(tmp_path):
    (tmp_path / "params.json").write_text("{}")
    with pytest.raises(FileNotFoundError, match="the run has ended before its first one; start it again"):
        load_snapshot(tmp_path)


def test_another_seed_is_refused(tmp_path):
    directory = ended_run(tmp_path / "a")
    module = load("cartpole")
    config = variant(module.configs["dqn"], **CASES["dqn"][2], runner=dict(n_steps=500, resume_from=directory), sampler=dict(eval_n_envs=0))
    runner = train.build(config, classes_of(module, "dqn"), dict(master_torch_threads=1), seed=77)
    with pytest.raises(ValueError, match="is of a run with seed 3, and is resumed with it: leave seed=77 out"):
        runner.train()


def test_a_snapshot_that_a_new_run_puts_aside_is_found(tmp_path):
    directory = ended_run(tmp_path / "a")
    resumed = run("dqn", tmp_path / "a", False, resume_from=directory / "params.pkl", n_steps=30 * 16)
    assert resumed.first_itr == 24 and len(rows(tmp_path / "a")) == 5


@full
@processes
@pytest.mark.parametrize("workers_cpus", thinned([[0], [0, 1, 2]], quick=[[0]]))
def test_with_another_number_of_workers_new_episodes_begin(workers_cpus, tmp_path, capsys):
    """Also with frames, of which the replay wants to know that they are the first ones."""

    def resume(n_workers, **settings):
        sampler = CpuSampler(AtariEnv, dict(game="breakout", frame_shape=(12, 10)), batch_T=4, batch_B=3, max_decorrelation_steps=50)
        algo = DQN(min_steps_learn=24, replay_size=600, batch_size=8, replay_ratio=1)
        agent = AtariDqnAgent(model_kwargs=dict(channels=[2], kernel_sizes=[3], strides=[2], paddings=[0], fc_sizes=8))
        affinity = dict(workers_cpus=list(range(n_workers)), set_affinity=False, master_torch_threads=1)
        parts = dict(algo=algo, agent=agent, sampler=sampler, affinity=affinity)
        runner = MinibatchRl(**parts, log_interval_steps=48, save_replay=True, **settings)
        with logger_context(str(tmp_path), 0, "test"):
            runner.train()
        return runner

    first = resume(2, n_steps=96, seed=1)
    resumed = resume(len(workers_cpus), n_steps=144, resume_from=tmp_path / "run_0")
    assert "3 environments begin a new episode" in capsys.readouterr().out
    ours, theirs = (np.array(runner.algo.replay_buffer.samples.observation) for runner in (resumed, first))
    assert (ours[:32] == theirs[:32]).all() and resumed.algo.replay_buffer.samples.done[31].all()
    assert (ours[32] != theirs[0]).any(), "the same episodes again"


def test_without_its_replay_a_run_goes_on_with_an_empty_buffer(tmp_path, capsys):
    directory = ended_run(tmp_path / "a")
    snapshot = torch.load(directory / "params.pkl", weights_only=True)
    del snapshot["replay"]
    torch.save(snapshot, directory / "params.pkl")
    resumed = run("dqn", tmp_path / "b", False, resume_from=directory / "params.pkl", n_steps=30 * 16)
    assert "the buffer starts empty" in capsys.readouterr().out
    assert resumed.algo.replay_buffer.written < 40


def test_replay_is_written_piece_by_piece_and_what_is_overwritten_deleted(tmp_path):
    directory = run_dir(tmp_path / "a", n_steps=60 * 16)
    parts = sorted(int(file.name.split("-")[0]) for file in (directory / "replay").iterdir())
    assert len(parts) < 10 and parts[0] > 0, "100 rows of memory, 240 rows written"
    for name in ("params.pkl", "params_previous.pkl"):
        named = torch.load(directory / name, weights_only=True)["replay"]["files"]
        assert named and all((directory / "replay" / file).is_file() for file in named), f"what {name} needs is there"
    resumed = run("dqn", tmp_path / "b", False, resume_from=directory, n_steps=66 * 16)
    assert resumed.algo.replay_buffer.written == 66 * 4


def test_the_best_snapshot_is_kept(tmp_path):
    module = load("cartpole")
    config = variant(module.configs["ppo"], runner=dict(n_steps=10 * 256, log_interval_steps=256), sampler=dict(eval_n_envs=0))
    runner = train.build(config, classes_of(module, "ppo"), dict(master_torch_threads=1), seed=3)
    with logger_context(str(tmp_path), 0, "test", snapshot_mode="best"):
        runner.train()
    best = torch.load(tmp_path / "run_0" / "best.pkl", weights_only=True)
    returns = [float(row["ReturnAverage"]) for row in rows(tmp_path)]
    assert best["cum_steps"] == 256 * (1 + returns.index(max(returns)))
    assert best["run"]["best_score"] == max(returns), "a resumed run replaces it only by a better one"
    assert (tmp_path / "run_0" / "params.pkl").is_file()


@pytest.mark.parametrize("is_same", thinned([True, False], quick=[True]), ids=["in the same directory", "in another one"])
@pytest.mark.parametrize("left", ["best.pkl", "the best one is params.pkl", "neither"])
def test_a_resumed_run_begins_with_the_best_snapshot_of_before(is_same, left, tmp_path):
    def train_dqn(directory, scores, **kwargs):
        runner = make("dqn", False, save_replay=False, **kwargs)
        with logger_context(str(directory), 0, "test", snapshot_mode="best", override_prefix=True):
            runner.startup()
            for itr, score in scores.items():
                runner._score = score
                runner.save_itr_snapshot(itr)
            runner.saver.wait()
            kept = logger.best_score()
            runner.shutdown()
        return kept

    directory, other = tmp_path / "a", tmp_path / ("a" if is_same else "b")
    train_dqn(directory, {3: 1.0, 4: 7.0} if left == "the best one is params.pkl" else {3: 7.0, 4: 5.0})
    best = torch.load(directory / "run_0" / "best.pkl", weights_only=True)
    if left == "the best one is params.pkl":  # As if it had been killed before it wrote best.pkl.
        (directory / "run_0" / "params_previous.pkl").replace(directory / "run_0" / "best.pkl")
    elif left == "neither":
        (directory / "run_0" / "best.pkl").unlink()
    kept = train_dqn(other, {}, resume_from=directory / "run_0")
    if left == "neither":
        assert kept == -math.inf and not (other / "run_0" / "best.pkl").exists()
    else:
        now = torch.load(other / "run_0" / "best.pkl", weights_only=True)
        assert kept == 7.0 and now["itr"] == best["itr"] and now["run"]["best_score"] == 7.0
        assert not is_same or (other / "run_0" / "best.1.pkl").exists()
    if is_same:  # That run was killed before its first snapshot.
        file, snapshot = load_snapshot(other / "run_0")
        assert file.name == "params.1.pkl" and snapshot["itr"] == 4


@pytest.mark.parametrize("stop_at", thinned([4, 5, 6, 7, 8, 9], quick=[6]))
def test_a_resumed_run_keeps_the_snapshots_of_the_same_iterations(stop_at, tmp_path):
    def kept(directory, **kwargs):
        runner = make("dqn", False, n_units=18, log_interval_steps=1, **kwargs)
        with logger_context(str(directory), 0, "test", snapshot_mode="last+gap", snapshot_gap=4, override_prefix=True):
            runner.train()
        return {file.itr for file in snapshot_files(directory / "run_0") if file.itr is not None}

    whole = kept(tmp_path / "whole")
    assert whole == {3, 7, 11, 15}
    with pytest.raises(Killed):
        kept(tmp_path / "part", stop_at=stop_at)
    part = {file.itr for file in snapshot_files(tmp_path / "part" / "run_0") if file.itr is not None}
    assert part | kept(tmp_path / "rest", resume_from=tmp_path / "part" / "run_0") == whole


# --- Mishaps ----------------------------------------------------------------------------------------------------------
SCRIPT = """
import sys
sys.path[:0] = [{tests!r}]
from pathlib import Path
from runners.test_resume import run
run("dqn_prioritized", Path({log_dir!r}), False, n_steps=10**7, log_interval_steps=32)
"""


@processes
@full
def test_killed_at_any_moment_a_run_can_be_resumed_with_its_replay(tmp_path):
    rng = np.random.default_rng(0)
    for i in range(3):
        log_dir = tmp_path / str(i)
        script = SCRIPT.format(tests=str(Path(__file__).parents[1]), log_dir=str(log_dir))
        process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        while not (log_dir / "run_0" / "params.pkl").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(rng.uniform(0, 1))
        process.kill()
        process.wait()
        saved = load_snapshot(log_dir / "run_0")[1]["cum_steps"]
        resumed = run("dqn_prioritized", log_dir, False, resume_from=log_dir / "run_0", n_steps=saved + 64, log_interval_steps=32)
        assert resumed.first_itr * 16 == saved
        assert resumed.algo.replay_buffer.written * 4 == saved + 64


@full
def test_a_full_disk_costs_a_warning_and_what_could_not_be_written_is_written_next_time(tmp_path, monkeypatch, capsys):
    n_calls, atomic_write = [0], checkpoint.atomic_write

    def full(path):
        n_calls[0] += 1
        if n_calls[0] in (2, 3):
            raise OSError(28, "No space left on device")
        return atomic_write(path)

    monkeypatch.setattr(checkpoint, "atomic_write", full)
    directory = run_dir(tmp_path / "a")
    assert n_calls[0] == 4 and capsys.readouterr().out.count("could not be written, training continues without it: [Errno 28]") == 1
    assert len(list((directory / "replay").iterdir())) == 2
    monkeypatch.undo()
    longer = run("dqn", tmp_path / "b", False, resume_from=directory, n_steps=30 * 16)
    expected = final(run("dqn", tmp_path / "c", False, n_steps=30 * 16))
    torch.testing.assert_close(final(longer), expected, rtol=0, atol=0)


class Payload:
    def __reduce__(self):
        return os.mkdir, (str(MARKER),)


MARKER = Path("executed")


def test_what_would_have_to_be_executed_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    directory = ended_run(tmp_path / "a")
    snapshot = torch.load(directory / "params.pkl", weights_only=True)
    torch.save(dict(snapshot, extra=Payload()), directory / "params.pkl")
    with pytest.raises(ValueError, match="is not a readable snapshot"):
        run("dqn", tmp_path / "b", False, resume_from=directory / "params.pkl")
    assert not MARKER.exists()


@full
def test_what_does_not_follow_in_the_replay_is_cut(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(columns, "get_state", lambda env: None)
    directory = run_dir(tmp_path / "a")
    resumed = run("dqn", tmp_path / "b", False, resume_from=directory, n_steps=30 * 16)
    assert "4 environments begin a new episode: their states are not known" in capsys.readouterr().out
    samples, seam = resumed.algo.replay_buffer.samples, 24 * 4 - 1
    assert samples.done[seam].all() and samples.timeout[seam].any()
    assert not samples.done[seam + 1].any()
