"""rlpyt eval."""

import csv
import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch
from tiers import full, processes

from rlpyt.agents.pg.mlp import MlpFfAgent
from rlpyt.envs.gym import GymEnvWrapper, make
from rlpyt.runners.snapshots import load_snapshot
from rlpyt.utils.seed import env_seed, set_seed


def returns_by_hand(run_dir, n_episodes, seed):
    """Returns of CartPole episodes, played in the most obvious way."""
    set_seed(seed)
    env = make(id="CartPole-v1")
    env.seed(env_seed(seed, "eval_env", 0))
    agent = MlpFfAgent()
    agent.initialize(env.spaces)
    agent.load_state_dict(load_snapshot(run_dir)[1]["agent_state_dict"])
    agent.eval_mode(1)
    set_seed(seed)
    returns = []
    for _ in range(n_episodes):
        observation, done, rewards = env.reset(), False, []
        action, reward = env.action_space.null_value(), 0.0
        while not done:
            inputs = (torch.as_tensor(np.asarray(x)) for x in (observation, action, np.float32(reward)))
            action = agent.step(*inputs).action.numpy()
            observation, reward, done, _ = env.step(action)
            rewards.append(reward)
        returns.append(sum(rewards))
    return returns


def test_the_episodes_are_those_that_the_agent_plays(trained, tmp_path, rlpyt):
    run_dir = trained("cartpole", "ppo")
    code, out, err = rlpyt("eval", run_dir, "--episodes", "5", "--n_envs", "1", "--seed", "7", "--out", tmp_path / "a.json")
    assert (code, err) == (0, "")
    result = json.loads((tmp_path / "a.json").read_text())
    returns = [episode["Return"] for episode in result["episodes"]]
    lengths = [episode["Length"] for episode in result["episodes"]]
    assert len(returns) == 5 and returns == lengths and len(set(returns)) > 1
    statistics = result["statistics"]["Return"]
    expected = dict(mean=np.mean(returns), std=np.std(returns), min=min(returns), median=np.median(returns), max=max(returns))
    assert statistics == pytest.approx(expected)
    assert "256 environment steps of training" in out and f"{np.mean(returns):.3f}"[:4] in out
    header, first, *_ = out.splitlines()[1:]
    assert header.split() == ["5", "episodes", "mean", "std", "min", "median", "max"] and first.startswith("Return ")


def test_ctrl_c_keeps_the_episodes_that_have_ended(trained, monkeypatch, tmp_path, rlpyt):
    run_dir, n_done = trained("cartpole", "ppo"), 0

    def step(env, *args, played=GymEnvWrapper.step):
        nonlocal n_done
        if n_done == 3:
            raise KeyboardInterrupt
        outcome = played(env, *args)
        n_done += outcome.done
        return outcome

    monkeypatch.setattr(GymEnvWrapper, "step", step)
    for name in ("step_into", "bind_step"):
        monkeypatch.delattr(GymEnvWrapper, name)
    code, out, _ = rlpyt("eval", run_dir, "--episodes", "50", "--n_envs", "1", "--out", tmp_path / "a.csv")
    assert code == 1 and "Only 3 of 50 episodes came to an end; Ctrl-C stopped the others." in out
    assert len((tmp_path / "a.csv").read_text().splitlines()) == 1 + 3


def test_a_greedy_agent_plays_what_it_plays_by_hand(trained, monkeypatch, tmp_path, rlpyt):
    """Without random actions, so that only environments and parameters matter."""
    run_dir = trained("cartpole", "ppo")
    from rlpyt.distributions.categorical import Categorical

    monkeypatch.setattr(Categorical, "sample", lambda self, dist_info: torch.argmax(dist_info.prob, dim=-1))
    rlpyt("eval", run_dir, "--episodes", "4", "--n_envs", "1", "--seed", "3", "--out", tmp_path / "a.csv")
    with open(tmp_path / "a.csv") as file:
        assert [float(row["Return"]) for row in csv.DictReader(file)] == returns_by_hand(run_dir, 4, seed=3)


