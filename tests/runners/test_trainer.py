"""Epochs around an algorithm with a loop of its own, or around one of rlpyt's; resumed, they are what they would have been."""

import csv
import dataclasses
import json
import math
import multiprocessing
import os
import pickle
import random
import signal
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch
from damage import damaged
from policies_for_tests import NoisyEnvironment
from tiers import full, processes, thinned

from rlpyt.agents.dqn.mlp_dqn_agent import MlpDqnAgent
from rlpyt.agents.pg.mlp import MlpFfAgent
from rlpyt.algos.dqn.dqn import DQN
from rlpyt.algos.pg.a2c import A2C
from rlpyt.envs.gym import make as gym_make
from rlpyt.envs.gym_env import GymEnv
from rlpyt.envs.point_env import PointEnv
from rlpyt.episodes import EpisodeBatch, NotSetupError, Trainer, rollout, wrap_experiment
from rlpyt.experiment import SnapshotConfig, Snapshotter
from rlpyt.experiments import train
from rlpyt.experiments.configs import classes_of, load, variant
from rlpyt.runners.async_rl import AsyncRlEval
from rlpyt.runners.minibatch_rl import MinibatchRl, MinibatchRlEval
from rlpyt.runners.snapshots import load_snapshot
from rlpyt.runners.sync_rl import SyncRl
from rlpyt.samplers.async_.serial_sampler import AsyncSerialSampler
from rlpyt.samplers.episodic import LocalSampler, MultiprocessingSampler, VecWorker
from rlpyt.samplers.serial.sampler import SerialSampler
from rlpyt.utils.logging import logger
from rlpyt.utils.logging.context import run_context
from rlpyt.utils.logging.runs import find_column, read_columns
from rlpyt.utils.seed import set_seed

EPOCHS, BATCH = 6, 12


class Killed(Exception):
    pass


class Policy(torch.nn.Module):
    """Acts with Gaussian noise; random numbers are those of torch."""

    def __init__(self, env):
        super().__init__()
        self.n = env.action_space.shape[0]
        self.mean = torch.nn.Linear(env.observation_space.shape[0], self.n)

    def reset(self, do_resets=None):
        pass

    @torch.no_grad()
    def get_action(self, observation):
        mean = self.mean(torch.as_tensor(np.asarray(observation, np.float32)))
        return (mean + 0.1 * torch.randn(self.n)).numpy(), dict(mean=mean.numpy())

    def get_actions(self, observations):
        actions, means = zip(*((action, info["mean"]) for action, info in map(self.get_action, observations)))
        return np.stack(actions), dict(mean=np.stack(means))

    def get_param_values(self):
        return {name: value.clone() for name, value in self.state_dict().items()}

    def set_param_values(self, values):
        self.load_state_dict(values)


class PlayingSampler:
    """Plays episodes in an environment whose goals are its own random numbers."""

    def __init__(self, policy, length=4):
        self.policy, self.length, self.rng, self.is_shut_down = policy, length, np.random.default_rng(1), False

    def obtain_samples(self, itr, num_samples, agent_update, env_update=None):
        self.policy.set_param_values(agent_update)
        paths = []
        while sum(len(path["rewards"]) for path in paths) < num_samples:
            env = PointEnv(goal=self.rng.uniform(-1, 1, 2))
            paths.append(rollout(env, self.policy, max_episode_length=self.length))
        return EpisodeBatch.from_list(PointEnv().spec, paths)

    def shutdown_worker(self):
        self.is_shut_down = True


class SamplerWithState(PlayingSampler):
    def state_dict(self):
        return dict(rng=self.rng)

    def load_state_dict(self, state):
        self.rng = state["rng"]


class RandomGoal(PointEnv):
    """Another goal in each episode, from random numbers of its own, and some noise from the process's."""

    def __init__(self):
        super().__init__(max_episode_length=5)
        self.rng = np.random.default_rng()

    def seed(self, seed):
        super().seed(seed)
        self.rng = np.random.default_rng(seed)

    def reset(self):
        self.set_task(dict(goal=self.rng.uniform(-1, 1, 2) + 0.1 * np.random.rand(2)))
        return super().reset()


class Learning:
    """Goes up the gradient of rewards times log-likelihood, in a loop of its own."""

    def __init__(self, stop_at=None, SamplerCls=SamplerWithState, env=None):
        self.policy = Policy(env or PointEnv())
        self.optimizer = torch.optim.Adam(self.policy.parameters(), lr=0.01)
        self._sampler = SamplerCls(self.policy)
        self.returns, self.stop_at, self.rng = [], stop_at, np.random.default_rng(2)

    def train(self, trainer):
        torch.rand(3), np.random.rand()  # Preparations draw random numbers, too.
        for epoch in trainer.step_epochs():
            episodes = trainer.step_episode = trainer.obtain_episodes(trainer.step_itr)
            self.train_once(episodes)
            if epoch == self.stop_at:
                raise Killed
            trainer.step_itr += 1
            logger.record_tabular("AverageReturn", self.returns[-1])
        return self.returns[-1] if self.returns else None

    def train_once(self, episodes):
        means = self.policy.mean(torch.as_tensor(episodes.observations, dtype=torch.float32))
        log_likelihoods = -(torch.as_tensor(episodes.actions) - means).square().sum(-1)
        weights = torch.as_tensor(episodes.rewards * self.rng.random(len(episodes.rewards)), dtype=torch.float32)
        self.optimizer.zero_grad()
        (-(weights * log_likelihoods).mean()).backward()
        self.optimizer.step()
        self.returns.append(float(episodes.rewards.sum() / len(episodes.lengths)))


