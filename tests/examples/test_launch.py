"""Experiments from the shipped launchers, with real training."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import preloaded
import pytest
from tiers import examples, full, processes

from rlpyt.utils.launching.affinity import encode_affinity
from rlpyt.utils.launching.status import experiment_status, last_row
from rlpyt.utils.launching.variant import save_variant

pytestmark = [examples, processes, pytest.mark.timeout(280)]
EXAMPLES = Path(__file__).parents[2] / "examples"
TWO_SLOTS = encode_affinity(n_cpu_core=2, set_affinity=False)  # Also where there is one processor.


ENVIRONMENT = dict(OMP_NUM_THREADS="1", PYTHONPATH=str(EXAMPLES.parent))


def start(script):
    environment = {**os.environ, **ENVIRONMENT}
    return subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def run(script, *args, cwd=None):
    """Exit code, stdout and stderr."""
    ended = preloaded.run(script, *args, cwd=cwd, timeout=250, **ENVIRONMENT)
    return ended.returncode, ended.stdout, ended.stderr


def outcome(process):
    """Exit code, stdout and stderr."""
    try:
        out, err = process.communicate(timeout=250)
    finally:
        process.kill()
    return process.returncode, out, err


# --- train.py ----------------------------------------------------------------------------------------------------------
def test_a_run_of_an_experiment_has_its_variant_and_its_number_as_seed(tmp_path):
    save_variant(dict(algo=dict(learning_rate=0.0125), classes=dict(sampler="cpu"), model=dict(hidden_sizes=[8])), tmp_path)
    code, out, err = run(EXAMPLES / "train.py", f"1slt_{TWO_SLOTS}", tmp_path, 3, "cartpole:ppo", "--smoke")
    assert code == 0 and "Training complete" in out, err
    params = json.loads((tmp_path / "run_3" / "params.json").read_text())
    assert params["algo"]["learning_rate"] == 0.0125 and params["model"] == dict(hidden_sizes=[8])
    assert (params["seed"], params["run_ID"], params["name"]) == (3, 3, "cartpole_ppo")
    assert params["rlpyt"]["sampler"]["class"]["$name"].endswith("CpuSampler")


@pytest.mark.parametrize(
    "variant, config_key, message",
    [
        (dict(alog=dict(learning_rate=1)), "cartpole:ppo", "no section 'alog'"),
        (dict(algo=dict(learning_rat=1)), "cartpole:ppo", "Did you mean 'learning_rate'"),
        (dict(classes=dict(smapler="cpu")), "cartpole:ppo", "part of a run named 'smapler'. Did you mean 'sampler'"),
        ({}, "cartpole:pop", "cartpole has no configuration 'pop'. Did you mean 'ppo'"),
        ({}, "ppo", "config_key='ppo' must be a configuration module and a key in it"),
    ],
)
def test_wrong_names_are_answered_with_the_nearest(variant, config_key, message, tmp_path):
    save_variant(variant, tmp_path)
    code, _, err = run(EXAMPLES / "train.py", f"0slt_{TWO_SLOTS}", tmp_path, 0, config_key)
    assert code == 2 and message in err.splitlines()[-1] and "Traceback" not in err


def test_other_numbers_of_arguments_are_refused():
    code, _, err = run(EXAMPLES / "train.py", "cartpole", "ppo", "3")
    assert code == 2 and "give module and key, or slot_affinity_code, log_dir, run_ID and config_key" in err


# --- launch.py, example_6.py -------------------------------------------------------------------------------------------
@pytest.mark.parametrize("script", ["launch", "example_6", "example_6a"])
def test_they_explain_themselves(script):
    code, out, _ = run(EXAMPLES / f"{script}.py", "--help")
    assert code == 0 and "What it teaches" in out and "--smoke" in out


@full
def test_a_sweep_of_variants(tmp_path):
    args = ["cartpole_ppo", "--affinity_code", TWO_SLOTS, "--runs_per_setting", 1, "--log_dir", tmp_path, "--smoke"]
    code, out, err = run(EXAMPLES / "launch.py", *args)
    assert code == 0, out + err
    runs = experiment_status(tmp_path)
    assert [run.name for run in runs] == ["slow/B8/run_0", "slow/B16/run_0", "fast/B8/run_0", "fast/B16/run_0"]
    assert all(run.state == "finished" and run.steps == 256 and run.return_ > 5 for run in runs)
    assert "4 runs: 4 finished." in out and str(tmp_path / "fast" / "B16" / "run_0") in out


@full
def test_an_interrupted_sweep_goes_on_where_it_stopped(tmp_path):
    script = tmp_path / "launch.py"
    length = ["runner.n_steps=16_384", "runner.log_interval_steps=512"]
    script.write_text(
        "from rlpyt.utils.launching.exp_launcher import run_experiments\n"
        f"run_experiments({str(EXAMPLES / 'train.py')!r}, {TWO_SLOTS!r}, {str(tmp_path / 'exp')!r}, 1,\n"
        f"    [dict(algo=dict(epochs=1)), dict(algo=dict(epochs=2))], ['one', 'two'], ['cartpole:ppo', '--set', *{length!r}])\n"
    )
    run_dirs = [tmp_path / "exp" / name / "run_0" for name in ("one", "two")]
    process = start(script)
    deadline = time.monotonic() + 120
    while not all((run_dir / "params.pkl").exists() for run_dir in run_dirs) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    code, out, err = outcome(process)
    assert code == 130 and "2 runs: 2 interrupted." in out, out + err
    steps = [last_row(run_dir)[0]["Diagnostics/CumSteps"] for run_dir in run_dirs]
    assert all(0 < n < 16_384 for n in steps)
    code, out, err = run(script)
    assert code == 0 and "2 runs: 2 finished." in out and out.count("resumed in slot") == 2, out + err
    for run_dir, n in zip(run_dirs, steps):
        assert f"({n:,.0f} environment steps)" in (run_dir / "debug.log").read_text(), "Resumed after ..."
        assert last_row(run_dir)[0]["Diagnostics/CumSteps"] >= 16_384


@full
def test_example_6_launches_example_6a(tmp_path):
    args = ["--runs_per_setting", "1", "--n_cpu_core", "1", "--log_dir", tmp_path, "--smoke"]
    code, out, err = run(EXAMPLES / "example_6.py", *args)
    assert code == 0 and "4 runs: 4 finished." in out, out + err
    params = [json.loads((run.run_dir / "params.json").read_text()) for run in experiment_status(tmp_path)]
    assert [each["env"]["id"] for each in params] == ["CartPole-v1", "Acrobot-v1"] * 2
    assert [each["algo"]["learning_rate"] for each in params] == [1e-3, 1e-3, 2e-3, 2e-3]


def test_example_6a_does_what_the_variant_says(tmp_path):
    save_variant(dict(algo=dict(learning_rate=0.0125)), tmp_path)
    code, out, err = run(EXAMPLES / "example_6a.py", f"0slt_{TWO_SLOTS}", tmp_path, 3, "--smoke")
    assert code == 0 and "Training complete" in out, err
    params = json.loads((tmp_path / "run_3" / "params.json").read_text())
    assert params["algo"]["learning_rate"] == 0.0125 and params["rlpyt"]["seed"] == 3


@full
def test_example_6_launches_games_too(tmp_path):
    args = ["--games", "pong", "--runs_per_setting", "1", "--n_cpu_core", "1", "--log_dir", tmp_path, "--smoke"]
    code, out, err = run(EXAMPLES / "example_6.py", *args)
    assert code == 0 and "2 runs: 2 finished." in out, out + err
    params = [json.loads((run.run_dir / "params.json").read_text()) for run in experiment_status(tmp_path)]
    assert [each["algo"]["learning_rate"] for each in params] == [3e-4, 6e-4] and params[0]["env"] == dict(game="pong")


def test_a_misspelt_experiment_is_answered_with_the_nearest():
    code, _, err = run(EXAMPLES / "launch.py", "cartpol_ppo")
    assert code == 2 and "Did you mean 'cartpole_ppo'" in err


# --- Scripts written for the original ----------------------------------------------------------------------------------
ORIGINAL_TRAIN = """
import sys

