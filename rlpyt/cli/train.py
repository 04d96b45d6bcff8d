"""Train a configuration of rlpyt.experiments.configs, with changes.

A configuration is a module and a key in it; without these, all configurations are listed. Every setting
can be changed: --set section.name=value, where the sections are agent, algo, accelerate, affinity, env,
eval_env, model, optim, runner and sampler. An entry of a setting that is a dictionary has another dot:
agent.q_model_kwargs.dropout=0.01.

examples:
  rlpyt train cartpole ppo
  rlpyt train atari_ff_ppo pong_2M --n_parallel 2 --set accelerate.bf16=True
  rlpyt train mujoco_sac sac_1M_serial --set env.id=HalfCheetah-v5 algo.learning_rate=1e-3
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rlpyt.cli import Gather
from rlpyt.cli.scripts import DIGEST
from rlpyt.utils.text import show

SINGLE = ("log_dir", "run_ID", "seed", "cuda_idx", "n_parallel")  # options that runs of experiments get in another way
NOT_GIVEN: Any = argparse.SUPPRESS  # Default of these options: `build_and_train` has the values.


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("names", metavar="NAME", nargs="*", help="module and key, e.g. cartpole ppo, or cartpole:ppo")
    parser.add_argument("--log_dir", help="directory of the experiment; default: made from module and key", default=NOT_GIVEN)
    parser.add_argument("--run_ID", help="number of the run, part of its directory; default: 0", type=int, default=NOT_GIVEN)
    parser.add_argument("--seed", help="the same seed gives the same run; default: 0", type=int, default=NOT_GIVEN)
    parser.add_argument("--cuda_idx", help="GPU to use; default: none", type=int, default=NOT_GIVEN)
    parser.add_argument(
        "--n_parallel", help="worker processes of parallel samplers, in each group; default: 2", type=int, default=NOT_GIVEN
    )
    parser.add_argument("--sampler", metavar="NAME", help="replaces the configuration's: serial, cpu, gpu, alternating, async_cpu, ...")
    parser.add_argument(
        "--set", metavar="SECTION.NAME=VALUE", help="settings to change", nargs="+", action=Gather, default=[], dest="settings"
    )
    parser.add_argument("--digest", help=f"{DIGEST}; the same as --set runner.digest=True", action="store_true")
    parser.add_argument("--smoke", help="a tiny run, to see whether everything works", action="store_true")


def run(args: argparse.Namespace) -> int:
    """Train, or list the configurations."""
    from rlpyt.experiments.train import build_and_train, build_and_train_in_slot, split_key

    args.settings = [*args.settings, *["runner.digest=True"] * args.digest]
    settings: dict[str, Any] = {name: getattr(args, name) for name in ("sampler", "settings", "smoke")}
    single = {name: value for name, value in vars(args).items() if name in SINGLE}
    names = split_key(args.names[0]) if len(args.names) == 1 else args.names
    if not names:
        print(list_of_configurations())
    elif len(names) == 2:
        module, key = names
        with hint_at_other_configurations():
            build_and_train(module, key, **single, **settings)
    elif len(names) == 4:  # the arguments with which run_experiments calls a script
        if single:
            options = ", ".join(f"--{name}" for name in single)
            raise ValueError(f"{options} cannot be given with slot_affinity_code, log_dir, run_ID and config_key, which determine them.")
        build_and_train_in_slot(*names, **settings)
    else:
        words = "give module and key, or slot_affinity_code, log_dir, run_ID and config_key (module:key)"
        show(f"rlpyt train: {words}, not {' '.join(names)}.", sys.stderr)
        return 2
    return 0


@contextmanager
def hint_at_other_configurations() -> Iterator[None]:
    """Add to the error about actions that an agent does not take that another configuration has another agent."""
    from rlpyt.agents.spaces import WrongActionSpace

    try:
        yield
    except ValueError as error:
        if isinstance(error.__cause__, WrongActionSpace):
            hint = "On the command line, take a configuration for such actions (rlpyt train lists all), e.g."
            raise ValueError(f"{error} {hint} cartpole ppo for discrete ones, or pendulum sac for continuous ones.") from error
        raise


def list_of_configurations() -> str:
    """Return a line for each configuration module, with its keys."""
    from rlpyt.experiments import configs

    names = sorted(name for name in configs.config_modules() if "configs" in vars(configs.load(name)))
    width = max(map(len, names)) + 2
    return "\n".join(f"{name:{width}}{' '.join(map(str, configs.load(name).configs))}" for name in names)
