"""An experiment: PPO on small problems, with several settings, each run twice, on all of a machine.

What it teaches: variants. A level has settings that change together, here learning rate and number of environments; levels are crossed,
here with problems. And affinity: the machine is divided into slots, each run gets one, and the next run starts when a slot is free. Each
run is a separate process, with the script example_6a.py. With `--games`, the same experiment is made on Atari games, by train.py, which
runs any configuration.

    python examples/example_6.py --n_cpu_core 4
    python examples/example_6.py --n_cpu_core 8 --n_gpu 2 --games pong seaquest

Everything is in data/local/<date>/<time>/example_6/. Ctrl-C ends all runs, with time to save. Launched again with the same directory
(--log_dir, an absolute path), runs that have finished are skipped, and the others continue where they stopped.
"""

from collections.abc import Sequence
from pathlib import Path

from rlpyt.cli.scripts import command_line
from rlpyt.utils.launching.affinity import encode_affinity
from rlpyt.utils.launching.exp_launcher import run_experiments
from rlpyt.utils.launching.variant import VariantLevel, make_variants

EXAMPLES = Path(__file__).parent


def launch(
    n_cpu_core: int = 2,
    n_gpu: int = 0,
    log_dir: str = "example_6",
    games: Sequence[str] = (),
    runs_per_setting: int = 2,
    smoke: bool = False,
):
    """Launch all runs, and wait for them.

    Args:
        n_cpu_core: physical cores to use.
        n_gpu: GPUs to use.
        log_dir: directory of the experiment.
        games: Atari games; default: none, but CartPole and Acrobot.
        runs_per_setting: runs of each variant, with different seeds.
    """
    affinity_code = encode_affinity(
        n_cpu_core=n_cpu_core,  # Of the machine, shared out evenly among runs:
        n_gpu=n_gpu,  # one run per GPU at a time,
        cpu_per_run=1,  # or, without GPUs, one per core.
    )
    if games:
        script, arguments = EXAMPLES / "train.py", ["atari_ff_a2c:0"]
        learning_rates, batch_Bs = [3e-4, 6e-4], [16, 32]
        problem = VariantLevel(keys=[("env", "game")], values=list(zip(games)), dir_names=list(games))
    else:
        script, arguments = EXAMPLES / "example_6a.py", []
        learning_rates, batch_Bs = [1e-3, 2e-3], [8, 16]
        problem = VariantLevel(keys=[("env", "id")], values=[("CartPole-v1",), ("Acrobot-v1",)], dir_names=["cartpole", "acrobot"])
    optimization = VariantLevel(
        keys=[("algo", "learning_rate"), ("sampler", "batch_B")],
        values=list(zip(learning_rates, batch_Bs)),
        dir_names=[f"{learning_rate:g}lr_{batch_B}B" for learning_rate, batch_B in zip(learning_rates, batch_Bs)],
    )
    variants, log_dirs = make_variants(optimization, problem)
    run_experiments(
        script=script,
        affinity_code=affinity_code,
        experiment_title=log_dir,
        runs_per_setting=runs_per_setting,
        variants=variants,
        log_dirs=log_dirs,
        common_args=[*arguments, *(["--smoke"] if smoke else [])],
    )


if __name__ == "__main__":
    command_line(launch, __doc__)