class Learner(Learning):
    def state_dict(self):
        parts = dict(policy=self.policy.state_dict(), optimizer=self.optimizer.state_dict())
        return dict(parts, returns=self.returns, rng=self.rng, running=np.arange(3.0))

    def load_state_dict(self, state):
        self.policy.load_state_dict(state["policy"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.returns, self.rng = state["returns"], state["rng"]
        assert isinstance(state["running"], np.ndarray)


def train_learner(directory, mode="last", gap=1, seed=4, n_epochs=EPOCHS, **settings):
    set_seed(seed)
    learner = Learner(**settings)
    with run_context(str(directory), "test", {}):
        trainer = Trainer(SnapshotConfig(str(directory), mode, gap))
        trainer.setup(learner, PointEnv())
        trainer.train(n_epochs, BATCH)
    return learner, trainer


def resume_learner(directory, into, from_epoch="last", setup_first=True, learner=None, **arguments):
    set_seed(99)
    learner = learner or Learner()
    torch.rand(7)
    with run_context(str(into), "test", {}):
        trainer = Trainer(SnapshotConfig(str(into)))
        if setup_first:
            trainer.setup(learner, PointEnv())
        trainer.restore(directory, from_epoch)
        if not setup_first:
            trainer.setup(learner, PointEnv())
        trainer.resume(**arguments)
    return learner, trainer


def rows(directory):
    """The table without what is measured in seconds."""
    with open(Path(directory) / "progress.csv") as file:
        return [{k: v for k, v in row.items() if "Time" not in k and "PerSecond" not in k} for row in csv.DictReader(file)]


def assert_same(a, b):
    torch.testing.assert_close(a.policy.state_dict(), b.policy.state_dict(), rtol=0, atol=0)
    torch.testing.assert_close(a.optimizer.state_dict(), b.optimizer.state_dict(), rtol=0, atol=0)
    assert a.returns == b.returns and a.rng.bit_generator.state == b.rng.bit_generator.state


# --- Algorithms with a loop of their own ------------------------------------------------------------------------------
def test_an_epoch_is_a_row_of_the_log(tmp_path):
    learner, trainer = train_learner(tmp_path)
    columns = read_columns(tmp_path / "progress.csv")
    assert columns["Epoch"] == list(range(EPOCHS)) and columns["AverageReturn"] == learner.returns
    assert columns["TotalEnvSteps"] == [BATCH * (i + 1) for i in range(EPOCHS)] and trainer.total_env_steps == EPOCHS * BATCH
    assert find_column(columns, "CumSteps") == "TotalEnvSteps" and find_column(columns, "ReturnAverage", "AverageReturn")
    assert all(seconds > 0 for seconds in columns["EpochTime (s)"]) and columns["CumTime (s)"] == sorted(columns["CumTime (s)"])
    assert trainer.step_itr == EPOCHS and learner._sampler.is_shut_down
    described = json.loads((tmp_path / "trainer.json").read_text())
    assert (described["algo"], described["sampler"], described["env"]) == ("Learner", "SamplerWithState", "PointEnv")
    assert (described["n_epochs"], described["batch_size"]) == (EPOCHS, BATCH)


@pytest.mark.parametrize("setup_first", [True, False])
def test_a_resumed_training_is_the_uninterrupted_one(setup_first, tmp_path):
    expected, _ = train_learner(tmp_path / "whole")
    with pytest.raises(Killed):
        train_learner(tmp_path / "parts", stop_at=3)
    resumed, trainer = resume_learner(tmp_path / "parts", tmp_path / "parts", setup_first=setup_first)
    assert_same(resumed, expected)
    assert rows(tmp_path / "parts") == rows(tmp_path / "whole") and len(rows(tmp_path / "whole")) == EPOCHS
    assert trainer.total_env_steps == EPOCHS * BATCH
    with pytest.raises(NotSetupError, match=r"Call restore\(directory\) before resume\(\)"):
        trainer.resume(n_epochs=EPOCHS + 1)


@pytest.mark.parametrize(
    "SamplerCls, worker",
    [
        (LocalSampler, dict(n_workers=2)),
        (LocalSampler, dict(n_workers=1, worker_class=VecWorker, worker_args=dict(n_envs=3))),
        pytest.param(MultiprocessingSampler, dict(n_workers=2), marks=[processes, full]),
    ],
)
@pytest.mark.parametrize(
    "make_env",
    [RandomGoal, pytest.param(lambda: GymEnv("MountainCarContinuous-v0", max_episode_length=5), marks=full)],
    ids=["point", "gym"],
)
@pytest.mark.filterwarnings("ignore:max_episode_length=5 replaces")
@pytest.mark.timeout(240)
def test_so_is_one_with_a_sampler_of_episodes(SamplerCls, worker, make_env, tmp_path, capsys):
    def learner(**settings):
        env = make_env()
        return Learner(SamplerCls=lambda policy: SamplerCls(policy, env, max_episode_length=7, **worker), env=env, **settings)

    def train_it(directory, **settings):
        set_seed(4)
        with run_context(str(directory), "test", {}):
            trainer, trained = Trainer(SnapshotConfig(str(directory))), learner(**settings)
            trainer.setup(trained)
            trainer.train(EPOCHS, BATCH)
        return trained, trainer

    expected, trainer = train_it(tmp_path / "whole")
    with pytest.raises(Killed):
        train_it(tmp_path / "parts", stop_at=3)
    set_seed(99)
    resumed, _ = resume_learner(tmp_path / "parts", tmp_path / "parts", learner=learner())
    assert_same(resumed, expected)
    assert rows(tmp_path / "parts") == rows(tmp_path / "whole")
    assert "states are not known" not in capsys.readouterr().out
    trainer.save(EPOCHS)  # Though its workers have ended.
    assert torch.load(tmp_path / "whole" / "params.pkl", weights_only=True)["sampler"]["class"] == SamplerCls.__name__
    assert not multiprocessing.active_children()


def test_of_the_processes_of_torchrun_the_first_one_saves(tmp_path, monkeypatch):
    train_learner(tmp_path / "a", n_epochs=2)
    before = {file.name: file.read_bytes() for file in (tmp_path / "a").iterdir()}
    for name, value in dict(RANK="1", WORLD_SIZE="2", LOCAL_RANK="1", LOCAL_WORLD_SIZE="2").items():
        monkeypatch.setenv(name, value)
    learner, _ = train_learner(tmp_path / "a", n_epochs=3)
    assert len(learner.returns) == 3
    train_rlpyt("ppo", tmp_path / "a", n_epochs=1)
    assert {file.name: file.read_bytes() for file in (tmp_path / "a").iterdir()} == before


def test_it_may_be_longer_and_go_on_from_any_epoch(tmp_path):
    expected, _ = train_learner(tmp_path / "whole", n_epochs=8)
    train_learner(tmp_path / "parts", "all")
    for from_epoch in ("first", 2, "4", "last"):
        resumed, _ = resume_learner(tmp_path / "parts", tmp_path / f"from {from_epoch}", from_epoch, n_epochs=8)
        assert_same(resumed, expected)
        assert rows(tmp_path / f"from {from_epoch}") == rows(tmp_path / "whole")


def test_restore_returns_a_copy_of_the_arguments(tmp_path):
    train_learner(tmp_path, n_epochs=2)
    trainer = Trainer(SnapshotConfig(str(tmp_path)))
    args = trainer.restore(tmp_path)
    assert dataclasses.astuple(args) == (2, BATCH, False, False, False, 2) and trainer.total_env_steps == 2 * BATCH
    args.start_epoch = 0
    learner = Learner()
    trainer.setup(learner)
    trainer.resume(n_epochs=3)
    assert len(learner.returns) == 3


def test_no_epochs_are_no_epochs(tmp_path):
    learner, _ = train_learner(tmp_path, n_epochs=3)
    resumed, _ = resume_learner(tmp_path, tmp_path / "b", n_epochs=0)
    assert resumed.returns == learner.returns and not (tmp_path / "b" / "params.pkl").exists()
    assert train_learner(tmp_path / "c", n_epochs=0)[0].returns == []


def test_resuming_takes_other_arguments(tmp_path):
    train_learner(tmp_path, n_epochs=2)
    _, trainer = resume_learner(tmp_path, tmp_path / "b", n_epochs=4, batch_size=8)
    assert trainer.total_env_steps == 2 * BATCH + 2 * 8


def test_a_restored_algorithm_can_be_used_without_training(tmp_path):
    learner, _ = train_learner(tmp_path)
    restored, trainer = Learner(), Trainer(SnapshotConfig(str(tmp_path)))
    trainer.setup(restored)
    trainer.restore(tmp_path)
    torch.testing.assert_close(restored.policy.state_dict(), learner.policy.state_dict(), rtol=0, atol=0)


def test_without_the_state_of_the_sampler_environments_begin_anew(tmp_path, capsys):
    train_learner(tmp_path, n_epochs=2, SamplerCls=PlayingSampler)
    resume_learner(tmp_path, tmp_path / "b", learner=Learner(SamplerCls=PlayingSampler), n_epochs=4)
    assert "Environments begin new episodes" in capsys.readouterr().out and len(rows(tmp_path / "b")) == 4


def test_episodes_are_stored_on_request(tmp_path):
    set_seed(0)
    trainer = Trainer(SnapshotConfig(str(tmp_path)))
    trainer.setup(Learner())
    trainer.train(2, BATCH, store_episodes=True)
    episodes = trainer.step_episode
    restored = Trainer(SnapshotConfig(str(tmp_path)))
    restored.restore(tmp_path)
    assert len(restored.step_episode) == 3
    assert EpisodeBatch.from_list(PointEnv().spec, restored.step_episode) == episodes


def test_logging_can_be_left_to_the_algorithm(tmp_path):
    class Silent(Learner):
        def train(self, trainer):
            trainer.enable_logging = False
            for epoch in trainer.step_epochs():
                logger.record_tabular("own", epoch)
                logger.dump_tabular()
                trainer.step_itr += 2

    with run_context(str(tmp_path), "test", {}):
        trainer = Trainer()
        trainer.setup(Silent())
        trainer.train(2)
    assert rows(tmp_path) == [dict(own="0"), dict(own="1")] and trainer.step_itr == 4


@pytest.mark.parametrize("mode, gap, names", [("gap", 4, ["itr_0", "itr_2"]), ("last", 1, ["params", "params_previous"])])
def test_ctrl_c_ends_after_the_epoch_with_a_snapshot(mode, gap, names, tmp_path):
    class Interrupted(Learner):
        def train_once(self, episodes):
            super().train_once(episodes)
            if len(self.returns) == 3:
                os.kill(os.getpid(), signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(SystemExit) as end:
        set_seed(4)
        with run_context(str(tmp_path / "parts"), "test", {}):
            trainer = Trainer(SnapshotConfig(str(tmp_path / "parts"), mode, gap))
            trainer.setup(Interrupted())
            trainer.train(EPOCHS, BATCH)
    assert end.value.code == 130 and signal.getsignal(signal.SIGINT) is before
    assert [file.stem for file in sorted((tmp_path / "parts").glob("*.pkl"))] == names and len(rows(tmp_path / "parts")) == 3
    expected, _ = train_learner(tmp_path / "whole")
    resumed, _ = resume_learner(tmp_path / "parts", tmp_path / "parts", learner=Interrupted())
    assert_same(resumed, expected)
    assert rows(tmp_path / "parts") == rows(tmp_path / "whole")


@processes
def test_in_an_experiment_everything_comes_from_its_context(tmp_path):
    @wrap_experiment(log_dir=tmp_path / "a", snapshot_mode="gap_and_last", snapshot_gap=3)
    def experiment(ctxt, seed, resume_from=None):
        set_seed(seed)
        learner, trainer = Learner(), Trainer(ctxt)
        trainer.setup(learner, PointEnv())
        if resume_from:
            trainer.restore(resume_from, "first")
            trainer.resume(n_epochs=5)
        else:
            trainer.train(4, BATCH)
        return learner

    options = dict(use_existing_dir=True)
    learner = experiment(options, seed=1)
    assert {"itr_0.pkl", "itr_3.pkl", "params.pkl", "trainer.json"} <= set(os.listdir(tmp_path / "a"))
    resumed = experiment(options, seed=2, resume_from=tmp_path / "a")  # From files that are put aside when it begins.
    assert resumed.returns[:4] == learner.returns and len(resumed.returns) == 5
    assert rows(tmp_path / "a")[:4] == [dict(row) for row in csv_rows(tmp_path / "a" / "progress.1.csv")]


def csv_rows(path):
    with open(path) as file:
        return [{k: v for k, v in row.items() if "Time" not in k} for row in csv.DictReader(file)]


@pytest.mark.parametrize(
    "mode, gap, from_epoch",
    [("last", 1, None), ("last", 1, 3), ("all", 1, None), ("all", 1, 0), ("all", 1, 3), ("gap_and_last", 2, None), ("gap_and_last", 2, 0)],
)
@pytest.mark.parametrize("is_same", thinned([True, False], quick=[False]), ids=["the same trainer", "another one"])
def test_of_several_trainings_in_a_directory_the_last_one_is_restored(mode, gap, from_epoch, is_same, tmp_path):
    config = SnapshotConfig(str(tmp_path), mode, gap)
    trainer = Trainer(config)
    trainer.setup(Learner())
    trainer.train(5, BATCH)
    learner, trainer = Learner(), trainer if is_same else Trainer(config)
    trainer.setup(learner)
    if from_epoch is None:
        trainer.train(1, BATCH)
    else:
        trainer.restore(tmp_path, from_epoch)
        trainer.resume(n_epochs=from_epoch + 2, batch_size=2 * BATCH)
    restored = Trainer(config)
    restored.setup(Learner())
    assert restored.restore(tmp_path).start_epoch == len(learner.returns) and restored.total_env_steps == trainer.total_env_steps
    assert_same(restored._algo, learner)


@pytest.mark.parametrize("restores", [False, True])
def test_training_counts_from_the_beginning_each_time_and_the_algorithm_keeps_its_state(restores, tmp_path):
    with run_context(str(tmp_path), "test", {}):
        learner, trainer = Learner(), Trainer()
        trainer.setup(learner)
        for _ in range(2):
            trainer.train(2, BATCH)
            if restores:
                trainer.restore(tmp_path)
            assert (trainer.step_itr, trainer.total_env_steps) == (2, 2 * BATCH)
    table = csv_rows(tmp_path / "progress.csv")
    assert len(learner.returns) == 4 and [row["Epoch"] for row in table] == ["0", "1"] * 2
    assert [int(row["TotalEnvSteps"]) for row in table] == [BATCH, 2 * BATCH] * 2


def test_only_training_takes_time(tmp_path, monkeypatch):
    class Clock:
        now = 0.0

        def monotonic(self):
            return self.now

    class Slow(Learner):
        def train_once(self, episodes):
            super().train_once(episodes)
            clock.now += 10

    def seconds():
        return torch.load(tmp_path / "params.pkl", weights_only=True)["trainer"]["cum_time"]

    clock, trainer = Clock(), Trainer(tmp_path)
    monkeypatch.setattr("rlpyt.runners.trainer.time", clock)
    for _ in range(2):
        clock.now += 1000
        trainer.setup(Slow())
        trainer.train(3, BATCH)
        assert seconds() == 30
        clock.now += 1000
        trainer.save(2)
        assert seconds() == 30
    restored = Trainer(tmp_path)
    restored.setup(Slow())
    restored.restore(tmp_path)
    clock.now += 1000
    restored.save(2)
    assert seconds() == 30
    restored.resume(n_epochs=4)
    assert seconds() == 40


def test_a_sampler_that_training_has_shut_down_is_to_be_replaced(tmp_path):
    learner, trainer = (
        Learner(SamplerCls=lambda policy: LocalSampler(policy, PointEnv(), max_episode_length=4, n_workers=1)),
        Trainer(tmp_path),
    )
    trainer.setup(learner)
    trainer.train(1, BATCH)
    with pytest.raises(RuntimeError, match="was shut down") as info:
        trainer.train(1, BATCH)
    assert info.value.__notes__ == ["The training before has shut it down: give the algorithm a new sampler, and call setup() again."]
    learner._sampler = LocalSampler(learner.policy, PointEnv(), max_episode_length=4, n_workers=1)
    trainer.setup(learner)
    trainer.train(1, BATCH)
    assert trainer.total_env_steps == BATCH


# --- What must be called first, and what an algorithm must offer ------------------------------------------------------
def test_setup_comes_first(tmp_path):
    trainer = Trainer(SnapshotConfig(str(tmp_path)))
    for call in (lambda: trainer.train(1), lambda: trainer.save(0), lambda: next(trainer.step_epochs())):
        with pytest.raises(NotSetupError, match=r"Call setup\(algo, env\) before"):
            call()
    with pytest.raises(NotSetupError, match=r"Call restore\(directory\) before resume\(\)"):
        trainer.resume()
    trainer.setup(Learner())
    with pytest.raises(NotSetupError, match=r"Call restore\(directory\) before resume\(\)"):
        trainer.resume()
    trainer.save(0)
    trainer = Trainer(SnapshotConfig(str(tmp_path)))
    trainer.restore(tmp_path)
    with pytest.raises(NotSetupError, match="A snapshot holds no code"):
        trainer.resume()


def test_sampling_needs_a_sampler_and_a_size(tmp_path):
    trainer, learner = Trainer(SnapshotConfig(str(tmp_path))), Learner()
    learner._sampler = None
    trainer.setup(learner)
    with pytest.raises(ValueError, match="has no sampler"):
        trainer.obtain_episodes(0, 8)
    trainer.setup(Learner())
    with pytest.raises(ValueError, match="batch_size"):
        trainer.obtain_samples(0)
    paths = trainer.obtain_samples(0, 8)
    assert isinstance(paths, list) and sum(len(path["rewards"]) for path in paths) == 8 == trainer.total_env_steps
    trainer.total_env_steps = 100
    assert trainer.total_env_steps == 100


def test_sampling_needs_a_policy_to_send(tmp_path):
    class Acting:
        """Has parameters, where the trainer does not look for them."""

        train = None

        def __init__(self, attribute):
            env = PointEnv()
            setattr(self, attribute, Policy(env))
            self._sampler = LocalSampler(Policy(env), env, max_episode_length=4, n_workers=1)

    trainer = Trainer(SnapshotConfig(str(tmp_path)))
    for attribute in ("agent", "policy", "exploration_policy"):
        algo = Acting(attribute)
        algo.train = lambda trainer: None
        trainer.setup(algo)
        if attribute == "agent":
            with pytest.raises(ValueError, match="Acting has no attribute policy or exploration_policy, so workers would act with"):
                trainer.obtain_episodes(0, 8)
            episodes = trainer.obtain_episodes(0, 8, agent_update=algo.agent.get_param_values())
        else:
            episodes = trainer.obtain_episodes(0, 8)
        assert algo._sampler._workers[0].agent.mean.weight.equal(getattr(algo, attribute).mean.weight) and episodes.lengths.sum() == 8
        algo._sampler.shutdown_worker()


def test_an_algorithm_that_does_not_tell_its_state_is_refused_unless_no_snapshots_are_kept(tmp_path):
    class Plain:
        epochs = 0

        def train(self, trainer):
            for _ in trainer.step_epochs():
                self.epochs += 1
            return self.epochs

    trainer = Trainer(SnapshotConfig(str(tmp_path)))
    trainer.setup(Plain())
    with pytest.raises(TypeError, match=r"Plain has neither state_dict\(\).*snapshot_mode='none'"):
        trainer.train(2)
    trainer = Trainer(SnapshotConfig(str(tmp_path), "none"))
    trainer.setup(Plain())
    assert trainer.train(2) == 2 and not list(tmp_path.glob("*.pkl"))


def test_state_may_be_told_as_for_pickle(tmp_path):
    class Pickled(Learning):
        def __getstate__(self):
            return dict(policy=self.policy.state_dict(), returns=self.returns)

        def __setstate__(self, state):
            self.policy.load_state_dict(state["policy"])
            self.returns = state["returns"]

    learner, trainer = Pickled(), Trainer(SnapshotConfig(str(tmp_path)))
    trainer.setup(learner)
    trainer.train(2, BATCH)
    restored, trainer = Pickled(), Trainer(SnapshotConfig(str(tmp_path)))
    trainer.setup(restored)
    trainer.restore(tmp_path)
    torch.testing.assert_close(restored.policy.state_dict(), learner.policy.state_dict(), rtol=0, atol=0)
    assert restored.returns == learner.returns


def test_what_a_snapshot_cannot_hold_is_named(tmp_path):
    class Whole(Learner):
        def state_dict(self):
            return dict(parts=[self.policy])

    trainer = Trainer(SnapshotConfig(str(tmp_path)))
    trainer.setup(Whole())
    with pytest.raises(TypeError, match=r"Whole.state_dict\(\)\['parts'\]\[0\] is a .*Policy.*loading it would run code"):
        trainer.train(1, BATCH)


def test_a_snapshot_of_another_algorithm_is_refused(tmp_path):
    class Other(Learner):
        pass

    train_learner(tmp_path, n_epochs=1)
    trainer = Trainer(SnapshotConfig(str(tmp_path)))
    trainer.setup(Other())
    with pytest.raises(ValueError, match="is of a Learner, and cannot be the state of a Other"):
        trainer.restore(tmp_path)
    Snapshotter(tmp_path / "b").save_itr_params(0, dict(itr=0))
    with pytest.raises(ValueError, match="has not been saved by a Trainer"):
        trainer.restore(tmp_path / "b")


def test_a_snapshot_of_another_format_is_refused(tmp_path):
    train_learner(tmp_path, n_epochs=1)
    snapshot = torch.load(tmp_path / "params.pkl", weights_only=True)
    snapshot["trainer"]["format"] += 1
    torch.save(snapshot, tmp_path / "params.pkl")
    with pytest.raises(ValueError, match="params.pkl cannot be resumed: it is of format 2, this version of rlpyt reads format 1"):
        resume_learner(tmp_path, tmp_path / "b")
    snapshot["trainer"].update(format=1, train_args=dict(snapshot["trainer"]["train_args"], n_epochs="3"))
    torch.save(snapshot, tmp_path / "params.pkl")
    with pytest.raises(ValueError, match=r"trainer\['train_args'\] of .*train_args\['n_epochs'\] is '3'"):
        resume_learner(tmp_path, tmp_path / "b")


@pytest.mark.parametrize("n", thinned([20, 100], quick=[20]))
def test_a_changed_snapshot_is_refused_or_restored(n, tmp_path):
    train_learner(tmp_path, n_epochs=1)
    snapshot, choices, refused = torch.load(tmp_path / "params.pkl", weights_only=True), random.Random(n), 0
    for _ in range(n):
        with suppress(RecursionError, NotImplementedError):  # What cannot be written.
            torch.save(damaged(snapshot, choices), tmp_path / "params.pkl")
        try:
            trainer = Trainer(SnapshotConfig(str(tmp_path / "b"), "none"))
            trainer.setup(Learner())
            trainer.restore(tmp_path)
            next(trainer.step_epochs(), None)  # Which puts the rest back.
        except ValueError as error:
            refused += 1
            assert "params.pkl" in str(error)
    assert refused > n / 4


def test_restoring_runs_no_code(tmp_path):
    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "executed"),)

    (tmp_path / "params.pkl").write_bytes(pickle.dumps(dict(itr=0, trainer={}, algo=Evil())))
    with pytest.raises(ValueError, match="not a readable snapshot|No snapshot"):
        Trainer(SnapshotConfig(str(tmp_path))).restore(tmp_path)
    assert not (tmp_path / "executed").exists()


def test_arguments_that_make_no_sense_are_refused(tmp_path):
    trainer = Trainer(SnapshotConfig(str(tmp_path)))
    with pytest.raises(TypeError, match="object has neither train"):
        trainer.setup(object())
    with pytest.raises(ValueError, match="takes care of seed itself"):
        trainer.setup(Learner(), seed=0)
    trainer.setup(Learner())
    for n_epochs, batch_size, message in ((-1, None, "n_epochs=-1"), (1.5, None, "n_epochs=1.5"), (1, 0, "batch_size=0")):
        with pytest.raises(ValueError, match=message):
            trainer.train(n_epochs, batch_size)


def test_a_directory_is_enough_to_say_where_snapshots_go(tmp_path):
    for directory in (tmp_path / "a", str(tmp_path / "b")):
        trainer = Trainer(directory)
        trainer.setup(Learner(), PointEnv())
        trainer.train(1, BATCH)
        assert os.path.isfile(os.path.join(directory, "params.pkl"))
    for wrong in (3, dict(snapshot_dir=str(tmp_path))):
        with pytest.raises(TypeError, match="must be the context of an experiment, a SnapshotConfig, a directory, or None"):
            Trainer(wrong)


def test_plotting_is_ignored_with_a_warning(tmp_path, capsys):
    trainer = Trainer(SnapshotConfig(str(tmp_path)))
    trainer.setup(Learner())
    trainer.train(1, BATCH, plot=True, pause_for_plot=True)
    assert "no window to plot in" in capsys.readouterr().out


def test_a_copy_of_the_environment_is_another_one(tmp_path):
    trainer, env = Trainer(SnapshotConfig(str(tmp_path))), PointEnv(goal=(0.5, 0.5))
    trainer.setup(Learner(), env)
    copy = trainer.get_env_copy()
    assert copy is not env and copy.spec == env.spec and copy.reset()[1]["goal"].tolist() == [0.5, 0.5]
    trainer.setup(Learner(), NoisyEnvironment())
    assert len({float(trainer.get_env_copy().observe()[0]) for _ in range(3)}) == 3
    trainer.setup(Learner())
    assert trainer.get_env_copy() is None


def test_the_snapshots_of_a_trainer_go_where_the_log_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with run_context(str(tmp_path / "log"), "test", {}, "gap", snapshot_gap=2):
        trainer = Trainer()
        trainer.setup(Learner())
        trainer.train(3, BATCH)
    assert {"itr_0.pkl", "itr_2.pkl"} <= set(os.listdir(tmp_path / "log"))
    Trainer()
    assert os.path.isdir("data/local/experiment")


# --- Algorithms of rlpyt ----------------------------------------------------------------------------------------------
small_replay = dict(min_steps_learn=64, replay_size=400, batch_size=16)
CASES = {"ppo": ("ppo", dict(algo=dict(epochs=3), sampler=dict(batch_T=16))), "dqn": ("dqn", dict(algo=dict(small_replay, eps_steps=300)))}


def parts_of(case, evaluate=False):
    key, changes = CASES[case]
    module = load("cartpole")
    sampler = dict(eval_n_envs=2, eval_max_steps=300, eval_max_trajectories=4) if evaluate else dict(eval_n_envs=0)
    config = variant(module.configs[key], **changes)
    config = variant(config, sampler=dict(sampler, max_decorrelation_steps=20))
    affinity = dict(master_torch_threads=1, workers_cpus=[0, 1], set_affinity=False)
    runner = train.build(config, classes_of(module, key), affinity, seed=3)
    return runner.algo, dict(agent=runner.agent, sampler=runner.sampler, affinity=affinity, save_replay=True)


def train_rlpyt(case, directory, stop_at=None, evaluate=False, resume=False, mode="last", n_epochs=4, itrs_per_epoch=6, seed=3):
    algo, settings = parts_of(case, evaluate)
    size = settings["sampler"].batch_spec.size
    itrs_per_epoch = max(itrs_per_epoch, 96 // size) if case == "dqn" else itrs_per_epoch
    Base = MinibatchRlEval if evaluate else MinibatchRl

    class Stopping(Base):
        def run_iteration(self, itr):
            if stop_at is not None and itr * size >= stop_at * itrs_per_epoch * size:
                raise Killed
            super().run_iteration(itr)

    with run_context(str(directory), "test", {}):
        trainer = Trainer(SnapshotConfig(str(directory), mode))
        trainer.setup(algo, **settings, seed=None if resume else seed, RunnerCls=Stopping)
        if resume:
            trainer.restore(directory)
            trainer.resume()
        else:
            trainer.train(n_epochs, itrs_per_epoch * size)
    return trainer, settings["agent"], algo


@pytest.mark.parametrize("evaluate", thinned([False, True], quick=[True]))
@pytest.mark.parametrize("case", thinned(CASES, quick=["dqn"]))
def test_resumed_training_of_an_rlpyt_algorithm_is_the_uninterrupted_one(case, evaluate, tmp_path):
    _, agent, algo = train_rlpyt(case, tmp_path / "whole", evaluate=evaluate)
    with pytest.raises(Killed):
        train_rlpyt(case, tmp_path / "parts", stop_at=2.5, evaluate=evaluate)
    trainer, resumed_agent, resumed_algo = train_rlpyt(case, tmp_path / "parts", evaluate=evaluate, resume=True)
    torch.testing.assert_close(resumed_agent.state_dict(), agent.state_dict(), rtol=0, atol=0)
    torch.testing.assert_close(resumed_algo.optim_state_dict(), algo.optim_state_dict(), rtol=0, atol=0, equal_nan=True)
    assert rows(tmp_path / "parts") == rows(tmp_path / "whole") and len(rows(tmp_path / "whole")) == 4 + evaluate
    assert trainer.total_env_steps == float(rows(tmp_path / "whole")[-1]["Diagnostics/CumSteps"])


@full
def test_ctrl_c_in_the_middle_of_an_epoch_of_it_loses_nothing(tmp_path, monkeypatch):
    train_rlpyt("ppo", tmp_path / "whole")
    run_iteration = MinibatchRl.run_iteration

    def interrupt(self, itr):
        run_iteration(self, itr)
        if itr == 14:  # of epoch 2
            os.kill(os.getpid(), signal.SIGINT)

    with monkeypatch.context() as patch, pytest.raises(SystemExit):
        patch.setattr(MinibatchRl, "run_iteration", interrupt)
        train_rlpyt("ppo", tmp_path / "parts")
    assert Trainer(SnapshotConfig(str(tmp_path / "parts"))).restore(tmp_path / "parts").start_epoch == 2
    train_rlpyt("ppo", tmp_path / "parts", resume=True)
    interrupted, whole = rows(tmp_path / "parts"), rows(tmp_path / "whole")
    assert len(interrupted) == 5  # One at the interrupt.
    columns = ("Diagnostics/CumSteps", "Diagnostics/CumUpdates", "ReturnAverage")
    assert [interrupted[-1][column] for column in columns] == [whole[-1][column] for column in columns]


def two_ranks(directory):
    """A trainer of two processes, each of which samples 16 steps at once."""
    one = dict(master_torch_threads=1, workers_cpus=[0], set_affinity=False)
    trainer = Trainer(SnapshotConfig(str(directory), "all"))
    sampler = SerialSampler(gym_make, dict(id="CartPole-v1"), batch_T=8, batch_B=2)
    trainer.setup(A2C(), agent=MlpFfAgent(), sampler=sampler, affinity=[one] * 2, RunnerCls=SyncRl)
    return trainer


@processes
@full
@pytest.mark.timeout(120)
@pytest.mark.parametrize("batch_size, steps", [(64, [64, 128, 192]), (None, [32, 64, 96])])
def test_several_processes_train_by_epochs(batch_size, steps, tmp_path):
    for resume in (False, True):
        with run_context(str(tmp_path), "test", {}):
            trainer = two_ranks(tmp_path)
            if resume:
                assert trainer.restore(tmp_path).start_epoch == 2
                trainer.resume(n_epochs=3)
            else:
                trainer.train(2, batch_size)
    assert {"itr_0.1.pkl", "itr_1.1.pkl", "itr_2.pkl"} <= set(os.listdir(tmp_path))
    assert [float(row["Diagnostics/CumSteps"]) for row in rows(tmp_path)] == steps
    assert not multiprocessing.active_children()


def test_an_epoch_is_a_multiple_of_what_all_processes_take_together(tmp_path):
    with pytest.raises(ValueError, match="batch_size=48 must be a multiple of the 32 env steps that the samplers of 2 processes take"):
        two_ranks(tmp_path).train(1, 48)


def test_its_snapshots_are_those_of_a_runner_by_epochs(tmp_path):
    trainer, _, _ = train_rlpyt("ppo", tmp_path, mode="all")
    assert {f"itr_{epoch}.pkl" for epoch in range(4)} <= set(os.listdir(tmp_path))
    snapshot = torch.load(tmp_path / "itr_2.pkl", weights_only=True)
    assert {"itr", "cum_steps", "agent_state_dict", "optimizer_state_dict", "run"} <= set(snapshot) and snapshot["epoch"] == 2
    algo, settings = parts_of("ppo")
    again = Trainer(SnapshotConfig(str(tmp_path)))
    again.setup(algo, **settings)
    args = again.restore(tmp_path, 1)
    assert (args.start_epoch, args.n_epochs) == (2, 4) and args.batch_size == snapshot["cum_steps"] // 3
    with pytest.raises(ValueError, match="batch_size=.* must be .*, as it was"):
        again.resume(batch_size=2 * args.batch_size)


@pytest.mark.parametrize("RunnerCls", [MinibatchRlEval, pytest.param(AsyncRlEval, marks=[processes, full])])
@pytest.mark.timeout(120)
def test_it_keeps_no_best_snapshot_whatever_the_mode_of_the_log(RunnerCls, tmp_path):
    SamplerCls = AsyncSerialSampler if RunnerCls is AsyncRlEval else SerialSampler
    for resume in (False, True):
        algo = DQN(min_steps_learn=32, replay_size=4000, batch_size=16, replay_ratio=1)
        sampler = SamplerCls(gym_make, dict(id="CartPole-v1"), batch_T=8, batch_B=2, eval_n_envs=1, eval_max_steps=300)
        with run_context(str(tmp_path / "log"), "test", {}, "best"):
            trainer = Trainer()
            trainer.setup(algo, agent=MlpDqnAgent(), sampler=sampler, RunnerCls=RunnerCls)
            if resume:
                trainer.restore(tmp_path / "log")
                trainer.resume(n_epochs=4)
            else:
                trainer.train(n_epochs=2, batch_size=64)
    snapshot = torch.load(tmp_path / "log" / "params.pkl", weights_only=True)
    assert snapshot["epoch"] == 3 and snapshot["run"]["best_score"] == -math.inf
    assert not list((tmp_path / "log").glob("best*.pkl"))


def test_training_returns_the_average_return_and_does_nothing_if_nothing_is_left(tmp_path):
    algo, settings = parts_of("ppo", evaluate=True)
    trainer = Trainer(SnapshotConfig(str(tmp_path)))
    trainer.setup(algo, **settings)
    assert trainer.train(1) > 0 and trainer.total_env_steps == settings["sampler"].batch_spec.size
    with pytest.raises(RuntimeError, match="runner of PPO saves"):
        trainer.save(0)
    algo, settings = parts_of("ppo", evaluate=True)
    trainer.setup(algo, **settings)
    trainer.restore(tmp_path)
    assert trainer.resume() is None


def test_of_several_trainings_of_it_the_last_one_is_restored(tmp_path):
    for n_epochs in (3, 1):
        trainer = Trainer(SnapshotConfig(str(tmp_path), "all"))
        algo, settings = parts_of("ppo")
        trainer.setup(algo, **settings)
        trainer.train(n_epochs)
        assert Trainer(tmp_path).restore(tmp_path).start_epoch == n_epochs
        assert load_snapshot(tmp_path)[1]["cum_steps"] == trainer.total_env_steps


def test_a_loop_after_an_rlpyt_algorithm_counts_its_own_steps(tmp_path):
    trainer, _, _ = train_rlpyt("ppo", tmp_path, n_epochs=1)
    trainer.setup(Learner())
    trainer.train(1, BATCH)
    assert trainer.total_env_steps == BATCH


def test_what_an_rlpyt_algorithm_needs_is_said(tmp_path):
    algo, settings = parts_of("ppo")
    trainer = Trainer(SnapshotConfig(str(tmp_path)))
    with pytest.raises(ValueError, match="needs its sampler, too"):
        trainer.setup(algo, agent=settings["agent"])
    trainer.setup(algo, **settings)
    with pytest.raises(ValueError, match="must be a multiple of the"):
        trainer.train(1, settings["sampler"].batch_spec.size + 1)
    train_learner(tmp_path / "b", n_epochs=1)
    with pytest.raises(ValueError, match=r"is of an algorithm with train\(trainer\), which PPO is not"):
        trainer.restore(tmp_path / "b")


def test_a_second_training_in_one_log_is_no_resumed_one(tmp_path):
    with run_context(str(tmp_path), "test", {}):
        for _ in range(2):
            trainer = Trainer()
            trainer.setup(Learner())
            trainer.train(1, BATCH)
    record = json.loads((tmp_path / "params.json").read_text())["rlpyt"]
    assert "resumed" not in record and "started" in record
