"""An experiment: A2C on Atari games, with several settings, each run twice, on all of a machine.

What it teaches: variants. A level has settings that change together, here learning rate and number of environments; levels are crossed,
here with games. And affinity: the machine is divided into slots, each run gets one, and the next run starts when a slot is free. Each run
is a process of its own, with the script example_6a.py.

    python examples/example_6.py --n_cpu_core 4 --n_gpu 0

Everything is in data/local/<date>/<time>/example_6/. Ctrl-C ends all runs, with time to save. Launched again with the same directory
(--log_dir, an absolute path), runs that have finished are skipped, and the others go on where they stopped.
"""

import argparse
from pathlib import Path

from rlpyt.utils.launching.affinity import encode_affinity
from rlpyt.utils.launching.exp_launcher import run_experiments
from rlpyt.utils.launching.variant import VariantLevel, make_variants


def launch(n_cpu_core=2, n_gpu=0, log_dir="example_6", games=("pong", "seaquest"), runs_per_setting=2, smoke=False):
    """Launch all runs, and wait for them."""
    affinity_code = encode_affinity(
        n_cpu_core=n_cpu_core,  # Of the machine, shared out evenly among runs:
        n_gpu=n_gpu,  # one run per GPU at a time,
        cpu_per_run=1,  # or, without GPUs, one per core.
    )
    learning_rates, batch_Bs = [3e-4, 6e-4], [16, 32]
    optimization = VariantLevel(
        keys=[("algo", "learning_rate"), ("sampler", "batch_B")],
        values=list(zip(learning_rates, batch_Bs)),
        dir_names=[f"{learning_rate:g}lr_{batch_B}B" for learning_rate, batch_B in zip(learning_rates, batch_Bs)],
    )
    game = VariantLevel(keys=[("env", "game")], values=list(zip(games)), dir_names=list(games))
    variants, log_dirs = make_variants(optimization, game)
    run_experiments(
        script=Path(__file__).with_name("example_6a.py"),
        affinity_code=affinity_code,
        experiment_title=log_dir,
        runs_per_setting=runs_per_setting,
        variants=variants,
        log_dirs=log_dirs,
        common_args=["--smoke"] if smoke else [],
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n_cpu_core", help="physical cores to use", type=int, default=2)
    parser.add_argument("--n_gpu", help="GPUs to use", type=int, default=0)
    parser.add_argument("--log_dir", help="directory of the experiment", default="example_6")
    parser.add_argument("--games", help="Atari games", nargs="+", default=["pong", "seaquest"])
    parser.add_argument("--runs_per_setting", help="runs of each variant, with different seeds", type=int, default=2)
    parser.add_argument("--smoke", help="tiny runs, to see whether everything works", action="store_true")
    launch(**vars(parser.parse_args()))
