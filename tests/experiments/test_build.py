"""Building the parts of runs, and building runs again from what they logged."""

import json
import sys
from pathlib import Path

import pytest
import torch

from rlpyt.experiments.build import SAMPLERS, build, load_function, read_value, rebuild, restore_classes
from rlpyt.experiments.configs import classes_of, config_modules, load
from rlpyt.runners.checkpoint import settings_of
from rlpyt.utils.logging.logger import log_parameters_lite, stub_to_json

CONFIGS = [(name, key) for name in config_modules() for key in getattr(load(name), "configs", {})]
AFFINITY = dict(workers_cpus=[0], cuda_idx=None, set_affinity=False)


def as_lists(value):
    """Tuples as lists, which is all that JSON changes."""
    if isinstance(value, dict):
        return {name: as_lists(each) for name, each in value.items()}
    return [as_lists(each) for each in value] if isinstance(value, (list, tuple)) else value


@pytest.mark.parametrize("name, key", CONFIGS, ids=" ".join)
def test_configurations_survive_being_logged(name, key):
    config = load(name).configs[key]
    assert restore_classes(json.loads(json.dumps(stub_to_json(config)))) == as_lists(config)


@pytest.mark.parametrize("name, key", [("halfcheetah", "ppo_300k"), ("cartpole", "dqn"), ("cartpole_without_velocities", "ppo_lstm")])
def test_a_run_is_built_again_as_it_was(name, key, tmp_path):
    module = load(name)
    config, paths = module.configs[key], classes_of(module, key)
    runner = build(config, paths, AFFINITY, seed=3)
    log_parameters_lite(tmp_path / "params.json", dict(config, classes=paths, seed=3, affinity=AFFINITY, name="x", run_ID=0))
    again = rebuild(tmp_path / "params.json")
    assert settings_of(again) == settings_of(runner)
    assert type(again) is type(runner) and again.affinity == runner.affinity
    assert (again.seed, again.n_steps, again.log_interval_steps) == (3, runner.n_steps, runner.log_interval_steps)
    assert again.sampler.eval_env_kwargs == as_lists(runner.sampler.eval_env_kwargs)


def test_parts_may_be_others(tmp_path):
    module = load("cartpole_without_velocities")
    paths = dict(classes_of(module, "ppo_lstm"), sampler=SAMPLERS["alternating"])
    log_parameters_lite(tmp_path / "params.json", dict(module.configs["ppo_lstm"], classes=paths, seed=3, affinity=AFFINITY))
    sampler = dict(batch_T=1, batch_B=1)
    runner = rebuild(tmp_path / "params.json", affinity={}, paths=dict(sampler=SAMPLERS["serial"]), sampler=sampler, runner=dict(n_steps=9))
    assert type(runner.sampler).__name__ == "SerialSampler" and not runner.agent.alternating
    assert (runner.n_steps, runner.sampler.batch_T, runner.affinity) == (9, 1, {})


def test_only_import_paths_of_classes_become_classes():
    values = ["torch.nn.modules.activation.ReLU", "Pong-v5", "no_such_package.Thing", "os.path", "torch.nn.Thing", 3, None]
    assert restore_classes(dict(a=values)) == dict(a=[torch.nn.ReLU, *values[1:]])


@pytest.mark.parametrize("text, value", [("1e-3", 1e-3), ("TRUE", True), ("none", None), ("(1, 2)", (1, 2)), ("a-b", "a-b"), ("", "")])
def test_values_are_read_as_python_writes_them_and_else_as_text(text, value):
    assert read_value(text) == value


def test_functions_of_scripts_find_what_lies_beside_them(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "beside_the_script.py").write_text("answer = 42\n")
    script = tmp_path / "some_script.py"
    script.write_text("import beside_the_script\n\ndef make():\n    return beside_the_script.answer, __name__\n")
    function = load_function(f"{script}:make")
    assert function() == (42, "some_script") and sys.modules["some_script"].make is function
    assert Path(function.__code__.co_filename) == script


def test_params_without_classes_say_what_to_do(tmp_path):
    log_parameters_lite(tmp_path / "params.json", dict(batch_T=3))
    with pytest.raises(ValueError, match="--script file.py:function"):
        rebuild(tmp_path / "params.json")
    with pytest.raises(FileNotFoundError, match="which tells the settings"):
        rebuild(tmp_path / "nowhere" / "params.json")
