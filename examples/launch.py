"""Launch an experiment: many runs of train.py, with several settings and seeds, on all of this machine.

What it teaches: experiments as data. Each is an entry of the table below: a configuration, and levels of variants of it.

    python examples/launch.py cartpole_ppo --n_cpu_core 2
    python examples/launch.py cartpole_ppo --affinity_code 2cpu_1cpr --runs_per_setting 5 --log_dir /data/cartpole

Everything is in data/local/<date>/<time>/<name>/, or in --log_dir. Launched again with the same --log_dir, an absolute path, runs that have
finished are skipped, and the others continue where they stopped (or: rlpyt resume /data/cartpole). How far they are, and their curves:

    rlpyt status /data/cartpole
    rlpyt plot /data/cartpole --out cartpole
"""

from pathlib import Path

from rlpyt.cli.scripts import command_line
from rlpyt.experiments.configs import look_up
from rlpyt.utils.launching.affinity import encode_affinity
from rlpyt.utils.launching.exp_launcher import run_experiments
from rlpyt.utils.launching.variant import VariantLevel, make_variants

TRAIN = Path(__file__).with_name("train.py")


def level(*keys, **values):
    """A level whose directories are named by keyword: ``level("algo.learning_rate", lr_1e3=1e-3)``; tuples are for several keys."""
    paths = [tuple(key.split(".")) for key in keys]
    combinations = [value if isinstance(value, tuple) else (value,) for value in values.values()]
    return VariantLevel(keys=paths, values=combinations, dir_names=list(values))


EXPERIMENTS = {  # name: (configuration of train.py, levels of variants)
    "cartpole_ppo": (
        "cartpole:ppo",
        [
            level("algo.learning_rate", "algo.epochs", slow=(1e-3, 20), fast=(3e-3, 10)),
            level("sampler.batch_B", B8=8, B16=16),
        ],
    ),
    "cartpole_dqn": (
        "cartpole:dqn",
        [
            level("algo.double_dqn", single=False, double=True),
            level("model.dueling", plain=False, dueling=True),
        ],
    ),
    "pendulum_sac": (
        "pendulum:sac",
        [level("algo.learning_rate", lr_3e4=3e-4, lr_1e3=1e-3)],
    ),
    "atari_ppo": (
        "atari_ff_ppo:pong_2M",
        [level("env.game", pong="pong", breakout="breakout", qbert="qbert")],
    ),
}


def launch(
    name: str,
    affinity_code: str | None = None,
    runs_per_setting: int = 2,
    log_dir: str | None = None,
    smoke: bool = False,
    n_cpu_core: int = 2,
    n_gpu: int = 0,
):
    """Launch all runs of an experiment, and wait for them.

    Args:
        name: of the experiment.
        affinity_code: instead of n_cpu_core and n_gpu: code from encode_affinity, e.g. 8cpu_2gpu.
        runs_per_setting: runs of each variant, with different seeds.
        log_dir: directory of the experiment.
        n_cpu_core: physical cores to use.
        n_gpu: GPUs to use, each for one run at a time; without any, cores are.
    """
    config_key, levels = EXPERIMENTS[look_up(name, EXPERIMENTS, "experiment")]
    variants, log_dirs = make_variants(*levels)
    run_experiments(
        script=TRAIN,
        affinity_code=affinity_code or encode_affinity(n_cpu_core=n_cpu_core, n_gpu=n_gpu),
        experiment_title=log_dir or name,
        runs_per_setting=runs_per_setting,
        variants=variants,
        log_dirs=log_dirs,
        common_args=[config_key, *(["--smoke"] if smoke else [])],
    )


if __name__ == "__main__":
    command_line(launch, f"{__doc__}\nExperiments: {', '.join(EXPERIMENTS)}.")
