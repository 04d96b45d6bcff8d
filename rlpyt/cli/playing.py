"""Plays episodes with the agent of a snapshot, for the commands eval and video."""

from __future__ import annotations

import argparse
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
    parser.add_argument(
        "--max_steps",
        type=at_least_1,
        help="most env steps of an episode; one that is longer is cut there, and does not count; default: the environment's time limit",
    )
    parser.add_argument(
        "--env",
        metavar="NAME=VALUE",
        nargs="+",
        action=Gather,
        default=[],
        help="further arguments of the environment, e.g. camera_name=track",
    )
    parser.add_argument(
        "--snapshot",
        default="last",
        help='for a directory: "last" (default), "best", a file in it such as params_previous.pkl, or any path',
    )
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
        n_episodes: number of episodes that were asked for.
        is_interrupted: whether Ctrl-C stopped `play`.
    """

    traj_infos: list
    n_episodes: int
    is_interrupted: bool

    def why_fewer(self) -> str | None:
        """Return a sentence about the episodes that did not end; None if all did."""
        n, n_asked = len(self.traj_infos), self.n_episodes
        why = "Ctrl-C stopped the others" if self.is_interrupted else "a larger --max_steps allows longer ones"
        return f"Only {n} of {n_asked} episodes came to an end; {why}." if n < n_asked else None


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

    Environments play in rounds of one episode each: so each episode has the same limit, and short ones are not preferred.

    Args:
        opened: from `open_run`.
        n_episodes: number of episodes, those that are cut included.
        n_envs: number of environments played at the same time.
        seed: seed of environments and actions. With the same number of environments, it repeats the same episodes.
        cuda_idx: GPU on which the agent acts; None for the CPU.
        max_steps: env steps after which an episode is cut; None for the environment's horizon.
        env_kwargs: further keyword arguments for the environments.
        wrap: called with each environment; returns the environment to play instead. None plays them as they are.

    Raises:
        ValueError: the snapshot does not fit the agent.
    """
    from rlpyt.envs.base import horizon_of
    from rlpyt.experiments.build import making
    from rlpyt.samplers.base import close_envs, make_envs, set_traj_info_attributes
    from rlpyt.samplers.buffer import get_example_outputs
    from rlpyt.samplers.collectors import TrajInfoList, episodes_per_env
    from rlpyt.samplers.serial.collectors import SerialEvalCollector
    from rlpyt.utils.prog_bar import ProgBarCounter
    from rlpyt.utils.seed import set_seed

    class Ended(TrajInfoList):
        """Takes the TrajInfos of episodes that end, in all rounds; prints how many there are."""

        def put(self, traj_info: Any) -> None:
            traj_infos.append(traj_info)
            bar.update(len(traj_infos))

    sampler = opened.sampler
    set_seed(seed)
    envs: list = []
    traj_infos: list = []
    bar, is_interrupted = ProgBarCounter(n_episodes), False
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
        collector = SerialEvalCollector(
            envs=playing if wrap is None else [wrap(env) for env in playing],
            agent=agent,
            TrajInfoCls=sampler.TrajInfoCls,
            max_T=max_steps or horizon_of(example) or MOST_STEPS,
            traj_infos=Ended(),
        )
        collector.examples = examples
        try:
            for n_begun in range(0, n_episodes, n_envs):
                collector.max_episodes = episodes_per_env(min(n_envs, n_episodes - n_begun), n_envs)
                collector.collect_evaluation(opened.itr)
        except KeyboardInterrupt:
            is_interrupted = True
        return Played(traj_infos, n_episodes, is_interrupted)
    finally:
        bar.stop()
        close_envs(envs)
