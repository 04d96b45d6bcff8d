"""Putting the parts of a run together, from a configuration and the import paths of classes; also again, from what a run has logged.

A run that was built here is built again from its params.json alone. One of a script written by hand is built by a function in that script.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from rlpyt.experiments.configs import SECTIONS, look_up
from rlpyt.runners.async_rl import AsyncRl, AsyncRlEval
from rlpyt.runners.minibatch_rl import MinibatchRl, MinibatchRlBase, MinibatchRlEval
from rlpyt.runners.sync_rl import SyncRl, SyncRlEval
from rlpyt.utils.logging.runs import read_params
from rlpyt.utils.quick_args import arguments_of, takes

SAMPLERS = dict(
    serial="rlpyt.samplers.serial.sampler.SerialSampler",
    cpu="rlpyt.samplers.parallel.cpu.sampler.CpuSampler",
    gpu="rlpyt.samplers.parallel.gpu.sampler.GpuSampler",
    alternating="rlpyt.samplers.parallel.gpu.alternating_sampler.AlternatingSampler",
    ray="rlpyt.samplers.ray.batch_sampler.RayBatchSampler",
    async_serial="rlpyt.samplers.async_.serial_sampler.AsyncSerialSampler",
    async_cpu="rlpyt.samplers.async_.cpu_sampler.AsyncCpuSampler",
    async_gpu="rlpyt.samplers.async_.gpu_sampler.AsyncGpuSampler",
    async_alternating="rlpyt.samplers.async_.alternating_sampler.AsyncAlternatingSampler",
    async_ray="rlpyt.samplers.async_.ray_sampler.AsyncRayBatchSampler",
)
_CLASS_PATH = re.compile(r"([a-z_]\w*\.)+[A-Z]\w*")
CONSTANTS = dict(true=True, false=False, none=None)  # as written on a command line, in any case
RUNNERS = {  # by whether the sampler is asynchronous, and whether it evaluates
    (False, False): MinibatchRl,
    (False, True): MinibatchRlEval,
    (True, False): AsyncRl,
    (True, True): AsyncRlEval,
}
SYNC_RUNNERS = {False: SyncRl, True: SyncRlEval}  # for several processes, by whether the sampler evaluates


def build(
    config: Mapping[str, Any], paths: Mapping[str, str], affinity: Any, seed: int | None, RunnerCls: Callable | None = None
) -> MinibatchRlBase:
    """Put the parts of a run together.

    Args:
        config: the sections are the settings of the classes, see `rlpyt.experiments.configs`.
        paths: import paths of the classes.
        affinity: for the runner; what it has goes before the configuration's.
        seed: of the run.
        RunnerCls: by default MinibatchRlEval if the sampler evaluates, MinibatchRl otherwise; for asynchronous samplers, AsyncRlEval or
            AsyncRl; for an affinity that is a list, SyncRlEval or SyncRl.

    Returns:
        The runner, which nothing has been started for.

    Raises:
        ValueError: a class does not take a setting.
        ImportError: there is no such class, or what it needs is not installed.
    """
    classes = {part: load_class(path) for part, path in paths.items()}
    for section, part in dict(env="env", eval_env="env", sampler="sampler", algo="algo", agent="agent").items():
        check_names(config, section, classes[part])
    env = config["env"]
    identity = {name: env[name] for name in ("game", "id") if name in env}
    sampler = classes["sampler"](
        EnvCls=classes["env"],
        env_kwargs=env,
        eval_env_kwargs={**env, **config.get("eval_env", {}), **identity},  # the same environment, but for the settings of eval_env
        **given(TrajInfoCls=classes.get("traj_info"), CollectorCls=classes.get("collector")),
        **config["sampler"],
    )
    check_names(config, "accelerate", classes["algo"].accelerate)
    algo = classes["algo"](
        **given(OptimCls=classes.get("optim"), ReplayBufferCls=classes.get("replay_buffer")),
        **given(optim_kwargs=config.get("optim")),
        **config["algo"],
    ).accelerate(**config.get("accelerate", {}))
    check_names(config, "optim", algo.OptimCls)
    AgentCls = classes["alternating_agent"] if sampler.alternating and "alternating_agent" in classes else classes["agent"]
    agent = AgentCls(**{**config["agent"], **given(model_kwargs=config.get("model"))})
    check_names(config, "model", agent.ModelCls)
    evaluates = sampler.eval_n_envs > 0
    RunnerCls = RunnerCls or (SYNC_RUNNERS[evaluates] if isinstance(affinity, list) else RUNNERS[sampler.async_, evaluates])
    check_names(config, "runner", RunnerCls)
    settings = {**config["runner"], "affinity": with_defaults(affinity, config["runner"].get("affinity", {}))}
    return RunnerCls(algo=algo, agent=agent, sampler=sampler, seed=seed, **settings)


def with_defaults(affinity: Any, defaults: dict) -> Any:
    """Return an affinity, of one process or a list for several, with what it leaves open. Those of asynchronous runs leave nothing open."""
    if affinity is None:
        return dict(defaults)
    if isinstance(affinity, list):
        return [with_defaults(each, defaults) for each in affinity]
    return affinity if isinstance(affinity, str) or "optimizer" in affinity else {**defaults, **affinity}


def given(**settings: Any) -> dict[str, Any]:
    """Return the settings which are neither None nor empty."""
    return {name: value for name, value in settings.items() if value}


def check_names(config: Mapping[str, Any], section: str, make: Callable) -> None:
    """Raise ValueError, with the nearest name, if a setting of a section is none of the class or function that the section is for."""
    for name in config.get(section, {}):
        if not takes(make, name):
            look_up(name, arguments_of(make), f"setting of {make.__name__} (section {section}) named")


def load_class(path: str) -> Any:
    """Return the class at an import path, whose module is imported only now; ImportError if there is none, or what it needs is missing."""
    module, _, name = path.rpartition(".")
    found = importlib.import_module(module)
    if not hasattr(found, name):
        raise ImportError(f"There is no {name} in {module}.")
    return getattr(found, name)


def read_value(text: str) -> Any:
    """Read a value as Python writes it, also true, false and none in any case; what is nothing to Python is text."""
    try:
        return CONSTANTS[text.lower()] if text.lower() in CONSTANTS else ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return text


def rebuild(
    params_file: Any, script: str | None = None, affinity: dict | None = None, paths: Mapping | None = None, **sections: Mapping
) -> MinibatchRlBase:
    """Build the runner of a run again, from its params.json, or by a function of the script that made it.

    Args:
        params_file: params.json of the run.
        script: "file.py:function"; the function returns a runner. It is called without arguments, or with ``params=`` the contents of
            params.json if it has such an argument. None: params.json tells it all, as for runs of examples/train.py. With a script,
            all other arguments are ignored.
        affinity: for the runner; None is what the run had.
        paths: import paths of classes to take instead; where one is None, the default is taken.
        sections: sections of the configuration to take instead.

    Raises:
        ValueError: params.json does not say which classes the run had; the message says what to do.
        FileNotFoundError: there is no params.json, or no script.
    """
    if script is not None:
        function = load_function(script)
        runner = function(params=read_params(params_file)) if takes(function, "params") else function()
        missing = [name for name in ("agent", "algo", "sampler", "train") if not hasattr(runner, name)]
        if missing:
            raise ValueError(f"{script} must return a runner, but returned {runner!r}, which has no {' and no '.join(missing)}.")
        return runner
    params = read_params(params_file)
    if not isinstance(params.get("classes"), dict):
        raise ValueError(
            f"{params_file} does not say which classes the run had, as that of a run of examples/train.py does. Say how to build it: "
            "--script file.py:function, where the function returns the runner of the run."
        )
    if affinity is None:
        affinity = params.get("affinity") or {}
    config = {name: restore_classes(params[name]) for name in SECTIONS if name in params}
    paths = {part: path for part, path in {**params["classes"], **(paths or {})}.items() if path is not None}
    return build({**config, **sections}, paths, affinity, params.get("seed"))


def restore_classes(value: Any) -> Any:
    """Undo what logging does to classes in a configuration, such as torch.nn.ReLU: it writes their import paths."""
    if isinstance(value, Mapping):
        return {name: restore_classes(each) for name, each in value.items()}
    if isinstance(value, list):
        return [restore_classes(each) for each in value]
    if isinstance(value, str) and _CLASS_PATH.fullmatch(value):
        with suppress(ImportError):
            found = load_class(value)
            return found if isinstance(found, type) else value
    return value


def load_function(script: str) -> Callable:
    """Return the function named by "file.py:function"; the file is executed, but not as ``__main__``.

    Raises:
        ValueError: it is not of that form, or the file has no such function.
        FileNotFoundError: there is no such file.
    """
    file, colon, name = script.rpartition(":")
    if not (file and colon and name):
        raise ValueError(f"{script!r} must be of the form file.py:function.")
    path = Path(file).resolve()
    if not path.is_file():
        raise FileNotFoundError(f"There is no script {path}.")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent))  # As python file.py does, and for good: worker processes import it by its name.
    sys.modules.setdefault(path.stem, module)
    spec.loader.exec_module(module)
    functions = [key for key, value in vars(module).items() if callable(value)]
    return getattr(module, look_up(name, functions, f"function in {path} called"))