def test_it_repeats_with_the_same_seed_only(trained, tmp_path, rlpyt):
    run_dir, files = trained("cartpole", "ppo"), []
    for i, seed in enumerate((1, 1, 2)):
        rlpyt("eval", run_dir, "--episodes", "6", "--seed", seed, "--out", tmp_path / f"{i}.csv")
        files.append((tmp_path / f"{i}.csv").read_text())
    assert files[0] == files[1] != files[2]


@processes
@pytest.mark.parametrize(
    "module, key, settings, kwargs",
    [
        pytest.param("cartpole", "catdqn", (), dict(sampler="cpu"), marks=full),
        ("cartpole_without_velocities", "ppo_lstm", (), dict(sampler="alternating")),
        ("cartpole_without_velocities", "r2d1", (), dict()),
        pytest.param("pendulum", "sac", (), dict(), marks=full),
        pytest.param("atari_dqn", "dqn", ("env.horizon=40", "eval_env.horizon=40", "algo.replay_ratio=1"), dict(), marks=full),
    ],
)
@pytest.mark.timeout(300)
def test_any_agent_plays_whatever_sampler_it_was_trained_with(trained, rlpyt, module, key, settings, kwargs):
    code, out, err = rlpyt("eval", trained(module, key, *settings, **kwargs) / "params.pkl", "--episodes", "3")
    assert (code, err) == (0, "")
    assert "3 episodes" in out and ("\nGameScore" in out) == (module == "atari_dqn")


def test_episodes_that_do_not_end_are_said(trained, rlpyt):
    code, out, _ = rlpyt("eval", trained("cartpole", "ppo"), "--episodes", "3", "--max_steps", "2")
    assert code == 1 and "Only 0 of 3 episodes came to an end; a larger --max_steps allows longer ones." in out


@pytest.mark.parametrize("n_envs", [1, 2])
def test_each_episode_is_cut_after_max_steps_and_only_those_that_ended_count(trained, tmp_path, rlpyt, monkeypatch, n_envs):
    """CartPole falls after 8 to some 60 steps. A longer episode takes no steps from the next ones, which begin as always."""
    run_dir, begun = trained("cartpole", "ppo"), {}  # For each environment, [steps, has ended] of its episodes.

    def reset(env, played=GymEnvWrapper.reset):
        begun.setdefault(id(env), []).append([0, False])
        return played(env)

    def step(env, action, played=GymEnvWrapper.step):
        outcome, episode = played(env, action), begun[id(env)][-1]
        episode[:] = episode[0] + 1, bool(outcome.done)
        return outcome

    monkeypatch.setattr(GymEnvWrapper, "reset", reset)
    monkeypatch.setattr(GymEnvWrapper, "step", step)
    for name in ("step_into", "bind_step", "reset_into"):
        monkeypatch.delattr(GymEnvWrapper, name)
    args = ("--episodes", "12", "--n_envs", n_envs, "--max_steps", "20", "--out", tmp_path / "a.csv")
    code, out, _ = rlpyt("eval", run_dir, *args)
    with open(tmp_path / "a.csv") as file:
        lengths = sorted(float(row["Length"]) for row in csv.DictReader(file))
    _, *in_envs = begun.values()  # The first one is only an example.
    played = sum(in_envs, [])
    assert len(in_envs) == n_envs and len(played) == 12 and 0 < len(lengths) < 12
    assert lengths == sorted(n for n, has_ended in played if has_ended)
    assert all(n == 20 for n, has_ended in played if not has_ended)
    assert code == 1 and f"Only {len(lengths)} of 12 episodes came to an end; a larger --max_steps allows longer ones." in out


