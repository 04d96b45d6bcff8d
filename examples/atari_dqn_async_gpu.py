"""DQN on an Atari game, with sampling, by one or several action servers, and training at the same time.

What it teaches: one GPU trains while others act. `--cuda_idx 0 --sample_cuda_idxs 1 2` trains on the first one and shares the
environments out among two processes that act on the others; without GPUs, it all runs on the CPU.

    python examples/atari_dqn_async_gpu.py --game pong --n_parallel 2
"""

from collections.abc import Sequence

from rlpyt.cli.scripts import command_line
from rlpyt.experiments.smoke import tiny
from rlpyt.experiments.train import build_runner
from rlpyt.utils.logging.context import logger_context


def build(
    game: str = "pong",
    cuda_idx: int | None = None,
    sample_cuda_idxs: Sequence[int] = (),
    n_parallel: int = 2,
    seed: int | None = None,
):
    """Return the runner, with which nothing has been started yet.

    Args:
        game: Atari game.
        cuda_idx: GPU that trains; default: none.
        sample_cuda_idxs: GPUs that act, each with its own process and workers; default: none, one process.
        n_parallel: worker processes of each sampling process.
        seed: the same seed gives the same environments and first parameters; default: a new one.
    """
    affinity = dict(
        optimizer=[dict(cuda_idx=cuda_idx)],  # One dictionary for each process that trains; several share each update.
        sampler=[  # One dictionary for each process that acts, on its own GPU, for its own workers and its share of the environments.
            dict(cuda_idx=idx, workers_cpus=list(range(n_parallel))) for idx in sample_cuda_idxs or [None]
        ],
        set_affinity=False,  # True binds processes to the processors listed.
    )
    return build_runner(
        "atari_dqn",
        "double_pri_duel",
        seed=seed,
        sampler="async_gpu",
        settings=[f"env.game={game}", "sampler.batch_T=4", "sampler.batch_B=32"],
        affinity=affinity,
    )


def build_and_train(game: str = "pong", run_ID: int = 0, *, log_dir: str = "atari_dqn_async_gpu", smoke: bool = False, **settings):
    """Train, and return the directory of the run. Further settings are those of `build`."""
    runner = build(game, **settings)
    if smoke:
        runner = tiny(runner)
    with logger_context(log_dir, run_ID, name=f"dqn_{game}", log_params=dict(game=game)) as run_dir:
        runner.train()
    return run_dir


if __name__ == "__main__":
    command_line(build_and_train, __doc__, build)
