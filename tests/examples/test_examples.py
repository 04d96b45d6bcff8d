"""Every example runs, as a user would run it."""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import preloaded
import pytest
import torch
from tiers import examples, full, processes, thinned

from rlpyt.episodes import Trainer
from rlpyt.experiment import SnapshotConfig

pytestmark = [examples, processes]

TESTS = Path(__file__).parents[1]
EXAMPLES = TESTS.parent / "examples"
RUNS = {
    "example_0": [],
    "example_1": ["--game", "breakout"],
    "example_2": ["--env_id", "Pendulum-v1"],
    "example_2 MuJoCo": [],
    "example_3": ["--sample_mode", "serial"],
    "example_3 cpu": ["--sample_mode", "cpu", "--n_parallel", "2"],
    "example_3 gpu": ["--sample_mode", "gpu", "--n_parallel", "2"],
    "example_3 alternating": ["--sample_mode", "alternating", "--n_parallel", "2"],
    "example_4": ["--game", "breakout", "--mid_batch_reset", "false"],  # In Breakout, lives are lost within a smoke run.
    "example_4 reset": ["--game", "breakout", "--mid_batch_reset", "True"],
    "example_4 cpu": ["--sample_mode", "cpu", "--game", "breakout", "--mid_batch_reset", "False"],
    "example_4 alternating": ["--sample_mode", "alternating", "--game", "breakout"],
    "example_5": [],
    "example_5 rainbow": ["--config", "rainbow"],
    "example_7": [],
    "ray_ppo": ["--in_flight", "1", "--object_store_memory", "200000000"],
    "multi_task": [],
    "episodes": [],
    "multi_task cpu": ["--n_parallel", "2"],
    "resume": [],
    "own_env": [],
    "masked_actions": [],
    "masked_actions penalties": ["--masks", "False"],
    "vector_env": [],
    "continuous_ppo": ["--env_id", "Pendulum-v1"],
    "continuous_ppo MuJoCo": ["--env_id", "HalfCheetah-v5"],
    "tensorboard_wandb": [],
    "tensorboard_wandb offline": ["--wandb", "offline"],
    "atari_dqn_async_serial": [],
    "atari_dqn_async_cpu": [],
    "atari_dqn_async_gpu": [],
    "atari_r2d1_async": [],
    "atari_r2d1_async alternating": ["--sample_mode", "alternating", "--n_parallel", "1"],
}

# With as many threads as a user has, where it mattered. They then wait for each other, on processors that other tests use.
WITH_ALL_THREADS = ("atari_dqn_async_cpu", "atari_r2d1_async")

FIRST_OF_EACH = {name.split()[0]: name for name in reversed(RUNS)}.values()


def run(name, *args):
    script = EXAMPLES / f"{name.split()[0]}.py"
    if name in WITH_ALL_THREADS and "--smoke" in args:
        environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
        return subprocess.run([sys.executable, str(script), *args], capture_output=True, text=True, timeout=280, env=environment)
    return preloaded.run(script, *args, OMP_NUM_THREADS="1")


@pytest.mark.parametrize("name", thinned(RUNS, quick=["example_0", "example_3 cpu", "episodes"]))
def test_examples_run_in_smoke_size_and_leave_a_run_directory(name):
    if name == "ray_ppo":
        pytest.importorskip("ray")
    out = run(name, "--smoke", "--seed", "1", *RUNS[name])
    assert out.returncode == 0, out.stderr
    assert "Training complete" in out.stdout and "\r" not in out.stdout + out.stderr
    run_dir = Path(next(line for line in out.stdout.splitlines() if "Logging to" in line).split("Logging to ")[1])
    assert {"params.json", "progress.csv", "debug.log", "params.pkl"} <= set(os.listdir(run_dir))
    params = json.loads((run_dir / "params.json").read_text())
    assert params["run_ID"] == 0
    assert torch.load(run_dir / "params.pkl", weights_only=True)["cum_steps"] > 0
    if name == "example_0":
        assert (run_dir / "learning_curve.png").stat().st_size > 1000
        assert "Not solved yet: mean return" in out.stdout and str(run_dir) in out.stdout.splitlines()[-1]
        watched = run("watch", str(run_dir), "--smoke")
        assert watched.returncode == 0 and watched.stdout.startswith("Returns: "), watched.stderr
    if name == "resume":
        assert "Resumed after" in out.stdout and {"progress.csv", "progress.1.csv"} <= set(os.listdir(run_dir))
    if name.startswith("tensorboard_wandb"):
        assert list(run_dir.glob("events.out.tfevents*")) and (run_dir / "wandb").is_dir() == name.endswith("offline")
    if name == "episodes":
        assert {"episodes.pt", "demonstrator"} <= set(os.listdir(run_dir)) and "learned from 8 episodes" in out.stdout
    if name.startswith("example_4"):
        assert params["mid_batch_reset"] is (name == "example_4 reset")
    opens_again(run_dir, every_command=name in FIRST_OF_EACH)