def test_environments_take_further_arguments(trained, rlpyt):
    run_dir = trained("cartpole", "ppo")
    assert " 5.0000 " in rlpyt("eval", run_dir, "--episodes", "2", "--env", "max_episode_steps=5")[1]
    assert "must be of the form name=value" in rlpyt("eval", run_dir, "--env", "max_episode_steps")[2]


def test_an_environment_that_cannot_be_made_is_a_sentence(trained, rlpyt):
    code, _, err = rlpyt("eval", trained("cartpole", "ppo"), "--env", "foo=1")
    assert code == 2 and err.startswith("rlpyt eval: The environment cannot be made with foo=1: ") and "Traceback" not in err


def test_nothing_in_the_directory_of_the_run_changes(trained, rlpyt):
    run_dir = trained("cartpole", "ppo")
    before = {path: path.stat().st_mtime_ns for path in run_dir.rglob("*")}
    rlpyt("eval", run_dir, "--episodes", "1")
    assert {path: path.stat().st_mtime_ns for path in run_dir.rglob("*")} == before


# --- Runs of other scripts --------------------------------------------------------------------------------------------
SCRIPT = """
from rlpyt.agents.pg.mlp import MlpFfAgent
from rlpyt.algos.pg.ppo import PPO
from rlpyt.envs.gym import make
from rlpyt.runners.minibatch_rl import MinibatchRl
from rlpyt.samplers.parallel.cpu.sampler import CpuSampler

def build({argument}):
    sampler = CpuSampler(make, dict(id="CartPole-v1"), batch_T=8, batch_B=2)
    return MinibatchRl(algo=PPO(), agent=MlpFfAgent(), sampler=sampler, n_steps=1000)

def nothing():
    return None
"""


@pytest.fixture
def by_hand(trained, tmp_path):
    """The directory of a run whose params.json does not say the classes."""
    run_dir = tmp_path / "run_0"
    shutil.copytree(trained("cartpole", "ppo"), run_dir)
    (run_dir / "params.json").write_text(json.dumps(dict(batch_T=8)))
    return run_dir


@pytest.mark.parametrize("argument", ["", "params"])
def test_a_function_builds_what_params_json_does_not_tell(by_hand, tmp_path, rlpyt, argument):
    (tmp_path / "script.py").write_text(SCRIPT.format(argument=argument))
    code, out, _ = rlpyt("eval", by_hand, "--episodes", "2", "--script", f"{tmp_path / 'script.py'}:build")
    assert code == 0 and "2 episodes" in out


def test_without_one_it_is_said_what_to_do(by_hand, rlpyt):
    code, _, err = rlpyt("eval", by_hand)
    assert code == 2 and "does not say how the run was made" in err and "--script file.py:function" in err


@pytest.mark.parametrize(
    "script, message",
    [
        ("script.py", "'script.py' must be of the form file.py:function"),
        ("nowhere.py:build", "There is no script"),
        ("script.py:biuld", "Did you mean 'build'"),
        ("script.py:nothing", "must return a runner, but returned None"),
    ],
)
def test_a_wrong_script_is_refused_in_a_sentence(by_hand, tmp_path, monkeypatch, rlpyt, script, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "script.py").write_text(SCRIPT.format(argument=""))
    code, _, err = rlpyt("eval", by_hand, "--script", script)
    assert code == 2 and message in err


# --- Errors -----------------------------------------------------------------------------------------------------------
def test_what_cannot_be_played_is_refused_in_a_sentence(trained, tmp_path, rlpyt):
    run_dir = trained("cartpole", "ppo")
    other = tmp_path / "run_1"
    shutil.copytree(run_dir, other)
    for file in other.glob("*.pkl"):
        file.write_bytes(b"PK damaged")
    torch.save(dict(a=1), tmp_path / "other.pkl")
    (tmp_path / "no_snapshot.zip").write_bytes(b"PK")
    assert rlpyt("eval", tmp_path / "no_snapshot.zip")[2].count("no_snapshot.zip") == 1
    for args, message in [
        ([tmp_path / "nowhere"], "nowhere does not exist"),
        ([tmp_path], f"There is no snapshot in {tmp_path}: give the directory of a run in it, {other}."),
        ([other], "No snapshot in"),
        ([tmp_path / "no_snapshot.zip"], "is not a readable snapshot: it is damaged or incomplete, or another kind of file."),
        ([tmp_path / "other.pkl"], "other.pkl is not the snapshot of a run"),
        ([run_dir, "--episodes", "0"], "must be an integer of at least 1"),
        ([run_dir, "--out", "a.txt"], "a.txt must end with .csv or .json"),
    ]:
        code, _, err = rlpyt("eval", *args)
        assert code == 2 and message in err, args


