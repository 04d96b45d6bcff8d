"""Playing with the agent of a snapshot: what the commands eval and video have in common."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

MOST_STEPS = 100_000  # Env steps of an episode at the most, where neither the environment nor the user sets a limit.


def add_arguments(parser: argparse.ArgumentParser, n_episodes: int) -> None:
    """Declare the options that say what to play."""
    parser.add_argument("path", metavar="SNAPSHOT_OR_RUN_DIR", help="a file such as params.pkl, or the directory of a run for its newest")
    parser.add_argument("--episodes", type=at_least_1, default=n_episodes, help=f"how many to play; default: {n_episodes}")
    parser.add_argument("--seed", type=int, default=0, help="of environments and actions; default: 0")
    parser.add_argument("--cuda_idx", type=int, help="GPU that acts; default: none")
    parser.add_argument("--max_steps", type=at_least_1, help="env steps of an episode at the most; default: the environment's time limit")
    parser.add_argument(
        "--env", metavar="NAME=VALUE", nargs="+", default=[], help="further arguments of the environment, e.g. camera_name=track"
    )
    add_script_argument(parser)


def add_script_argument(parser: argparse.ArgumentParser) -> None:
    """Declare the option that says how to build a run of a script written by hand."""
    parser.add_argument(
        "--script",
        metavar="FILE.py:FUNCTION",
        help="builds the run if params.json does not say how: a function that returns its runner (argument, if it takes one: params)",
    )


def at_least_1(text: str) -> int:
    """Read a positive integer."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be an integer of at least 1, not {text!r}.")
    return int(text)


def env_settings(settings: list[str], EnvCls: Callable) -> dict[str, Any]:
    """Read arguments of an environment, "name=value"; ValueError if one is not of that form, or the environment does not take it."""
    from rlpyt.experiments.build import check_names, read_value
    from rlpyt.samplers.base import entry

    pairs = [setting.partition("=") for setting in settings]
    for setting, (_, is_, _) in zip(settings, pairs, strict=True):
        if not is_:
            raise ValueError(f"--env {setting} must be of the form name=value, e.g. camera_name=track.")
    values = {name: read_value(text) for name, _, text in pairs}
    check_names(dict(env=values), "env", entry(EnvCls, 0))
    return values


class Loaded(NamedTuple):
    """A snapshot, and the runner of the run that it is of (which has not been started)."""

    file: Path
    snapshot: dict
    runner: Any


def load(path: Any, script: str | None = None) -> Loaded:
    """Read a snapshot and build what it takes to play with its agent.

    Raises:
        FileNotFoundError: there is no snapshot, params.json or script.
        ValueError: it is damaged, or not a snapshot of a run, or nothing says which agent it is of.
    """
    from rlpyt.experiments.build import SAMPLERS, rebuild
    from rlpyt.runners.checkpoint import beside, load_snapshot

    file, snapshot = load_snapshot(path)
    if not isinstance(snapshot, dict) or "agent_state_dict" not in snapshot:
        raise ValueError(f"{file} is not the snapshot of a run: it has no agent_state_dict.")
    runner = rebuild(
        beside(file, "params.json"),
        script,
        affinity={},
        paths=dict(sampler=SAMPLERS["serial"], collector=None),  # Its environment is all that is needed of the sampler.
        sampler=dict(batch_T=1, batch_B=1),
        runner=dict(n_steps=1),
    )
    return Loaded(file, snapshot, runner)


def play(
    loaded: Loaded,
    n_episodes: int,
    n_envs: int = 1,
    seed: int = 0,
    cuda_idx: int | None = None,
    max_steps: int | None = None,
    env_kwargs: dict | None = None,
    wrap: Callable[[Any], Any] = lambda env: env,
) -> list:
    """Play episodes in evaluation environments, the agent in evaluation mode; return the TrajInfo of each one completed.

    Args:
        loaded: from `load`.
        n_episodes: episodes, shared out evenly among the environments, so that short ones are not preferred.
        n_envs: environments that are played at the same time.
        seed: of environments and actions. With as many environments, it repeats the same episodes.
        cuda_idx: GPU that acts; None for none.
        max_steps: env steps of an environment per episode that it plays, at the most; None is the environment's horizon.
        env_kwargs: further keyword arguments for the environments.
        wrap: called with each environment to play; returns what to play in its place.

    Raises:
        ValueError: the snapshot does not fit the agent, or the agent is one for alternating samplers.
    """
    from rlpyt.envs.base import horizon_of
    from rlpyt.samplers.base import close_envs, make_envs, set_traj_info_attributes
    from rlpyt.samplers.buffer import checked_spaces, get_example_outputs
    from rlpyt.samplers.serial.collectors import SerialEvalCollector
    from rlpyt.utils.seed import set_seed

    file, snapshot, runner = loaded
    agent, sampler = runner.agent, runner.sampler
    if agent.recurrent and agent.alternating:
        raise ValueError(f"{type(agent).__name__} acts for two groups of environments in turn: give the runner its plain counterpart.")
    set_seed(seed)
    envs: list = []
    try:
        kwargs = sampler.eval_env_kwargs
        each = [{**one, **(env_kwargs or {})} for one in (kwargs if isinstance(kwargs, (list, tuple)) else [kwargs])]
        (example,) = make_envs(sampler.eval_EnvCls, each, seed, "example", [0], envs)
        playing = make_envs(sampler.eval_EnvCls, each, seed, "eval_env", range(n_envs), envs)
        examples: dict = {}
        agent.initialize(checked_spaces(example))
        get_example_outputs(agent, example, examples)
        try:
            agent.load_state_dict(snapshot["agent_state_dict"])
        except (KeyError, RuntimeError) as error:
            raise ValueError(f"{file} does not fit {type(agent).__name__} in this environment: {error}") from error
        agent.to_device(cuda_idx)
        set_traj_info_attributes(sampler.TrajInfoCls, runner.get_traj_info_kwargs())
        limit = max_steps or horizon_of(example) or MOST_STEPS
        collector = SerialEvalCollector(
            envs=[wrap(env) for env in playing],
            agent=agent,
            TrajInfoCls=sampler.TrajInfoCls,
            max_T=limit * math.ceil(n_episodes / n_envs),
            max_trajectories=n_episodes,
        )
        collector.examples = examples
        return collector.collect_evaluation(max(snapshot["itr"], 1))  # Iteration 0 would be that before any training.
    finally:
        close_envs(envs)
