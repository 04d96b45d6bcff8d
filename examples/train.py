"""Train any configuration of rlpyt.experiments.configs.

What it teaches: experiments as data. A configuration names the classes of a run and their settings; `rlpyt.experiments.train` puts them
together. The command `rlpyt train` does the same.

    python examples/train.py atari_ff_ppo pong_2M --n_parallel 2
    python examples/train.py mujoco_sac sac_1M_serial --set env.id=HalfCheetah-v5 algo.learning_rate=1e-3
    python examples/train.py atari_ff_ppo pong_2M --set accelerate.bf16=True

As a run of an experiment (see launch.py), it is told its hardware, directory and number, and finds what is different in this run there:

    python examples/train.py {slot_affinity_code} {log_dir} {run_ID} {module:key}
"""

import argparse
import sys

from rlpyt.cli import main_of_script, train
from rlpyt.experiments.train import build_and_train  # noqa: F401  For scripts that train a configuration with an affinity of their own.
from rlpyt.utils.quick_args import arguments_of


def command_line(function, description):
    """Call a function with what the command line says; its options are the function's arguments."""
    helps = dict(
        game="Atari game",
        run_ID="number of the run, part of its directory",
        cuda_idx="GPU that trains; default: none",
        sample_cuda_idxs="GPUs that act, each with a process and workers of its own; default: none, one process",
        sample_mode="gpu, or alternating: two groups of workers in turn",
        n_parallel="worker processes of each sampling process",
        seed="the same seed gives the same environments and first parameters; default: a new one",
    )
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, argument in arguments_of(function).items():
        if name == "smoke":
            parser.add_argument("--smoke", help="a tiny run, to see whether everything works", action="store_true")
        elif name in helps:
            kind = dict(nargs="*", type=int) if name.endswith("s") else dict(type=str if isinstance(argument.default, str) else int)
            parser.add_argument(f"--{name}", help=helps[name], default=argument.default, **kind)
    function(**vars(parser.parse_args()))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    train.add_arguments(parser)
    sys.exit(main_of_script(lambda: train.run(parser.parse_args())))