from rlpyt.agents.pg.mlp import MlpFfAgent
from rlpyt.algos.pg.a2c import A2C
from rlpyt.envs.gym import make as gym_make
from rlpyt.runners.minibatch_rl import MinibatchRl
from rlpyt.samplers.parallel.cpu.sampler import CpuSampler
from rlpyt.utils.launching.affinity import affinity_from_code
from rlpyt.utils.launching.variant import load_variant, update_config
from rlpyt.utils.logging.context import logger_context

configs = {"0": dict(
    agent=dict(), model=dict(), algo=dict(learning_rate=1e-3), env=dict(id="CartPole-v1"), optim=dict(),
    runner=dict(n_steps=200, log_interval_steps=100),
    sampler=dict(batch_T=5, batch_B=4, max_decorrelation_steps=10),
)}


def build_and_train(slot_affinity_code, log_dir, run_ID, config_key):
    affinity = affinity_from_code(slot_affinity_code)
    config = configs[config_key]
    variant = load_variant(log_dir)
    config = update_config(config, variant)
    sampler = CpuSampler(EnvCls=gym_make, env_kwargs=config["env"], **config["sampler"])
    algo = A2C(optim_kwargs=config["optim"], **config["algo"])
    agent = MlpFfAgent(model_kwargs=config["model"], **config["agent"])
    runner = MinibatchRl(algo=algo, agent=agent, sampler=sampler, affinity=affinity, **config["runner"])
    name = config["env"]["id"]
    with logger_context(log_dir, run_ID, name, config):
        runner.train()


