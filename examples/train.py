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

# For scripts that train a configuration with their own affinity.
from rlpyt.cli.scripts import command_line  # noqa: F401
from rlpyt.experiments.train import build_and_train  # noqa: F401

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    train.add_arguments(parser)
    sys.exit(main_of_script(lambda: train.run(parser.parse_args())))
