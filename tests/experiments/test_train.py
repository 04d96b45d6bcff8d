"""examples/train.py runs configurations of every family, as a user would run it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

SCRIPT = Path(__file__).parents[2] / "examples" / "train.py"
sys.path[:0] = [str(SCRIPT.parent)]
import train  # noqa: E402

from rlpyt.algos.base import has_bf16  # noqa: E402

RUNS = [
    ["cartpole", "ppo", "--sampler", "cpu"],
    ["cartpole", "catdqn"],
    ["cartpole_without_velocities", "ppo_lstm", "--sampler", "alternating"],
    ["cartpole_without_velocities", "r2d1", "--sampler", "gpu"],
    ["pendulum", "td3"],
    ["pendulum", "sac"],
    ["halfcheetah", "ppo_300k"],
    ["atari_ff_ppo", "pong_2M"],
    ["atari_lstm_a2c", "like_ff"],
    ["atari_dqn", "rmsprop", "--sampler", "serial"],
]


def run(*args):
    environment = dict(os.environ, OMP_NUM_THREADS="1")
    return subprocess.run([sys.executable, str(SCRIPT), *args], capture_output=True, text=True, timeout=280, env=environment)


@pytest.mark.parametrize("args", RUNS, ids=" ".join)
def test_configurations_run_in_smoke_size_and_leave_a_run_directory(args, tmp_path):
    out = run(*args, "--smoke", "--log_dir", str(tmp_path), "--run_ID", "3")
    assert out.returncode == 0 and "Training complete" in out.stdout, out.stderr
    run_dir = tmp_path / "run_3"
    params = json.loads((run_dir / "params.json").read_text())
    assert params["name"] == f"{args[0]}_{args[1]}" and params["seed"] == 0 and params["runner"]["n_steps"] == 512
    assert params["runner"]["log_interval_steps"] == 256, "also where the configuration leaves it to the runner"
    snapshot = torch.load(run_dir / "params.pkl", weights_only=True)
    assert snapshot["cum_steps"] >= 512 and len((run_dir / "progress.csv").read_text().splitlines()) >= 3


def test_settings_are_changed_from_the_command_line(tmp_path):
    changes = ["algo.learning_rate=3e-4", "accelerate.bf16=True", "model.hidden_sizes=[8]", "env.id=Acrobot-v1"]
    out = run("cartpole", "ppo", "--smoke", "--log_dir", str(tmp_path), "--set", *changes)
    assert out.returncode == 0, out.stderr
    params = json.loads((tmp_path / "run_0" / "params.json").read_text())
    assert params["algo"]["learning_rate"] == 3e-4 and params["model"] == dict(hidden_sizes=[8]) and params["env"] == dict(id="Acrobot-v1")
    assert params["accelerate"] == dict(bf16=True) and ("bfloat16" not in out.stdout) == has_bf16(torch.device("cpu"))
    assert params["algo"]["gae_lambda"] == 0.8, "what is not changed stays"


@pytest.mark.parametrize(
    "settings, message",
    [
        (["algo.learning_rate"], "must be of the form"),
        (["learning_rate=1"], "must be of the form"),
        (["alog.learning_rate=1"], "no section 'alog'. Did you mean.* algo"),
    ],
)
def test_misspelt_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        train.changes(dict(algo={}, env={}), settings)


def test_values_are_read_as_python_writes_them_and_else_as_text():
    sections = train.changes(dict(env={}), ["env.id=Hopper-v5", "env.n=3", "env.on=True", "env.what=None", "env.shape=(84, 84)"])
    assert sections == dict(env=dict(id="Hopper-v5", n=3, on=True, what=None, shape=(84, 84)))


def test_evaluation_is_in_the_same_environment_but_for_the_settings_of_eval_env():
    from rlpyt.experiments.configs import classes_of, load, variant

    module = load("atari_dqn")
    config = variant(module.configs["dqn"], env=dict(game="breakout", frame_shape=(84, 84)))
    sampler = train.build(config, classes_of(module, "dqn"), affinity={}, seed=0).sampler
    assert sampler.env_kwargs == dict(game="breakout", frame_shape=(84, 84), episodic_lives=True)
    assert sampler.eval_env_kwargs == dict(game="breakout", frame_shape=(84, 84), episodic_lives=False, horizon=27_000)
    assert sampler.EnvCls.__name__ == "AtariEnv" and sampler.TrajInfoCls.__name__ == "AtariTrajInfo"