@full
def test_a_snapshot_of_another_agent_is_refused(trained, tmp_path, rlpyt):
    run_dir = tmp_path / "run_0"
    shutil.copytree(trained("cartpole", "ppo"), run_dir)
    shutil.copy(trained("pendulum", "sac") / "params.pkl", run_dir)
    code, _, err = rlpyt("eval", run_dir / "params.pkl")
    assert code == 2 and "does not fit MlpFfAgent" in err


# --- Several tasks ----------------------------------------------------------------------------------------------------
TASKS = """
import sys
from functools import partial

from rlpyt.agents.pg.mlp import MlpGaussianFfAgent
from rlpyt.algos.pg.a2c import A2C
from rlpyt.envs.multitask import TaskOnehotWrapper
from rlpyt.envs.point_env import PointEnv
from rlpyt.runners.minibatch_rl import MinibatchRl
from rlpyt.samplers.collections import TaskTrajInfo
from rlpyt.samplers.serial.sampler import SerialSampler
from rlpyt.utils.logging.context import logger_context


def build():
    tasks = TaskOnehotWrapper.wrap_env_cons_list([partial(PointEnv, goal=(x, 9), max_episode_length=5) for x in (0, 3, 6)])
    sampler = SerialSampler(EnvCls=tasks, env_kwargs={}, batch_T=5, batch_B=3, TrajInfoCls=TaskTrajInfo)
    return MinibatchRl(algo=A2C(), agent=MlpGaussianFfAgent(), sampler=sampler, n_steps=15, log_interval_steps=15, seed=0)


if __name__ == "__main__":
    with logger_context(sys.argv[1], 0, "tasks", override_prefix=True, snapshot_mode="last"):
        build().train()
"""


@full
@processes
def test_tasks_of_a_list_are_played_in_turn(tmp_path, rlpyt):
    script = tmp_path / "script.py"
    script.write_text(TASKS)
    subprocess.run([sys.executable, str(script), str(tmp_path / "run")], check=True, capture_output=True, timeout=200)
    arguments = ("--episodes", "3", "--n_envs", "3", "--out", tmp_path / "a.json", "--script", f"{script}:build")
    code, _, err = rlpyt("eval", tmp_path / "run" / "run_0", *arguments)
    assert (code, err) == (0, "")
    episodes = json.loads((tmp_path / "a.json").read_text())["episodes"]
    assert sorted(name for episode in episodes for name in episode if name.startswith("Task")) == [f"Task{i}Return" for i in range(3)]
    code, _, err = rlpyt("eval", tmp_path / "run" / "run_0", *arguments, "--env", "arena_size=0.01")
    assert (code, err) == (0, "")
    statistics = json.loads((tmp_path / "a.json").read_text())["statistics"]
    assert statistics["Task2Return"]["mean"] == pytest.approx(-5 * np.hypot(6, 9), rel=0.01)
    arguments = ("--episodes", "3", "--n_envs", "3", "--out", tmp_path / "a.csv", "--script", f"{script}:build")
    assert rlpyt("eval", tmp_path / "run" / "run_0", *arguments)[0] == 0
    with open(tmp_path / "a.csv") as file:
        assert {f"Task{i}Return" for i in range(3)} <= set(csv.DictReader(file).fieldnames)