def opens_again(run_dir, every_command):
    """Commands open the run, with no further argument."""
    steps = torch.load(run_dir / "params.pkl", weights_only=True)["cum_steps"]
    run_dir = str(run_dir)
    commands = [["resume", run_dir, "--n_steps", str(steps + 1)]]
    if every_command:
        commands[:0] = [
            ["eval", run_dir, "--episodes", "1", "--max_steps", "20"],
            ["video", run_dir, "--max_steps", "20", "--out", f"{run_dir}/a.gif"],
            ["info", run_dir],
        ]
    out = preloaded.run(TESTS / "commands.py", *map(json.dumps, commands), cwd=EXAMPLES.parent, OMP_NUM_THREADS="1")
    *said, rest = out.stdout.split("exit code ")
    assert len(said) == len(commands), out.stdout + out.stderr
    codes = [int(text.split()[0]) for text in [*said[1:], rest]]
    for (command, *_), text, code in zip(commands, said, codes):
        unfinished = "Only 0 of 1 episodes came to an end" in text or "no episode came to an end" in text
        assert code == 0 or unfinished, f"{command}: {out.stdout}{out.stderr}"
    assert "Training complete" in said[-1] or "Resumed after" in said[-1], out.stdout


@full
@pytest.mark.parametrize("name, args", [("example_3", ["--sample_mode", "cpu"]), ("own_env", [])])
def test_examples_are_safe_under_spawn(name, args, tmp_path):
    script = tmp_path / f"{name}.py"
    spawn = "import multiprocessing\n\nmultiprocessing.set_start_method('spawn', force=True)\n\n"
    script.write_text(spawn + (EXAMPLES / f"{name}.py").read_text())
    out = subprocess.run([sys.executable, str(script), "--smoke", *args], capture_output=True, text=True, timeout=280)
    assert out.returncode == 0 and "Training complete" in out.stdout, out.stderr


@pytest.mark.parametrize("name", sorted({name.split()[0] for name in RUNS} | {"watch"}))
def test_examples_explain_themselves(name):
    out = run(name, "--help")
    assert out.returncode == 0 and "What it teaches" in out.stdout and "--smoke" in out.stdout


def test_a_misspelt_game_is_answered_with_the_nearest_names():
    out = run("example_1", "--smoke", "--game", "pomg")
    assert out.returncode == 2 and "pong" in out.stderr.splitlines()[-1] and "Traceback" not in out.stderr


BUILT = ["example_0", "example_1", "example_2", "example_3", "example_4", "example_5", "example_7", "multi_task"]
BUILT += ["resume", "own_env", "masked_actions", "vector_env", "continuous_ppo", "tensorboard_wandb"]


@pytest.mark.parametrize("name", BUILT)
def test_build_returns_a_runner_of_full_size_with_which_nothing_has_been_started(name, monkeypatch, nothing_is_left_behind):
    monkeypatch.syspath_prepend(EXAMPLES)
    runner = importlib.import_module(name).build(seed=3)
    assert runner.seed == 3 and runner.n_steps >= 40_000
    assert "smoke" not in (EXAMPLES / f"{name}.py").read_text().partition("def build(")[2].partition("\ndef ")[0]


def test_what_is_neither_true_nor_false_is_refused():
    out = run("example_4", "--smoke", "--mid_batch_reset", "no")
    assert out.returncode == 2 and "must be true or false, not 'no'" in out.stderr


def test_cloning_that_is_done_already_returns_nothing(tmp_path):
    sys.path.insert(0, str(EXAMPLES))
    try:
        from episodes import BehaviourCloning, Policy, new_replay
    finally:
        sys.path.remove(str(EXAMPLES))
    trainer = Trainer(SnapshotConfig(str(tmp_path)))
    trainer.setup(BehaviourCloning(Policy(), new_replay(), updates_per_epoch=1))
    assert trainer.train(n_epochs=0) is None
