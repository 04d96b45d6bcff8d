"""Makes the parts of a run from a configuration and the import paths of classes."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from rlpyt.runners.async_rl import AsyncRl, AsyncRlEval
from rlpyt.runners.minibatch_rl import MinibatchRl, MinibatchRlBase, MinibatchRlEval
from rlpyt.runners.sync_rl import SyncRl, SyncRlEval
from rlpyt.samplers.base import close_envs, make_envs
from rlpyt.samplers.buffer import checked_spaces
from rlpyt.utils.logging import logger
from rlpyt.utils.misc import torch_threads
from rlpyt.utils.quick_args import arguments_of, takes
from rlpyt.utils.recipes import made_again
from rlpyt.utils.settings import which_setting
from rlpyt.utils.text import said_clearly

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
    """Make the parts of a run, and its runner.

    Args:
        config: sections with the settings of the classes, see `rlpyt.experiments.configs`.
        paths: import paths of the classes.
        affinity: affinity of the runner; its entries override those of the configuration.
        seed: seed of the run.
        RunnerCls: by default MinibatchRlEval if the sampler evaluates, MinibatchRl otherwise; for asynchronous samplers, AsyncRlEval or
            AsyncRl; for an affinity that is a list, SyncRlEval or SyncRl.

    Returns:
        The runner; no process has been started yet.

    Raises:
        ValueError: a class does not take a setting.
        ImportError: a class does not exist, or needs a package that is not installed.
    """
    classes = {part: load_class(path) for part, path in paths.items()}
    for section, part in dict(env="env", eval_env="env", sampler="sampler", algo="algo", agent="agent").items():
        check_names(config, section, classes[part])
    check_left_out(config, classes)
    env = config["env"]
    game = given(game=env.get("game"))  # Configurations repeat the game in eval_env, but it is that of env also if only this is changed.
    sampler = classes["sampler"](
        EnvCls=classes["env"],
        env_kwargs=env,
        eval_env_kwargs={**env, **config.get("eval_env", {}), **game},
        **given(TrajInfoCls=classes.get("traj_info"), CollectorCls=classes.get("collector")),
        **config["sampler"],
    )
    check_names(config, "accelerate", classes["algo"].accelerate)
    algo = classes["algo"](
        **given(OptimCls=classes.get("optim"), ReplayBufferCls=classes.get("replay_buffer")),
        **given(optim_kwargs=config.get("optim")),
        **config["algo"],
    ).accelerate(**config.get("accelerate", {}))
    AgentCls = classes["alternating_agent"] if sampler.alternating and "alternating_agent" in classes else classes["agent"]
    agent = AgentCls(**{**config["agent"], **given(model_kwargs=config.get("model"))})
    evaluates = sampler.eval_n_envs > 0
    RunnerCls = RunnerCls or (SYNC_RUNNERS[evaluates] if isinstance(affinity, list) else RUNNERS[sampler.async_, evaluates])
    check_names(config, "runner", RunnerCls)
    left_open = {**(config["runner"].get("affinity") or {}), **(config.get("affinity") or {})}
    settings = {**config["runner"], "affinity": with_defaults(affinity, left_open)}
    return RunnerCls(algo=algo, agent=agent, sampler=sampler, seed=seed, **settings)


def check_parts(runner: MinibatchRlBase, config: Mapping[str, Any]) -> None:
    """Make one environment of each kind, the models and an optimizer of a runner, and discard them: a run must not find mistakes late.

    Args:
        runner: a runner that has not been started.
        config: the configuration of which it was made.

    Raises:
        ValueError: one of them cannot be made.
    """
    sampler: Any = runner.sampler
    envs: list = []
    try:
        with making("environment", sampler.env_kwargs):
            (env,) = make_envs(sampler.EnvCls, sampler.env_kwargs, None, "example", [0], envs)
        if sampler.eval_n_envs > 0 and sampler.eval_env_kwargs != sampler.env_kwargs:
            with making("environment for evaluation", sampler.eval_env_kwargs):
                make_envs(sampler.eval_EnvCls, sampler.eval_env_kwargs, None, "example", [0], envs)
        # One thread, because processes that are forked later could not use several, if this one had.
        with making("model", config.get("model")), logger.verbosity(0), torch_threads(1):
            made_again(runner.agent).initialize(checked_spaces(env))
    finally:
        close_envs(envs)
    if config.get("optim"):
        with making("optimizer", config["optim"]):
            algo: Any = runner.algo
            algo.OptimCls([torch.zeros(1, requires_grad=True)], lr=1e-3, **config["optim"])


@contextmanager
def making(what: str, settings: Any) -> Iterator[None]:
    """Raise ValueError, with the settings, instead of an error of a constructor; missing modules and files raise what they raise."""
    try:
        yield
    except (ImportError, OSError):
        raise
    except Exception as error:  # Any constructor may be here.
        given = ", ".join(f"{name}={value!r}" for name, value in settings.items()) if isinstance(settings, Mapping) else ""
        raise ValueError(f"The {what} cannot be made{f' with {given}' if given else ''}: {said_clearly(error)}") from error


def with_defaults(affinity: Any, defaults: dict) -> Any:
    """Return an affinity, or a list of one per process, with `defaults` for missing entries. Asynchronous runs keep theirs unchanged."""
    if affinity is None:
        return dict(defaults)
    if isinstance(affinity, list):
        return [with_defaults(each, defaults) for each in affinity]
    return affinity if isinstance(affinity, str) or "optimizer" in affinity else {**defaults, **affinity}


def given(**settings: Any) -> dict[str, Any]:
    """Return the settings that are neither None nor empty."""
    return {name: value for name, value in settings.items() if value}


def check_names(config: Mapping[str, Any], section: str, make: Callable) -> None:
    """Raise ValueError, with the nearest name, if a section of `config` contains a setting that `make` does not accept."""
    for name in config.get(section, {}):
        if not takes(make, name):
            hint = which_setting(name, arguments_of(make))
            raise ValueError(f"There is no setting of {make.__name__} (section {section}) named {name!r}. {hint}")


def check_left_out(config: Mapping[str, Any], classes: Mapping[str, Any]) -> None:
    """Raise ValueError if a section has a setting that other parts of the configuration determine."""
    determined = dict(
        runner=dict(algo="the section algo", agent="the section agent", sampler="the section sampler", seed="--seed"),
        sampler=dict(
            EnvCls="the class env",
            env_kwargs="the section env",
            eval_env_kwargs="the sections env and eval_env",
            **given(TrajInfoCls="traj_info" in classes and "the class traj_info"),
            **given(CollectorCls="collector" in classes and "the class collector"),
        ),
        algo=given(
            OptimCls="optim" in classes and "the class optim",
            ReplayBufferCls="replay_buffer" in classes and "the class replay_buffer",
            optim_kwargs=config.get("optim") and "the section optim",
        ),
        agent=given(model_kwargs=config.get("model") and config["agent"].get("model_kwargs") is not None and "the section model"),
    )
    for section, names in determined.items():
        for name in names.keys() & config.get(section, {}):
            raise ValueError(f"{section}.{name} cannot be set: {names[name]} determines it.")


def load_class(path: str) -> Any:
    """Import and return the class at an import path; ImportError if it does not exist, or needs a package that is missing."""
    module, _, name = path.rpartition(".")
    found = importlib.import_module(module)
    if not hasattr(found, name):
        raise ImportError(f"There is no {name} in {module}.")
    return getattr(found, name)


def read_value(text: str) -> Any:
    """Parse a Python literal, or true, false or none in any case; any other text is a string."""
    try:
        return CONSTANTS[text.lower()] if text.lower() in CONSTANTS else ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return text