if __name__ == "__main__":
    build_and_train(*sys.argv[1:])
"""
ORIGINAL_LAUNCH = """
import sys
from rlpyt.utils.launching.affinity import encode_affinity
from rlpyt.utils.launching.exp_launcher import run_experiments
from rlpyt.utils.launching.variant import make_variants, VariantLevel

script = "scripts/train.py"
affinity_code = encode_affinity(n_cpu_core=1, n_gpu=0, hyperthread_offset=0, n_socket=1, cpu_per_run=1)
runs_per_setting = 2
experiment_title = sys.argv[1]
variant_levels = list()

learning_rate = [1e-3, 2e-3]
batch_B = [4, 8]
values = list(zip(learning_rate, batch_B))
dir_names = ["{}lr_{}B".format(*v) for v in values]
keys = [("algo", "learning_rate"), ("sampler", "batch_B")]
variant_levels.append(VariantLevel(keys, values, dir_names))

variants, log_dirs = make_variants(*variant_levels)
default_config_key = "0"
run_experiments(
    script=script,
    affinity_code=affinity_code,
    experiment_title=experiment_title,
    runs_per_setting=runs_per_setting,
    variants=variants,
    log_dirs=log_dirs,
    common_args=(default_config_key,),
)
"""


@full
def test_launch_and_train_scripts_written_for_the_original_run_unchanged(tmp_path):
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "train.py").write_text(ORIGINAL_TRAIN)
    (tmp_path / "launch.py").write_text(ORIGINAL_LAUNCH)
    code, out, err = run(tmp_path / "launch.py", tmp_path / "exp", cwd=tmp_path)
    assert code == 0 and "4 runs: 4 finished." in out, out + err
    runs = experiment_status(tmp_path / "exp")
    assert [run.name for run in runs] == [f"{name}/run_{run_ID}" for run_ID in range(2) for name in ("0.001lr_4B", "0.002lr_8B")]
    seeds = {run.name: json.loads((run.run_dir / "params.json").read_text())["rlpyt"]["seed"] for run in runs}
    assert len(set(seeds.values())) == 4, "No two runs are the same."
    params = json.loads((tmp_path / "exp" / "0.002lr_8B" / "run_1" / "params.json").read_text())
    assert params["algo"]["learning_rate"] == 2e-3 and params["sampler"]["batch_B"] == 8 and params["run_ID"] in (1, "1")
