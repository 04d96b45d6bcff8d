"""Plays episodes with the agent of a snapshot, for the commands eval and video."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from rlpyt.cli import Gather

if TYPE_CHECKING:
    from rlpyt.experiments.opening import OpenedRun

TRUST = (
    "import whatever the run names; without it, only parts of rlpyt, torch, gymnasium and your files: "
    "below the current directory, but not in the directory of the run"
)
MOST_STEPS = 100_000  # Limit of an episode (env steps), if neither the environment nor the user sets one.


def add_arguments(parser: argparse.ArgumentParser, n_episodes: int) -> None:
    """Declare the options of playing."""
    parser.add_argument("path", metavar="SNAPSHOT_OR_RUN_DIR", help="a file such as params.pkl, or the directory of a run for its newest")
    parser.add_argument("--episodes", type=at_least_1, default=n_episodes, help=f"number of episodes; default: {n_episodes}")
    parser.add_argument("--seed", type=int, default=0, help="seed of environments and actions; default: 0")
    parser.add_argument("--cuda_idx", type=int, help="GPU on which the agent acts; default: none")
    parser.add_argument("--max_steps", type=at_least_1, help="most env steps of an episode; default: the environment's time limit")
    parser.add_argument(
        "--env",
        metavar="NAME=VALUE",
        nargs="+",
        action=Gather,
        default=[],
        help="further arguments of the environment, e.g. camera_name=track",
    )
    parser.add_argument("--snapshot", default="last", help='for a directory: "last" (default), "best", or a file')
    add_opening_arguments(parser)


def add_opening_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of building a run, and of what may be imported for it."""
    parser.add_argument("--trust", action="store_true", help=TRUST)
    parser.add_argument(
        "--script",
        metavar="FILE.py:FUNCTION",
        help="builds the run if params.json cannot: a function, with or without the argument params, that returns the runner",
    )


def at_least_1(text: str) -> int:
    """Read a positive integer."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be an integer of at least 1, not {text!r}.")
    return int(text)


def env_settings(settings: list[str], EnvCls: Callable) -> dict[str, Any]:
    """Read arguments of an environment, "name=value"; ValueError if one has another form, or the environment does not accept it."""
    from rlpyt.experiments.build import check_names, read_value
    from rlpyt.samplers.base import entry

    pairs = [setting.partition("=") for setting in settings]
    for setting, (_, is_, _) in zip(settings, pairs, strict=True):
        if not is_:
            raise ValueError(f"--env {setting} must be of the form name=value, e.g. camera_name=track.")
    values = {name: read_value(text) for name, _, text in pairs}
    check_names(dict(env=values), "env", entry(EnvCls, 0))
    return values


def open_run(args: argparse.Namespace) -> OpenedRun:
    """Open the snapshot or directory that the command line names; errors are those of `rlpyt.experiments.opening.OpenedRun`."""
    from rlpyt.experiments.opening import OpenedRun

    return OpenedRun(args.path, args.snapshot, args.trust, args.script)


class Played(NamedTuple):
    """The result of `play`.

    Attributes:
        traj_infos: the TrajInfo of each episode that ended.
        is_interrupted: whether Ctrl-C stopped `play`.
    """

    traj_infos: list
    is_interrupted: bool


def play(
    opened: OpenedRun,
    n_episodes: int,
    n_envs: int = 1,
    seed: int = 0,
    cuda_idx: int | None = None,
    max_steps: int | None = None,
    env_kwargs: dict | None = None,
    wrap: Callable[[Any], Any] | None = None,
) -> Played:
    """Play episodes in evaluation environments with the agent in evaluation mode. A terminal shows their progress; Ctrl-C stops.

    Args:
        opened: from `open_run`.
        n_episodes: number of episodes; every environment plays an equal share, so that short ones are not preferred.
        n_envs: number of environments played at the same time.
        seed: seed of environments and actions. With the same number of environments, it repeats the same episodes.
        cuda_idx: GPU on which the agent acts; None for the CPU.
        max_steps: each environment stops after this number of env steps times its share of episodes; None for its horizon.
        env_kwargs: further keyword arguments for the environments.
        wrap: called with each environment; returns the environment to play instead. None plays them as they are.

    Raises:
        ValueError: the snapshot does not fit the agent.
    """
    from rlpyt.envs.base import horizon_of
    from rlpyt.experiments.build import making
    from rlpyt.samplers.base import close_envs, make_envs, set_traj_info_attributes
    from rlpyt.samplers.buffer import get_example_outputs
    from rlpyt.samplers.collectors import TrajInfoList
    from rlpyt.samplers.serial.collectors import SerialEvalCollector
    from rlpyt.utils.prog_bar import ProgBarCounter
    from rlpyt.utils.seed import set_seed

    class Ended(TrajInfoList):
        """The TrajInfos of ended episodes; prints how many there are."""

        def put(self, traj_info: Any) -> None:
            self.append(traj_info)
            bar.update(len(self))

    sampler = opened.sampler
    set_seed(seed)
    envs: list = []
    ended, bar, is_interrupted = Ended(), ProgBarCounter(n_episodes), False
    try:
        kwargs = sampler.eval_env_kwargs
        each = [{**one, **(env_kwargs or {})} for one in (kwargs if isinstance(kwargs, (list, tuple)) else [kwargs])]
        one_or_more = each if len(each) > 1 else each[0]
        with making("environment", env_kwargs):
            example = make_envs(sampler.eval_EnvCls, one_or_more, seed, "example", [0], envs)[0]
        playing = make_envs(sampler.eval_EnvCls, one_or_more, seed, "eval_env", range(n_envs), envs)
        agent = opened.agent_for(example, cuda_idx)
        examples: dict = {}
        get_example_outputs(agent, example, examples)
        set_traj_info_attributes(sampler.TrajInfoCls, opened.traj_info_kwargs)
        limit = max_steps or horizon_of(example) or MOST_STEPS
        collector = SerialEvalCollector(
            envs=playing if wrap is None else [wrap(env) for env in playing],
            agent=agent,
            TrajInfoCls=sampler.TrajInfoCls,
            max_T=limit * math.ceil(n_episodes / n_envs),
            max_trajectories=n_episodes,
            traj_infos=ended,
        )
        collector.examples = examples
        try:
            collector.collect_evaluation(opened.itr)
        except KeyboardInterrupt:
            is_interrupted = True
        return Played(list(ended), is_interrupted)
    finally:
        bar.stop()
        close_envs(envs)
