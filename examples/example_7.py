"""A2C on an Atari game, on several GPUs, or in several processes.

What it teaches, compared with example 3: one process becomes several, each with its own sampler and agent, that average their
gradients. All that changes is the runner, and that its affinity is a list, with one entry for each process. Sizes are those of each
process: two of them sample, and train on, twice as much. torchrun may start them instead, on one machine or on several:

    python examples/example_7.py --game pong --cuda_idxs 0 1
    python examples/example_7.py --game pong --n_processes 2
    torchrun --nproc-per-node 2 examples/example_7.py --game pong
"""

from collections.abc import Sequence

from rlpyt.agents.pg.atari import AtariFfAgent
from rlpyt.algos.pg.a2c import A2C
from rlpyt.cli.scripts import command_line
from rlpyt.envs.atari.atari_env import AtariEnv, AtariTrajInfo
from rlpyt.experiments.smoke import tiny
from rlpyt.runners.sync_rl import SyncRl
from rlpyt.samplers.parallel.cpu.sampler import CpuSampler
from rlpyt.utils.logging.context import logger_context


def build(
    game: str = "pong",
    cuda_idxs: Sequence[int] = (),
    n_processes: int = 2,
    n_parallel: int = 1,
    seed: int | None = None,
    n_steps: int = 50_000_000,
):
    """Return the runner, with which nothing has been started yet.

    Args:
        game: Atari game.
        cuda_idxs: GPUs to train on, a process for each; default: none.
        n_processes: processes, where no GPUs are given.
        n_parallel: worker processes of each sampler.
        n_steps: environment steps to train for.
    """
    affinity = [
        dict(cuda_idx=cuda_idx, workers_cpus=list(range(n_parallel)), master_torch_threads=1, set_affinity=False)
        for cuda_idx in cuda_idxs or [None] * n_processes
    ]
    sampler = CpuSampler(
        EnvCls=AtariEnv,
        TrajInfoCls=AtariTrajInfo,
        env_kwargs=dict(game=game),
        batch_T=5,
        batch_B=16,
        max_decorrelation_steps=400,
    )
    return SyncRl(
        algo=A2C(learning_rate=3e-4),
        agent=AtariFfAgent(),
        sampler=sampler,
        n_steps=n_steps,  # Of all processes together.
        log_interval_steps=100_000,
        affinity=affinity,
        seed=seed,
    )


def build_and_train(game: str = "pong", run_ID: int = 0, *, log_dir: str = "example_7", smoke: bool = False, **settings):
    """Train, and return the directory of the run. Further settings are those of `build`."""
    runner = build(game, **settings)
    if smoke:
        runner = tiny(runner)
    with logger_context(log_dir, run_ID, name=f"a2c_{game}", log_params=dict(game=game), snapshot_mode="last") as run_dir:
        runner.train()
    return run_dir


if __name__ == "__main__":
    command_line(build_and_train, __doc__, build)
